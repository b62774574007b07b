/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A complete backend plugin: it runs Python programs as plain processes below a folder of their own. It isolates
 * nothing, and says so; it is here to show the interface. Built out of tree, against the installed headers:
 *
 *     make && sudo make install
 *     CORDON_BACKEND_PLUGINS=hello cordon conformance hello
 */
#include <cordon/backend.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

struct cordon_run {
    const struct cordon_request *request; /* borrowed until run_close, as the interface says */
    char folder[32];                      /* the program's working directory, of this run only */
    pid_t pid;
    int out[2], errors[2]; /* pipes of the program; [0] is ours */
    uint64_t started_ms, deadline_ms;
    uint64_t written[2], kept[2];
    int told;  /* STARTED was given */
    int ended; /* both pipes are at their end */
    int timed_out, cancelled;
    char buffer[16384];
    struct cordon_outcome outcome;
};

static uint64_t now_ms(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000 + (uint64_t)now.tv_nsec / 1000000;
}

static int fail(struct cordon_error *err, int code, enum cordon_error_kind kind, const char *text)
{
    if (err) {
        err->code = code;
        err->kind = kind;
        snprintf(err->message, sizeof err->message, "%s", text);
    }
    return code;
}

/* Only what is really so: no isolation, no egress rules, no limits held by the kernel. */
static const struct cordon_capabilities *capabilities(void)
{
    static const struct cordon_capabilities mine = {
        .struct_size = sizeof mine,
        .isolation = CORDON_ISOLATION_NONE,
        .streaming = true,
        .network = true,
        .languages = "python",
    };
    return &mine;
}

static void child(struct cordon_run *run, const char *code)
{
    int null = open("/dev/null", O_RDONLY);
    setpgid(0, 0);
    if (chdir(run->folder) < 0)
        _exit(127);
    dup2(null, 0);
    dup2(run->out[1], 1);
    dup2(run->errors[1], 2);
    for (size_t i = 0; i < run->request->env_count; i++)
        putenv((char *)run->request->env[i]);
    execlp("python3", "python3", "-I", "-c", code, (char *)NULL);
    _exit(127);
}

static int run_open(const struct cordon_request *request, struct cordon_run **ret, struct cordon_error *err)
{
    if (request->arguments.data || request->stdin_data.size)
        return fail(err, -EOPNOTSUPP, CORDON_ERROR_UNSUPPORTED, "hello runs scripts only, without arguments and stdin");
    struct cordon_run *run = calloc(1, sizeof *run);
    char *code = strndup(request->code.data, request->code.size);
    if (run)
        snprintf(run->folder, sizeof run->folder, "/tmp/hello-XXXXXX");
    if (!run || !code || !mkdtemp(run->folder) || pipe2(run->out, O_CLOEXEC) < 0 || pipe2(run->errors, O_CLOEXEC) < 0) {
        free(run);
        free(code);
        return fail(err, -ENOMEM, CORDON_ERROR_UNAVAILABLE, "hello can not start a run");
    }
    run->request = request;
    run->started_ms = now_ms();
    run->deadline_ms = run->started_ms + request->limits.timeout_ms;
    run->pid = fork();
    if (run->pid == 0)
        child(run, code);
    free(code);
    close(run->out[1]);
    close(run->errors[1]);
    *ret = run;
    return 0;
}

/* The program's files may be anything, so they are removed by what knows how. */
static void remove_folder(const char *folder)
{
    pid_t pid = fork();
    if (pid == 0) {
        execlp("rm", "rm", "-rf", "--", folder, (char *)NULL);
        _exit(127);
    }
    if (pid > 0)
        waitpid(pid, NULL, 0);
}

static void end_program(struct cordon_run *run)
{
    kill(-run->pid, SIGKILL); /* its process group; nothing holds what left it: this backend isolates nothing */
}

/* 1 and an event, or 0 when the pipe is at its end. */
static int take(struct cordon_run *run, int which, struct cordon_event *event)
{
    int *fd = which ? &run->errors[0] : &run->out[0];
    uint64_t limit = which ? run->request->limits.stderr_bytes : run->request->limits.stdout_bytes;
    ssize_t n = read(*fd, run->buffer, sizeof run->buffer);
    if (n <= 0) {
        close(*fd);
        *fd = -1;
        return 0;
    }
    uint64_t room = limit > run->kept[which] ? limit - run->kept[which] : 0;
    uint64_t size = (uint64_t)n < room ? (uint64_t)n : room;
    run->written[which] += (uint64_t)n;
    run->kept[which] += size;
    memset(event, 0, sizeof *event);
    event->type = which ? CORDON_EVENT_STDERR : CORDON_EVENT_STDOUT;
    event->data.data = run->buffer;
    event->data.size = size;
    return size > 0;
}

