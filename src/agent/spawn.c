/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Children of the agent that become the code: the interpreter in mode spawn, and the workers. Descriptors are put in
 * their places first, so that becoming the code is the last thing but exec, and nothing of the agent's leaks.
 */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "agent/agent.h"
#include "agent/vm.h"
#include "base/fd.h"
#include "base/trust.h"
#include "isolate/code.h"
#include "isolate/root.h"

#define RESULT_FD 6 /* bash: where its result goes, until the job comes */

void cordon_agent_close_from(int first)
{
    if (syscall(SYS_close_range, (unsigned)first, ~0u, 0u) == 0)
        return;
    for (int fd = first; fd < 1024; fd++) /* kernels before 5.9 */
        (void)close(fd);
}

static void join_cgroups(const struct cordon_agent *agent, const char **stage, int *error)
{
    for (int i = 0; i < agent->config.cgroups && !*error; i++) {
        if (write(CORDON_AGENT_CGROUPS + i, "0", 1) == 1)
            continue;
        *error = -errno;
        *stage = "joining its control groups";
    }
}

int cordon_agent_become_code(const struct cordon_agent *agent, bool join, uint32_t open_files, int *listener,
                             const char **stage)
{
    const struct cordon_agent_config *config = &agent->config;
    struct cordon_code_profile profile = {
        .uid = config->code_uid,
        .gid = config->code_gid,
        .open_files = open_files,
        .processes = config->processes,
        .filter_fd = CORDON_AGENT_FILTER,
        .workdir = config->workdir,
        .keep_ids = !config->isolated,
    };
    int error = 0;
    if (join)
        join_cgroups(agent, stage, &error);
    if (error)
        return error;
    cordon_agent_close_from(CORDON_AGENT_CGROUPS); /* the rest below is for the caller to place */
    error = cordon_code_become(&profile, listener, stage);
    if (error < 0)
        return error;
    if (!config->isolated) /* without a pid namespace this is what ends it should the agent be killed */
        (void)prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0);
    return 0;
}

/* Tells the agent over the driver channel, which it reads while the interpreter is parked. */
static void __attribute__((noreturn)) give_up(const char *stage, int error)
{
    char frame[CORDON_FRAME_HEADER + 200];
    int n = snprintf(frame + CORDON_FRAME_HEADER, 200, "cordon-agent: %s: %s", stage, strerror(-error));
    cordon_frame_header(frame, CORDON_DRIVER_RESULT_ERROR, 0, (uint32_t)n);
    (void)send(CORDON_DRIVER_FD, frame, CORDON_FRAME_HEADER + (size_t)n,
               MSG_NOSIGNAL); /* the exit status says it too */
    _exit(127);
}

static void exec_interpreter(const struct cordon_agent_config *config)
{
    char home[4200];
    (void)snprintf(home, sizeof home, "HOME=%s", config->workdir);
    bool python = strcmp(config->language, "python") == 0;
    /* Node looks at it when it starts, which is before it is known what its program gets. Guests without headers put
     * into their requests never see a certificate of that authority. */
    static char authority[] = "NODE_EXTRA_CA_CERTS=" CORDON_TRUST_FOLDER CORDON_TRUST_AUTHORITY;
    bool trusts = !python && access(strchr(authority, '=') + 1, R_OK) == 0;
    char *const env[] = {home,
                         (char[]){"PATH=/usr/local/bin:/usr/bin:/bin"},
                         (char[]){"LANG=C.UTF-8"},
                         (char[]){"NODE_PATH=" CORDON_ROOT_NODE_PATH},
                         trusts ? authority : NULL,
                         NULL};
    static char awaited_word[] = "awaited";
    char *argument = config->argument ? strdup(config->argument) : config->awaited ? awaited_word : NULL;
    char *const with_flag[] = {strdup(config->interpreter), (char[]){"-I"}, strdup(config->driver), argument, NULL};
    char *const without[] = {with_flag[0], with_flag[2], argument, NULL};
    if (with_flag[0] && with_flag[2])
        (void)execve(config->interpreter, python ? with_flag : without, env); /* returns only on failure */
}

