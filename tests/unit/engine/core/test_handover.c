/* An engine process whose path another one serves from now on, and one that is warmed before it
 * serves; gateways and monitor are played by hand. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/log.h"
#include "base/size.h"
#include "engine/wire/wire.h"
#include "tests/lib/engine_rig.h"
#include "tests/lib/fake_device.h"

/* Last: its macro fail() would meet the declaration of ours. */
#include <cmocka.h>

static const int32_t prompt[] = {10, 20, 30, 40};
static uint32_t n_steps; /* the engine's thread, once it runs */

static void on_step(void *arg, const struct device_step *step)
{
    (void)arg;
    (void)step;
    n_steps++;
}

static void open_rig(struct engine_rig *r)
{
    static const struct cost cost = {.base_ns = 1000, .row_ns = 1000};

    n_steps = 0;
    fake_device_script = (struct fake_device_script){.on_step = on_step};
    engine_rig_open(r, &fake_device_ops);
    r->cfg.cost = &cost; /* every step is a job's */
}

static void start_rig(struct engine_rig *r)
{
    open_rig(r);
    engine_rig_start(r);
}

/* ---- whoever is connected ---- */

struct hand {
    int fd;
    struct buf in;
    bool told; /* HANDOVER came */
};

static void send_and_dispose(const struct hand *h, struct buf *b)
{
    assert_int_equal(send(h->fd, b->data, b->len, MSG_NOSIGNAL), b->len);
    buf_dispose(b);
}

static void say(const struct hand *h, enum wire_type type)
{
    struct buf b;

    buf_init(&b);
    wire_put_bare(&b, type);
    send_and_dispose(h, &b);
}

/* Passes over frames until one of the type, which stays in h->in, borrowed. False: it hung up. */
static bool next_frame(struct hand *h, uint16_t type, struct wire_frame *f)
{
    char some[4096];
    size_t used;

    for (;;) {
        while (wire_scan(h->in.data, h->in.len, f, &used) != WIRE_SCAN_FRAME) {
            ssize_t n = recv(h->fd, some, sizeof some, 0);

            if (n == 0 || (n == -1 && errno == ECONNRESET))
                return false;
            assert_true(n > 0);
            buf_append(&h->in, some, (size_t)n);
        }
        h->told |= f->type == WIRE_HANDOVER;
        if (f->type == type) /* its bytes stay where they are until the next look */
            return true;
        buf_consume(&h->in, used);
    }
}

static void forget_frame(struct hand *h)
{
    struct wire_frame f;
    size_t used;

    assert_int_equal(wire_scan(h->in.data, h->in.len, &f, &used), WIRE_SCAN_FRAME);
    buf_consume(&h->in, used);
}

static bool hears(struct hand *h, uint16_t type)
{
    struct wire_frame f;
    bool heard = next_frame(h, type, &f);

    if (heard)
        forget_frame(h);
    return heard;
}

static void hand_open(struct hand *h, const struct engine_rig *r, uint16_t version)
{
    const struct timeval patience = {.tv_sec = 20};
    struct sockaddr_un a = {.sun_family = AF_UNIX};
    struct buf b;

    *h = (struct hand){.fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0)};
    strcpy(a.sun_path, r->socket_path);
    assert_int_equal(setsockopt(h->fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience), 0);
    assert_int_equal(connect(h->fd, (struct sockaddr *)&a, sizeof a), 0);
    buf_init(&b);
    wire_put_hello(&b, &(struct wire_hello){WIRE_VERSION_MIN, version, "hand"});
    send_and_dispose(h, &b);
    assert_true(hears(h, WIRE_WELCOME));
}

static void monitor_open(struct hand *h, const struct engine_rig *r, uint16_t version)
{
    hand_open(h, r, version);
    say(h, WIRE_MONITOR);
}

static void hand_close(struct hand *h)
{
    close(h->fd);
    buf_dispose(&h->in);
}

