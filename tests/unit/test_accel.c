/* SPDX-License-Identifier: Apache-2.0 */
/* vmm/accel: devices that are absent, closed, something else, or lie, hang and crash; and the real one of this host. */
#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/clock.h"
#include "vmm/accel_try.h"

#define LIMIT_MS 20000

static char folder[] = "/tmp/cordon-accel-XXXXXX", path[64];

static const char *in_folder(const char *name)
{
    (void)snprintf(path, sizeof path, "%s/%s", folder, name);
    return path;
}

static struct cordon_accel try_with(const struct cordon_accel_calls *calls, const char *device, unsigned limit_ms)
{
    struct cordon_accelerator which = cordon_accelerator_kvm;
    struct cordon_accel found;
    struct cordon_error err = {0};
    which.device = device;
    if (cordon_accel_try(&which, calls, limit_ms, &found, &err) < 0)
        fail_msg("%s", err.message);
    print_message("# %s: %s: %s | %s (%llu us)\n", found.device, cordon_accel_state_name(found.state), found.reason,
                  found.fix, (unsigned long long)found.took_us);
    assert_string_equal(found.name, "kvm");
    assert_string_equal(found.device, device);
    assert_true(*found.reason);
    assert_int_equal(found.usable, found.state == CORDON_ACCEL_GOOD);
    return found;
}

static struct cordon_accel try_path(const char *device)
{
    return try_with(&cordon_accel_kernel, device, LIMIT_MS);
}

static void expect(const struct cordon_accel *found, enum cordon_accel_state state, const char *words)
{
    assert_int_equal(found->state, state);
    if (!strstr(found->reason, words))
        fail_msg("\"%s\" is not in \"%s\"", words, found->reason);
}

static void a_missing_device_is_absent(void **state)
{
    struct cordon_accel found = try_path(in_folder("none"));
    expect(&found, CORDON_ACCEL_ABSENT, "not there");
    assert_true(*found.fix);
    assert_int_equal(found.took_us, 0); /* no child was needed */
}

static int open_without_driver(const char *device, int flags)
{
    errno = ENXIO;
    return -1;
}

static void a_device_without_driver_is_absent(void **state)
{
    const struct cordon_accel_calls calls = {open_without_driver, cordon_accel_kernel.ioctl};
    struct cordon_accel found = try_with(&calls, "/dev/kvm", LIMIT_MS);
    expect(&found, CORDON_ACCEL_ABSENT, "no driver answers");
}

static int open_refused(const char *device, int flags)
{
    errno = EPERM;
    return -1;
}

static void a_container_that_forbids_it_is_named(void **state)
{
    const struct cordon_accel_calls calls = {open_refused, cordon_accel_kernel.ioctl};
    struct cordon_accel found = try_with(&calls, in_folder("none"), LIMIT_MS);
    expect(&found, CORDON_ACCEL_NO_PERMISSION, "Operation not permitted");
    assert_non_null(strstr(found.fix, "DeviceAllow"));
}

/* Runs body as another user with these groups and gives its result; 0 is well. */
static int as_user(uid_t uid, gid_t gid, const gid_t *groups, size_t count, int (*body)(void))
{
    int status = -1;
    fflush(NULL);
    pid_t pid = fork();
    if (pid == 0) {
        bool ready = setgroups(count, groups) == 0 && setgid(gid) == 0 && setuid(uid) == 0;
        _exit(ready ? body() : 100);
    }
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFEXITED(status));
    return WEXITSTATUS(status);
}

static int body_refused(void)
{
    struct cordon_accel found = try_path(path);
    return found.state != CORDON_ACCEL_NO_PERMISSION ? 1 : strstr(found.fix, "usermod -aG") ? 0 : 2;
}

static int body_not_effective(void)
{
    struct cordon_accel found = try_path(path);
    return found.state != CORDON_ACCEL_GROUP_NOT_EFFECTIVE ? 1 : strstr(found.fix, "log in again") ? 0 : 2;
}

static int body_closed_to_groups(void)
{
    struct cordon_accel found = try_path(path);
    return found.state != CORDON_ACCEL_NO_PERMISSION ? 1 : strstr(found.fix, "chmod 0660") ? 0 : 2;
}

/* The user `bin` has the primary group `bin` by the host's database, on each Debian. */
static void what_a_user_may_not_open_is_told_with_its_group(void **state)
{
    struct group *bin = getgrnam("bin");
    if (geteuid() != 0 || !bin || !cordon_accel_listed(bin->gr_gid, bin->gr_gid))
        skip();
    const uid_t user = bin->gr_gid; /* 2 and 2 */
    int fd = open(in_folder("closed"), O_CREAT | O_RDWR | O_CLOEXEC, 0600);
    assert_true(fd >= 0);
    assert_int_equal(chmod(folder, 0755), 0);
    assert_int_equal(fchown(fd, 0, 65534), 0);
    assert_int_equal(fchmod(fd, 0660), 0);
    assert_int_equal(as_user(user, user, NULL, 0, body_refused), 0);
    assert_int_equal(fchown(fd, 0, bin->gr_gid), 0);
    assert_int_equal(as_user(user, 65534, NULL, 0, body_not_effective), 0);
    assert_int_equal(fchmod(fd, 0600), 0);
    assert_int_equal(as_user(user, user, NULL, 0, body_closed_to_groups), 0);
    close(fd);
}

