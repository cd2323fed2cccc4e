/* Connections to sockets of this machine: who listens, who does not, and names that are none. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/unix_socket.h"

/* Last: its macro fail() would meet the declaration of ours. */
#include <cmocka.h>

static char folder[] = "/tmp/sluice-socket-XXXXXX";
static int listener = -1;

static int listen_at(const struct sockaddr_un *a)
{
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);

    assert_int_not_equal(fd, -1);
    assert_int_equal(bind(fd, (const struct sockaddr *)a, sizeof *a), 0);
    assert_int_equal(listen(fd, 4), 0);
    return fd;
}

/* In `folder`, `len` bytes in all with a terminating NUL of its own behind them. */
static struct sockaddr_un address(size_t len)
{
    struct sockaddr_un a = {.sun_family = AF_UNIX};
    const int n = snprintf(a.sun_path, sizeof a.sun_path, "%s/", folder);

    assert_true(len < sizeof a.sun_path);
    memset(a.sun_path + n, 's', len - (size_t)n);
    return a;
}

static void test_a_listener_is_reached_without_blocking(void **state)
{
    const struct sockaddr_un a = address(40);
    char c;
    int fd, peer;

    (void)state;
    listener = listen_at(&a);
    fd = unix_socket_connect(a.sun_path);
    assert_int_not_equal(fd, -1);
    assert_true(fcntl(fd, F_GETFL) & O_NONBLOCK);
    assert_true(fcntl(fd, F_GETFD) & FD_CLOEXEC);
    peer = accept(listener, NULL, NULL);
    assert_int_not_equal(peer, -1);
    assert_int_equal(read(fd, &c, 1), -1);
    assert_int_equal(errno, EAGAIN);
    assert_int_equal(write(peer, "x", 1), 1);
    assert_int_equal(read(fd, &c, 1), 1);
    close(peer);
    close(fd);
    close(listener);
    unlink(a.sun_path);
}

static void test_where_nobody_listens_there_is_no_connection(void **state)
{
    const struct sockaddr_un a = address(50);
    FILE *f;

    (void)state;
    assert_int_equal(unix_socket_connect(a.sun_path), -1);
    /* A socket whose owner is gone. */
    close(listen_at(&a));
    assert_int_equal(unix_socket_connect(a.sun_path), -1);
    unlink(a.sun_path);
    /* A file that is no socket. */
    f = fopen(a.sun_path, "w");
    assert_non_null(f);
    fclose(f);
    assert_int_equal(unix_socket_connect(a.sun_path), -1);
    unlink(a.sun_path);
}

static void test_the_longest_path_fits_and_a_longer_one_is_not_cut(void **state)
{
    const struct sockaddr_un a = address(sizeof a.sun_path - 1);
    char longer[sizeof a.sun_path + 1];
    int fd;

    (void)state;
    listener = listen_at(&a);
    fd = unix_socket_connect(a.sun_path);
    assert_int_not_equal(fd, -1);
    close(fd);
    snprintf(longer, sizeof longer, "%ss", a.sun_path);
    assert_int_equal(unix_socket_connect(longer), -1);
    close(listener);
    unlink(a.sun_path);
}

/* An address of NUL bytes is an abstract one (unix(7)), which anybody may have bound. */
static void test_an_empty_path_is_no_address(void **state)
{
    const struct sockaddr_un a = {.sun_family = AF_UNIX};

    (void)state;
    listener = listen_at(&a);
    assert_int_equal(unix_socket_connect(""), -1);
    close(listener);
}

static int make_folder(void **state)
{
    (void)state;
    return mkdtemp(folder) == NULL ? -1 : 0;
}

static int drop_folder(void **state)
{
    (void)state;
    return rmdir(folder);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_listener_is_reached_without_blocking),
        cmocka_unit_test(test_where_nobody_listens_there_is_no_connection),
        cmocka_unit_test(test_the_longest_path_fits_and_a_longer_one_is_not_cut),
        cmocka_unit_test(test_an_empty_path_is_no_address),
    };

    return cmocka_run_group_tests(tests, make_folder, drop_folder);
}
