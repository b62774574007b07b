/* SPDX-License-Identifier: Apache-2.0 */
#include "base/attempt.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdbool.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/fd.h"
#include "base/sys.h"

#define DYING_US 1000000u /* what a killed process may need to be gone */

static void keep_only(int kept)
{
    int null = open("/dev/null", O_RDWR | O_CLOEXEC);
    for (int fd = 0; fd <= STDERR_FILENO; fd++)
        if (fd != kept && (null < 0 || dup2(null, fd) < 0))
            (void)close(fd); /* one that is not open is as good */
    /* Can't fail for such ranges. */
    if (kept > STDERR_FILENO + 1)
        (void)close_range(STDERR_FILENO + 1u, (unsigned)kept - 1, 0);
    (void)close_range(kept > STDERR_FILENO ? (unsigned)kept + 1 : STDERR_FILENO + 1u, ~0u, 0);
}

int cordon_attempt_result(const struct cordon_attempt *attempt)
{
    switch (attempt->end) {
    case CORDON_ATTEMPT_ENDED:
        return -attempt->value;
    case CORDON_ATTEMPT_KILLED:
        return -EINTR;
    default:
        return -ETIME;
    }
}

/* Is the process dead by then? */
static bool dead_by(int pidfd, uint64_t deadline_us)
{
    for (;;) {
        uint64_t now = cordon_now_us();
        struct pollfd event = {.fd = pidfd, .events = POLLIN};
        int left_ms = now < deadline_us ? (int)((deadline_us - now) / 1000) + 1 : 0;
        int r = poll(&event, 1, left_ms);
        if (r > 0 || (r == 0 && !left_ms) || (r < 0 && errno != EINTR))
            return r > 0;
    }
}

int cordon_attempt_finish(pid_t pid, uint64_t deadline_us, struct cordon_attempt *ret)
{
    cordon_autoclose int pidfd = cordon_pidfd_open(pid);
    int unwatched = pidfd < 0 ? pidfd : 0; /* no descriptor is left: its time can't be limited, so it has none */
    bool in_time = !unwatched && dead_by(pidfd, deadline_us);
    int status;
    if (!unwatched)
        *ret = (struct cordon_attempt){.end = CORDON_ATTEMPT_STUCK};
    if (!in_time) {
        (void)kill(pid, SIGKILL); /* ours and not waited for yet, so it can't be another's id */
        if (!unwatched && !dead_by(pidfd, cordon_now_us() + DYING_US))
            return 0;
    }
    while (waitpid(pid, &status, 0) < 0)
        if (errno != EINTR)
            return unwatched;
    if (unwatched)
        return unwatched;
    if (!in_time)
        ret->end = CORDON_ATTEMPT_LATE;
    else
        *ret = WIFEXITED(status) ? (struct cordon_attempt){CORDON_ATTEMPT_ENDED, WEXITSTATUS(status)}
                                 : (struct cordon_attempt){CORDON_ATTEMPT_KILLED, WTERMSIG(status)};
    return 0;
}

int cordon_attempt(int (*body)(void *data), void *data, size_t size, int kept, unsigned limit_ms,
                   struct cordon_attempt *ret)
{
    uint64_t deadline_us = cordon_now_us() + 1000ull * limit_ms;
    size_t room = size ? size : 1;
    void *shared = mmap(NULL, room, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (shared == MAP_FAILED)
        return -errno;
    if (size)
        memcpy(shared, data, size);
    pid_t pid = fork();
    int r = pid < 0 ? -errno : 0;
    if (pid == 0) {
        (void)prctl(PR_SET_PDEATHSIG, SIGKILL); /* its limit is the parent's; can't fail */
        keep_only(kept);
        _exit(-body(shared) & 0xff);
    }
    if (r == 0)
        r = cordon_attempt_finish(pid, deadline_us, ret);
    if (size)
        memcpy(data, shared, size);
    (void)munmap(shared, room); /* pages that stay would be no harm */
    return r;
}
