/* SPDX-License-Identifier: Apache-2.0 */
/*
 * `cordon serve`. A small process with one thread that stays root (or whoever started it): it opens the listeners,
 * starts warden and gateway, starts again what died, and stops them in order. It reads nothing that came from a client:
 * its inputs are its command line, its settings, signals, and bytes from the gateway: "I serve", and "look at the
 * host", which comes with the pipe that is to be told and starts the probes of `cordon doctor` in a process of their
 * own.
 *
 * Its death takes the roles along (PDEATHSIG), and theirs the guests. A role that dies is started again with a fresh
 * connection, whose other end is sent to the survivor; only a gateway that exits before it ever served stops the
 * start, since that is a setting that can not work (a certificate, a damaged database).
 */
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "backend/builtin.h"
#include "base/clock.h"
#include "base/fd.h"
#include "base/log.h"
#include "base/secret_key.h"
#include "core/egress.h"
#include "core/registry.h"
#include "egress/authority.h"
#include "http/server.h"
#include "supervisor/doctor.h"
#include "supervisor/first_key.h"
#include "supervisor/listen.h"
#include "supervisor/notify.h"
#include "supervisor/role.h"
#include "supervisor/role_args.h"
#include "supervisor/roles.h"
#include "supervisor/state.h"

#define LISTENERS_MAX 15 /* besides the unix socket */
#define STOP_GATEWAY_US 8000000u
#define STOP_WARDEN_US 5000000u
#define SAME_REQUEST_US 1000000u

struct supervisor {
    struct cordon_serve_options options;
    struct cordon_settings *settings;
    struct cordon_state state;
    int listen_fds[LISTENERS_MAX + 1]; /* the unix socket first */
    size_t listen_count;
    bool loopback_only;
    char *argv_warden[CORDON_SERVE_FLAGS + 8], *argv_gateway[CORDON_SERVE_FLAGS + 8];
    char *argv_egress[CORDON_SERVE_FLAGS + 8], *argv_doctor[CORDON_SERVE_FLAGS + 8];
    struct cordon_role warden, gateway, egress;
    char greeting[1 + CORDON_SECRET_KEY_TEXT]; /* of the gateway */
    struct cordon_doctor doctor;
    int signals;
    bool ready, stopping;
    uint64_t kill_at_us; /* while stopping: when patience ends */
    uint64_t stop_at_us; /* when the stop was asked for */
    bool hurried;        /* it was asked for again */
    int status;
};

static const char help[] =
    "usage: cordon serve [--listen ADDR:PORT]... [--state DIR] [--config FILE] [--tls-cert FILE --tls-key FILE]\n"
    "\n"
    "Runs the daemon: code that clients send to POST /v1/runs is run isolated.\n"
    "\n"
    "  --listen ADDR:PORT   address and port (CORDON_LISTEN, default 127.0.0.1:9385); may come several times\n"
    "  --state DIR          keys and socket (CORDON_STATE, default /var/lib/cordon as root), mode 0700\n"
    "  --config FILE        settings, NAME=VALUE a line; cordon config show lists them\n"
    "  --tls-cert FILE      certificate chain in PEM (CORDON_TLS_CERT)\n"
    "  --tls-key FILE       its private key in PEM (CORDON_TLS_KEY)\n"
    "\n"
    "Without any key it serves only loopback, makes a first one and shows it once. SIGTERM stops it in order.\n";

static int complain(const struct cordon_error *err)
{
    (void)fprintf(stderr, "cordon: %s\n", err->message);
    if (err->detail[0])
        (void)fprintf(stderr, "cordon: %s\n", err->detail);
    return cordon_error_exit(err->kind);
}

