/* The signals that a supervisor is told by, and what each of them means. */
#include "app/supervise/supervisor_signals.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <string.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include "base/size.h"

#define SECOND_WISH_MS 1000

enum status supervisor_open_signals(struct supervisor *s, struct reason *why)
{
    static const int handled[] = {SIGCHLD, SIGINT, SIGTERM, SIGHUP};
    sigset_t signals;

    sigemptyset(&signals);
    for (size_t i = 0; i < COUNT_OF(handled); i++)
        sigaddset(&signals, handled[i]);
    sigprocmask(SIG_BLOCK, &signals, NULL);
    s->signal_fd = signalfd(-1, &signals, SFD_NONBLOCK | SFD_CLOEXEC);
    if (s->signal_fd == -1)
        return fail(why, ST_IO, "no descriptor for signals: %s", strerror(errno));
    signal(SIGPIPE, SIG_IGN);
    return ST_OK;
}

/* One Ctrl-C can arrive more than once, from the terminal and from a wrapper that passes it on:
 * only what comes a second later is a second wish. */
static void note_stop(struct supervisor *s, int64_t now_ms)
{
    if (s->stops_asked > 0 && now_ms - s->last_stop_ms < SECOND_WISH_MS)
        return;
    s->stops_asked++;
    s->last_stop_ms = now_ms;
}

static void try_again(struct supervisor *s, int64_t now_ms)
{
    supervisor_say(s, "SIGHUP: what is down is tried again");
    for (size_t i = 0; i < s->n; i++)
        child_try_again(s->children[i], now_ms);
}

/* The terminal has gone: the kernel says so, or it was the shell's own farewell. */
static bool is_hangup(const struct supervisor *s, const struct signalfd_siginfo *i)
{
    struct pollfd out = {.fd = STDOUT_FILENO};

    if (i->ssi_code == SI_KERNEL)
        return true;
    return s->on_terminal && poll(&out, 1, 0) > 0 && (out.revents & (POLLHUP | POLLERR)) != 0;
}

void supervisor_take_signals(struct supervisor *s, int64_t now_ms)
{
    struct signalfd_siginfo i;

    while (read(s->signal_fd, &i, sizeof i) == (ssize_t)sizeof i) {
        if (i.ssi_signo == SIGHUP && !is_hangup(s, &i))
            try_again(s, now_ms);
        else if (i.ssi_signo != SIGCHLD)
            note_stop(s, now_ms);
    }
}
