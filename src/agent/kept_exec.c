/* SPDX-License-Identifier: Apache-2.0 */
/* Programs of a kept guest: started, watched, ended, remembered. */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "agent/kept.h"
#include "agent/vm.h"
#include "base/clock.h"
#include "base/fd.h"
#include "isolate/root.h"

#define ABOUT_MAX 2048u /* of the list of programs, which has no window */
#define TERMINAL_SETTLE_US 50000u
#define ANSWERS_A_TURN 16

/* --- the table --- */

static void free_exec(struct cordon_kept_exec *exec)
{
    for (int i = 0; i < CORDON_KEPT_INS; i++)
        cordon_close(&exec->in[i]);
    for (int i = 0; i < CORDON_KEPT_OUTS; i++)
        cordon_close(&exec->out[i]);
    cordon_kept_launch_done(&exec->launch);
    cordon_close(&exec->listener);
    cordon_ring_done(&exec->ring);
    free(exec->about);
    *exec = (struct cordon_kept_exec){0};
}

static bool has_streams(const struct cordon_kept *kept, const struct cordon_kept_exec *exec)
{
    for (size_t i = 0; i < CORDON_KEPT_STREAMS; i++)
        if (kept->streams[i].kind && kept->streams[i].exec == exec)
            return true;
    return false;
}

uint32_t cordon_kept_execs_running(const struct cordon_kept *kept)
{
    uint32_t running = 0;
    for (size_t i = 0; i < CORDON_KEPT_EXECS; i++)
        running += kept->execs[i].used && (kept->execs[i].running || kept->execs[i].starting);
    return running;
}

/* A free place, else that of the one that ended first and that nobody reads. */
static struct cordon_kept_exec *find_place(struct cordon_kept *kept)
{
    struct cordon_kept_exec *oldest = NULL;
    if (cordon_kept_execs_running(kept) >= CORDON_KEPT_RUNNING)
        return NULL;
    for (size_t i = 0; i < CORDON_KEPT_EXECS; i++) {
        struct cordon_kept_exec *exec = &kept->execs[i];
        if (!exec->used)
            return exec;
        if (exec->running || exec->starting || has_streams(kept, exec))
            continue;
        if (!oldest || exec->age < oldest->age)
            oldest = exec;
    }
    if (oldest)
        free_exec(oldest);
    return oldest;
}

struct cordon_kept_exec *cordon_kept_exec_find(struct cordon_kept *kept, uint32_t pid)
{
    struct cordon_kept_exec *found = NULL;
    for (size_t i = 0; i < CORDON_KEPT_EXECS; i++) {
        struct cordon_kept_exec *exec = &kept->execs[i];
        if (!exec->used || exec->starting || (uint32_t)exec->pid != pid)
            continue;
        if (!found || exec->age > found->age) /* numbers of processes come again */
            found = exec;
    }
    return found;
}

/* --- the start --- */

/* Code opens its own ends again by /dev/stdin, /dev/stdout and /dev/stderr; they belong to the agent's uid. Only who
 * holds an end already can name the pipe. */
static int open_pipe(int pair[2])
{
    if (pipe2(pair, O_CLOEXEC) < 0)
        return -errno;
    return fchmod(pair[0], 0666) < 0 ? -errno : 0; /* both ends are one inode */
}

static int open_terminal(struct cordon_kept_exec *exec, uint32_t size, int ends[4])
{
    int unlock = 0;
    exec->pty = true;
    exec->out[CORDON_KEPT_OUT_STDOUT] = open("/dev/pts/ptmx", O_RDWR | O_NOCTTY | O_CLOEXEC | O_NONBLOCK);
    int terminal = exec->out[CORDON_KEPT_OUT_STDOUT];
    if (terminal < 0 || ioctl(terminal, TIOCSPTLCK, &unlock) < 0)
        return -errno;
    cordon_kept_exec_resize(exec, size);
    ends[0] = ioctl(terminal, TIOCGPTPEER, O_RDWR | O_NOCTTY | O_CLOEXEC);
    if (ends[0] < 0)
        return -errno;
    ends[1] = fcntl(ends[0], F_DUPFD_CLOEXEC, 0);
    ends[2] = fcntl(ends[0], F_DUPFD_CLOEXEC, 0);
    exec->in[CORDON_KEPT_IN_STDIN] = fcntl(terminal, F_DUPFD_CLOEXEC, 0);
    return ends[1] < 0 || ends[2] < 0 || exec->in[CORDON_KEPT_IN_STDIN] < 0 ? -errno : 0;
}

