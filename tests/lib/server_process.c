#include "tests/lib/server_process.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <glob.h>
#include <grp.h>
#include <pwd.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

/* PostgreSQL refuses to run as root; Debian's package brings this user. */
static const struct passwd *server_user(void)
{
    const struct passwd *user = getpwnam("postgres");

    return user != NULL ? user : getpwnam("nobody");
}

void scratch_make(char out[SCRATCH_BYTES])
{
    snprintf(out, SCRATCH_BYTES, "/tmp/sluice-XXXXXX");
    assert(mkdtemp(out) != NULL);
    if (geteuid() == 0) {
        const struct passwd *user = server_user();

        assert(user != NULL && chown(out, user->pw_uid, user->pw_gid) == 0);
        /* The test itself may run as another user later: sockets inside are for all. */
        assert(chmod(out, 0755) == 0);
    }
}

static int remove_one(const char *path, const struct stat *st, int flag, struct FTW *ftw)
{
    (void)st;
    (void)flag;
    (void)ftw;
    return remove(path);
}

void scratch_remove(const char *dir)
{
    if (nftw(dir, remove_one, 16, FTW_DEPTH | FTW_PHYS) == -1)
        fprintf(stderr, "%s: %s\n", dir, strerror(errno));
}

static void become_server_user(void)
{
    const struct passwd *user = server_user();

    if (geteuid() != 0)
        return;
    if (user == NULL || setgroups(0, NULL) == -1 || setgid(user->pw_gid) == -1 ||
        setuid(user->pw_uid) == -1)
        _exit(126);
}

static void run_child(const char *dir, const char *name, const char *const *argv, pid_t parent)
{
    char log[SCRATCH_BYTES + 64];
    int fd;

    become_server_user();
    /* After the change of user, which clears it. */
    if (prctl(PR_SET_PDEATHSIG, SIGKILL) == -1 || getppid() != parent || chdir(dir) == -1)
        _exit(126);
    snprintf(log, sizeof log, "%s/%s.log", dir, name);
    fd = open(log, O_WRONLY | O_CREAT | O_APPEND, 0644);
    if (fd == -1 || dup2(fd, STDOUT_FILENO) == -1 || dup2(fd, STDERR_FILENO) == -1)
        _exit(126);
    execvp(argv[0], (char *const *)(uintptr_t)argv);
    _exit(127);
}

pid_t server_spawn(const char *dir, const char *name, const char *const *argv)
{
    pid_t parent = getpid(), pid = fork();

    assert(pid != -1);
    if (pid == 0)
        run_child(dir, name, argv, parent);
    return pid;
}

int server_run(const char *dir, const char *name, const char *const *argv)
{
    pid_t pid = server_spawn(dir, name, argv);
    int status;

    while (waitpid(pid, &status, 0) == -1)
        assert(errno == EINTR);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

void server_end(pid_t pid, int signal)
{
    int status;

    kill(pid, signal);
    /* A frozen one takes it only when it continues. */
    kill(pid, SIGCONT);
    while (waitpid(pid, &status, 0) == -1)
        assert(errno == EINTR);
}

static bool find_in_path(const char *program, char *out, size_t cap)
{
    const char *path = getenv("PATH");
    char copy[4096], *save = NULL;

    snprintf(copy, sizeof copy, "%s", path != NULL ? path : "/usr/bin:/bin");
    for (char *dir = strtok_r(copy, ":", &save); dir != NULL; dir = strtok_r(NULL, ":", &save)) {
        snprintf(out, cap, "%s/%s", dir, program);
        if (access(out, X_OK) == 0)
            return true;
    }
    return false;
}

bool server_find(const char *program, const char *pattern, char *out, size_t cap)
{
    glob_t g;
    bool found = false;

    if (find_in_path(program, out, cap))
        return true;
    if (pattern == NULL || glob(pattern, 0, NULL, &g) != 0)
        return false;
    /* sorted by name: the last is the newest version */
    for (size_t i = g.gl_pathc; i > 0 && !found; i--) {
        snprintf(out, cap, "%s/%s", g.gl_pathv[i - 1], program);
        found = access(out, X_OK) == 0;
    }
    globfree(&g);
    return found;
}
