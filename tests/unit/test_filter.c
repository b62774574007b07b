/* SPDX-License-Identifier: Apache-2.0 */
/* isolate/filter: the lists, the programs made from them (run here by a small interpreter), and the kernel's view. */
#include <errno.h>
#include <fcntl.h>
#include <linux/audit.h>
#include <linux/sched.h>
#include <linux/seccomp.h>
#include <netinet/in.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <pthread.h>
#include <sched.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/shm.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/fd.h"
#include "guest_child.h"
#include "isolate/filter.h"
#include "isolate/filter_bpf.h"
#include "isolate/filter_lists.h"

#if defined(__x86_64__)
#define NATIVE AUDIT_ARCH_X86_64
#define FOREIGN AUDIT_ARCH_I386
#else
#define NATIVE AUDIT_ARCH_AARCH64
#define FOREIGN AUDIT_ARCH_ARM
#endif
#define SIM_BROKEN 0xdeadbeefu

static uint32_t word_at(const struct seccomp_data *data, uint32_t offset)
{
    uint32_t word = 0;
    if (offset + sizeof word <= sizeof *data)
        memcpy(&word, (const char *)data + offset, sizeof word);
    return word;
}

static bool holds(const struct sock_filter *test, uint32_t accumulator)
{
    switch (BPF_OP(test->code)) {
    case BPF_JEQ:
        return accumulator == test->k;
    case BPF_JGE:
        return accumulator >= test->k;
    default:
        return accumulator & test->k;
    }
}

/* The instructions that the assembler makes, as the kernel runs them. */
static uint32_t simulate(const struct sock_filter *program, size_t count, const struct seccomp_data *data)
{
    uint32_t accumulator = 0;
    for (size_t at = 0; at < count; at++) {
        const struct sock_filter *instruction = &program[at];
        switch (BPF_CLASS(instruction->code)) {
        case BPF_RET:
            return instruction->k;
        case BPF_LD:
            accumulator = word_at(data, instruction->k);
            break;
        case BPF_ALU:
            accumulator &= instruction->k;
            break;
        case BPF_JMP:
            if (BPF_OP(instruction->code) == BPF_JA)
                at += instruction->k;
            else
                at += holds(instruction, accumulator) ? instruction->jt : instruction->jf;
            break;
        default:
            return SIM_BROKEN;
        }
    }
    return SIM_BROKEN; /* ran off the end */
}

static struct sock_filter code_filter[CORDON_BPF_MAX];
static size_t code_filter_count;

static int load_code_filter(void **state)
{
    (void)state;
    struct cordon_error err;
    int fd = cordon_filter_code(&err);
    if (fd < 0)
        return -1;
    off_t size = lseek(fd, 0, SEEK_END);
    ssize_t n = pread(fd, code_filter, sizeof code_filter, 0);
    close(fd);
    code_filter_count = (size_t)n / sizeof code_filter[0];
    return n == size ? 0 : -1;
}

static uint32_t verdict(int number, uint64_t a0, uint64_t a1, uint64_t a2, uint64_t a3)
{
    struct seccomp_data data = {.nr = number, .arch = NATIVE, .args = {a0, a1, a2, a3}};
    return simulate(code_filter, code_filter_count, &data);
}

static uint32_t verdict_of(const char *name)
{
    return verdict(cordon_filter_syscall_number(name), 0, 0, 0, 0);
}

#define ALLOW SECCOMP_RET_ALLOW
#define NOTIFY SECCOMP_RET_USER_NOTIF
#define ERRNO(error) (SECCOMP_RET_ERRNO | (error))

static unsigned count_in(const char *const *list, const char *name)
{
    unsigned count = 0;
    for (; *list; list++)
        count += strcmp(*list, name) == 0;
    return count;
}

static unsigned count_in_all(const char *name)
{
    unsigned count = count_in(cordon_filter_allowed, name) + count_in(cordon_filter_checked, name) +
                     count_in(cordon_filter_quiet_enosys, name) + count_in(cordon_filter_quiet_eperm, name) +
                     count_in(cordon_filter_quiet_nothing, name);
    for (size_t i = 0; cordon_filter_denied[i]; i++)
        count += count_in(cordon_filter_denied[i], name);
    return count;
}

