/* SPDX-License-Identifier: Apache-2.0 */
/* isolate/probe: as this user and, as root, as an ordinary one; things that are missing; programs that misbehave. */
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/clock.h"
#include "isolate/filter.h"
#include "isolate/probe.h"
#include "isolate/probe_try.h"

#define MOST 64

static const struct cordon_probe_paths usual = {"/usr/bin/python3", "/usr/bin/node", "/bin/bash"};
static struct cordon_probe probes[MOST];

static const struct cordon_probe *named(const char *name, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        if (strcmp(probes[i].name, name) == 0)
            return &probes[i];
    }
    fail_msg("no probe is named %s", name);
    abort(); /* not reached; the compiler doesn't know */
}

static void expect_words(size_t count)
{
    for (size_t i = 0; i < count; i++) {
        print_message("# %-18s %s %s %s\n", probes[i].name, probes[i].ok ? "ok" : "NO", probes[i].found, probes[i].fix);
        assert_true(*probes[i].found);
        assert_true(probes[i].ok == !*probes[i].fix || probes[i].weight == CORDON_PROBE_INFO);
    }
}

static unsigned open_descriptors(void)
{
    unsigned count = 0;
    for (int fd = 0; fd < 256; fd++)
        count += fcntl(fd, F_GETFD) >= 0;
    return count;
}

static void this_host_is_told_quickly(void **state)
{
    (void)state;
    unsigned before = open_descriptors();
    uint64_t start = cordon_now_us();
    size_t count = cordon_probe_host(&usual, probes, MOST);
    uint64_t took = cordon_now_us() - start;
    expect_words(count);
    print_message("# %llu us\n", (unsigned long long)took);
    assert_true(took < 30000000); /* usually under a tenth of a second; tests may run beside others */
    assert_int_equal(open_descriptors(), before);
    assert_int_equal(waitpid(-1, NULL, WNOHANG), -1); /* no child is left */
    assert_int_equal(cordon_probe_host(&usual, probes, 3), 3);
}

static int as_nobody(void)
{
    if (setgid(65534) < 0 || setuid(65534) < 0 || prctl(PR_SET_DUMPABLE, 1, 0, 0, 0) < 0)
        return 10;
    size_t count = cordon_probe_host(&usual, probes, MOST);
    for (size_t i = 0; i < count; i++)
        dprintf(2, "# %-18s %s %s\n", probes[i].name, probes[i].ok ? "ok" : "NO", probes[i].found);
    if (named("uid range", count)->ok || !*named("uid range", count)->fix)
        return 1;
    return named("memory limit", count)->ok ? 2 : 0;
}

static void an_ordinary_user_is_told_what_it_can_not_have(void **state)
{
    (void)state;
    int status;
    if (geteuid() != 0)
        skip();
    fflush(NULL);
    pid_t pid = fork();
    if (pid == 0)
        _exit(as_nobody());
    waitpid(pid, &status, 0);
    assert_int_equal(status, 0);
}

static void missing_interpreters_are_named(void **state)
{
    (void)state;
    const struct cordon_probe_paths paths = {"/no/python3", "/usr/share", "/bin/true"};
    size_t count = cordon_probe_host(&paths, probes, MOST);
    assert_string_equal(named("python", count)->found, "/no/python3 is not there");
    assert_non_null(strstr(named("python", count)->fix, "apt install python3"));
    assert_false(named("python modules", count)->ok);
    assert_string_equal(named("node", count)->found, "/usr/share: exit status 126 when asked for its version");
    assert_string_equal(named("bash", count)->found, "/bin/true did not tell its version");
}

static void unseen_interpreters_are_named(void **state)
{
    (void)state;
    const struct cordon_probe_paths paths = {"/proc/self/exe", "node", "/bin/bash"};
    size_t count = cordon_probe_host(&paths, probes, MOST);
    assert_false(named("python", count)->ok);
    assert_non_null(strstr(named("python", count)->found, "guests can't see the interpreter /proc/self/exe"));
    assert_non_null(strstr(named("node", count)->found, "node is no absolute path"));
    assert_true(*named("node", count)->fix);
}

static void programs_are_bounded(void **state)
{
    (void)state;
    char text[16];
    int status;
    /* Says all that it will, and stays; beside the other that takes its whole time. */
    const char *const staying[] = {"/bin/sh", "-c", "exec >&-; exec sleep 60", NULL};
    fflush(NULL);
    pid_t pid = fork();
    if (pid == 0)
        _exit(cordon_try_program(staying, text, sizeof text) != -ETIME);
    const char *const loud[] = {"/bin/sh", "-c", "i=0; while [ $i -lt 20000 ]; do echo 0123456789; i=$((i+1)); done",
                                NULL};
    assert_int_equal(cordon_try_program(loud, text, sizeof text), 0);
    assert_string_equal(text, "0123456789\n0123");
    const char *const slow[] = {"/bin/sleep", "60", NULL};
    assert_int_equal(cordon_try_program(slow, text, sizeof text), -ETIME);
    const char *const failing[] = {"/bin/sh", "-c", "exit 3", NULL};
    assert_int_equal(cordon_try_program(failing, text, sizeof text), 3);
    const char *const killed[] = {"/bin/sh", "-c", "kill -9 $$", NULL};
    assert_int_equal(cordon_try_program(killed, text, sizeof text), -EINTR);
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_int_equal(status, 0);
}

/* As in a container whose filter refuses or kills: here the gateway's own, which kills for unshare. */
static int under_a_killing_filter(void)
{
    int results[CORDON_TRY__COUNT];
    if (cordon_filter_gateway(NULL) < 0)
        return 10;
    int r = cordon_try_guest(results);
    if (r < 0 || results[CORDON_TRY_USER] != -EPERM || results[CORDON_TRY_PROC] != CORDON_TRY_SKIPPED)
        return 1;
    size_t count = cordon_probe_host(&usual, probes, MOST);
    if (named("user namespaces", count)->ok || !strstr(named("user namespaces", count)->found, "seccomp"))
        return 2;
    return named("namespaces", count)->ok || named("proc", count)->ok ? 3 : 0;
}

static void an_outer_filter_is_named(void **state)
{
    (void)state;
    int status;
    fflush(NULL);
    pid_t pid = fork();
    if (pid == 0)
        _exit(under_a_killing_filter());
    waitpid(pid, &status, 0);
    assert_int_equal(status, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(this_host_is_told_quickly),
        cmocka_unit_test(an_ordinary_user_is_told_what_it_can_not_have),
        cmocka_unit_test(missing_interpreters_are_named),
        cmocka_unit_test(unseen_interpreters_are_named),
        cmocka_unit_test(programs_are_bounded),
        cmocka_unit_test(an_outer_filter_is_named),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
