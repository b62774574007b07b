/* SPDX-License-Identifier: Apache-2.0 */
/* isolate/slotns: real namespaces, and what makes a network namespace unfit for another guest. */
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/in6.h>
#include <netinet/tcp.h>
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/fd.h"
#include "isolate/slotns.h"
#include "isolate/steer.h"

#ifndef IPV6_FLOWLABEL_MGR /* Ubuntu 22.04's headers */
#define IPV6_FLOWLABEL_MGR 32
#endif

#define OWNER 1879048193u
#define BASE 1879113728u

static const struct cordon_slotns_ids ids = {.owner = OWNER, .base = BASE, .count = 65536, .code_id = 1000};

static void needs_root(void)
{
    if (geteuid() == 0)
        return;
    print_message("# skipped: writing maps for other uids needs root\n");
    skip();
}

static void make(struct cordon_slotns *ns)
{
    struct cordon_error err = {0};
    int r = cordon_slotns_make(&ids, ns, &err);
    if (r < 0)
        fail_msg("%s", err.message);
}

/* Opens a socket in the namespaces, by a child that enters them, and returns it here: it stays in there while open. */
static int socket_inside(const struct cordon_slotns *ns, int family, int type)
{
    int pair[2], fd = -1;
    size_t nfds = 1;
    char byte = 0;
    assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair), 0);
    pid_t pid = fork();
    if (pid == 0) {
        if (setns(ns->user, CLONE_NEWUSER) < 0 || setns(ns->net, CLONE_NEWNET) < 0)
            _exit(1);
        int inside = socket(family, type, 0);
        _exit(inside < 0 || cordon_send_fds(pair[1], "s", 1, &inside, 1, 0) < 0);
    }
    (void)close(pair[1]);
    assert_int_equal(cordon_recv_fds(pair[0], &byte, 1, &fd, &nfds, 0), 1);
    (void)close(pair[0]);
    (void)waitpid(pid, NULL, 0);
    assert_int_equal(nfds, 1);
    return fd;
}

static void fresh_one_is_clean(void **state)
{
    struct cordon_slotns ns = CORDON_SLOTNS_NONE;
    (void)state;
    needs_root();
    make(&ns);
    assert_true(cordon_slotns_clean(&ns));
    assert_true(fcntl(ns.user, F_GETFD) & FD_CLOEXEC);
    cordon_slotns_done(&ns);
    assert_int_equal(ns.user, -1);
    cordon_slotns_done(&ns); /* again does nothing */
}

/* Netlink sockets are counted for some milliseconds after their end. */
static bool clean_soon(const struct cordon_slotns *ns)
{
    for (int i = 0; i < 2000 && !cordon_slotns_clean(ns); i++)
        (void)usleep(10000);
    return cordon_slotns_clean(ns);
}

static void a_socket_makes_it_unfit_while_open(void **state)
{
    static const int kinds[][2] = {
        {AF_UNIX, SOCK_DGRAM}, {AF_INET, SOCK_STREAM}, {AF_INET6, SOCK_DGRAM}, {AF_NETLINK, SOCK_RAW}};
    struct cordon_slotns ns = CORDON_SLOTNS_NONE;
    (void)state;
    needs_root();
    make(&ns);
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        int fd = socket_inside(&ns, kinds[i][0], kinds[i][1]);
        assert_false(cordon_slotns_clean(&ns));
        (void)close(fd);
        assert_true(clean_soon(&ns));
    }
    cordon_slotns_done(&ns);
}

static void traffic_makes_it_unfit_for_good(void **state)
{
    struct cordon_slotns ns = CORDON_SLOTNS_NONE;
    struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = htons(9)};
    (void)state;
    needs_root();
    make(&ns);
    int fd = socket_inside(&ns, AF_INET, SOCK_DGRAM);
    to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    assert_int_equal(sendto(fd, "x", 1, 0, (struct sockaddr *)&to, sizeof to), 1); /* loopback is up */
    (void)close(fd);
    assert_false(cordon_slotns_clean(&ns));
    cordon_slotns_done(&ns);
}

/* They outlive their socket, and carry an address that their maker chose. */
static void a_flow_label_makes_it_unfit(void **state)
{
    struct cordon_slotns ns = CORDON_SLOTNS_NONE;
    struct in6_flowlabel_req label = {.flr_label = htonl(0x12345),
                                      .flr_action = IPV6_FL_A_GET,
                                      .flr_share = IPV6_FL_S_ANY,
                                      .flr_flags = IPV6_FL_F_CREATE,
                                      .flr_expires = 30,
                                      .flr_linger = 30};
    (void)state;
    needs_root();
    make(&ns);
    memcpy(&label.flr_dst, "secret from A!!N", 16);
    int fd = socket_inside(&ns, AF_INET6, SOCK_DGRAM);
    if (setsockopt(fd, IPPROTO_IPV6, IPV6_FLOWLABEL_MGR, &label, sizeof label) < 0) {
        print_message("# skipped: no flow labels here: %s\n", strerror(errno));
        skip();
    }
    (void)close(fd);
    (void)usleep(200000); /* netlink and UDP sockets are counted for a moment */
    assert_false(cordon_slotns_clean(&ns));
    cordon_slotns_done(&ns);
}

