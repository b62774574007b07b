/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Theory of operation. Two programs are made here, once, at a daemon's start: the allow-list that code runs under, and
 * the deny-list that the gateway runs under.
 *
 * What the code's list doesn't name is *notified*: the agent records the name for the outcome and answers with
 * cordon_filter_denied_errno. Names that runtimes try at each start and live without are answered by the kernel at
 * once instead (`quiet` below): an outcome that reports io_uring_setup for every Node program would tell nothing. The
 * denied names are written out too, with the reason of each set; a test checks that every name is in exactly one list.
 *
 * The programs are assembled by filter_bpf.c and not by libseccomp, for two reasons. Each guest pays for the length
 * when it installs the filter, and neighbouring numbers share a leaf here: 227 instructions and 84 us, against 394 and
 * 110 for the same list from libseccomp, with simpler checks. And the kernel cuts most arguments to 32 bits, where
 * libseccomp compares 64 and can't say "all values but these" of the low half, so that TIOCSTI + 2^32 would get
 * through.
 */
#include "isolate/filter.h"

#include <asm/unistd.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/audit.h>
#include <linux/sched.h>
#include <netinet/in.h>
#include <stddef.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/personality.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/shm.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/fd.h"
#include "isolate/filter_bpf.h"
#include "isolate/filter_lists.h"

#if defined(__x86_64__)
#define NATIVE_ARCH AUDIT_ARCH_X86_64
#elif defined(__aarch64__)
#define NATIVE_ARCH AUDIT_ARCH_AARCH64
#elif defined(__riscv) && __riscv_xlen == 64
#define NATIVE_ARCH AUDIT_ARCH_RISCV64
#else
#error "name this architecture's AUDIT_ARCH_ here, and check the order of clone's arguments"
#endif

#define PR_SET_VMA_ 0x53564d41 /* PR_SET_VMA: names of anonymous memory */
#define PR_SET_MDWE_ 65
#define PR_GET_MDWE_ 66
#define PR_SET_TAGGED_ADDR_CTRL_ 55
#define PR_GET_TAGGED_ADDR_CTRL_ 56

#define NEW_NAMESPACES                                                                                                 \
    (CLONE_NEWNS | CLONE_NEWCGROUP | CLONE_NEWUTS | CLONE_NEWIPC | CLONE_NEWUSER | CLONE_NEWPID | CLONE_NEWNET)
#define SOCKET_TYPE_MASK 0xf /* the rest are SOCK_NONBLOCK and SOCK_CLOEXEC */
#define AGENT_PID 1

#define COUNT(list) (sizeof(list) / sizeof((list)[0]))

struct build {
    struct cordon_bpf bpf;
    cordon_bpf_label allow, deny; /* deny: notify for code, kill for the gateway */
    cordon_bpf_label targets[CORDON_BPF_SYSCALLS];
};

static cordon_bpf_label answer(struct build *build, int error)
{
    return cordon_bpf_return(&build->bpf, SECCOMP_RET_ERRNO | (uint32_t)error);
}

/* A name that this architecture lacks is no error: the lists are for all of them. */
static void set_target(struct build *build, const char *name, cordon_bpf_label target)
{
    int number = cordon_filter_syscall_number(name);
    if (number >= 0 && number < CORDON_BPF_SYSCALLS)
        build->targets[number] = target;
}

static void set_targets(struct build *build, const char *const *names, cordon_bpf_label target)
{
    for (; *names; names++)
        set_target(build, *names, target);
}

static cordon_bpf_label argument_none_of(struct build *build, unsigned argument, const uint32_t *values, size_t count,
                                         cordon_bpf_label otherwise)
{
    cordon_bpf_label test = cordon_bpf_one_of(&build->bpf, values, count, otherwise, build->allow);
    return cordon_bpf_load_argument(&build->bpf, argument, test);
}

static cordon_bpf_label argument_one_of(struct build *build, unsigned argument, const uint32_t *values, size_t count)
{
    cordon_bpf_label test = cordon_bpf_one_of(&build->bpf, values, count, build->allow, build->deny);
    return cordon_bpf_load_argument(&build->bpf, argument, test);
}

