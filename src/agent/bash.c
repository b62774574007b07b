/* SPDX-License-Identifier: Apache-2.0 */
/*
 * bash has no driver of its own: this is it. The process is parked as the code, before it is bash; the job comes over
 * the driver channel, is written into the script file that was opened while parking (so that the working directory
 * shows no change by us), and bash is executed on it with the run's environment. Its stdin stays the program's.
 *
 * With arguments the script is sourced and then `main ARGUMENTS` is called; the same JSON is in CORDON_ARGUMENTS. What
 * main writes to descriptor $CORDON_RESULT_FD is its result, which must be JSON; what it prints is output.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "agent/agent.h"
#include "base/fd.h"
#include "isolate/root.h"

#define RESULT_FD 9
#define ARGUMENT_MAX 131071 /* the kernel's MAX_ARG_STRLEN without the NUL */
#define SCRIPT ".main.sh"
#define EXIT_NOT_STARTED 126

struct job {
    struct cordon_field code, arguments, cwd;
    char **env; /* NULL-terminated, strings are owned */
    size_t env_count, env_room;
};

static void __attribute__((noreturn)) fail(const char *what, int error)
{
    char text[300];
    int n = snprintf(text, sizeof text, "cordon: %s: %s\n", what, strerror(error));
    (void)!write(STDERR_FILENO, text, n < (int)sizeof text ? (size_t)n : sizeof text - 1); /* the status says it too */
    _exit(EXIT_NOT_STARTED);
}

static char *text_of(const char *prefix, const char *data, size_t size)
{
    size_t head = strlen(prefix);
    char *text = malloc(head + size + 1);
    if (!text)
        fail("reading the job", ENOMEM);
    memcpy(text, prefix, head);
    memcpy(text + head, data, size);
    text[head + size] = '\0';
    return text;
}

/* A later setting of a name takes the place of an earlier one. */
static void add_env(struct job *job, char *setting)
{
    const char *equals = strchr(setting, '=');
    if (!equals)
        return;
    size_t name = (size_t)(equals - setting) + 1;
    for (size_t i = 0; i < job->env_count; i++) {
        if (strncmp(job->env[i], setting, name) == 0) {
            job->env[i] = setting;
            return;
        }
    }
    if (job->env_count + 1 >= job->env_room) {
        job->env_room = job->env_room ? job->env_room * 2 : 32;
        job->env = reallocarray(job->env, job->env_room, sizeof *job->env);
        if (!job->env)
            fail("reading the job", ENOMEM);
    }
    job->env[job->env_count++] = setting;
    job->env[job->env_count] = NULL;
}

static void add_defaults(struct job *job, const char *workdir)
{
    add_env(job, text_of("HOME=", workdir, strlen(workdir)));
    add_env(job, text_of("PATH=/usr/local/bin:/usr/bin:/bin", "", 0));
    add_env(job, text_of("LANG=C.UTF-8", "", 0));
    add_env(job, text_of("NODE_PATH=" CORDON_ROOT_NODE_PATH, "", 0));
}

static void add_threads(struct job *job, uint32_t cpu_percent)
{
    static const char *const names[] = {
        "OMP_NUM_THREADS=", "OPENBLAS_NUM_THREADS=", "MKL_NUM_THREADS=", "NUMEXPR_NUM_THREADS=", "GOMAXPROCS="};
    char count[16];
    int n = snprintf(count, sizeof count, "%u", cpu_percent ? (cpu_percent + 99) / 100 : 1);
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        add_env(job, text_of(names[i], count, (size_t)n));
}

static void read_fields(struct job *job, const char *data, size_t size)
{
    struct cordon_field field;
    struct cordon_exec_limits limits = {0};
    size_t at = 0;
    int r;
    while ((r = cordon_field_next(data, size, &at, &field)) == 1) {
        if (field.tag == CORDON_FIELD_LIMITS && cordon_exec_limits_parse(&field, &limits) == 0)
            add_threads(job, limits.cpu_percent);
    }
    if (r < 0)
        fail("reading the job", EBADMSG);
    for (at = 0; cordon_field_next(data, size, &at, &field) == 1;) {
        if (field.tag == CORDON_FIELD_CODE)
            job->code = field;
        else if (field.tag == CORDON_FIELD_ARGUMENTS)
            job->arguments = field;
        else if (field.tag == CORDON_FIELD_CWD)
            job->cwd = field;
        else if (field.tag == CORDON_FIELD_ENV)
            add_env(job, text_of("", field.data, field.length));
    }
}

static char *receive_job(int driver, size_t *size)
{
    char header[CORDON_FRAME_HEADER];
    if (cordon_read_full(driver, header, sizeof header) < 0)
        _exit(0); /* the agent has gone before there was a job */
    struct cordon_frame frame = {.length = sizeof header, .payload = header};
    *size = cordon_frame_u32(&frame, 4);
    if (header[0] != CORDON_DRIVER_JOB || *size > CORDON_FRAME_MAX)
        fail("reading the job", EBADMSG);
    char *data = malloc(*size + 1);
    if (!data)
        fail("reading the job", ENOMEM);
    if (cordon_read_full(driver, data, *size) < 0)
        _exit(0);
    return data;
}

/* Puts the arguments where main finds them; too long ones have no way into a program. */
static char *place_arguments(struct job *job, int driver, int result)
{
    if (job->arguments.length + sizeof "CORDON_ARGUMENTS=" > ARGUMENT_MAX) {
        static const char why[] = "the arguments are longer than 128 KiB, which bash can't be given";
        char header[CORDON_FRAME_HEADER];
        cordon_frame_header(header, CORDON_DRIVER_RESULT_ERROR, 0, sizeof why - 1);
        (void)send(driver, header, sizeof header, MSG_NOSIGNAL); /* the status says it too */
        (void)send(driver, why, sizeof why - 1, MSG_NOSIGNAL);
        fail("giving main its arguments", E2BIG);
    }
    add_env(job, text_of("CORDON_ARGUMENTS=", job->arguments.data, job->arguments.length));
    add_env(job, text_of("CORDON_RESULT_FD=9", "", 0));
    if (dup2(result, RESULT_FD) < 0)
        fail("placing the result's descriptor", errno);
    return text_of("", job->arguments.data, job->arguments.length);
}

void cordon_agent_bash(const struct cordon_agent_config *config, int driver, int ready, int result)
{
    char script[4200];
    (void)snprintf(script, sizeof script, "%s/%s", config->workdir, SCRIPT);
    int fd = open(script, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
    if (fd < 0)
        fail(script, errno);
    if (write(ready, "1", 1) != 1)
        fail("telling that bash is parked", errno);
    (void)close(ready); /* parked */
    struct job job = {0};
    size_t size;
    char *data = receive_job(driver, &size);
    add_defaults(&job, config->workdir);
    read_fields(&job, data, size);
    if (cordon_write_full(fd, job.code.data, job.code.length) < 0)
        fail("writing the script", errno);
    (void)close(fd);
    char *arguments = job.arguments.data ? place_arguments(&job, driver, result) : NULL;
    (void)close(result);
    (void)close(driver);
    if (job.cwd.length && chdir(text_of("", job.cwd.data, job.cwd.length)) < 0)
        fail("entering the run's directory", errno);
    char *const plain[] = {(char[]){"bash"}, script, NULL};
    char *const with_main[] = {(char[]){"bash"}, (char[]){"-c"}, (char[]){". \"$0\"; main \"$1\""},
                               script,           arguments,      NULL};
    (void)execve(config->interpreter, arguments ? with_main : plain, job.env); /* returns only on failure */
    fail("starting bash", errno);
}