static void submit(struct hand *h, uint8_t n, uint32_t max_tokens)
{
    struct buf b;

    buf_init(&b);
    wire_put_submit(&b, &(struct wire_submit){.job = n,
                                              .request = {{n, [15] = n}},
                                              .weight = 1000,
                                              .max_tokens = max_tokens,
                                              .n_choices = 1,
                                              .sampling = {.top_p = 1.0f},
                                              .ignore_eos = true,
                                              .n_prompt = COUNT_OF(prompt),
                                              .prompt = prompt});
    send_and_dispose(h, &b);
}

/* A job of this gateway, done to its end. */
static void check_serves(struct hand *h, uint8_t n)
{
    struct wire_final end;
    struct wire_frame f;

    submit(h, n, 10);
    assert_true(next_frame(h, WIRE_FINAL, &f));
    assert_int_equal(wire_get_final(&f, &end), ST_OK);
    assert_int_equal(end.status, ST_OK);
    assert_int_equal(end.output_tokens, 10);
    forget_frame(h);
}

/* ---- handing over ---- */

static void gateways_are_told_and_served_until_they_have_left(void **state)
{
    struct hand monitor, first, older, later;
    struct engine_rig r;

    (void)state;
    start_rig(&r);
    monitor_open(&monitor, &r, WIRE_VERSION_MAX);
    hand_open(&first, &r, WIRE_VERSION_HANDOVER);
    hand_open(&older, &r, WIRE_VERSION_HANDOVER - 1);
    check_serves(&first, 1);
    assert_false(first.told);
    say(&monitor, WIRE_HANDOVER);
    assert_true(hears(&first, WIRE_HANDOVER));
    say(&monitor, WIRE_HANDOVER); /* once more changes nothing */
    hand_open(&later, &r, WIRE_VERSION_HANDOVER);
    assert_true(hears(&later, WIRE_HANDOVER));
    check_serves(&first, 2);
    check_serves(&older, 3);
    check_serves(&later, 4);
    assert_false(older.told); /* it wouldn't know the frame */
    hand_close(&later);
    hand_close(&older);
    check_serves(&first, 5);
    submit(&first, 6, 100); /* nobody can ask for its end any more */
    hand_close(&first);
    engine_rig_join(&r);
    assert_false(hears(&monitor, WIRE_HANDOVER)); /* it has gone, though this one still watched */
    hand_close(&monitor);
    engine_rig_close(&r);
}

static void without_a_gateway_it_leaves_at_once_and_lets_the_path_be(void **state)
{
    struct engine_rig r;
    struct hand monitor;

    (void)state;
    start_rig(&r);
    monitor_open(&monitor, &r, WIRE_VERSION_MAX);
    say(&monitor, WIRE_HANDOVER);
    engine_rig_join(&r);
    assert_int_equal(access(r.socket_path, F_OK), 0); /* as it may be its successor's */
    hand_close(&monitor);
    engine_rig_close(&r);
}

/* As one whose socket was renamed, and that ends while the next one loads at the path that was its
 * own. */
static void what_another_one_made_at_its_path_is_left_alone(void **state)
{
    char renamed[sizeof((struct engine_rig *)0)->socket_path + 8];
    struct sockaddr_un a = {.sun_family = AF_UNIX};
    struct engine_rig r;
    int other;

    (void)state;
    start_rig(&r);
    snprintf(renamed, sizeof renamed, "%s.now", r.socket_path);
    assert_int_equal(rename(r.socket_path, renamed), 0);
    other = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    strcpy(a.sun_path, r.socket_path);
    assert_int_equal(bind(other, (const struct sockaddr *)&a, sizeof a), 0);
    engine_rig_stop(&r);
    assert_int_equal(access(r.socket_path, F_OK), 0);
    close(other);
    unlink(r.socket_path);
    unlink(renamed);
    engine_rig_close(&r);
}

