/* SPDX-License-Identifier: Apache-2.0 */
/* The agent of a kept guest: its loop, its channel and the warden's control socket. See kept.h. */
#include "agent/kept.h"
#include "agent/vm.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/fd.h"

#define READ_SIZE (64u << 10)
#define OUT_MAX (16u << 20) /* with what the agent itself has to say to a host that does not read */
#define REAP_ROUNDS 256
#define ENV_MAX 1024
#define PORT_LOOK_US 100000 /* between looks whether a machine's port has a host again */

static struct cordon_kept the_kept; /* large, and only the pages in use exist */

_Noreturn void cordon_kept_quit(const char *why)
{
    if (why)
        (void)dprintf(STDERR_FILENO, "cordon-agent: %s\n", why); /* the log is all there is */
    if (why && cordon_vm.on && !cordon_vm.leased)
        cordon_vm_fail(why, -ECHILD); /* so that who waits for the machine hears it */
    cordon_vm_leave();
    _exit(why != NULL);
}

void cordon_kept_watch(struct cordon_kept *kept, int fd, short events, cordon_kept_on_event *on_event, void *object)
{
    if (kept->sources == CORDON_KEPT_SOURCES)
        return; /* the tables' sizes make that impossible */
    size_t i = kept->sources++;
    kept->poll[i] = (struct pollfd){.fd = fd, .events = events};
    kept->source[i].on_event = on_event;
    kept->source[i].object = object;
}

/* --- to the host --- */

bool cordon_kept_has_room(const struct cordon_kept *kept)
{
    return kept->channel >= 0 && kept->out.size < CORDON_KEPT_OUT;
}

void cordon_kept_send(struct cordon_kept *kept, uint8_t type, uint16_t id, const void *payload, uint32_t length)
{
    if (kept->channel < 0)
        return;
    if (cordon_frame_put(&kept->out, type, id, payload, length) < 0)
        cordon_kept_quit("the host does not read");
}

void cordon_kept_send_number(struct cordon_kept *kept, uint8_t type, uint16_t id, uint32_t number)
{
    char bytes[4];
    for (int i = 0; i < 4; i++)
        bytes[i] = (char)(number >> (8 * i));
    cordon_kept_send(kept, type, id, bytes, sizeof bytes);
}

void cordon_kept_fail(struct cordon_kept *kept, struct cordon_kept_stream *stream, int code, const char *fmt, ...)
{
    char reason[256];
    va_list ap;
    va_start(ap, fmt);
    int n = vsnprintf(reason, sizeof reason, fmt, ap);
    va_end(ap);
    size_t size = n < 0 ? 0 : (size_t)n < sizeof reason ? (size_t)n : sizeof reason - 1;
    struct cordon_buf buf = CORDON_BUF_INIT(1024);
    (void)cordon_field_put_u32(&buf, CORDON_FIELD_CODE_NUMBER, (uint32_t)code); /* failures stick in buf.failed */
    (void)cordon_field_put(&buf, CORDON_FIELD_REASON, reason, (uint32_t)size);
    if (buf.failed)
        cordon_kept_quit("no memory to tell an error");
    cordon_kept_send(kept, CORDON_FRAME_FAILED, stream ? stream->id : 0, buf.data, (uint32_t)buf.size);
    cordon_buf_done(&buf);
    if (stream)
        stream->ended = true;
}

static void lose_channel(struct cordon_kept *kept)
{
    kept->port_lost = cordon_vm.on;
    if (cordon_vm.on)
        kept->channel = -1; /* it may have another host later */
    cordon_close(&kept->channel);
    cordon_buf_done(&kept->in);
    cordon_buf_done(&kept->out);
    cordon_kept_streams_drop(kept);
}

bool cordon_kept_flush(struct cordon_kept *kept)
{
    size_t sent = 0;
    bool lost = false;
    while (kept->channel >= 0 && sent < kept->out.size) {
        ssize_t n = cordon_vm_send(kept->channel, kept->out.data + sent, kept->out.size - sent);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0) {
            lost = errno != EAGAIN;
            break;
        }
        sent += (size_t)n;
    }
    if (lost)
        lose_channel(kept);
    else if (sent && sent == kept->out.size)
        kept->out.size = 0;
    else
        cordon_buf_consume(&kept->out, sent);
    return kept->out.size == 0;
}

