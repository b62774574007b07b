/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Sessions with the egress process. Each keeps copies of its guest's sockets and its policy, so that it can be opened
 * again with a new egress process, at the next call on it or when the new one comes. A call is one request and one
 * answer; a process that does not answer in time is as good as none.
 */
#include "guest/egress.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/error.h"
#include "base/fd.h"
#include "base/log.h"

#define ANSWER_US 10000000u
#define TELL_US 500000u
#define COME_BACK_US 3000000u /* how long a process that died is waited for, or one that does not read */
#define PAUSE_MS 20

struct cordon_egress_session {
    pthread_mutex_t lock;
    int end;     /* of the session; -1: lost */
    int touched; /* eventfd: readable once egress has taken anything out of the sockets */
    int sockets[CORDON_EGRESS_SOCKETS];
    char guest[32];
    struct cordon_buf policy; /* as text */
    struct cordon_egress_session *previous, *next;
};

static struct {
    pthread_mutex_t lock; /* taken before a session's, never within */
    int fd;
    unsigned generation; /* of the process behind it */
    struct cordon_egress_session *sessions;
} egress = {.lock = PTHREAD_MUTEX_INITIALIZER, .fd = -1};

/* --- the process --- */

static int dup_egress(void)
{
    (void)pthread_mutex_lock(&egress.lock); /* can't fail for a plain mutex */
    int fd = egress.fd >= 0 ? fcntl(egress.fd, F_DUPFD_CLOEXEC, 0) : -1;
    int error = egress.fd >= 0 ? -errno : -ENOTCONN;
    (void)pthread_mutex_unlock(&egress.lock);
    return fd >= 0 ? fd : error;
}

static int none(struct cordon_error *err)
{
    return cordon_fail(err, -ENOTCONN, CORDON_ERROR_UNAVAILABLE,
                       "there is no egress process now, through which alone guests reach the network");
}

int cordon_egress_there(struct cordon_error *err)
{
    cordon_autoclose int fd = dup_egress();
    struct pollfd gone = {.fd = fd, .events = POLLRDHUP};
    return fd < 0 || poll(&gone, 1, 0) != 0 ? none(err) : 0;
}

/* --- one request and its answer --- */

static int wait_for(int fd, short events, uint64_t until)
{
    for (;;) {
        uint64_t now = cordon_now_us();
        struct pollfd wait = {.fd = fd, .events = events};
        if (now >= until)
            return -ETIMEDOUT;
        int n = poll(&wait, 1, (int)((until - now) / 1000 + 1));
        if (n < 0 && errno != EINTR)
            return -errno;
        if (n > 0)
            return 0;
    }
}

/* Locks are held meanwhile: a process that does not read must not stop whoever else wants them. */
static int send_until(int fd, const struct cordon_buf *message, const int *fds, size_t nfds, uint64_t until)
{
    for (;;) {
        ssize_t n = cordon_send_fds(fd, message->data, message->size, fds, nfds, MSG_DONTWAIT);
        if (n >= 0)
            return 0;
        int r = n == -EAGAIN ? wait_for(fd, POLLOUT, until) : (int)n;
        if (r < 0)
            return r;
    }
}

/* An answer that came too late for the one who asked is passed over. */
static int receive(int fd, enum cordon_egress_request kind, uint64_t until, struct cordon_egress_answer *ret,
                   struct cordon_buf *more)
{
    cordon_autofree char *text = malloc(CORDON_EGRESS_TEXT_MAX);
    if (!text)
        return -ENOMEM;
    do {
        int r = wait_for(fd, POLLIN, until);
        ssize_t n = r < 0 ? r : cordon_recv_fds(fd, text, CORDON_EGRESS_TEXT_MAX, NULL, NULL, MSG_DONTWAIT);
        if (n < 0)
            return (int)n;
        if (n < (ssize_t)sizeof *ret)
            return -ECONNRESET;
        memcpy(ret, text, sizeof *ret);
        if (more && ret->kind == kind && cordon_buf_append(more, text + sizeof *ret, (size_t)n - sizeof *ret) < 0)
            return -ENOMEM;
    } while (ret->kind != (uint32_t)kind);
    ret->why[sizeof ret->why - 1] = ret->counts.first_refused[sizeof ret->counts.first_refused - 1] = '\0';
    return 0;
}

static int ask(int fd, enum cordon_egress_request kind, const struct cordon_buf *text, uint64_t wait_us,
               struct cordon_egress_answer *ret, struct cordon_buf *more)
{
    struct cordon_buf message = CORDON_BUF_INIT(CORDON_EGRESS_TEXT_MAX);
    uint64_t until = cordon_now_us() + wait_us;
    char byte = (char)kind;
    (void)cordon_buf_append(&message, &byte, 1); /* failures are sticky */
    if (text)
        (void)cordon_buf_append(&message, text->data, text->size);
    int r = message.failed ? -EMSGSIZE : send_until(fd, &message, NULL, 0, until);
    cordon_buf_wipe(&message);
    return r < 0 ? r : receive(fd, kind, until, ret, more);
}