struct ends {
    int driver[2], in[2], out[2], err[2], result[2]; /* [0] read end, [1] write end; driver[0] is the agent's */
};

static void __attribute__((noreturn)) child(const struct cordon_agent *agent, const struct ends *ends)
{
    const char *stage = "placing descriptors";
    int listener = -1, r = 0;
    /* All sources lie above the targets: see launch.h for what an agent has open in this mode. */
    if (dup2(ends->driver[1], CORDON_DRIVER_FD) < 0 || dup2(ends->in[0], 0) < 0 || dup2(ends->out[1], 1) < 0 ||
        dup2(ends->err[1], 2) < 0 || (ends->result[1] >= 0 && dup2(ends->result[1], RESULT_FD) < 0))
        give_up(stage, -errno);
    for (int fd = ends->result[1] >= 0 ? RESULT_FD + 1 : RESULT_FD; fd < CORDON_AGENT_CGROUPS; fd++)
        (void)close(fd);
    r = cordon_agent_become_code(agent, cordon_vm_joins(), agent->config.open_files, &listener, &stage);
    if (r < 0)
        give_up(stage, r);
    (void)close(CORDON_AGENT_FILTER);
    if (listener >= 0) {
        char header[CORDON_FRAME_HEADER];
        cordon_frame_header(header, CORDON_DRIVER_LISTENER, 0, 0);
        ssize_t n = cordon_send_fds(CORDON_DRIVER_FD, header, sizeof header, &listener, 1, 0);
        if (n < 0)
            give_up("handing over the system call listener", (int)n);
        (void)close(listener);
    }
    if (strcmp(agent->config.language, "bash") == 0)
        cordon_agent_bash(&agent->config, CORDON_DRIVER_FD, CORDON_DRIVER_READY_FD, RESULT_FD);
    exec_interpreter(&agent->config);
    give_up(agent->config.interpreter, -errno);
}

static void close_ends(struct ends *ends)
{
    int *all[] = {ends->driver, ends->in, ends->out, ends->err, ends->result};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        cordon_close(&all[i][0]);
        cordon_close(&all[i][1]);
    }
}

/* Code opens its own ends again by /dev/stdin, /dev/stdout and /dev/stderr; they belong to the agent's uid. Only who
 * holds an end already can name the pipe. */
static int open_to_code(const struct ends *ends)
{
    const int pipes[] = {ends->in[0], ends->out[0], ends->err[0], ends->result[0]}; /* both ends are one inode */
    for (size_t i = 0; i < sizeof pipes / sizeof *pipes; i++)
        if (pipes[i] >= 0 && fchmod(pipes[i], 0666) < 0)
            return -errno;
    return 0;
}

static int open_ends(struct ends *ends, bool with_result)
{
    memset(ends, -1, sizeof *ends);
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends->driver) < 0 || pipe2(ends->in, O_CLOEXEC) < 0 ||
        pipe2(ends->out, O_CLOEXEC) < 0 || pipe2(ends->err, O_CLOEXEC) < 0 ||
        (with_result && pipe2(ends->result, O_CLOEXEC) < 0) || open_to_code(ends) < 0) {
        int error = -errno;
        close_ends(ends);
        return error;
    }
    return 0;
}

int cordon_agent_spawn(struct cordon_agent *agent, struct cordon_agent_exec *exec)
{
    struct ends ends;
    bool bash = strcmp(agent->config.language, "bash") == 0;
    int r = open_ends(&ends, bash);
    if (r < 0)
        return r;
    pid_t pid = fork();
    if (pid < 0) {
        r = -errno;
        close_ends(&ends);
        return r;
    }
    if (pid == 0)
        child(agent, &ends);
    exec->pid = pid;
    exec->by_bash = bash;
    exec->driver_fd = CORDON_TAKE_FD(ends.driver[0]);
    exec->stdin_fd = CORDON_TAKE_FD(ends.in[1]);
    exec->stream[0].fd = CORDON_TAKE_FD(ends.out[0]);
    exec->stream[1].fd = CORDON_TAKE_FD(ends.err[0]);
    exec->result_fd = CORDON_TAKE_FD(ends.result[0]);
    close_ends(&ends);
    return 0;
}