static cordon_bpf_label argument_without(struct build *build, unsigned argument, uint32_t bits,
                                         cordon_bpf_label otherwise)
{
    cordon_bpf_label test = cordon_bpf_branch(&build->bpf, BPF_JSET, bits, otherwise, build->allow);
    return cordon_bpf_load_argument(&build->bpf, argument, test);
}

/*
 * Unix sockets; TCP, UDP and ping over IP (the network namespace holds them); route netlink, which getifaddrs asks.
 * All else has no use here and a history of holes: packet, vsock (which no network namespace holds), alg, SCTP, DCCP…
 * TCP and UDP are told by protocol and, where that is 0, by type: SEQPACKET with protocol 0 would be SCTP.
 */
static cordon_bpf_label socket_rule(struct build *build)
{
    static const uint32_t protocols[] = {0, IPPROTO_TCP, IPPROTO_UDP, IPPROTO_ICMP, IPPROTO_ICMPV6};
    static const uint32_t types[] = {SOCK_STREAM, SOCK_DGRAM, SOCK_RAW};
    static const uint32_t inet[] = {AF_INET, AF_INET6};
    struct cordon_bpf *bpf = &build->bpf;
    cordon_bpf_label no_protocol = answer(build, EPROTONOSUPPORT);
    cordon_bpf_label l = cordon_bpf_one_of(bpf, protocols, COUNT(protocols), build->allow, no_protocol);
    l = cordon_bpf_load_argument(bpf, 2, l);
    l = cordon_bpf_one_of(bpf, types, COUNT(types), l, no_protocol);
    l = cordon_bpf_and(bpf, SOCKET_TYPE_MASK, l);
    cordon_bpf_label ip = cordon_bpf_load_argument(bpf, 1, l);
    l = cordon_bpf_branch(bpf, BPF_JEQ, 0 /* NETLINK_ROUTE */, build->allow, no_protocol);
    cordon_bpf_label netlink = cordon_bpf_load_argument(bpf, 2, l);
    l = cordon_bpf_branch(bpf, BPF_JEQ, AF_NETLINK, netlink, answer(build, EAFNOSUPPORT));
    l = cordon_bpf_one_of(bpf, inet, COUNT(inet), ip, l);
    l = cordon_bpf_branch(bpf, BPF_JEQ, AF_UNIX, build->allow, l);
    return cordon_bpf_load_argument(bpf, 0, l);
}

static cordon_bpf_label prctl_rule(struct build *build)
{
    /* Without: MM (moves the heap's borders), SECUREBITS, MCE_KILL, SPECULATION_CTRL's setter, IO_FLUSHER, SCHED_CORE,
     * SYSCALL_USER_DISPATCH, PTRACER. */
    /* clang-format off */
    static const uint32_t options[] = {
        PR_SET_NAME, PR_GET_NAME, PR_SET_VMA_, PR_SET_PDEATHSIG, PR_GET_PDEATHSIG, PR_GET_DUMPABLE, PR_SET_DUMPABLE,
        PR_GET_UNALIGN, PR_GET_KEEPCAPS, PR_SET_KEEPCAPS, PR_GET_FPEMU, PR_GET_FPEXC, PR_GET_TIMING, PR_SET_TIMING,
        PR_GET_ENDIAN, PR_GET_SECCOMP, PR_SET_SECCOMP /* filters only add up, and this way gives no listener */,
        PR_CAPBSET_READ, PR_CAPBSET_DROP, PR_GET_TSC, PR_SET_TSC, PR_GET_SECUREBITS, PR_GET_TIMERSLACK,
        PR_SET_TIMERSLACK, PR_MCE_KILL_GET, PR_SET_CHILD_SUBREAPER, PR_GET_CHILD_SUBREAPER, PR_SET_NO_NEW_PRIVS,
        PR_GET_NO_NEW_PRIVS, PR_GET_TID_ADDRESS, PR_SET_THP_DISABLE, PR_GET_THP_DISABLE, PR_CAP_AMBIENT,
        PR_GET_SPECULATION_CTRL, PR_SVE_SET_VL, PR_SVE_GET_VL, PR_PAC_RESET_KEYS, PR_SET_TAGGED_ADDR_CTRL_,
        PR_GET_TAGGED_ADDR_CTRL_, PR_SET_MDWE_, PR_GET_MDWE_,
    };
    /* clang-format on */
    return argument_one_of(build, 0, options, COUNT(options));
}