static void what_is_no_kvm_device_is_told(void **state)
{
    struct cordon_accel found = try_path("/dev/null");
    expect(&found, CORDON_ACCEL_UNUSABLE, "/dev/null is no KVM device");
    int fd = open(in_folder("file"), O_CREAT | O_RDWR | O_CLOEXEC, 0600);
    assert_true(fd >= 0);
    close(fd);
    found = try_path(in_folder("file"));
    expect(&found, CORDON_ACCEL_UNUSABLE, "is no KVM device");
}

static int open_anything(const char *device, int flags)
{
    return open("/dev/null", flags);
}

static int version_11(int fd, unsigned long request, uintptr_t argument)
{
    return 11;
}

static void another_version_is_told(void **state)
{
    const struct cordon_accel_calls calls = {open_anything, version_11};
    struct cordon_accel found = try_with(&calls, "/dev/kvm", LIMIT_MS);
    expect(&found, CORDON_ACCEL_UNUSABLE, "speaks version 11 of KVM's interface, not 12");
}

static unsigned refuse_from; /* the n-th call fails */
static int refuse_later(int fd, unsigned long request, uintptr_t argument)
{
    static unsigned calls;
    if (++calls < refuse_from)
        return 12;
    errno = ENOMEM;
    return -1;
}

static void a_machine_that_can_not_be_made_is_told(void **state)
{
    const struct cordon_accel_calls calls = {open_anything, refuse_later};
    static const char *const words[] = {"asking for KVM's version", "making a virtual machine", "giving it memory",
                                        "making a CPU"};
    for (refuse_from = 1; refuse_from <= 4; refuse_from++) {
        struct cordon_accel found = try_with(&calls, "/dev/kvm", LIMIT_MS);
        expect(&found, CORDON_ACCEL_UNUSABLE, words[refuse_from - 1]);
        assert_non_null(strstr(found.reason, strerror(ENOMEM)));
    }
}

static int hang(int fd, unsigned long request, uintptr_t argument)
{
    for (;;)
        (void)pause();
    return -1;
}

static void what_hangs_is_ended(void **state)
{
    const struct cordon_accel_calls calls = {open_anything, hang};
    struct cordon_accel found = try_with(&calls, "/dev/kvm", 100);
    expect(&found, CORDON_ACCEL_UNUSABLE, "no answer within 100 ms");
    assert_true(found.took_us >= 100000);
    assert_int_equal(waitpid(-1, NULL, WNOHANG), -1); /* no child is left */
    assert_int_equal(errno, ECHILD);
}

static int speak(int fd, unsigned long request, uintptr_t argument)
{
    (void)!write(STDOUT_FILENO, "\1", 1);
    errno = EINVAL;
    return -1;
}

/* One that can't be killed would keep whoever reads our output waiting. */
static void nothing_of_ours_is_kept_open(void **state)
{
    int ends[2], saved = dup(STDOUT_FILENO);
    assert_int_equal(pipe(ends), 0);
    fflush(stdout);
    assert_int_equal(dup2(ends[1], STDOUT_FILENO), STDOUT_FILENO);
    struct cordon_accel found = try_with(&(struct cordon_accel_calls){open_anything, speak}, "/dev/kvm", LIMIT_MS);
    fflush(stdout); /* what try_with says */
    assert_int_equal(dup2(saved, STDOUT_FILENO), STDOUT_FILENO);
    (void)close(saved);
    (void)close(ends[1]);
    char said[4096];
    ssize_t n;
    while ((n = read(ends[0], said, sizeof said)) > 0)
        assert_null(memchr(said, 1, (size_t)n));
    (void)close(ends[0]);
    expect(&found, CORDON_ACCEL_UNUSABLE, "");
}

static int crash(int fd, unsigned long request, uintptr_t argument)
{
    struct sigaction usual = {.sa_handler = SIG_DFL};
    (void)sigaction(SIGILL, &usual, NULL); /* cmocka has a handler of its own */
    (void)raise(SIGILL);
    return -1;
}

static int leave(int fd, unsigned long request, uintptr_t argument)
{
    _exit(7);
}

static void what_crashes_is_told(void **state)
{
    struct cordon_accel found = try_with(&(struct cordon_accel_calls){open_anything, crash}, "/dev/kvm", LIMIT_MS);
    expect(&found, CORDON_ACCEL_UNUSABLE, "killed by signal 4");
    found = try_with(&(struct cordon_accel_calls){open_anything, leave}, "/dev/kvm", LIMIT_MS);
    expect(&found, CORDON_ACCEL_UNUSABLE, "status 7");
}