/* --- from the host --- */

static void free_env(struct cordon_kept *kept)
{
    for (size_t i = 0; i < kept->env_count; i++)
        free(kept->env[i]);
    free(kept->env);
    kept->env = NULL;
    kept->env_count = 0;
}

static int add_env(struct cordon_kept *kept, const struct cordon_field *field)
{
    if (kept->env_count == ENV_MAX || memchr(field->data, '\0', field->length))
        return -EINVAL;
    if (!kept->env)
        kept->env = calloc(ENV_MAX, sizeof *kept->env);
    char *text = kept->env ? strndup(field->data, field->length) : NULL;
    if (!text)
        return -ENOMEM;
    kept->env[kept->env_count++] = text;
    return 0;
}

static void on_setup(struct cordon_kept *kept, const struct cordon_frame *frame)
{
    struct cordon_field field;
    struct cordon_exec_limits limits = {0};
    size_t at = 0;
    int r = 0;
    free_env(kept);
    while (r == 0 && cordon_field_next(frame->payload, frame->length, &at, &field) == 1) {
        if (field.tag == CORDON_FIELD_LIMITS)
            r = cordon_exec_limits_parse(&field, &limits);
        else if (field.tag == CORDON_FIELD_ENV)
            r = add_env(kept, &field);
    }
    if (limits.open_files)
        kept->config.open_files = limits.open_files;
    if (r == 0 && kept->config.isolated) {
        cordon_agent_tell_limits(limits.memory_bytes, (limits.cpu_percent + 99) / 100);
        r = cordon_agent_resize_files(cordon_vm_files_limit(limits.disk_bytes), limits.disk_inodes);
    }
    if (r < 0)
        cordon_kept_fail(kept, NULL, -r, "setting the guest up: %s", strerror(-r));
    else
        cordon_kept_send(kept, CORDON_FRAME_DONE, 0, NULL, 0);
}

static void on_window(struct cordon_kept *kept, const struct cordon_frame *frame)
{
    struct cordon_kept_stream *stream = cordon_kept_stream_find(kept, frame->exec);
    if (stream)
        stream->window += cordon_frame_u32(frame, 0);
}

static void on_notice(struct cordon_kept *kept, const struct cordon_frame *frame)
{
    if (cordon_frame_u32(frame, 0) == CORDON_KEPT_PAUSED)
        cordon_kept_execs_pause(kept, cordon_frame_u32(frame, 4) == 1);
}

static void on_control(struct cordon_kept *kept, const struct cordon_frame *frame)
{
    if (frame->exec == 0)
        on_notice(kept, frame);
    else
        cordon_kept_stream_control(kept, frame);
}

static void on_close(struct cordon_kept *kept, const struct cordon_frame *frame)
{
    struct cordon_kept_stream *stream = cordon_kept_stream_find(kept, frame->exec);
    if (stream)
        cordon_kept_stream_close(kept, stream);
    else
        cordon_kept_send(kept, CORDON_FRAME_CLOSED, frame->exec, NULL, 0);
}

typedef void on_frame(struct cordon_kept *kept, const struct cordon_frame *frame);
static on_frame *const handlers[] = {
    [CORDON_FRAME_SETUP] = on_setup,
    [CORDON_FRAME_OPEN] = cordon_kept_stream_open,
    [CORDON_FRAME_WRITE] = cordon_kept_stream_write,
    [CORDON_FRAME_WINDOW] = on_window,
    [CORDON_FRAME_CONTROL] = on_control,
    [CORDON_FRAME_CLOSE] = on_close,
};

