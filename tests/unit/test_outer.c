/* SPDX-License-Identifier: Apache-2.0 */
/* isolate/outer: what is around a process, and root that has fewer capabilities than a host's. */
#include <errno.h>
#include <linux/capability.h>
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/fd.h"
#include "isolate/filter.h"
#include "isolate/outer.h"

static void needs_root(void)
{
    if (geteuid() == 0 && cordon_outer_may_mount())
        return;
    print_message("# skipped: changing namespaces and mounts needs root\n");
    skip();
}

/* 0, or the number of what was wrong. */
static int in_child(int (*body)(void))
{
    int status;
    fflush(NULL);
    pid_t pid = fork();
    if (pid == 0)
        _exit(body());
    waitpid(pid, &status, 0);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 200;
}

static int give_up_admin(void)
{
    struct __user_cap_header_struct header = {.version = _LINUX_CAPABILITY_VERSION_3};
    struct __user_cap_data_struct data[2];
    if (syscall(SYS_capget, &header, data) < 0)
        return -errno;
    data[0].effective &= ~(1u << CAP_SYS_ADMIN);
    data[0].permitted &= ~(1u << CAP_SYS_ADMIN);
    return syscall(SYS_capset, &header, data) < 0 ? -errno : 0;
}

static void ids_of_this_namespace(void **state)
{
    (void)state;
    assert_true(cordon_outer_has_ids(geteuid(), 1));
    assert_false(cordon_outer_has_ids(4294967290u, 65536)); /* past the last id that there is */
}

static int alone(void)
{
    struct cordon_error err;
    if (give_up_admin() < 0 || setgid(65534) < 0 || setuid(65534) < 0 || prctl(PR_SET_DUMPABLE, 1, 0, 0, 0) < 0)
        return 1;
    if (cordon_outer_may_mount())
        return 2;
    if (cordon_outer_enter_alone(&err) < 0)
        return 3;
    if (geteuid() != 0 || !cordon_outer_may_mount())
        return 4;
    return cordon_outer_has_ids(0, 1) && !cordon_outer_has_ids(0, 2) && !cordon_outer_has_ids(65534, 1) ? 0 : 5;
}

static void an_ordinary_user_is_root_of_its_own(void **state)
{
    (void)state;
    needs_root();
    assert_int_equal(in_child(alone), 0);
}

static int with_all_ids(void)
{
    struct cordon_error err;
    if (give_up_admin() < 0 || cordon_outer_may_mount() || unshare(CLONE_NEWNS) == 0)
        return 1;
    if (cordon_outer_enter_user(&err) < 0)
        return 2;
    if (!cordon_outer_may_mount() || !cordon_outer_has_ids(0, 65536) || !cordon_outer_has_ids(1879048192u, 65536))
        return 3;
    if (geteuid() != 0 || unshare(CLONE_NEWNS) < 0 || mount("t", "/mnt", "tmpfs", 0, NULL) < 0)
        return 4;
    return waitpid(-1, NULL, WNOHANG) == -1 && errno == ECHILD ? 0 : 5; /* the helper is gone */
}

static void root_without_admin_gets_it_in_a_namespace_of_its_own(void **state)
{
    (void)state;
    needs_root();
    assert_int_equal(in_child(with_all_ids), 0);
}

static int without_anything(void)
{
    struct cordon_error err = {0};
    if (setgid(65534) < 0 || setuid(65534) < 0)
        return 1;
    return cordon_outer_enter_user(&err) < 0 && strstr(err.message, "CAP_SETUID") ? 0 : 2;
}

static void what_is_missing_for_that_is_named(void **state)
{
    (void)state;
    needs_root();
    assert_int_equal(in_child(without_anything), 0);
}

static int behind_a_mask(void)
{
    char text[64];
    cordon_outer_masked_proc(text, sizeof text);
    if (*text)
        return 77; /* this host masks some itself */
    if (unshare(CLONE_NEWNS) < 0 || mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) < 0 ||
        mount("/dev/null", "/proc/cmdline", NULL, MS_BIND, NULL) < 0 ||
        mount("m", "/proc/irq", "tmpfs", MS_RDONLY, NULL) < 0)
        return 1;
    cordon_outer_masked_proc(text, sizeof text);
    return strcmp(text, "/proc/cmdline, /proc/irq") == 0 ? 0 : 2;
}

static void masked_parts_are_listed(void **state)
{
    (void)state;
    needs_root();
    int r = in_child(behind_a_mask);
    if (r == 77) {
        print_message("# skipped: parts of this host's own /proc are masked\n");
        skip();
    }
    assert_int_equal(r, 0);
}

static int behind_a_filter(void)
{
    if (cordon_outer_has_filter())
        return 77;
    return cordon_filter_gateway(NULL) == 0 && cordon_outer_has_filter() ? 0 : 1;
}

static void a_filter_is_seen(void **state)
{
    (void)state;
    int r = in_child(behind_a_filter);
    if (r == 77) {
        print_message("# skipped: the tests run under a filter themselves\n");
        skip();
    }
    assert_int_equal(r, 0);
}

static void groups_that_can_be_written_are_left_alone(void **state)
{
    (void)state;
    char before[64] = "", after[64] = "";
    assert_true(readlink("/proc/self/ns/mnt", before, sizeof before - 1) > 0);
    if (geteuid() != 0 || access("/sys/fs/cgroup", W_OK) < 0)
        skip();
    cordon_outer_open_cgroups();
    assert_true(readlink("/proc/self/ns/mnt", after, sizeof after - 1) > 0);
    assert_string_equal(before, after);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ids_of_this_namespace),
        cmocka_unit_test(an_ordinary_user_is_root_of_its_own),
        cmocka_unit_test(root_without_admin_gets_it_in_a_namespace_of_its_own),
        cmocka_unit_test(what_is_missing_for_that_is_named),
        cmocka_unit_test(masked_parts_are_listed),
        cmocka_unit_test(a_filter_is_seen),
        cmocka_unit_test(groups_that_can_be_written_are_left_alone),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