/* Its gateway was slow to leave when it was sent to sleep. */
static void who_is_replaced_leaves_not_as_an_idle_one(void **state)
{
    struct hand gateway, monitor;
    struct engine_rig r;

    (void)state;
    start_rig(&r);
    hand_open(&gateway, &r, WIRE_VERSION_MAX);
    monitor_open(&monitor, &r, WIRE_VERSION_MAX);
    say(&monitor, WIRE_SLEEP);
    say(&monitor, WIRE_HANDOVER);
    assert_true(hears(&gateway, WIRE_SLEEP));
    assert_true(hears(&gateway, WIRE_HANDOVER));
    hand_close(&gateway);
    assert_int_equal(pthread_join(r.thread, NULL), 0);
    assert_false(engine_process_was_idle(r.process));
    engine_process_close(r.process);
    r.process = NULL;
    hand_close(&monitor);
    engine_rig_close(&r);
}

static void only_a_monitor_that_knows_it_may_say_so(void **state)
{
    struct hand gateway, other, older;
    struct engine_rig r;

    (void)state;
    start_rig(&r);
    hand_open(&gateway, &r, WIRE_VERSION_MAX);
    hand_open(&other, &r, WIRE_VERSION_MAX);
    monitor_open(&older, &r, WIRE_VERSION_HANDOVER - 1);
    say(&other, WIRE_HANDOVER);
    assert_false(hears(&other, WIRE_HANDOVER));
    say(&older, WIRE_HANDOVER);
    assert_false(hears(&older, WIRE_HANDOVER));
    check_serves(&gateway, 1);
    assert_false(gateway.told);
    hand_close(&older);
    hand_close(&other);
    hand_close(&gateway);
    engine_rig_close(&r); /* told to stop: it had not left by itself */
}

static void who_stays_past_the_limit_is_drained(void **state)
{
    struct hand monitor, older;
    struct engine_rig r;

    (void)state;
    open_rig(&r);
    r.cfg.handover_ms = 1;
    engine_rig_start(&r);
    hand_open(&older, &r, WIRE_VERSION_HANDOVER - 1);
    check_serves(&older, 1);
    monitor_open(&monitor, &r, WIRE_VERSION_MAX);
    say(&monitor, WIRE_HANDOVER);
    engine_rig_join(&r);
    assert_false(hears(&older, WIRE_FINAL));
    hand_close(&monitor);
    hand_close(&older);
    engine_rig_close(&r);
}

/* ---- warming ---- */

static uint32_t steps_before_it_serves(bool warm)
{
    struct engine_process *p = NULL;
    struct engine_rig r;
    uint32_t n;

    open_rig(&r);
    r.cfg.cost = NULL;
    r.cfg.warm = warm;
    assert_int_equal(engine_process_open(&r.cfg, &p, NULL), ST_OK);
    n = n_steps;
    engine_process_close(p);
    engine_rig_close(&r);
    return n;
}

static void warmed_it_has_measured_its_speed_before_anybody_can_ask(void **state)
{
    (void)state;
    assert_int_equal(steps_before_it_serves(false), 0);
    assert_true(steps_before_it_serves(true) > 0);
}

static void a_stop_while_it_warms_is_heard(void **state)
{
    struct engine_process *p = NULL;
    struct reason why = {0};
    struct engine_rig r;

    (void)state;
    open_rig(&r);
    r.cfg.cost = NULL;
    r.cfg.warm = true;
    engine_rig_tell_stop(&r);
    assert_int_equal(engine_process_open(&r.cfg, &p, &why), ST_CANCELLED);
    assert_int_equal(access(r.socket_path, F_OK), -1); /* nobody could ever have come */
    engine_rig_close(&r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(gateways_are_told_and_served_until_they_have_left),
        cmocka_unit_test(without_a_gateway_it_leaves_at_once_and_lets_the_path_be),
        cmocka_unit_test(what_another_one_made_at_its_path_is_left_alone),
        cmocka_unit_test(who_is_replaced_leaves_not_as_an_idle_one),
        cmocka_unit_test(only_a_monitor_that_knows_it_may_say_so),
        cmocka_unit_test(who_stays_past_the_limit_is_drained),
        cmocka_unit_test(warmed_it_has_measured_its_speed_before_anybody_can_ask),
        cmocka_unit_test(a_stop_while_it_warms_is_heard),
    };

    log_init("test", LOG_ERROR);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
