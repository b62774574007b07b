/* SPDX-License-Identifier: Apache-2.0 */
/* The host processes of plugins, seen from the gateway. */
#include "plugin/hosts.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/error.h"
#include "base/fd.h"
#include "base/log.h"

#define LAUNCHER_SOCKET 3
#define HELLO_US 10000000u
#define LAUNCH_US 5000000u
#define DYING_MS 2000 /* between the end of a dying process's first descriptor and that of its last */

static pthread_mutex_t launcher_lock = PTHREAD_MUTEX_INITIALIZER;
static int launcher = -1;
static pid_t launcher_pid;

static int wait_readable(int fd, uint64_t deadline_us)
{
    struct pollfd wait = {.fd = fd, .events = POLLIN};
    for (;;) {
        uint64_t now = cordon_now_us();
        int r = poll(&wait, 1, deadline_us > now ? (int)((deadline_us - now + 999) / 1000) : 0);
        if (r > 0)
            return 0;
        if (r == 0)
            return -ETIMEDOUT;
        if (errno != EINTR)
            return -errno;
    }
}

/* The launcher's lock is held. */
static int order(char what, const struct cordon_plugin *plugin, unsigned char serial)
{
    const char message[CORDON_PLUGIN_ORDER] = {what, (char)plugin->number, (char)serial};
    return send(launcher, message, sizeof message, MSG_NOSIGNAL) == (ssize_t)sizeof message ? 0 : -errno;
}

/* The answer to that order. One to an earlier order, which nobody waits for any more, may come before it: its host may
 * be another plugin's. */
static int await_host(unsigned char serial, int *ret)
{
    uint64_t deadline_us = cordon_now_us() + LAUNCH_US;
    for (;;) {
        unsigned char answered = 0;
        int fd = -1, r = wait_readable(launcher, deadline_us);
        size_t count = 1;
        if (r < 0)
            return r;
        if (cordon_recv_fds(launcher, &answered, 1, &fd, &count, 0) != 1 || count != 1)
            return -EPIPE;
        if (answered == serial) {
            *ret = fd;
            return 0;
        }
        cordon_close(&fd);
    }
}

/* A new host's socket, from the launcher. */
static int launch(const struct cordon_plugin *plugin, int *ret)
{
    static unsigned char serial; /* with the lock */
    pthread_mutex_lock(&launcher_lock);
    int r = order(CORDON_PLUGIN_START, plugin, ++serial);
    if (r == 0)
        r = await_host(serial, ret);
    pthread_mutex_unlock(&launcher_lock);
    return r;
}

/* Reads what a host says first. */
static int read_hello(int fd, struct cordon_wire_hello *ret, struct cordon_error *err)
{
    struct cordon_buf in = CORDON_BUF_INIT(128u << 10);
    struct cordon_wire_frame frame;
    size_t used;
    char *room = cordon_buf_reserve(&in, 65536);
    int r = room ? wait_readable(fd, cordon_now_us() + HELLO_US) : -ENOMEM;
    ssize_t n = r == 0 ? recv(fd, room, 65536, 0) : -1;
    in.size = n > 0 ? (size_t)n : 0;
    if (r == -ETIMEDOUT)
        r = cordon_fail(err, r, CORDON_ERROR_UNAVAILABLE, "it did not say hello within %u s", HELLO_US / 1000000);
    else if (n <= 0)
        r = cordon_fail(err, -EPIPE, CORDON_ERROR_UNAVAILABLE, "its process died while it was loaded");
    else if (cordon_wire_next(&in, 65536, &frame, &used) != 1)
        r = cordon_fail(err, -EBADMSG, CORDON_ERROR_UNAVAILABLE, "its first words can not be read");
    else if (frame.type == CORDON_WIRE_ERROR)
        r = cordon_wire_get_error(&frame, err) < 0 ? -EBADMSG : err->code;
    else if (frame.type != CORDON_WIRE_HELLO || cordon_wire_get_hello(&frame, ret) < 0)
        r = cordon_fail(err, -EBADMSG, CORDON_ERROR_UNAVAILABLE, "its first words can not be read");
    cordon_buf_done(&in);
    return r;
}

/* The lock is held. */
int cordon_plugin_host_start(struct cordon_plugin *plugin, struct cordon_wire_hello *hello, struct cordon_error *err)
{
    int fd = -1;
    int r = launch(plugin, &fd);
    if (r < 0)
        return cordon_fail(err, r, CORDON_ERROR_UNAVAILABLE, "a process for the plugin %s could not be started",
                           plugin->found.name);
    r = read_hello(fd, hello, err);
    if (r < 0) {
        cordon_error_context(err, "the plugin %s", plugin->found.name);
        cordon_close(&fd);
        return r;
    }
    plugin->host = fd;
    plugin->generation++;
    return 0;
}

