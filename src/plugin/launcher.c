/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Starts the plugins' hosts for a gateway that can't execute anything any more. It first becomes the plugins' user, so
 * that it has nothing that they lack; its end (the gateway's) ends them.
 */
#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/fd.h"
#include "plugin/plugin.h"

#define SOCKET 3
#define ENVIRONMENT 64

struct launcher {
    char **plugins; /* NAME LIBRARY pairs */
    size_t count;
    pid_t pids[CORDON_PLUGINS_MAX];
    char *environment[ENVIRONMENT + 1];
};

static int become(const char *uid_text, const char *gid_text)
{
    uid_t uid = (uid_t)strtoul(uid_text, NULL, 10);
    gid_t gid = (gid_t)strtoul(gid_text, NULL, 10);
    struct rlimit none = {0, 0};
    if (geteuid() == 0) {
        for (int cap = 0; prctl(PR_CAPBSET_READ, cap, 0, 0, 0) >= 0; cap++)
            (void)prctl(PR_CAPBSET_DROP, cap, 0, 0, 0); /* one layer of several */
        if (setgroups(0, NULL) < 0 || setresgid(gid, gid, gid) < 0 || setresuid(uid, uid, uid) < 0)
            return -errno;
    }
    (void)sched_setscheduler(0, SCHED_OTHER, &(struct sched_param){0}); /* the gateway's priority is not for plugins */
    (void)setrlimit(RLIMIT_CORE, &none);                                /* what a plugin holds is not for a file */
    return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0 || prctl(PR_SET_DUMPABLE, 0, 0, 0, 0) < 0 ? -errno : 0;
}

/* How much of a pair is PLUGIN_<NAME>_; 0: it is none of this plugin's. */
static size_t own_prefix(const char *pair, const char *name)
{
    char own[80] = "PLUGIN_";
    size_t size = strlen(own);
    for (; *name && size < sizeof own - 2; name++)
        own[size++] = strchr("-.", *name) ? '_' : *name >= 'a' && *name <= 'z' ? (char)(*name - 'a' + 'A') : *name;
    own[size++] = '_';
    return strncmp(pair, own, size) == 0 ? size : 0;
}

/* A plugin gets the usual names and its own; never the keys of others. PLUGIN_A_B_… is that of "a-b" where there is
 * one, not of "a" as well; where "a-b" and "a.b" both could have it, neither gets it. */
static bool is_for(const struct launcher *self, const char *pair, size_t index)
{
    static const char *const usual[] = {
        "PATH=",       "LANG=",        "LC_ALL=",   "TZ=",          "TMPDIR=",  "SSL_CERT_FILE=",
        "http_proxy=", "https_proxy=", "no_proxy=", "HTTPS_PROXY=", "NO_PROXY="};
    size_t mine = own_prefix(pair, self->plugins[2 * index]);
    for (size_t i = 0; mine && i < self->count; i++)
        if (i != index && own_prefix(pair, self->plugins[2 * i]) >= mine)
            return false;
    for (size_t i = 0; i < sizeof usual / sizeof *usual && !mine; i++)
        if (strncmp(pair, usual[i], strlen(usual[i])) == 0)
            return true;
    return mine > 0;
}

static void child(struct launcher *self, size_t index, int end) __attribute__((noreturn));
static void child(struct launcher *self, size_t index, int end)
{
    char cordon[] = "cordon", role[] = "--role", host[] = "plugin";
    char *name = self->plugins[2 * index], *library = self->plugins[2 * index + 1];
    char *argv[] = {cordon, role, host, name, library, NULL};
    size_t count = 0;
    for (char **pair = environ; *pair && count < ENVIRONMENT; pair++)
        if (is_for(self, *pair, index))
            self->environment[count++] = *pair;
    self->environment[count] = NULL;
    int null = open("/dev/null", O_RDONLY);
    if (prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0) < 0 || null < 0 || dup2(null, 0) < 0 || dup2(end, SOCKET) < 0)
        _exit(125);
    (void)close_range(SOCKET + 1, ~0u, 0); /* an older kernel: they are close-on-exec */
    (void)signal(SIGPIPE, SIG_DFL);
    (void)execve("/proc/self/exe", argv, self->environment);
    _exit(125);
}

/* The new host's socket goes back to the gateway. */
static void start_host(struct launcher *self, size_t index, char serial)
{
    int pair[2];
    if (self->pids[index] > 0)
        (void)kill(self->pids[index], SIGKILL); /* ours, not yet waited for */
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) < 0)
        return; /* the gateway's wait ends by its time */
    pid_t pid = fork();
    if (pid == 0)
        child(self, index, pair[1]);
    self->pids[index] = pid > 0 ? pid : 0;
    (void)cordon_send_fds(SOCKET, &serial, 1, &pair[0], 1, 0); /* a gateway that is gone ends us */
    (void)close(pair[0]);
    (void)close(pair[1]);
}

static void reap(struct launcher *self)
{
    for (pid_t pid; (pid = waitpid(-1, NULL, WNOHANG)) > 0;)
        for (size_t i = 0; i < self->count; i++)
            self->pids[i] = self->pids[i] == pid ? 0 : self->pids[i];
}

int cordon_plugin_launcher_main(int argc, char **argv)
{
    struct launcher self = {0};
    char order[CORDON_PLUGIN_ORDER];
    if (argc < 5 || (argc - 3) % 2 || become(argv[1], argv[2]) < 0 || prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0) < 0)
        return 125;
    self.plugins = argv + 3;
    self.count = (size_t)(argc - 3) / 2;
    (void)signal(SIGPIPE, SIG_IGN); /* can't fail */
    for (;;) {
        ssize_t n = recv(SOCKET, order, sizeof order, 0);
        reap(&self);
        if (n < 0 && errno == EINTR)
            continue;
        if (n != (ssize_t)sizeof order)
            break;
        size_t index = (unsigned char)order[1];
        if (index >= self.count)
            break;
        if (order[0] == CORDON_PLUGIN_START)
            start_host(&self, index, order[2]);
        else if (order[0] == CORDON_PLUGIN_KILL && self.pids[index] > 0)
            (void)kill(self.pids[index], SIGKILL); /* ours, not yet waited for */
    }
    for (size_t i = 0; i < self.count; i++)
        if (self.pids[i] > 0)
            (void)kill(self.pids[i], SIGKILL);
    while (waitpid(-1, NULL, 0) > 0)
        continue;
    return 0;
}
