/* SPDX-License-Identifier: Apache-2.0 */
/* isolate/code: what a process is after it became the code, and that real programs work as it. */
#include <errno.h>
#include <fcntl.h>
#include <linux/capability.h>
#include <sched.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/fd.h"
#include "guest_child.h"
#include "isolate/code.h"
#include "isolate/filter.h"

static struct guest_child_result result; /* large: not on the stack */

static struct cordon_code_profile profile_without_filter(void)
{
    return (struct cordon_code_profile){.open_files = 256, .filter_fd = -1, .workdir = "/"};
}

static void expect_part(int (*part)(void *arg))
{
    if (!guest_child_possible())
        skip();
    guest_child_code(profile_without_filter(), part, NULL, NULL, &result);
    if (result.status != 0)
        fail_msg("status %#x, output: %s", result.status, result.output);
}

/* Each part says on its standard error what it found wrong. */
#define EXPECT(condition)                                                                                              \
    do {                                                                                                               \
        if (!(condition)) {                                                                                            \
            dprintf(2, "line %d: %s (errno %d)\n", __LINE__, #condition, errno);                                       \
            return 1;                                                                                                  \
        }                                                                                                              \
    } while (0)

static int has_no_capability(void *arg)
{
    struct __user_cap_header_struct header = {.version = _LINUX_CAPABILITY_VERSION_3};
    struct __user_cap_data_struct data[_LINUX_CAPABILITY_U32S_3];
    (void)arg;
    EXPECT(syscall(SYS_capget, &header, data) == 0);
    for (int i = 0; i < _LINUX_CAPABILITY_U32S_3; i++)
        EXPECT(data[i].effective == 0 && data[i].permitted == 0 && data[i].inheritable == 0);
    for (unsigned long i = 0; i <= CAP_LAST_CAP; i++)
        EXPECT(prctl(PR_CAPBSET_READ, i, 0, 0, 0) <= 0);
    for (unsigned long i = 0; i <= CAP_LAST_CAP; i++)
        EXPECT(prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_IS_SET, i, 0, 0) <= 0);
    EXPECT(prctl(PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0) == 1);
    EXPECT(sethostname("x", 1) < 0 && errno == EPERM);
    return 0;
}

static int has_its_ids_and_no_others(void *arg)
{
    uid_t r, e, s, uid = guest_child_uid();
    gid_t groups[8];
    (void)arg;
    EXPECT(getresuid(&r, &e, &s) == 0 && r == uid && e == uid && s == uid);
    EXPECT(getresgid(&r, &e, &s) == 0 && r == uid && e == uid && s == uid);
    EXPECT(!guest_child_has_range() || getgroups(8, groups) == 0);
    EXPECT(!guest_child_has_range() || (setuid(0) < 0 && errno == EPERM));
    EXPECT(!guest_child_has_range() || (setgid(0) < 0 && errno == EPERM));
    return 0;
}

static int has_its_limits(void *arg)
{
    static const struct {
        __rlimit_resource_t resource;
        rlim_t value;
    } expected[] = {
        {RLIMIT_CORE, 0},   {RLIMIT_MSGQUEUE, 0},       {RLIMIT_NICE, 0},
        {RLIMIT_RTPRIO, 0}, {RLIMIT_MEMLOCK, 64 << 10}, {RLIMIT_NOFILE, 256},
    };
    (void)arg;
    for (size_t i = 0; i < sizeof expected / sizeof expected[0]; i++) {
        struct rlimit limit;
        EXPECT(getrlimit(expected[i].resource, &limit) == 0);
        EXPECT(limit.rlim_cur == expected[i].value && limit.rlim_max == expected[i].value);
        limit.rlim_max++;
        EXPECT(setrlimit(expected[i].resource, &limit) < 0 && errno == EPERM);
    }
    return 0;
}

static int leads_a_session_and_owns_its_proc(void *arg)
{
    struct stat info;
    char text[64];
    (void)arg;
    EXPECT(getsid(0) == getpid());
    EXPECT(umask(0) == 022);
    EXPECT(prctl(PR_GET_DUMPABLE, 0, 0, 0, 0) == 1);
    EXPECT(stat("/proc/self/environ", &info) == 0 && info.st_uid == getuid());
    EXPECT(cordon_read_file(AT_FDCWD, "/proc/self/oom_score_adj", text, sizeof text) > 0 && strcmp(text, "500\n") == 0);
    EXPECT(getcwd(text, sizeof text) && strcmp(text, "/") == 0);
    return 0;
}

