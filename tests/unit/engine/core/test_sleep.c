/* An engine that isn't needed leaves when its monitor says so, and not if anybody needs it after
 * all. The engine is real, on a thread; the monitor and a second gateway are played by hand. */
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/log.h"
#include "base/size.h"
#include "base/unix_socket.h"
#include "engine/wire/wire.h"
#include "tests/lib/engine_rig.h"
#include "tests/lib/fake_device.h"
#include "tests/lib/hand_engine.h"

/* Last: its macro fail() would meet the declaration of ours. */
#include <cmocka.h>

static const int32_t prompt[] = {10, 20, 30, 40};

static struct engine_submit request(uint32_t max_tokens)
{
    return (struct engine_submit){.prompt = prompt,
                                  .n_prompt = COUNT_OF(prompt),
                                  .max_tokens = max_tokens,
                                  .ignore_eos = true};
}

/* What the engine says by hand until a frame of that type; the rest is passed over. False: it hung
 * up. */
static bool hear(int fd, struct buf *in, uint16_t type)
{
    for (;;) {
        struct wire_frame f;
        size_t used;
        ssize_t n;

        while (wire_scan(in->data, in->len, &f, &used) == WIRE_SCAN_FRAME) {
            uint16_t heard = f.type;

            buf_consume(in, used);
            if (heard == type)
                return true;
        }
        assert_true(buf_reserve(in, 4096));
        n = recv(fd, in->data + in->len, 4096, 0);
        if (n <= 0)
            return false;
        in->len += (size_t)n;
    }
}

static int connect_to(const struct engine_rig *r)
{
    int fd = unix_socket_connect(r->socket_path);

    assert_true(fd != -1);
    assert_int_equal(fcntl(fd, F_SETFL, 0), 0); /* it may block */
    return fd;
}

/* Greets with at most this version, and waits for the answer. */
static int greet(const struct engine_rig *r, uint16_t version, struct buf *in)
{
    struct wire_hello hello = {.version_min = 2, .version_max = version, .build = "hand"};
    const struct timeval patience = {.tv_sec = 20};
    int fd = connect_to(r);
    struct buf b;

    buf_init(&b);
    wire_put_hello(&b, &hello);
    hand_engine_send(fd, &b);
    buf_dispose(&b);
    assert_int_equal(setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience), 0);
    assert_true(hear(fd, in, WIRE_WELCOME));
    return fd;
}

static void send_bare(int fd, enum wire_type type)
{
    struct buf b;

    buf_init(&b);
    wire_put_bare(&b, type);
    hand_engine_send(fd, &b);
    buf_dispose(&b);
}

struct watched {
    struct engine_rig r;
    struct buf in;
    int monitor;
};

static void open_watched(struct watched *w)
{
    memset(w, 0, sizeof *w);
    memset(&fake_device_script, 0, sizeof fake_device_script);
    engine_rig_open(&w->r, &fake_device_ops);
    engine_rig_start(&w->r);
    engine_rig_await_ready(&w->r);
    w->monitor = greet(&w->r, WIRE_VERSION_MAX, &w->in);
    send_bare(w->monitor, WIRE_MONITOR);
}

static void close_watched(struct watched *w)
{
    close(w->monitor);
    buf_dispose(&w->in);
    engine_rig_close(&w->r);
}

static bool is_asleep(void *arg)
{
    struct watched *w = arg;
    struct engine_stats st;

    engine_stats(w->r.engine, &st);
    return st.asleep;
}

static void without_work_it_leaves_and_a_job_waits_for_the_next(void **state)
{
    struct engine_submit s = request(8);
    struct rig_job j = {0};
    struct watched w;

    (void)state;
    open_watched(&w);
    send_bare(w.monitor, WIRE_SLEEP);
    engine_rig_await(&w.r, is_asleep, &w);
    assert_int_equal(pthread_join(w.r.thread, NULL), 0); /* it has left by itself */
    assert_true(engine_process_was_idle(w.r.process));
    engine_process_close(w.r.process);
    assert_int_equal(rig_job_submit(&w.r, &j, &s), ST_OK);
    engine_rig_start(&w.r);
    rig_job_await(&w.r, &j);
    assert_int_equal(j.end.status, ST_OK);
    assert_int_equal(j.end.usage.output_tokens, 8);
    rig_job_dispose(&j);
    close_watched(&w);
}