/* Gives a host one end of a new socket: that of a run or a probe. Once more with a new host, if the old one is gone. */
int cordon_plugin_host_call(struct cordon_plugin *plugin, char what, int *ret, uint32_t *generation,
                            struct cordon_error *err)
{
    int pair[2], r = 0;
    struct cordon_wire_hello hello;
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) < 0)
        return cordon_fail_errno(err, -errno, "calling the plugin %s", plugin->found.name);
    pthread_mutex_lock(&plugin->lock);
    for (int attempt = 0; attempt < 2; attempt++) {
        if (plugin->host < 0)
            r = cordon_plugin_host_start(plugin, &hello, err);
        if (r < 0 || cordon_send_fds(plugin->host, &what, 1, &pair[1], 1, MSG_DONTWAIT) == 1)
            break;
        cordon_close(&plugin->host);
        if (attempt == 1)
            r = cordon_fail(err, -EPIPE, CORDON_ERROR_UNAVAILABLE, "the plugin %s can not be reached",
                            plugin->found.name);
    }
    *generation = plugin->generation;
    pthread_mutex_unlock(&plugin->lock);
    cordon_close(&pair[1]);
    if (r < 0)
        cordon_close(&pair[0]);
    else
        *ret = pair[0];
    return r;
}

void cordon_plugin_host_kill(struct cordon_plugin *plugin, uint32_t generation, const char *why)
{
    pthread_mutex_lock(&plugin->lock);
    bool current = plugin->generation == generation && plugin->host >= 0;
    if (current) { /* within the lock, so that it is not the next one that is killed */
        cordon_close(&plugin->host);
        pthread_mutex_lock(&launcher_lock);
        (void)order(CORDON_PLUGIN_KILL, plugin, 0); /* a lost launcher has taken it along */
        pthread_mutex_unlock(&launcher_lock);
    }
    pthread_mutex_unlock(&plugin->lock);
    if (current)
        cordon_log(CORDON_LOG_ERROR, "a plugin's process is ended", "name", plugin->found.name, "distribution",
                   plugin->found.distribution, "why", why, NULL);
}

/* Whether that host is no more: then the next call starts another one. A process that dies closes its descriptors one
 * after the other, in no order that one could rely on. */
bool cordon_plugin_host_gone(struct cordon_plugin *plugin, uint32_t generation)
{
    pthread_mutex_lock(&plugin->lock);
    bool gone = plugin->generation != generation || plugin->host < 0;
    struct pollfd end = {.fd = plugin->host}; /* POLLHUP is always told */
    if (!gone && poll(&end, 1, DYING_MS) > 0) {
        cordon_close(&plugin->host);
        gone = true;
    }
    pthread_mutex_unlock(&plugin->lock);
    return gone;
}

/* --- the launcher --- */

static void launcher_child(int end, uid_t uid, gid_t gid, const struct cordon_plugin_found *found, size_t count)
    __attribute__((noreturn));
static void launcher_child(int end, uid_t uid, gid_t gid, const struct cordon_plugin_found *found, size_t count)
{
    char uid_text[16], gid_text[16];
    const char *argv[CORDON_PLUGINS_MAX * 2 + 8] = {"cordon", "--role", "plugins", uid_text, gid_text};
    sigset_t none;
    sigemptyset(&none);
    (void)sigprocmask(SIG_SETMASK, &none, NULL);                    /* can't fail */
    (void)snprintf(uid_text, sizeof uid_text, "%u", (unsigned)uid); /* fits */
    (void)snprintf(gid_text, sizeof gid_text, "%u", (unsigned)gid);
    for (size_t i = 0; i < count; i++) {
        argv[5 + 2 * i] = found[i].name;
        argv[6 + 2 * i] = found[i].library;
    }
    (void)setpgid(0, 0); /* the terminal's ^C is for who started us */
    if (dup2(end, LAUNCHER_SOCKET) < 0 || (end == LAUNCHER_SOCKET && fcntl(end, F_SETFD, 0) < 0))
        _exit(125);
    (void)close_range(LAUNCHER_SOCKET + 1, ~0u, 0); /* an older kernel: they are close-on-exec */
    (void)execv("/proc/self/exe", (char *const *)(uintptr_t)argv);
    _exit(125);
}

int cordon_plugin_hosts_begin(uid_t uid, gid_t gid, const struct cordon_plugin_found *found, size_t count,
                              struct cordon_error *err)
{
    int pair[2];
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) < 0)
        return cordon_fail_errno(err, -errno, "starting the plugins");
    launcher_pid = fork();
    if (launcher_pid == 0)
        launcher_child(pair[1], uid, gid, found, count);
    int r = launcher_pid < 0 ? -errno : 0;
    cordon_close(&pair[1]);
    launcher = pair[0];
    return r < 0 ? cordon_fail_errno(err, r, "starting the plugins") : 0;
}

void cordon_plugin_hosts_end(void)
{
    cordon_close(&launcher); /* which ends it, and it the hosts */
    while (launcher_pid > 0 && waitpid(launcher_pid, NULL, 0) < 0 && errno == EINTR)
        continue;
    launcher_pid = 0;
}
