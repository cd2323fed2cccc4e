/* An engine process on a device that waits when told to, and gateways played by hand, of which some
 * go away. */
#include "engine/core/claims.h"

#include <errno.h>
#include <semaphore.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/log.h"
#include "base/size.h"
#include "tests/lib/engine_rig.h"
#include "tests/lib/fake_device.h"

/* Last: its macro fail() would meet the declaration of ours. */
#include <cmocka.h>

#define MAX_TOKENS 400

static const int32_t prompt[] = {10, 20, 30, 40};

/* The device stops before its n-th step, on the engine's thread. */
struct gate {
    sem_t reached, go;
    uint32_t n_steps, stop_at; /* the engine's thread, once it runs */
};

struct rig {
    struct engine_rig engine;
    struct gate gate;
};

static void on_step(void *arg, const struct device_step *step)
{
    struct gate *g = arg;

    (void)step;
    if (++g->n_steps != g->stop_at)
        return;
    sem_post(&g->reached);
    sem_wait(&g->go);
}

/* stop_at 0: never. */
static void open_rig(struct rig *r, uint32_t stop_at)
{
    static const struct cost cost = {.base_ns = 1000, .row_ns = 1000};

    memset(r, 0, sizeof *r);
    r->gate.stop_at = stop_at;
    sem_init(&r->gate.reached, 0, 0);
    sem_init(&r->gate.go, 0, 0);
    fake_device_script = (struct fake_device_script){.on_step = on_step, .arg = &r->gate};
    engine_rig_open(&r->engine, &fake_device_ops);
    r->engine.cfg.cost = &cost; /* every step is a job's */
    engine_rig_start(&r->engine);
}

static void close_rig(struct rig *r)
{
    engine_rig_close(&r->engine);
    sem_destroy(&r->gate.reached);
    sem_destroy(&r->gate.go);
}

/* ---- a gateway ---- */

struct hand {
    int fd;
    struct buf in;
    uint32_t output_tokens; /* of the last STEP entry */
};

static void send_and_dispose(const struct hand *h, struct buf *b)
{
    assert_int_equal(send(h->fd, b->data, b->len, MSG_NOSIGNAL), b->len);
    buf_dispose(b);
}

static void hear_step(struct hand *h, const struct wire_frame *f)
{
    struct wire_step_entry e;
    struct wire_step step;
    struct buf scratch;

    buf_init(&scratch);
    assert_int_equal(wire_get_step(f, &scratch, &step), ST_OK);
    while (wire_step_next(&step, &e))
        h->output_tokens = e.output_tokens;
    buf_dispose(&scratch);
}

/* The next frame of the type, copied out by `get`; others before it are passed over. False: the
 * engine closed. */
static bool next_frame(struct hand *h, enum wire_type type,
                       enum status (*get)(const struct wire_frame *f, void *out), void *out)
{
    struct wire_frame f;
    char some[4096];
    size_t used;
    bool found = false;

    while (!found) {
        if (wire_scan(h->in.data, h->in.len, &f, &used) == WIRE_SCAN_FRAME) {
            if (f.type == WIRE_STEP)
                hear_step(h, &f);
            found = f.type == type;
            if (found)
                assert_int_equal(get(&f, out), ST_OK);
            buf_consume(&h->in, used);
        } else {
            ssize_t n = recv(h->fd, some, sizeof some, 0);

            if (n == 0 || (n == -1 && errno == ECONNRESET))
                return false;
            assert_true(n > 0);
            buf_append(&h->in, some, (size_t)n);
        }
    }
    return true;
}

static enum status get_welcome(const struct wire_frame *f, void *out)
{
    return wire_get_welcome(f, out);
}

static enum status get_settled(const struct wire_frame *f, void *out)
{
    return wire_get_settled(f, out);
}

static enum status get_final(const struct wire_frame *f, void *out)
{
    return wire_get_final(f, out);
}

static enum status get_stats(const struct wire_frame *f, void *out)
{
    return wire_get_stats(f, out);
}

