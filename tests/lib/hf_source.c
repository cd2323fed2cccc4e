#include "tests/lib/hf_source.h"

#include <string.h>

static const struct hf_source plain = {
    .normalizer = "null",
    .pre_tokenizer = HF_BYTES_GPT2,
    .post_processor = "null",
    .decoder = "{\"type\":\"ByteLevel\"}",
    .added = "[]",
    .model = "{\"type\":\"BPE\",\"vocab\":{\"a\":0,\"b\":1,\"ab\":2},\"merges\":[\"a b\"]}",
};

static const char *or_plain(const char *s, const char *otherwise)
{
    return s != NULL ? s : otherwise;
}

static struct hf_span span(const char *s)
{
    return (struct hf_span){s, s != NULL ? strlen(s) : 0};
}

enum status hf_source_translate(const struct hf_source *s, struct buf *out, struct gguf **g,
                                struct reason *why)
{
    struct buf text;
    struct hf_tokenizer_files files = {.config = span(s->config),
                                       .generation = span(s->generation),
                                       .model = span(s->model_config),
                                       .chat_template = span(s->template)};
    struct hf_meta m;
    enum status status;

    buf_init(&text);
    buf_printf(&text,
               "{\"normalizer\":%s,\"pre_tokenizer\":%s,\"post_processor\":%s,\"added_tokens\":%s,"
               "\"decoder\":%s,\"model\":%s}",
               or_plain(s->normalizer, plain.normalizer),
               or_plain(s->pre_tokenizer, plain.pre_tokenizer),
               or_plain(s->post_processor, plain.post_processor), or_plain(s->added, plain.added),
               or_plain(s->decoder, plain.decoder), or_plain(s->model, plain.model));
    files.tokenizer = (struct hf_span){text.data, text.len};
    hf_meta_init(&m, "llama");
    status = hf_tokenizer_put(&files, HF_SOURCE_VOCAB, &m, why);
    if (status == ST_OK)
        status = hf_meta_finish(&m, out);
    if (status == ST_OK)
        status = gguf_open_memory(out->data, out->len, g, why);
    hf_meta_dispose(&m);
    buf_dispose(&text);
    return status;
}

void hf_source_space_bpe(struct buf *out)
{
    buf_puts(out, "{\"type\":\"BPE\",\"byte_fallback\":true,\"unk_token\":\"<unk>\",\"vocab\":{"
                  "\"<unk>\":0,\"<s>\":1,\"</s>\":2");
    for (int i = 0; i < 256; i++)
        buf_printf(out, ",\"<0x%02X>\":%d", (unsigned)i, 3 + i);
    buf_puts(out, ",\"" HF_SPACE "\":259,\"a\":260,\"" HF_SPACE "a\":261},\"merges\":[\"" HF_SPACE
                  " a\"]}");
}
