/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The driver channel: the job goes out, results and the announced exit come in. Before the job only the driver speaks
 * there, so a listener is taken then and never later; after it the code may write whatever it likes, and a channel
 * that carries no frames is closed. Descriptors are refused from then on where the kernel can (SO_PASSRIGHTS, 6.16),
 * else the kernel drops them, since no room is given.
 */
#include <errno.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

#include "agent/agent.h"
#include "base/fd.h"

#ifndef SO_PASSRIGHTS
#define SO_PASSRIGHTS 83
#endif
#define EVENTS_OF_READ 8 /* cost about as much as one read */
#define PUMP_ROUNDS 64   /* reads in one turn: more than a socket holds */

void cordon_agent_link_open(struct cordon_agent_exec *exec)
{
    int on = 1;
    /* Tells who speaks, which is how the program's process number is known. Without it that is found otherwise. */
    (void)setsockopt(exec->driver_fd, SOL_SOCKET, SO_PASSCRED, &on, sizeof on);
}

static void close_link(struct cordon_agent_exec *exec)
{
    cordon_close(&exec->driver_fd);
    exec->reader.broken = true;
    cordon_buf_done(&exec->job);
    exec->job_at = 0;
}

static void forward_result(struct cordon_agent *agent, struct cordon_agent_exec *exec, const char *data, size_t size)
{
    while (size) { /* at most two chunks: what is read at once fits the room that was checked */
        uint32_t n = size > CORDON_FRAME_DATA_MAX ? CORDON_FRAME_DATA_MAX : (uint32_t)size;
        cordon_agent_send(agent, CORDON_FRAME_RESULT, exec->id, data, n);
        data += n;
        size -= n;
    }
}

static void handle_text(struct cordon_agent *agent, struct cordon_agent_exec *exec,
                        const struct cordon_driver_event *event)
{
    if (exec->state == CORDON_AGENT_PARKED) {                  /* it could not even be parked */
        (void)!write(STDERR_FILENO, event->data, event->size); /* the log is all there is */
        (void)!write(STDERR_FILENO, "\n", 1);
        return;
    }
    if (!exec->result_error_sent) /* one reason is enough: more are a flood */
        cordon_agent_send(agent, CORDON_FRAME_RESULT_ERROR, exec->id, event->data, (uint32_t)event->size);
    exec->result_error_sent = true;
}

static void handle_event(struct cordon_agent *agent, struct cordon_agent_exec *exec,
                         const struct cordon_driver_event *event, int *fd)
{
    switch (event->type) {
    case CORDON_DRIVER_PIECE:
        if (exec->state >= CORDON_AGENT_RUNNING && !exec->announced)
            forward_result(agent, exec, event->data, event->size);
        break;
    case CORDON_DRIVER_TEXT:
        handle_text(agent, exec, event);
        break;
    case CORDON_DRIVER_FD:
        if (exec->state <= CORDON_AGENT_WAITING && exec->listener < 0 && *fd >= 0) {
            exec->listener = CORDON_TAKE_FD(*fd);
            cordon_agent_notify_setup(exec->listener);
        }
        break;
    case CORDON_DRIVER_CODE:
        if (exec->state >= CORDON_AGENT_RUNNING && !exec->announced) {
            if (event->code < 0 || event->code > 255) { /* no exit code: only code itself can have written that */
                close_link(exec);
                break;
            }
            exec->announced = true;
            if (exec->killed_by_host || exec->exit.how >= CORDON_EXIT_OUTPUT_LIMIT)
                break; /* it was ended before it came to this */
            exec->exit.how = CORDON_EXIT_EXITED;
            exec->exit.status = event->code;
        }
        break;
    case CORDON_DRIVER_WARM:
        exec->rehearsing = false; /* said by code it means nothing */
        break;
    case CORDON_DRIVER_BROKEN:
        close_link(exec);
        break;
    case CORDON_DRIVER_MORE:
        break;
    }
}

