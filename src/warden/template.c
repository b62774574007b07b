/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Templates: what guests start from. The default one is the host's own programs, made when the warden starts and never
 * closed. Made ones are files (core/template_file.h), loaded when a request first names them: a child verifies the
 * digest, has the archive unpacked in a jail and leaves a mount namespace behind (template_load.c); until it is there
 * who asked waits in the template's pools. Each has a nursery, zygotes and pools of its own, so nothing that guests of
 * one can reach is shared with another.
 *
 * At each request the file is looked at again: one that was changed, replaced or removed retires what was loaded of
 * it. Only so many are loaded at once; the one not used for longest makes room, and one that nobody uses is closed
 * after a while. A retired template is no longer found; it is freed when its last guest is gone.
 */
#include "warden/warden.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/fd.h"
#include "base/log.h"
#include "core/template_file.h"

#define LOAD_US UINT64_C(300000000)
#define IDLE_US UINT64_C(600000000)
#define FAILED_US UINT64_C(3000000)

void cordon_templates_init(struct cordon_warden *warden)
{
    struct cordon_template *base = &warden->base;
    *base = (struct cordon_template){.warden = warden,
                                     .name = CORDON_TEMPLATE_DEFAULT,
                                     .state = CORDON_TEMPLATE_SERVING,
                                     .root_ns = -1,
                                     .interpreters = warden->config.interpreters};
    base->nursery.socket.fd = base->nursery.child.source.fd = base->loader.source.fd = base->report.fd = -1;
}

static pid_t start_loader(const struct cordon_warden *warden, int file, int *ret_sock)
{
    int pair[2];
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) < 0)
        return -errno;
    const int keep[] = {pair[1], file};
    pid_t pid = cordon_process_fork(keep, sizeof keep / sizeof *keep);
    if (pid == 0)
        cordon_template_load(warden, file, pair[1]);
    (void)close(pair[1]); /* the child's */
    if (pid < 0)
        (void)close(pair[0]); /* nobody is at its other end */
    else
        *ret_sock = pair[0];
    return pid;
}

/* The child keeps its mount namespace for as long as sock is open. */
static int take_tree(struct cordon_template *template, pid_t pid, int sock, int flags, struct cordon_error *err)
{
    static struct cordon_template_report report;
    char path[64];
    ssize_t n = cordon_recv_fds(sock, &report, sizeof report, NULL, NULL, flags);
    if (n == -EAGAIN)
        return -EAGAIN;
    if (n != (ssize_t)sizeof report)
        return cordon_fail_errno(err, n < 0 ? (int)n : -ECHILD, "make the root tree of template %s", template->name);
    if (report.err.code < 0) {
        *err = report.err;
        return report.err.code;
    }
    (void)snprintf(path, sizeof path, "/proc/%d/ns/mnt", (int)pid);
    template->root_ns = open(path, O_RDONLY | O_CLOEXEC);
    if (template->root_ns < 0)
        return cordon_fail_errno(err, -errno, "open the mount namespace of template %s", template->name);
    template->interpreters = report.interpreters;
    const struct cordon_warden_config *config = &template->warden->config;
    if (template != &template->warden->base && (!config->oneshot || config->template_fd >= 0))
        cordon_log(CORDON_LOG_INFO, "template loaded", "template", template->name, "files",
                   CORDON_NUM((long long)report.unpacked.files), "bytes", CORDON_NUM((long long)report.unpacked.bytes),
                   "left_out", CORDON_NUM(report.unpacked.left_out), "lost_bits", CORDON_NUM(report.unpacked.lost_bits),
                   NULL);
    return 0;
}

int cordon_templates_open(struct cordon_warden *warden, struct cordon_error *err)
{
    int sock = -1;
    pid_t pid = start_loader(warden, -1, &sock);
    if (pid < 0)
        return cordon_fail_errno(err, pid, "start a process to make the template's root tree");
    int r = take_tree(&warden->base, pid, sock, 0, err);
    cordon_close(&sock);
    while (waitpid(pid, NULL, 0) < 0 && errno == EINTR)
        ;
    return r < 0 ? r : cordon_nursery_start(&warden->base, err);
}

