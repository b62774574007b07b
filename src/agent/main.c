/* SPDX-License-Identifier: Apache-2.0 */
/* cordon-agent: process 1 of a guest. See launch.h for how it is started and agent.h for how it works. */
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "agent/agent.h"
#include "agent/nursery.h"
#include "agent/vm.h"
#include "base/clock.h"
#include "base/fd.h"
#include "isolate/root.h"

#define MACHINE_DATA_BYTES (180u << 20) /* a smaller machine has no room for numpy and pandas beside the program's */

static struct cordon_agent the_agent; /* large, and only the pages in use exist */

void cordon_agent_quit(struct cordon_agent *agent, int status, const char *why)
{
    if (why)
        (void)dprintf(STDERR_FILENO, "cordon-agent: %s\n", why); /* the log is all there is */
    if (!agent->config.isolated)
        (void)cordon_agent_kill_all(agent); /* in a guest the kernel does that when process 1 goes */
    if (why && cordon_vm.on && !cordon_vm.leased)
        cordon_vm_fail(why, -ECHILD); /* so that who waits for the machine hears it */
    cordon_vm_leave();
    _exit(status);
}

void cordon_agent_watch(struct cordon_agent *agent, int fd, short events, cordon_agent_on_event *on_event,
                        struct cordon_agent_exec *exec)
{
    size_t i = agent->sources++;
    agent->poll[i] = (struct pollfd){.fd = fd, .events = events};
    agent->source[i].on_event = on_event;
    agent->source[i].exec = exec;
}

static bool parse_number(const char *text, uint64_t most, uint64_t *ret)
{
    char *end;
    errno = 0;
    unsigned long long value = strtoull(text, &end, 10);
    if (errno || end == text || *end || value > most)
        return false;
    *ret = value;
    return true;
}

static bool parse_key(struct cordon_agent_config *config, const char *key, size_t key_size, const char *value)
{
    static const struct {
        const char *key;
        size_t offset;
        enum { TEXT, U32, U64, FLAG } type;
    } rows[] = {
        {"language", offsetof(struct cordon_agent_config, language), TEXT},
        {"workdir", offsetof(struct cordon_agent_config, workdir), TEXT},
        {"interpreter", offsetof(struct cordon_agent_config, interpreter), TEXT},
        {"driver", offsetof(struct cordon_agent_config, driver), TEXT},
        {"code_uid", offsetof(struct cordon_agent_config, code_uid), U32},
        {"code_gid", offsetof(struct cordon_agent_config, code_gid), U32},
        {"cpus", offsetof(struct cordon_agent_config, cpus), U32},
        {"open_files", offsetof(struct cordon_agent_config, open_files), U32},
        {"processes", offsetof(struct cordon_agent_config, processes), U32},
        {"memory", offsetof(struct cordon_agent_config, memory_bytes), U64},
        {"isolated", offsetof(struct cordon_agent_config, isolated), FLAG},
        {"told", offsetof(struct cordon_agent_config, told), FLAG},
        {"awaited", offsetof(struct cordon_agent_config, awaited), FLAG},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        if (strlen(rows[i].key) != key_size || memcmp(rows[i].key, key, key_size) != 0)
            continue;
        char *to = (char *)config + rows[i].offset;
        uint64_t number = 0;
        if (rows[i].type == TEXT) {
            memcpy(to, &value, sizeof value);
            return true;
        }
        if (!parse_number(value, rows[i].type == U64 ? UINT64_MAX : rows[i].type == FLAG ? 1 : UINT32_MAX, &number))
            return false;
        if (rows[i].type == U64)
            memcpy(to, &number, sizeof number);
        else if (rows[i].type == U32)
            memcpy(to, &(uint32_t){(uint32_t)number}, sizeof(uint32_t));
        else
            memcpy(to, &(bool){number}, sizeof(bool));
        return true;
    }
    return false;
}

static bool parse_config(struct cordon_agent_config *config, int argc, char **argv)
{
    *config = (struct cordon_agent_config){
        .language = "", .workdir = "", .interpreter = "", .driver = "", .open_files = 1024};
    if (argc < 2)
        return false;
    config->forked = strcmp(argv[1], "forked") == 0;
    config->kept = strcmp(argv[1], "kept") == 0;
    if (!config->forked && !config->kept && strcmp(argv[1], "spawn") != 0)
        return false;
    for (int i = 2; i < argc; i++) {
        const char *equals = strchr(argv[i], '=');
        if (!equals || !parse_key(config, argv[i], (size_t)(equals - argv[i]), equals + 1)) {
            (void)dprintf(STDERR_FILENO, "cordon-agent: bad argument '%s'\n", argv[i]); /* the log is all there is */
            return false;
        }
    }
    while (config->cgroups < CORDON_AGENT_CGROUPS_MAX && fcntl(CORDON_AGENT_CGROUPS + config->cgroups, F_GETFD) >= 0)
        config->cgroups++;
    return *config->workdir == '/' && (config->forked || config->kept || *config->interpreter);
}

