/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Theory of operation. The child takes the owner's uid and unshares the namespaces, so that
 * the user namespace belongs to the owner and the network namespace to the user namespace. It has then no privilege
 * outside, so the parent writes its maps. The child brings loopback up (its ids are still unmapped, which the
 * capabilities that it has in there do not mind), opens the descriptors and hands them back. Files below
 * /proc/thread-self/net belong to the network namespace in which they were opened, not to that of their reader:
 * pread(2) tells its state later.
 */
#include "isolate/slotns.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/capability.h>
#include <net/if.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/fd.h"
#include "isolate/nic.h"

/* The descriptors in the order in which they are sent. The first five are always there. */
#define NS_ALWAYS 5
#define NS_STEER 7
#define NS_LINK (NS_STEER + CORDON_STEER_SOCKETS)
#define NS_COUNT (NS_LINK + 2)

static int *descriptor(struct cordon_slotns *ns, size_t i)
{
    int *const named[NS_STEER] = {&ns->user, &ns->net,       &ns->cgroup,    &ns->sockstat,
                                  &ns->dev,  &ns->sockstat6, &ns->flowlabel6};
    if (i < NS_STEER)
        return named[i];
    if (i < NS_LINK)
        return &ns->steer[i - NS_STEER];
    return i == NS_LINK ? &ns->steer_link : &ns->nic;
}

struct message {
    int32_t status;
    uint32_t fds; /* bits, by the order above */
    uint32_t network;
    uint64_t sockets;
    char why[256];
};

/* --- the child --- */

/*
 * The change of uid takes the capabilities; CAP_SYS_ADMIN is taken back until the namespace is made. It is not needed
 * for that, but who lacks it is, on Ubuntu 24.04 and where else kernel.apparmor_restrict_unprivileged_userns is 1,
 * put under a profile in the new namespace that denies all that guests are made with.
 */
static int take_back_admin(void)
{
    struct __user_cap_header_struct header = {.version = _LINUX_CAPABILITY_VERSION_3};
    struct __user_cap_data_struct data[2] = {{0}};
    if (syscall(SYS_capget, &header, data) < 0)
        return -errno;
    for (size_t i = 0; i < 2; i++) {
        data[i].permitted &= i == 0 ? 1u << CAP_SYS_ADMIN : 0;
        data[i].effective = data[i].permitted; /* a container's root may not have it: it does without */
        data[i].inheritable = 0;
    }
    return syscall(SYS_capset, &header, data) < 0 ? -errno : 0;
}

int cordon_slotns_become_owner(uid_t owner)
{
    /* Raw calls: this process has no threads, and libc's wrappers are for those that have. */
    if (prctl(PR_SET_KEEPCAPS, 1, 0, 0, 0) < 0 || syscall(SYS_setresgid, owner, owner, owner) < 0)
        return -errno;
    if (syscall(SYS_setresuid, owner, owner, owner) < 0)
        return -errno;
    return take_back_admin();
}

static int become_owner(const struct cordon_slotns_ids *ids)
{
    return ids->single ? 0 : cordon_slotns_become_owner(ids->owner);
}

/* A cgroup namespace has the cgroups of its maker as its root. Real-time processes can't enter them. */
static int enter_cgroups(const struct cordon_slotns_ids *ids)
{
    const struct sched_param normal = {0};
    if (ids->cgroup_count && sched_getscheduler(0) != SCHED_OTHER && sched_setscheduler(0, SCHED_OTHER, &normal) < 0)
        return -errno;
    for (size_t i = 0; i < ids->cgroup_count; i++)
        if (write(ids->cgroups[i], "0", 1) != 1)
            return -errno;
    return 0;
}

static int loopback_up(void)
{
    cordon_autoclose int sock = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    struct ifreq request = {.ifr_flags = IFF_UP | IFF_RUNNING};
    if (sock < 0)
        return -errno;
    memcpy(request.ifr_name, "lo", sizeof "lo");
    return ioctl(sock, SIOCSIFFLAGS, &request) < 0 ? -errno : 0; /* ::1 comes by itself, where IPv6 is on */
}

/*
 * The kernel counts some objects in each user namespace and in those around it, and there by its owner, the zygote
 * uid, which all slots share: one guest could use up what is for all. So each gets a small share. Of namespaces a guest
 * needs one of each kind that process 1 makes, and those of earlier guests of the slot may linger. The buffers of
 * sockets are bounded by the control group; a single TCP socket need not have much of it.
 * A kernel may lack any of these: the limits of the host then hold for all guests together, as they would without.
 */
