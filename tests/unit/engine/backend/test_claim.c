/* A link that claims, and an engine played by hand: it answers late, not at all, or is too old to
 * be asked. */
#include "engine/backend/backend.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/log.h"
#include "base/size.h"
#include "engine/core/listener.h"
#include "engine/wire/wire.h"
#include "tests/lib/engine_rig.h"
#include "tests/lib/fake_device.h"

/* Last: its macro fail() would meet the declaration of ours. */
#include <cmocka.h>

#define N 3

struct rig {
    struct engine_rig r;
    int listen_fd, fd;
    struct buf in;
    struct engine_claimed requests[N];
    struct engine_claim claim;
    struct engine_usage usage[N]; /* as settled */
    bool is_known[N];
    uint32_t n_settled;
};

static void on_settled(void *arg, size_t i, const struct engine_usage *usage)
{
    struct rig *r = arg;

    assert_true(i < N && r->requests[i].is_settled);
    r->n_settled++;
    r->is_known[i] = usage != NULL;
    if (usage != NULL)
        r->usage[i] = *usage;
}

static void begin_claim(struct rig *r)
{
    for (size_t i = 0; i < N; i++)
        r->requests[i].id.bytes[0] = (uint8_t)(i + 1);
    r->claim = (struct engine_claim){
        .model = r->r.model, .requests = r->requests, .n = N, .arg = r, .on_settled = on_settled};
    engine_claim(r->r.link, &r->claim);
}

static void open_rig(struct rig *r)
{
    memset(r, 0, sizeof *r);
    memset(&fake_device_script, 0, sizeof fake_device_script);
    engine_rig_open(&r->r, &fake_device_ops);
    assert_int_equal(listener_open(r->r.socket_path, &r->listen_fd, NULL), ST_OK);
    assert_int_equal(listener_start(r->r.socket_path, r->listen_fd, NULL), ST_OK);
}

static void close_rig(struct rig *r)
{
    engine_unclaim(r->r.link, &r->claim);
    close(r->listen_fd);
    close(r->fd);
    buf_dispose(&r->in);
    engine_rig_close(&r->r);
}

static bool has_connected(void *arg)
{
    struct rig *r = arg;

    r->fd = accept4(r->listen_fd, NULL, NULL, SOCK_CLOEXEC);
    return r->fd != -1;
}

static void send_and_dispose(const struct rig *r, struct buf *b)
{
    assert_int_equal(send(r->fd, b->data, b->len, MSG_NOSIGNAL), b->len);
    buf_dispose(b);
}

static void greet(struct rig *r, uint16_t version)
{
    struct wire_welcome w = {
        .version = version, .max_sequences = 1, .max_context = 512, .credit_bytes = 1000};
    struct buf b;

    engine_rig_await(&r->r, has_connected, r);
    strcpy(w.revision, r->r.revision->hex);
    buf_init(&b);
    wire_put_welcome(&b, &w);
    send_and_dispose(r, &b);
    engine_rig_await_ready(&r->r);
}

static void settle(struct rig *r, uint8_t n, bool is_known)
{
    struct wire_settled v = {.request.bytes[0] = n, .is_known = is_known};
    struct buf b;

    if (is_known) {
        v.prompt_tokens = 100;
        v.cached_tokens = 16;
        v.output_tokens = n;
    }
    buf_init(&b);
    wire_put_settled(&b, &v);
    send_and_dispose(r, &b);
}

static bool has_frame(void *arg)
{
    struct rig *r = arg;
    struct wire_frame f;
    char some[4096];
    size_t used;
    ssize_t n = recv(r->fd, some, sizeof some, MSG_DONTWAIT);

    if (n > 0)
        buf_append(&r->in, some, (size_t)n);
    return wire_scan(r->in.data, r->in.len, &f, &used) == WIRE_SCAN_FRAME;
}

/* What the link sends next. */
static void next_frame(struct rig *r, enum wire_type type, struct wire_requests *out)
{
    struct wire_frame f;
    size_t used;

    engine_rig_await(&r->r, has_frame, r);
    assert_int_equal(wire_scan(r->in.data, r->in.len, &f, &used), WIRE_SCAN_FRAME);
    assert_int_equal(f.type, type);
    if (type == WIRE_CLAIM)
        assert_int_equal(wire_get_claim(&f, out), ST_OK);
    else if (type == WIRE_RELEASE)
        assert_int_equal(wire_get_release(&f, out), ST_OK);
    buf_consume(&r->in, used);
}

