/* SPDX-License-Identifier: Apache-2.0 */
#include "isolate/base.h"

#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <gnu/libc-version.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/utsname.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/fd.h"

#define ANSWER_US 10000000u
#define WORD_MAX 48

static _Noreturn void child(const struct cordon_base_question *question, const char *const *argv, int out)
{
    char *const environment[] = {NULL};
    char *words[8] = {NULL};
    int null = open("/dev/null", O_RDWR);
    (void)prctl(PR_SET_PDEATHSIG, SIGKILL); /* cleared by a change of ids; the deadline is there, too */
    if (null < 0 || dup2(null, 0) < 0 || dup2(out, 1) < 0 || dup2(null, 2) < 0 || chdir("/") < 0)
        _exit(126);
    (void)close_range(3, ~0u, 0);
    if (question->drop && question->drop(question->data) < 0)
        _exit(126);
    for (size_t i = 0; argv[i] && i + 1 < sizeof words / sizeof *words; i++)
        words[i] = strdup(argv[i]);
    if (words[0])
        (void)execve(words[0], words, environment);
    _exit(127);
}

/* The answer's one line, cut at size; -ETIMEDOUT, or -EBADMSG when it is none. */
static int read_word(int fd, char *to, size_t size)
{
    uint64_t until = cordon_now_us() + ANSWER_US;
    size_t used = 0;
    for (;;) {
        uint64_t now = cordon_now_us();
        struct pollfd ready = {.fd = fd, .events = POLLIN};
        int n = now < until ? poll(&ready, 1, (int)((until - now) / 1000 + 1)) : 0;
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            return n < 0 ? -errno : -ETIMEDOUT;
        ssize_t got = read(fd, to + used, size - 1 - used);
        if (got <= 0)
            break;
        used += (size_t)got;
        if (used == size - 1)
            return -EBADMSG;
    }
    while (used && isspace((unsigned char)to[used - 1]))
        used--;
    to[used] = '\0';
    for (size_t i = 0; i < used; i++)
        if (!isalnum((unsigned char)to[i]) && !strchr("-_.", to[i]))
            return -EBADMSG;
    return used ? 0 : -EBADMSG;
}

static int ask(const struct cordon_base_question *question, const char *const *argv, char *to, size_t size,
               struct cordon_error *err)
{
    int pipe_ends[2], status = 0;
    if (pipe2(pipe_ends, O_CLOEXEC) < 0)
        return cordon_fail_errno(err, -errno, "ask %.200s for its version", argv[0]);
    pid_t pid = fork();
    if (pid == 0)
        child(question, argv, pipe_ends[1]);
    int r = pid < 0 ? -errno : 0;
    (void)close(pipe_ends[1]); /* the child's */
    if (r == 0)
        r = read_word(pipe_ends[0], to, size);
    (void)close(pipe_ends[0]); /* only read */
    if (pid > 0 && r < 0)
        (void)kill(pid, SIGKILL); /* our child, not yet waited for */
    while (pid > 0 && waitpid(pid, &status, 0) < 0 && errno == EINTR)
        continue;
    if (r == 0 && (!WIFEXITED(status) || WEXITSTATUS(status) != 0))
        r = -ENOEXEC;
    return r < 0 ? cordon_fail_errno(err, r, "ask %.200s for its version", argv[0]) : 0;
}

int cordon_base_describe(const struct cordon_base_question *question, char *to, size_t size, struct cordon_error *err)
{
    const char *const python[] = {
        question->python, "-I", "-S", "-c", "import sys; print(sys.implementation.cache_tag)", NULL};
    const char *const node[] = {question->node, "-p", "process.versions.modules", NULL};
    char words[2][WORD_MAX] = {"", ""};
    struct utsname host;
    int r = uname(&host) < 0 ? cordon_fail_errno(err, -errno, "ask for the machine's name") : 0;
    if (r == 0 && question->python)
        r = ask(question, python, words[0], WORD_MAX, err);
    if (r == 0 && question->node)
        r = ask(question, node, words[1], WORD_MAX, err);
    if (r < 0)
        return r;
    int n = snprintf(to, size, "%s glibc-%s%s%s%s%s", host.machine, gnu_get_libc_version(), question->python ? " " : "",
                     words[0], question->node ? " node-" : "", words[1]);
    return n < 0 || (size_t)n >= size ? cordon_fail_errno(err, -ENAMETOOLONG, "describe the base") : 0;
}