static void two_are_two(void **state)
{
    struct cordon_slotns a = CORDON_SLOTNS_NONE, b = CORDON_SLOTNS_NONE;
    struct stat one, two;
    (void)state;
    needs_root();
    make(&a);
    make(&b);
    assert_true(fstat(a.net, &one) == 0 && fstat(b.net, &two) == 0);
    assert_true(one.st_ino != two.st_ino);
    cordon_slotns_done(&a);
    cordon_slotns_done(&b);
}

static void bad_ids_are_an_error(void **state)
{
    const struct cordon_slotns_ids bad = {.owner = OWNER, .base = UINT32_MAX - 10, .count = 65536};
    struct cordon_slotns ns = CORDON_SLOTNS_NONE;
    struct cordon_error err = {0};
    (void)state;
    needs_root();
    assert_true(cordon_slotns_make(&bad, &ns, &err) < 0);
    assert_non_null(strstr(err.message, "uid map"));
    assert_int_equal(ns.user, -1);
}

static void a_failure_travels(void **state)
{
    int pair[2];
    struct cordon_slotns ns = CORDON_SLOTNS_NONE;
    struct cordon_error err = {0}, failed = {0};
    (void)state;
    assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair), 0);
    assert_true(cordon_slotns_receive(pair[0], &ns, &err) < 0); /* nothing there: no wait */
    (void)cordon_fail(&failed, -ENOSPC, CORDON_ERROR_UNAVAILABLE, "no more namespaces");
    assert_int_equal(cordon_slotns_send(pair[1], NULL, &failed), 0);
    assert_int_equal(cordon_slotns_receive(pair[0], &ns, &err), -ENOSPC);
    assert_string_equal(err.message, "no more namespaces");
    assert_int_equal(send(pair[1], "short", 5, 0), 5);
    assert_true(cordon_slotns_receive(pair[0], &ns, &err) < 0);
    (void)close(pair[0]);
    (void)close(pair[1]);
}

static bool is_unpaced(int sock)
{
    char name[16] = "";
    socklen_t size = sizeof name;
    return getsockopt(sock, IPPROTO_TCP, TCP_CONGESTION, name, &size) == 0 && strcmp(name, "reno") == 0;
}

/* A connection to an address of the internet comes to the listener. 0, or which check failed. */
static int connect_to(const struct sockaddr *to, socklen_t size, int listener)
{
    if (!is_unpaced(listener))
        return 3;
    int guest = socket(to->sa_family, SOCK_STREAM, 0), ours = -1;
    if (guest < 0 || connect(guest, to, size) < 0)
        return 4;
    for (int i = 0; i < 2000 && ours < 0; i++) {
        ours = accept(listener, NULL, NULL);
        if (ours < 0)
            (void)usleep(10000);
    }
    if (ours < 0)
        return 5;
    return !is_unpaced(guest) ? 6 : !is_unpaced(ours) ? 7 : 0;
}

static int steer_inside(const struct cordon_slotns *ns)
{
    const struct sockaddr_in v4 = {.sin_family = AF_INET, .sin_port = htons(443), .sin_addr.s_addr = htonl(0x08080808)};
    const struct sockaddr_in6 v6 = {
        .sin6_family = AF_INET6, .sin6_port = htons(443), .sin6_addr.s6_addr = {0x20, 1, 0x48, 0x60, [15] = 1}};
    int sockets[CORDON_STEER_SOCKETS];
    if (setns(ns->user, CLONE_NEWUSER) < 0 || setns(ns->net, CLONE_NEWNET) < 0)
        return 1;
    if (cordon_steer_open(sockets) < 0)
        return 2;
    int r = connect_to((const struct sockaddr *)&v4, sizeof v4, sockets[CORDON_STEER_TCP4]);
    if (r == 0 && sockets[CORDON_STEER_TCP6] >= 0)
        r = connect_to((const struct sockaddr *)&v6, sizeof v6, sockets[CORDON_STEER_TCP6]);
    return r;
}

/* What the host's kernel does by default may wait for timers, with nothing to wait for. */
static void steered_connections_are_not_paced(void **state)
{
    struct cordon_slotns ns = CORDON_SLOTNS_NONE;
    int status = -1;
    (void)state;
    needs_root();
    make(&ns);
    pid_t pid = fork();
    if (pid == 0)
        _exit(steer_inside(&ns));
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_int_equal(status, 0);
    cordon_slotns_done(&ns);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(fresh_one_is_clean),
        cmocka_unit_test(a_socket_makes_it_unfit_while_open),
        cmocka_unit_test(traffic_makes_it_unfit_for_good),
        cmocka_unit_test(a_flow_label_makes_it_unfit),
        cmocka_unit_test(two_are_two),
        cmocka_unit_test(bad_ids_are_an_error),
        cmocka_unit_test(a_failure_travels),
        cmocka_unit_test(steered_connections_are_not_paced),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