static void handle_frames(struct cordon_kept *kept)
{
    struct cordon_frame frame;
    size_t used = 0;
    int64_t n = 0;
    while (kept->channel >= 0 && (n = cordon_frame_parse(kept->in.data + used, kept->in.size - used, 0, &frame)) > 0) {
        if (frame.type >= sizeof handlers / sizeof *handlers || !handlers[frame.type])
            n = -EBADMSG;
        if (n < 0)
            break;
        handlers[frame.type](kept, &frame);
        used += (size_t)n;
    }
    if (kept->channel < 0)
        return;
    if (n < 0)
        lose_channel(kept); /* what it says is no protocol: this host is of no use, the next one may be */
    else if (used == kept->in.size)
        cordon_buf_wipe(&kept->in); /* environment may have been in it; and an idle guest is to be small */
    else
        cordon_buf_consume(&kept->in, used);
}

static size_t frame_left(const struct cordon_buf *in)
{
    if (in->size < CORDON_FRAME_HEADER)
        return 0;
    struct cordon_frame header = {.length = CORDON_FRAME_HEADER, .payload = in->data};
    size_t whole = CORDON_FRAME_HEADER + (size_t)cordon_frame_u32(&header, 4);
    return whole > in->size && whole <= CORDON_FRAME_MAX + CORDON_FRAME_HEADER ? whole - in->size : 0;
}

static void on_channel(struct cordon_kept *kept, void *object, short events)
{
    (void)object;
    if (!(events & (POLLIN | POLLHUP | POLLERR)) || kept->channel < 0)
        return; /* what can be sent is sent at the end of the turn */
    kept->in.max = CORDON_FRAME_MAX + (1u << 20);
    size_t left = frame_left(&kept->in), room = left > READ_SIZE ? left : READ_SIZE;
    char *to = cordon_buf_reserve(&kept->in, room);
    if (!to)
        cordon_kept_quit("no memory for a frame of the host");
    ssize_t n = cordon_vm_recv(kept->channel, to, room);
    if (n < 0 && (errno == EAGAIN || errno == EINTR))
        return;
    if (n <= 0) {
        lose_channel(kept);
        return;
    }
    kept->in.size += (size_t)n;
    handle_frames(kept);
}

/* --- from the warden --- */

static void greet(struct cordon_kept *kept)
{
    char payload[8];
    for (int i = 0; i < 4; i++) {
        payload[i] = (char)(CORDON_KEPT_VERSION >> (8 * i));
        payload[4 + i] = (char)(kept->epoch >> (8 * i));
    }
    cordon_kept_send(kept, CORDON_FRAME_READY, 0, payload, sizeof payload);
    kept->running_told = UINT32_MAX;
}

static void on_warden(struct cordon_kept *kept, void *object, short events)
{
    char byte = 0;
    int fd = -1;
    size_t nfds = 1;
    (void)object;
    (void)events;
    ssize_t n = cordon_recv_fds(kept->control, &byte, 1, &fd, &nfds, MSG_DONTWAIT);
    if (n == -EAGAIN)
        return;
    if (n <= 0)
        cordon_kept_quit(NULL); /* the warden is gone, and with it who could ever reach this guest */
    if (nfds != 1)
        return;
    lose_channel(kept);
    kept->channel = fd;
    kept->epoch++;
    greet(kept);
}

/* In a virtual machine a new host comes by the port itself. What the old one left there is nothing to it. */
static void look_for_host(struct cordon_kept *kept)
{
    char rest[4096];
    struct pollfd port = {.fd = cordon_vm.port, .events = POLLIN};
    if (poll(&port, 1, 0) < 0 || port.revents & (POLLHUP | POLLERR))
        return;
    while (cordon_vm_recv(cordon_vm.port, rest, sizeof rest) > 0)
        continue;
    kept->port_lost = false;
    kept->channel = cordon_vm.port;
    kept->epoch++;
    greet(kept);
}

/* --- the loop --- */

static void on_child(struct cordon_kept *kept, void *object, short events)
{
    struct signalfd_siginfo info[8];
    (void)object;
    (void)events;
    (void)!read(kept->signals, info, sizeof info); /* only that it came matters */
}