/* PRIO_PROCESS of a process other than the agent: groups and users would take the agent along where it has the same
 * uid (without a uid range). The agent's pid alone is denied elsewhere, too, so that a thread can be named by its id.
 */
static cordon_bpf_label priority_rule(struct build *build, uint32_t which)
{
    struct cordon_bpf *bpf = &build->bpf;
    cordon_bpf_label l = cordon_bpf_branch(bpf, BPF_JEQ, AGENT_PID, build->deny, build->allow);
    l = cordon_bpf_load_argument(bpf, 1, l);
    l = cordon_bpf_branch(bpf, BPF_JEQ, which, l, build->deny);
    return cordon_bpf_load_argument(bpf, 0, l);
}

/* No filter with a listener: newer filters are asked before ours, so it could answer for the agent. */
static cordon_bpf_label seccomp_rule(struct build *build)
{
    static const uint32_t other[] = {SECCOMP_SET_MODE_STRICT, SECCOMP_GET_ACTION_AVAIL, SECCOMP_GET_NOTIF_SIZES};
    cordon_bpf_label filter = argument_without(build, 1, SECCOMP_FILTER_FLAG_NEW_LISTENER, build->deny);
    cordon_bpf_label l = cordon_bpf_one_of(&build->bpf, other, COUNT(other), build->allow, build->deny);
    l = cordon_bpf_branch(&build->bpf, BPF_JEQ, SECCOMP_SET_MODE_FILTER, filter, l);
    return cordon_bpf_load_argument(&build->bpf, 0, l);
}

static cordon_bpf_label mknod_rule(struct build *build, unsigned argument)
{
    static const uint32_t harmless[] = {0, S_IFREG, S_IFIFO, S_IFSOCK};
    cordon_bpf_label l = cordon_bpf_one_of(&build->bpf, harmless, COUNT(harmless), build->allow, build->deny);
    l = cordon_bpf_and(&build->bpf, S_IFMT, l);
    return cordon_bpf_load_argument(&build->bpf, argument, l);
}

static void set_process_rules(struct build *build)
{
    static const uint32_t personalities[] = {PER_LINUX, 0xffffffff /* asks */, ADDR_NO_RANDOMIZE, PER_LINUX32};
    static const uint32_t agent[] = {AGENT_PID};
    static const char *const of_others[] = {"prlimit64",      "sched_setaffinity", "sched_setscheduler",
                                            "sched_setparam", "sched_setattr",     NULL};
    const uint32_t unshareable = CLONE_FS | CLONE_FILES | CLONE_SYSVSEM;
    set_target(build, "clone", argument_without(build, 0, NEW_NAMESPACES, build->deny));
    set_target(build, "unshare", argument_without(build, 0, ~unshareable, build->deny));
    set_target(build, "personality", argument_one_of(build, 0, personalities, COUNT(personalities)));
    set_target(build, "prctl", prctl_rule(build));
    set_target(build, "seccomp", seccomp_rule(build));
    set_targets(build, of_others, argument_none_of(build, 0, agent, COUNT(agent), build->deny));
    set_target(build, "setpriority", priority_rule(build, PRIO_PROCESS));
    set_target(build, "ioprio_set", priority_rule(build, 1 /* IOPRIO_WHO_PROCESS */));
}

static void set_file_rules(struct build *build)
{
    /* Input forged into terminals, the console's own calls, and line disciplines (n_gsm and n_hdlc had holes). */
    static const uint32_t terminals[] = {TIOCSTI, TIOCLINUX, TIOCSETD};
    set_target(build, "ioctl", argument_none_of(build, 1, terminals, COUNT(terminals), build->deny));
    set_target(build, "mknod", mknod_rule(build, 1));
    set_target(build, "mknodat", mknod_rule(build, 2));
    cordon_bpf_label sockets = socket_rule(build);
    set_target(build, "socket", sockets);
    set_target(build, "socketpair", sockets);
    /* Huge pages come out of the host's reserve and are in no guest's account. */
    cordon_bpf_label no_memory = answer(build, ENOMEM);
    set_target(build, "mmap", argument_without(build, 3, MAP_HUGETLB, no_memory));
    set_target(build, "memfd_create", argument_without(build, 1, MFD_HUGETLB, no_memory));
    set_target(build, "shmget", argument_without(build, 2, SHM_HUGETLB, no_memory));
}