static int set_policy(int fd, const struct cordon_buf *text, struct cordon_error *err)
{
    struct cordon_egress_answer answer;
    int r = ask(fd, CORDON_EGRESS_SET, text, ANSWER_US, &answer, NULL);
    if (r < 0)
        return cordon_fail(err, r, CORDON_ERROR_UNAVAILABLE, "the egress process did not take the guest's rules: %s",
                           strerror(-r));
    if (answer.status < 0)
        return cordon_fail(err, answer.status, CORDON_ERROR_INVALID, "the guest's rules were refused: %s", answer.why);
    return 0;
}

/* --- sessions --- */

/* Says OPEN, which is not answered: a guest's connection that comes before it waits in its socket. With the session's
 * lock held, or before anybody else knows it. */
static int open_end(struct cordon_egress_session *session, int process, uint64_t until, struct cordon_error *err)
{
    struct cordon_egress_open open = {.version = CORDON_EGRESS_VERSION};
    struct cordon_buf message = CORDON_BUF_INIT(sizeof open + CORDON_EGRESS_TEXT_MAX);
    int pair[2], fds[CORDON_EGRESS_OPEN_FDS];
    size_t count = 2;
    if (process < 0)
        return none(err);
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) < 0)
        return cordon_fail_errno(err, -errno, "open a guest's network");
    (void)snprintf(open.guest, sizeof open.guest, "%s", session->guest);
    fds[0] = pair[1];
    fds[1] = session->touched;
    for (size_t i = 0; i < CORDON_EGRESS_SOCKETS; i++) {
        if (session->sockets[i] < 0)
            continue;
        fds[count++] = session->sockets[i];
        open.sockets |= 1u << i;
    }
    (void)cordon_buf_append(&message, (const char *)&open, sizeof open); /* failures are sticky */
    (void)cordon_buf_append(&message, session->policy.data, session->policy.size);
    int n = message.failed ? -ENOMEM : send_until(process, &message, fds, count, until);
    cordon_buf_wipe(&message);
    (void)close(pair[1]); /* the other side's */
    if (n < 0) {
        (void)close(pair[0]); /* of no use */
        return none(err);
    }
    session->end = pair[0];
    return 0;
}

static bool is_lost(const struct cordon_egress_session *session)
{
    struct pollfd gone = {.fd = session->end, .events = POLLRDHUP};
    return session->end < 0 || poll(&gone, 1, 0) > 0;
}

/* A process that died comes back soon. */
static int ensure(struct cordon_egress_session *session, uint64_t wait_us, struct cordon_error *err)
{
    uint64_t until = cordon_now_us() + wait_us;
    if (!is_lost(session))
        return 0;
    cordon_close(&session->end);
    for (;;) {
        cordon_autoclose int process = dup_egress();
        int r = open_end(session, process, until, err);
        if (r == 0 || r == -EINVAL || cordon_now_us() >= until)
            return r;
        (void)poll(NULL, 0, PAUSE_MS); /* a pause */
    }
}

static unsigned generation(void)
{
    (void)pthread_mutex_lock(&egress.lock); /* can't fail for a plain mutex */
    unsigned now = egress.generation;
    (void)pthread_mutex_unlock(&egress.lock);
    return now;
}

/* False: the process that it was opened with has been replaced meanwhile. */
static bool link_session(struct cordon_egress_session *session, unsigned opened_with)
{
    (void)pthread_mutex_lock(&egress.lock); /* can't fail for a plain mutex */
    bool same = egress.generation == opened_with;
    if (same) {
        session->next = egress.sessions;
        if (session->next)
            session->next->previous = session;
        egress.sessions = session;
    }
    (void)pthread_mutex_unlock(&egress.lock);
    return same;
}

/* Opens it and enters it into the list, from where it follows a new process by itself. */
static int begin_session(struct cordon_egress_session *session, struct cordon_error *err)
{
    for (;;) {
        unsigned opened_with = generation();
        int r = ensure(session, COME_BACK_US, err);
        if (r < 0 || link_session(session, opened_with))
            return r;
        cordon_close(&session->end);
    }
}

static void unlink_session(struct cordon_egress_session *session)
{
    (void)pthread_mutex_lock(&egress.lock); /* can't fail for a plain mutex */
    if (session->previous)
        session->previous->next = session->next;
    else if (egress.sessions == session)
        egress.sessions = session->next;
    if (session->next)
        session->next->previous = session->previous;
    (void)pthread_mutex_unlock(&egress.lock);
}

static void free_session(struct cordon_egress_session *session)
{
    cordon_close(&session->end);
    cordon_close(&session->touched);
    for (size_t i = 0; i < CORDON_EGRESS_SOCKETS; i++)
        cordon_close(&session->sockets[i]);
    cordon_buf_wipe(&session->policy);
    (void)pthread_mutex_destroy(&session->lock); /* nobody holds it */
    free(session);
}

