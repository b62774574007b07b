/* SPDX-License-Identifier: Apache-2.0 */
/* The warden as a gateway sees it: a real one, with nothing kept warm, that gets what a gateway may and may not send.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/fd.h"
#include "supervisor/roles.h"
#include "warden/wire.h"

#define WARDEN_FILES 1024
#define CROWD 1500

static pid_t warden;
static int control, peer;
static struct cordon_warden_hello hello;

static void warden_main(int control_end, int peer_end)
{
    static char settings[][64] = {"warden",
                                  "CORDON_STATE=/nonexistent/cordon-test-warden",
                                  "CORDON_POOL_PYTHON=0",
                                  "CORDON_POOL_PYTHON_DATA=0",
                                  "CORDON_POOL_JAVASCRIPT=0",
                                  "CORDON_POOL_BASH=0",
                                  "CORDON_POOL_MAX=0",
                                  "CORDON_LOG_LEVEL=error"};
    char *argv[9] = {NULL};
    for (size_t i = 0; i < 8; i++)
        argv[i] = settings[i];
    const struct rlimit files = {WARDEN_FILES, WARDEN_FILES};
    (void)setrlimit(RLIMIT_NOFILE, &files); /* lower than its own would be */
    int high_control = fcntl(control_end, F_DUPFD, 20), high_peer = fcntl(peer_end, F_DUPFD, 20);
    if (dup2(high_control, CORDON_ROLE_CONTROL) < 0 || dup2(high_peer, CORDON_ROLE_PEER) < 0)
        _exit(99);
    (void)close_range(CORDON_ROLE_PEER + 1, ~0u, 0);
    exit(cordon_warden_main(8, argv));
}

static int start(void **state)
{
    int c[2], p[2];
    (void)state;
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, c) < 0 ||
        socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, p) < 0)
        return -1;
    warden = fork();
    if (warden == 0)
        warden_main(c[1], p[1]);
    (void)close(c[1]);
    (void)close(p[1]);
    control = c[0];
    peer = p[0];
    return recv(peer, &hello, sizeof hello, 0) == (ssize_t)sizeof hello ? 0 : -1;
}

static int stop(void **state)
{
    int status = -1;
    (void)state;
    (void)close(peer);
    (void)close(control);
    if (waitpid(warden, &status, 0) != warden)
        return -1;
    return status; /* it must end by itself, and well */
}

static struct cordon_warden_acquire usual(void)
{
    return (struct cordon_warden_acquire){.version = CORDON_WARDEN_VERSION,
                                          .kind = CORDON_GUEST_BASH,
                                          .cpu_percent = 100,
                                          .pids = 64,
                                          .memory_bytes = 64u << 20,
                                          .template_name = "default"};
}

/* Sends it; returns the gateway's end of the lease. */
static int ask(const void *data, size_t size)
{
    int pair[2];
    assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair), 0);
    assert_int_equal(cordon_send_fds(peer, data, size, &pair[1], 1, 0), (ssize_t)size);
    (void)close(pair[1]);
    return pair[0];
}

static int answer(int lease, struct cordon_warden_grant *grant, int fds[4], size_t *nfds)
{
    struct pollfd end = {.fd = lease, .events = POLLIN};
    assert_int_equal(poll(&end, 1, 60000), 1);
    *nfds = 4;
    ssize_t n = cordon_recv_fds(lease, grant, sizeof *grant, fds, nfds, 0);
    return n == (ssize_t)sizeof *grant ? grant->status : -EPIPE;
}

static int refused(const struct cordon_warden_acquire *request)
{
    struct cordon_warden_grant grant;
    int fds[4];
    size_t nfds;
    int lease = ask(request, sizeof *request);
    int status = answer(lease, &grant, fds, &nfds);
    assert_int_equal(nfds, 0);
    assert_true(status < 0 && grant.why[0]);
    (void)close(lease);
    return status;
}

static void serves(void)
{
    struct cordon_warden_acquire request = usual();
    struct cordon_warden_grant grant;
    int fds[4];
    size_t nfds;
    char byte;
    if (hello.status < 0) {
        print_message("# skipped: %s\n", hello.why);
        skip();
    }
    int lease = ask(&request, sizeof request);
    assert_int_equal(answer(lease, &grant, fds, &nfds), 0);
    assert_true(nfds >= 1 && (grant.fds & CORDON_GRANT_CHANNEL));
    (void)close(lease);
    struct pollfd end = {.fd = fds[0], .events = POLLIN}; /* the guest's end is the channel's */
    while (poll(&end, 1, 60000) == 1 && recv(fds[0], &byte, 1, 0) == 1)
        continue;
    for (size_t i = 0; i < nfds; i++)
        (void)close(fds[i]);
}

