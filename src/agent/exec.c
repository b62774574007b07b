/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The life of an exec. Its end has steps, each taken when the loop comes by, so that a host that does not read or a
 * process that is slow to die holds up nothing else:
 *
 *   1. the end is known: the driver announced it, the program was reaped, the host killed, a stream was too loud;
 *   2. all that runs is killed and has gone (settled), or is given up on after a while;
 *   3. the driver channel and both pipes are empty: nothing can be written to them any more;
 *   4. EXIT.
 *
 * The common run has one process that announced its end. Where the pid namespace gave out no number since the job was
 * handed over, there can be nothing else to wait for: EXIT goes out before the kill, since tearing down an
 * interpreter's memory takes as long as a short run. Where there were new numbers, they may be of threads only, which
 * /proc tells.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "agent/agent.h"
#include "agent/vm.h"
#include "base/clock.h"
#include "base/fd.h"

#define SETTLE_US 20000       /* how long EXIT waits for what was killed to be gone: it may be within a write */
#define SETTLE_KILLED_US 3000 /* the same when the host is waiting at a deadline */
#define LATE_US 30000         /* the host ends a program in time, unless its client holds it up */
#define DRAIN_ROUNDS 80       /* reads in one turn: more than the largest pipe holds */
#define LOOKS 64              /* processes of which it is found out whether they are zombies */
#define YOUNG_NS 20000000     /* two writes within this may carry one time stamp (a jiffy of 4 to 10 ms) */

struct cordon_agent_exec *cordon_agent_exec_find(struct cordon_agent *agent, uint16_t id)
{
    for (size_t i = 0; i < CORDON_AGENT_EXECS; i++) {
        if (agent->execs[i].state > CORDON_AGENT_PARKED && agent->execs[i].id == id)
            return &agent->execs[i];
    }
    return NULL;
}

void cordon_agent_exec_init(struct cordon_agent_exec *exec)
{
    memset(exec, 0, sizeof *exec);
    exec->driver_fd = exec->stdin_fd = exec->result_fd = exec->listener = -1;
    exec->stream[0].fd = exec->stream[1].fd = -1;
    exec->stream[0].credit = exec->stream[1].credit = CORDON_CREDIT_INITIAL;
    exec->job.max = CORDON_FRAME_MAX + CORDON_FRAME_HEADER;
    exec->input.max = CORDON_STDIN_WINDOW;
}

static struct cordon_agent_exec *find_parked(struct cordon_agent *agent)
{
    for (size_t i = 0; i < CORDON_AGENT_EXECS; i++) {
        if (agent->execs[i].state == CORDON_AGENT_PARKED)
            return &agent->execs[i];
    }
    return NULL;
}

static uint32_t cpus_of(uint32_t percent)
{
    return percent ? (percent + 99) / 100 : 1;
}

static int apply_limits(struct cordon_agent *agent, struct cordon_agent_exec *exec,
                        const struct cordon_exec_limits *limits)
{
    struct cordon_agent_config *config = &agent->config;
    exec->stream[0].cap = limits->stdout_bytes;
    exec->stream[1].cap = limits->stderr_bytes;
    exec->output_kill_bytes = limits->output_kill_bytes;
    uint64_t memory = limits->memory_bytes ? limits->memory_bytes : config->memory_bytes;
    uint32_t cpus = limits->cpu_percent ? cpus_of(limits->cpu_percent) : config->cpus;
    if (config->isolated && (memory != config->memory_bytes || cpus != config->cpus))
        cordon_agent_tell_limits(memory, cpus);
    config->memory_bytes = memory;
    config->cpus = cpus;
    return config->isolated ? cordon_agent_resize_files(limits->disk_bytes, limits->disk_inodes) : 0;
}

static int read_job(const struct cordon_buf *job, struct cordon_agent_exec *exec, struct cordon_exec_limits *limits)
{
    struct cordon_field field;
    size_t at = 0;
    int r;
    while ((r = cordon_field_next(job->data, job->size, &at, &field)) == 1) {
        if (field.tag == CORDON_FIELD_LIMITS)
            r = cordon_exec_limits_parse(&field, limits);
        else if (field.tag == CORDON_FIELD_FLAGS)
            r = cordon_field_u32(&field, &exec->flags);
        else if (field.tag == CORDON_FIELD_TIMEOUT)
            r = cordon_field_u64(&field, &exec->timeout_us);
        if (r < 0)
            return r;
    }
    return r;
}

