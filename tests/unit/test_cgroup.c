/* SPDX-License-Identifier: Apache-2.0 */
/* isolate/cgroup: finding the hierarchies of different hosts, and real groups where this host lets us make some. */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/magic.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/vfs.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/fd.h"
#include "isolate/cgroup.h"
#include "isolate/cgroup_find.h"
#include "isolate/cgroup_tree.h"

static struct cordon_cgroup_place places[CORDON_CGROUP_PLACES];

static void pure_v2_with_systemd(void **state)
{
    (void)state;
    size_t count =
        cordon_cgroup_find("24 31 0:22 / /proc rw - proc proc rw\n"
                           "30 24 0:26 / /sys/fs/cgroup rw,nosuid shared:4 - cgroup2 cgroup2 rw,nsdelegate\n",
                           "0::/system.slice/cordon.service\n", places);
    assert_int_equal(count, 1);
    assert_true(places[0].v2);
    assert_false(places[0].top);
    assert_string_equal(places[0].path, "/sys/fs/cgroup/system.slice/cordon.service");
}

static void v1_with_a_nested_memory_group(void **state)
{
    (void)state;
    size_t count = cordon_cgroup_find(
        "32 31 0:29 / /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu\n"
        "33 31 0:30 / /sys/fs/cgroup/cpuacct rw - cgroup cgroup rw,cpuacct\n"
        "34 31 0:31 / /sys/fs/cgroup/cpuset rw - cgroup cgroup rw,cpuset\n"
        "35 31 0:32 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n"
        "39 31 0:36 / /sys/fs/cgroup/pids rw - cgroup cgroup rw,pids\n"
        "40 31 0:37 / /sys/fs/cgroup/systemd rw - cgroup cgroup rw,name=systemd\n"
        "41 31 0:38 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw",
        "9:name=systemd:/\n8:pids:/\n4:memory:/process_api/4304\n2:cpuacct:/\n1:cpu:/\n0::/", places);
    assert_int_equal(count, 5);
    assert_int_equal(places[0].controllers, CORDON_CGROUP_CPU);
    assert_int_equal(places[1].controllers, CORDON_CGROUP_CPUACCT);
    assert_int_equal(places[2].controllers, CORDON_CGROUP_MEMORY);
    assert_string_equal(places[2].path, "/sys/fs/cgroup/memory/process_api/4304");
    assert_string_equal(places[3].path, "/sys/fs/cgroup/pids");
    assert_true(places[3].top);
    assert_true(places[4].v2);
}

static void controllers_mounted_together_and_twice(void **state)
{
    (void)state;
    size_t count = cordon_cgroup_find("1 0 0:1 / /cg/cpu,cpuacct rw - cgroup cgroup rw,cpu,cpuacct\n"
                                      "2 0 0:1 / /other/cpu,cpuacct rw - cgroup cgroup rw,cpu,cpuacct\n",
                                      "4:cpu,cpuacct:/a\n", places);
    assert_int_equal(count, 1);
    assert_int_equal(places[0].controllers, CORDON_CGROUP_CPU | CORDON_CGROUP_CPUACCT);
    assert_string_equal(places[0].path, "/cg/cpu,cpuacct/a");
}

static void a_container_sees_its_own_part(void **state)
{
    (void)state;
    /* docker on v1 without a cgroup namespace: the mount's root is the container's group */
    size_t count = cordon_cgroup_find("35 31 0:32 /docker/ab12 /sys/fs/cgroup/memory ro - cgroup cgroup rw,memory\n",
                                      "4:memory:/docker/ab12\n", places);
    assert_int_equal(count, 1);
    assert_string_equal(places[0].path, "/sys/fs/cgroup/memory");
    assert_true(places[0].top);
    /* a group in it */
    count = cordon_cgroup_find("35 31 0:32 /docker/ab12 /sys/fs/cgroup/memory ro - cgroup cgroup rw,memory\n",
                               "4:memory:/docker/ab12/x\n", places);
    assert_string_equal(places[0].path, "/sys/fs/cgroup/memory/x");
    /* a neighbour whose name only begins alike isn't below the mount */
    count = cordon_cgroup_find("35 31 0:32 /docker/ab12 /sys/fs/cgroup/memory ro - cgroup cgroup rw,memory\n",
                               "4:memory:/docker/ab123\n", places);
    assert_int_equal(count, 0);
    /* outside of the cgroup namespace */
    count = cordon_cgroup_find("30 24 0:26 / /sys/fs/cgroup rw - cgroup2 cgroup rw\n", "0::/../other\n", places);
    assert_int_equal(count, 0);
}