static int load_settings(struct supervisor *self, struct cordon_error *err)
{
    struct cordon_settings_input input = {.file = self->options.config,
                                          .flags = (const char *const *)self->options.flags};
    int r = cordon_settings_load(&input, &self->settings, err);
    if (r < 0)
        return r;
    cordon_registry_setup(cordon_backend_builtin);
    r = cordon_egress_check_settings(self->settings, err);
    /* The gateway loads plugins, and checks then; it has not begun to serve when it finds that a name is none. */
    if (r < 0 || cordon_settings_item(self->settings, CORDON_DOOR_NATIVE, CORDON_SET_BACKEND_PLUGINS, 0))
        return r;
    return cordon_registry_check(self->settings, err);
}

/* Programs in that language are refused then; the others run. */
static void warn_of_interpreters(const struct cordon_settings *settings)
{
    static const enum cordon_setting ids[] = {CORDON_SET_PYTHON, CORDON_SET_NODE};
    for (size_t i = 0; i < sizeof ids / sizeof *ids; i++) {
        const char *path = cordon_settings_string(settings, CORDON_DOOR_NATIVE, ids[i]);
        bool chosen = cordon_settings_source(settings, ids[i]) != CORDON_SOURCE_DEFAULT;
        if (chosen && access(path, X_OK) < 0)
            cordon_log(CORDON_LOG_WARN, "an interpreter that was set can not be run: its language is refused",
                       "setting", cordon_settings_name(CORDON_DOOR_NATIVE, ids[i]), "path", path, NULL);
    }
}

static void setup_log(const struct supervisor *self)
{
    enum cordon_log_level level = CORDON_LOG_INFO;
    const char *name = cordon_settings_string(self->settings, CORDON_DOOR_NATIVE, CORDON_SET_LOG_LEVEL);
    (void)cordon_log_level_parse(name, &level); /* checked when the settings were loaded; info otherwise */
    cordon_log_setup("supervisor", level,
                     cordon_settings_bool(self->settings, CORDON_DOOR_NATIVE, CORDON_SET_LOG_JSON));
    const char *warning;
    for (size_t i = 0; (warning = cordon_settings_warning(self->settings, i)); i++)
        cordon_log(CORDON_LOG_WARN, warning, NULL);
    warn_of_interpreters(self->settings);
    const char *least = cordon_settings_string(self->settings, CORDON_DOOR_CREATEOS, CORDON_SET_CREATEOS_MIN_ISOLATION);
    if (strcmp(least, "hardware-virtualized") != 0)
        cordon_log(CORDON_LOG_WARN,
                   "CORDON_CREATEOS_MIN_ISOLATION lets the CreateOS door give guests that its clients take for "
                   "hardware-virtualized and that may not be",
                   "least", least, NULL);
}

static const char *address_at(const struct supervisor *self, size_t i)
{
    return cordon_settings_item(self->settings, CORDON_DOOR_NATIVE, CORDON_SET_LISTEN, i);
}

/* Before anything is touched. */
static int check_addresses(struct supervisor *self, struct cordon_error *err)
{
    struct cordon_listen_address address;
    const char *text;
    size_t i = 0;
    self->loopback_only = true;
    for (; (text = address_at(self, i)); i++) {
        if (cordon_listen_parse(text, &address, err) < 0) {
            cordon_error_context(err, "%s", cordon_settings_name(CORDON_DOOR_NATIVE, CORDON_SET_LISTEN));
            return -EINVAL;
        }
        self->loopback_only = self->loopback_only && address.loopback;
    }
    if (i > LISTENERS_MAX)
        return cordon_fail(err, -E2BIG, CORDON_ERROR_INVALID, "CORDON_LISTEN: %zu addresses; at most %d", i,
                           LISTENERS_MAX);
    return 0;
}

static int open_listeners(struct supervisor *self, struct cordon_error *err)
{
    struct cordon_listen_address address;
    const char *text;
    int fd = cordon_listen_unix(self->state.fd, self->state.path, self->state.uid, err);
    if (fd < 0)
        return fd;
    self->listen_fds[self->listen_count++] = fd;
    for (size_t i = 0; (text = address_at(self, i)); i++) {
        int r = cordon_listen_parse(text, &address, err);
        fd = r < 0 ? r : cordon_listen_tcp(text, &address, err);
        if (fd < 0)
            return fd;
        self->listen_fds[self->listen_count++] = fd;
    }
    return 0;
}

