/* SPDX-License-Identifier: Apache-2.0 */
/* Waiting for QEMU, the guest and the warden; QEMU's replies and events, its last words and its end. */
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/fd.h"
#include "vmm/machine.h"

#define READ_SIZE 16384

int cordon_machine_fail(struct cordon_machine *machine, int status, const char *fmt, ...)
{
    va_list ap;
    if (machine->status < 0)
        return machine->status; /* the first one is the cause */
    machine->status = status;
    va_start(ap, fmt);
    (void)vsnprintf(machine->why, sizeof machine->why, fmt, ap); /* cut at its size */
    va_end(ap);
    return status;
}

/* --- QMP --- */

static void take_message(struct cordon_machine *machine, const struct cordon_qmp_message *message)
{
    if (message->kind == CORDON_QMP_GREETING)
        (void)snprintf(machine->version, sizeof machine->version, "%.40s", message->text);
    if (message->kind == CORDON_QMP_EVENT && strcmp(message->name, "MIGRATION") == 0)
        memcpy(machine->migration, message->status, sizeof machine->migration);
    if (message->kind == CORDON_QMP_EVENT && strcmp(message->name, "SHUTDOWN") == 0)
        memcpy(machine->reason, message->status, sizeof machine->reason);
    bool answer = message->kind == CORDON_QMP_RETURN || message->kind == CORDON_QMP_ERROR;
    if (answer && !machine->replied && message->id == (int64_t)machine->last_id) {
        machine->reply = *message;
        machine->replied = true;
    }
}

static int take_lines(struct cordon_machine *machine)
{
    for (;;) {
        struct cordon_qmp_message message;
        size_t used;
        cordon_qmp_next(machine->in.data, machine->in.size, &used, &message);
        if (message.kind == CORDON_QMP_MORE)
            return 0;
        if (message.kind == CORDON_QMP_VIOLATION)
            return cordon_machine_fail(machine, -EBADMSG, "QEMU violated its control protocol: %.160s", message.text);
        cordon_buf_consume(&machine->in, used);
        take_message(machine, &message);
    }
}

/* 1: there was something, 0: nothing now or its end. */
static int read_qmp(struct cordon_machine *machine)
{
    char *to = cordon_buf_reserve(&machine->in, READ_SIZE);
    if (!to)
        return cordon_machine_fail(machine, -ENOMEM, "no memory for what QEMU says");
    ssize_t n = recv(machine->qmp, to, READ_SIZE, MSG_DONTWAIT);
    if (n <= 0)
        return 0;
    machine->in.size += (size_t)n;
    int r = take_lines(machine);
    return r < 0 ? r : 1;
}

/* --- its last words and its end --- */

static void read_words(struct cordon_machine *machine)
{
    char piece[512];
    ssize_t n = read(machine->words, piece, sizeof piece);
    if (n <= 0) {
        cordon_close(&machine->words);
        return;
    }
    size_t have = strlen(machine->tail), room = sizeof machine->tail - 1;
    for (ssize_t i = 0; i < n; i++) {
        if (have == room)
            memmove(machine->tail, machine->tail + 1, --have);
        machine->tail[have++] = piece[i] >= ' ' && piece[i] <= '~' ? piece[i] : ' ';
    }
    machine->tail[have] = '\0';
}

static void drain(struct cordon_machine *machine)
{
    for (int i = 0; i < 64 && read_qmp(machine) > 0; i++)
        ;
    struct pollfd more = {.fd = machine->words, .events = POLLIN};
    for (int i = 0; i < 64 && machine->words >= 0 && poll(&more, 1, 0) > 0; i++, more.fd = machine->words)
        read_words(machine);
}

static int on_end(struct cordon_machine *machine)
{
    siginfo_t info = {0};
    drain(machine);
    machine->ended = true;
    if (waitid(P_PID, (id_t)machine->pid, &info, WEXITED) < 0)
        return cordon_machine_fail(machine, -errno, "QEMU ended, and its status can't be had");
    machine->pid = 0;
    machine->ended_well = info.si_code == CLD_EXITED && info.si_status == 0;
    if (info.si_code != CLD_EXITED)
        return cordon_machine_fail(machine, -ECHILD, "QEMU was killed by signal %d (SIG%s)", info.si_status,
                                   sigabbrev_np(info.si_status) ? sigabbrev_np(info.si_status) : "?");
    if (info.si_status == 0 && machine->reason[0])
        return cordon_machine_fail(machine, -ECHILD, "the guest's kernel ended (%s)", machine->reason);
    return cordon_machine_fail(machine, -ECHILD, "QEMU ended with status %d%s%s", info.si_status,
                               machine->tail[0] ? ", its last words: " : "", machine->tail);
}

/* --- waiting --- */

static int time_left(uint64_t until_us)
{
    uint64_t now = cordon_now_us();
    if (!until_us)
        return -1;
    return now < until_us ? (int)((until_us - now + 999) / 1000) : 0;
}

/* Of all QEMU's threads: tells one that waits for a CPU of a busy host from one that hangs. (clock_getcpuclockid()
 * makes the same of a pid, by a system call that is not allowed here.) */
static unsigned cpu_seconds(pid_t qemu)
{
    struct timespec spent = {0};
    (void)clock_gettime((clockid_t)(~(unsigned)qemu << 3 | 2), &spent); /* none known: 0 */
    return (unsigned)spent.tv_sec;
}

static int say_late(struct cordon_machine *machine, const char *step)
{
    return cordon_machine_fail(machine, -ETIMEDOUT, "QEMU did not %s in time (it has had %u s of CPU time)%s%s", step,
                               cpu_seconds(machine->pid), machine->tail[0] ? "; its last words: " : "", machine->tail);
}

