#include "tests/lib/pg_server.h"

#include <assert.h>
#include <dirent.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "store/pg.h"

#define START_TIMEOUT_MS 60000
#define PORT             "5432" /* only names the socket */

static void init_cluster(const struct pg_server *s)
{
    char program[160], data[SCRATCH_BYTES + 8];
    const char *argv[] = {program, "-D", data,   "-U",         "postgres",  "-A",
                          "trust", "-E", "UTF8", "--locale=C", "--no-sync", NULL};

    snprintf(program, sizeof program, "%s/initdb", s->bin);
    snprintf(data, sizeof data, "%s/data", s->dir);
    assert(server_run(s->dir, "initdb", argv) == 0);
}

static bool answers(const struct pg_server *s)
{
    struct pg *pg = NULL;
    struct reason why;
    bool yes = pg_open(s->conninfo, &pg, &why) == ST_OK;

    pg_close(pg);
    return yes;
}

void pg_server_resume(struct pg_server *s)
{
    char program[160], data[SCRATCH_BYTES + 8], socket[SCRATCH_BYTES + 40];
    const char *argv[] = {program,
                          "-D",
                          data,
                          "-k",
                          socket,
                          "-h",
                          "",
                          "-p",
                          PORT,
                          "-c",
                          "fsync=off",
                          "-c",
                          "max_connections=50",
                          NULL};
    int64_t deadline = clock_mono_ms() + START_TIMEOUT_MS;

    snprintf(program, sizeof program, "%s/postgres", s->bin);
    snprintf(data, sizeof data, "%s/data", s->dir);
    snprintf(socket, sizeof socket, "%s", s->dir);
    s->pid = server_spawn(s->dir, "postgres", argv);
    while (!answers(s)) {
        assert(clock_mono_ms() < deadline);
        poll(NULL, 0, 50);
    }
}

bool pg_server_start(struct pg_server *s)
{
    char initdb[160];

    memset(s, 0, sizeof *s);
    s->pid = -1;
    if (!server_find("initdb", "/usr/lib/postgresql/*/bin", initdb, sizeof initdb)) {
        fprintf(stderr, "skipped: PostgreSQL is not installed\n");
        return false;
    }
    snprintf(s->bin, sizeof s->bin, "%.*s", (int)(strrchr(initdb, '/') - initdb), initdb);
    scratch_make(s->dir);
    snprintf(s->conninfo, sizeof s->conninfo, "host=%s port=" PORT " user=postgres dbname=postgres",
             s->dir);
    init_cluster(s);
    pg_server_resume(s);
    return true;
}

void pg_server_stop(struct pg_server *s)
{
    if (s->pid != -1)
        server_end(s->pid, SIGINT); /* fast shutdown */
    s->pid = -1;
    scratch_remove(s->dir);
}

void pg_server_crash(struct pg_server *s)
{
    server_end(s->pid, SIGQUIT); /* immediate: its children go too, nothing is written */
    s->pid = -1;
}

/* The server's parent of each process is in the fourth field of its stat file. */
static void signal_all(const struct pg_server *s, int signal)
{
    DIR *proc = opendir("/proc");
    struct dirent *entry;

    assert(proc != NULL);
    while ((entry = readdir(proc)) != NULL) {
        char path[300];
        FILE *f;
        int pid = 0, parent = 0;

        snprintf(path, sizeof path, "/proc/%s/stat", entry->d_name);
        f = fopen(path, "r");
        if (f == NULL)
            continue;
        if (fscanf(f, "%d (%*[^)]) %*c %d", &pid, &parent) == 2 && parent == s->pid)
            kill(pid, signal);
        fclose(f);
    }
    closedir(proc);
    kill(s->pid, signal);
}

void pg_server_freeze(struct pg_server *s)
{
    signal_all(s, SIGSTOP);
}

void pg_server_thaw(struct pg_server *s)
{
    signal_all(s, SIGCONT);
}