/* Who wrote, and the descriptor that came along. */
static void take_control(struct cordon_agent_exec *exec, struct msghdr *msg, int *fd)
{
    for (struct cmsghdr *c = CMSG_FIRSTHDR(msg); c; c = CMSG_NXTHDR(msg, c)) {
        if (c->cmsg_level != SOL_SOCKET)
            continue;
        if (c->cmsg_type == SCM_RIGHTS && c->cmsg_len == CMSG_LEN(sizeof *fd))
            memcpy(fd, CMSG_DATA(c), sizeof *fd);
        struct ucred sender;
        if (c->cmsg_type == SCM_CREDENTIALS && exec->pid == 0 && exec->state <= CORDON_AGENT_WAITING) {
            memcpy(&sender, CMSG_DATA(c), sizeof sender);
            exec->pid = sender.pid;
        }
    }
}

static ssize_t receive(struct cordon_agent_exec *exec, char *data, size_t size, int *fd)
{
    union {
        struct cmsghdr align;
        char space[CMSG_SPACE(sizeof(int)) + CMSG_SPACE(sizeof(struct ucred))]; /* more descriptors are not taken */
    } control;
    struct iovec iov = {.iov_base = data, .iov_len = size};
    struct msghdr msg = {.msg_iov = &iov, .msg_iovlen = 1};
    if (exec->state <= CORDON_AGENT_WAITING) {
        msg.msg_control = control.space;
        msg.msg_controllen = sizeof control.space;
    }
    ssize_t n = recvmsg(exec->driver_fd, &msg, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
    if (n >= 0)
        take_control(exec, &msg, fd);
    return n < 0 ? -errno : n;
}

/* Reads once; what came is dealt with whole. True when there may be more. */
static bool pump_driver(struct cordon_agent *agent, struct cordon_agent_exec *exec)
{
    static char data[16384];
    cordon_autoclose int fd = -1;
    ssize_t n = receive(exec, data, sizeof data, &fd);
    if (n == -EINTR)
        return true;
    if (n == -EAGAIN)
        return false;
    if (n <= 0) {
        close_link(exec);
        return false;
    }
    unsigned events = 0;
    const char *at = data;
    size_t size = (size_t)n;
    struct cordon_driver_event event;
    do {
        event = cordon_driver_read(&exec->reader, &at, &size);
        handle_event(agent, exec, &event, &fd);
        events++;
    } while (event.type != CORDON_DRIVER_MORE && event.type != CORDON_DRIVER_BROKEN);
    if (exec->state == CORDON_AGENT_RUNNING && n / events < CORDON_AGENT_SMALL)
        cordon_agent_pace_spend(exec, 1 + events / EVENTS_OF_READ);
    return exec->driver_fd >= 0;
}

/* bash has no frames: its result comes as it is. */
static bool pump_result(struct cordon_agent *agent, struct cordon_agent_exec *exec)
{
    static char data[16384];
    ssize_t n = read(exec->result_fd, data, sizeof data);
    if (n < 0 && (errno == EINTR || errno == EAGAIN))
        return errno == EINTR;
    if (n <= 0) {
        cordon_close(&exec->result_fd);
        return false;
    }
    if (n < CORDON_AGENT_SMALL)
        cordon_agent_pace_spend(exec, 1);
    exec->result_bytes += (uint64_t)n;
    if (exec->result_bytes > CORDON_DRIVER_RESULT_MAX) {
        static const char text[] = "the result is larger than 16 MiB";
        cordon_agent_send(agent, CORDON_FRAME_RESULT_ERROR, exec->id, text, sizeof text - 1);
        cordon_close(&exec->result_fd); /* the program gets EPIPE, as it would from any reader that has enough */
        return false;
    }
    forward_result(agent, exec, data, (size_t)n);
    return true;
}

static bool pump_all(struct cordon_agent *agent, struct cordon_agent_exec *exec,
                     bool (*pump)(struct cordon_agent *, struct cordon_agent_exec *), const int *fd)
{
    for (int round = 0; *fd >= 0 && !exec->announced; round++) {
        if (!cordon_agent_out_ready(agent) || round == PUMP_ROUNDS)
            return false;
        if (!pump(agent, exec))
            break;
    }
    return true;
}

bool cordon_agent_link_pump(struct cordon_agent *agent, struct cordon_agent_exec *exec)
{
    return pump_all(agent, exec, pump_driver, &exec->driver_fd) && pump_all(agent, exec, pump_result, &exec->result_fd);
}

/* The program's file is told from an artifact by its content. */
static void keep_job(struct cordon_agent_exec *exec)
{
    cordon_buf_done(&exec->job_sent);
    exec->job_sent = exec->job;
    exec->job = (struct cordon_buf){0};
}

/* The job goes out as one frame, in as many writes as it takes. */
static void send_job(struct cordon_agent *agent, struct cordon_agent_exec *exec)
{
    char header[CORDON_FRAME_HEADER];
    cordon_frame_header(header, CORDON_DRIVER_JOB, 0, (uint32_t)exec->job.size);
    while (exec->job_at < CORDON_FRAME_HEADER + exec->job.size) {
        size_t head = exec->job_at < sizeof header ? sizeof header - exec->job_at : 0;
        size_t body = exec->job_at - (sizeof header - head);
        struct iovec iov[2] = {
            {.iov_base = header + (sizeof header - head), .iov_len = head},
            {.iov_base = exec->job.data + body, .iov_len = exec->job.size - body},
        };
        struct msghdr msg = {.msg_iov = iov, .msg_iovlen = 2};
        ssize_t n = sendmsg(exec->driver_fd, &msg, MSG_DONTWAIT | MSG_NOSIGNAL);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0 && errno == EAGAIN)
            return;
        if (n < 0) { /* it is gone; its end tells the rest */
            close_link(exec);
            return;
        }
        exec->job_at += (size_t)n;
    }
    if (exec->flags & CORDON_EXEC_ARTIFACTS)
        keep_job(exec);
    cordon_buf_done(&exec->job);
    exec->job_at = 0;
    cordon_agent_send(agent, CORDON_FRAME_STARTED, exec->id, NULL, 0);
}

