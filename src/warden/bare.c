/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Guests of backend `none`: the same agent as a plain process, in a private folder below /tmp. Nothing is isolated
 * but one thing: where that is possible it is process 1 of a pid namespace, with a /proc that fits, so that killing it
 * ends all that the code started. Root's daemon runs it as a uid that nothing else has; another user's as that user.
 *
 * The folder is removed by a child process that has the code's own uid, so that whatever the code left there (links,
 * races) makes nobody its deputy.
 */
#include "warden/warden.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <sched.h>
#include <linux/sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "agent/launch.h"
#include "base/fd.h"
#include "base/log.h"
#include "isolate/root.h"
#include "warden/assets.h"

#define FOLDER_PREFIX "cordon-none-"
#define LOW_FDS 32
#define DEPTH_MAX 4096
#define NO_PROC 77 /* exit status: /proc of the pid namespace can't be mounted (an outer container masks its own) */

struct launch {
    struct cordon_guest *guest;
    bool own_pids;
    int channel, ready, null, filter, agent;
};

static uid_t code_uid(const struct cordon_warden_config *config)
{
    return config->root ? config->uid_base + 2 : config->outer_uid;
}

/* --- the child --- */

static int write_own_map(const char *file, unsigned inside)
{
    char line[32];
    (void)snprintf(line, sizeof line, "%u 0 1", inside);
    return cordon_write_file(AT_FDCWD, file, line);
}

static int become_code(const struct cordon_warden_config *config)
{
    uid_t uid = code_uid(config);
    if (config->root) {
        if (syscall(SYS_setgroups, 0, NULL) < 0 || syscall(SYS_setresgid, uid, uid, uid) < 0 ||
            syscall(SYS_setresuid, uid, uid, uid) < 0)
            return -errno;
        return 0;
    }
    if (config->outer_uid == getuid()) /* the warden made no user namespace */
        return 0;
    /* In the warden's user namespace this is 0; the code is to see itself as who it is. */
    int r = unshare(CLONE_NEWUSER) < 0 ? -errno : 0;
    if (r == 0)
        r = write_own_map("/proc/thread-self/uid_map", config->outer_uid);
    return r < 0 ? r : write_own_map("/proc/thread-self/gid_map", config->outer_gid);
}

static int place(struct launch *launch)
{
    int *const fds[] = {&launch->channel, &launch->ready, &launch->null, &launch->filter, &launch->agent};
    for (size_t i = 0; i < sizeof fds / sizeof *fds; i++) {
        int high = fcntl(*fds[i], F_DUPFD_CLOEXEC, LOW_FDS); /* no fixed number overwrites it */
        if (high < 0)
            return -errno;
        *fds[i] = high;
    }
    if (dup2(launch->null, 0) < 0 || dup2(launch->null, 1) < 0 || dup2(launch->channel, CORDON_AGENT_CHANNEL) < 0 ||
        dup2(launch->ready, CORDON_AGENT_READY) < 0 || dup2(launch->filter, CORDON_AGENT_FILTER) < 0)
        return -errno;
    return close_range(CORDON_AGENT_FILTER + 1, ~0u, CLOSE_RANGE_CLOEXEC) < 0 ? -errno : 0;
}

static int execute(const struct launch *launch)
{
    const struct cordon_guest *guest = launch->guest;
    const struct cordon_warden_config *config = &guest->warden->config;
    static const char *const languages[CORDON_GUEST_KIND__COUNT] = {
        [CORDON_GUEST_PYTHON] = "python",       [CORDON_GUEST_PYTHON_DATA] = "python",
        [CORDON_GUEST_PYTHON_FRESH] = "python", [CORDON_GUEST_JAVASCRIPT] = "javascript",
        [CORDON_GUEST_BASH] = "bash",           [CORDON_GUEST_KEPT] = "", /* not made */
    };
    static char name[] = "cordon-agent", spawn[] = "spawn", isolated[] = "isolated=0", awaited[] = "awaited=1",
                empty[] = "";
    char uid[32], gid[32], memory[48], cpus[32], language[32], workdir[PATH_MAX], interpreter[320], driver[PATH_MAX];
    const char *script = guest->pool->kind == CORDON_GUEST_JAVASCRIPT ? "driver.js" : "driver.py";
    (void)snprintf(uid, sizeof uid, "code_uid=%u", code_uid(config)); /* all of these fit by their sizes */
    (void)snprintf(gid, sizeof gid, "code_gid=%u", config->root ? code_uid(config) : config->outer_gid);
    (void)snprintf(memory, sizeof memory, "memory=%llu", (unsigned long long)config->memory_bytes);
    (void)snprintf(cpus, sizeof cpus, "cpus=%u", config->cpus);
    (void)snprintf(language, sizeof language, "language=%s", languages[guest->pool->kind]);
    (void)snprintf(workdir, sizeof workdir, "workdir=%s/work", guest->bare_folder);
    (void)snprintf(interpreter, sizeof interpreter, "interpreter=%s",
                   cordon_interpreter_of(&config->interpreters, guest->pool->kind));
    (void)snprintf(driver, sizeof driver, "driver=%s/%s", guest->bare_folder, script);
    char *argv[] = {name,    spawn,  language, uid,         gid,    workdir, isolated,
                    awaited, memory, cpus,     interpreter, driver, NULL};
    char *environment[] = {NULL};
    (void)syscall(SYS_execveat, launch->agent, empty, argv, environment, AT_EMPTY_PATH);
    return -errno;
}

