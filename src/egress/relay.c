/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Moving bytes. By splice(2), through a pipe that a direction has only while something is in it, so that an idle
 * connection holds no memory; what was read before the decision is written first. Events are edge-triggered: after each
 * one both directions move until a socket would block, or until their share of a turn is used up, for which the events
 * are set again and come at once.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/fd.h"
#include "egress/egress.h"

#define PIPE_SIZE (256 << 10)
#define ROUNDS_A_TURN 8
#define IDLE_PIPES 64u

/* --- pipes --- */

static struct cordon_pipe *take_pipe(struct cordon_egress *egress)
{
    struct cordon_pipe *pipe = egress->pipes;
    if (pipe) {
        egress->pipes = pipe->next;
        egress->pipe_count--;
        return pipe;
    }
    pipe = malloc(sizeof *pipe);
    if (pipe && pipe2(pipe->ends, O_CLOEXEC | O_NONBLOCK) < 0) {
        free(pipe);
        return NULL;
    }
    if (pipe)
        (void)fcntl(pipe->ends[1], F_SETPIPE_SZ, PIPE_SIZE); /* beyond a user's share of pages it stays at 64 KiB */
    return pipe;
}

static void give_pipe(struct cordon_egress *egress, struct cordon_pipe *pipe, bool empty)
{
    if (empty && egress->pipe_count < IDLE_PIPES) {
        pipe->next = egress->pipes;
        egress->pipes = pipe;
        egress->pipe_count++;
        return;
    }
    cordon_close(&pipe->ends[0]);
    cordon_close(&pipe->ends[1]);
    free(pipe);
}

void cordon_flow_done(struct cordon_egress *egress, struct cordon_flow *flow)
{
    if (flow->pipe)
        give_pipe(egress, CORDON_TAKE(flow->pipe), flow->held == 0);
}

/* --- one direction --- */

enum moved { MOVED_ALL, MOVED_SHARE, MOVED_BLOCKED, MOVED_BROKEN };

static enum moved drain(struct cordon_flow *flow, int to, uint64_t *count)
{
    while (flow->held) {
        ssize_t n = splice(flow->pipe->ends[0], NULL, to, NULL, flow->held, SPLICE_F_NONBLOCK | SPLICE_F_MOVE);
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            return n < 0 && errno == EAGAIN ? MOVED_BLOCKED : MOVED_BROKEN;
        flow->held -= (size_t)n;
        flow->bytes += (uint64_t)n;
        *count += (uint64_t)n;
    }
    return MOVED_ALL;
}

/* MOVED_ALL: nothing more is there now, or it is at its end. */
static enum moved fill(struct cordon_egress *egress, struct cordon_flow *flow, int from, int to)
{
    if (!flow->pipe && !(flow->pipe = take_pipe(egress)))
        return MOVED_BROKEN;
    ssize_t n;
    do
        n = splice(from, NULL, flow->pipe->ends[1], NULL, PIPE_SIZE, SPLICE_F_NONBLOCK | SPLICE_F_MOVE);
    while (n < 0 && errno == EINTR);
    if (n < 0)
        return errno == EAGAIN ? MOVED_ALL : MOVED_BROKEN;
    if (n == 0) {
        flow->ended = true;
        (void)shutdown(to, SHUT_WR); /* one that is gone is noticed by its own event */
        return MOVED_ALL;
    }
    flow->held = (size_t)n;
    return MOVED_SHARE;
}

static enum moved move(struct cordon_egress *egress, struct cordon_flow *flow, int from, int to, uint64_t *count)
{
    enum moved r = MOVED_SHARE;
    for (int round = 0; round < ROUNDS_A_TURN && r == MOVED_SHARE; round++) {
        r = drain(flow, to, count);
        if (r == MOVED_ALL)
            r = flow->ended ? MOVED_ALL : fill(egress, flow, from, to);
    }
    if (r == MOVED_SHARE && flow->held) {
        enum moved drained = drain(flow, to, count);
        r = drained == MOVED_ALL ? MOVED_SHARE : drained;
    }
    if (!flow->held)
        cordon_flow_done(egress, flow);
    return r;
}

/* --- both --- */