static void nothing_privileged_is_left(void **state)
{
    (void)state;
    expect_part(has_no_capability);
    expect_part(has_its_ids_and_no_others);
    expect_part(has_its_limits);
    expect_part(leads_a_session_and_owns_its_proc);
}

static void on_signal(int number)
{
    (void)number;
}

/* A parent with handlers, ignored and blocked signals, and real-time priority where that is allowed. */
static int become_from_a_busy_parent(void *arg)
{
    int listener;
    const char *stage;
    sigset_t all, now;
    struct sigaction action;
    struct sched_param param = {.sched_priority = 1};
    struct cordon_code_profile profile = profile_without_filter();
    (void)arg;
    profile.uid = profile.gid = guest_child_uid();
    (void)sched_setscheduler(0, SCHED_RR, &param); /* only where it is allowed */
    (void)signal(SIGPIPE, SIG_IGN);
    (void)signal(SIGTERM, on_signal);
    sigfillset(&all);
    EXPECT(sigprocmask(SIG_BLOCK, &all, NULL) == 0);
    EXPECT(cordon_code_become(&profile, &listener, &stage) == 0);
    EXPECT(listener == -1);
    EXPECT(sched_getscheduler(0) == SCHED_OTHER);
    EXPECT(sigaction(SIGPIPE, NULL, &action) == 0 && action.sa_handler == SIG_DFL);
    EXPECT(sigaction(SIGTERM, NULL, &action) == 0 && action.sa_handler == SIG_DFL);
    EXPECT(sigprocmask(SIG_BLOCK, NULL, &now) == 0 && sigismember(&now, SIGTERM) == 0);
    param.sched_priority = 1;
    EXPECT(sched_setscheduler(0, SCHED_RR, &param) < 0);
    return 0;
}

static void the_parents_signals_and_priority_are_gone(void **state)
{
    (void)state;
    if (!guest_child_possible())
        skip();
    assert_int_equal(guest_child_run(become_from_a_busy_parent, NULL), 0);
}

static int fail_to_become(void *arg)
{
    int listener = 7;
    const char *stage = NULL;
    struct cordon_code_profile profile = profile_without_filter();
    (void)arg;
    profile.uid = profile.gid = guest_child_uid();
    profile.workdir = "/no/such/folder";
    EXPECT(cordon_code_become(&profile, &listener, &stage) == -ENOENT);
    EXPECT(strcmp(stage, "working directory") == 0 && listener == -1);
    return 0;
}

static int become_an_unmapped_uid(void *arg)
{
    int listener;
    const char *stage = NULL;
    struct cordon_code_profile profile = profile_without_filter();
    (void)arg;
    profile.uid = 70000;
    profile.gid = guest_child_uid();
    EXPECT(cordon_code_become(&profile, &listener, &stage) == -EINVAL);
    EXPECT(strcmp(stage, "uid") == 0);
    return 0;
}

static void a_failure_names_its_stage(void **state)
{
    (void)state;
    if (!guest_child_possible())
        skip();
    assert_int_equal(guest_child_run(fail_to_become, NULL), 0);
    assert_int_equal(guest_child_run(become_an_unmapped_uid, NULL), 0);
}

static int keeps_ids(void *arg)
{
    (void)arg;
    EXPECT(getuid() == 0);
    EXPECT(prctl(PR_CAPBSET_READ, CAP_SYS_ADMIN, 0, 0, 0) == 1);
    EXPECT(prctl(PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0) == 1);
    return 0;
}

static void without_isolation_ids_stay(void **state)
{
    (void)state;
    if (!guest_child_possible())
        skip();
    struct cordon_code_profile profile = profile_without_filter();
    profile.keep_ids = 1;
    guest_child_code(profile, keeps_ids, NULL, NULL, &result);
    if (result.status != 0)
        fail_msg("status %#x, output: %s", result.status, result.output);
}