static bool has_settled_all(void *arg)
{
    return ((struct rig *)arg)->n_settled == N;
}

static bool has_settled_one(void *arg)
{
    return ((struct rig *)arg)->n_settled == 1;
}

static void a_claim_waits_for_the_engine_and_has_its_answers(void **state)
{
    struct wire_requests v;
    struct rig r;

    (void)state;
    open_rig(&r);
    begin_claim(&r);
    greet(&r, WIRE_VERSION_MAX);
    next_frame(&r, WIRE_HELLO, NULL);
    next_frame(&r, WIRE_CLAIM, &v);
    assert_int_equal(v.n, N);
    settle(&r, 3, true);
    settle(&r, 77, true); /* nobody asked */
    settle(&r, 1, false);
    settle(&r, 1, true); /* it was answered */
    settle(&r, 2, true);
    settle(&r, 2, true); /* all are answered */
    engine_rig_await(&r.r, has_settled_all, &r);
    assert_true(!r.is_known[0] && r.is_known[1] && r.is_known[2]);
    assert_int_equal(r.usage[1].output_tokens, 2);
    assert_int_equal(r.usage[2].output_tokens, 3);
    assert_int_equal(r.usage[2].prompt_tokens, 100);
    assert_int_equal(r.usage[2].cached_tokens, 16);
    engine_release(r.r.link, r.r.model, &r.requests[2].id);
    next_frame(&r, WIRE_RELEASE, &v);
    assert_int_equal(v.n, 1);
    assert_true(id_equal(&v.ids[0], &r.requests[2].id));
    assert_true(engine_link_is_ready(r.r.link));
    close_rig(&r);
}

static void an_older_engine_is_not_asked(void **state)
{
    struct rig r;

    (void)state;
    open_rig(&r);
    begin_claim(&r);
    greet(&r, WIRE_VERSION_ADOPT - 1);
    engine_rig_await(&r.r, has_settled_all, &r);
    assert_true(!r.is_known[0] && !r.is_known[1] && !r.is_known[2]);
    engine_release(r.r.link, r.r.model, &r.requests[0].id);
    next_frame(&r, WIRE_HELLO, NULL);
    assert_false(has_frame(&r));
    assert_true(engine_link_is_ready(r.r.link));
    close_rig(&r);
}

static void the_successor_of_an_engine_is_asked_what_is_not_answered(void **state)
{
    struct wire_requests v;
    struct rig r;

    (void)state;
    open_rig(&r);
    greet(&r, WIRE_VERSION_MAX);
    begin_claim(&r);
    next_frame(&r, WIRE_HELLO, NULL);
    next_frame(&r, WIRE_CLAIM, &v);
    settle(&r, 2, true);
    engine_rig_await(&r.r, has_settled_one, &r);
    close(r.fd);
    greet(&r, WIRE_VERSION_MAX);
    next_frame(&r, WIRE_HELLO, NULL);
    next_frame(&r, WIRE_CLAIM, &v);
    assert_int_equal(v.n, 2);
    assert_true(id_equal(&v.ids[0], &r.requests[0].id) && id_equal(&v.ids[1], &r.requests[2].id));
    settle(&r, 1, false);
    settle(&r, 3, false);
    engine_rig_await(&r.r, has_settled_all, &r);
    assert_true(!r.is_known[0] && r.is_known[1] && !r.is_known[2]);
    close_rig(&r);
}

static void nothing_comes_after_unclaim(void **state)
{
    struct wire_requests v;
    struct rig r;

    (void)state;
    open_rig(&r);
    greet(&r, WIRE_VERSION_MAX);
    begin_claim(&r);
    next_frame(&r, WIRE_HELLO, NULL);
    next_frame(&r, WIRE_CLAIM, &v);
    engine_unclaim(r.r.link, &r.claim);
    settle(&r, 1, true);
    /* The link has read it when it reads the end that follows. */
    close(r.fd);
    greet(&r, WIRE_VERSION_MAX);
    assert_int_equal(r.n_settled, 0);
    close_rig(&r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_claim_waits_for_the_engine_and_has_its_answers),
        cmocka_unit_test(an_older_engine_is_not_asked),
        cmocka_unit_test(the_successor_of_an_engine_is_asked_what_is_not_answered),
        cmocka_unit_test(nothing_comes_after_unclaim),
    };

    log_init("test", LOG_ERROR + 1); /* broken connections are on purpose here */
    return cmocka_run_group_tests(tests, NULL, NULL);
}