/* What was read to be judged, or put in its place. */
static enum moved send_out(struct cordon_connection *connection)
{
    struct cordon_buf *out = &connection->out;
    while (connection->out_at < out->size) {
        ssize_t n = send(connection->server.fd, out->data + connection->out_at, out->size - connection->out_at,
                         MSG_DONTWAIT | MSG_NOSIGNAL);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return errno == EAGAIN ? MOVED_BLOCKED : MOVED_BROKEN;
        connection->out_at += (size_t)n;
        connection->up.bytes += (size_t)n;
        connection->session->log.counts.sent += (size_t)n;
    }
    cordon_buf_wipe(out);
    connection->out_at = 0;
    return MOVED_ALL;
}

/* Has the server agreed to the upgrade? Its answer is looked at where it lies. MOVED_BLOCKED: not known yet. */
static enum moved see_101(struct cordon_connection *connection)
{
    static const char agreed[] = "HTTP/1.1 101 ";
    char start[sizeof agreed - 1];
    ssize_t n = recv(connection->server.fd, start, sizeof start, MSG_PEEK | MSG_DONTWAIT);
    if (n < 0 && (errno == EAGAIN || errno == EINTR))
        return MOVED_BLOCKED;
    if (n > 0 && memcmp(start, agreed, (size_t)n) == 0 && (size_t)n < sizeof start)
        return MOVED_BLOCKED;
    connection->waits_for_101 = false;
    if (n != (ssize_t)sizeof start || memcmp(start, agreed, sizeof start) != 0)
        connection->up.ended = true; /* an answer like any other, and no more is to be asked */
    return MOVED_ALL;
}

static enum moved move_up(struct cordon_connection *connection)
{
    struct cordon_session *session = connection->session;
    if (!connection->passed)
        return MOVED_ALL;
    enum moved r = send_out(connection);
    if (r == MOVED_ALL && connection->waits_for_101) {
        r = see_101(connection);
        cordon_connection_upgrade(connection);
    }
    if (r != MOVED_ALL || connection->waits_for_101)
        return r;
    if (connection->in.size && !connection->up.ended) { /* what was said behind an upgrade */
        connection->out = connection->in;
        connection->in = CORDON_BUF_INIT(0);
        r = send_out(connection);
        if (r != MOVED_ALL)
            return r;
    }
    return move(session->egress, &connection->up, connection->guest.fd, connection->server.fd,
                &session->log.counts.sent);
}

bool cordon_relay(struct cordon_connection *connection, bool *broken)
{
    struct cordon_session *session = connection->session;
    enum moved up = move_up(connection), down = MOVED_ALL;
    if (!connection->waits_for_101) /* the start of the answer is to be seen whole */
        down = move(session->egress, &connection->down, connection->server.fd, connection->guest.fd,
                    &session->log.counts.received);
    *broken = up == MOVED_BROKEN || down == MOVED_BROKEN;
    if (*broken || (connection->up.ended && connection->down.ended && !connection->up.held && !connection->down.held))
        return false;
    connection->goes_on = up == MOVED_SHARE || down == MOVED_SHARE;
    return true;
}

static void set(struct cordon_loop *loop, struct cordon_source *source, uint32_t *now, uint32_t events, bool again)
{
    events |= EPOLLET | EPOLLRDHUP;
    if (*now == events && !again)
        return;
    if (cordon_source_set(loop, source, events) == 0) /* fails only without memory; then the last ones hold */
        *now = events;
}

void cordon_relay_watch(struct cordon_connection *connection)
{
    struct cordon_loop *loop = &connection->session->egress->loop;
    const struct cordon_flow *up = &connection->up, *down = &connection->down;
    bool again = connection->goes_on;
    bool to_server = up->held || connection->out_at < connection->out.size;
    bool from_guest = !up->ended && !up->held && (!connection->passed || !to_server) && !connection->waits_for_101;
    set(loop, &connection->guest, &connection->guest_events, (from_guest ? EPOLLIN : 0u) | (down->held ? EPOLLOUT : 0u),
        again);
    set(loop, &connection->server, &connection->server_events,
        (!down->ended && !down->held ? EPOLLIN : 0u) | (to_server ? EPOLLOUT : 0u), again);
}