/* --- a made one's life --- */

static void retire(struct cordon_template *template, int status, const char *why)
{
    template->state = CORDON_TEMPLATE_RETIRED;
    cordon_timer_cancel(&template->warden->loop, &template->timer);
    cordon_source_close(&template->warden->loop, &template->report);
    cordon_child_kill(&template->loader);
    cordon_pools_close(template, status, why);
    if (!template->warden->config.oneshot)
        cordon_log(CORDON_LOG_INFO, "template closed", "template", template->name, "why", why, NULL);
}

static void fail(struct cordon_template *template, int status, const char *why)
{
    template->state = CORDON_TEMPLATE_FAILED;
    template->status = status;
    (void)snprintf(template->why, sizeof template->why, "template %s can not be used: %s", template->name, why);
    cordon_timer_cancel(&template->warden->loop, &template->timer);
    cordon_source_close(&template->warden->loop, &template->report);
    cordon_child_kill(&template->loader);
    template->used_us = cordon_now_us();
    if (!template->warden->config.oneshot) /* whose command tells it */
        cordon_log(CORDON_LOG_ERROR, "template can not be used", "template", template->name, "why", why, NULL);
    for (size_t kind = 0; kind < CORDON_GUEST_KIND__COUNT; kind++)
        cordon_pools_refuse(template, (enum cordon_guest_kind)kind, status, template->why);
}

static bool has_lease(const struct cordon_template *template)
{
    for (const struct cordon_guest *guest = template->warden->guests; guest; guest = guest->next)
        if (guest->pool->template == template && guest->state == CORDON_GUEST_LEASED)
            return true;
    return false;
}

static bool is_idle(const struct cordon_template *template)
{
    return !cordon_pools_wait(template) && !has_lease(template);
}

static void on_idle(struct cordon_timer *timer)
{
    struct cordon_template *template = CORDON_OWNER(struct cordon_template, timer, timer);
    uint64_t unused = cordon_now_us() - template->used_us;
    if (unused >= IDLE_US && is_idle(template))
        retire(template, -EAGAIN, "nobody used it for long");
    else
        cordon_timer_arm(&template->warden->loop, timer, unused < IDLE_US ? IDLE_US - unused : IDLE_US);
}

static void on_slow_load(struct cordon_timer *timer)
{
    fail(CORDON_OWNER(struct cordon_template, timer, timer), -ETIMEDOUT, "loading it took too long");
}

static bool is_wanted(const struct cordon_template *template, enum cordon_guest_kind kind)
{
    bool wanted = false;
    for (size_t i = 0; i < CORDON_POOLS; i++)
        wanted = wanted || template->pools[i][kind].wanted;
    return wanted;
}

/* Its tree is there: what its guests can be, and who of those that wait is right here. */
static void serve(struct cordon_template *template)
{
    struct cordon_error err;
    char why[300];
    for (size_t kind = 0; kind < CORDON_GUEST_KIND__COUNT; kind++)
        if (kind == CORDON_GUEST_KEPT || *cordon_interpreter_of(&template->interpreters, (enum cordon_guest_kind)kind))
            template->languages |= 1u << kind;
    if (cordon_nursery_start(template, &err) < 0) {
        fail(template, err.code, err.message);
        return;
    }
    template->state = CORDON_TEMPLATE_SERVING;
    template->timer.on_due = on_idle;
    cordon_timer_arm(&template->warden->loop, &template->timer, IDLE_US);
    for (size_t i = 0; i < CORDON_GUEST_KIND__COUNT; i++) {
        enum cordon_guest_kind kind = (enum cordon_guest_kind)i;
        int r = cordon_request_check_language(template, kind, false, why, sizeof why);
        if (r < 0)
            cordon_pools_refuse(template, kind, r, why);
        else if (is_wanted(template, kind))
            cordon_zygotes_want(template, kind);
    }
}