static void ugly_texts_are_survived(void **state)
{
    (void)state;
    static char text[8192], self[1024];
    assert_int_equal(cordon_cgroup_find("", "", places), 0);
    assert_int_equal(cordon_cgroup_find("\n\n - \n", "\n::\n:", places), 0);
    assert_int_equal(cordon_cgroup_find("1 2 3 / /x rw - cgroup", "1:memory:/", places), 0);
    assert_int_equal(cordon_cgroup_find("1 2 3 / /x rw - cgroup2 c rw", "0:", places), 0);
    assert_int_equal(cordon_cgroup_find("1 2 3 / /a\\040b\\134c rw - cgroup2 c rw", "0::/x:y", places), 1);
    assert_string_equal(places[0].path, "/a b\\c/x:y");
    memset(text, 'a', sizeof text - 1);
    memcpy(text, "1 2 3 / /", 9);
    assert_int_equal(cordon_cgroup_find(text, "0::/", places), 0);
    memset(self, 'b', sizeof self - 1);
    memcpy(self, "0::/", 4);
    assert_int_equal(cordon_cgroup_find("1 2 3 / /x rw - cgroup2 c rw", self, places), 0);
}

static void controller_lists(void **state)
{
    (void)state;
    assert_int_equal(cordon_cgroup_controllers("cpuset cpu io memory hugetlb pids rdma misc\n", ' '),
                     CORDON_CGROUP_CPU | CORDON_CGROUP_MEMORY | CORDON_CGROUP_PIDS);
    assert_int_equal(cordon_cgroup_controllers("", ' '), 0);
    assert_int_equal(cordon_cgroup_controllers("\n", ' '), 0);
    assert_int_equal(cordon_cgroup_controllers("memoryx,xpids", ','), 0);
}

static int file_with(const char *text)
{
    int fd = memfd_create("text", MFD_CLOEXEC);
    assert_int_equal(write(fd, text, strlen(text)), strlen(text));
    return fd;
}

static void statistics_of_both_versions_are_read(void **state)
{
    (void)state;
    int v1 = file_with("oom_kill_disable 0\nunder_oom 0\noom_kill 3\n");
    int v2 = file_with("low 0\nhigh 0\nmax 12\noom 7\noom_kill 5\noom_group_kill 1\n");
    int ns = file_with("123456789\n"), us = file_with("usage_usec 4711\nuser_usec 4000\nsystem_usec 711\n");
    int number = file_with("18446744073709551615\n"), word = file_with("max\n"), empty = file_with("");
    assert_int_equal(cordon_cgroup_read_oom_kills(v1), 3);
    assert_int_equal(cordon_cgroup_read_oom_kills(v2), 5);
    assert_int_equal(cordon_cgroup_read_oom_kills(empty), 0);
    assert_int_equal(cordon_cgroup_read_oom_kills(-1), 0);
    assert_int_equal(cordon_cgroup_read_cpu_us(ns), 123456);
    assert_int_equal(cordon_cgroup_read_cpu_us(us), 4711);
    assert_int_equal(cordon_cgroup_read_cpu_us(us), 4711); /* from the start each time */
    assert_int_equal(cordon_cgroup_read_cpu_us(-1), 0);
    assert_true(cordon_cgroup_read_number(number) == UINT64_MAX);
    assert_int_equal(cordon_cgroup_read_number(word), 0);
    int fds[] = {v1, v2, ns, us, number, word, empty};
    for (size_t i = 0; i < sizeof fds / sizeof fds[0]; i++)
        close(fds[i]);
}

static void bad_instance_names_are_refused(void **state)
{
    (void)state;
    static const char *const names[] = {"",     ".",   "..",  "a/b",
                                        "../x", "a b", "x\n", "1234567890123456789012345678901234567890123456789"};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        struct cordon_cgroup_root *root;
        struct cordon_error err;
        assert_int_equal(cordon_cgroup_root_open(names[i], &root, &err), -EINVAL);
        assert_int_equal(err.kind, CORDON_ERROR_INVALID);
    }
}

static struct cordon_cgroup_root *root;
static struct cordon_cgroup_slot slot;

/* Names with the pid of the test itself, in its children as well: other tests may run beside it. */
static char instance[32], left_instance[32], other_instance[32];

static int name_instances(void **state)
{
    (void)state;
    snprintf(instance, sizeof instance, "test-%d", getpid());
    snprintf(left_instance, sizeof left_instance, "left-%d", getpid());
    snprintf(other_instance, sizeof other_instance, "other-%d", getpid());
    return 0;
}