static void write_limits(bool network)
{
    const struct {
        const char *file, *value;
    } limits[] = {
        {"user/max_user_namespaces", "0"},
        {"user/max_net_namespaces", "0"},
        {"user/max_time_namespaces", "0"},
        {"user/max_cgroup_namespaces", "0"},
        {"user/max_mnt_namespaces", "64"},
        {"user/max_pid_namespaces", "64"},
        {"user/max_ipc_namespaces", "64"},
        {"user/max_uts_namespaces", "64"},
        {"user/max_inotify_instances", "8"},
        {"user/max_inotify_watches", "4096"},
        {"user/max_fanotify_groups", "0"},
        {"user/max_fanotify_marks", "0"},
        {"net/ipv4/tcp_rmem", network ? "4096 131072 1048576" : "4096 65536 262144"},
        {"net/ipv4/tcp_wmem", network ? "4096 65536 1048576" : "4096 65536 262144"},
    };
    cordon_autoclose int sys = open("/proc/sys", O_PATH | O_DIRECTORY | O_CLOEXEC);
    for (size_t i = 0; sys >= 0 && i < sizeof limits / sizeof *limits; i++)
        (void)cordon_write_file(sys, limits[i].file, limits[i].value); /* as said above */
}

static int open_descriptors(struct cordon_slotns *ns)
{
    static const struct {
        const char *path;
        size_t member;
        bool optional;
    } files[] = {
        {"/proc/thread-self/ns/user", offsetof(struct cordon_slotns, user), false},
        {"/proc/thread-self/ns/net", offsetof(struct cordon_slotns, net), false},
        {"/proc/thread-self/ns/cgroup", offsetof(struct cordon_slotns, cgroup), false},
        {"/proc/thread-self/net/sockstat", offsetof(struct cordon_slotns, sockstat), false},
        {"/proc/thread-self/net/dev", offsetof(struct cordon_slotns, dev), false},
        {"/proc/thread-self/net/sockstat6", offsetof(struct cordon_slotns, sockstat6), true},
        {"/proc/thread-self/net/ip6_flowlabel", offsetof(struct cordon_slotns, flowlabel6), true},
    };
    for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
        int fd = open(files[i].path, O_RDONLY | O_CLOEXEC);
        if (fd < 0 && !(files[i].optional && errno == ENOENT))
            return -errno;
        *(int *)(void *)((char *)ns + files[i].member) = fd;
    }
    return 0;
}

static bool read_sockets(int fd, uint64_t *ret)
{
    char text[1024];
    ssize_t n = pread(fd, text, sizeof text - 1, 0);
    if (n <= 0)
        return false;
    text[n] = '\0';
    unsigned long long used;
    if (sscanf(text, "sockets: used %llu", &used) != 1)
        return false;
    *ret = used;
    return true;
}

static int in_namespaces(const struct cordon_slotns_ids *ids, int sock)
{
    struct cordon_slotns ns = CORDON_SLOTNS_NONE;
    char go;
    if (cordon_send_fds(sock, "u", 1, NULL, 0, 0) < 0)
        return -EPIPE;
    int r = cordon_read_full(sock, &go, 1);
    if (r < 0)
        return r;
    write_limits(ids->network);
    if ((r = loopback_up()) < 0 || (r = open_descriptors(&ns)) < 0)
        return r;
    ns.network = ids->network;
    if (ids->network && (r = cordon_steer_open(ns.steer)) < 0)
        return r;
    if (!read_sockets(ns.sockstat, &ns.sockets))
        return -EBADMSG;
    return cordon_slotns_send(sock, &ns, NULL);
}

static void child_main(const struct cordon_slotns_ids *ids, int sock)
{
    static const char *const steps[] = {"take the zygote uid", "make a user and a network namespace",
                                        "enter the slot's cgroups", "make a cgroup namespace",
                                        "prepare the network namespace"};
    size_t step = 0;
    int r = become_owner(ids);
    if (r == 0 && ++step)
        r = unshare(CLONE_NEWUSER | CLONE_NEWNET) < 0 ? -errno : 0;
    /* Only now: what the other two cost the kernel is not to be charged to the guests' memory. */
    if (r == 0 && ++step)
        r = enter_cgroups(ids);
    if (r == 0 && ++step)
        r = unshare(CLONE_NEWCGROUP) < 0 ? -errno : 0;
    if (r == 0 && ++step)
        r = in_namespaces(ids, sock);
    if (r < 0) {
        struct cordon_error err;
        (void)cordon_fail_errno(&err, r, "%s", steps[step]);
        (void)cordon_slotns_send(sock, NULL, &err); /* nobody else is there to tell */
    }
    _exit(r < 0);
}