static void start(struct build *build, uint32_t other, uint32_t denied)
{
    memset(build, 0, sizeof *build);
    build->deny = cordon_bpf_return(&build->bpf, denied);
    build->allow = cordon_bpf_return(&build->bpf, SECCOMP_RET_ALLOW);
    cordon_bpf_label rest = cordon_bpf_return(&build->bpf, other);
    for (size_t i = 0; i < CORDON_BPF_SYSCALLS; i++)
        build->targets[i] = rest;
}

/* Puts the tree and, before it, the check of the architecture: another one's numbers mean other calls. */
static void finish(struct build *build, cordon_bpf_label beyond)
{
    struct cordon_bpf *bpf = &build->bpf;
    cordon_bpf_label l = cordon_bpf_tree(bpf, build->targets, beyond);
    l = cordon_bpf_load(bpf, offsetof(struct seccomp_data, nr), l);
    l = cordon_bpf_branch(bpf, BPF_JEQ, NATIVE_ARCH, l, cordon_bpf_return(bpf, SECCOMP_RET_KILL_PROCESS));
    (void)cordon_bpf_load(bpf, offsetof(struct seccomp_data, arch), l);
}

static void build_code(struct build *build)
{
    start(build, SECCOMP_RET_USER_NOTIF, SECCOMP_RET_USER_NOTIF);
    set_targets(build, cordon_filter_allowed, build->allow);
    set_targets(build, cordon_filter_quiet_enosys, answer(build, ENOSYS));
    set_targets(build, cordon_filter_quiet_eperm, answer(build, EPERM));
    set_targets(build, cordon_filter_quiet_nothing, answer(build, 0));
    set_process_rules(build);
    set_file_rules(build);
    finish(build, build->deny); /* x32 numbers are beyond, too */
}

int cordon_filter_code(struct cordon_error *err)
{
    struct build build;
    build_code(&build);
    if (build.bpf.failed)
        return cordon_fail_errno(err, -E2BIG, "assemble the system call filter of code");
    size_t size = build.bpf.used * sizeof(struct sock_filter);
    int fd = cordon_sealed_memfd("cordon-filter", cordon_bpf_program(&build.bpf), size);
    if (fd < 0)
        return cordon_fail_errno(err, fd, "make a memfd for the system call filter (%zu bytes)", size);
    return fd;
}

static void build_gateway(struct build *build)
{
    static const uint32_t terminals[] = {TIOCSTI, TIOCLINUX, TIOCSETD};
    static const uint32_t families[] = {AF_UNIX, AF_INET, AF_INET6, AF_NETLINK};
    start(build, SECCOMP_RET_ALLOW, SECCOMP_RET_KILL_PROCESS);
    for (int number = 0; number < CORDON_BPF_SYSCALLS; number++) {
        if (cordon_filter_denied_errno(number) == ENOSYS) /* newer than this version: nobody judged it yet */
            build->targets[number] = answer(build, ENOSYS);
    }
    for (size_t i = 0; cordon_filter_denied[i]; i++)
        set_targets(build, cordon_filter_denied[i], build->deny);
    set_targets(build, cordon_filter_exec, build->deny);
    set_targets(build, cordon_filter_quiet_enosys, answer(build, ENOSYS)); /* clone3: its flags can't be seen */
    set_target(build, "clone", argument_without(build, 0, NEW_NAMESPACES, build->deny));
    set_target(build, "unshare", argument_without(build, 0, NEW_NAMESPACES | CLONE_NEWTIME, build->deny));
    set_target(build, "ioctl", argument_none_of(build, 1, terminals, COUNT(terminals), build->deny));
    cordon_bpf_label l =
        cordon_bpf_one_of(&build->bpf, families, COUNT(families), build->allow, answer(build, EAFNOSUPPORT));
    set_target(build, "socket", cordon_bpf_load_argument(&build->bpf, 0, l));
    /* A socket that lingers, sent to the warden, would stop it for as long as closing it takes. */
    l = cordon_bpf_branch(&build->bpf, BPF_JEQ, SO_LINGER, answer(build, EPERM), build->allow);
    l = cordon_bpf_load_argument(&build->bpf, 2, l);
    l = cordon_bpf_branch(&build->bpf, BPF_JEQ, SOL_SOCKET, l, build->allow);
    set_target(build, "setsockopt", cordon_bpf_load_argument(&build->bpf, 1, l));
    finish(build, answer(build, ENOSYS)); /* x32 numbers are beyond, too */
}

