#include "engine/model/hf_meta.h"

#include <stdio.h>
#include <string.h>

#define GGUF_VERSION 3
/* Names of architectures and keys are constants of ours: this is room for any. */
#define KEY_BYTES 96

void hf_meta_init(struct hf_meta *m, const char *arch)
{
    *m = (struct hf_meta){.arch = arch};
    buf_init(&m->kv);
}

void hf_meta_dispose(struct hf_meta *m)
{
    buf_dispose(&m->kv);
}

void hf_meta_element(struct hf_meta *m, const char *s, size_t len)
{
    buf_put_u64(&m->kv, len);
    buf_append(&m->kv, s, len);
}

static void put_key(struct hf_meta *m, const char *key, enum gguf_type type)
{
    hf_meta_element(m, key, strlen(key));
    buf_put_u32(&m->kv, type);
    m->n++;
}

static void put_f32(struct buf *b, float v)
{
    uint32_t bits;

    memcpy(&bits, &v, sizeof bits);
    buf_put_u32(b, bits);
}

void hf_meta_u32(struct hf_meta *m, const char *key, uint32_t v)
{
    put_key(m, key, GGUF_U32);
    buf_put_u32(&m->kv, v);
}

void hf_meta_f32(struct hf_meta *m, const char *key, float v)
{
    put_key(m, key, GGUF_F32);
    put_f32(&m->kv, v);
}

void hf_meta_bool(struct hf_meta *m, const char *key, bool v)
{
    put_key(m, key, GGUF_BOOL);
    buf_put_u8(&m->kv, v);
}

void hf_meta_string(struct hf_meta *m, const char *key, const char *s, size_t len)
{
    put_key(m, key, GGUF_STRING);
    hf_meta_element(m, s, len);
}

size_t hf_meta_array(struct hf_meta *m, const char *key, enum gguf_type element, size_t n)
{
    size_t where;

    put_key(m, key, GGUF_ARRAY);
    buf_put_u32(&m->kv, element);
    where = m->kv.len;
    buf_put_u64(&m->kv, n);
    return where;
}

void hf_meta_set_length(struct hf_meta *m, size_t where, size_t n)
{
    if (m->kv.failed)
        return;
    for (int i = 0; i < 8; i++)
        m->kv.data[where + (size_t)i] = (char)(uint8_t)((uint64_t)n >> (8 * i));
}

void hf_meta_f32_element(struct hf_meta *m, float v)
{
    put_f32(&m->kv, v);
}

static const char *arch_key(const struct hf_meta *m, const char *name, char key[KEY_BYTES])
{
    snprintf(key, KEY_BYTES, "%s.%s", m->arch, name);
    return key;
}

void hf_meta_arch_u32(struct hf_meta *m, const char *name, uint32_t v)
{
    char key[KEY_BYTES];

    hf_meta_u32(m, arch_key(m, name, key), v);
}

void hf_meta_arch_f32(struct hf_meta *m, const char *name, float v)
{
    char key[KEY_BYTES];

    hf_meta_f32(m, arch_key(m, name, key), v);
}

void hf_meta_arch_string(struct hf_meta *m, const char *name, const char *s)
{
    char key[KEY_BYTES];

    hf_meta_string(m, arch_key(m, name, key), s, strlen(s));
}

void hf_meta_arch_bools(struct hf_meta *m, const char *name, const bool *v, size_t n)
{
    char key[KEY_BYTES];

    hf_meta_array(m, arch_key(m, name, key), GGUF_BOOL, n);
    for (size_t i = 0; i < n; i++)
        buf_put_u8(&m->kv, v[i]);
}

enum status hf_meta_finish(const struct hf_meta *m, struct buf *out)
{
    buf_puts(out, "GGUF");
    buf_put_u32(out, GGUF_VERSION);
    buf_put_u64(out, 0); /* tensors */
    buf_put_u64(out, m->n);
    buf_append(out, m->kv.data, m->kv.len);
    return m->kv.failed || out->failed ? ST_NO_MEMORY : ST_OK;
}