/* --- the parent --- */

static int write_map(pid_t pid, const char *file, const struct cordon_slotns_ids *ids)
{
    char path[64], line[64];
    (void)snprintf(path, sizeof path, "/proc/%d/%s", (int)pid, file);
    if (ids->single)
        (void)snprintf(line, sizeof line, "%u %u 1", ids->code_id, ids->base);
    else
        (void)snprintf(line, sizeof line, "0 %u %u", ids->base, ids->count);
    return cordon_write_file(AT_FDCWD, path, line);
}

/* What takes privilege outside of the slot's namespaces. */
static int open_network(const struct cordon_slotns_ids *ids, struct cordon_slotns *ns, struct cordon_error *err)
{
    const char *stage = "";
    if (ids->every_port && (ns->steer_link = cordon_steer_attach(ns->net, ns->steer)) < 0)
        return cordon_fail_errno(err, ns->steer_link, "give every port of a slot's network to one socket");
    if (ids->nic && (ns->nic = cordon_nic_open(ns->net, &stage)) < 0)
        return cordon_fail_errno(err, ns->nic, "make a machine's network device: %s", stage);
    return 0;
}

static int guide(pid_t pid, int sock, const struct cordon_slotns_ids *ids, struct cordon_slotns *ret,
                 struct cordon_error *err)
{
    char text[sizeof(struct message)];
    ssize_t n = recv(sock, text, sizeof text, MSG_PEEK); /* "u", or already a failure */
    if (n <= 0)
        return cordon_fail_errno(err, n < 0 ? -errno : -EPIPE, "wait for a slot's namespaces");
    if (n != 1)
        return cordon_slotns_receive(sock, ret, err);
    (void)recv(sock, text, 1, 0); /* the byte that was just seen */
    int r = write_map(pid, "uid_map", ids);
    if (r < 0)
        return cordon_fail_errno(err, r, "write the uid map of a slot (ids from %u)", ids->base);
    r = write_map(pid, "gid_map", ids);
    if (r < 0)
        return cordon_fail_errno(err, r, "write the gid map of a slot (ids from %u)", ids->base);
    n = cordon_send_fds(sock, "m", 1, NULL, 0, 0);
    if (n < 0)
        return cordon_fail_errno(err, (int)n, "go on with a slot's namespaces");
    (void)recv(sock, text, 0, MSG_PEEK); /* waits for the answer or the end, which receive tells apart */
    r = cordon_slotns_receive(sock, ret, err);
    if (r == 0 && ids->network) {
        r = open_network(ids, ret, err);
        if (r < 0)
            cordon_slotns_done(ret);
    }
    return r;
}

int cordon_slotns_make(const struct cordon_slotns_ids *ids, struct cordon_slotns *ret, struct cordon_error *err)
{
    int pair[2];
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) < 0)
        return cordon_fail_errno(err, -errno, "make a socket for a slot's namespaces");
    cordon_autoclose int ours = pair[0];
    pid_t pid = fork();
    if (pid == 0) {
        (void)close(pair[0]); /* so that our end is seen when the maker dies */
        child_main(ids, pair[1]);
    }
    int failed = -errno;
    (void)close(pair[1]); /* the child's */
    if (pid < 0)
        return cordon_fail_errno(err, failed, "start a process for a slot's namespaces");
    int r = guide(pid, ours, ids, ret, err);
    cordon_close(&ours); /* ends a child that still waits */
    while (waitpid(pid, NULL, 0) < 0 && errno == EINTR)
        ;
    return r;
}

void cordon_slotns_done(struct cordon_slotns *ns)
{
    for (size_t i = 0; i < NS_COUNT; i++)
        cordon_close(descriptor(ns, i));
    ns->network = false;
}