static int open_state(struct supervisor *self, struct cordon_error *err)
{
    int r = cordon_state_open(self->settings, &self->state, err);
    if (r < 0)
        return r;
    if (flock(self->state.fd, LOCK_EX | LOCK_NB) < 0)
        return cordon_fail(err, -errno, CORDON_ERROR_CONFLICT, "state folder %s is in use by another cordon serve",
                           self->state.path);
    return 0;
}

/* Does it in a process that ends, whose exit status becomes ours where it is not 0. */
static int in_a_child(struct supervisor *self, const char *what,
                      int (*work)(struct supervisor *, struct cordon_error *), struct cordon_error *err)
{
    int status;
    pid_t pid = fork();
    if (pid < 0)
        return cordon_fail_errno(err, -errno, "%s", what);
    if (pid == 0) {
        int code = work(self, err) < 0 ? complain(err) : 0;
        _exit(fflush(stdout) == 0 ? code : 125);
    }
    while (waitpid(pid, &status, 0) < 0 && errno == EINTR)
        continue;
    self->status = WIFEXITED(status) ? WEXITSTATUS(status) : 125;
    return 0;
}

static int check_keys(struct supervisor *self, struct cordon_error *err)
{
    return cordon_first_key(self->settings, &self->state, self->loopback_only, err);
}

/* In a child, so that the key is in no other memory than the egress process's. */
static int make_authority(struct supervisor *self, struct cordon_error *err)
{
    return cordon_authority_make(self->state.path, err);
}

static void make_argv(struct supervisor *self, char **argv, const char *role)
{
    size_t n = 0;
    argv[n++] = (char *)(uintptr_t) "cordon"; /* exec takes them as not const, and changes nothing */
    argv[n++] = (char *)(uintptr_t) "--role";
    argv[n++] = (char *)(uintptr_t)role;
    if (self->options.config) {
        argv[n++] = (char *)(uintptr_t) "--config";
        argv[n++] = (char *)(uintptr_t)self->options.config;
    }
    for (size_t i = 0; i < self->options.flag_count; i++)
        argv[n++] = self->options.flags[i];
    argv[n] = NULL;
}

/* A new connection between gateway and egress process, whenever one of them is new. The one before is dropped by both.
 */
static void connect_egress(struct supervisor *self)
{
    int pair[2];
    if (!self->gateway.pid || !self->egress.pid)
        return; /* again when the other one starts */
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) < 0) {
        cordon_log(CORDON_LOG_ERROR, "gateway and egress process can not be connected", NULL);
        return;
    }
    /* One that is dying does not take its end, and is connected at its next start. */
    (void)cordon_send_fds(self->egress.control, "P", 1, &pair[1], 1, MSG_DONTWAIT);
    (void)cordon_send_fds(self->gateway.control, "E", 1, &pair[0], 1, MSG_DONTWAIT);
    cordon_close(&pair[0]);
    cordon_close(&pair[1]);
}

/* A key out of the environment is nobody's but the gateway's; one out of the file it reads itself. */
static void make_greeting(struct supervisor *self)
{
    const char *key = cordon_settings_string(self->settings, CORDON_DOOR_NATIVE, CORDON_SET_SECRET_KEY);
    bool given = cordon_settings_source(self->settings, CORDON_SET_SECRET_KEY) == CORDON_SOURCE_ENVIRONMENT;
    (void)snprintf(self->greeting, sizeof self->greeting, "K%s", given ? key : ""); /* fits: the table checks it */
    self->gateway.greeting = self->greeting;
}