/* A zygote forked the program into the guest: it is our only child, if its driver did not tell its number already. */
static void find_program(struct cordon_agent_exec *exec)
{
    char text[64], path[64];
    (void)snprintf(path, sizeof path, "/proc/self/task/%d/children", (int)getpid());
    if (exec->pid == 0 && cordon_read_file(AT_FDCWD, path, text, sizeof text) > 0)
        exec->pid = (pid_t)strtol(text, NULL, 10);
}

static bool is_young(const struct stat *st, const struct timespec *now)
{
    int64_t age = (now->tv_sec - st->st_ctim.tv_sec) * 1000000000 + (now->tv_nsec - st->st_ctim.tv_nsec);
    return age < YOUNG_NS;
}

static void look_before(struct cordon_agent *agent, struct cordon_agent_exec *exec)
{
    struct timespec now;
    (void)clock_gettime(CLOCK_REALTIME, &now); /* can't fail for this clock */
    if (fstat(agent->workdir_fd, &exec->before[0]) < 0 || fstat(agent->artifacts_fd, &exec->before[1]) < 0)
        exec->before_unsure = true;
    else
        exec->before_unsure = is_young(&exec->before[0], &now) || is_young(&exec->before[1], &now);
}

static bool same_dir(int fd, const struct stat *before)
{
    struct stat st;
    return fstat(fd, &st) == 0 && st.st_ctim.tv_sec == before->st_ctim.tv_sec &&
           st.st_ctim.tv_nsec == before->st_ctim.tv_nsec && st.st_size == before->st_size &&
           st.st_nlink == before->st_nlink;
}

static bool may_have_artifacts(const struct cordon_agent *agent, const struct cordon_agent_exec *exec)
{
    if (!(exec->flags & CORDON_EXEC_ARTIFACTS))
        return false;
    return exec->before_unsure || agent->files_put || !same_dir(agent->workdir_fd, &exec->before[0]) ||
           !same_dir(agent->artifacts_fd, &exec->before[1]);
}

static void start(struct cordon_agent *agent, struct cordon_agent_exec *exec)
{
    look_before(agent, exec);
    if (agent->config.isolated)
        exec->tasks_before = cordon_agent_last_pid(agent);
    exec->state = CORDON_AGENT_RUNNING;
    exec->exit = (struct cordon_exit){0};
    exec->denied = 0;
    if (exec->timeout_us && exec->timeout_us < UINT64_MAX / 2)
        exec->deadline_us = cordon_now_us() + exec->timeout_us + LATE_US;
    if (!(exec->flags & CORDON_EXEC_STDIN))
        cordon_agent_stdin_end(exec);
    cordon_agent_link_job(agent, exec);
}

/* An EXEC that can't be done: the program is never started, and its guest is of no more use. */
static void refuse(struct cordon_agent *agent, struct cordon_agent_exec *exec)
{
    exec->state = CORDON_AGENT_ENDED;
    (void)cordon_agent_kill_all(agent); /* nothing but the parked interpreter is there */
}

void cordon_agent_exec_begin(struct cordon_agent *agent, uint16_t id, struct cordon_buf *payload_taken)
{
    struct cordon_agent_exec *exec = find_parked(agent);
    struct cordon_exec_limits limits = {.stdout_bytes = UINT64_MAX, .stderr_bytes = UINT64_MAX};
    if (!exec || id == 0) {
        cordon_agent_send_error(agent, id, EBUSY, NULL, "this guest has no interpreter that waits for a program");
        cordon_buf_done(payload_taken);
        return;
    }
    (void)cordon_agent_link_pump(agent, exec); /* the listener comes before the job or never */
    find_program(exec);
    exec->id = id;
    exec->job = *payload_taken;
    *payload_taken = (struct cordon_buf){0};
    int r = read_job(&exec->job, exec, &limits);
    if (r < 0) {
        cordon_agent_send_error(agent, id, -r, NULL, "the request to start a program is malformed");
        refuse(agent, exec);
        return;
    }
    r = apply_limits(agent, exec, &limits);
    if (r < 0) {
        cordon_agent_send_error(agent, id, -r, NULL, "setting the size of the guest's files to %llu bytes failed: %s",
                                (unsigned long long)limits.disk_bytes, strerror(-r));
        refuse(agent, exec);
        return;
    }
    exec->state = CORDON_AGENT_WAITING;
    cordon_agent_worker_hang_up(agent);
    cordon_agent_exec_release(agent);
}