/* Returns the version that the engine chose. */
static uint16_t hand_open(struct hand *h, const struct rig *r, uint16_t min, uint16_t max)
{
    const struct timeval patience = {.tv_sec = 20};
    struct sockaddr_un a = {.sun_family = AF_UNIX};
    struct wire_welcome w = {.version = 0};
    struct buf b;

    *h = (struct hand){.fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0)};
    strcpy(a.sun_path, r->engine.socket_path);
    assert_int_equal(setsockopt(h->fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience), 0);
    assert_int_equal(connect(h->fd, (struct sockaddr *)&a, sizeof a), 0);
    buf_init(&b);
    wire_put_hello(&b, &(struct wire_hello){min, max, "hand"});
    send_and_dispose(h, &b);
    assert_true(next_frame(h, WIRE_WELCOME, get_welcome, &w));
    return w.version;
}

static void hand_close(struct hand *h)
{
    close(h->fd);
    buf_dispose(&h->in);
}

static struct id id_of(uint8_t n)
{
    return (struct id){{n, [15] = n}};
}

static void submit(struct hand *h, uint8_t n, uint32_t n_choices, uint32_t max_tokens)
{
    struct buf b;

    buf_init(&b);
    wire_put_submit(&b, &(struct wire_submit){.job = n,
                                              .request = id_of(n),
                                              .weight = 1000,
                                              .max_tokens = max_tokens,
                                              .n_choices = n_choices,
                                              .sampling = {.top_p = 1.0f},
                                              .ignore_eos = true,
                                              .n_prompt = COUNT_OF(prompt),
                                              .prompt = prompt});
    send_and_dispose(h, &b);
}

static void cancel(struct hand *h, uint8_t n)
{
    struct buf b;

    buf_init(&b);
    wire_put_cancel(&b, n);
    send_and_dispose(h, &b);
}

static void claim(struct hand *h, uint8_t n)
{
    struct wire_requests v = {.n = 1};
    struct buf b;

    v.ids[0] = id_of(n);
    buf_init(&b);
    wire_put_claim(&b, &v);
    send_and_dispose(h, &b);
}

static void release(struct hand *h, uint8_t n)
{
    struct wire_requests v = {.n = 1};
    struct buf b;

    v.ids[0] = id_of(n);
    buf_init(&b);
    wire_put_release(&b, &v);
    send_and_dispose(h, &b);
}

static struct wire_settled next_settled(struct hand *h, uint8_t n)
{
    struct id id = id_of(n);
    struct wire_settled v;

    assert_true(next_frame(h, WIRE_SETTLED, get_settled, &v));
    assert_true(id_equal(&v.request, &id));
    return v;
}

static void is_not_known(struct hand *h, uint8_t n)
{
    assert_false(next_settled(h, n).is_known);
}

/* The engine's own counter, once nothing runs. */
static uint64_t tokens_generated(struct hand *h)
{
    struct wire_stats st;

    do {
        assert_true(next_frame(h, WIRE_STATS, get_stats, &st));
    } while (st.running + st.waiting > 0);
    return st.output_tokens;
}

/* ---- tests ---- */

/* The step that runs while the gateway goes away is computed to its end, and counts: nobody could
 * have told the gateway. */
static void check_interrupted(uint32_t n_choices, uint16_t version)
{
    struct wire_settled end;
    struct hand old, next;
    struct rig r;

    open_rig(&r, 20);
    assert_int_equal(hand_open(&old, &r, WIRE_VERSION_MIN, version), version);
    submit(&old, 1, n_choices, MAX_TOKENS);
    sem_wait(&r.gate.reached);
    hand_close(&old);
    sem_post(&r.gate.go);
    hand_open(&next, &r, WIRE_VERSION_ADOPT, WIRE_VERSION_MAX);
    claim(&next, 1);
    end = next_settled(&next, 1);
    assert_true(end.is_known);
    assert_int_equal(end.prompt_tokens, COUNT_OF(prompt));
    assert_true(end.output_tokens > 10 && end.output_tokens < n_choices * MAX_TOKENS);
    assert_int_equal(end.output_tokens, tokens_generated(&next));
    hand_close(&next);
    close_rig(&r);
}