static void it_says_hello(void **state)
{
    (void)state;
    assert_int_equal(hello.version, CORDON_WARDEN_VERSION);
    assert_false(hello.abilities & CORDON_ABLE_NONE_BACKEND);
    assert_true(hello.languages & 1u << CORDON_GUEST_BASH);
}

static void a_guest_lives_as_long_as_its_lease(void **state)
{
    (void)state;
    serves();
    serves();
}

static void ceilings_are_the_wardens_own(void **state)
{
    struct cordon_warden_acquire request = usual();
    (void)state;
    request.memory_bytes = UINT64_C(1) << 50;
    assert_int_equal(refused(&request), -EPERM);
    request = usual();
    request.pids = 1u << 30;
    assert_int_equal(refused(&request), -EPERM);
    request = usual();
    request.cpu_percent = 0;
    assert_int_equal(refused(&request), -EPERM);
    request = usual();
    request.unisolated = 1;
    assert_int_equal(refused(&request), -EPERM);
    request = usual();
    request.kind = 77;
    assert_int_equal(refused(&request), -EINVAL);
    request = usual();
    request.version = 9;
    assert_int_equal(refused(&request), -EPROTO);
    request = usual();
    memset(request.template_name, 'a', sizeof request.template_name);
    assert_int_equal(refused(&request), -EINVAL); /* no end */
    (void)snprintf(request.template_name, sizeof request.template_name, "../default");
    assert_int_equal(refused(&request), -EINVAL);
    (void)snprintf(request.template_name, sizeof request.template_name, "nobody-made-it");
    assert_int_equal(refused(&request), -ENXIO);
}

static void malformed_messages_cost_only_themselves(void **state)
{
    struct cordon_warden_acquire request = usual();
    char large[4096] = {0};
    int three[3];
    struct cordon_warden_grant grant;
    int fds[4];
    size_t nfds;
    (void)state;
    assert_int_equal(cordon_send_fds(peer, &request, sizeof request, NULL, 0, 0), sizeof request); /* no lease */
    int lease = ask("short", 5);
    assert_int_equal(answer(lease, &grant, fds, &nfds), -EBADMSG);
    (void)close(lease);
    lease = ask(large, sizeof large);
    assert_int_equal(answer(lease, &grant, fds, &nfds), -EPIPE); /* cut: all of it was dropped */
    (void)close(lease);
    for (size_t i = 0; i < 3; i++)
        three[i] = open("/dev/null", O_RDWR | O_CLOEXEC);
    assert_int_equal(cordon_send_fds(peer, &request, sizeof request, three, 3, 0), sizeof request);
    assert_int_equal(cordon_send_fds(peer, &request, sizeof request, three, 1, 0), sizeof request); /* not a socket */
    for (size_t i = 0; i < 3; i++)
        (void)close(three[i]);
    serves();
}

/* A TCP socket with bytes that its peer does not take, whose close waits three seconds for that. */
static int lingering_socket(void)
{
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t size = sizeof at;
    const struct linger linger = {.l_onoff = 1, .l_linger = 3};
    static const char block[65536];
    int listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_int_equal(bind(listener, (struct sockaddr *)&at, size), 0);
    assert_int_equal(listen(listener, 1), 0);
    assert_int_equal(getsockname(listener, (struct sockaddr *)&at, &size), 0);
    assert_int_equal(connect(fd, (struct sockaddr *)&at, size), 0);
    while (send(fd, block, sizeof block, MSG_DONTWAIT) > 0)
        continue;
    assert_int_equal(setsockopt(fd, SOL_SOCKET, SO_LINGER, &linger, sizeof linger), 0);
    return fd; /* the listener stays open: nobody accepts, nobody reads */
}