int cordon_egress_open(const char *guest, int sockets[CORDON_EGRESS_SOCKETS], const struct cordon_egress_policy *policy,
                       struct cordon_egress_session **ret, struct cordon_error *err)
{
    struct cordon_egress_session *session = calloc(1, sizeof *session);
    for (size_t i = 0; i < CORDON_EGRESS_SOCKETS; i++) {
        int fd = CORDON_TAKE_FD(sockets[i]);
        if (session)
            session->sockets[i] = fd;
        else
            cordon_close(&fd);
    }
    if (!session)
        return cordon_fail_errno(err, -ENOMEM, "open a guest's network");
    session->end = -1;
    session->touched = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    int r = session->touched < 0 ? -errno : 0;
    session->policy = CORDON_BUF_INIT(CORDON_EGRESS_TEXT_MAX - 1);
    (void)pthread_mutex_init(&session->lock, NULL); /* can't fail with these arguments */
    (void)snprintf(session->guest, sizeof session->guest, "%.31s", guest);
    if (r < 0)
        (void)cordon_fail_errno(err, r, "open a guest's network");
    else if ((r = cordon_egress_policy_write(policy, true, &session->policy)) < 0)
        (void)cordon_fail(err, r, CORDON_ERROR_TOO_LARGE, "the guest's egress rules are too long");
    else
        r = begin_session(session, err);
    if (r < 0) {
        free_session(session);
        return r;
    }
    *ret = session;
    return 0;
}

int cordon_egress_update(struct cordon_egress_session *session, const struct cordon_egress_policy *policy,
                         struct cordon_error *err)
{
    struct cordon_buf text = CORDON_BUF_INIT(CORDON_EGRESS_TEXT_MAX - 1);
    int r = cordon_egress_policy_write(policy, true, &text);
    if (r < 0) {
        cordon_buf_wipe(&text);
        return cordon_fail(err, r, CORDON_ERROR_TOO_LARGE, "the guest's egress rules are too long");
    }
    (void)pthread_mutex_lock(&session->lock); /* can't fail for a plain mutex */
    r = ensure(session, COME_BACK_US, err);
    if (r == 0)
        r = set_policy(session->end, &text, err);
    if (r == 0) {
        struct cordon_buf old = session->policy;
        session->policy = text;
        text = old;
    }
    (void)pthread_mutex_unlock(&session->lock);
    cordon_buf_wipe(&text);
    return r;
}

/* Nothing waits in the guest's sockets, and nothing was ever taken out of them: looked at in this order. A busy host
 * lets an answer wait, and most runs that may use the network don't. */
static bool said_nothing(const struct cordon_egress_session *session)
{
    struct pollfd looks[CORDON_EGRESS_SOCKETS + 1];
    for (size_t i = 0; i < CORDON_EGRESS_SOCKETS; i++)
        looks[i] = (struct pollfd){.fd = session->sockets[i], .events = POLLIN}; /* -1 is passed over */
    looks[CORDON_EGRESS_SOCKETS] = (struct pollfd){.fd = session->touched, .events = POLLIN};
    return poll(looks, CORDON_EGRESS_SOCKETS + 1, 0) == 0;
}

int cordon_egress_read(struct cordon_egress_session *session, struct cordon_egress_counts *ret, struct cordon_buf *log)
{
    struct cordon_egress_answer answer = {0};
    struct cordon_buf text = CORDON_BUF_INIT(CORDON_EGRESS_TEXT_MAX);
    *ret = (struct cordon_egress_counts){0};
    if (said_nothing(session))
        return cordon_buf_append(log, "[]", 2);
    (void)pthread_mutex_lock(&session->lock); /* can't fail for a plain mutex */
    int r = session->end >= 0 ? ask(session->end, CORDON_EGRESS_TELL, NULL, TELL_US, &answer, &text) : -ENOTCONN;
    (void)pthread_mutex_unlock(&session->lock);
    if (r == 0)
        *ret = answer.counts;
    bool good = r == 0 && answer.status == 0 && text.size >= 2;
    r = cordon_buf_append(log, good ? text.data : "[]", good ? text.size : 2);
    cordon_buf_done(&text);
    return r;
}

void cordon_egress_close(struct cordon_egress_session *session)
{
    if (!session)
        return;
    unlink_session(session);
    free_session(session);
}

/* What guests connect to waits in their sockets' queues meanwhile. A session that is at a call now opens itself. With
 * the list's lock held, so that none is freed under us. */
static void open_again(void)
{
    struct cordon_error err = {0};
    uint64_t until = cordon_now_us() + COME_BACK_US; /* for all together */
    for (struct cordon_egress_session *session = egress.sessions; session; session = session->next) {
        if (pthread_mutex_trylock(&session->lock) != 0)
            continue;
        cordon_close(&session->end);
        if (open_end(session, egress.fd, until, &err) < 0)
            cordon_log_error("a guest has no network until its rules are set again", &err);
        (void)pthread_mutex_unlock(&session->lock);
    }
}

int cordon_egress_set(int fd_take, struct cordon_error *err)
{
    if (fd_take < 0)
        return none(err);
    (void)pthread_mutex_lock(&egress.lock); /* can't fail for a plain mutex */
    cordon_close(&egress.fd);
    egress.fd = fd_take;
    egress.generation++;
    open_again();
    (void)pthread_mutex_unlock(&egress.lock);
    return 0;
}