static void mount_proc(void)
{
    if (mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) < 0 ||
        mount("proc", "/proc", "proc", MS_NOSUID | MS_NODEV | MS_NOEXEC, NULL) < 0)
        _exit(NO_PROC);
}

static _Noreturn void child_main(struct launch *launch)
{
    const char *stage = "become the code's user";
    sigset_t none;
    const struct sched_param normal = {0};
    sigemptyset(&none);
    (void)sigprocmask(SIG_SETMASK, &none, NULL); /* the warden's are blocked, one is ignored */
    (void)signal(SIGPIPE, SIG_DFL);
    (void)sched_setscheduler(0, SCHED_OTHER, &normal);
    if (launch->own_pids)
        mount_proc();
    int r = become_code(&launch->guest->warden->config);
    /* Cleared by the change of uid, so after it. A plain process is left to see the end of its channel: killed, it
     * could end none of the processes that the code started. */
    if (r == 0 && launch->own_pids && prctl(PR_SET_PDEATHSIG, SIGKILL) < 0) {
        stage = "tie the guest to the warden";
        r = -errno;
    }
    if (r == 0 && chdir(launch->guest->bare_folder) < 0) {
        stage = "enter the guest's folder";
        r = -errno;
    }
    if (r == 0 && (r = place(launch)) < 0)
        stage = "place the agent's descriptors";
    if (r == 0) {
        r = execute(launch);
        stage = "execute the agent";
    }
    cordon_log(CORDON_LOG_ERROR, "guest of backend none can not start", "stage", stage, "error", strerror(-r), NULL);
    _exit(126);
}

/* --- the warden --- */

static int write_driver(const struct cordon_guest *guest, const char *name, const void *data, size_t size)
{
    char path[PATH_MAX];
    (void)snprintf(path, sizeof path, "%s/%s", guest->bare_folder, name);
    cordon_autoclose int fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0444);
    return fd < 0 ? -errno : cordon_write_full(fd, data, size);
}

static int make_folder(struct cordon_guest *guest, struct cordon_error *err)
{
    const struct cordon_warden_config *config = &guest->warden->config;
    uid_t uid = code_uid(config);
    char path[PATH_MAX], work[PATH_MAX + 8];
    (void)snprintf(path, sizeof path, "/tmp/" FOLDER_PREFIX "%d-XXXXXX", (int)getpid());
    if (!mkdtemp(path))
        return cordon_fail_errno(err, -errno, "make a private folder below /tmp");
    guest->bare_folder = strdup(path);
    if (!guest->bare_folder) {
        (void)rmdir(path); /* just made, empty */
        return cordon_fail_errno(err, -ENOMEM, "make a private folder");
    }
    (void)snprintf(work, sizeof work, "%s/work", path);
    int r = mkdir(work, 0700) < 0 ? -errno : 0;
    if (r == 0)
        r = write_driver(guest, "driver.py", cordon_asset_driver_py, CORDON_ASSET_SIZE(driver_py));
    if (r == 0)
        r = write_driver(guest, "driver.js", cordon_asset_driver_js, CORDON_ASSET_SIZE(driver_js));
    if (r == 0 && config->root && (chown(work, uid, uid) < 0 || chown(path, uid, uid) < 0))
        r = -errno;
    return r < 0 ? cordon_fail_errno(err, r, "prepare the private folder %s", path) : 0;
}

static void on_bare_exit(struct cordon_child *child, int status)
{
    struct cordon_guest *guest = CORDON_OWNER(struct cordon_guest, bare, child);
    if (WIFEXITED(status) && WEXITSTATUS(status) == NO_PROC)
        guest->warden->bare_plain = true; /* from the next attempt on */
    cordon_source_close(&guest->warden->loop, &child->source);
    cordon_guest_gone(guest);
}

/* A fork into a pid namespace where that is allowed, else a plain one. */
static pid_t fork_bare(struct launch *launch)
{
    struct clone_args args = {.exit_signal = SIGCHLD, .flags = CLONE_NEWPID | CLONE_NEWNS};
    launch->own_pids = !launch->guest->warden->bare_plain;
    pid_t pid = launch->own_pids ? (pid_t)syscall(SYS_clone3, &args, sizeof args) : -1;
    if (pid >= 0)
        return pid;
    launch->own_pids = false;
    return fork();
}

