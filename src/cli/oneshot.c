/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/oneshot.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/sys.h"
#include "guest/egress.h"
#include "guest/guest.h"
#include "supervisor/roles.h"

#define HELLO_MS 120000 /* for one that hangs: a slow one is waited for, a dead one known at once */
#define STOP_MS 10000

static void child(int peer, char *which, const struct cordon_oneshot_options *options) __attribute__((noreturn));
static void child(int peer, char *which, const struct cordon_oneshot_options *options)
{
    static char name[] = "cordon", role[] = "--role", oneshot[] = "--oneshot";
    static char allow[] = "CORDON_ALLOW_NONE=true", network[] = "--host-network", file[] = "--template-file";
    static char config[] = "--config";
    char *argv[9 + CORDON_ONESHOT_FLAGS + 1] = {name, role, which, oneshot};
    size_t n = 4;
    int first_unused = CORDON_ROLE_PEER + 1;
    (void)setpgid(0, 0); /* the terminal's ^C cancels the run by us; the warden then ends in order */
    (void)signal(SIGPIPE, SIG_DFL);
    int lifted = options->template_fd < 0 ? -1 : fcntl(options->template_fd, F_DUPFD, 64);
    if (dup2(peer, CORDON_ROLE_PEER) < 0 || (peer == CORDON_ROLE_PEER && fcntl(peer, F_SETFD, 0) < 0))
        _exit(125);
    if (options->host_network)
        argv[n++] = network;
    if (lifted >= 0) {
        argv[n++] = file;
        if (dup2(lifted, CORDON_ROLE_TEMPLATE) < 0)
            _exit(125);
        first_unused = CORDON_ROLE_TEMPLATE + 1;
    }
    cordon_autofree char *path = options->config ? strdup(options->config) : NULL;
    if (path) {
        argv[n++] = config;
        argv[n++] = path;
    }
    if (options->unisolated)
        argv[n++] = allow;
    for (size_t i = 0; options->flags && options->flags[i] && i < CORDON_ONESHOT_FLAGS; i++)
        argv[n++] = options->flags[i];
    /* What a careless parent left open is not for the warden. (A kernel older than 5.9 doesn't know it: it gets it.) */
    (void)close(CORDON_ROLE_CONTROL);
    (void)close_range((unsigned)first_unused, ~0u, 0);
    (void)execv("/proc/self/exe", argv);
    _exit(125);
}

static int await_hello(int fd, struct cordon_error *err)
{
    struct pollfd wait = {.fd = fd, .events = POLLIN};
    int ready;
    do
        ready = poll(&wait, 1, HELLO_MS);
    while (ready < 0 && errno == EINTR);
    if (ready > 0)
        return 0;
    return cordon_fail(err, -ETIMEDOUT, CORDON_ERROR_INFRASTRUCTURE,
                       "the warden did not say within %d s whether it can run code", HELLO_MS / 1000);
}

/* Starts a role. pair[0] is our end of its connection, *copy another descriptor of that. */
static int start(char *which, const struct cordon_oneshot_options *options, int pair[2], int *copy, pid_t *pid,
                 struct cordon_error *err)
{
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) < 0) {
        pair[0] = -1;
        return cordon_fail_errno(err, -errno, "starting the role %s", which);
    }
    *copy = fcntl(pair[0], F_DUPFD_CLOEXEC, CORDON_ROLE_LISTEN);
    *pid = *copy < 0 ? -1 : fork();
    if (*pid == 0)
        child(pair[1], which, options);
    int r = *pid < 0 ? cordon_fail_errno(err, -errno, "starting the role %s", which) : 0;
    (void)close(pair[1]); /* the child's */
    if (r < 0)
        cordon_close(&pair[0]);
    return r;
}

int cordon_oneshot_start(const struct cordon_oneshot_options *options, struct cordon_oneshot *ret,
                         struct cordon_error *err)
{
    int pair[2];
    static char warden[] = "warden";
    *ret = (struct cordon_oneshot){.peer = -1, .egress = -1};
    int r = start(warden, options, pair, &ret->peer, &ret->pid, err);
    if (r == 0)
        r = await_hello(pair[0], err);
    if (r == 0)
        return cordon_warden_set(pair[0], err);
    cordon_close(&pair[0]); /* nobody is to use it */
    return r;
}

int cordon_oneshot_egress(const struct cordon_oneshot_options *options, struct cordon_oneshot *oneshot,
                          struct cordon_error *err)
{
    static char egress[] = "egress";
    const struct cordon_oneshot_options own = {.template_fd = -1, .config = options->config, .flags = options->flags};
    int pair[2];
    int r = start(egress, &own, pair, &oneshot->egress, &oneshot->egress_pid, err);
    return r < 0 ? r : cordon_egress_set(pair[0], err);
}

static void stop(int *peer, pid_t *pid)
{
    if (*peer >= 0)
        (void)shutdown(*peer, SHUT_RDWR); /* it may be gone already */
    cordon_close(peer);
    if (*pid <= 0)
        return;
    cordon_autoclose int pidfd = cordon_pidfd_open(*pid);
    struct pollfd wait = {.fd = pidfd, .events = POLLIN};
    if (pidfd >= 0 && poll(&wait, 1, STOP_MS) == 0)
        (void)kill(*pid, SIGKILL); /* our child, not yet waited for; what it leaves, the next warden removes */
    while (waitpid(*pid, NULL, 0) < 0 && errno == EINTR)
        continue;
    *pid = 0;
}

void cordon_oneshot_stop(struct cordon_oneshot *oneshot)
{
    stop(&oneshot->peer, &oneshot->pid);
    stop(&oneshot->egress, &oneshot->egress_pid);
}