static void on_report(struct cordon_source *source, uint32_t events)
{
    struct cordon_template *template = CORDON_OWNER(struct cordon_template, report, source);
    struct cordon_error err = {0};
    int r = take_tree(template, template->loader.pid, source->fd, MSG_DONTWAIT, &err);
    if (r == -EAGAIN)
        return;
    cordon_source_close(&template->warden->loop, source); /* lets the child end */
    cordon_timer_cancel(&template->warden->loop, &template->timer);
    if (r < 0)
        fail(template, r, err.message);
    else
        serve(template);
}

static void on_loader_exit(struct cordon_child *child, int status)
{
    struct cordon_template *template = CORDON_OWNER(struct cordon_template, loader, child);
    (void)status; /* what it had to say came before */
    cordon_source_close(&template->warden->loop, &child->source);
    if (template->state == CORDON_TEMPLATE_LOADING)
        fail(template, -ECHILD, "the process that loaded it ended");
}

static struct cordon_template *new_template(struct cordon_warden *warden, const char *name, const struct stat *file)
{
    struct cordon_template *template = calloc(1, sizeof *template);
    if (!template)
        return NULL;
    template->warden = warden;
    (void)snprintf(template->name, sizeof template->name, "%s", name); /* fits: a valid one */
    template->state = CORDON_TEMPLATE_LOADING;
    template->root_ns = -1;
    template->file = *file;
    template->used_us = cordon_now_us();
    template->report = (struct cordon_source){.fd = -1, .on_event = on_report};
    template->loader = (struct cordon_child){.source.fd = -1, .on_exit = on_loader_exit};
    template->nursery.socket.fd = template->nursery.child.source.fd = -1;
    template->timer.on_due = on_slow_load;
    cordon_pools_init(template);
    return template;
}

/* One place more: 0, or -EAGAIN when all that are loaded are in use. */
static int make_room(struct cordon_warden *warden)
{
    struct cordon_template *oldest = NULL;
    unsigned count = 0;
    for (struct cordon_template *at = warden->base.next; at; at = at->next) {
        count += at->state != CORDON_TEMPLATE_RETIRED;
        if (at->state != CORDON_TEMPLATE_RETIRED && is_idle(at) && (!oldest || at->used_us < oldest->used_us))
            oldest = at;
    }
    if (count < warden->config.templates_max)
        return 0;
    if (!oldest)
        return -EAGAIN;
    retire(oldest, -EAGAIN, "another one needed its place");
    return 0;
}

static struct cordon_template *load(struct cordon_warden *warden, const char *name, int file, const struct stat *found)
{
    struct cordon_template *template = new_template(warden, name, found);
    int sock = -1;
    if (!template)
        return NULL;
    template->next = warden->base.next;
    warden->base.next = template;
    pid_t pid = start_loader(warden, file, &sock);
    int r = pid < 0 ? pid : cordon_child_watch(&warden->loop, &template->loader, pid);
    if (r == 0)
        r = cordon_source_watch(&warden->loop, &template->report, CORDON_TAKE_FD(sock), EPOLLIN);
    cordon_close(&sock);
    if (r < 0)
        fail(template, r, strerror(-r));
    else
        cordon_timer_arm(&warden->loop, &template->timer, LOAD_US);
    return template;
}

/* --- by name --- */

static int open_file(const struct cordon_warden *warden, const char *name, struct cordon_error *err)
{
    if (warden->config.template_fd >= 0 && strcmp(name, CORDON_TEMPLATE_TRIAL) == 0)
        return fcntl(warden->config.template_fd, F_DUPFD_CLOEXEC, 0);
    cordon_autoclose int folder = cordon_template_folder_open(AT_FDCWD, warden->config.templates, err);
    return folder < 0 ? folder : cordon_template_file_open(folder, name, err);
}

