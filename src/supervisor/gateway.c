/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The gateway's role. Stages, in this order, each giving up what no later one needs:
 *  1. as root: settings, certificate and key, the state folder's descriptor;
 *  2. the state folder becomes the root of the file tree, then the gateway's user without any privilege;
 *  3. the store is opened, and the system call filter installed, before the first thread is made;
 *  4. the HTTP server starts on the listeners that the supervisor opened.
 * Then the main thread waits: for signals, for connections to a (new) warden, for the supervisor's end; and looks once
 * a second for clients that keep connections for nothing.
 */
#include <errno.h>
#include <fcntl.h>
#include <malloc.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "backend/builtin.h"
#include "base/buf.h"
#include "base/clock.h"
#include "base/fd.h"
#include "base/log.h"
#include "base/secret_key.h"
#include "cells/cells.h"
#include "core/guests.h"
#include "core/reuse.h"
#include "core/registry.h"
#include "core/run.h"
#include "core/verify.h"
#include "door/door.h"
#include "guest/egress.h"
#include "guest/guest.h"
#include "isolate/filter.h"
#include "plugin/plugin.h"
#include "supervisor/etc.h"
#include "supervisor/role_args.h"
#include "supervisor/roles.h"
#include "supervisor/state.h"

#define STOP_GRACE_MS 3000
#define EXPIRE_MS 1000
#define PEM_MAX (1u << 20)

struct gateway {
    struct cordon_settings *settings;
    struct cordon_state state;
    struct cordon_buf cert, key;
    struct cordon_doors doors;
    struct cordon_guest_registry guests;
    struct cordon_http_server *server;
    int signals;
    int peer;   /* a connection to a warden that has not said hello; -1: none */
    bool ready; /* the supervisor was told */
};

static int read_pem(enum cordon_setting id, const struct cordon_settings *settings, struct cordon_buf *to,
                    struct cordon_error *err)
{
    const char *path = cordon_settings_string(settings, CORDON_DOOR_NATIVE, id);
    const char *name = cordon_settings_name(CORDON_DOOR_NATIVE, id);
    struct stat found;
    if (!*path)
        return 0;
    cordon_autoclose int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK);
    if (fd < 0 || fstat(fd, &found) < 0) {
        int code = -errno;
        return cordon_fail(err, code, CORDON_ERROR_INVALID, "%s: reading %.300s: %s", name, path, strerror(-code));
    }
    if (!S_ISREG(found.st_mode) || found.st_size <= 0 || found.st_size > PEM_MAX)
        return cordon_fail(err, -EINVAL, CORDON_ERROR_INVALID, "%s: %s is no PEM file", name, path);
    char *data = cordon_buf_reserve(to, (size_t)found.st_size);
    if (!data)
        return cordon_fail_errno(err, -errno, "%s: reading %s", name, path);
    int r = cordon_read_full(fd, data, (size_t)found.st_size);
    if (r < 0)
        return cordon_fail_errno(err, r, "%s: reading %s", name, path);
    to->size = (size_t)found.st_size;
    to->data[to->size] = '\0';
    return 0;
}

static void setup_process(const struct gateway *self)
{
    struct rlimit files;
    enum cordon_log_level level = CORDON_LOG_INFO;
    const char *name = cordon_settings_string(self->settings, CORDON_DOOR_NATIVE, CORDON_SET_LOG_LEVEL);
    (void)cordon_log_level_parse(name, &level); /* checked when the settings were loaded */
    cordon_log_setup("gateway", level, cordon_settings_bool(self->settings, CORDON_DOOR_NATIVE, CORDON_SET_LOG_JSON));
    if (getrlimit(RLIMIT_NOFILE, &files) == 0) {
        files.rlim_cur = files.rlim_max;
        (void)setrlimit(RLIMIT_NOFILE, &files); /* the old limit then means fewer clients at once */
    }
    /* Thousands of threads come and go: few arenas, and large buffers given back to the kernel at once. */
    (void)mallopt(M_ARENA_MAX, 4);
    (void)mallopt(M_MMAP_THRESHOLD, 256 << 10);
    (void)mallopt(M_TRIM_THRESHOLD, 1 << 20);
}

static int watch_signals(struct gateway *self, struct cordon_error *err)
{
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGTERM);
    sigaddset(&set, SIGINT);
    (void)pthread_sigmask(SIG_BLOCK, &set, NULL); /* can't fail */
    (void)signal(SIGPIPE, SIG_IGN);               /* can't fail */
    self->signals = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
    return self->signals < 0 ? cordon_fail_errno(err, -errno, "watching signals") : 0;
}

static int become(struct gateway *self, const char **store_path, struct cordon_error *err)
{
    pid_t parent = getppid();
    int r = cordon_state_confine(&self->state, store_path, err);
    if (r < 0)
        return r;
    /* Changing ids has cleared it. */
    if (prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0) < 0 || getppid() != parent)
        return cordon_fail_errno(err, -ESRCH, "the supervisor is gone");
    return 0;
}