/* A second filter without a listener is allowed, and a listener would have to be the agent's. */
static int filters_twice(void *arg)
{
    struct cordon_code_profile *profile = arg;
    int listener;
    EXPECT(cordon_filter_load(profile->filter_fd, &listener) == -EPERM);
    EXPECT(unshare(CLONE_NEWUSER) < 0 && errno == EPERM);
    return 0;
}

static void the_filter_is_there_and_has_one_listener(void **state)
{
    (void)state;
    if (!guest_child_possible())
        skip();
    struct cordon_code_profile profile = profile_without_filter();
    profile.filter_fd = cordon_filter_code(NULL);
    guest_child_code(profile, filters_twice, &profile, NULL, &result);
    close(profile.filter_fd);
    if (result.status != 0)
        fail_msg("status %#x, output: %s", result.status, result.output);
    assert_string_equal(result.names, " seccomp unshare");
}

/* Runs a program as code does: its output must be the expected, and nothing of what it did may have been notified. */
static void expect_program(const char *const argv[], const char *expected)
{
    if (!guest_child_possible() || access(argv[0], X_OK) < 0)
        skip();
    struct cordon_code_profile profile = {.open_files = 1024, .workdir = "/tmp"};
    profile.filter_fd = cordon_filter_code(NULL);
    guest_child_code(profile, NULL, NULL, argv, &result);
    close(profile.filter_fd);
    if (result.status != 0 || strcmp(result.output, expected) != 0)
        fail_msg("%s: status %#x, notified:%s, output: %s", argv[0], result.status, result.names, result.output);
    assert_string_equal(result.names, "");
}

static void python_works(void **state)
{
    (void)state;
    static const char program[] =
        "import asyncio, json, multiprocessing, os, resource, select, signal, socket, sqlite3, ssl, subprocess, sys\n"
        "import tempfile, threading, time, uuid, fcntl, mmap, ctypes, hashlib, zoneinfo\n"
        "from multiprocessing import shared_memory\n"
        "t = threading.Thread(target=time.sleep, args=(0.01,)); t.start(); t.join()\n"
        "with multiprocessing.Pool(2) as p: assert p.map(abs, [-1, -2]) == [1, 2]\n"
        "q = multiprocessing.Queue(); q.put(1); assert q.get() == 1\n"
        "m = shared_memory.SharedMemory(create=True, size=4096); m.close(); m.unlink()\n"
        "assert subprocess.run(['/bin/echo', 'hi'], capture_output=True).stdout == b'hi\\n'\n"
        "async def main():\n"
        "    p = await asyncio.create_subprocess_exec('/bin/true'); await p.wait()\n"
        "    await asyncio.sleep(0)\n"
        "asyncio.run(main())\n"
        "d = tempfile.mkdtemp()\n"
        "c = sqlite3.connect(d + '/x'); c.execute('pragma journal_mode=wal'); c.execute('create table t(a)'); "
        "c.commit()\n"
        "c.close()\n"
        "os.mkfifo(d + '/f'); os.symlink('f', d + '/l'); os.utime(d + '/f'); os.chmod(d + '/f', 0o600)\n"
        "s = socket.socket(); s.bind(('127.0.0.1', 0)); s.listen(); s.close()\n"
        "a, b = socket.socketpair(); a.send(b'x'); assert b.recv(1) == b'x'\n"
        "socket.if_nameindex(); os.sched_setaffinity(0, os.sched_getaffinity(0)); os.nice(1)\n"
        "resource.setrlimit(resource.RLIMIT_NOFILE, (100, 100)); os.getrandom(8); os.memfd_create('x')\n"
        "os.copy_file_range; os.sync(); signal.setitimer(signal.ITIMER_REAL, 0)\n"
        "f = open(d + '/y', 'w'); fcntl.flock(f, fcntl.LOCK_EX); f.close()\n"
        "pid = os.posix_spawn('/bin/true', ['true'], {}); os.waitpid(pid, 0)\n"
        "import shutil; shutil.rmtree(d)\n"
        "ssl.create_default_context(); uuid.uuid1()\n"
        "print('done')\n";
    const char *const argv[] = {"/usr/bin/python3", "-I", "-c", program, NULL};
    expect_program(argv, "done\n");
}