static struct cordon_template *by_name(struct cordon_warden *warden, const char *name)
{
    for (struct cordon_template *at = warden->base.next; at; at = at->next)
        if (at->state != CORDON_TEMPLATE_RETIRED && strcmp(at->name, name) == 0)
            return at;
    return NULL;
}

/* A byte that was written, by whoever, changes the time of the file's last change. */
static bool is_same(const struct stat *a, const struct stat *b)
{
    return a->st_dev == b->st_dev && a->st_ino == b->st_ino && a->st_size == b->st_size &&
           a->st_ctim.tv_sec == b->st_ctim.tv_sec && a->st_ctim.tv_nsec == b->st_ctim.tv_nsec;
}

static bool is_stale(const struct cordon_template *template, const struct stat *now)
{
    return !is_same(&template->file, now) ||
           (template->state == CORDON_TEMPLATE_FAILED && cordon_now_us() - template->used_us > FAILED_US);
}

static struct cordon_template *refuse(int error, int *status, char *why, size_t size, const char *text)
{
    *status = error;
    (void)snprintf(why, size, "%s", text);
    return NULL;
}

struct cordon_template *cordon_template_find(struct cordon_warden *warden, const char *name, int *status, char *why,
                                             size_t size)
{
    struct stat found;
    struct cordon_error err = {0};
    if (cordon_template_is_default(name))
        return &warden->base;
    struct cordon_template *template = by_name(warden, name);
    cordon_autoclose int file = open_file(warden, name, &err);
    bool there = file >= 0 && fstat(file, &found) == 0;
    if (template && (!there || is_stale(template, &found))) {
        retire(template, -EAGAIN, "its file was changed");
        template = NULL;
    }
    if (!there && file != -ENOENT)
        return refuse(-ESTALE, status, why, size, err.message);
    if (!there) {
        *status = -ENXIO;
        (void)snprintf(why, size, "there is no template %s: `cordon template list` tells those that there are", name);
        return NULL;
    }
    if (!template && make_room(warden) < 0)
        return refuse(-EAGAIN, status, why, size,
                      "as many templates are in use as CORDON_TEMPLATES allows to be loaded at once");
    if (!template)
        template = load(warden, name, file, &found);
    if (!template)
        return refuse(-ENOMEM, status, why, size, "no memory to load the template");
    if (template->state == CORDON_TEMPLATE_FAILED)
        return refuse(template->status, status, why, size, template->why);
    template->used_us = cordon_now_us();
    return template;
}

/* --- the end --- */

static void close_processes(struct cordon_template *template)
{
    cordon_pools_close(template, -EAGAIN, "its template was closed"); /* timers of the last guests' ends */
    cordon_timer_cancel(&template->warden->loop, &template->timer);
    cordon_zygotes_done(template);
    cordon_nursery_stop(template);
    cordon_close(&template->root_ns);
}

void cordon_templates_step(struct cordon_warden *warden)
{
    struct cordon_template **at = &warden->base.next;
    while (*at) {
        struct cordon_template *template = *at;
        if (template->state != CORDON_TEMPLATE_RETIRED || template->guests || template->loader.source.watched) {
            at = &template->next;
            continue;
        }
        *at = template->next;
        close_processes(template);
        free(template);
    }
}

void cordon_templates_done(struct cordon_warden *warden)
{
    for (struct cordon_template *template = &warden->base, *next; template; template = next) {
        next = template->next;
        cordon_child_kill(&template->loader);
        if (template->loader.source.watched)
            (void)waitpid(template->loader.pid, NULL, 0); /* was killed: no long wait */
        cordon_source_close(&warden->loop, &template->loader.source);
        cordon_source_close(&warden->loop, &template->report);
        close_processes(template);
        if (template != &warden->base)
            free(template);
    }
    warden->base.next = NULL;
}
