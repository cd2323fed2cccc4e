/* The engine process through its socket, as a gateway that strangers took over would talk to it:
 * real connections, jobs, scheduler and KV pages, the fake device, and gateways that send whole
 * frames, damaged ones, bytes, or nothing, in any order with steps between. Whatever they say, once
 * they are gone no job and no sequence is left. The fake device asserts the steps it gets; a
 * gateway that keeps to the protocol claims their requests, and asserts its answers.
 *
 * An input is a list of operations: a byte says which, and of which gateway; the bytes behind are
 * its arguments. Submits are built by the encoder, so that inputs outlive changes of the frames. */
#include <assert.h>
#include <errno.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/log.h"
#include "base/reader.h"
#include "base/size.h"
#include "engine/core/process_state.h"
#include "tests/lib/claimant.h"
#include "tests/lib/fake_device.h"
#include "tests/lib/gguf_build.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define GATEWAYS 2
/* More than any job of an input takes to its end. */
#define TURNS_MAX  4096
#define PROMPT_MAX 64

enum {
    OP_HELLO,
    OP_SUBMIT,
    OP_DAMAGED,
    OP_CANCEL,
    OP_CREDIT,
    OP_BYTES,
    OP_TURN,
    OP_LEAVE,
    OP_CLAIM,    /* by the gateway, or by the good one (0x40) */
    OP_RELEASE,  /* as well */
    OP_MONITOR,  /* by the gateway, or by somebody who then asks for what watchers may not (0x40) */
    OP_HANDOVER, /* by somebody who is no monitor */
    OP_WAKE,     /* by somebody, in place of HELLO or after it */
    N_OPS
};
/* Of an operation's byte. */
enum { OP_BITS = 0x0F, BIT_OTHER = 0x80, BIT_VARIANT = 0x40 };

struct input {
    struct reader r;
    int fds[GATEWAYS];
    struct buf out;
    uint64_t run;
    uint32_t n_requests; /* submitted; the next one's number */
    struct claimant good;
};

static struct engine_process *engine;
static char dir[] = "/tmp/sluice-fuzz-XXXXXX", model_path[64], socket_path[64];

/* ---- the engine, one for all inputs ---- */

static void remove_files(void)
{
    unlink(socket_path);
    rmdir(dir);
}

static void open_engine(void)
{
    static const struct cost cost = {.base_ns = 1000, .row_ns = 1000};
    struct engine_process_config cfg = {.device = &fake_device_ops,
                                        .model_path = model_path,
                                        .socket_path = socket_path,
                                        .build = "fuzz",
                                        .mode = DEVICE_EXACT,
                                        .isa = "auto",
                                        .max_sequences = 4,
                                        .prefill_rows = 16,
                                        .cost = &cost,
                                        .queue_max = 8,
                                        .tenant_queue_max = 6,
                                        .prefix_cache = true,
                                        .prefix_cache_permille = 500,
                                        .depth = 1,
                                        .credit_bytes = 4096,
                                        .stop_fd = eventfd(0, EFD_CLOEXEC)};
    struct reason why = {0};

    if (mkdtemp(dir) == NULL)
        abort();
    log_init("fuzz", LOG_ERROR);
    snprintf(model_path, sizeof model_path, "%s/m.gguf", dir);
    snprintf(socket_path, sizeof socket_path, "%s/s", dir);
    tiny_model_write(NULL, model_path);
    if (engine_process_open(&cfg, &engine, &why) != ST_OK) {
        fprintf(stderr, "%s\n", why.text);
        abort();
    }
    unlink(model_path); /* it is mapped */
    atexit(remove_files);
}

static void turn(void)
{
    engine->is_busy = true; /* never waits */
    engine_process_turn(engine);
}

/* ---- gateways ---- */

static int join_engine(void)
{
    struct sockaddr_un a = {.sun_family = AF_UNIX};
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);

    strcpy(a.sun_path, socket_path);
    if (fd == -1 || connect(fd, (const struct sockaddr *)&a, sizeof a) == -1)
        abort();
    return fd;
}

/* What doesn't fit the socket is lost: a damaged stream is as good as any. */
static void say(int fd, const struct buf *b)
{
    if (b->len > 0 && send(fd, b->data, b->len, MSG_NOSIGNAL) == -1)
        assert(errno == EAGAIN || errno == EPIPE || errno == ECONNRESET);
}