static unsigned setting(const struct gateway *self, enum cordon_setting id)
{
    return (unsigned)cordon_settings_int(self->settings, CORDON_DOOR_NATIVE, id); /* bounds are in the table */
}

static int serve(struct gateway *self, struct cordon_error *err)
{
    int fds[16];
    const char *count_text = getenv("CORDON_LISTEN_FDS");
    unsigned long count = count_text ? strtoul(count_text, NULL, 10) : 0;
    if (count < 1 || count > sizeof fds / sizeof *fds)
        return cordon_fail(err, -EINVAL, CORDON_ERROR_INVALID,
                           "CORDON_LISTEN_FDS: this role is started by cordon serve");
    for (unsigned long i = 0; i < count; i++)
        fds[i] = CORDON_ROLE_LISTEN + (int)i;
    struct cordon_http_config config = {
        .doors = self->doors.list,
        .context = &self->doors,
        .authorize = cordon_door_authorize,
        .listen_fds = fds,
        .listen_count = count,
        .tls_cert = self->cert.data,
        .tls_key = self->key.data,
        .body_max = (size_t)setting(self, CORDON_SET_BODY_MB) << 20,
        .connections_max = setting(self, CORDON_SET_CONNECTIONS),
        .idle_timeout_s = setting(self, CORDON_SET_IDLE_TIMEOUT_S),
    };
    return cordon_http_server_start(&config, &self->server, err);
}

/* The plugins' hosts get a user of their own: neither root nor the gateway's. */
static int load_backends(struct gateway *self, struct cordon_error *err)
{
    struct cordon_state place;
    int r = cordon_state_locate(self->settings, &place, err);
    if (r == 0)
        r = cordon_backend_setup(self->settings, err);
    if (r == 0)
        r = cordon_plugins_load(self->settings, place.spare + 1, (gid_t)place.spare + 1, err);
    return r < 0 ? r : cordon_registry_check(self->settings, err);
}

/* For the doors: the supervisor may look, and tells it to the pipe. */
static int look_at_host(int to)
{
    ssize_t n = cordon_send_fds(CORDON_ROLE_CONTROL, "D", 1, &to, 1, MSG_DONTWAIT);
    return n < 0 ? (int)n : 0;
}

/* The supervisor's first message: the key that its environment had, put back where settings are read from. That hides
 * it again. */
static int take_secret_key(struct cordon_error *err)
{
    char text[1 + CORDON_SECRET_KEY_TEXT] = "";
    ssize_t n;
    do
        n = recv(CORDON_ROLE_CONTROL, text, sizeof text - 1, 0);
    while (n < 0 && errno == EINTR);
    if (n < 1 || *text != 'K')
        return cordon_fail(err, -EPROTO, CORDON_ERROR_INVALID, "this role is started by cordon serve");
    int r = n > 1 && setenv(CORDON_SECRET_KEY_NAME, text + 1, 1) < 0 ? -errno : 0;
    explicit_bzero(text, sizeof text);
    return r < 0 ? cordon_fail_errno(err, r, "taking the key of stored secrets") : 0;
}

static int open_store(struct gateway *self, const char *path, struct cordon_error *err)
{
    int r = cordon_store_open(path, &self->doors.store, err);
    const char *key = cordon_settings_string(self->settings, CORDON_DOOR_NATIVE, CORDON_SET_SECRET_KEY);
    if (r == 0 && cordon_store_use_key(self->doors.store, key) < 0)
        r = cordon_fail(err, -EINVAL, CORDON_ERROR_INVALID, "%s is no key", CORDON_SECRET_KEY_NAME);
    return r;
}

