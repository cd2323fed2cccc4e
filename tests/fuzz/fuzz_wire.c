/* Frames from a stranger: no input may do more than be refused, and what is accepted and written
 * again must be the same bytes (one encoding for each frame). */
#include <assert.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "base/buf.h"
#include "engine/wire/wire.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void again_step(struct wire_step *s, struct buf *out)
{
    struct wire_step_entry e;

    wire_step_begin(out, s->step);
    while (wire_step_next(s, &e))
        wire_step_add(out, &e);
    wire_step_end(out);
}

/* Decodes and encodes; false: refused. */
static bool again(const struct wire_frame *f, struct buf *scratch, struct buf *out)
{
    union {
        struct wire_hello hello;
        struct wire_welcome welcome;
        struct wire_refused refused;
        struct wire_submit submit;
        struct wire_step step;
        struct wire_final final;
        struct wire_stats stats;
        struct wire_requests requests;
        struct wire_settled settled;
        uint64_t number;
    } v;

#define TRY(TYPE, name, member)                                                                    \
    case TYPE:                                                                                     \
        if (wire_get_##name(f, &v.member) != ST_OK)                                                \
            return false;                                                                          \
        wire_put_##name(out, &v.member);                                                           \
        return true;
    switch (f->type) {
        TRY(WIRE_HELLO, hello, hello)
        TRY(WIRE_WELCOME, welcome, welcome)
        TRY(WIRE_REFUSED, refused, refused)
        TRY(WIRE_FINAL, final, final)
        TRY(WIRE_STATS, stats, stats)
        TRY(WIRE_CLAIM, claim, requests)
        TRY(WIRE_RELEASE, release, requests)
        TRY(WIRE_SETTLED, settled, settled)
    case WIRE_MONITOR:
    case WIRE_HANDOVER:
    case WIRE_WAKE:
    case WIRE_SLEEP:
        if (wire_get_bare(f) != ST_OK)
            return false;
        wire_put_bare(out, (enum wire_type)f->type);
        return true;
    case WIRE_SUBMIT:
        if (wire_get_submit(f, scratch, &v.submit) != ST_OK)
            return false;
        assert(wire_submit_is_valid(&v.submit));
        wire_put_submit(out, &v.submit);
        return true;
    case WIRE_CANCEL:
        if (wire_get_cancel(f, &v.number) != ST_OK)
            return false;
        wire_put_cancel(out, v.number);
        return true;
    case WIRE_CREDIT:
        if (wire_get_credit(f, &v.number) != ST_OK)
            return false;
        wire_put_credit(out, v.number);
        return true;
    case WIRE_STEP:
        if (wire_get_step(f, scratch, &v.step) != ST_OK)
            return false;
        again_step(&v.step, out);
        return true;
    default:
        return false;
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct buf scratch, out;
    struct wire_frame f;
    size_t used;

    buf_init(&scratch);
    buf_init(&out);
    while (wire_scan(data, size, &f, &used) == WIRE_SCAN_FRAME) {
        buf_clear(&out);
        if (again(&f, &scratch, &out)) {
            assert(out.len == used);
            assert(memcmp(out.data, data, used) == 0);
        }
        data += used;
        size -= used;
    }
    buf_dispose(&scratch);
    buf_dispose(&out);
    return 0;
}