static int open_pipes(struct cordon_kept_exec *exec, bool with_stdin, int ends[4])
{
    int pair[2] = {-1, -1}, r = 0;
    if (with_stdin) {
        r = open_pipe(pair);
        ends[0] = pair[0];
        exec->in[CORDON_KEPT_IN_STDIN] = pair[1];
    }
    for (int i = 0; i < 2 && r == 0; i++) {
        pair[0] = pair[1] = -1;
        r = open_pipe(pair);
        exec->out[i] = pair[0];
        ends[1 + i] = pair[1];
    }
    return r;
}

static int open_channel(struct cordon_kept_exec *exec, int ends[4])
{
    int pair[2];
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) < 0)
        return -errno;
    ends[3] = pair[1];
    exec->out[CORDON_KEPT_OUT_CHANNEL] = pair[0];
    exec->in[CORDON_KEPT_IN_CHANNEL] = fcntl(pair[0], F_DUPFD_CLOEXEC, 0);
    return exec->in[CORDON_KEPT_IN_CHANNEL] < 0 ? -errno : 0;
}

static int set_nonblocking(int fd)
{
    int flags = fd < 0 ? 0 : fcntl(fd, F_GETFL);
    return fd >= 0 && (flags < 0 || fcntl(fd, F_SETFL, flags | O_NONBLOCK) < 0) ? -errno : 0;
}

static int open_ends(struct cordon_kept_exec *exec, const struct cordon_open *open, int ends[4])
{
    int r = open->terminal ? open_terminal(exec, open->terminal, ends)
                           : open_pipes(exec, open->flags & CORDON_OPEN_STDIN, ends);
    if (r == 0 && (open->flags & CORDON_OPEN_CHANNEL))
        r = open_channel(exec, ends);
    for (int i = 0; i < CORDON_KEPT_INS && r == 0; i++)
        r = set_nonblocking(exec->in[i]);
    for (int i = 0; i < CORDON_KEPT_OUTS && r == 0; i++)
        r = set_nonblocking(exec->out[i]);
    return r;
}

/* What is told of it later: the fields that say what it is, the arguments up to a size. */
static void remember(struct cordon_kept_exec *exec, const struct cordon_frame *frame)
{
    struct cordon_buf about = CORDON_BUF_INIT(4 * ABOUT_MAX);
    struct cordon_field field;
    size_t at = 0;
    while (cordon_field_next(frame->payload, frame->length, &at, &field) == 1) {
        bool told = field.tag == CORDON_FIELD_TAG || field.tag == CORDON_FIELD_USER || field.tag == CORDON_FIELD_CWD ||
                    field.tag == CORDON_FIELD_ARGUMENT;
        if (told && about.size + field.length < ABOUT_MAX)
            (void)cordon_field_put(&about, field.tag, field.data, field.length); /* failures stick in about.failed */
    }
    exec->about_size = about.failed ? 0 : about.size;
    exec->about = about.data; /* taken */
}