static int start(struct gateway *self, char **argv, struct cordon_error *err)
{
    struct cordon_settings_input input;
    struct cordon_etc etc;
    const char *store_path = NULL;
    int r = cordon_role_args_read(argv, &input, err);
    if (r == 0)
        r = take_secret_key(err);
    if (r == 0)
        r = cordon_settings_load(&input, &self->settings, err);
    if (r < 0)
        return r;
    setup_process(self);
    cordon_registry_setup(cordon_backend_builtin);
    cordon_admission_setup(self->settings);
    cordon_etc_read(&etc);
    r = watch_signals(self, err);
    if (r == 0)
        r = load_backends(self, err);
    if (r == 0)
        r = read_pem(CORDON_SET_TLS_CERT, self->settings, &self->cert, err);
    if (r == 0)
        r = read_pem(CORDON_SET_TLS_KEY, self->settings, &self->key, err);
    if (r == 0)
        r = cordon_state_open(self->settings, &self->state, err);
    if (r == 0)
        r = become(self, &store_path, err);
    if (r == 0)
        r = cordon_etc_put(&etc, &self->state, err);
    if (r == 0)
        r = cordon_backend_confined(store_path, err);
    cordon_etc_done(&etc);
    if (r == 0)
        r = open_store(self, store_path, err);
    if (r == 0)
        r = cordon_executor_manager_setup(self->settings, err);
    if (r == 0)
        r = cordon_verified_load(self->state.fd, err);
    if (r == 0)
        r = cordon_filter_gateway(err);
    if (r < 0)
        return r;
    self->doors.settings = self->settings;
    r = cordon_door_load_stored(&self->doors, err); /* first: with a wrong key nothing else of the store is touched */
    if (r < 0)
        return r;
    self->guests = cordon_store_guests(self->doors.store);
    cordon_cells_setup(self->settings);
    cordon_reuse_setup(self->settings);
    r = cordon_guests_setup(self->settings, &self->guests, err);
    if (r < 0)
        return r;
    self->doors.version = CORDON_VERSION;
    self->doors.state = self->state.fd;
    self->doors.look_at_host = look_at_host;
    self->doors.list = cordon_door_list;
    self->doors.started_us = cordon_now_us();
    return serve(self, err);
}

/* Reads the hello of a (new) warden and, the first time, tells the supervisor that we serve. */
static void take_warden(struct gateway *self)
{
    struct cordon_error err = {0};
    int peer = CORDON_TAKE_FD(self->peer);
    if (cordon_warden_set(peer, &err) < 0)
        cordon_log_error("no connection to the warden", &err);
    if (self->ready)
        return;
    self->ready = true;
    (void)send(CORDON_ROLE_CONTROL, "R", 1, MSG_NOSIGNAL); /* a supervisor that is gone takes us along */
    cordon_guests_adopt();
}

/* From the supervisor: a connection to a new warden. False: the supervisor is gone. */
static bool read_control(struct gateway *self)
{
    char byte = 0;
    int fd = -1;
    size_t count = 1;
    ssize_t n = cordon_recv_fds(CORDON_ROLE_CONTROL, &byte, 1, &fd, &count, MSG_DONTWAIT);
    if (n == 0 || (n < 0 && n != -EAGAIN))
        return false;
    if (n == 1 && byte == 'P' && count == 1) {
        cordon_close(&self->peer);
        self->peer = fd;
    } else if (n == 1 && byte == 'E' && count == 1) {
        (void)cordon_egress_set(fd, NULL); /* fails only without a descriptor */
    } else if (count) {
        cordon_close(&fd);
    }
    return true;
}

static void wait_for_end(struct gateway *self)
{
    uint64_t expire_at_us = 0;
    for (;;) {
        struct pollfd fds[] = {{.fd = self->signals, .events = POLLIN},
                               {.fd = CORDON_ROLE_CONTROL, .events = POLLIN},
                               {.fd = self->peer, .events = POLLIN}};
        if (poll(fds, 3, EXPIRE_MS) < 0 && errno != EINTR)
            return;
        if (cordon_now_us() >= expire_at_us) {
            cordon_http_server_expire(self->server);
            cordon_door_flush(&self->doors);
            if (self->ready)
                cordon_guests_adopt(); /* what could not be started yet */
            expire_at_us = cordon_now_us() + EXPIRE_MS * 1000u;
        }
        if (fds[0].revents || (fds[1].revents && !read_control(self)))
            return;
        if (fds[2].revents && self->peer == fds[2].fd)
            take_warden(self);
    }
}

static void done(struct gateway *self)
{
    cordon_live_stopping();
    cordon_http_server_stop(self->server, STOP_GRACE_MS);
    cordon_executor_manager_done();
    cordon_guests_done();
    if (self->doors.store) /* before what may wait for a service until we are killed */
        cordon_door_flush(&self->doors);
    cordon_registry_shutdown();
    cordon_plugins_stop();
    cordon_backend_teardown();
    cordon_store_close(self->doors.store);
    cordon_buf_wipe(&self->key);
    cordon_buf_done(&self->cert);
    cordon_state_close(&self->state);
    cordon_close(&self->peer);
    cordon_close(&self->signals);
    cordon_settings_free(self->settings);
}

int cordon_gateway_main(int argc, char **argv)
{
    struct gateway self = {.signals = -1,
                           .peer = CORDON_ROLE_PEER,
                           .state.fd = -1,
                           .cert = CORDON_BUF_INIT(PEM_MAX),
                           .key = CORDON_BUF_INIT(PEM_MAX)};
    struct cordon_error err = {0};
    int status = 0;
    if (start(&self, argv, &err) < 0) {
        (void)fprintf(stderr, "cordon: %s\n", err.message);
        status = cordon_error_exit(err.kind);
    } else {
        wait_for_end(&self);
    }
    done(&self);
    return status;
}