/* True: the engine has closed it. */
static bool listen_to(int fd)
{
    char heard[4096];
    ssize_t n;

    while ((n = recv(fd, heard, sizeof heard, 0)) > 0)
        continue;
    return n == 0 || errno == ECONNRESET;
}

/* ---- frames from bytes ---- */

static void read_prompt(struct reader *r, int32_t *ids, uint32_t *n)
{
    *n = 1 + reader_u8(r) % PROMPT_MAX;
    for (uint32_t i = 0; i < *n; i++)
        /* A few words, so that prompts share prefixes; now and then an id that isn't there. */
        ids[i] = i % 8 != 7 ? (int32_t)(i % 5) : (int32_t)reader_u8(r) * 2;
}

static void read_sampling(struct reader *r, struct sampling *s)
{
    uint8_t bits = reader_u8(r);

    *s = (struct sampling){.temperature = bits & 1 ? 1.0f : 0.0f,
                           .top_p = 1.0f,
                           .min_tokens = reader_u8(r) % 8,
                           .seed = reader_u8(r),
                           .want_logprobs = (bits & 2) != 0,
                           .top_logprobs = bits & 4 ? reader_u8(r) % 24 : 0,
                           .want_prompt_logprobs = (bits & 8) != 0};
}

static void put_submit(struct input *in)
{
    static const char stop[] = "ab";
    struct reader *r = &in->r;
    int32_t prompt[PROMPT_MAX];
    struct wire_submit v = {.job = reader_u8(r) % 8,
                            .request = claimant_id(in->run, (uint8_t)in->n_requests),
                            .tenant = reader_u8(r) % 3,
                            .weight = 1 + reader_u8(r) * 4000u,
                            .priority = reader_u8(r) % (ENGINE_PRIORITIES + 1),
                            .max_tokens = reader_u8(r),
                            .n_choices = reader_u8(r) % 10,
                            .prompt = prompt};
    uint8_t bits = reader_u8(r);

    v.ignore_eos = bits & 1;
    v.n_stops = bits & 2 ? 1 : 0;
    v.stops[0] = (struct text_span){stop, 1 + (bits >> 7), false};
    v.queue_max_ms = bits & 4 ? 1 : 0;
    if (bits & 8)
        v.max_tokens *= 1u << 20;
    read_sampling(r, &v.sampling);
    read_prompt(r, prompt, &v.n_prompt);
    /* No number stands for two requests. */
    if (in->n_requests++ < CLAIMANT_REQUESTS && wire_submit_is_valid(&v))
        wire_put_submit(&in->out, &v);
}

static void put_damaged(struct input *in)
{
    size_t at = reader_u8(&in->r) | (size_t)reader_u8(&in->r) << 8;
    uint8_t flip = reader_u8(&in->r);

    put_submit(in);
    if (in->out.len > 0)
        in->out.data[at % in->out.len] ^= (char)flip;
}

/* A monitor's HANDOVER ends the engine's service; the inputs that follow need it. */
static void put_bytes(struct input *in)
{
    static const char handover[WIRE_HEADER_BYTES] = {2, 0, 0, 0, WIRE_HANDOVER, 0};

    for (size_t n = reader_u8(&in->r); n > 0; n--)
        buf_put_u8(&in->out, reader_u8(&in->r));
    if (in->out.len > 0 && memmem(in->out.data, in->out.len, handover, sizeof handover) != NULL)
        buf_clear(&in->out);
}

static size_t read_numbers(struct reader *r, uint8_t numbers[16])
{
    const size_t n = 1 + reader_u8(r) % 16;

    for (size_t i = 0; i < n; i++)
        numbers[i] = reader_u8(r);
    return n;
}

static void put_requests(struct input *in, enum wire_type type)
{
    struct wire_requests v;
    uint8_t numbers[16];

    v.n = (uint32_t)read_numbers(&in->r, numbers);
    for (uint32_t i = 0; i < v.n; i++)
        v.ids[i] = claimant_id(in->run, numbers[i]);
    if (type == WIRE_CLAIM)
        wire_put_claim(&in->out, &v);
    else
        wire_put_release(&in->out, &v);
}

static void put_frame(struct input *in, int op)
{
    switch (op) {
    case OP_HELLO:
        claimant_put_hello(&in->out);
        break;
    case OP_SUBMIT:
        put_submit(in);
        break;
    case OP_DAMAGED:
        put_damaged(in);
        break;
    case OP_CANCEL:
        wire_put_cancel(&in->out, reader_u8(&in->r) % 8);
        break;
    case OP_CREDIT:
        wire_put_credit(&in->out, (uint64_t)reader_u8(&in->r) * 64);
        break;
    case OP_CLAIM:
        put_requests(in, WIRE_CLAIM);
        break;
    case OP_RELEASE:
        put_requests(in, WIRE_RELEASE);
        break;
    case OP_MONITOR:
        wire_put_bare(&in->out, WIRE_MONITOR);
        break;
    default:
        put_bytes(in);
    }
}