static int start_roles(struct supervisor *self, struct cordon_error *err)
{
    make_argv(self, self->argv_warden, "warden");
    make_argv(self, self->argv_gateway, "gateway");
    self->warden = (struct cordon_role){.name = "warden", .argv = self->argv_warden, .other = &self->gateway};
    self->gateway = (struct cordon_role){.name = "gateway", .argv = self->argv_gateway, .other = &self->warden};
    self->gateway.listen_fds = self->listen_fds;
    self->gateway.listen_count = self->listen_count;
    make_greeting(self);
    make_argv(self, self->argv_egress, "egress");
    make_argv(self, self->argv_doctor, "doctor");
    self->doctor.argv = self->argv_doctor;
    self->egress = (struct cordon_role){.name = "egress", .argv = self->argv_egress, .control = -1, .pending_peer = -1};
    self->warden.control = self->gateway.control = -1;
    self->warden.pending_peer = self->gateway.pending_peer = -1;
    int r = cordon_role_start(&self->warden, err);
    if (r == 0)
        r = cordon_role_start(&self->egress, err);
    if (r == 0)
        r = cordon_role_start(&self->gateway, err);
    if (r == 0)
        connect_egress(self);
    return r;
}

static int watch_signals(struct supervisor *self, struct cordon_error *err)
{
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGTERM);
    sigaddset(&set, SIGINT);
    sigaddset(&set, SIGHUP);
    sigaddset(&set, SIGCHLD);
    (void)sigprocmask(SIG_BLOCK, &set, NULL); /* can't fail */
    (void)signal(SIGPIPE, SIG_IGN);           /* can't fail */
    self->signals = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
    return self->signals < 0 ? cordon_fail_errno(err, -errno, "watching signals") : 0;
}

/* Whoever ends us may well tell us twice at once: timeout(1) signals its child and then the group, a terminal's ^C
 * comes beside what a script passes on. Only a later signal means that patience has ended. */
static void begin_stop(struct supervisor *self, int status)
{
    uint64_t now = cordon_now_us();
    if (self->stopping) { /* asked twice: no more patience */
        self->hurried = self->hurried || now - self->stop_at_us >= SAME_REQUEST_US;
        if (self->hurried)
            self->kill_at_us = now;
        return;
    }
    self->stopping = true;
    self->status = status;
    self->stop_at_us = now;
    self->kill_at_us = now + STOP_GATEWAY_US;
    cordon_notify("STOPPING=1");
    if (self->gateway.pid)
        (void)kill(self->gateway.pid, SIGTERM); /* our child, not yet waited for */
}

static void log_death(const struct cordon_role *role, int status)
{
    const char *how = WIFSIGNALED(status) ? "signal" : "status";
    int number = WIFSIGNALED(status) ? WTERMSIG(status) : WEXITSTATUS(status);
    cordon_log(CORDON_LOG_ERROR, "a role died and is started again", "died", role->name, how, CORDON_NUM(number), NULL);
}

static void role_ended(struct supervisor *self, struct cordon_role *role, int status)
{
    cordon_role_ended(role);
    if (self->stopping)
        return;
    if (role == &self->gateway && !self->ready && WIFEXITED(status)) {
        begin_stop(self, WEXITSTATUS(status) ? WEXITSTATUS(status) : 125); /* it has said why */
        return;
    }
    log_death(role, status);
}

static void reap(struct supervisor *self)
{
    int status;
    for (pid_t pid; (pid = waitpid(-1, &status, WNOHANG)) > 0;) {
        if (pid == self->warden.pid)
            role_ended(self, &self->warden, status);
        else if (pid == self->gateway.pid)
            role_ended(self, &self->gateway, status);
        else if (pid == self->egress.pid)
            role_ended(self, &self->egress, status);
        else if (pid == self->doctor.pid)
            cordon_doctor_ended(&self->doctor); /* what it had to say is in the pipe */
    }
}

static void read_signals(struct supervisor *self)
{
    struct signalfd_siginfo info;
    while (read(self->signals, &info, sizeof info) == (ssize_t)sizeof info) {
        if (info.ssi_signo == SIGCHLD)
            continue;
        if (!self->stopping)
            cordon_log(CORDON_LOG_INFO, "stopping", "signal", CORDON_NUM((int)info.ssi_signo), NULL);
        begin_stop(self, 0);
    }
    reap(self);
}