int cordon_bare_start(struct cordon_guest *guest, int channel, int ready, struct cordon_error *err)
{
    struct cordon_warden *warden = guest->warden;
    struct launch launch = {.guest = guest,
                            .channel = channel,
                            .ready = ready,
                            .null = warden->null,
                            .filter = warden->no_filter_memfd,
                            .agent = warden->agent_memfd};
    int r = make_folder(guest, err);
    if (r < 0)
        return r;
    pid_t pid = fork_bare(&launch);
    if (pid == 0)
        child_main(&launch);
    if (pid < 0)
        return cordon_fail_errno(err, -errno, "start a process for backend none");
    guest->bare.on_exit = on_bare_exit;
    r = cordon_child_watch(&warden->loop, &guest->bare, pid);
    if (r < 0)
        return cordon_fail_errno(err, r, "watch a process of backend none");
    guest->alive = true;
    guest->bare_plain = !launch.own_pids;
    guest->state = CORDON_GUEST_INTERPRETER;
    return 0;
}

/* --- removing folders --- */

/* Removes what can be removed of the working directory's entries; 1 and its name when there is a folder to enter. */
static int clear_here(char name[NAME_MAX + 1])
{
    DIR *dir = opendir(".");
    int found = 0;
    for (struct dirent *entry; dir && !found && (entry = readdir(dir));) {
        const char *at = entry->d_name;
        if (strcmp(at, ".") == 0 || strcmp(at, "..") == 0 || unlink(at) == 0 || rmdir(at) == 0)
            continue;
        found = errno == ENOTEMPTY || errno == EEXIST;
        (void)snprintf(name, NAME_MAX + 1, "%s", at);
    }
    if (dir)
        (void)closedir(dir); /* only read */
    return found;
}

static int enter_folder(const char *name)
{
    cordon_autoclose int fd = open(name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0 && errno == EACCES && fchmodat(AT_FDCWD, name, 0700, 0) == 0)
        fd = open(name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0 || fchmod(fd, 0700) < 0 || fchdir(fd) < 0)
        return -errno;
    return 0;
}

/* Depth first without recursion and with one descriptor at a time: a tree may be deeper than there is room for either.
 * All in it belongs to the uid that this has, so what can't be removed ends it. */
static _Noreturn void remove_main(const struct cordon_warden_config *config, const char *folder)
{
    char(*names)[NAME_MAX + 1] = calloc(DEPTH_MAX, NAME_MAX + 1);
    size_t depth = 0;
    if (!names || become_code(config) < 0 || enter_folder(folder) < 0)
        _exit(1);
    for (;;) {
        if (depth < DEPTH_MAX && clear_here(names[depth])) {
            if (enter_folder(names[depth++]) < 0)
                _exit(1);
        } else if (depth == 0) {
            _exit(0);
        } else if (chdir("..") < 0 || rmdir(names[--depth]) < 0) {
            _exit(1);
        }
    }
}

struct removal {
    struct cordon_warden *warden;
    struct cordon_child child;
    char *folder;
};

static void end_removal(struct removal *removal)
{
    removal->warden->removals--;
    if (rmdir(removal->folder) < 0 && errno != ENOENT)
        cordon_log(CORDON_LOG_WARN, "private folder could not be removed", "folder", removal->folder, "error",
                   strerror(errno), NULL);
    free(removal->folder);
    free(removal);
}

static void on_removed(struct cordon_child *child, int status)
{
    struct removal *removal = CORDON_OWNER(struct removal, child, child);
    (void)status;
    cordon_source_close(&removal->warden->loop, &child->source);
    end_removal(removal);
}

void cordon_bare_remove_folder(struct cordon_warden *warden, char *folder_take)
{
    struct removal *removal = calloc(1, sizeof *removal);
    if (!removal) {
        free(folder_take); /* found by cordon_bare_remove_stale later */
        return;
    }
    *removal =
        (struct removal){.warden = warden, .child = {.source.fd = -1, .on_exit = on_removed}, .folder = folder_take};
    warden->removals++;
    pid_t pid = cordon_process_fork(NULL, 0);
    if (pid == 0)
        remove_main(&warden->config, folder_take);
    if (pid < 0 || cordon_child_watch(&warden->loop, &removal->child, pid) < 0)
        end_removal(removal);
}

void cordon_bare_remove_stale(struct cordon_warden *warden)
{
    DIR *dir = opendir("/tmp");
    for (struct dirent *entry; dir && (entry = readdir(dir));) {
        struct stat st;
        int pid, end = 0;
        if (sscanf(entry->d_name, FOLDER_PREFIX "%d-%n", &pid, &end) != 1 || end == 0 || pid <= 0)
            continue;
        if (kill(pid, 0) == 0 || errno != ESRCH)
            continue;
        /* Anybody may make such a name in /tmp: only ours, and it is walked with no more rights than its owner's. */
        if (fstatat(dirfd(dir), entry->d_name, &st, AT_SYMLINK_NOFOLLOW) < 0 || !S_ISDIR(st.st_mode) ||
            (st.st_uid != code_uid(&warden->config) && st.st_uid != getuid()))
            continue;
        char *path = NULL;
        if (asprintf(&path, "/tmp/%s", entry->d_name) > 0)
            cordon_bare_remove_folder(warden, path);
    }
    if (dir)
        (void)closedir(dir); /* only read */
}