static void reap(struct cordon_kept *kept)
{
    int status;
    pid_t pid;
    cordon_kept_execs_settle_starts(kept); /* so that who ended is known */
    for (int round = 0; round < REAP_ROUNDS && (pid = waitpid(-1, &status, WNOHANG)) > 0; round++) {
        if (pid == kept->launcher) {
            kept->launcher = 0;
            cordon_close(&kept->launcher_fd); /* the next launch makes a new one */
        }
        cordon_kept_execs_reaped(kept, pid, status);
    }
}

static void tell_running(struct cordon_kept *kept)
{
    uint32_t running = cordon_kept_execs_running(kept);
    if (kept->channel < 0 || running == kept->running_told)
        return;
    kept->running_told = running;
    cordon_kept_send_number(kept, CORDON_FRAME_RUNNING, 0, running);
}

static int timeout_ms(const struct cordon_kept *kept)
{
    uint64_t due = cordon_kept_execs_due(kept), now = cordon_now_us();
    if (kept->port_lost && (!due || due > now + PORT_LOOK_US))
        due = now + PORT_LOOK_US;
    if (!due)
        return -1;
    return due <= now ? 0 : (int)((due - now + 999) / 1000);
}

static void turn(struct cordon_kept *kept)
{
    kept->sources = 0;
    cordon_kept_watch(kept, kept->signals, POLLIN, on_child, NULL);
    if (kept->port_lost)
        look_for_host(kept);
    if (kept->control >= 0)
        cordon_kept_watch(kept, kept->control, POLLIN, on_warden, NULL);
    if (kept->channel >= 0)
        cordon_kept_watch(kept, kept->channel, (short)(POLLIN | (kept->out.size ? POLLOUT : 0)), on_channel, NULL);
    cordon_kept_execs_watch(kept);
    cordon_kept_streams_watch(kept);
    int n = poll(kept->poll, kept->sources, timeout_ms(kept));
    if (n < 0 && errno != EINTR)
        cordon_kept_quit("waiting failed");
    for (size_t i = 0; n > 0 && i < kept->sources; i++)
        if (kept->poll[i].revents)
            kept->source[i].on_event(kept, kept->source[i].object, kept->poll[i].revents);
    reap(kept);
    cordon_kept_execs_step(kept);
    cordon_kept_streams_step(kept);
    tell_running(kept);
    (void)cordon_kept_flush(kept); /* what stays goes in a later turn */
}

static void await_lease(struct cordon_kept *kept)
{
    struct cordon_vm_lease lease;
    cordon_vm_await_lease(&kept->config, &lease, NULL);
}

static void set_up(struct cordon_kept *kept)
{
    sigset_t set;
    char byte = 1;
    sigemptyset(&set);
    sigaddset(&set, SIGCHLD);
    (void)signal(SIGPIPE, SIG_IGN); /* can't fail for this signal */
    if (sigprocmask(SIG_BLOCK, &set, NULL) < 0 || (kept->signals = signalfd(-1, &set, SFD_NONBLOCK | SFD_CLOEXEC)) < 0)
        cordon_kept_quit("no signal descriptor");
    if (cordon_kept_launcher_start(kept) < 0)
        cordon_kept_quit("the launcher can not be started");
    if (cordon_vm.on)
        await_lease(kept);
    greet(kept);
    (void)cordon_kept_flush(kept);
    if (cordon_vm.on)
        return;
    if (write(CORDON_AGENT_READY, &byte, 1) != 1)
        cordon_kept_quit("the warden is gone");
    (void)close(CORDON_AGENT_READY); /* what it says is said */
}

_Noreturn void cordon_kept_main(const struct cordon_agent_config *config)
{
    struct cordon_kept *kept = &the_kept;
    kept->config = *config;
    kept->channel = CORDON_AGENT_CHANNEL;
    kept->control = cordon_vm.on ? -1 : CORDON_AGENT_DRIVER;
    kept->launcher_fd = -1;
    kept->out.max = OUT_MAX;
    kept->epoch = 1;
    set_up(kept);
    for (;;)
        turn(kept);
}