int cordon_kept_exec_start(struct cordon_kept *kept, struct cordon_kept_stream *stream, const struct cordon_open *open,
                           const struct cordon_frame *frame)
{
    int ends[4] = {-1, -1, -1, -1};
    struct cordon_kept_exec *exec = find_place(kept);
    if (!exec)
        return -EAGAIN;
    *exec = (struct cordon_kept_exec){.used = true,
                                      .starting = true,
                                      .age = ++kept->age,
                                      .launch = CORDON_LAUNCH_INIT,
                                      .listener = -1,
                                      .in = {-1, -1},
                                      .out = {-1, -1, -1}};
    exec->output_kill_bytes = open->output_kill_bytes;
    exec->deadline_us = open->timeout_us; /* until it runs: how long */
    int r = open_ends(exec, open, ends);
    if (r == 0)
        r = cordon_kept_launch(kept, &exec->launch, CORDON_LAUNCH_EXEC, frame->payload, frame->length, ends, exec->pty);
    for (int i = 0; i < 4; i++)
        cordon_close(&ends[i]); /* the program's */
    if (r < 0) {
        free_exec(exec);
        return r;
    }
    remember(exec, frame);
    stream->exec = exec;
    return 0;
}

static void fail_start(struct cordon_kept *kept, struct cordon_kept_exec *exec, int error, const char *stage)
{
    for (size_t i = 0; i < CORDON_KEPT_STREAMS; i++) {
        struct cordon_kept_stream *stream = &kept->streams[i];
        if (!stream->kind || stream->exec != exec)
            continue;
        if (!stream->ended)
            cordon_kept_fail(kept, stream, error, "%s: %s", stage, strerror(error));
        stream->exec = NULL;
    }
    free_exec(exec);
}

static void began(struct cordon_kept_exec *exec)
{
    exec->starting = false;
    exec->running = true;
    exec->started_us = cordon_now_us();
    exec->oom_kills_before = cordon_vm_count().oom_kills;
    if (exec->deadline_us)
        exec->deadline_us += exec->started_us;
    cordon_kept_launch_done(&exec->launch);
    if (exec->how) /* it was to be killed meanwhile */
        cordon_kept_kill_tree(exec->pid);
}

/* The child says who it is and hands over the listener, then nothing more: its end means that the program runs. */
static void read_start(struct cordon_kept *kept, struct cordon_kept_exec *exec)
{
    struct cordon_launched launched;
    int listener, r;
    while ((r = cordon_kept_launched(kept, &exec->launch, &launched, &listener)) == 1) {
        if (launched.error < 0) {
            cordon_close(&listener);
            fail_start(kept, exec, -launched.error, launched.stage);
            return;
        }
        exec->pid = launched.pid;
        if (listener >= 0) {
            cordon_close(&exec->listener);
            exec->listener = listener;
            cordon_agent_notify_setup(listener);
        }
    }
    if (r < 0 && exec->pid > 0)
        began(exec);
    else if (r < 0)
        fail_start(kept, exec, EAGAIN, "the process was ended before it became the program");
}

void cordon_kept_execs_settle_starts(struct cordon_kept *kept)
{
    for (size_t i = 0; i < CORDON_KEPT_EXECS; i++)
        if (kept->execs[i].used && kept->execs[i].starting)
            read_start(kept, &kept->execs[i]);
}

/* --- while it runs --- */

static void on_start(struct cordon_kept *kept, void *object, short events)
{
    struct cordon_kept_exec *exec = object;
    (void)events;
    if (exec->used && exec->starting)
        read_start(kept, exec);
}

static void on_denied(struct cordon_kept *kept, void *object, short events)
{
    struct cordon_kept_exec *exec = object;
    (void)kept;
    if (!exec->used || exec->listener < 0)
        return;
    if (!(events & POLLIN)) { /* nobody is left under the filter */
        cordon_close(&exec->listener);
        return;
    }
    for (int i = 0; i < ANSWERS_A_TURN && !cordon_pace_rests(&exec->pace); i++) {
        struct pollfd again = {.fd = exec->listener, .events = POLLIN};
        if (cordon_agent_notify_answer(exec->listener) == CORDON_NOTIFY_END) {
            cordon_close(&exec->listener); /* callers get ENOSYS from the kernel from now on */
            return;
        }
        cordon_pace_spend(&exec->pace, 1);
        if (poll(&again, 1, 0) != 1 || !(again.revents & POLLIN)) /* an answer would have to be waited for */
            return;
    }
}

