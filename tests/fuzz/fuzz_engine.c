/* The engine process through its socket, as a gateway that strangers took over would talk to it:
 * real connections, jobs, scheduler and KV pages, the fake device, and gateways that send whole
 * frames, damaged ones, bytes, or nothing, in any order with steps between. Whatever they say, once
 * they are gone no job and no sequence is left. The fake device asserts the steps it gets.
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
#include "tests/lib/fake_device.h"
#include "tests/lib/gguf_build.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define GATEWAYS 2
/* More than any job of an input takes to its end. */
#define TURNS_MAX  4096
#define PROMPT_MAX 64

enum { OP_HELLO, OP_SUBMIT, OP_DAMAGED, OP_CANCEL, OP_CREDIT, OP_BYTES, OP_TURN, OP_LEAVE, N_OPS };

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

static void listen_to(int fd)
{
    char heard[4096];

    while (recv(fd, heard, sizeof heard, 0) > 0)
        continue;
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

static void put_submit(struct reader *r, struct buf *out)
{
    static const char stop[] = "ab";
    int32_t prompt[PROMPT_MAX];
    struct wire_submit v = {.job = reader_u8(r) % 8,
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
    if (wire_submit_is_valid(&v))
        wire_put_submit(out, &v);
}

static void put_damaged(struct reader *r, struct buf *out)
{
    size_t at = reader_u8(r) | (size_t)reader_u8(r) << 8;
    uint8_t flip = reader_u8(r);

    put_submit(r, out);
    if (out->len > 0)
        out->data[at % out->len] ^= (char)flip;
}

static void put_bytes(struct reader *r, struct buf *out)
{
    for (size_t n = reader_u8(r); n > 0; n--)
        buf_put_u8(out, reader_u8(r));
}

static void put_frame(struct reader *r, int op, struct buf *out)
{
    static const struct wire_hello hello = {
        .version_min = WIRE_VERSION_MIN, .version_max = WIRE_VERSION_MAX, .build = "fuzz"};

    switch (op) {
    case OP_HELLO:
        wire_put_hello(out, &hello);
        break;
    case OP_SUBMIT:
        put_submit(r, out);
        break;
    case OP_DAMAGED:
        put_damaged(r, out);
        break;
    case OP_CANCEL:
        wire_put_cancel(out, reader_u8(r) % 8);
        break;
    case OP_CREDIT:
        wire_put_credit(out, (uint64_t)reader_u8(r) * 64);
        break;
    default:
        put_bytes(r, out);
    }
}

/* ---- an input ---- */

static void operate(struct reader *r, int fds[GATEWAYS], struct buf *out)
{
    uint8_t byte = reader_u8(r);
    int op = byte % N_OPS, *fd = &fds[byte >> 7];

    if (op == OP_TURN) {
        for (int n = 1 + reader_u8(r) % 16; n > 0; n--)
            turn();
        if (byte & 0x40)
            listen_to(*fd); /* or it stays full */
        return;
    }
    if (op == OP_LEAVE) {
        close(*fd);
        turn(); /* its backlog of callers is short */
        *fd = join_engine();
        return;
    }
    buf_clear(out);
    put_frame(r, op, out);
    say(*fd, out);
}

/* All gateways gone, everything ends. */
static void settle(void)
{
    struct scheduler_stats st;
    int turns = 0;

    do {
        turn();
        scheduler_stats(engine->scheduler, &st);
        assert(++turns < TURNS_MAX);
    } while (engine->n_conns > 0 || engine->jobs.n > 0 || st.running + st.waiting > 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    int fds[GATEWAYS];
    struct reader r;
    struct buf out;

    if (engine == NULL)
        open_engine();
    buf_init(&out);
    reader_init(&r, data, size);
    for (int i = 0; i < GATEWAYS; i++)
        fds[i] = join_engine();
    turn(); /* both are let in */
    while (!r.failed && r.pos < size)
        operate(&r, fds, &out);
    for (int i = 0; i < GATEWAYS; i++)
        close(fds[i]);
    settle();
    buf_dispose(&out);
    return 0;
}