/* What points an E2B SDK at this daemon. Where it listens on all addresses, the SDK is taken to be on this host. */
static void say_exports(const struct supervisor *self, const char *scheme)
{
    char text[64];
    cordon_listen_describe(self->listen_fds[1], text);
    const char *port = strrchr(text, ':');
    bool any = strncmp(text, "0.0.0.0:", 8) == 0 || strncmp(text, "[::]:", 5) == 0;
    const char *host = any ? "localhost" : text, *rest = any && port ? port : "";
    (void)printf("cordon: for E2B's SDKs: export E2B_API_URL=%s://%s%s E2B_SANDBOX_URL=%s://%s%s E2B_API_KEY=KEY "
                 "(cordon key create makes one)\n",
                 scheme, host, rest, scheme, host, rest);
}

static void say_ready(struct supervisor *self)
{
    char text[64];
    const char *tls = cordon_settings_string(self->settings, CORDON_DOOR_NATIVE, CORDON_SET_TLS_CERT);
    self->ready = true;
    for (size_t i = 1; i < self->listen_count; i++) {
        cordon_listen_describe(self->listen_fds[i], text);
        (void)printf("cordon: listening on %s://%s\n", *tls ? "https" : "http", text);
    }
    (void)printf("cordon: listening on %s/cordon.sock\n", self->state.path);
    if (self->listen_count > 1)
        say_exports(self, *tls ? "https" : "http");
    (void)fflush(stdout); /* nobody may be reading it */
    cordon_log(CORDON_LOG_INFO, "serving", "state", self->state.path, NULL);
    cordon_notify("READY=1");
}

/* Anything but one byte: the gateway is dying, which SIGCHLD tells. */
static void read_gateway(struct supervisor *self)
{
    char byte = 0;
    int fd = -1;
    size_t count = 1;
    ssize_t n = cordon_recv_fds(self->gateway.control, &byte, 1, &fd, &count, MSG_DONTWAIT);
    if (n == 1 && byte == 'D' && count == 1 && !self->stopping)
        cordon_doctor_start(&self->doctor, CORDON_TAKE_FD(fd));
    else if (n == 1 && byte == 'R' && !self->ready)
        say_ready(self);
    else if (n <= 0)
        cordon_close(&self->gateway.control);
    if (count)
        cordon_close(&fd);
}

static void start_again(struct supervisor *self, struct cordon_role *role)
{
    struct cordon_error err = {0};
    if (role->pid || role->start_at_us > cordon_now_us())
        return;
    if (cordon_role_start(role, &err) < 0) {
        cordon_log_error("a role can not be started; trying again", &err);
        cordon_role_ended(role);
        return;
    }
    if (role != &self->warden)
        connect_egress(self);
    cordon_log(CORDON_LOG_INFO, "started again", "started", role->name, NULL);
}

/* While stopping: first the gateway, so that its runs end in order, then the warden, then the egress process. */
static void go_on_stopping(struct supervisor *self)
{
    struct cordon_role *role = self->gateway.pid ? &self->gateway : self->warden.pid ? &self->warden : &self->egress;
    if (role != &self->gateway && role->pid && self->kill_at_us && role->start_at_us == 0) {
        (void)kill(role->pid, SIGTERM); /* our child, not yet waited for */
        role->start_at_us = UINT64_MAX; /* told once */
        self->kill_at_us = cordon_now_us() + STOP_WARDEN_US;
    }
    if (role->pid && cordon_now_us() >= self->kill_at_us) {
        cordon_log(CORDON_LOG_WARN,
                   self->hurried ? "the stop was asked for again: a role is killed"
                                 : "a role did not stop in time and is killed",
                   "killed", role->name, NULL);
        (void)kill(role->pid, SIGKILL);
        self->kill_at_us = UINT64_MAX;
    }
}

