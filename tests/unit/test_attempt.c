/* SPDX-License-Identifier: Apache-2.0 */
/* base/attempt: what ends well, is killed, hangs, or can't be killed; what a child has of its caller's. */
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/attempt.h"
#include "base/clock.h"
#include "base/fd.h"
#include "base/sys.h"

#define PATIENCE_MS 60000
#define FREEZER "/sys/fs/cgroup/freezer"

static int fail_with_value(void *data)
{
    *(int *)data = 42;
    return -ENOSPC;
}

static void what_ends_tells_its_error_and_what_it_wrote(void **state)
{
    (void)state;
    struct cordon_attempt ret;
    int value = 1;
    assert_int_equal(cordon_attempt(fail_with_value, &value, sizeof value, -1, PATIENCE_MS, &ret), 0);
    assert_int_equal(ret.end, CORDON_ATTEMPT_ENDED);
    assert_int_equal(ret.value, ENOSPC);
    assert_int_equal(value, 42);
    assert_int_equal(waitpid(-1, NULL, WNOHANG), -1); /* no child is left */
}

static int write_and_die(void *data)
{
    *(int *)data = 7;
    (void)kill(getpid(), SIGKILL);
    return 0;
}

static void what_is_killed_tells_the_signal(void **state)
{
    (void)state;
    struct cordon_attempt ret;
    int value = 0;
    assert_int_equal(cordon_attempt(write_and_die, &value, sizeof value, -1, PATIENCE_MS, &ret), 0);
    assert_int_equal(ret.end, CORDON_ATTEMPT_KILLED);
    assert_int_equal(ret.value, SIGKILL);
    assert_int_equal(value, 7);
}

static int hang(void *data)
{
    (void)data;
    sigset_t all;
    sigfillset(&all);
    sigprocmask(SIG_BLOCK, &all, NULL);
    while (pause() < 0)
        continue;
    return 0;
}

static void what_hangs_is_ended(void **state)
{
    (void)state;
    struct cordon_attempt ret;
    uint64_t begin = cordon_now_us();
    assert_int_equal(cordon_attempt(hang, NULL, 0, -1, 200, &ret), 0);
    assert_int_equal(ret.end, CORDON_ATTEMPT_LATE);
    assert_true(cordon_now_us() - begin >= 200000);
    assert_int_equal(waitpid(-1, NULL, WNOHANG), -1);
}

/* Which descriptors are open, of the first 64; and what 0 to 2 are. */
struct seen {
    uint64_t open;
    bool null[3];
};

static int look(void *data)
{
    struct seen *seen = data;
    struct stat null, one;
    (void)stat("/dev/null", &null);
    for (int fd = 0; fd < 64; fd++)
        seen->open |= (uint64_t)(fcntl(fd, F_GETFD) >= 0) << fd;
    for (int fd = 0; fd < 3; fd++)
        seen->null[fd] = fstat(fd, &one) == 0 && S_ISCHR(one.st_mode) && one.st_rdev == null.st_rdev;
    return 0;
}

static void only_what_is_named_is_open(void **state)
{
    (void)state;
    struct cordon_attempt ret;
    for (int kept = -1; kept < 64; kept = kept < 0 ? 0 : kept < 2 ? kept + 1 : kept < 30 ? 30 : kept < 60 ? 60 : 64) {
        struct seen seen = {0};
        cordon_autoclose int made = kept > 2 ? fcntl(1, F_DUPFD_CLOEXEC, kept) : -1;
        if (kept > 2)
            assert_int_equal(made, kept);
        assert_int_equal(cordon_attempt(look, &seen, sizeof seen, kept, PATIENCE_MS, &ret), 0);
        assert_int_equal(ret.end, CORDON_ATTEMPT_ENDED);
        assert_int_equal(seen.open, 7 | (kept > 2 ? UINT64_C(1) << kept : 0));
        for (int fd = 0; fd < 3; fd++)
            assert_true(seen.null[fd] || fd == kept);
    }
}

/* Hierarchies of v1 let nothing die that is frozen: a process that can't be killed, and yet be got rid of. */
static char frozen[] = FREEZER "/cordon-attempt-XXXXXX";

static int freeze_oneself(void *data)
{
    (void)data;
    int group = open(frozen, O_PATH | O_DIRECTORY | O_CLOEXEC);
    if (cordon_write_file(group, "cgroup.procs", "0") < 0 || cordon_write_file(group, "freezer.state", "FROZEN") < 0)
        return -EIO;
    while (pause() < 0)
        continue;
    return 0;
}

static void what_can_not_be_killed_is_left(void **state)
{
    (void)state;
    struct cordon_attempt ret;
    if (geteuid() != 0 || access(FREEZER "/cgroup.procs", W_OK) < 0 || !mkdtemp(frozen)) {
        print_message("# no freezer of v1 here\n");
        skip();
    }
    cordon_autoclose int group = open(frozen, O_PATH | O_DIRECTORY | O_CLOEXEC);
    int r = cordon_attempt(freeze_oneself, NULL, 0, -1, 5000, &ret);
    int left = waitpid(-1, NULL, WNOHANG);
    assert_int_equal(cordon_write_file(group, "freezer.state", "THAWED"), 0); /* now it dies of what it was sent */
    int status = 0;
    pid_t gone = waitpid(-1, &status, 0);
    assert_int_equal(rmdir(frozen), 0);
    assert_int_equal(r, 0);
    assert_int_equal(ret.end, CORDON_ATTEMPT_STUCK);
    assert_int_equal(left, 0); /* it was there */
    assert_true(gone > 0);
    assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
}

static void a_process_is_watched_and_killed_by_descriptor(void **state)
{
    (void)state;
    struct cordon_attempt ret;
    pid_t pid = fork();
    if (pid == 0)
        _exit(hang(NULL));
    cordon_autoclose int pidfd = cordon_pidfd_open(pid);
    assert_true(pidfd >= 0);
    assert_true(fcntl(pidfd, F_GETFD) & FD_CLOEXEC);
    assert_int_equal(cordon_pidfd_kill(pidfd, SIGKILL), 0);
    assert_int_equal(cordon_attempt_finish(pid, cordon_now_us() + 1000ull * PATIENCE_MS, &ret), 0);
    assert_int_equal(ret.end, CORDON_ATTEMPT_KILLED);
    assert_int_equal(cordon_pidfd_kill(pidfd, SIGKILL), -ESRCH);
    assert_int_equal(cordon_pidfd_open(-1), -EINVAL);
}

static void without_a_descriptor_it_is_not_told_as_late(void **state)
{
    (void)state;
    struct cordon_attempt ret;
    struct rlimit limit, none;
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &limit), 0);
    none = limit;
    none.rlim_cur = 0;
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &none), 0);
    int r = cordon_attempt(hang, NULL, 0, -1, PATIENCE_MS, &ret);
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &limit), 0);
    assert_int_equal(r, -EMFILE);
    assert_int_equal(waitpid(-1, NULL, WNOHANG), -1); /* no child is left */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_ends_tells_its_error_and_what_it_wrote),
        cmocka_unit_test(what_is_killed_tells_the_signal),
        cmocka_unit_test(what_hangs_is_ended),
        cmocka_unit_test(only_what_is_named_is_open),
        cmocka_unit_test(what_can_not_be_killed_is_left),
        cmocka_unit_test(a_process_is_watched_and_killed_by_descriptor),
        cmocka_unit_test(without_a_descriptor_it_is_not_told_as_late),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