static void python_with_data_modules_works(void **state)
{
    (void)state;
    static const char program[] = "import importlib.util as u, os, shutil, tempfile\n"
                                  "os.environ['MPLCONFIGDIR'] = folder = tempfile.mkdtemp()\n"
                                  "if all(map(u.find_spec, ('numpy', 'pandas', 'matplotlib'))):\n"
                                  "    import numpy as np, pandas as pd, io, matplotlib.pyplot as plt\n"
                                  "    a = np.random.rand(200, 200); b = a @ a; np.linalg.svd(a)\n"
                                  "    pd.DataFrame({'a': [1, 2]}).groupby('a').sum()\n"
                                  "    plt.plot([1, 2]); plt.savefig(io.BytesIO())\n"
                                  "shutil.rmtree(folder)\n"
                                  "print('done')\n";
    const char *const argv[] = {"/usr/bin/python3", "-I", "-c", program, NULL};
    expect_program(argv, "done\n");
}

static void node_works(void **state)
{
    (void)state;
    static const char program[] =
        "const { Worker } = require('worker_threads'), fs = require('fs'), os = require('os'), net = require('net');\n"
        "const { execSync, fork } = require('child_process'), dir = fs.mkdtempSync('/tmp/cordon-test-');\n"
        "os.cpus(); os.networkInterfaces(); os.setPriority(5); process.memoryUsage(); "
        "process.setuid(process.getuid());\n"
        "fs.writeFileSync(dir + '/a', 'x'); fs.copyFileSync(dir + '/a', dir + '/b'); fs.symlinkSync('a', dir + '/l');\n"
        "const w = fs.watch(dir); w.close();\n"
        "if (execSync('echo hi').toString() !== 'hi\\n') throw 1;\n"
        "const s = net.createServer(); s.listen(dir + '/s', () => s.close(() => {\n"
        "  new Worker('require(\"worker_threads\").parentPort.postMessage(1)', { eval: true }).on('message', () =>\n"
        "    require('dns').lookup('localhost', () => require('crypto').randomBytes(8, () => {\n"
        "      fs.rmSync(dir, { recursive: true }); new WebAssembly.Memory({ initial: 1 }); console.log('done');\n"
        "  })));\n"
        "}));\n";
    const char *const argv[] = {"/usr/bin/node", "-e", program, NULL};
    expect_program(argv, "done\n");
}

static void shell_git_and_compiler_work(void **state)
{
    (void)state;
    static const char program[] =
        "set -e; d=$(mktemp -d); cd $d; trap 'cd /; rm -rf $d' EXIT\n"
        "ulimit -n 64; echo a | sed s/a/b/ | sort > x; cp -a x y; ln -s x l; tar cf - x l | tar tf - >/dev/null; df . "
        ">o\n"
        "{ (sleep 0.01; kill -9 $BASHPID) & wait; } 2>/dev/null || true; timeout 5 true; nice true; flock x true; exec "
        "5<>x; exec 5>&-\n"
        "! command -v git >/dev/null || { git init -q .; git add x; git -c user.name=a -c user.email=a@b commit -qm x; "
        "}\n"
        "! command -v gcc >/dev/null || { echo 'int main(){return 0;}' > m.c; gcc -o m m.c; ./m; }\n"
        "mkfifo p; ls -la >/dev/null; stat x >/dev/null; id >/dev/null; ps >/dev/null || true; sync; touch -d @1 x\n"
        "head -c 100000 /dev/urandom | gzip | gunzip | sha256sum > s; dd if=s of=t bs=1 count=3 2>/dev/null; echo "
        "done\n";
    const char *const argv[] = {"/bin/bash", "-c", program, NULL};
    expect_program(argv, "done\n");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(nothing_privileged_is_left),
        cmocka_unit_test(the_parents_signals_and_priority_are_gone),
        cmocka_unit_test(a_failure_names_its_stage),
        cmocka_unit_test(without_isolation_ids_stay),
        cmocka_unit_test(the_filter_is_there_and_has_one_listener),
        cmocka_unit_test(python_works),
        cmocka_unit_test(python_with_data_modules_works),
        cmocka_unit_test(node_works),
        cmocka_unit_test(shell_git_and_compiler_work),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