static void every_known_name_is_in_exactly_one_list(void **state)
{
    (void)state;
    static const char *const known[] = {
#define X(name, number) #name,
#include "isolate/syscalls.inc"
#undef X
    };
    for (size_t i = 0; i < sizeof known / sizeof known[0]; i++) {
        if (count_in_all(known[i]) != 1)
            fail_msg("%s is in %u lists", known[i], count_in_all(known[i]));
        assert_true(i == 0 || strcmp(known[i - 1], known[i]) < 0);
    }
}

static void check_names(const char *const *list, uint32_t expected)
{
    for (; *list; list++) {
        int number = cordon_filter_syscall_number(*list);
        assert_int_not_equal(number, CORDON_FILTER_NO_SUCH_NAME);
        if (number >= 0 && verdict_of(*list) != expected)
            fail_msg("%s: %#x instead of %#x", *list, verdict_of(*list), expected);
    }
}

static void every_listed_name_is_known_and_has_its_verdict(void **state)
{
    (void)state;
    check_names(cordon_filter_allowed, ALLOW);
    check_names(cordon_filter_exec, ALLOW);
    check_names(cordon_filter_quiet_enosys, ERRNO(ENOSYS));
    check_names(cordon_filter_quiet_eperm, ERRNO(EPERM));
    check_names(cordon_filter_quiet_nothing, ERRNO(0));
    for (size_t i = 0; cordon_filter_denied[i]; i++)
        check_names(cordon_filter_denied[i], NOTIFY);
}

static void unknown_numbers_are_notified_and_other_architectures_killed(void **state)
{
    (void)state;
    for (int number = 470; number < 1100; number++)
        assert_int_equal(verdict(number, 0, 0, 0, 0), NOTIFY);
    assert_int_equal(verdict(INT32_MAX, 0, 0, 0, 0), NOTIFY);
    assert_int_equal(verdict(-1, 0, 0, 0, 0), NOTIFY);
    assert_int_equal(verdict(0x40000000 + SYS_read, 0, 0, 0, 0), NOTIFY); /* x32 */
    struct seccomp_data data = {.nr = SYS_read, .arch = FOREIGN};
    assert_int_equal(simulate(code_filter, code_filter_count, &data), SECCOMP_RET_KILL_PROCESS);
}

static void new_namespaces_are_denied_in_clone_and_unshare(void **state)
{
    (void)state;
    static const uint64_t flags[] = {CLONE_NEWNS,   CLONE_NEWCGROUP, CLONE_NEWUTS, CLONE_NEWIPC,
                                     CLONE_NEWUSER, CLONE_NEWPID,    CLONE_NEWNET};
    for (size_t i = 0; i < sizeof flags / sizeof flags[0]; i++) {
        assert_int_equal(verdict(SYS_clone, flags[i] | SIGCHLD, 0, 0, 0), NOTIFY);
        assert_int_equal(verdict(SYS_unshare, flags[i], 0, 0, 0), NOTIFY);
        assert_int_equal(verdict(SYS_unshare, flags[i] | CLONE_FILES, 0, 0, 0), NOTIFY);
    }
    assert_int_equal(verdict(SYS_unshare, CLONE_NEWTIME, 0, 0, 0), NOTIFY);
    assert_int_equal(verdict(SYS_unshare, CLONE_FILES | CLONE_FS, 0, 0, 0), ALLOW);
    assert_int_equal(verdict(SYS_clone, SIGCHLD, 0, 0, 0), ALLOW);
    assert_int_equal(verdict(SYS_clone, CLONE_VM | CLONE_VFORK | SIGCHLD, 0, 0, 0), ALLOW);
    assert_int_equal(
        verdict(SYS_clone, CLONE_VM | CLONE_FS | CLONE_FILES | CLONE_SIGHAND | CLONE_THREAD | CLONE_SETTLS, 0, 0, 0),
        ALLOW);
}

static void high_halves_of_arguments_hide_nothing(void **state)
{
    (void)state;
    const uint64_t high = UINT64_C(0xabcdef01) << 32;
    assert_int_equal(verdict(SYS_ioctl, 0, high | TIOCSTI, 0, 0), NOTIFY);
    assert_int_equal(verdict(SYS_clone, high | CLONE_NEWUSER, 0, 0, 0), NOTIFY);
    assert_int_equal(verdict(SYS_prlimit64, high | 1, 0, 0, 0), NOTIFY);
    assert_int_equal(verdict(SYS_socket, high | AF_VSOCK, SOCK_STREAM, 0, 0), ERRNO(EAFNOSUPPORT));
    assert_int_equal(verdict(SYS_prctl, high | PR_SET_MM, 0, 0, 0), NOTIFY);
    assert_int_equal(
        verdict(SYS_seccomp, high | SECCOMP_SET_MODE_FILTER, high | SECCOMP_FILTER_FLAG_NEW_LISTENER, 0, 0), NOTIFY);
}