static bool job_waits(const struct cordon_agent_exec *exec)
{
    return exec->job.size && exec->state >= CORDON_AGENT_RUNNING;
}

static void on_driver(struct cordon_agent *agent, struct cordon_agent_exec *exec, short events)
{
    if (events & POLLOUT && job_waits(exec))
        send_job(agent, exec);
    if (events & (POLLIN | POLLHUP | POLLERR) && exec->driver_fd >= 0 && cordon_agent_out_ready(agent))
        (void)pump_driver(agent, exec); /* one chunk a turn */
}

static void on_result(struct cordon_agent *agent, struct cordon_agent_exec *exec, short events)
{
    (void)events;
    (void)pump_result(agent, exec); /* one chunk a turn */
}

int cordon_agent_link_tell(struct cordon_agent_exec *exec, enum cordon_driver_frame type)
{
    char header[CORDON_FRAME_HEADER];
    cordon_frame_header(header, (uint8_t)type, 0, 0);
    exec->rehearsing = type == CORDON_DRIVER_REHEARSE;
    /* What it was sent before it has read: the socket holds it. */
    ssize_t n = send(exec->driver_fd, header, sizeof header, MSG_DONTWAIT | MSG_NOSIGNAL);
    return n == (ssize_t)sizeof header ? 0 : n < 0 ? -errno : -EIO;
}

void cordon_agent_link_job(struct cordon_agent *agent, struct cordon_agent_exec *exec)
{
    int off = 0;
    (void)setsockopt(exec->driver_fd, SOL_SOCKET, SO_PASSRIGHTS, &off, sizeof off); /* an older kernel lacks it */
    send_job(agent, exec);
}

void cordon_agent_link_watch(struct cordon_agent *agent, struct cordon_agent_exec *exec)
{
    bool ready = cordon_agent_out_ready(agent);
    short events = (short)((ready ? POLLIN : 0) | (job_waits(exec) ? POLLOUT : 0));
    if (exec->driver_fd >= 0 && events)
        cordon_agent_watch(agent, exec->driver_fd, events, on_driver, exec);
    if (exec->result_fd >= 0 && ready && exec->state >= CORDON_AGENT_RUNNING)
        cordon_agent_watch(agent, exec->result_fd, POLLIN, on_result, exec);
}