static int open_root(void **state)
{
    (void)state;
    struct cordon_error err;
    memset(&slot, 0, sizeof slot);
    if (cordon_cgroup_root_open(instance, &root, &err) < 0)
        return -1;
    return cordon_cgroup_slot_make(root, 7, &slot, &err);
}

static int close_root(void **state)
{
    (void)state;
    cordon_cgroup_slot_remove(&slot);
    cordon_cgroup_root_close(root);
    return 0;
}

static void need(bool there)
{
    if (!there) {
        print_message("# %s\n", cordon_cgroup_root_reason(root));
        skip();
    }
}

static void set_limits(uint64_t memory_bytes, uint32_t pids, uint32_t cpu_percent)
{
    struct cordon_error err;
    if (cordon_cgroup_slot_limit(&slot, memory_bytes, pids, cpu_percent, &err) < 0)
        fail_msg("%s", err.message);
}

static void join(void)
{
    for (size_t i = 0; i < slot.procs_count; i++) {
        if (write(slot.procs[i], "0", 1) != 1)
            _exit(90);
    }
}

static int status_of(int (*part)(void))
{
    int status;
    fflush(NULL);
    pid_t pid = fork();
    if (pid == 0) {
        join();
        _exit(part());
    }
    waitpid(pid, &status, 0);
    return status;
}