static void terminals_and_devices_stay_closed(void **state)
{
    (void)state;
    assert_int_equal(verdict(SYS_ioctl, 0, TIOCSTI, 0, 0), NOTIFY);
    assert_int_equal(verdict(SYS_ioctl, 0, TIOCLINUX, 0, 0), NOTIFY);
    assert_int_equal(verdict(SYS_ioctl, 0, TIOCSETD, 0, 0), NOTIFY);
    assert_int_equal(verdict(SYS_ioctl, 0, TCGETS, 0, 0), ALLOW);
    assert_int_equal(verdict(SYS_ioctl, 0, FIONREAD, 0, 0), ALLOW);
    assert_int_equal(verdict(SYS_mknodat, 0, 0, S_IFCHR | 0600, 0), NOTIFY);
    assert_int_equal(verdict(SYS_mknodat, 0, 0, S_IFBLK | 0600, 0), NOTIFY);
    assert_int_equal(verdict(SYS_mknodat, 0, 0, S_IFIFO | 0600, 0), ALLOW);
    assert_int_equal(verdict(SYS_mknodat, 0, 0, 0600, 0), ALLOW);
}

static void sockets_are_those_of_programs(void **state)
{
    (void)state;
    const int flags = SOCK_CLOEXEC | SOCK_NONBLOCK;
    assert_int_equal(verdict(SYS_socket, AF_UNIX, SOCK_STREAM | flags, 0, 0), ALLOW);
    assert_int_equal(verdict(SYS_socketpair, AF_UNIX, SOCK_SEQPACKET, 0, 0), ALLOW);
    assert_int_equal(verdict(SYS_socket, AF_INET, SOCK_STREAM | flags, 0, 0), ALLOW);
    assert_int_equal(verdict(SYS_socket, AF_INET6, SOCK_DGRAM | flags, IPPROTO_UDP, 0), ALLOW);
    assert_int_equal(verdict(SYS_socket, AF_NETLINK, SOCK_RAW | flags, 0, 0), ALLOW);
    assert_int_equal(verdict(SYS_socket, AF_NETLINK, SOCK_RAW, 12 /* NETFILTER */, 0), ERRNO(EPROTONOSUPPORT));
    assert_int_equal(verdict(SYS_socket, AF_INET, SOCK_SEQPACKET, 0, 0), ERRNO(EPROTONOSUPPORT)); /* SCTP */
    assert_int_equal(verdict(SYS_socket, AF_INET, SOCK_STREAM, IPPROTO_SCTP, 0), ERRNO(EPROTONOSUPPORT));
    assert_int_equal(verdict(SYS_socket, AF_INET, SOCK_STREAM, 262 /* MPTCP */, 0), ERRNO(EPROTONOSUPPORT));
    static const int families[] = {AF_PACKET, AF_VSOCK, AF_ALG, AF_BLUETOOTH, AF_CAN,
                                   AF_KEY,    AF_TIPC,  AF_XDP, AF_RDS,       60};
    for (size_t i = 0; i < sizeof families / sizeof families[0]; i++)
        assert_int_equal(verdict(SYS_socket, (uint64_t)families[i], SOCK_RAW, 0, 0), ERRNO(EAFNOSUPPORT));
}