void cordon_agent_exec_release(struct cordon_agent *agent)
{
    if (agent->worker.fd >= 0)
        return;
    for (size_t i = 0; i < CORDON_AGENT_EXECS; i++) {
        struct cordon_agent_exec *exec = &agent->execs[i];
        if (exec->state != CORDON_AGENT_WAITING)
            continue;
        if (agent->files_failed)
            refuse(agent, exec);
        else
            start(agent, exec);
    }
}

/* A process that has ended and only waits for its parent to notice. */
static bool is_zombie(int proc, const char *name)
{
    char path[32], text[256];
    (void)snprintf(path, sizeof path, "%.20s/stat", name);
    if (cordon_read_file(proc, path, text, sizeof text) <= 0)
        return true;                      /* gone */
    const char *end = strrchr(text, ')'); /* of its name, which may hold anything */
    return end && (end[1] == ' ') && (end[2] == 'Z' || end[2] == 'X');
}

/* How many live besides the agent and the program; -1 when it can't be told, as without isolation. */
static int count_others(const struct cordon_agent *agent, const struct cordon_agent_exec *exec)
{
    int others = 0, looked_at = 0;
    bool seen = false;
    if (cordon_vm.on)
        return cordon_vm_others(exec->pid);
    DIR *proc = agent->config.isolated ? opendir("/proc") : NULL;
    if (!proc)
        return -1;
    for (struct dirent *entry = readdir(proc); entry; entry = readdir(proc)) {
        long pid = *entry->d_name >= '0' && *entry->d_name <= '9' ? strtol(entry->d_name, NULL, 10) : 0;
        seen |= pid == exec->pid;
        if (pid > 1 && pid != exec->pid)
            others += ++looked_at > LOOKS || !is_zombie(dirfd(proc), entry->d_name);
    }
    (void)closedir(proc); /* only read from */
    return others || (seen && exec->pid > 1) ? others : -1;
}

void cordon_agent_exec_end(struct cordon_agent *agent, struct cordon_agent_exec *exec, enum cordon_exit_how how,
                           int status)
{
    if (exec->state != CORDON_AGENT_RUNNING)
        return;
    exec->state = CORDON_AGENT_ENDING;
    exec->exit.how = how;
    exec->exit.status = status;
    bool hurry = exec->killed_by_host || how >= CORDON_EXIT_OUTPUT_LIMIT;
    int others = count_others(agent, exec); /* at once: a busy host lets them die slowly */
    exec->counted = others >= 0;
    exec->settle_by_us = cordon_now_us() + (hurry ? SETTLE_KILLED_US : SETTLE_US);
    exec->exit.processes_left = cordon_agent_kill_all(agent);
    if (exec->counted)
        exec->exit.processes_left = (uint32_t)others;
}

static void end_announced(struct cordon_agent *agent, struct cordon_agent_exec *exec)
{
    if (exec->tasks_before > 0 && exec->tasks_before == cordon_agent_last_pid(agent)) {
        exec->state = CORDON_AGENT_ENDING;
        exec->settled = exec->alone = true; /* it has said all it has to say: killed once EXIT is out */
        return;
    }
    if (count_others(agent, exec) == 0) { /* but its threads may: they have to stop before the pipes are emptied */
        exec->state = CORDON_AGENT_ENDING;
        exec->settled = exec->alone = true;
        (void)cordon_agent_kill_all(agent);
        return;
    }
    cordon_agent_exec_end(agent, exec, CORDON_EXIT_EXITED, exec->exit.status);
}