static void set_nonblocking(int fd)
{
    int flags = fcntl(fd, F_GETFL);
    if (fd >= 0 && (flags < 0 || fcntl(fd, F_SETFL, flags | O_NONBLOCK) < 0))
        cordon_agent_quit(&the_agent, 1, "a descriptor that should be open is not");
}

/* Real-time priority is for the agent alone. */
static void keep_priority(void)
{
    struct sched_param param;
    int policy = sched_getscheduler(0);
    if ((policy == SCHED_RR || policy == SCHED_FIFO) && sched_getparam(0, &param) == 0)
        (void)sched_setscheduler(0, policy | SCHED_RESET_ON_FORK, &param); /* becoming the code resets it as well */
}

static void set_up_signals(struct cordon_agent *agent)
{
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGCHLD);
    (void)signal(SIGPIPE, SIG_IGN); /* can't fail for this signal */
    if (sigprocmask(SIG_BLOCK, &set, NULL) < 0 || (agent->signals = signalfd(-1, &set, SFD_NONBLOCK | SFD_CLOEXEC)) < 0)
        cordon_agent_quit(agent, 1, "no signal descriptor");
    if (!agent->config.isolated && prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) < 0)
        cordon_agent_quit(agent, 1, "can not become the reaper of its descendants");
}

/* The agent may not write in the code's directory, and changing its own ids for that would undo PR_SET_PDEATHSIG. */
static void make_artifacts_dir(const struct cordon_agent *agent)
{
    if (mkdirat(agent->workdir_fd, "artifacts", 0755) == 0 || errno == EEXIST)
        return;
    pid_t pid = fork();
    if (pid == 0) {
        bool ok = setresgid(agent->config.code_gid, agent->config.code_gid, agent->config.code_gid) == 0 &&
                  setresuid(agent->config.code_uid, agent->config.code_uid, agent->config.code_uid) == 0 &&
                  mkdirat(agent->workdir_fd, "artifacts", 0755) == 0;
        _exit(!ok);
    }
    int status = -1;
    while (pid > 0 && waitpid(pid, &status, 0) < 0 && errno == EINTR)
        continue;
    if (status != 0)
        cordon_agent_quit(&the_agent, 1, "can not make the directory for artifacts");
}

static void set_up_files(struct cordon_agent *agent)
{
    const struct cordon_agent_config *config = &agent->config;
    agent->workdir_fd = open(config->workdir, O_PATH | O_DIRECTORY | O_CLOEXEC);
    if (agent->workdir_fd < 0)
        cordon_agent_quit(agent, 1, "the working directory is not there");
    make_artifacts_dir(agent);
    agent->artifacts_fd = openat(agent->workdir_fd, "artifacts", O_PATH | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);
    agent->last_pid_fd = open("/proc/sys/kernel/ns_last_pid", O_RDONLY | O_CLOEXEC); /* absent: slower ends */
    if (config->isolated && !config->told)
        cordon_agent_tell_limits(config->memory_bytes, config->cpus);
}

/* HELLO first; then the parked program, whose ready pipe must be held by nobody else. */
static void park(struct cordon_agent *agent)
{
    struct cordon_agent_exec *exec = &agent->execs[0];
    char version[4] = {CORDON_PROTO_VERSION};
    if (!cordon_vm.on) { /* there the lease comes first */
        cordon_agent_send(agent, CORDON_FRAME_HELLO, 0, version, sizeof version);
        cordon_agent_out_flush(agent);
    }
    cordon_agent_exec_init(exec);
    exec->state = CORDON_AGENT_PARKED;
    if (agent->config.forked) {
        exec->driver_fd = CORDON_AGENT_DRIVER;
        exec->stdin_fd = CORDON_AGENT_STDIN;
        exec->stream[0].fd = CORDON_AGENT_STDOUT;
        exec->stream[1].fd = CORDON_AGENT_STDERR;
    } else if (cordon_agent_spawn(agent, exec) < 0) {
        cordon_agent_quit(agent, 1, "the interpreter can not be started");
    }
    (void)close(CORDON_AGENT_READY);
    cordon_agent_link_open(exec);
    set_nonblocking(exec->stdin_fd);
    set_nonblocking(exec->stream[0].fd);
    set_nonblocking(exec->stream[1].fd);
    if (exec->result_fd >= 0)
        set_nonblocking(exec->result_fd);
}