static void the_agent_can_not_be_steered(void **state)
{
    (void)state;
    static const int calls[] = {SYS_prlimit64, SYS_sched_setaffinity, SYS_sched_setscheduler, SYS_sched_setparam,
                                SYS_sched_setattr};
    for (size_t i = 0; i < sizeof calls / sizeof calls[0]; i++) {
        assert_int_equal(verdict(calls[i], 1, 0, 0, 0), NOTIFY);
        assert_int_equal(verdict(calls[i], 0, 0, 0, 0), ALLOW);
        assert_int_equal(verdict(calls[i], 77, 0, 0, 0), ALLOW);
    }
    assert_int_equal(verdict(SYS_setpriority, PRIO_PROCESS, 0, 5, 0), ALLOW);
    assert_int_equal(verdict(SYS_setpriority, PRIO_PROCESS, 1, 5, 0), NOTIFY);
    assert_int_equal(verdict(SYS_setpriority, PRIO_USER, 0, 5, 0), NOTIFY);
    assert_int_equal(verdict(SYS_setpriority, PRIO_PGRP, 1, 5, 0), NOTIFY);
    assert_int_equal(verdict(SYS_ioprio_set, 1, 0, 0, 0), ALLOW);
    assert_int_equal(verdict(SYS_ioprio_set, 3, 0, 0, 0), NOTIFY);
}

static void own_restrictions_are_allowed_but_no_second_listener(void **state)
{
    (void)state;
    assert_int_equal(verdict(SYS_seccomp, SECCOMP_SET_MODE_FILTER, 0, 0, 0), ALLOW);
    assert_int_equal(verdict(SYS_seccomp, SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_TSYNC, 0, 0), ALLOW);
    assert_int_equal(verdict(SYS_seccomp, SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_NEW_LISTENER, 0, 0), NOTIFY);
    assert_int_equal(verdict(SYS_seccomp, 99, 0, 0, 0), NOTIFY);
    assert_int_equal(verdict(SYS_prctl, PR_SET_NAME, 0, 0, 0), ALLOW);
    assert_int_equal(verdict(SYS_prctl, PR_SET_NO_NEW_PRIVS, 1, 0, 0), ALLOW);
    assert_int_equal(verdict(SYS_prctl, PR_SET_MM, 0, 0, 0), NOTIFY);
    assert_int_equal(verdict(SYS_prctl, 59 /* SYSCALL_USER_DISPATCH */, 0, 0, 0), NOTIFY);
    assert_int_equal(verdict(SYS_personality, 0xffffffff, 0, 0, 0), ALLOW);
    assert_int_equal(verdict(SYS_personality, 0x0400000 /* READ_IMPLIES_EXEC */, 0, 0, 0), NOTIFY);
}

static void huge_pages_of_the_host_are_refused(void **state)
{
    (void)state;
    assert_int_equal(verdict(SYS_mmap, 0, 4096, 3, MAP_PRIVATE | MAP_ANONYMOUS), ALLOW);
    assert_int_equal(verdict(SYS_mmap, 0, 4096, 3, MAP_PRIVATE | MAP_ANONYMOUS | MAP_HUGETLB), ERRNO(ENOMEM));
    assert_int_equal(verdict(SYS_memfd_create, 0, MFD_CLOEXEC, 0, 0), ALLOW);
    assert_int_equal(verdict(SYS_memfd_create, 0, MFD_HUGETLB, 0, 0), ERRNO(ENOMEM));
    assert_int_equal(verdict(SYS_shmget, 0, 4096, SHM_HUGETLB, 0), ERRNO(ENOMEM));
}

static void the_filter_stays_short(void **state)
{
    (void)state;
    print_message("# %zu instructions\n", code_filter_count);
    assert_true(code_filter_count < 320); /* each guest pays for its length */
}

/* Every return is different and far from its test, so that conditional jumps don't reach. */
static void far_jumps_arrive(void **state)
{
    (void)state;
    static struct cordon_bpf bpf;
    static cordon_bpf_label targets[CORDON_BPF_SYSCALLS];
    memset(&bpf, 0, sizeof bpf);
    for (uint32_t i = 0; i < 300; i++)
        targets[i] = cordon_bpf_return(&bpf, i);
    cordon_bpf_label rest = cordon_bpf_return(&bpf, 7777);
    for (uint32_t i = 300; i < CORDON_BPF_SYSCALLS; i++)
        targets[i] = rest;
    cordon_bpf_label start = cordon_bpf_load(&bpf, 0, cordon_bpf_tree(&bpf, targets, cordon_bpf_return(&bpf, 8888)));
    assert_false(bpf.failed);
    assert_int_equal(start, bpf.used - 1);
    for (uint32_t i = 0; i < 600; i++) {
        struct seccomp_data data = {.nr = (int)i};
        uint32_t expected = i < 300 ? i : i < CORDON_BPF_SYSCALLS ? 7777 : 8888;
        assert_int_equal(simulate(cordon_bpf_program(&bpf), bpf.used, &data), expected);
    }
    for (uint32_t i = 0; i < CORDON_BPF_MAX; i++)
        (void)cordon_bpf_return(&bpf, 100000 + i);
    assert_true(bpf.failed);
}

