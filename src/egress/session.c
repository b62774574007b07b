/* SPDX-License-Identifier: Apache-2.0 */
/* A guest's session: its sockets, what the gateway asks, its policy and its end. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/fd.h"
#include "base/log.h"
#include "egress/egress.h"

#define ACCEPTS_A_TURN 64
#define ASK_RATE 200.0 /* DNS questions a second, over time */
#define ASK_BURST 400.0

bool cordon_egress_guest_may_ask(struct cordon_session *session, double cost)
{
    uint64_t now = cordon_now_us();
    session->tokens += (double)(now - session->tokens_us) * (ASK_RATE / 1e6);
    session->tokens_us = now;
    if (session->tokens > ASK_BURST)
        session->tokens = ASK_BURST;
    if (session->tokens < cost)
        return false;
    session->tokens -= cost;
    return true;
}

/* --- what the gateway asks --- */

static void answer(struct cordon_session *session, struct cordon_egress_answer *answer, const char *more, size_t size)
{
    cordon_autofree char *message = malloc(sizeof *answer + size);
    answer->counts = session->log.counts;
    answer->counts.open = session->connection_count;
    if (!message) {
        cordon_log(CORDON_LOG_ERROR, "no memory for an answer", NULL);
        return;
    }
    memcpy(message, answer, sizeof *answer);
    if (size)
        memcpy(message + sizeof *answer, more, size);
    /* A gateway that does not read its answers gets none. */
    (void)cordon_send_fds(session->control.fd, message, sizeof *answer + size, NULL, 0, MSG_DONTWAIT);
}

static void judge_all_again(struct cordon_session *session)
{
    for (struct cordon_connection *connection = session->connections, *next; connection; connection = next) {
        next = connection->next;
        (void)cordon_connection_judge_again(connection); /* one that was cut is gone, which is all */
    }
}

static void set_policy(struct cordon_session *session, const char *text, size_t size)
{
    struct cordon_egress_answer said = {.kind = CORDON_EGRESS_SET};
    struct cordon_egress_policy policy;
    struct cordon_error err = {0};
    said.status = cordon_egress_policy_read(text, size, &policy, &err);
    if (said.status == 0) {
        cordon_egress_policy_done(&session->policy);
        session->policy = policy;
        judge_all_again(session);
    } else {
        (void)snprintf(said.why, sizeof said.why, "%.150s", err.message);
    }
    answer(session, &said, NULL, 0);
}

static void tell_log(struct cordon_session *session)
{
    struct cordon_egress_answer said = {.kind = CORDON_EGRESS_TELL};
    struct cordon_buf text = CORDON_BUF_INIT(CORDON_EGRESS_TEXT_MAX - sizeof said);
    struct cordon_json json = {.buf = &text};
    for (struct cordon_connection *connection = session->connections; connection; connection = connection->next)
        cordon_connection_log(connection, "");
    cordon_egress_log_write(&session->log, &json);
    if (text.failed)
        said.status = -EMSGSIZE;
    answer(session, &said, text.failed ? NULL : text.data, text.failed ? 0 : text.size);
    cordon_buf_done(&text);
}

/* False: the session is over. */
static bool take_request(struct cordon_session *session, char *text, size_t room)
{
    ssize_t n = cordon_recv_fds(session->control.fd, text, room, NULL, NULL, MSG_DONTWAIT);
    if (n == -EAGAIN)
        return true;
    bool good = n > 0;
    if (good && *text == CORDON_EGRESS_SET)
        set_policy(session, text + 1, (size_t)n - 1);
    else if (good && *text == CORDON_EGRESS_TELL)
        tell_log(session);
    else
        good = false;
    if (n > 0)
        explicit_bzero(text, (size_t)n); /* a policy may hold secrets */
    return good;
}

static void on_control(struct cordon_source *source, uint32_t events)
{
    struct cordon_session *session = CORDON_OWNER(struct cordon_session, control, source);
    static char text[CORDON_EGRESS_TEXT_MAX + 1];
    if (!take_request(session, text, sizeof text))
        cordon_egress_guest_close(session);
}

/* --- its sockets --- */

/* Before anything is taken out of a socket: whoever finds the sockets empty then finds this. */
static void touch(struct cordon_session *session)
{
    static const uint64_t one = 1;
    if (session->touched < 0)
        return;
    if (write(session->touched, &one, sizeof one) != sizeof one)
        cordon_log(CORDON_LOG_ERROR, "a guest's use of the network may not be told", "guest", session->guest, NULL);
    cordon_close(&session->touched);
}