static unsigned open_descriptors(void)
{
    unsigned count = 0;
    for (int fd = 0; fd < 256; fd++)
        count += fcntl(fd, F_GETFD) >= 0;
    return count;
}

/* Whatever this host has, the answer is whole; where it runs guests, the speed says in which way. */
static void this_host_is_told(void **state)
{
    unsigned before = open_descriptors();
    struct cordon_accel found = try_path("/dev/kvm");
    assert_int_equal(open_descriptors(), before);
    assert_int_equal(waitpid(-1, NULL, WNOHANG), -1);
    if (found.state == CORDON_ACCEL_GOOD)
        assert_true(found.instructions_per_s >= 100000000 && !*found.fix);
    if (found.state == CORDON_ACCEL_EMULATED)
        assert_true(found.instructions_per_s > 0 && found.instructions_per_s < 100000000 && *found.fix);
}

static void what_was_measured_is_remembered(void **state)
{
    struct cordon_accel found = {.state = CORDON_ACCEL_EMULATED,
                                 .name = "kvm",
                                 .device = "/dev/kvm",
                                 .reason = "slow",
                                 .instructions_per_s = 1400000},
                        seen = {.name = "kvm", .device = "/dev/kvm"};
    int device = open("/dev/null", O_RDWR | O_CLOEXEC), other = open("/dev/zero", O_RDWR | O_CLOEXEC);
    char file[64];
    (void)snprintf(file, sizeof file, "%s/kept", folder);
    assert_false(cordon_accel_recall(file, device, &seen));
    cordon_accel_keep(file, device, &found);
    assert_false(cordon_accel_recall(file, other, &seen)); /* another node */
    assert_true(cordon_accel_recall(file, device, &seen));
    assert_int_equal(seen.state, CORDON_ACCEL_EMULATED);
    assert_int_equal(seen.instructions_per_s, 1400000);
    assert_true(seen.cached && !seen.usable);
    struct cordon_accel wrong = {.name = "other", .device = "/dev/kvm"};
    assert_false(cordon_accel_recall(file, device, &wrong));
    assert_int_equal(chmod(file, 0666), 0); /* anybody may have written it */
    assert_false(cordon_accel_recall(file, device, &seen));
    assert_int_equal(chmod(file, 0600), 0);
    assert_true(cordon_accel_recall(file, device, &seen));
    assert_int_equal(truncate(file, 100), 0);
    assert_false(cordon_accel_recall(file, device, &seen));
    found.state = CORDON_ACCEL_UNUSABLE; /* may have been load: not kept */
    assert_int_equal(unlink(file), 0);
    cordon_accel_keep(file, device, &found);
    assert_false(cordon_accel_recall(file, device, &seen));
    found.state = CORDON_ACCEL_GOOD;
    cordon_accel_keep(file, device, &found);
    assert_true(cordon_accel_recall(file, device, &seen) && seen.usable);
    assert_int_equal(symlink(file, in_folder("link")), 0);
    assert_false(cordon_accel_recall(path, device, &seen));
    close(device);
    close(other);
}

static void the_second_answer_is_the_first_one_kept(void **state)
{
    struct cordon_accel first, second;
    struct cordon_error err = {0};
    assert_int_equal(cordon_accel_probe_anew(&first, &err), 0);
    assert_false(first.cached);
    assert_int_equal(cordon_accel_probe(&second, &err), 0);
    if (first.state == CORDON_ACCEL_GOOD || first.state == CORDON_ACCEL_EMULATED) {
        assert_int_equal(second.state, first.state);
        assert_true(second.cached || geteuid() != 0);
        if (second.cached)
            assert_int_equal(second.instructions_per_s, first.instructions_per_s);
    }
}

static int make_folder(void **state)
{
    return mkdtemp(folder) ? 0 : -1;
}

static int remove_folder(void **state)
{
    static const char *const names[] = {"closed", "file", "kept", "link"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        (void)unlink(in_folder(names[i])); /* not each test ran to its end */
    return rmdir(folder);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_missing_device_is_absent),
        cmocka_unit_test(a_device_without_driver_is_absent),
        cmocka_unit_test(a_container_that_forbids_it_is_named),
        cmocka_unit_test(what_a_user_may_not_open_is_told_with_its_group),
        cmocka_unit_test(what_is_no_kvm_device_is_told),
        cmocka_unit_test(another_version_is_told),
        cmocka_unit_test(a_machine_that_can_not_be_made_is_told),
        cmocka_unit_test(what_hangs_is_ended),
        cmocka_unit_test(nothing_of_ours_is_kept_open),
        cmocka_unit_test(what_crashes_is_told),
        cmocka_unit_test(this_host_is_told),
        cmocka_unit_test(what_was_measured_is_remembered),
        cmocka_unit_test(the_second_answer_is_the_first_one_kept),
    };
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