static void names_and_answers(void **state)
{
    (void)state;
    char text[32];
    assert_string_equal(cordon_filter_syscall_name(SYS_mount, text), "mount");
    assert_string_equal(cordon_filter_syscall_name(SYS_openat, text), "openat");
    assert_string_equal(cordon_filter_syscall_name(462, text), "mseal");
    assert_string_equal(cordon_filter_syscall_name(5000, text), "syscall_5000");
    assert_string_equal(cordon_filter_syscall_name(-1, text), "syscall_-1");
    assert_string_equal(cordon_filter_syscall_name(INT32_MIN, text), "syscall_-2147483648");
    assert_int_equal(cordon_filter_syscall_number("no_such_call"), CORDON_FILTER_NO_SUCH_NAME);
    assert_int_equal(cordon_filter_denied_errno(SYS_mount), EPERM);
    assert_int_equal(cordon_filter_denied_errno(5000), ENOSYS);
    assert_int_equal(cordon_filter_denied_errno(-1), ENOSYS);
}

static void loading_checks_what_it_gets(void **state)
{
    (void)state;
    int listener = 5;
    assert_int_equal(cordon_filter_load(-1, &listener), 0);
    assert_int_equal(listener, -1);
    int fd = memfd_create("empty", MFD_CLOEXEC);
    assert_int_equal(cordon_filter_load(fd, &listener), 0);
    assert_int_equal(write(fd, "12345", 5), 5);
    assert_int_equal(cordon_filter_load(fd, &listener), -EINVAL);
    assert_int_equal(ftruncate(fd, 8 * (BPF_MAXINSNS + 1)), 0);
    assert_int_equal(cordon_filter_load(fd, &listener), -EINVAL);
    close(fd);
    assert_int_equal(cordon_filter_load(fd, &listener), -EBADF);
}

/* In the guest: each answer as a bit, so that one exit status tells which one was wrong. */
static int denied_calls(void *arg)
{
    (void)arg;
    int wrong = 0;
    wrong |= !(syscall(SYS_mount, "a", "/", "tmpfs", 0, NULL) == -1 && errno == EPERM) << 0;
    wrong |= !(syscall(5000) == -1 && errno == ENOSYS) << 1;
    wrong |= !(syscall(SYS_clone3, NULL, 0) == -1 && errno == ENOSYS) << 2;
    wrong |= !(socket(AF_VSOCK, SOCK_STREAM, 0) == -1 && errno == EAFNOSUPPORT) << 3;
    wrong |= !(syscall(SYS_ioctl, 0, TIOCSTI | (UINT64_C(1) << 32), "x") == -1 && errno == EPERM) << 4;
    wrong |= !(unshare(CLONE_NEWUSER) == -1 && errno == EPERM) << 5;
    wrong |= !(syscall(SYS_sync) == 0) << 6;
    return wrong;
}

static void the_kernel_notifies_what_is_denied(void **state)
{
    (void)state;
    if (!guest_child_possible())
        skip();
    int fd = cordon_filter_code(NULL);
    struct cordon_code_profile profile = {.filter_fd = fd, .workdir = "/"};
    struct guest_child_result result;
    guest_child_code(profile, denied_calls, NULL, NULL, &result);
    assert_int_equal(result.status, 0);
    assert_string_equal(result.names, " mount syscall_5000 ioctl unshare");
    close(fd);
}

#if defined(__x86_64__)
static int call_32_bit(void *arg)
{
    (void)arg;
    int result;
    __asm__ volatile("int $0x80" : "=a"(result) : "a"(20 /* getpid of i386 */) : "memory", "r8", "r9", "r10", "r11");
    return 0;
}

static void the_32_bit_way_in_kills(void **state)
{
    (void)state;
    if (!guest_child_possible())
        skip();
    int fd = cordon_filter_code(NULL);
    struct cordon_code_profile profile = {.filter_fd = fd, .workdir = "/"};
    struct guest_child_result result;
    guest_child_code(profile, call_32_bit, NULL, NULL, &result);
    assert_true(WIFSIGNALED(result.status));
    assert_int_equal(WTERMSIG(result.status), SIGSYS);
    close(fd);
}
#endif