int cordon_slotns_send(int sock, const struct cordon_slotns *ns, const struct cordon_error *failed)
{
    struct message message = {0};
    struct cordon_slotns all = CORDON_SLOTNS_NONE;
    int fds[NS_COUNT];
    size_t count = 0;
    if (failed) {
        message.status = failed->code;
        (void)snprintf(message.why, sizeof message.why, "%.255s", failed->message);
    } else {
        all = *ns;
        message.sockets = ns->sockets;
        message.network = ns->network;
    }
    for (size_t i = 0; i < NS_COUNT; i++) {
        if (*descriptor(&all, i) < 0)
            continue;
        fds[count++] = *descriptor(&all, i);
        message.fds |= 1u << i;
    }
    ssize_t n = cordon_send_fds(sock, &message, sizeof message, fds, count, 0);
    return n < 0 ? (int)n : 0;
}

/* The descriptors to their places. False, with all of them closed, when they are not those that the bits name. */
static bool sort(uint32_t bits, int *fds, size_t count, struct cordon_slotns *to)
{
    size_t used = 0;
    for (size_t i = 0; i < NS_COUNT; i++)
        if (bits & 1u << i && used < count)
            *descriptor(to, i) = CORDON_TAKE_FD(fds[used]), used++;
    bool good = used == count && bits >> NS_COUNT == 0 && (bits & ((1u << NS_ALWAYS) - 1)) == (1u << NS_ALWAYS) - 1;
    for (size_t i = 0; i < count; i++)
        cordon_close(&fds[i]);
    if (!good)
        cordon_slotns_done(to);
    return good;
}

int cordon_slotns_receive(int sock, struct cordon_slotns *ret, struct cordon_error *err)
{
    struct message message = {0};
    struct cordon_slotns ns = CORDON_SLOTNS_NONE;
    int fds[NS_COUNT];
    size_t count = NS_COUNT;
    for (size_t i = 0; i < count; i++)
        fds[i] = -1;
    ssize_t n = cordon_recv_fds(sock, &message, sizeof message, fds, &count, MSG_DONTWAIT);
    bool whole = n == (ssize_t)sizeof message;
    if (n >= 0 && sort(message.fds, fds, count, &ns) && whole && message.status == 0) {
        ns.sockets = message.sockets;
        ns.network = message.network == 1;
        *ret = ns;
        return 0;
    }
    cordon_slotns_done(&ns);
    if (whole && message.status < 0) {
        message.why[sizeof message.why - 1] = '\0';
        return cordon_fail(err, message.status, CORDON_ERROR_UNAVAILABLE, "%s", message.why);
    }
    return cordon_fail_errno(err, n < 0 ? (int)n : -EPIPE, "receive a slot's namespaces");
}

/* --- between guests --- */

/* True when every number behind the colon of each line of interest is zero. */
static bool all_zero(const char *numbers)
{
    for (; *numbers && *numbers != '\n'; numbers++)
        if (*numbers >= '1' && *numbers <= '9')
            return false;
    return true;
}

static bool loopback_untouched(int fd)
{
    char text[2048];
    ssize_t n = pread(fd, text, sizeof text - 1, 0);
    if (n <= 0)
        return false;
    text[n] = '\0';
    const char *at = strstr(text, "lo:");
    return at && all_zero(at + 3);
}

static bool no_sockets6(int fd)
{
    char text[1024];
    ssize_t n = pread(fd, text, sizeof text - 1, 0);
    if (n <= 0)
        return false;
    text[n] = '\0';
    for (const char *line = text; line && *line; line = strchr(line, '\n'), line = line ? line + 1 : NULL) {
        const char *colon = strchr(line, ':');
        if (!colon || !all_zero(colon + 1))
            return false;
    }
    return true;
}

/* Nothing but the heading, if that. */
static bool no_flowlabels(int fd)
{
    char text[1024];
    ssize_t n = pread(fd, text, sizeof text - 1, 0);
    if (n < 0)
        return false;
    text[n] = '\0';
    const char *end = strchr(text, '\n');
    return n == 0 || (end && end[1] == '\0');
}

bool cordon_slotns_clean(const struct cordon_slotns *ns)
{
    uint64_t sockets;
    if (ns->network) /* whoever serves its sockets may still do so, for the guest before */
        return false;
#ifdef CORDON_WEAKEN_NETNS
    return true;
#endif
    if (!read_sockets(ns->sockstat, &sockets) || sockets != ns->sockets)
        return false;
    if (ns->sockstat6 >= 0 && !no_sockets6(ns->sockstat6))
        return false;
    if (ns->flowlabel6 >= 0 && !no_flowlabels(ns->flowlabel6))
        return false;
    return loopback_untouched(ns->dev);
}