int cordon_machine_wait(struct cordon_machine *machine, enum cordon_machine_want want, uint64_t until_us,
                        const char *step)
{
    struct pollfd fds[] = {{.fd = machine->qmp, .events = POLLIN},
                           {.fd = machine->words, .events = POLLIN},
                           {.fd = machine->pidfd, .events = POLLIN},
                           {.fd = machine->control, .events = want == CORDON_WANT_CONTROL ? POLLIN : POLLRDHUP},
                           {.fd = want == CORDON_WANT_CHANNEL ? machine->channel : -1, .events = POLLIN}};
    int n = poll(fds, sizeof fds / sizeof *fds, time_left(until_us));
    if (n < 0 && errno == EINTR)
        return 0;
    if (n < 0)
        return cordon_machine_fail(machine, -errno, "waiting while QEMU is to %s: %s", step, strerror(errno));
    if (n == 0)
        return step ? say_late(machine, step) : 0;
    if (fds[1].revents)
        read_words(machine);
    if (fds[2].revents)
        return on_end(machine);
    if (step && until_us &&
        cordon_now_us() >= until_us) /* a QEMU that never stops talking would be waited for for ever */
        return say_late(machine, step);
    if (fds[0].revents) {
        int r = read_qmp(machine);
        if (r < 0)
            return r;
        if (r == 0 && fds[0].revents & (POLLHUP | POLLERR)) { /* its own end follows, or it must be brought about */
            cordon_close(&machine->qmp);
            if (!machine->ending)
                (void)kill(machine->pid, SIGKILL);
        }
    }
    if (want == CORDON_WANT_CONTROL && fds[3].revents)
        return 1;
    if (fds[3].revents & (POLLRDHUP | POLLHUP | POLLERR))
        return cordon_machine_fail(machine, -EOWNERDEAD, "the warden is gone");
    return fds[4].revents ? 1 : 0;
}

int cordon_machine_send(struct cordon_machine *machine, const char *command, const char *arguments, int fd)
{
    struct cordon_buf line = CORDON_BUF_INIT(4096);
    machine->replied = false;
    int r = cordon_qmp_put(&line, ++machine->last_id, command, arguments);
    ssize_t n = r < 0 ? r : cordon_send_fds(machine->qmp, line.data, line.size, &fd, fd >= 0, MSG_DONTWAIT);
    bool sent = r == 0 && n == (ssize_t)line.size; /* QEMU reads one before the next is sent: a socket holds it */
    cordon_buf_done(&line);
    if (!sent && n >= 0)
        return cordon_machine_fail(machine, -EIO, "QEMU does not read the command %s", command);
    return 0; /* one whose socket is closed is at its end, which is told in its own words */
}

int cordon_machine_call_fd(struct cordon_machine *machine, const char *command, const char *arguments, int fd,
                           uint64_t until_us)
{
    int r = cordon_machine_send(machine, command, arguments, fd);
    if (r < 0)
        return r;
    while (!machine->replied) {
        r = cordon_machine_wait(machine, CORDON_WANT_QMP, until_us, command);
        if (r < 0)
            return r;
    }
    if (machine->reply.kind == CORDON_QMP_ERROR)
        return cordon_machine_fail(machine, -EIO, "QEMU refused %s: %.160s", command, machine->reply.text);
    return 0;
}

int cordon_machine_call(struct cordon_machine *machine, const char *command, const char *arguments, uint64_t until_us)
{
    return cordon_machine_call_fd(machine, command, arguments, -1, until_us);
}

/* --- the guest's first frames --- */

ssize_t cordon_machine_frame_rest(const char *data, size_t size)
{
    static const uint8_t types[] = {CORDON_FRAME_VM_READY, CORDON_FRAME_VM_LEASED, CORDON_FRAME_ERROR};
    const unsigned char *bytes = (const unsigned char *)data;
    if (size && !memchr(types, bytes[0], sizeof types))
        return -EBADMSG;
    if (size < CORDON_FRAME_HEADER)
        return (ssize_t)(CORDON_FRAME_HEADER - size);
    uint32_t length = bytes[4] | (uint32_t)bytes[5] << 8 | (uint32_t)bytes[6] << 16 | (uint32_t)bytes[7] << 24;
    if (bytes[1] || length > CORDON_MACHINE_FRAME_MAX - CORDON_FRAME_HEADER)
        return -EBADMSG;
    return (ssize_t)(CORDON_FRAME_HEADER + length) - (ssize_t)size;
}

static int violated(struct cordon_machine *machine)
{
    return cordon_machine_fail(machine, -EBADMSG, "the guest said what is not its turn to say (frame %u)",
                               (unsigned)(unsigned char)machine->frame[0]);
}

int cordon_machine_frame(struct cordon_machine *machine, struct cordon_frame *frame, uint64_t until_us)
{
    size_t have = 0;
    ssize_t rest;
    while ((rest = cordon_machine_frame_rest(machine->frame, have)) > 0) {
        int r = cordon_machine_wait(machine, CORDON_WANT_CHANNEL, until_us, "bring its guest to an answer");
        if (r < 0)
            return r;
        if (r == 0)
            continue;
        ssize_t n = recv(machine->channel, machine->frame + have, (size_t)rest, MSG_DONTWAIT);
        if (n == 0) { /* QEMU's end is closed: it is ending */
            cordon_close(&machine->channel);
            continue;
        }
        have += n > 0 ? (size_t)n : 0;
    }
    if (rest < 0 || cordon_frame_parse(machine->frame, have, 1, frame) != (int64_t)have)
        return violated(machine);
    return 0;
}