static int under_gateway_filter(int (*part)(void))
{
    int status = -1;
    fflush(NULL);
    pid_t pid = fork();
    if (pid == 0)
        _exit(cordon_filter_gateway(NULL) < 0 ? 99 : part());
    waitpid(pid, &status, 0);
    return status;
}

static void *in_thread(void *arg)
{
    return arg;
}

static int gateway_life(void)
{
    pthread_t thread;
    int mark;
    void *result = NULL;
    if (pthread_create(&thread, NULL, in_thread, &mark) != 0 || pthread_join(thread, &result) != 0 || result != &mark)
        return 1;
    int pair[2], file = memfd_create("x", MFD_CLOEXEC);
    if (socketpair(AF_UNIX, SOCK_SEQPACKET, 0, pair) < 0 || cordon_send_fds(pair[0], "x", 1, &file, 1, 0) != 1)
        return 2;
    if (socket(AF_INET6, SOCK_STREAM, 0) < 0 && errno != EAFNOSUPPORT)
        return 3;
    if (socket(AF_PACKET, SOCK_RAW, 0) >= 0 || errno != EAFNOSUPPORT)
        return 4;
    struct sched_param param = {0};
    if (sched_setscheduler(0, SCHED_OTHER, &param) < 0)
        return 5;
    const struct linger linger = {.l_onoff = 1, .l_linger = 3600};
    const int on = 1;
    int sock = socket(AF_INET, SOCK_STREAM, 0);
    if (setsockopt(sock, SOL_SOCKET, SO_LINGER, &linger, sizeof linger) == 0 || errno != EPERM)
        return 7;
    if (setsockopt(sock, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on) < 0 ||
        setsockopt(sock, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on) < 0)
        return 8;
    return syscall(5000) == -1 && errno == ENOSYS ? 0 : 6;
}

static int gateway_executes(void)
{
    static char *const argv[] = {NULL};
    execve("/bin/true", argv, argv);
    return 0;
}

static int gateway_unshares(void)
{
    return unshare(CLONE_NEWUSER) & 0;
}

static int gateway_traces(void)
{
    return (int)syscall(SYS_ptrace, 0, 0, 0, 0) & 0;
}

static int gateway_clones(void)
{
    return (int)syscall(SYS_clone, CLONE_NEWNET | SIGCHLD, 0, 0, 0, 0) & 0;
}

static void the_gateway_can_work_and_nothing_else(void **state)
{
    (void)state;
    static int (*const attacks[])(void) = {gateway_executes, gateway_unshares, gateway_traces, gateway_clones};
    assert_int_equal(under_gateway_filter(gateway_life), 0);
    for (size_t i = 0; i < sizeof attacks / sizeof attacks[0]; i++) {
        int status = under_gateway_filter(attacks[i]);
        if (!WIFSIGNALED(status) || WTERMSIG(status) != SIGSYS)
            fail_msg("attack %zu: status %#x", i, status);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_known_name_is_in_exactly_one_list),
        cmocka_unit_test(every_listed_name_is_known_and_has_its_verdict),
        cmocka_unit_test(unknown_numbers_are_notified_and_other_architectures_killed),
        cmocka_unit_test(new_namespaces_are_denied_in_clone_and_unshare),
        cmocka_unit_test(high_halves_of_arguments_hide_nothing),
        cmocka_unit_test(terminals_and_devices_stay_closed),
        cmocka_unit_test(sockets_are_those_of_programs),
        cmocka_unit_test(the_agent_can_not_be_steered),
        cmocka_unit_test(own_restrictions_are_allowed_but_no_second_listener),
        cmocka_unit_test(huge_pages_of_the_host_are_refused),
        cmocka_unit_test(the_filter_stays_short),
        cmocka_unit_test(far_jumps_arrive),
        cmocka_unit_test(names_and_answers),
        cmocka_unit_test(loading_checks_what_it_gets),
        cmocka_unit_test(the_kernel_notifies_what_is_denied),
#if defined(__x86_64__)
        cmocka_unit_test(the_32_bit_way_in_kills),
#endif
        cmocka_unit_test(the_gateway_can_work_and_nothing_else),
    };
    return cmocka_run_group_tests(tests, load_code_filter, NULL);
}
