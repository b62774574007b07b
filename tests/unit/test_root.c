/* SPDX-License-Identifier: Apache-2.0 */
/* isolate/root: the template's tree as a process in it sees it. */
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
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

#include "base/fd.h"
#include "isolate/root.h"

static const struct cordon_root_file file = {"driver.py", "print(1)\n", 9};
static const char *folders[2]; /* a folder of the host that is wanted at its own place */

/* Checks are numbers, so that the parent can say which failed. */
typedef int check(void);

static int exists(const char *path)
{
    struct stat st;
    return lstat(path, &st) == 0;
}

static int the_tree_has_what_programs_need(void)
{
    char text[64];
    if (!exists("/usr/bin") || !exists("/bin/sh") || !exists("/etc/passwd") || !exists(CORDON_ROOT_HOME))
        return 1;
    if (cordon_read_file(AT_FDCWD, CORDON_ROOT_OWN "/driver.py", text, sizeof text) != 9)
        return 2;
    if (cordon_write_file(AT_FDCWD, "/dev/null", "x") < 0)
        return 3;
    if (cordon_read_file(AT_FDCWD, "/proc/self/comm", text, sizeof text) <= 0)
        return 4;
    return exists(folders[0]) ? 0 : 6;
}

static int nothing_of_the_host_is_left(void)
{
    static const char *const absent[] = {"/sys",          "/boot",    "/etc/shadow", "/etc/hostid", "/var/lib",
                                         "/dev/pts/ptmx", "/dev/mem", "/work",       "/opt"};
    char text[1 << 16];
    for (size_t i = 0; i < sizeof absent / sizeof *absent; i++)
        if (exists(absent[i]))
            return 10 + (int)i;
    if (exists("/../etc/shadow") || chdir("/..") < 0 || exists("etc/shadow"))
        return 30;
    if (cordon_read_file(AT_FDCWD, "/proc/self/mountinfo", text, sizeof text) <= 0)
        return 31;
    size_t mounts = 0;
    for (const char *line = text; (line = strchr(line, '\n')); line++)
        mounts++;
    return mounts <= 16 ? 0 : 32; /* each is copied for every guest */
}

static int usr_is_read_only(void)
{
    if (mkdir("/usr/cordon-test", 0755) == 0 || errno != EROFS)
        return 40;
    return open("/usr/cordon-test", O_CREAT | O_WRONLY | O_CLOEXEC, 0644) < 0 && errno == EROFS ? 0 : 41;
}

static int sealed_it_is_read_only_everywhere(void)
{
    struct cordon_error err;
    static const char *const places[] = {"/x", "/etc/x", "/tmp/x", "/home/user/x", "/dev/x", "/run/cordon/x"};
    char name[64];
    if (cordon_root_seal(&err) < 0)
        return 50;
    if (gethostname(name, sizeof name) < 0 || strcmp(name, "cordon") != 0)
        return 61;
    for (size_t i = 0; i < sizeof places / sizeof *places; i++)
        if (mkdir(places[i], 0755) == 0 || errno != EROFS)
            return 51 + (int)i;
    return cordon_write_file(AT_FDCWD, "/dev/null", "x") < 0 ? 60 : 0;
}

static int run_inside(check *part)
{
    pid_t pid = fork();
    if (pid == 0) {
        struct cordon_error err;
        const struct cordon_root_spec spec = {.files = &file, .file_count = 1, .folders = folders};
        if (cordon_root_enter(&spec, &err) < 0) {
            (void)fprintf(stderr, "# %s\n", err.message);
            _exit(100);
        }
        _exit(part());
    }
    int status = 0;
    assert_int_equal(waitpid(pid, &status, 0), pid);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 200;
}

static void run(void **state)
{
    if (geteuid() != 0) {
        print_message("# skipped: mounting needs root\n");
        skip();
    }
    check **part = (check **)state;
    assert_int_equal(run_inside(*part), 0);
}

static void an_interpreter_is_seen_or_named(void **state)
{
    (void)state;
    char link[64], why[300];
    const char *const unseen[] = {"python3", "", "/proc/self/exe", "/dev/null", "/root/../dev/null", "/etc/passwd"};
    assert_int_equal(cordon_root_sees("/usr/bin/env", why, sizeof why), 0);
    assert_int_equal(cordon_root_sees("/bin/sh", why, sizeof why), 0); /* a link, in a folder that may be one */
    assert_int_equal(cordon_root_sees("/no/such/program", why, sizeof why), 0);
    for (size_t i = 0; i < sizeof unseen / sizeof *unseen; i++) {
        assert_true(cordon_root_sees(unseen[i], why, sizeof why) < 0);
        assert_non_null(strstr(why, unseen[i]));
    }
    (void)snprintf(link, sizeof link, "%s/python3", folders[0]);
    assert_int_equal(symlink("/usr/bin/env", link), 0); /* what it leads to is there, the link is not */
    assert_int_equal(cordon_root_sees(link, why, sizeof why), -EACCES);
    assert_non_null(strstr(why, link));
    assert_int_equal(unlink(link), 0);
    assert_true(cordon_root_sees("/usr/bin/env", why, 1) == 0);
}

static int make_folder(void **state)
{
    static char path[] = "/tmp/cordon-test-root-XXXXXX";
    (void)state;
    folders[0] = mkdtemp(path);
    return folders[0] ? 0 : -1;
}

static int remove_folder(void **state)
{
    (void)state;
    return rmdir(folders[0]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        {"the_tree_has_what_programs_need", run, NULL, NULL, (void *)(uintptr_t)the_tree_has_what_programs_need},
        {"nothing_of_the_host_is_left", run, NULL, NULL, (void *)(uintptr_t)nothing_of_the_host_is_left},
        {"usr_is_read_only", run, NULL, NULL, (void *)(uintptr_t)usr_is_read_only},
        {"sealed_it_is_read_only_everywhere", run, NULL, NULL, (void *)(uintptr_t)sealed_it_is_read_only_everywhere},
        cmocka_unit_test(an_interpreter_is_seen_or_named),
    };
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
