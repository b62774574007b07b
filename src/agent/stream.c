/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The program's pipes. Output goes to the host up to the stream's cap and against its credit; what is over the cap is
 * read and counted, so that the program is told nothing and never hangs on it. Input is held in a window that the
 * host keeps to, so the channel never has to stop for it.
 */
#include <errno.h>
#include <string.h>
#include <unistd.h>

#include "agent/agent.h"
#include "base/fd.h"

static size_t allowed(const struct cordon_agent_exec *exec, const struct cordon_agent_stream *stream)
{
    uint64_t size = CORDON_FRAME_DATA_MAX;
    if (stream->credit < size && !exec->killed_by_host)
        size = stream->credit;
#ifndef CORDON_WEAKEN_OUTPUT_CAP
    if (stream->cap - stream->kept < size)
        size = stream->cap - stream->kept;
#endif
    return (size_t)size;
}

static bool over_cap(const struct cordon_agent_stream *stream)
{
#ifdef CORDON_WEAKEN_OUTPUT_CAP
    (void)stream;
    return false;
#else
    return stream->kept >= stream->cap;
#endif
}

/* Room for what is read only to be counted. */
static char discarded[16384];

static ssize_t take(struct cordon_agent *agent, struct cordon_agent_exec *exec, int which)
{
    struct cordon_agent_stream *stream = &exec->stream[which];
    if (over_cap(stream))
        return read(stream->fd, discarded, sizeof discarded);
    size_t size = allowed(exec, stream);
    ssize_t n = read(stream->fd, cordon_agent_out_room(agent), size);
    if (n <= 0)
        return n;
    stream->kept += (uint64_t)n;
    stream->credit -= stream->credit < (uint64_t)n ? stream->credit : (uint64_t)n;
    cordon_agent_out_commit(agent, which ? CORDON_FRAME_STDERR : CORDON_FRAME_STDOUT, exec->id, (uint32_t)n);
    return n;
}

static bool may_take(const struct cordon_agent *agent, const struct cordon_agent_exec *exec, int which)
{
    const struct cordon_agent_stream *stream = &exec->stream[which];
    return over_cap(stream) || (cordon_agent_out_ready(agent) && allowed(exec, stream));
}

static void check_kill(struct cordon_agent *agent, struct cordon_agent_exec *exec, uint64_t total)
{
    if (exec->output_kill_bytes && total > exec->output_kill_bytes && exec->state == CORDON_AGENT_RUNNING)
        cordon_agent_exec_end(agent, exec, CORDON_EXIT_OUTPUT_LIMIT, 0);
}

bool cordon_agent_stream_pump(struct cordon_agent *agent, struct cordon_agent_exec *exec, int which)
{
    struct cordon_agent_stream *stream = &exec->stream[which];
    if (stream->fd < 0 || !may_take(agent, exec, which))
        return false;
    ssize_t n = take(agent, exec, which);
    if (n < 0 && (errno == EINTR || errno == EAGAIN)) {
        stream->empty = errno == EAGAIN;
        return errno == EINTR;
    }
    if (n <= 0) {
        cordon_close(&stream->fd);
        return false;
    }
    stream->empty = false;
    stream->total += (uint64_t)n;
    if (n < CORDON_AGENT_SMALL)
        cordon_agent_pace_spend(exec, 1);
    check_kill(agent, exec, stream->total);
    return true;
}

static void on_stdout(struct cordon_agent *agent, struct cordon_agent_exec *exec, short events)
{
    (void)events;
    (void)cordon_agent_stream_pump(agent, exec, 0); /* one chunk a turn: the others get theirs */
}

static void on_stderr(struct cordon_agent *agent, struct cordon_agent_exec *exec, short events)
{
    (void)events;
    (void)cordon_agent_stream_pump(agent, exec, 1);
}

void cordon_agent_stream_watch(struct cordon_agent *agent, struct cordon_agent_exec *exec)
{
    for (int which = 0; which < 2; which++) {
        if (exec->stream[which].fd >= 0 && may_take(agent, exec, which))
            cordon_agent_watch(agent, exec->stream[which].fd, POLLIN, which ? on_stderr : on_stdout, exec);
    }
}

int cordon_agent_stdin_add(struct cordon_agent_exec *exec, const char *data, size_t size)
{
    if (exec->stdin_fd < 0) { /* the program closed it: what comes is of no use, but the host may go on */
        exec->input_credit += (uint32_t)size;
        return 0;
    }
    return cordon_buf_append(&exec->input, data, size);
}

void cordon_agent_stdin_end(struct cordon_agent_exec *exec)
{
    exec->input_ended = true;
    if (!exec->input.size)
        cordon_close(&exec->stdin_fd);
}

static void stdin_write(struct cordon_agent_exec *exec)
{
    while (exec->input.size) {
        ssize_t n = write(exec->stdin_fd, exec->input.data, exec->input.size);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0 && errno == EAGAIN)
            return;
        if (n < 0) { /* EPIPE: the program reads no more, which is its right */
            exec->input_credit += (uint32_t)exec->input.size;
            cordon_buf_done(&exec->input);
            cordon_close(&exec->stdin_fd);
            return;
        }
        exec->input_credit += (uint32_t)n;
        cordon_buf_consume(&exec->input, (size_t)n);
    }
    if (exec->input_ended)
        cordon_close(&exec->stdin_fd);
}

static void on_stdin(struct cordon_agent *agent, struct cordon_agent_exec *exec, short events)
{
    (void)events;
    stdin_write(exec);
    if (exec->input_credit < CORDON_STDIN_WINDOW / 4 || exec->input_ended)
        return;
    char bytes[4];
    for (int i = 0; i < 4; i++)
        bytes[i] = (char)(exec->input_credit >> (8 * i));
    cordon_agent_send(agent, CORDON_FRAME_STDIN_CREDIT, exec->id, bytes, sizeof bytes);
    exec->input_credit = 0;
}

void cordon_agent_stdin_watch(struct cordon_agent *agent, struct cordon_agent_exec *exec)
{
    /* A host that does not read its credit gets no more of it, and sends no more than its window. */
    if (exec->stdin_fd >= 0 && exec->input.size && cordon_agent_out_ready(agent))
        cordon_agent_watch(agent, exec->stdin_fd, POLLOUT, on_stdin, exec);
}