static void on_listener(struct cordon_source *source, uint32_t events)
{
    struct cordon_session_socket *sock = CORDON_OWNER(struct cordon_session_socket, source, source);
    touch(sock->session);
    for (int i = 0; i < ACCEPTS_A_TURN; i++) {
        int fd = accept4(source->fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
        if (fd < 0)
            return; /* none left; or no descriptor: connections_in_all_max keeps some spare, so that one comes */
        cordon_connection_accept(sock->session, fd);
    }
}

static void on_datagram(struct cordon_source *source, uint32_t events)
{
    struct cordon_session_socket *sock = CORDON_OWNER(struct cordon_session_socket, source, source);
    touch(sock->session);
    cordon_answer_udp(sock->session, sock->which);
}

/* What the gateway passes must be what it says: an accept from, or a question on, another kind of socket makes no
 * sense, and one of the host's would be served to the wrong ones. */
static bool is_socket(int fd, enum cordon_egress_socket which)
{
    int domain = 0, type = 0, listening = 0;
    socklen_t size = sizeof domain;
    bool six = which >= CORDON_EGRESS_TCP6;
    bool datagram = which == CORDON_EGRESS_UDP4 || which == CORDON_EGRESS_UDP6;
    if (getsockopt(fd, SOL_SOCKET, SO_DOMAIN, &domain, &size) < 0 || domain != (six ? AF_INET6 : AF_INET))
        return false;
    if (getsockopt(fd, SOL_SOCKET, SO_TYPE, &type, &size) < 0 || type != (datagram ? SOCK_DGRAM : SOCK_STREAM))
        return false;
    return datagram || (getsockopt(fd, SOL_SOCKET, SO_ACCEPTCONN, &listening, &size) == 0 && listening);
}

static int watch_sockets(struct cordon_session *session, int sockets[CORDON_EGRESS_SOCKETS])
{
    int r = 0;
    for (size_t i = 0; i < CORDON_EGRESS_SOCKETS && r == 0; i++) {
        struct cordon_session_socket *sock = &session->sockets[i];
        bool datagram = i == CORDON_EGRESS_UDP4 || i == CORDON_EGRESS_UDP6;
        if (sockets[i] < 0)
            continue;
        if (!is_socket(sockets[i], sock->which))
            return -ENOTSOCK;
        sock->source.on_event = datagram ? on_datagram : on_listener;
        r = cordon_source_watch(&session->egress->loop, &sock->source, CORDON_TAKE_FD(sockets[i]), EPOLLIN);
    }
    return r;
}

static struct cordon_session *new_session(struct cordon_egress *egress, const struct cordon_egress_open *open)
{
    struct cordon_session *session = calloc(1, sizeof *session);
    if (!session || cordon_egress_log_init(&session->log, egress->log_entries) < 0) {
        free(session);
        return NULL;
    }
    session->egress = egress;
    session->policy = CORDON_EGRESS_POLICY_OFF;
    session->names.egress = egress;
    session->tokens = ASK_BURST;
    session->tokens_us = cordon_now_us();
    session->control = (struct cordon_source){.fd = -1, .on_event = on_control};
    (void)snprintf(session->guest, sizeof session->guest, "%.31s", open->guest);
    for (size_t i = 0; i < CORDON_EGRESS_SOCKETS; i++)
        session->sockets[i] =
            (struct cordon_session_socket){.source.fd = -1, .session = session, .which = (enum cordon_egress_socket)i};
    session->next = egress->sessions;
    if (session->next)
        session->next->previous = session;
    egress->sessions = session;
    egress->session_count++;
    return session;
}

int cordon_egress_guest_open(struct cordon_egress *egress, const struct cordon_egress_open *open, const char *policy,
                             size_t policy_size, int end_take, int touched_take,
                             int sockets_take[CORDON_EGRESS_SOCKETS])
{
    struct cordon_session *session = new_session(egress, open);
    if (session)
        session->touched = touched_take;
    else
        cordon_close(&touched_take);
    int r = session ? cordon_egress_policy_read(policy, policy_size, &session->policy, NULL) : -ENOMEM;
    if (r == 0)
        r = watch_sockets(session, sockets_take);
    for (size_t i = 0; i < CORDON_EGRESS_SOCKETS; i++)
        cordon_close(&sockets_take[i]);
    if (r == 0)
        r = cordon_source_watch(&egress->loop, &session->control, end_take, EPOLLIN);
    else
        cordon_close(&end_take);
    if (r < 0 && session)
        cordon_egress_guest_close(session);
    return r;
}

void cordon_egress_guest_close(struct cordon_session *session)
{
    struct cordon_egress *egress = session->egress;
    cordon_source_close(&egress->loop, &session->control);
    cordon_close(&session->touched);
    for (size_t i = 0; i < CORDON_EGRESS_SOCKETS; i++)
        cordon_source_close(&egress->loop, &session->sockets[i].source);
    while (session->jobs)
        cordon_job_drop(session->jobs);
    while (session->connections)
        cordon_connection_cut(session->connections, false, NULL, "the guest ended");
    cordon_names_done(&session->names);
    cordon_egress_log_done(&session->log);
    cordon_egress_policy_done(&session->policy);
    if (session->previous)
        session->previous->next = session->next;
    else
        egress->sessions = session->next;
    if (session->next)
        session->next->previous = session->previous;
    egress->session_count--;
    free(session);
}