/* On the engine's thread, while the job's first step is worked on. */
static void on_step(void *arg, const struct device_step *step)
{
    struct watched *w = arg;

    (void)step;
    fake_device_script.on_step = NULL;
    send_bare(w->monitor, WIRE_SLEEP);
}

static void in_the_middle_of_a_job_it_stays(void **state)
{
    struct engine_submit s = request(40);
    struct rig_job j = {0};
    struct watched w;

    (void)state;
    open_watched(&w);
    fake_device_script.arg = &w;
    fake_device_script.on_step = on_step;
    assert_int_equal(rig_job_submit(&w.r, &j, &s), ST_OK);
    rig_job_await(&w.r, &j);
    assert_int_equal(j.end.status, ST_OK);
    engine_rig_await_idle(&w.r);
    assert_false(is_asleep(&w));
    rig_job_dispose(&j);
    close_watched(&w);
}

/* Another gateway keeps it, be it of a version without that word; who comes back finds it. */
static void a_gateway_that_stays_keeps_it(void **state)
{
    struct engine_submit s = request(8);
    struct rig_job j = {0};
    struct watched w;
    struct buf in = {0};
    int old;

    (void)state;
    open_watched(&w);
    old = greet(&w.r, WIRE_VERSION_ADOPT, &in);
    send_bare(w.monitor, WIRE_SLEEP);
    engine_rig_await(&w.r, is_asleep, &w);
    assert_int_equal(rig_job_submit(&w.r, &j, &s), ST_OK);
    rig_job_await(&w.r, &j);
    assert_int_equal(j.end.status, ST_OK);
    assert_false(is_asleep(&w));
    close(old);
    engine_link_close(w.r.link); /* all have left, but it isn't leaving any more */
    close(greet(&w.r, WIRE_VERSION_MAX, &in));
    assert_int_equal(engine_link_open(w.r.engine, w.r.loop, &w.r.link), ST_OK);
    engine_rig_await_ready(&w.r);
    buf_dispose(&in);
    rig_job_dispose(&j);
    close_watched(&w);
}

static void only_a_monitor_may_say_so(void **state)
{
    struct buf in = {0};
    struct watched w;
    int gateway;

    (void)state;
    open_watched(&w);
    gateway = greet(&w.r, WIRE_VERSION_MAX, &in);
    send_bare(gateway, WIRE_SLEEP);
    assert_false(hear(gateway, &in, WIRE_SLEEP));
    engine_rig_await_idle(&w.r);
    assert_false(is_asleep(&w));
    close(gateway);
    buf_dispose(&in);
    close_watched(&w);
}

/* To wake an engine that runs is a mistake of who stood in for it: the caller greets next. */
static void a_wake_is_hung_up_on(void **state)
{
    struct buf in = {0};
    struct watched w;
    int fd;

    (void)state;
    open_watched(&w);
    fd = connect_to(&w.r);
    send_bare(fd, WIRE_WAKE);
    assert_false(hear(fd, &in, WIRE_WELCOME));
    engine_rig_await_idle(&w.r);
    close(fd);
    buf_dispose(&in);
    close_watched(&w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(without_work_it_leaves_and_a_job_waits_for_the_next),
        cmocka_unit_test(in_the_middle_of_a_job_it_stays),
        cmocka_unit_test(a_gateway_that_stays_keeps_it),
        cmocka_unit_test(only_a_monitor_may_say_so),
        cmocka_unit_test(a_wake_is_hung_up_on),
    };

    log_init("test", LOG_ERROR + 1); /* broken connections are on purpose here */
    return cmocka_run_group_tests(tests, NULL, NULL);
}