static int timeout_ms(const struct supervisor *self)
{
    uint64_t now = cordon_now_us(), until = UINT64_MAX;
    if (self->stopping)
        until = self->kill_at_us;
    else if (!self->warden.pid)
        until = self->warden.start_at_us;
    if (!self->stopping && !self->egress.pid && self->egress.start_at_us < until)
        until = self->egress.start_at_us;
    if (!self->stopping && !self->gateway.pid && self->gateway.start_at_us < until)
        until = self->gateway.start_at_us;
    if (until == UINT64_MAX)
        return -1;
    return until > now ? (int)((until - now) / 1000) + 1 : 0;
}

static int supervise(struct supervisor *self)
{
    while (!self->stopping || self->warden.pid || self->gateway.pid || self->egress.pid) {
        struct pollfd fds[] = {{.fd = self->signals, .events = POLLIN},
                               {.fd = self->gateway.control, .events = POLLIN}};
        if (poll(fds, 2, timeout_ms(self)) < 0 && errno != EINTR)
            return 125;
        if (fds[0].revents)
            read_signals(self);
        if (fds[1].revents && self->gateway.control == fds[1].fd)
            read_gateway(self);
        if (self->stopping) {
            go_on_stopping(self);
            continue;
        }
        start_again(self, &self->warden);
        start_again(self, &self->egress);
        start_again(self, &self->gateway);
    }
    return self->status;
}

static int start(struct supervisor *self, struct cordon_error *err)
{
    int r = load_settings(self, err);
    if (r == 0)
        r = check_addresses(self, err);
    if (r < 0)
        return r;
    setup_log(self);
    r = open_state(self, err);
    if (r == 0)
        r = open_listeners(self, err); /* before a first key is made and shown for nothing */
    if (r == 0)
        r = in_a_child(self, "checking the keys", check_keys, err);
    if (r == 0 && !self->status && cordon_settings_bool(self->settings, CORDON_DOOR_NATIVE, CORDON_SET_EGRESS_CA))
        r = in_a_child(self, "making the authority for hosts with headers", make_authority, err);
    if (r < 0 || self->status)
        return r;
    r = watch_signals(self, err);
    return r < 0 ? r : start_roles(self, err);
}

static void done(struct supervisor *self)
{
    if (self->listen_count)
        (void)unlinkat(self->state.fd, "cordon.sock", 0); /* the next start removes it as well */
    for (size_t i = 0; i < self->listen_count; i++)
        cordon_close(&self->listen_fds[i]);
    cordon_close(&self->warden.pending_peer);
    cordon_close(&self->gateway.pending_peer);
    cordon_close(&self->doctor.next);
    cordon_close(&self->signals);
    cordon_state_close(&self->state);
    explicit_bzero(self->greeting, sizeof self->greeting);
    cordon_settings_free(self->settings);
    cordon_serve_options_done(&self->options);
}

int cordon_supervisor_main(int argc, char **argv)
{
    struct supervisor self = {.signals = -1, .state.fd = -1, .doctor.next = -1};
    struct cordon_error err = {0};
    self.warden.pending_peer = self.gateway.pending_peer = self.egress.pending_peer = -1;
    /* What a careless parent left open is not for the roles. (A kernel older than 5.9 doesn't know it: they get it.) */
    (void)close_range(STDERR_FILENO + 1, ~0u, 0);
    if (cordon_serve_options_parse(argc, argv, &self.options, &err) < 0) {
        (void)fprintf(stderr, "cordon: %s (see cordon serve --help)\n", err.message);
        self.status = 2;
    } else if (self.options.help) {
        (void)fputs(help, stdout); /* nobody to tell */
    } else if (start(&self, &err) < 0) {
        begin_stop(&self, complain(&err));
        (void)supervise(&self); /* at once when nothing runs yet */
    } else if (!self.status) {
        self.status = supervise(&self);
    }
    done(&self);
    return self.status;
}
