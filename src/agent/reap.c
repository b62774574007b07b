/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Ends of processes. In a guest the agent is process 1: kill(-1) reaches all others at once and atomically with
 * respect to forks (a fork fails while a signal is pending), and every orphan becomes our child, so that waitpid()
 * finding none means that nothing runs. Without isolation the agent is a subreaper: it stops and kills its own
 * descendants until none are left, and never anything else.
 */
#include <assert.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "agent/agent.h"
#include "base/fd.h"

#define REAP_ROUNDS 256  /* a storm of zombies must not starve the rest */
#define FAMILY_MAX 16384 /* descendants seen in one sweep */
#define SWEEPS 100

static void reaped_program(struct cordon_agent *agent, struct cordon_agent_exec *exec, int status)
{
    exec->dead = true;
    if (exec->state == CORDON_AGENT_PARKED || exec->state == CORDON_AGENT_WAITING) {
        char why[96];
        (void)snprintf(why, sizeof why, "the parked interpreter ended: %s %d",
                       WIFSIGNALED(status) ? "signal" : "exit status",
                       WIFSIGNALED(status) ? WTERMSIG(status) : WEXITSTATUS(status));
        cordon_agent_quit(agent, 1, why); /* so that the guest is not given out, or the run ends at once */
    }
    if (exec->state != CORDON_AGENT_RUNNING)
        return;
    if (WIFSIGNALED(status))
        cordon_agent_exec_end(agent, exec, CORDON_EXIT_SIGNALLED, WTERMSIG(status));
    else
        cordon_agent_exec_end(agent, exec, CORDON_EXIT_EXITED, WEXITSTATUS(status));
}

/* Not a program's first process: an orphan. One that dies of our SIGKILL was alive when the program had ended. */
static void reaped_orphan(struct cordon_agent *agent, int status)
{
    if (!agent->config.isolated || !WIFSIGNALED(status) || WTERMSIG(status) != SIGKILL)
        return;
    for (size_t i = 0; i < CORDON_AGENT_EXECS; i++) {
        if (agent->execs[i].state == CORDON_AGENT_ENDING && !agent->execs[i].counted)
            agent->execs[i].exit.processes_left++;
    }
}

static void reaped(struct cordon_agent *agent, pid_t pid, int status)
{
    if (pid == agent->worker.pid) {
        agent->worker.pid = 0; /* what it achieved it has told */
        return;
    }
    for (size_t i = 0; i < CORDON_AGENT_EXECS; i++) {
        struct cordon_agent_exec *exec = &agent->execs[i];
        bool unknown = exec->pid == 0 && exec->state == CORDON_AGENT_RUNNING && cordon_agent_alone();
        if (exec->state != CORDON_AGENT_FREE && (exec->pid == pid || unknown) && !exec->dead) {
            reaped_program(agent, exec, status);
            return;
        }
    }
    reaped_orphan(agent, status);
}

void cordon_agent_reap(struct cordon_agent *agent)
{
    agent->reap_again = false;
    for (int round = 0; round < REAP_ROUNDS; round++) {
        int status;
        pid_t pid = waitpid(-1, &status, WNOHANG);
        if (pid <= 0)
            return;
        reaped(agent, pid, status);
    }
    agent->reap_again = true;
}

bool cordon_agent_alone(void)
{
    siginfo_t info;
    return waitid(P_ALL, 0, &info, WEXITED | WNOHANG | WNOWAIT) < 0 && errno == ECHILD;
}

int64_t cordon_agent_last_pid(const struct cordon_agent *agent)
{
    char text[24];
    if (agent->last_pid_fd < 0)
        return -1;
    ssize_t n = pread(agent->last_pid_fd, text, sizeof text - 1, 0);
    if (n <= 0)
        return -1;
    text[n] = '\0';
    return strtoll(text, NULL, 10);
}

/* Appends the children of one of a process's threads. */
static size_t add_thread(int tasks, const char *thread, pid_t *list, size_t count)
{
    char path[40], text[8192];
    (void)snprintf(path, sizeof path, "%.20s/children", thread);
    if (cordon_read_file(tasks, path, text, sizeof text) <= 0)
        return count;
    char *next = text, *end;
    for (long pid = strtol(next, &end, 10); end != next && count < FAMILY_MAX; pid = strtol(next, &end, 10)) {
        list[count++] = (pid_t)pid;
        next = end;
    }
    return count;
}

static size_t add_children(pid_t parent, pid_t *list, size_t count)
{
    char path[40];
    (void)snprintf(path, sizeof path, "/proc/%d/task", (int)parent);
    DIR *tasks = opendir(path);
    if (!tasks)
        return count;
    for (struct dirent *entry = readdir(tasks); entry; entry = readdir(tasks)) {
        if (*entry->d_name >= '0' && *entry->d_name <= '9')
            count = add_thread(dirfd(tasks), entry->d_name, list, count);
    }
    (void)closedir(tasks); /* only read from */
    return count;
}

/* Stopped first, a process can't fork between the look at its children and its end. */
static size_t kill_family(void)
{
    static pid_t list[FAMILY_MAX];
    size_t count = add_children(getpid(), list, 0);
    for (size_t i = 0; i < count; i++) {
        (void)kill(list[i], SIGSTOP); /* it may have ended meanwhile */
        count = add_children(list[i], list, count);
    }
    for (size_t i = 0; i < count; i++)
        (void)kill(list[i], SIGKILL);
    return count;
}

static bool program_lives(const struct cordon_agent *agent)
{
    for (size_t i = 0; i < CORDON_AGENT_EXECS; i++) {
        if (agent->execs[i].state != CORDON_AGENT_FREE && agent->execs[i].pid && !agent->execs[i].dead)
            return true;
    }
    return false;
}

uint32_t cordon_agent_kill_all(struct cordon_agent *agent)
{
#ifdef CORDON_WEAKEN_KILL_ORPHANS
    for (size_t i = 0; i < CORDON_AGENT_EXECS; i++) {
        if (agent->execs[i].pid && !agent->execs[i].dead)
            (void)kill(agent->execs[i].pid, SIGKILL);
    }
    return 0;
#endif
    if (agent->config.isolated) {
        assert(getpid() == 1);   /* checked at the start: anywhere else this would end the host */
        (void)kill(-1, SIGKILL); /* ESRCH: nobody is left */
        return 0;
    }
    size_t program = program_lives(agent) ? 1 : 0, seen = kill_family();
    for (int sweep = 0; sweep < SWEEPS && !cordon_agent_alone(); sweep++) {
        struct timespec pause = {.tv_nsec = 200000};
        (void)nanosleep(&pause, NULL); /* waiting for death; a shorter one only sweeps once more */
        cordon_agent_reap(agent);
        (void)kill_family(); /* children of what died come to us, and may have been missed above */
    }
    return seen > program ? (uint32_t)(seen - program) : 0;
}