static void a_gateway_that_dies_leaves_exact_ends(void **state)
{
    (void)state;
    check_interrupted(1, WIRE_VERSION_MAX);
    check_interrupted(3, WIRE_VERSION_MAX);
    check_interrupted(1, WIRE_VERSION_MIN);
}

static void an_end_that_nobody_read_is_kept_and_can_be_asked_for_again(void **state)
{
    struct wire_final told;
    struct wire_settled end;
    struct hand old, next;
    struct rig r;

    (void)state;
    open_rig(&r, 0);
    hand_open(&old, &r, WIRE_VERSION_MIN, WIRE_VERSION_MAX);
    submit(&old, 1, 2, 30);
    assert_true(next_frame(&old, WIRE_FINAL, get_final, &told));
    hand_close(&old);
    hand_open(&next, &r, WIRE_VERSION_MIN, WIRE_VERSION_MAX);
    for (int i = 0; i < 2; i++) {
        claim(&next, 1);
        end = next_settled(&next, 1);
        assert_true(end.is_known);
        assert_int_equal(end.prompt_tokens, told.prompt_tokens);
        assert_int_equal(end.output_tokens, 60);
    }
    hand_close(&next);
    /* Also by a third gateway, when the second died before it released. */
    hand_open(&next, &r, WIRE_VERSION_MIN, WIRE_VERSION_MAX);
    claim(&next, 1);
    assert_true(next_settled(&next, 1).is_known);
    hand_close(&next);
    close_rig(&r);
}

static void what_is_released_and_what_never_was_is_not_known(void **state)
{
    struct wire_final told;
    struct hand h;
    struct rig r;

    (void)state;
    open_rig(&r, 0);
    hand_open(&h, &r, WIRE_VERSION_MIN, WIRE_VERSION_MAX);
    submit(&h, 1, 1, 5);
    assert_true(next_frame(&h, WIRE_FINAL, get_final, &told));
    claim(&h, 1);
    assert_true(next_settled(&h, 1).is_known);
    release(&h, 1);
    release(&h, 9);
    claim(&h, 1);
    is_not_known(&h, 1);
    claim(&h, 9);
    is_not_known(&h, 9);
    hand_close(&h);
    close_rig(&r);
}

/* The engine hears of both between two steps. */
static void a_claim_may_come_together_with_the_end_of_the_connection(void **state)
{
    struct wire_settled end;
    struct hand old, next;
    struct rig r;

    (void)state;
    open_rig(&r, 20);
    hand_open(&next, &r, WIRE_VERSION_MIN, WIRE_VERSION_MAX);
    hand_open(&old, &r, WIRE_VERSION_MIN, WIRE_VERSION_MAX);
    submit(&old, 1, 1, MAX_TOKENS);
    sem_wait(&r.gate.reached);
    claim(&next, 1);
    hand_close(&old);
    sem_post(&r.gate.go);
    end = next_settled(&next, 1);
    assert_true(end.is_known && end.output_tokens < MAX_TOKENS);
    assert_int_equal(end.output_tokens, tokens_generated(&next));
    hand_close(&next);
    close_rig(&r);
}

static void a_claim_of_what_still_runs_is_answered_at_its_end(void **state)
{
    struct wire_settled end;
    struct wire_final told;
    struct hand living, first, second;
    struct rig r;

    (void)state;
    open_rig(&r, 20);
    hand_open(&living, &r, WIRE_VERSION_MIN, WIRE_VERSION_MAX);
    hand_open(&first, &r, WIRE_VERSION_MIN, WIRE_VERSION_MAX);
    hand_open(&second, &r, WIRE_VERSION_MIN, WIRE_VERSION_MAX);
    submit(&living, 1, 1, MAX_TOKENS);
    sem_wait(&r.gate.reached);
    /* Read in this order, since connections are: the claims before the cancel is sent. */
    claim(&first, 1);
    claim(&first, 1);
    claim(&second, 1);
    sem_post(&r.gate.go);
    is_not_known(&first, 1); /* its place was taken */
    cancel(&living, 1);
    assert_true(next_frame(&living, WIRE_FINAL, get_final, &told));
    end = next_settled(&second, 1);
    assert_true(end.is_known);
    assert_int_equal(end.prompt_tokens, told.prompt_tokens);
    assert_int_equal(end.output_tokens, told.output_tokens);
    assert_int_equal(end.output_tokens, tokens_generated(&second));
    hand_close(&living);
    hand_close(&first);
    hand_close(&second);
    close_rig(&r);
}