/* ---- the good gateway ---- */

static void claim_or_release(struct input *in, int op)
{
    uint8_t numbers[16];
    const size_t n = read_numbers(&in->r, numbers);

    /* What is on its way to it can't be told from what came after the release. */
    claimant_hear(&in->good);
    if (op == OP_CLAIM)
        claimant_claim(&in->good, numbers, n);
    else
        claimant_release(&in->good, numbers, n);
    turn();
    claimant_hear(&in->good);
}

/* ---- somebody who is sent away ---- */

/* Says what is in in->out on a connection of its own, is not sent away yet; then `op`, and is. */
static void assert_sent_away(struct input *in, int op)
{
    int fd = join_engine();

    turn(); /* let in */
    say(fd, &in->out);
    turn();
    assert(!listen_to(fd));
    buf_clear(&in->out);
    if (op == OP_HANDOVER || op == OP_WAKE)
        wire_put_bare(&in->out, op == OP_WAKE ? WIRE_WAKE : WIRE_HANDOVER);
    else
        put_frame(in, op);
    say(fd, &in->out);
    turn();
    assert(listen_to(fd) || in->out.len == 0);
    close(fd);
    turn();
}

static void be_sent_away(struct input *in, int op, uint8_t bits)
{
    static const int refused[] = {OP_HELLO, OP_SUBMIT,  OP_CANCEL, OP_CREDIT,
                                  OP_CLAIM, OP_RELEASE, OP_WAKE,   OP_MONITOR};

    buf_clear(&in->out);
    if (op == OP_MONITOR || (bits & BIT_VARIANT))
        claimant_put_hello(&in->out);
    if (op == OP_MONITOR) {
        wire_put_bare(&in->out, WIRE_MONITOR);
        op = refused[reader_u8(&in->r) % COUNT_OF(refused)];
    }
    assert_sent_away(in, op);
}

/* ---- an input ---- */

static void take_turns(struct input *in, int fd, bool listens)
{
    for (int n = 1 + reader_u8(&in->r) % 16; n > 0; n--)
        turn();
    if (listens)
        (void)listen_to(fd); /* or it stays full */
    claimant_hear(&in->good);
}

static void operate(struct input *in)
{
    const uint8_t byte = reader_u8(&in->r);
    const bool variant = byte & BIT_VARIANT;
    const int op = (byte & OP_BITS) % N_OPS;
    int *fd = &in->fds[(byte & BIT_OTHER) != 0];

    if (op == OP_TURN) {
        take_turns(in, *fd, variant);
    } else if (op == OP_LEAVE) {
        close(*fd);
        turn(); /* its backlog of callers is short */
        *fd = join_engine();
    } else if (variant && (op == OP_CLAIM || op == OP_RELEASE)) {
        claim_or_release(in, op);
    } else if (op == OP_HANDOVER || op == OP_WAKE || (variant && op == OP_MONITOR)) {
        be_sent_away(in, op, byte);
    } else {
        buf_clear(&in->out);
        put_frame(in, op);
        say(*fd, &in->out);
    }
}

/* But for `n_conns` all are gone, and everything ends. */
static void settle(uint32_t n_conns)
{
    struct scheduler_stats st;
    int turns = 0;

    do {
        turn();
        scheduler_stats(engine->scheduler, &st);
        assert(++turns < TURNS_MAX);
    } while (engine->n_conns > n_conns || engine->jobs.n > 0 || st.running + st.waiting > 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static uint64_t run;
    struct input in = {.run = ++run};

    if (engine == NULL)
        open_engine();
    buf_init(&in.out);
    reader_init(&in.r, data, size);
    claimant_open(&in.good, join_engine(), run);
    for (int i = 0; i < GATEWAYS; i++)
        in.fds[i] = join_engine();
    turn(); /* all are let in */
    while (!in.r.failed && in.r.pos < size)
        operate(&in);
    for (int i = 0; i < GATEWAYS; i++)
        close(in.fds[i]);
    settle(1);
    claimant_hear(&in.good);
    claimant_close(&in.good);
    settle(0);
    buf_dispose(&in.out);
    return 0;
}
