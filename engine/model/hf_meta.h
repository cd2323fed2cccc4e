/* Metadata being written as a GGUF file has it: a folder's config and tokenizer become the bytes
 * that gguf_read parses, so that the rest of the engine sees one format. Keys are the caller's
 * promise to be different ones (the parser refuses others). Failures of memory show at
 * hf_meta_finish. One thread at a time. */
#ifndef ENGINE_MODEL_HF_META_H
#define ENGINE_MODEL_HF_META_H

#include "base/buf.h"
#include "engine/model/gguf.h"

struct hf_meta {
    struct buf kv;
    uint64_t n;
    const char *arch; /* GGUF's name of the architecture: leads the keys of hf_meta_arch_* */
};

void hf_meta_init(struct hf_meta *m, const char *arch);
void hf_meta_dispose(struct hf_meta *m);

void hf_meta_u32(struct hf_meta *m, const char *key, uint32_t v);
void hf_meta_f32(struct hf_meta *m, const char *key, float v);
void hf_meta_bool(struct hf_meta *m, const char *key, bool v);
void hf_meta_string(struct hf_meta *m, const char *key, const char *s, size_t len);
/* An array of n elements: the caller appends them to m->kv (hf_meta_element for strings). Returns
 * where its length is, for hf_meta_set_length, who learns it later. */
size_t hf_meta_array(struct hf_meta *m, const char *key, enum gguf_type element, size_t n);
void hf_meta_set_length(struct hf_meta *m, size_t where, size_t n);
void hf_meta_element(struct hf_meta *m, const char *s, size_t len);
void hf_meta_f32_element(struct hf_meta *m, float v);

/* Key "<arch>.<name>". */
void hf_meta_arch_u32(struct hf_meta *m, const char *name, uint32_t v);
void hf_meta_arch_f32(struct hf_meta *m, const char *name, float v);
void hf_meta_arch_string(struct hf_meta *m, const char *name, const char *s);
void hf_meta_arch_bools(struct hf_meta *m, const char *name, const bool *v, size_t n);

/* Appends a GGUF v3 file without tensors. ST_NO_MEMORY. */
MUST_CHECK enum status hf_meta_finish(const struct hf_meta *m, struct buf *out);

#endif