static void finish(struct cordon_agent *agent, struct cordon_agent_exec *exec)
{
    struct cordon_exit *exit = &exec->exit;
    exit->stdout_bytes = exec->stream[0].total;
    exit->stderr_bytes = exec->stream[1].total;
    exit->syscalls_denied = exec->denied;
    memcpy(exit->blocked_syscall, exec->blocked, sizeof exit->blocked_syscall);
    exit->may_have_artifacts = may_have_artifacts(agent, exec);
    const struct cordon_vm_counts counts = cordon_vm_count();
    exit->oom_kills = counts.oom_kills;
    exit->cpu_us = counts.cpu_us;
    exit->memory_peak_bytes = counts.memory_peak_bytes;
    struct cordon_buf buf = CORDON_BUF_INIT(256);
    if (cordon_exit_put(&buf, exec->id, exit) < 0)
        cordon_agent_quit(agent, 1, "no memory to tell the end of a program");
    cordon_agent_send(agent, CORDON_FRAME_EXIT, exec->id, buf.data + CORDON_FRAME_HEADER,
                      (uint32_t)(buf.size - CORDON_FRAME_HEADER));
    cordon_buf_done(&buf);
    exec->state = CORDON_AGENT_ENDED;
    cordon_agent_out_flush(agent);
    (void)cordon_agent_kill_all(agent); /* the program itself, where it was alone; else a second look costs nothing */
    cordon_close(&exec->driver_fd);
    cordon_close(&exec->stdin_fd);
    cordon_close(&exec->result_fd);
    cordon_close(&exec->stream[0].fd);
    cordon_close(&exec->stream[1].fd);
    cordon_buf_done(&exec->job);
    cordon_buf_done(&exec->input);
}

static bool streams_empty(struct cordon_agent *agent, struct cordon_agent_exec *exec)
{
    for (int which = 0; which < 2; which++) {
        struct cordon_agent_stream *stream = &exec->stream[which];
        stream->empty = false;
        for (int round = 0; round < DRAIN_ROUNDS && cordon_agent_stream_pump(agent, exec, which); round++)
            continue;
        if (stream->fd >= 0 && !stream->empty)
            return false; /* the host has to read, or to give credit */
    }
    return true;
}

static bool settled(struct cordon_agent_exec *exec)
{
    if (!exec->settled && (cordon_agent_alone() || cordon_now_us() >= exec->settle_by_us)) {
        exec->settled = true;
        if (!exec->counted && !exec->exit.processes_left && exec->dead && !cordon_agent_alone())
            exec->exit.processes_left = 1; /* not reaped, so not counted, but there */
    }
    return exec->settled;
}

void cordon_agent_exec_step(struct cordon_agent *agent, struct cordon_agent_exec *exec)
{
    if (exec->state == CORDON_AGENT_RUNNING && exec->announced)
        end_announced(agent, exec);
    if (exec->state == CORDON_AGENT_RUNNING && exec->deadline_us && cordon_now_us() >= exec->deadline_us)
        cordon_agent_exec_end(agent, exec, CORDON_EXIT_TIMEOUT, SIGKILL);
    if (exec->state != CORDON_AGENT_ENDING || !settled(exec))
        return;
    if (cordon_agent_link_pump(agent, exec) && streams_empty(agent, exec))
        finish(agent, exec);
    else if (exec->alone)
        (void)cordon_agent_kill_all(agent); /* announced, and yet it goes on writing; or the host is slow to read */
}

void cordon_agent_exec_kill(struct cordon_agent *agent, struct cordon_agent_exec *exec, int signal)
{
    if (signal == SIGKILL) {
        exec->killed_by_host = true;
        if (exec->state == CORDON_AGENT_RUNNING)
            cordon_agent_exec_end(agent, exec, CORDON_EXIT_SIGNALLED, SIGKILL);
        exec->settle_by_us = cordon_now_us() + SETTLE_KILLED_US;
        return;
    }
    if (exec->state != CORDON_AGENT_RUNNING || exec->pid <= 1 || exec->dead)
        return;
    if (getpgid(exec->pid) == exec->pid)
        (void)kill(-exec->pid, signal); /* it may just have ended */
    else
        (void)kill(exec->pid, signal);
}

void cordon_agent_exec_watch(struct cordon_agent *agent, struct cordon_agent_exec *exec)
{
    if (exec->state == CORDON_AGENT_FREE)
        return;
    if (cordon_agent_pace_rests(exec)) {
        cordon_agent_stdin_watch(agent, exec);
        return;
    }
    cordon_agent_notify_watch(agent, exec);
    if (exec->state == CORDON_AGENT_ENDED)
        return;
    cordon_agent_link_watch(agent, exec);
    if (exec->state < CORDON_AGENT_RUNNING)
        return;
    cordon_agent_stream_watch(agent, exec);
    cordon_agent_stdin_watch(agent, exec);
}