static void on_child(struct cordon_agent *agent, struct cordon_agent_exec *exec, short events)
{
    struct signalfd_siginfo info[8];
    (void)exec;
    (void)events;
    (void)!read(agent->signals, info, sizeof info); /* only that it came matters */
    cordon_agent_reap(agent);
}

static void on_warm(struct cordon_agent *agent, struct cordon_agent_exec *exec, short events)
{
    char byte, last[160] = "", why[256];
    (void)exec;
    (void)events;
    if (read(agent->warming, &byte, 1) == 1) {
        cordon_close(&agent->warming);
        return;
    }
    for (ssize_t n; (n = read(agent->execs[0].stream[1].fd, last, sizeof last - 1)) > 0;)
        last[n] = '\0'; /* the end of what it said */
    (void)snprintf(why, sizeof why, "the interpreter ended before it was ready: %s", last); /* cut is enough */
    cordon_agent_quit(agent, 1, why);
}

static void sooner(uint64_t *when, uint64_t other)
{
    if (other && (!*when || other < *when))
        *when = other;
}

static const struct timespec *next_timeout(const struct cordon_agent *agent, struct timespec *ret)
{
    uint64_t when = 0, now = cordon_now_us();
    sooner(&when, agent->out.lazy_until_us);
    sooner(&when, agent->worker.fd >= 0 ? agent->worker.until_us : 0);
    sooner(&when, agent->collect_by_us);
    for (size_t i = 0; i < CORDON_AGENT_EXECS; i++) {
        const struct cordon_agent_exec *exec = &agent->execs[i];
        if (exec->state == CORDON_AGENT_ENDING && !exec->settled)
            sooner(&when, exec->settle_by_us);
        if (exec->state == CORDON_AGENT_RUNNING) {
            sooner(&when, exec->deadline_us);
            sooner(&when, exec->pace.rest_until_us);
        }
    }
    if (agent->reap_again)
        when = now;
    if (!when)
        return NULL;
    uint64_t wait = when > now ? when - now : 0;
    *ret = (struct timespec){.tv_sec = (time_t)(wait / 1000000), .tv_nsec = (long)(wait % 1000000) * 1000};
    return ret;
}

static void turn(struct cordon_agent *agent)
{
    struct timespec timeout;
    agent->sources = 0;
    if (agent->warming >= 0)
        cordon_agent_watch(agent, agent->warming, POLLIN, on_warm, NULL);
    else
        cordon_agent_watch_channel(agent);
    cordon_agent_watch(agent, agent->signals, POLLIN, on_child, NULL);
    cordon_agent_worker_watch(agent);
    for (size_t i = 0; i < CORDON_AGENT_EXECS; i++)
        cordon_agent_exec_watch(agent, &agent->execs[i]);
    int n = ppoll(agent->poll, agent->sources, next_timeout(agent, &timeout), NULL);
    if (n < 0 && errno != EINTR)
        cordon_agent_quit(agent, 1, "waiting failed");
    if (agent->reap_again)
        cordon_agent_reap(agent);
    for (size_t i = 0; n > 0 && i < agent->sources; i++) {
        if (agent->poll[i].revents)
            agent->source[i].on_event(agent, agent->source[i].exec, agent->poll[i].revents);
    }
    cordon_agent_worker_step(agent);
    for (size_t i = 0; i < CORDON_AGENT_EXECS; i++)
        cordon_agent_exec_step(agent, &agent->execs[i]);
    cordon_agent_out_flush(agent);
}

/* The ready pipe of an interpreter in a virtual machine, where no warden has the other end. */
static int open_ready(struct cordon_agent *agent)
{
    int pipe[2], end = pipe2(pipe, O_CLOEXEC) < 0 ? -1 : cordon_vm_place(pipe[0], -1);
    if (end < 0 || cordon_vm_place(pipe[1], CORDON_AGENT_READY) < 0)
        cordon_agent_quit(agent, 1, "no pipe for the interpreter to say that it is ready");
    return end;
}

/* Parks one, and goes on when it says that it waits. */
static void park_until_ready(struct cordon_agent *agent)
{
    agent->warming = open_ready(agent);
    park(agent);
    while (agent->warming >= 0)
        turn(agent);
}