static void a_socket_that_lingers_stops_nobody(void **state)
{
    struct cordon_warden_acquire request = usual(), bad = usual();
    struct timespec before, after;
    char byte;
    (void)state;
    request.version = 9; /* refused, and so closed at once */
    for (int i = 0; i < 2; i++) {
        int fd = lingering_socket();
        assert_int_equal(cordon_send_fds(peer, i ? "short" : (void *)&request, i ? 5 : sizeof request, &fd, 1, 0),
                         i ? 5 : (ssize_t)sizeof request);
        (void)close(fd); /* not the last one */
    }
    (void)clock_gettime(CLOCK_MONOTONIC, &before);
    bad.kind = 77;
    assert_int_equal(refused(&bad), -EINVAL);
    (void)clock_gettime(CLOCK_MONOTONIC, &after);
    assert_true(after.tv_sec - before.tv_sec <= 1);
    /* Nor is anything said, and credentials with it, on a unix socket that is no lease. */
    int pair[2];
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair), 0);
    assert_int_equal(cordon_send_fds(peer, &request, sizeof request, &pair[1], 1, 0), (ssize_t)sizeof request);
    (void)close(pair[1]);
    assert_int_equal(recv(pair[0], &byte, 1, 0), 0);
    (void)close(pair[0]);
}

static void who_gives_up_is_forgotten(void **state)
{
    struct cordon_warden_acquire request = usual();
    (void)state;
    for (int i = 0; i < 20; i++)
        (void)close(ask(&request, sizeof request)); /* at once, before it can be served */
    serves();
}

/* More than its table of descriptors can hold: each is answered, or waits; none is lost, and nothing else is. */
static void a_crowd_is_told(void **state)
{
    struct cordon_warden_acquire request = usual();
    struct cordon_warden_grant grant;
    static int leases[CROWD];
    static bool answered[CROWD];
    struct rlimit files;
    unsigned refused_ones = 0, lost = 0;
    (void)state;
    if (hello.status < 0 || getrlimit(RLIMIT_NOFILE, &files) < 0 || files.rlim_max < CROWD + 100)
        skip();
    files.rlim_cur = files.rlim_max;
    (void)setrlimit(RLIMIT_NOFILE, &files);
    for (size_t i = 0; i < CROWD; i++)
        leases[i] = ask(&request, sizeof request);
    for (int round = 0; round < 3000 && refused_ones <= CROWD / 2; round++) {
        (void)usleep(20000);
        for (size_t i = 0; i < CROWD; i++) {
            int fds[4];
            size_t nfds = 4;
            ssize_t n =
                answered[i] ? -EAGAIN : cordon_recv_fds(leases[i], &grant, sizeof grant, fds, &nfds, MSG_DONTWAIT);
            answered[i] |= n != -EAGAIN;
            lost += n != -EAGAIN && n != (ssize_t)sizeof grant;
            refused_ones += n == (ssize_t)sizeof grant && grant.status == -EAGAIN;
            for (size_t k = 0; n >= 0 && k < nfds; k++)
                (void)close(fds[k]);
        }
    }
    for (size_t i = 0; i < CROWD; i++)
        (void)close(leases[i]);
    assert_int_equal(lost, 0);
    assert_true(refused_ones > CROWD / 2);
    serves();
}

static void the_supervisor_brings_new_gateways(void **state)
{
    int pair[2], old = peer;
    struct cordon_warden_hello again;
    (void)state;
    assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair), 0);
    assert_int_equal(cordon_send_fds(control, "P", 1, &pair[1], 1, 0), 1);
    (void)close(pair[1]);
    assert_int_equal(recv(pair[0], &again, sizeof again, 0), sizeof again);
    assert_int_equal(again.abilities, hello.abilities);
    (void)close(old);
    peer = pair[0];
    assert_int_equal(cordon_send_fds(control, "X", 1, NULL, 0, 0), 1); /* unknown: dropped */
    serves();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(it_says_hello),
        cmocka_unit_test(a_guest_lives_as_long_as_its_lease),
        cmocka_unit_test(ceilings_are_the_wardens_own),
        cmocka_unit_test(malformed_messages_cost_only_themselves),
        cmocka_unit_test(a_socket_that_lingers_stops_nobody),
        cmocka_unit_test(who_gives_up_is_forgotten),
        cmocka_unit_test(a_crowd_is_told),
        cmocka_unit_test(the_supervisor_brings_new_gateways),
    };
    return cmocka_run_group_tests(tests, start, stop);
}