void cordon_kept_execs_watch(struct cordon_kept *kept)
{
    for (size_t i = 0; i < CORDON_KEPT_EXECS; i++) {
        struct cordon_kept_exec *exec = &kept->execs[i];
        if (!exec->used)
            continue;
        if (exec->starting && exec->launch.status >= 0)
            cordon_kept_watch(kept, exec->launch.status, POLLIN, on_start, exec);
        if (exec->listener >= 0 && !cordon_pace_rests(&exec->pace))
            cordon_kept_watch(kept, exec->listener, POLLIN, on_denied, exec);
        cordon_kept_pump_watch(kept, exec);
    }
}

void cordon_kept_exec_resize(struct cordon_kept_exec *exec, uint32_t size)
{
    const struct winsize window = {.ws_col = (unsigned short)(size >> 16), .ws_row = (unsigned short)size};
    if (exec->pty && exec->out[CORDON_KEPT_OUT_STDOUT] >= 0)
        (void)ioctl(exec->out[CORDON_KEPT_OUT_STDOUT], TIOCSWINSZ, &window); /* a size that can't be set shows */
}

void cordon_kept_exec_kill(struct cordon_kept_exec *exec, uint32_t how)
{
    if (!exec->used || (!exec->running && !exec->starting) || exec->reaped)
        return;
    if (!exec->how)
        exec->how = how;
    if (exec->pid > 0)
        cordon_kept_kill_tree(exec->pid);
}

void cordon_kept_exec_signal(struct cordon_kept *kept, struct cordon_kept_exec *exec, int signal)
{
    (void)kept;
    if (signal == SIGKILL) {
        cordon_kept_exec_kill(exec, CORDON_ENDED_KILLED);
        return;
    }
    if (exec->running && !exec->reaped && exec->pid > 1 && kill(-exec->pid, signal) < 0)
        (void)kill(exec->pid, signal); /* it may have left its group; or be about to end */
}

/* --- the end --- */

void cordon_kept_execs_reaped(struct cordon_kept *kept, pid_t pid, int status)
{
    for (size_t i = 0; i < CORDON_KEPT_EXECS; i++) {
        struct cordon_kept_exec *exec = &kept->execs[i];
        if (!exec->used || exec->pid != pid || exec->reaped || !(exec->running || exec->starting))
            continue;
        exec->reaped = true;
        exec->wait_status = status;
        exec->settle_by_us = cordon_now_us() + TERMINAL_SETTLE_US;
        for (int which = 0; which < CORDON_KEPT_OUTS; which++) {
            exec->left[which] = 0;
            if (exec->out[which] >= 0)
                (void)ioctl(exec->out[which], FIONREAD, &exec->left[which]); /* else nothing is waited for */
        }
        return;
    }
}

static void end(struct cordon_kept_exec *exec)
{
    bool signalled = WIFSIGNALED(exec->wait_status);
    exec->running = false;
    exec->ended =
        (struct cordon_ended){.how = exec->how   ? exec->how
                                     : signalled ? CORDON_ENDED_SIGNALLED
                                                 : CORDON_ENDED_EXITED,
                              .status = signalled ? WTERMSIG(exec->wait_status) : WEXITSTATUS(exec->wait_status),
                              .run_us = cordon_now_us() - exec->started_us - exec->paused_us,
                              .stdout_bytes = exec->bytes[0],
                              .stderr_bytes = exec->bytes[1],
                              .oom_kills = cordon_vm_count().oom_kills - exec->oom_kills_before};
    if (exec->how && !signalled) /* it ended by itself just before */
        exec->ended.how = CORDON_ENDED_EXITED;
    for (int i = 0; i < CORDON_KEPT_INS; i++)
        cordon_close(&exec->in[i]);
    if (exec->pty)
        cordon_close(&exec->out[CORDON_KEPT_OUT_STDOUT]);
    cordon_close(&exec->out[CORDON_KEPT_OUT_CHANNEL]);
    /* What it left running may still write to its pipes: they are read on, and thrown away. */
}

