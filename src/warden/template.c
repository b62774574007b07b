/* SPDX-License-Identifier: Apache-2.0 */
/* The template's root tree: made once, by a child that leaves the mount namespace behind as a descriptor. */
#include "warden/warden.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/fd.h"
#include "isolate/root.h"
#include "warden/assets.h"

#define FOLDERS_MAX 8

struct folders {
    char text[FOLDERS_MAX][PATH_MAX];
    const char *list[FOLDERS_MAX + 1];
    size_t count;
};

/* The prefix of an interpreter that is not where the template has the host's programs anyway. */
static void add_folder(struct folders *folders, const char *interpreter)
{
    static const char *const there[] = {"/usr/", "/bin/", "/sbin/", "/lib"};
    char *text = folders->text[folders->count];
    for (size_t i = 0; i < sizeof there / sizeof *there; i++)
        if (strncmp(interpreter, there[i], strlen(there[i])) == 0)
            return;
    (void)snprintf(text, PATH_MAX, "%s", interpreter);
    for (int up = 0; up < 2; up++) { /* its name, and "bin" */
        char *slash = strrchr(text, '/');
        if (!slash || slash == text)
            return;
        *slash = '\0';
    }
    folders->list[folders->count++] = text;
}

static void collect_folders(const struct cordon_warden_config *config, struct folders *ret)
{
    const char *const interpreters[] = {config->python, config->node, config->bash};
    for (size_t i = 0; i < sizeof interpreters / sizeof *interpreters; i++) {
        char real[PATH_MAX], why[300];
        if (cordon_root_sees(interpreters[i], why, sizeof why) < 0)
            continue; /* the warden has said so; guests are to see nothing of it */
        add_folder(ret, interpreters[i]);
        if (realpath(interpreters[i], real)) /* a virtual environment's links to another place */
            add_folder(ret, real);
    }
}

static _Noreturn void child_main(const struct cordon_warden_config *config, int sock)
{
    static struct folders folders;
    const struct cordon_root_file files[] = {
        {"zygote.py", cordon_asset_zygote_py, CORDON_ASSET_SIZE(zygote_py)},
        {"_cordon_zygote.so", cordon_asset_zygote_so, CORDON_ASSET_SIZE(zygote_so)},
        {"driver.py", cordon_asset_driver_py, CORDON_ASSET_SIZE(driver_py)},
        {"driver.js", cordon_asset_driver_js, CORDON_ASSET_SIZE(driver_js)},
    };
    struct cordon_error err = {0};
    collect_folders(config, &folders);
    const struct cordon_root_spec spec = {
        .files = files, .file_count = sizeof files / sizeof *files, .folders = folders.list, .rootless = !config->root};
    (void)cordon_root_enter(&spec, &err); /* err.code tells */
    char byte;
    if (cordon_send_fds(sock, &err, sizeof err, NULL, 0, 0) >= 0)
        (void)cordon_read_full(sock, &byte, 1); /* until the warden has opened our namespace */
    _exit(0);
}

static int take_namespace(struct cordon_warden *warden, pid_t pid, int sock, struct cordon_error *err)
{
    struct cordon_error failed;
    char path[64];
    ssize_t n = cordon_recv_fds(sock, &failed, sizeof failed, NULL, NULL, 0);
    if (n != (ssize_t)sizeof failed)
        return cordon_fail_errno(err, n < 0 ? (int)n : -ECHILD, "make the template's root tree");
    if (failed.code < 0) {
        *err = failed;
        return failed.code;
    }
    (void)snprintf(path, sizeof path, "/proc/%d/ns/mnt", (int)pid);
    warden->root_ns = open(path, O_RDONLY | O_CLOEXEC);
    return warden->root_ns < 0 ? cordon_fail_errno(err, -errno, "open the template's mount namespace") : 0;
}

int cordon_template_make(struct cordon_warden *warden, struct cordon_error *err)
{
    int pair[2];
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) < 0)
        return cordon_fail_errno(err, -errno, "make a socket for the template");
    cordon_autoclose int ours = pair[0];
    pid_t pid = cordon_process_fork(&pair[1], 1);
    if (pid == 0)
        child_main(&warden->config, pair[1]);
    (void)close(pair[1]); /* the child's */
    if (pid < 0)
        return cordon_fail_errno(err, pid, "start a process to make the template's root tree");
    int r = take_namespace(warden, pid, ours, err);
    cordon_close(&ours);
    while (waitpid(pid, NULL, 0) < 0 && errno == EINTR)
        ;
    return r;
}
