/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The child that makes a template's tree and leaves it behind as a mount namespace. For a made template, in this order:
 * the file's digest; what it needs of the host; the archive, unpacked by another child that is jailed in an empty
 * tmpfs; the root tree around that. Nothing of the archive is looked at before the digest was right, and nothing in
 * here ever reads it: what comes back of the jail is one struct of fixed size.
 */
#include "warden/warden.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/trust.h"
#include "core/template_file.h"
#include "isolate/base.h"
#include "isolate/root.h"
#include "warden/assets.h"
#include "warden/unpack.h"

#define FOLDERS_MAX 8
#define BYTES_A_FILE 4096u
#define JAIL_UID 8 /* from the zygote uid, in the range that is this warden's own */

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
    const struct cordon_interpreters *set = &config->interpreters;
    const char *const interpreters[] = {set->python, set->node, set->bash};
    for (size_t i = 0; i < sizeof interpreters / sizeof *interpreters; i++) {
        char real[PATH_MAX], why[300];
        if (cordon_root_sees(interpreters[i], why, sizeof why) < 0)
            continue; /* the warden has said so; guests are to see nothing of it */
        add_folder(ret, interpreters[i]);
        if (realpath(interpreters[i], real)) /* a virtual environment's links to another place */
            add_folder(ret, real);
    }
}

static struct cordon_root_spec root_spec(const struct cordon_warden_config *config, bool host_programs)
{
    static struct folders folders;
    static struct cordon_root_file files[6];
    size_t count = 4;
    files[0] = (struct cordon_root_file){"zygote.py", cordon_asset_zygote_py, CORDON_ASSET_SIZE(zygote_py)};
    files[1] = (struct cordon_root_file){"_cordon_zygote.so", cordon_asset_zygote_so, CORDON_ASSET_SIZE(zygote_so)};
    files[2] = (struct cordon_root_file){"driver.py", cordon_asset_driver_py, CORDON_ASSET_SIZE(driver_py)};
    files[3] = (struct cordon_root_file){"driver.js", cordon_asset_driver_js, CORDON_ASSET_SIZE(driver_js)};
    if (config->authority.size) {
        files[count++] =
            (struct cordon_root_file){CORDON_TRUST_AUTHORITY, config->authority.data, config->authority.size};
        files[count++] =
            (struct cordon_root_file){CORDON_TRUST_BUNDLE, config->trust_bundle.data, config->trust_bundle.size};
    }
    if (host_programs)
        collect_folders(config, &folders);
    return (struct cordon_root_spec){.files = files,
                                     .file_count = count,
                                     .folders = folders.list,
                                     .rootless = !config->root,
                                     .host_network = config->host_network};
}

static void load_default(const struct cordon_warden_config *config, struct cordon_template_report *report)
{
    const struct cordon_root_spec spec = root_spec(config, true);
    (void)cordon_root_enter(&spec, &report->err); /* err.code tells */
    report->interpreters = config->interpreters;
}

/* --- what it needs of the host --- */

static int drop(const void *config)
{
    return cordon_process_drop(config);
}

/* Packages that were built for another interpreter would fail in ways that nobody understands. */
static int check_base(const struct cordon_warden_config *config, const struct cordon_template_header *header,
                      struct cordon_error *err)
{
    char now[CORDON_TEMPLATE_BASE];
    const struct cordon_base_question question = {
        .python =
            strstr(header->base, " cpython") || strstr(header->base, " pypy") ? config->interpreters.python : NULL,
        .node = strstr(header->base, " node-") ? config->interpreters.node : NULL,
        .drop = drop,
        .data = config};
    if (header->kind != CORDON_TEMPLATE_LAYER)
        return 0;
    int r = cordon_base_describe(&question, now, sizeof now, err);
    if (r < 0 || strcmp(now, header->base) == 0)
        return r;
    return cordon_fail(err, -ESTALE, CORDON_ERROR_UNAVAILABLE,
                       "it was built for %.100s, and this host has %.100s: build it again (cordon template rebuild)",
                       header->base, now);
}

/* --- the jail --- */

static _Noreturn void become_jail(const struct cordon_warden_config *config,
                                  const struct cordon_template_header *header, int file, int tree, int sock)
{
    char uid[32], whole[16];
    static char name[] = "cordon", role[] = "--role", unpack[] = "unpack";
    char *argv[] = {name, role, unpack, uid, whole, NULL}, *environment[] = {NULL};
    pid_t parent = getppid();
    int null = open("/dev/null", O_RDWR | O_CLOEXEC);
    const int fds[] = {null, null, file, sock, tree};
    (void)snprintf(uid, sizeof uid, "%u", config->root ? config->zygote_uid + JAIL_UID : 0); /* fit */
    (void)snprintf(whole, sizeof whole, "%s", header->kind == CORDON_TEMPLATE_ROOTFS ? "whole" : "layer");
    if (null >= 0 && prctl(PR_SET_PDEATHSIG, SIGKILL) == 0 && getppid() == parent &&
        lseek(file, CORDON_TEMPLATE_PAYLOAD, SEEK_SET) >= 0 &&
        unshare(CLONE_NEWNET | CLONE_NEWIPC | CLONE_NEWUTS) == 0 &&
        cordon_process_place(fds, sizeof fds / sizeof *fds) == 0)
        (void)execve("/proc/self/exe", argv, environment);
    _exit(126);
}