/* One that was in no template, so that not even its hash seed is shared. */
static void park_fresh(struct cordon_agent *agent)
{
    static char driver[] = CORDON_ROOT_OWN "/driver.py";
    static const char *const claimed[] = {"main.py", "main.js", ".main.sh"}; /* no code has run yet: ours */
    struct cordon_agent_exec *exec = &agent->execs[0];
    int *const ends[] = {&exec->driver_fd, &exec->stdin_fd,     &exec->result_fd,
                         &exec->listener,  &exec->stream[0].fd, &exec->stream[1].fd};
    (void)kill(exec->pid, SIGKILL); /* it is ours and not reaped */
    while (waitpid(exec->pid, NULL, 0) < 0 && errno == EINTR)
        continue;
    for (size_t i = 0; i < sizeof ends / sizeof *ends; i++)
        cordon_close(ends[i]);
    for (size_t i = 0; i < sizeof claimed / sizeof *claimed; i++)
        (void)unlinkat(agent->workdir_fd, claimed[i], 0); /* only one of them is there */
    if (cordon_vm.language == CORDON_VM_PYTHON)
        agent->config.driver = driver;
    agent->config.argument = NULL;
    agent->config.awaited = true;
    park_until_ready(agent);
}

/* A copy in its pool: the interpreter goes the way of a run, and the agent the way around it. If it dies of that, the
 * copy is of no use; if it takes for ever, the host loses its patience. */
static void rehearse_parked(void)
{
    struct cordon_agent *agent = &the_agent;
    struct cordon_agent_exec *exec = &agent->execs[0];
    if (cordon_vm.language != CORDON_VM_PYTHON) /* Node's first steps would take several times the memory */
        return;
    int r = cordon_agent_link_tell(exec, CORDON_DRIVER_REHEARSE);
    while (r == 0 && exec->rehearsing && exec->driver_fd >= 0)
        turn(agent);
    if (r < 0 || exec->rehearsing)
        cordon_vm_fail("rehearsing the parked interpreter", r < 0 ? r : -EPIPE);
}

/* In a virtual machine what is parked gets warm, then waits for the lease: that is where the machine is copied. */
static void park_warm(struct cordon_agent *agent)
{
    struct cordon_vm_lease lease;
    char version[4] = {CORDON_PROTO_VERSION};
    if (!cordon_vm.on) {
        park(agent);
        return;
    }
    bool data = !cordon_vm.once && agent->config.memory_bytes >= MACHINE_DATA_BYTES;
    agent->config.argument = data ? "machine-data" : "machine";
    park_until_ready(agent);
    int r = cordon_vm_admit(agent->execs[0].pid);
    if (r < 0)
        cordon_vm_fail("bringing the interpreter into the code's control group", r);
    cordon_vm_await_lease(&agent->config, &lease, rehearse_parked);
    if (lease.flags & CORDON_VM_FRESH)
        park_fresh(agent);
    else if (cordon_vm.language != CORDON_VM_BASH && cordon_agent_link_tell(&agent->execs[0], CORDON_DRIVER_RESEED) < 0)
        cordon_agent_quit(agent, 1, "the parked interpreter can't be told to take new random numbers");
    cordon_agent_send(agent, CORDON_FRAME_HELLO, 0, version, sizeof version);
    cordon_agent_out_flush(agent);
}

int cordon_agent_main(int argc, char **argv)
{
    struct cordon_agent *agent = &the_agent;
    agent->channel = CORDON_AGENT_CHANNEL;
    agent->warming = agent->worker.fd = agent->signals = agent->last_pid_fd = agent->workdir_fd = agent->artifacts_fd =
        -1;
    agent->in.max = CORDON_FRAME_MAX + (1u << 20);
    if (fcntl(STDOUT_FILENO, F_GETFD) < 0)
        (void)dup2(STDIN_FILENO, STDOUT_FILENO); /* the first descriptor opened must not become one of the three */
    if (!parse_config(&agent->config, argc, argv) || (agent->config.isolated && getpid() != 1)) {
        static const char usage[] =
            "cordon-agent: started by hand? It is process 1 of a guest; see src/agent/launch.h\n";
        (void)!write(STDERR_FILENO, usage, sizeof usage - 1); /* the exit status says it too */
        return 2;
    }
    (void)prctl(PR_SET_DUMPABLE, 0, 0, 0, 0); /* a second lock: the code has another uid */
    keep_priority();
    if (agent->config.kept)
        cordon_kept_main(&agent->config);
    set_up_signals(agent);
    set_up_files(agent);
    park_warm(agent);
    for (;;)
        turn(agent);
}

int main(int argc, char **argv)
{
    if (cordon_vm_is_init(argv))
        cordon_vm_main();
    if (argc == 2 && strcmp(argv[1], "nursery") == 0)
        cordon_nursery_main();
    return cordon_agent_main(argc, argv);
}