void cordon_kept_execs_step(struct cordon_kept *kept)
{
    uint64_t now = cordon_now_us();
    for (size_t i = 0; i < CORDON_KEPT_EXECS; i++) {
        struct cordon_kept_exec *exec = &kept->execs[i];
        if (!exec->used)
            continue;
        if (exec->running && exec->deadline_us && now >= exec->deadline_us && !kept->paused_at_us) {
            exec->deadline_us = 0;
            cordon_kept_exec_kill(exec, CORDON_ENDED_TIMEOUT);
        }
        cordon_kept_pump_streams(kept, exec);
        if (!exec->running || !exec->reaped || !cordon_kept_pump_is_dry(exec))
            continue;
        end(exec);
        cordon_kept_pump_streams(kept, exec);
    }
}

static void sooner(uint64_t *when, uint64_t other)
{
    if (other && (!*when || other < *when))
        *when = other;
}

uint64_t cordon_kept_execs_due(const struct cordon_kept *kept)
{
    uint64_t due = 0;
    for (size_t i = 0; i < CORDON_KEPT_EXECS; i++) {
        const struct cordon_kept_exec *exec = &kept->execs[i];
        if (!exec->used)
            continue;
        sooner(&due, exec->pace.rest_until_us);
        if (exec->running && !kept->paused_at_us)
            sooner(&due, exec->deadline_us);
        if (exec->running && exec->reaped && exec->pty)
            sooner(&due, exec->settle_by_us);
    }
    return due;
}

void cordon_kept_execs_pause(struct cordon_kept *kept, bool paused)
{
    uint64_t now = cordon_now_us();
    if (paused) {
        kept->paused_at_us = kept->paused_at_us ? kept->paused_at_us : now;
        return;
    }
    uint64_t length = kept->paused_at_us ? now - kept->paused_at_us : 0;
    kept->paused_at_us = 0;
    for (size_t i = 0; i < CORDON_KEPT_EXECS; i++) {
        struct cordon_kept_exec *exec = &kept->execs[i];
        if (!exec->used || !exec->running)
            continue;
        exec->paused_us += length;
        exec->deadline_us += exec->deadline_us ? length : 0;
    }
}

/* --- telling of them --- */

static void tell_one(struct cordon_kept *kept, struct cordon_kept_stream *stream, const struct cordon_kept_exec *exec)
{
    struct cordon_buf info = CORDON_BUF_INIT(CORDON_FRAME_DATA_MAX);
    char ended[CORDON_ENDED_SIZE];
    (void)cordon_field_put_u32(&info, CORDON_FIELD_PID, (uint32_t)exec->pid); /* failures stick in info.failed */
    if (exec->pty)
        (void)cordon_field_put_u32(&info, CORDON_FIELD_TERMINAL, 1);
    if (!exec->running) {
        cordon_ended_write(ended, &exec->ended);
        (void)cordon_field_put(&info, CORDON_FIELD_ENDED, ended, sizeof ended);
    }
    if (exec->about_size)
        (void)cordon_buf_append(&info, exec->about, exec->about_size);
    if (!info.failed)
        cordon_kept_send(kept, CORDON_FRAME_INFO, stream->id, info.data, (uint32_t)info.size);
    cordon_buf_done(&info);
}

void cordon_kept_execs_tell(struct cordon_kept *kept, struct cordon_kept_stream *stream)
{
    for (int running = 1; running >= 0; running--)
        for (size_t i = 0; i < CORDON_KEPT_EXECS; i++) {
            const struct cordon_kept_exec *exec = &kept->execs[i];
            if (exec->used && !exec->starting && exec->running == running)
                tell_one(kept, stream, exec);
        }
    cordon_kept_send(kept, CORDON_FRAME_DONE, stream->id, NULL, 0);
    stream->ended = true;
}