static void a_claimant_may_go_before_the_end(void **state)
{
    struct hand old, first, second;
    struct wire_settled end;
    struct rig r;

    (void)state;
    open_rig(&r, 20);
    hand_open(&old, &r, WIRE_VERSION_MIN, WIRE_VERSION_MAX);
    hand_open(&first, &r, WIRE_VERSION_MIN, WIRE_VERSION_MAX);
    hand_open(&second, &r, WIRE_VERSION_MIN, WIRE_VERSION_MAX);
    submit(&old, 1, 1, MAX_TOKENS);
    sem_wait(&r.gate.reached);
    r.gate.stop_at = 40;
    claim(&first, 1);
    claim(&second, 1);
    sem_post(&r.gate.go);
    is_not_known(&first, 1); /* so the second one is waiting now */
    sem_wait(&r.gate.reached);
    r.gate.stop_at = 60;
    hand_close(&second);
    sem_post(&r.gate.go);
    sem_wait(&r.gate.reached);
    hand_close(&old);
    sem_post(&r.gate.go);
    claim(&first, 1);
    end = next_settled(&first, 1);
    assert_true(end.is_known);
    assert_int_equal(end.output_tokens, tokens_generated(&first));
    hand_close(&first);
    close_rig(&r);
}

static void gateways_of_three_versions_share_an_engine(void **state)
{
    struct hand older, same, newer;
    struct wire_final end;
    struct rig r;

    (void)state;
    open_rig(&r, 0);
    assert_int_equal(hand_open(&older, &r, 1, 2), 2);
    assert_int_equal(hand_open(&same, &r, 2, WIRE_VERSION_MAX), WIRE_VERSION_MAX);
    assert_int_equal(hand_open(&newer, &r, 3, WIRE_VERSION_MAX + 1), WIRE_VERSION_MAX);
    submit(&older, 1, 1, 50);
    submit(&same, 2, 1, 60);
    submit(&newer, 3, 1, 70);
    assert_true(next_frame(&older, WIRE_FINAL, get_final, &end));
    assert_int_equal(end.output_tokens, 50);
    assert_true(next_frame(&same, WIRE_FINAL, get_final, &end));
    assert_int_equal(end.output_tokens, 60);
    assert_true(next_frame(&newer, WIRE_FINAL, get_final, &end));
    assert_int_equal(end.output_tokens, 70);
    /* What the older one does not have it may not use. */
    claim(&older, 1);
    assert_false(next_frame(&older, WIRE_SETTLED, get_final, &end));
    claim(&newer, 1);
    assert_int_equal(next_settled(&newer, 1).output_tokens, 50);
    hand_close(&older);
    hand_close(&same);
    hand_close(&newer);
    close_rig(&r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_gateway_that_dies_leaves_exact_ends),
        cmocka_unit_test(an_end_that_nobody_read_is_kept_and_can_be_asked_for_again),
        cmocka_unit_test(what_is_released_and_what_never_was_is_not_known),
        cmocka_unit_test(a_claim_may_come_together_with_the_end_of_the_connection),
        cmocka_unit_test(a_claim_of_what_still_runs_is_answered_at_its_end),
        cmocka_unit_test(a_claimant_may_go_before_the_end),
        cmocka_unit_test(gateways_of_three_versions_share_an_engine),
    };

    log_init("test", LOG_ERROR + 1); /* broken connections are on purpose here */
    return cmocka_run_group_tests(tests, NULL, NULL);
}
