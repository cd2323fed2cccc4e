#include "tests/lib/played_engine.h"

#include <assert.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#define CONTEXT_TOKENS 4096

static void send_all(struct played_link *l, struct buf *b)
{
    ssize_t n = send(l->fd, b->data, b->len, MSG_NOSIGNAL);

    assert(n == (ssize_t)b->len);
    buf_dispose(b);
}

void played_engine_open(struct played_engine *p, const char *path, const char *revision,
                        uint32_t pid)
{
    struct sockaddr_un to = {.sun_family = AF_UNIX};
    int rc;

    *p = (struct played_engine){.revision = revision, .pid = pid, .greets_max = PLAYED_LINKS_MAX};
    assert(strlen(path) < sizeof to.sun_path);
    strcpy(to.sun_path, path);
    unlink(path);
    p->listen_fd = socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    assert(p->listen_fd != -1);
    rc = bind(p->listen_fd, (const struct sockaddr *)&to, sizeof to);
    assert(rc == 0);
    rc = listen(p->listen_fd, PLAYED_LINKS_MAX);
    assert(rc == 0);
}

static void stop_listening(struct played_engine *p)
{
    if (p->listen_fd != -1)
        close(p->listen_fd);
    p->listen_fd = -1;
}

static void lose(struct played_link *l)
{
    if (l->fd != -1)
        close(l->fd);
    l->fd = -1;
    l->is_greeted = false;
    buf_dispose(&l->in);
}

void played_engine_close(struct played_engine *p)
{
    stop_listening(p);
    for (size_t i = 0; i < p->n_links; i++)
        lose(&p->links[i]);
    p->n_links = 0;
}

/* ---- what links say ---- */

static size_t n_greeted(const struct played_engine *p)
{
    size_t n = 0;

    for (size_t i = 0; i < p->n_links; i++)
        n += p->links[i].is_greeted;
    return n;
}

static void greet(struct played_engine *p, struct played_link *l)
{
    struct wire_welcome w = {.version = WIRE_VERSION_MAX,
                             .max_sequences = 1,
                             .max_context = CONTEXT_TOKENS,
                             .credit_bytes = 1 << 20,
                             .pid = p->pid};
    struct buf b;

    assert(strlen(p->revision) < sizeof w.revision);
    strcpy(w.revision, p->revision);
    buf_init(&b);
    wire_put_welcome(&b, &w);
    send_all(l, &b);
    l->is_greeted = true;
}

static void note_job(struct played_engine *p, struct played_link *l, const struct wire_frame *f)
{
    struct wire_submit v;
    struct buf scratch;
    enum status s;

    buf_init(&scratch);
    s = wire_get_submit(f, &scratch, &v);
    assert(s == ST_OK && p->n_jobs < PLAYED_JOBS_MAX);
    p->jobs[p->n_jobs++] = (struct played_job){.link = l, .number = v.job};
    buf_dispose(&scratch);
}

static void note_claim(struct played_engine *p, struct played_link *l, const struct wire_frame *f)
{
    enum status s = wire_get_claim(f, &p->claimed);

    assert(s == ST_OK);
    p->n_claims++;
    p->claimant = l;
}

static void on_frame(struct played_engine *p, struct played_link *l, const struct wire_frame *f)
{
    if (f->type == WIRE_SUBMIT)
        note_job(p, l, f);
    else if (f->type == WIRE_CLAIM)
        note_claim(p, l, f);
    else if (f->type == WIRE_RELEASE)
        p->n_released++;
}

static void handle_frames(struct played_engine *p, struct played_link *l)
{
    struct wire_frame f;
    size_t used;

    while (wire_scan(l->in.data, l->in.len, &f, &used) == WIRE_SCAN_FRAME) {
        if (f.type == WIRE_HELLO && n_greeted(p) >= p->greets_max)
            return; /* later */
        if (f.type == WIRE_HELLO)
            greet(p, l);
        else
            on_frame(p, l, &f);
        buf_consume(&l->in, used);
    }
}

static void read_link(struct played_engine *p, struct played_link *l)
{
    char some[4096];
    ssize_t n;

    while ((n = recv(l->fd, some, sizeof some, MSG_DONTWAIT)) > 0)
        buf_append(&l->in, some, (size_t)n);
    if (n == 0)
        lose(l);
    else
        handle_frames(p, l);
}

void played_engine_turn(struct played_engine *p)
{
    int fd;

    while (p->listen_fd != -1 &&
           (fd = accept4(p->listen_fd, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC)) != -1) {
        assert(p->n_links < PLAYED_LINKS_MAX);
        p->links[p->n_links++] = (struct played_link){.fd = fd};
    }
    for (size_t i = 0; i < p->n_links; i++)
        if (p->links[i].fd != -1)
            read_link(p, &p->links[i]);
}

size_t played_engine_n_open(const struct played_engine *p)
{
    size_t n = 0;

    for (size_t i = 0; i < p->n_links; i++)
        n += p->links[i].fd != -1;
    return n;
}

/* ---- what it says ---- */

static void send_to_greeted(struct played_engine *p, void (*put)(struct buf *b, const void *arg),
                            const void *arg)
{
    for (size_t i = 0; i < p->n_links; i++) {
        struct buf b;

        if (!p->links[i].is_greeted)
            continue;
        buf_init(&b);
        put(&b, arg);
        send_all(&p->links[i], &b);
    }
}

static void put_handover(struct buf *b, const void *arg)
{
    (void)arg;
    wire_put_bare(b, WIRE_HANDOVER);
}

void played_engine_hand_over(struct played_engine *p)
{
    stop_listening(p);
    send_to_greeted(p, put_handover, NULL);
}

static void put_stats(struct buf *b, const void *arg)
{
    wire_put_stats(b, arg);
}

void played_engine_tell_stats(struct played_engine *p, const struct wire_stats *v)
{
    send_to_greeted(p, put_stats, v);
}

void played_engine_finish(struct played_engine *p)
{
    for (size_t i = 0; i < p->n_jobs; i++) {
        const struct played_job *j = &p->jobs[i];
        const struct wire_step_entry e = {.job = j->number,
                                          .finish = ENGINE_FINISH_STOP,
                                          .prompt_tokens = 3,
                                          .output_tokens = 1,
                                          .text = "a",
                                          .text_len = 1};
        const struct wire_final v = {
            .job = j->number, .finish = ENGINE_FINISH_STOP, .prompt_tokens = 3, .output_tokens = 1};
        struct buf b;

        buf_init(&b);
        wire_step_begin(&b, 1);
        wire_step_add(&b, &e);
        wire_step_end(&b);
        send_all(j->link, &b);
        buf_init(&b);
        wire_put_final(&b, &v);
        send_all(j->link, &b);
    }
    p->n_jobs = 0;
}

void played_engine_settle(struct played_engine *p, const struct id *request, bool is_known)
{
    struct wire_settled v = {.request = *request, .is_known = is_known};
    struct buf b;

    if (is_known) {
        v.prompt_tokens = 100;
        v.output_tokens = 7;
    }
    buf_init(&b);
    wire_put_settled(&b, &v);
    send_all(p->claimant, &b);
}