/* The cause is what we know ourselves: our deadline, the client's end, the wait status. */
static void judge(struct cordon_run *run, int status)
{
    struct cordon_outcome *outcome = &run->outcome;
    outcome->struct_size = sizeof *outcome;
    outcome->isolation = CORDON_ISOLATION_NONE;
    outcome->run_us = (now_ms() - run->started_ms) * 1000;
    outcome->stdout_bytes = run->written[0];
    outcome->stderr_bytes = run->written[1];
    outcome->stdout_kept = run->kept[0];
    outcome->stderr_kept = run->kept[1];
    outcome->exit_code = -1;
    if (run->cancelled) {
        outcome->cause = CORDON_CAUSE_CANCELLED;
    } else if (run->timed_out) {
        outcome->cause = CORDON_CAUSE_TIMEOUT;
        snprintf(outcome->limit_hit, sizeof outcome->limit_hit, "timeout_s");
    } else if (WIFSIGNALED(status)) {
        outcome->cause = CORDON_CAUSE_SIGNALLED;
        outcome->signal = WTERMSIG(status);
        outcome->exit_code = 128 + outcome->signal;
    } else {
        outcome->cause = CORDON_CAUSE_EXITED;
        outcome->exit_code = WEXITSTATUS(status);
    }
}

static int give_outcome(struct cordon_run *run, struct cordon_event *event)
{
    int status = 0;
    while (waitpid(run->pid, &status, 0) < 0 && errno == EINTR)
        continue;
    end_program(run);
    judge(run, status);
    run->pid = 0;
    run->ended = 1;
    memset(event, 0, sizeof *event);
    event->type = CORDON_EVENT_OUTCOME;
    event->outcome = &run->outcome;
    return 1;
}

static int run_next(struct cordon_run *run, struct cordon_event *event)
{
    if (run->ended)
        return 0;
    if (!run->told) {
        run->told = 1;
        memset(event, 0, sizeof *event);
        event->type = CORDON_EVENT_STARTED;
        return 1;
    }
    while (run->out[0] >= 0 || run->errors[0] >= 0) {
        uint64_t now = now_ms();
        struct pollfd fds[] = {{.fd = run->out[0], .events = POLLIN},
                               {.fd = run->errors[0], .events = POLLIN},
                               {.fd = run->cancelled ? -1 : run->request->cancel_fd, .events = POLLRDHUP}};
        int stopped = run->timed_out || run->cancelled;
        int ready = poll(fds, 3, stopped ? 2000 : run->deadline_ms > now ? (int)(run->deadline_ms - now) : 0);
        if (fds[2].revents & (POLLRDHUP | POLLHUP)) {
            run->cancelled = 1;
            end_program(run);
        }
        for (int which = 0; ready > 0 && which < 2; which++)
            if (fds[which].revents && take(run, which, event))
                return 1;
        if (stopped && ready == 0) /* what left the process group holds the pipes: not for ever */
            break;
        if (!stopped && now_ms() >= run->deadline_ms) {
            run->timed_out = 1;
            end_program(run);
        }
    }
    return give_outcome(run, event);
}

static void run_close(struct cordon_run *run)
{
    if (!run)
        return;
    if (run->pid > 0) {
        end_program(run);
        waitpid(run->pid, NULL, 0);
    }
    if (run->out[0] >= 0)
        close(run->out[0]);
    if (run->errors[0] >= 0)
        close(run->errors[0]);
    remove_folder(run->folder);
    free(run);
}

static const struct cordon_backend hello = {
    .abi_version = CORDON_ABI_VERSION,
    .struct_size = sizeof hello,
    .name = "hello",
    .capabilities = capabilities,
    .run_open = run_open,
    .run_next = run_next,
    .run_close = run_close,
};

__attribute__((visibility("default"))) const struct cordon_backend *cordon_backend_factory(void);
const struct cordon_backend *cordon_backend_factory(void)
{
    return &hello;
}