static int use_48_mib(void)
{
    void *memory = mmap(NULL, 48 << 20, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
    return memory == MAP_FAILED;
}

static int use_8_mib(void)
{
    void *memory = mmap(NULL, 8 << 20, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
    return memory == MAP_FAILED;
}

static void memory_is_limited_and_told(void **state)
{
    (void)state;
    need(cordon_cgroup_has_memory(root));
    set_limits(32 << 20, 0, 0);
    int status = status_of(use_48_mib);
    assert_true(WIFSIGNALED(status));
    assert_int_equal(WTERMSIG(status), SIGKILL);
    assert_int_equal(cordon_cgroup_read_oom_kills(slot.memory_events), 1);
    assert_true(cordon_cgroup_read_number(slot.memory_peak) >= 31 << 20);
    assert_true(cordon_cgroup_slot_recycle(&slot));
    set_limits(96 << 20, 0, 0); /* raised */
    uint64_t kills = cordon_cgroup_read_oom_kills(slot.memory_events);
    assert_int_equal(status_of(use_8_mib), 0);
    uint64_t peak = cordon_cgroup_read_number(slot.memory_peak);
    if (slot.memory_peak >= 0)
        assert_true(peak >= 8 << 20 && peak < 24 << 20); /* this guest's, not the last one's */
    assert_int_equal(status_of(use_48_mib), 0);
    assert_int_equal(cordon_cgroup_read_oom_kills(slot.memory_events), kills);
    set_limits(32 << 20, 0, 0); /* lowered again */
    assert_true(WIFSIGNALED(status_of(use_48_mib)));
    set_limits(0, 0, 0); /* none */
    assert_int_equal(status_of(use_48_mib), 0);
}

static int cache_file;

/* A file of 64 MiB in the cache, charged to who wrote it. */
static int fill_the_cache(void)
{
    static char block[1 << 20];
    for (int i = 0; i < 64; i++)
        if (write(cache_file, block, sizeof block) != (ssize_t)sizeof block)
            return 1;
    return fsync(cache_file) != 0;
}

static uint64_t usage_now(void)
{
    char text[64] = "", path[32];
    for (size_t i = 0; i < root->count; i++) {
        if (!(root->trees[i].controllers & CORDON_CGROUP_MEMORY))
            continue;
        snprintf(path, sizeof path, "%u/%s", slot.index,
                 root->trees[i].place.v2 ? "memory.current" : "memory.usage_in_bytes");
        assert_true(cordon_read_file(root->trees[i].group, path, text, sizeof text) > 0);
    }
    return strtoull(text, NULL, 10);
}

/* What a guest left in the cache is not the next one's, and dropping it takes no time: the file stays cached. */
static void cache_of_the_last_guest_is_left_behind(void **state)
{
    struct timespec before, after;
    (void)state;
    need(cordon_cgroup_has_memory(root));
    char path[] = "/var/tmp/cordon-test-XXXXXX";
    cache_file = mkstemp(path);
    assert_true(cache_file >= 0);
    (void)unlink(path);
    set_limits(256 << 20, 0, 0);
    assert_int_equal(status_of(fill_the_cache), 0);
    assert_true(usage_now() > 48 << 20);
    unsigned made = slot.made;
    (void)clock_gettime(CLOCK_MONOTONIC, &before);
    assert_true(cordon_cgroup_slot_recycle(&slot));
    (void)clock_gettime(CLOCK_MONOTONIC, &after);
    assert_true(usage_now() < 8 << 20);
    assert_int_equal(slot.memory_bytes, 256 << 20); /* the limits are those of before */
    assert_int_equal(slot.made, made + 1);
    unsigned char cached[(64 << 20) / 4096];
    void *file = mmap(NULL, 64 << 20, PROT_READ, MAP_SHARED, cache_file, 0);
    assert_true(file != MAP_FAILED && mincore(file, 64 << 20, cached) == 0);
    size_t pages = 0;
    for (size_t i = 0; i < sizeof cached; i++)
        pages += cached[i] & 1;
    assert_true(pages > sizeof cached / 2);
    (void)munmap(file, 64 << 20);
    (void)close(cache_file);
    long us = (after.tv_sec - before.tv_sec) * 1000000 + (after.tv_nsec - before.tv_nsec) / 1000;
    print_message("# made anew in %ld us\n", us);
}

/* Returns how many children it could have at once. */
static int count_forks(void)
{
    int made = 0;
    pid_t children[50];
    while (made < 50 && (children[made] = fork()) > 0)
        made++;
    if (made < 50 && children[made] == 0) {
        pause();
        _exit(0);
    }
    for (int i = 0; i < made; i++) {
        (void)kill(children[i], SIGKILL);
        (void)waitpid(children[i], NULL, 0);
    }
    return made;
}

static void processes_are_limited(void **state)
{
    (void)state;
    need(cordon_cgroup_has_pids(root));
    set_limits(0, 10, 0);
    assert_int_equal(WEXITSTATUS(status_of(count_forks)), 9); /* ten with itself */
    set_limits(0, 20, 0);
    assert_int_equal(WEXITSTATUS(status_of(count_forks)), 19);
}

static int spin_300_ms(void)
{
    struct timespec start, now;
    (void)clock_gettime(CLOCK_MONOTONIC, &start);
    do
        (void)clock_gettime(CLOCK_MONOTONIC, &now);
    while ((now.tv_sec - start.tv_sec) * 1000 + (now.tv_nsec - start.tv_nsec) / 1000000 < 300);
    return 0;
}

static void cpu_is_limited_and_counted(void **state)
{
    (void)state;
    need(cordon_cgroup_has_cpu(root));
    set_limits(0, 0, 20);
    uint64_t before = cordon_cgroup_read_cpu_us(slot.cpu_usage);
    assert_int_equal(status_of(spin_300_ms), 0);
    uint64_t used = cordon_cgroup_read_cpu_us(slot.cpu_usage) - before;
    print_message("# %llu us of 300000\n", (unsigned long long)used);
    assert_true(used > 10000 && used < 150000);
}

/* cgroup.procs of v1 would make each guest wait for a grace period. Both kinds can be entered: the tests above do. */
static void groups_of_v1_are_entered_by_their_tasks(void **state)
{
    (void)state;
    need(slot.procs_count > 0);
    for (size_t i = 0; i < slot.procs_count; i++) {
        char link[64], path[PATH_MAX] = "";
        struct statfs fs;
        (void)snprintf(link, sizeof link, "/proc/self/fd/%d", slot.procs[i]);
        assert_true(readlink(link, path, sizeof path - 1) > 0);
        assert_int_equal(fstatfs(slot.procs[i], &fs), 0);
        assert_string_equal(strrchr(path, '/') + 1, fs.f_type == CGROUP_SUPER_MAGIC ? "tasks" : "cgroup.procs");
    }
}

static void an_occupied_slot_is_not_recycled(void **state)
{
    (void)state;
    need(slot.procs_count > 0);
    pid_t pid = fork();
    if (pid == 0) {
        join();
        (void)kill(getpid(), SIGSTOP);
        _exit(0);
    }
    int status;
    waitpid(pid, &status, WUNTRACED);
    assert_true(WIFSTOPPED(status));
    assert_false(cordon_cgroup_slot_recycle(&slot));
    kill(pid, SIGKILL);
    waitpid(pid, &status, 0);
    assert_true(cordon_cgroup_slot_recycle(&slot));
}

/* A daemon dies and leaves its groups with a process in one; the next of the same name starts from nothing. */
static void what_a_dead_instance_left_is_removed(void **state)
{
    (void)state;
    need(slot.procs_count > 0);
    int ends[2], status;
    assert_int_equal(pipe(ends), 0);
    fflush(NULL);
    pid_t daemon = fork();
    if (daemon == 0) {
        struct cordon_cgroup_root *other;
        if (cordon_cgroup_root_open(left_instance, &other, NULL) < 0 ||
            cordon_cgroup_slot_make(other, 0, &slot, NULL) < 0)
            _exit(1);
        pid_t left = fork();
        if (left == 0) {
            join();
            (void)signal(SIGTERM, SIG_IGN);
            (void)!write(ends[1], "x", 1);
            close(ends[1]);
            pause();
        }
        char byte;
        (void)!read(ends[0], &byte, 1);
        (void)kill(getpid(), SIGKILL);
    }
    close(ends[1]);
    waitpid(daemon, &status, 0);
    assert_true(WIFSIGNALED(status));
    struct cordon_cgroup_root *next;
    struct cordon_error err;
    if (cordon_cgroup_root_open(left_instance, &next, &err) < 0)
        fail_msg("%s", err.message);
    char byte;
    assert_int_equal(read(ends[0], &byte, 1), 0); /* the process that was left is dead */
    close(ends[0]);
    assert_int_equal(cordon_cgroup_occupied(next->trees[0].group, "0"), -1);
    cordon_cgroup_root_close(next);
}

static void a_living_instance_is_left_alone(void **state)
{
    (void)state;
    need(slot.procs_count > 0);
    int status;
    fflush(NULL);
    pid_t pid = fork();
    if (pid == 0) {
        struct cordon_cgroup_root *other;
        struct cordon_error err;
        int r = cordon_cgroup_root_open(instance, &other, &err);
        _exit(r == -EADDRINUSE && err.kind == CORDON_ERROR_CONFLICT ? 0 : 1);
    }
    waitpid(pid, &status, 0);
    assert_int_equal(status, 0);
    assert_int_equal(cordon_cgroup_occupied(root->trees[0].group, "7"), 0);
}

static void single_runs_that_died_are_removed(void **state)
{
    (void)state;
    need(slot.procs_count > 0);
    int status;
    char name[64];
    fflush(NULL);
    pid_t pid = fork();
    if (pid == 0) {
        struct cordon_cgroup_root *other;
        snprintf(name, sizeof name, "run-%d", getpid());
        _exit(cordon_cgroup_root_open(name, &other, NULL) < 0); /* without closing it */
    }
    waitpid(pid, &status, 0);
    assert_int_equal(status, 0);
    snprintf(name, sizeof name, "cordon-run-%d", pid);
    assert_int_equal(faccessat(root->trees[0].base, name, F_OK, 0), 0);
    struct cordon_cgroup_root *other;
    assert_int_equal(cordon_cgroup_root_open(other_instance, &other, NULL), 0);
    assert_int_equal(faccessat(root->trees[0].base, name, F_OK, 0), -1);
    cordon_cgroup_root_close(other);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(pure_v2_with_systemd),
        cmocka_unit_test(v1_with_a_nested_memory_group),
        cmocka_unit_test(controllers_mounted_together_and_twice),
        cmocka_unit_test(a_container_sees_its_own_part),
        cmocka_unit_test(ugly_texts_are_survived),
        cmocka_unit_test(controller_lists),
        cmocka_unit_test(statistics_of_both_versions_are_read),
        cmocka_unit_test(bad_instance_names_are_refused),
        cmocka_unit_test_setup_teardown(memory_is_limited_and_told, open_root, close_root),
        cmocka_unit_test_setup_teardown(cache_of_the_last_guest_is_left_behind, open_root, close_root),
        cmocka_unit_test_setup_teardown(processes_are_limited, open_root, close_root),
        cmocka_unit_test_setup_teardown(cpu_is_limited_and_counted, open_root, close_root),
        cmocka_unit_test_setup_teardown(groups_of_v1_are_entered_by_their_tasks, open_root, close_root),
        cmocka_unit_test_setup_teardown(an_occupied_slot_is_not_recycled, open_root, close_root),
        cmocka_unit_test_setup_teardown(what_a_dead_instance_left_is_removed, open_root, close_root),
        cmocka_unit_test_setup_teardown(a_living_instance_is_left_alone, open_root, close_root),
        cmocka_unit_test_setup_teardown(single_runs_that_died_are_removed, open_root, close_root),
    };
    return cmocka_run_group_tests(tests, name_instances, NULL);
}
