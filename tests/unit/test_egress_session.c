/* SPDX-License-Identifier: Apache-2.0 */
/* guest/egress: an egress process that reads nothing, or answers nothing, is as good as none, and stops nobody. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/error.h"
#include "base/fd.h"
#include "guest/egress.h"

#define HANGS_S 60 /* then the test is killed */
#define SESSIONS 8 /* whose policies are more than a socket holds */
#define RULES 400
#define NAME                                                                                                           \
    "a123456789b123456789c123456789d123456789e123456789-%04d.a123456789b123456789c123456789d123456789."                \
    "a123456789b123456789c123456789d123456789e123456789f123456789.test"

static struct cordon_egress_policy policy;
static struct cordon_egress_session *sessions[SESSIONS];

/* A process, as far as a gateway sees one: the end that it would read. */
static int new_process(void)
{
    int pair[2];
    struct cordon_error err = {0};
    assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair), 0);
    assert_int_equal(cordon_egress_set(pair[0], &err), 0);
    return pair[1];
}

static int open_one(size_t i, struct cordon_error *err)
{
    int sockets[CORDON_EGRESS_SOCKETS];
    for (size_t k = 0; k < CORDON_EGRESS_SOCKETS; k++)
        sockets[k] = -1;
    return cordon_egress_open("guest", sockets, &policy, &sessions[i], err);
}

static int make_policy(void **state)
{
    char name[256];
    (void)state;
    policy = CORDON_EGRESS_POLICY_OFF;
    for (int i = 0; i < RULES; i++) {
        (void)snprintf(name, sizeof name, NAME, i);
        if (cordon_egress_policy_add(&policy, name, NULL) < 0)
            return -1;
    }
    (void)alarm(HANGS_S);
    return 0;
}

static int close_all(void **state)
{
    (void)state;
    (void)alarm(0);
    for (size_t i = 0; i < SESSIONS; i++) {
        cordon_egress_close(sessions[i]);
        sessions[i] = NULL;
    }
    cordon_egress_policy_done(&policy);
    return 0;
}

static void one_that_reads_nothing_fails_an_open(void **state)
{
    struct cordon_error err = {0};
    size_t i = 0;
    (void)state;
    int process = new_process();
    while (i < SESSIONS && open_one(i, &err) == 0)
        i++;
    assert_in_range(i, 1, SESSIONS - 1);
    assert_int_equal(err.kind, CORDON_ERROR_UNAVAILABLE);
    (void)close(process);
}

/* The sessions of the old one are opened with it, while the list of all is locked. */
static void a_new_one_that_reads_nothing_is_taken(void **state)
{
    struct cordon_error err = {0};
    static char message[CORDON_EGRESS_TEXT_MAX * 2];
    int fds[CORDON_EGRESS_OPEN_FDS];
    (void)state;
    int old = new_process();
    for (size_t i = 0; i < SESSIONS; i++) {
        size_t nfds = CORDON_EGRESS_OPEN_FDS;
        assert_int_equal(open_one(i, &err), 0);
        assert_true(cordon_recv_fds(old, message, sizeof message, fds, &nfds, 0) > 0);
        for (size_t k = 0; k < nfds; k++)
            (void)close(fds[k]);
    }
    (void)close(old);
    int next = new_process();
    assert_int_equal(cordon_egress_there(&err), 0);
    (void)close(next);
}

static void one_that_answers_nothing_tells_nothing(void **state)
{
    struct cordon_error err = {0};
    static char message[CORDON_EGRESS_TEXT_MAX * 2];
    int fds[CORDON_EGRESS_OPEN_FDS];
    size_t nfds = CORDON_EGRESS_OPEN_FDS;
    static const uint64_t one = 1;
    struct cordon_egress_counts counts;
    struct cordon_buf log = CORDON_BUF_INIT(64);
    (void)state;
    int process = new_process();
    assert_int_equal(open_one(0, &err), 0);
    assert_true(cordon_recv_fds(process, message, sizeof message, fds, &nfds, 0) > 0);
    assert_int_equal(nfds, 2); /* the session, and what tells that the guest did something */
    assert_int_equal(write(fds[1], &one, sizeof one), sizeof one);
    assert_int_equal(cordon_egress_read(sessions[0], &counts, &log), 0);
    assert_int_equal(log.size, 2);
    assert_memory_equal(log.data, "[]", 2);
    cordon_buf_done(&log);
    (void)close(fds[0]);
    (void)close(fds[1]);
    (void)close(process);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(one_that_reads_nothing_fails_an_open, make_policy, close_all),
        cmocka_unit_test_setup_teardown(a_new_one_that_reads_nothing_is_taken, make_policy, close_all),
        cmocka_unit_test_setup_teardown(one_that_answers_nothing_tells_nothing, make_policy, close_all),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