/* Memory that can be executed is never asked for. */
static void build_egress(struct build *build)
{
    static const uint32_t families[] = {AF_INET, AF_INET6};
    start(build, SECCOMP_RET_ERRNO | EPERM, SECCOMP_RET_KILL_PROCESS);
    set_targets(build, cordon_filter_egress_allowed, build->allow);
    set_targets(build, cordon_filter_exec, build->deny);
    cordon_bpf_label no = answer(build, EPERM);
    set_target(build, "mmap", argument_without(build, 2, PROT_EXEC, no));
    set_target(build, "mprotect", argument_without(build, 2, PROT_EXEC, no));
    cordon_bpf_label l =
        cordon_bpf_one_of(&build->bpf, families, COUNT(families), build->allow, answer(build, EAFNOSUPPORT));
    set_target(build, "socket", cordon_bpf_load_argument(&build->bpf, 0, l));
    finish(build, no);
}

/* What a hypervisor never needs. It is to be executed still; and it makes threads, but no process of another kind. */
static void build_qemu(struct build *build)
{
    static const uint32_t unix_only[] = {AF_UNIX};
    start(build, SECCOMP_RET_ALLOW, SECCOMP_RET_ERRNO | EPERM);
    for (int number = 0; number < CORDON_BPF_SYSCALLS; number++) {
        if (cordon_filter_denied_errno(number) == ENOSYS) /* newer than this version: nobody judged it yet */
            build->targets[number] = answer(build, ENOSYS);
    }
    for (size_t i = 0; cordon_filter_denied[i]; i++)
        set_targets(build, cordon_filter_denied[i], build->deny);
    set_targets(build, cordon_filter_quiet_enosys, answer(build, ENOSYS)); /* clone3: its flags can't be seen */
    set_target(build, "clone", argument_without(build, 0, NEW_NAMESPACES, build->deny));
    set_target(build, "unshare", argument_without(build, 0, NEW_NAMESPACES | CLONE_NEWTIME, build->deny));
    cordon_bpf_label l =
        cordon_bpf_one_of(&build->bpf, unix_only, COUNT(unix_only), build->allow, answer(build, EAFNOSUPPORT));
    set_target(build, "socket", cordon_bpf_load_argument(&build->bpf, 0, l));
    finish(build, answer(build, ENOSYS)); /* x32 numbers are beyond, too */
}

static void build_vmm(struct build *build)
{
    start(build, SECCOMP_RET_KILL_PROCESS, SECCOMP_RET_KILL_PROCESS);
    set_targets(build, cordon_filter_vmm_allowed, build->allow);
    set_target(build, "mmap", argument_without(build, 2, PROT_EXEC, build->deny));
    set_target(build, "mprotect", argument_without(build, 2, PROT_EXEC, build->deny));
    finish(build, build->deny);
}

/* What a role installs for itself. */
static int install(struct build *build, const char *whose, struct cordon_error *err)
{
    if (build->bpf.failed)
        return cordon_fail_errno(err, -E2BIG, "assemble the %s's system call filter", whose);
    struct sock_fprog program = {
        .len = (unsigned short)build->bpf.used,
        .filter = (struct sock_filter *)(uintptr_t)cordon_bpf_program(&build->bpf),
    };
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0)
        return cordon_fail_errno(err, -errno, "set no_new_privs for the %s", whose);
    /* TSYNC: threads that a library may have started already are held, too. */
    if (syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_TSYNC, &program) != 0)
        return cordon_fail_errno(err, -errno, "install the %s's system call filter", whose);
    return 0;
}

int cordon_filter_gateway(struct cordon_error *err)
{
    struct build build;
    build_gateway(&build);
    return install(&build, "gateway", err);
}

int cordon_filter_egress(struct cordon_error *err)
{
    struct build build;
    build_egress(&build);
    return install(&build, "egress process", err);
}

int cordon_filter_qemu(struct cordon_error *err)
{
    struct build build;
    build_qemu(&build);
    return install(&build, "QEMU", err);
}

int cordon_filter_vmm(struct cordon_error *err)
{
    struct build build;
    build_vmm(&build);
    return install(&build, "vmm", err);
}