static const char *pick(const char *const *candidates, size_t count, uint32_t found)
{
    return found && found <= count ? candidates[found - 1] : "";
}

/* Of an untrusted process: numbers that mean places of our own tables, and a text of which only letters are kept. */
static int take_result(struct cordon_unpack_result *result, struct cordon_template_report *report, bool whole)
{
    if (result->status < 0) {
        result->why[sizeof result->why - 1] = '\0';
        for (char *p = result->why; *p; p++)
            if (*p < ' ' || *p > '~')
                *p = '?';
        return cordon_fail(&report->err, -ESTALE, CORDON_ERROR_UNAVAILABLE, "its archive can not be unpacked: %.300s",
                           result->why);
    }
    report->unpacked = *result;
    if (!whole)
        return 0;
    struct cordon_interpreters *to = &report->interpreters;
    (void)snprintf(to->python, sizeof to->python, "%s",
                   pick(cordon_unpack_python, CORDON_UNPACK_PLACES, result->python)); /* all fit */
    (void)snprintf(to->node, sizeof to->node, "%s", pick(cordon_unpack_node, CORDON_UNPACK_PLACES, result->node));
    (void)snprintf(to->bash, sizeof to->bash, "%s", pick(cordon_unpack_bash, CORDON_UNPACK_PLACES, result->bash));
    if (!*to->python && !*to->node && !*to->bash)
        return cordon_fail(&report->err, -ESTALE, CORDON_ERROR_UNAVAILABLE,
                           "its file tree has no interpreter: python3, node or bash in /usr/local/bin, /usr/bin or "
                           "/bin");
    return 0;
}

static int unpack(const struct cordon_warden_config *config, const struct cordon_template_header *header, int file,
                  int tree, struct cordon_template_report *report)
{
    struct cordon_unpack_result result;
    int pair[2];
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) < 0)
        return cordon_fail_errno(&report->err, -errno, "make a socket for the archive's jail");
    pid_t pid = fork();
    if (pid == 0)
        become_jail(config, header, file, tree, pair[1]);
    (void)close(pair[1]); /* the child's */
    ssize_t n = pid < 0 ? -errno : cordon_recv_fds(pair[0], &result, sizeof result, NULL, NULL, 0);
    (void)close(pair[0]); /* only read */
    if (pid > 0)
        (void)kill(pid, SIGKILL); /* said all that it has to say; our child, not yet waited for */
    while (pid > 0 && waitpid(pid, NULL, 0) < 0 && errno == EINTR)
        continue;
    if (n != (ssize_t)sizeof result)
        return cordon_fail(&report->err, -ESTALE, CORDON_ERROR_UNAVAILABLE,
                           "its archive can not be unpacked: the process that does it ended early%s",
                           n < 0 ? " (it could not be started)" : "; a limit of memory or time may have ended it");
    return take_result(&result, report, header->kind == CORDON_TEMPLATE_ROOTFS);
}

/* --- a made one --- */

static int make_tree(const struct cordon_warden_config *config, const struct cordon_template_header *header, int file,
                     struct cordon_template_report *report)
{
    bool whole = header->kind == CORDON_TEMPLATE_ROOTFS;
    struct cordon_root_spec spec = root_spec(config, !whole);
    uid_t owner = config->root ? config->zygote_uid + JAIL_UID : 0;
    cordon_autoclose int tree = cordon_root_mount_tree(&spec, config->template_bytes,
                                                       config->template_bytes / BYTES_A_FILE, owner, &report->err);
    if (tree < 0)
        return tree;
    int r = unpack(config, header, file, tree, report);
    spec.tree = tree;
    spec.tree_kind = whole ? CORDON_ROOT_TREE_WHOLE : CORDON_ROOT_TREE_LAYER;
    return r < 0 ? r : cordon_root_enter(&spec, &report->err);
}

static void load_made(const struct cordon_warden_config *config, int file, struct cordon_template_report *report)
{
    static struct cordon_template_header header;
    const struct sched_param normal = {0};
    (void)sched_setscheduler(0, SCHED_OTHER, &normal); /* it takes long: not before what answers */
    report->interpreters = config->interpreters;
    int r = cordon_template_file_header(file, &header, &report->err);
    if (r == 0)
        r = cordon_template_file_verify(file, &header, &report->err);
    if (r == 0)
        r = check_base(config, &header, &report->err);
    if (r == 0)
        r = make_tree(config, &header, file, report);
    if (r == -EBADMSG)
        report->err.code = -ESTALE; /* the template's fault, not this moment's */
}

void cordon_template_load(const struct cordon_warden *warden, int file, int sock)
{
    static struct cordon_template_report report;
    char byte;
    if (file < 0)
        load_default(&warden->config, &report);
    else
        load_made(&warden->config, file, &report);
    if (cordon_send_fds(sock, &report, sizeof report, NULL, 0, 0) >= 0)
        (void)cordon_read_full(sock, &byte, 1); /* until the warden has opened our namespace */
    _exit(0);
}
