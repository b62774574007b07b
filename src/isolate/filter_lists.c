/* SPDX-License-Identifier: Apache-2.0 */
#include "isolate/filter_lists.h"

#include <stddef.h>

/* Laid out by hand: one line is one thought. */
/* clang-format off */
const char *const cordon_filter_allowed[] = {
    /* reading, writing, descriptors */
    "read", "write", "readv", "writev", "pread64", "pwrite64", "preadv", "pwritev", "preadv2", "pwritev2", "lseek",
    "llseek", "close", "close_range", "dup", "dup2", "dup3", "pipe", "pipe2", "fcntl", "fcntl64", "flock", "fsync",
    "fdatasync", "sync_file_range", "sync_file_range2", "fallocate", "fadvise64", "fadvise64_64", "readahead",
    "sendfile", "sendfile64", "splice", "tee", "vmsplice", "copy_file_range", "ftruncate", "ftruncate64",
    /* names and their attributes */
    "open", "openat", "openat2", "creat", "stat", "stat64", "lstat", "lstat64", "fstat", "fstat64", "fstatat64",
    "newfstatat", "statx", "statfs", "statfs64", "fstatfs", "fstatfs64", "access", "faccessat", "faccessat2",
    "readlink", "readlinkat", "getdents", "getdents64", "getcwd", "chdir", "fchdir", "mkdir", "mkdirat", "rmdir",
    "unlink", "unlinkat", "rename", "renameat", "renameat2", "link", "linkat", "symlink", "symlinkat", "truncate",
    "truncate64", "umask", "utime", "utimes", "utimensat", "utimensat_time64", "futimesat",
    /* setuid bits mean nothing here: the mounts are nosuid, and no_new_privs is set */
    "chmod", "fchmod", "fchmodat", "fchmodat2", "chown", "fchown", "lchown", "fchownat",
    "getxattr", "lgetxattr", "fgetxattr", "getxattrat", "setxattr", "lsetxattr", "fsetxattr", "setxattrat", "listxattr",
    "llistxattr", "flistxattr", "listxattrat", "removexattr", "lremovexattr", "fremovexattr", "removexattrat",
    /* waiting */
    "poll", "ppoll", "ppoll_time64", "select", "pselect6", "pselect6_time64", "epoll_create", "epoll_create1",
    "epoll_ctl", "epoll_wait", "epoll_pwait", "epoll_pwait2", "eventfd", "eventfd2", "signalfd", "signalfd4",
    "timerfd_create", "timerfd_settime", "timerfd_settime64", "timerfd_gettime", "timerfd_gettime64", "inotify_init",
    "inotify_init1", "inotify_add_watch", "inotify_rm_watch",
    /* memory */
    "brk", "munmap", "mremap", "mprotect", "madvise", "msync", "mincore", "mlock", "mlock2", "mlockall", "munlock",
    "munlockall", "mseal", "map_shadow_stack", "membarrier", "pkey_alloc", "pkey_free", "pkey_mprotect",
    "get_mempolicy", "set_mempolicy", "set_mempolicy_home_node", "mbind",
    /* processes and threads */
    "fork", "vfork", "exit", "exit_group", "wait4", "waitid", "set_tid_address", "set_robust_list", "get_robust_list",
    "futex", "futex_time64", "futex_waitv", "futex_wake", "futex_wait", "futex_requeue", "rseq", "arch_prctl", "getpid",
    "getppid", "gettid", "getpgid", "getpgrp", "setpgid", "getsid", "setsid", "getpriority", "ioprio_get", "getcpu",
    "sched_yield", "sched_getaffinity", "sched_getscheduler", "sched_getparam", "sched_getattr",
    "sched_get_priority_max", "sched_get_priority_min", "sched_rr_get_interval", "sched_rr_get_interval_time64",
    "getrlimit", "setrlimit", "getrusage", "times", "sysinfo", "uname", "pidfd_open",
    /* ids: without capabilities they change nothing, and programs expect the kernel's own answer */
    "getuid", "geteuid", "getgid", "getegid", "getresuid", "getresgid", "getgroups", "setuid", "setgid", "setreuid",
    "setregid", "setresuid", "setresgid", "setgroups", "setfsuid", "setfsgid", "capget", "capset",
    /* signals: the pid namespace is the guest's own */
    "kill", "tkill", "tgkill", "rt_sigqueueinfo", "rt_tgsigqueueinfo", "pidfd_send_signal", "rt_sigaction",
    "rt_sigprocmask", "rt_sigpending", "rt_sigsuspend", "rt_sigtimedwait", "rt_sigtimedwait_time64", "rt_sigreturn",
    "sigaltstack", "pause", "restart_syscall",
    /* time */
    "time", "gettimeofday", "clock_gettime", "clock_gettime64", "clock_getres", "clock_getres_time64",
    "clock_nanosleep", "clock_nanosleep_time64", "nanosleep", "alarm", "getitimer", "setitimer", "timer_create",
    "timer_delete", "timer_settime", "timer_settime64", "timer_gettime", "timer_gettime64", "timer_getoverrun",
    /* sockets */
    "bind", "listen", "accept", "accept4", "connect", "getsockname", "getpeername", "getsockopt", "setsockopt",
    "sendto", "sendmsg", "sendmmsg", "recvfrom", "recvmsg", "recvmmsg", "recvmmsg_time64", "shutdown",
    /* System V and POSIX objects: the ipc namespace is the guest's own */
    "shmat", "shmdt", "shmctl", "semget", "semop", "semtimedop", "semtimedop_time64", "semctl", "msgget", "msgsnd",
    "msgrcv", "msgctl", "mq_open", "mq_unlink", "mq_timedsend", "mq_timedsend_time64", "mq_timedreceive",
    "mq_timedreceive_time64", "mq_notify", "mq_getsetattr",
    /* restricting itself further; randomness */
    "landlock_create_ruleset", "landlock_add_rule", "landlock_restrict_self", "getrandom",
    "execve", "execveat", NULL,
};

/* No file is opened, no program and no process started: a resolver, sockets, pipes, memory and time. */
const char *const cordon_filter_egress_allowed[] = {
    "read", "write", "readv", "writev", "close", "fcntl", "fstat", "newfstatat", "pipe2", "splice", "connect", "bind",
    "accept4", "getsockname", "getpeername", "getsockopt", "setsockopt", "sendto", "sendmsg", "sendmmsg", "recvfrom",
    "recvmsg", "recvmmsg", "shutdown", "epoll_ctl", "epoll_wait", "epoll_pwait", "epoll_pwait2", "poll", "ppoll",
    "clock_gettime", "gettimeofday", "time", "getrandom", "brk", "munmap", "mremap", "madvise", "futex", "rseq",
    "set_robust_list", "rt_sigaction", "rt_sigprocmask", "rt_sigreturn", "sigaltstack", "restart_syscall", "getpid",
    "gettid", "tgkill", "getuid", "geteuid", "getgid", "getegid", "sysinfo", "sched_yield", "exit", "exit_group", NULL,
};

/* One child that is waited for, and sockets that are there already. */
const char *const cordon_filter_vmm_allowed[] = {
    "read", "write", "close", "fcntl", "recvfrom", "recvmsg", "sendto", "sendmsg", "poll", "ppoll", "waitid", "wait4",
    "kill", "pidfd_send_signal", "clock_gettime", "getrandom", "brk", "munmap", "mremap", "madvise", "futex",
    "rt_sigaction", "rt_sigprocmask", "rt_sigreturn", "restart_syscall", "getpid", "gettid", "tgkill", "exit",
    "exit_group", NULL,
};

const char *const cordon_filter_exec[] = {"execve", "execveat", NULL};

const char *const cordon_filter_checked[] = {
    "clone", "unshare", "personality", "prctl", "seccomp", "prlimit64", "sched_setaffinity", "sched_setscheduler",
    "sched_setparam", "sched_setattr", "setpriority", "ioprio_set", "ioctl", "mknod", "mknodat", "socket", "socketpair",
    "mmap", "mmap2", "memfd_create", "shmget", NULL,
};

const char *const cordon_filter_quiet_enosys[] = {
    "clone3",                                                 /* its flags are in memory; libc falls back to clone */
    "io_uring_setup", "io_uring_enter", "io_uring_register",  /* walks around this filter; libuv tries it each time */
    "io_setup", "io_destroy", "io_submit", "io_cancel", "io_getevents", "io_pgetevents",
    "io_pgetevents_time64",                                   /* their number is limited for the whole host, not a guest */
    "statmount", "listmount",                                 /* tell of mounts; findmnt falls back to /proc */
    "cachestat",                                              /* tells whose pages are in the host's cache */
    "lsm_get_self_attr", "lsm_set_self_attr", "lsm_list_modules", "file_getattr", "file_setattr",
    "set_thread_area", "get_thread_area", "modify_ldt", "remap_file_pages", /* 32-bit and historic */
    NULL,
};

const char *const cordon_filter_quiet_eperm[] = {
    "memfd_secret", /* pages that can't be moved; tried by key stores, which fall back to mlock */
    NULL,
};

const char *const cordon_filter_quiet_nothing[] = {
    "sync", "syncfs", /* would flush file systems of the host, /usr's for one; a guest's own are all in memory */
    NULL,
};

/* Another tree, or one over ours. */
static const char *const mounts[] = {"mount", "umount2", "fsopen", "fsconfig", "fsmount", "fspick", "open_tree",
                                     "open_tree_attr", "move_mount", "mount_setattr", "pivot_root", "chroot", NULL};
/* Somebody else's surroundings; unshare has a rule. */
static const char *const namespaces[] = {"setns", NULL};
/* Keyrings belong to a uid, not to a guest, and had many holes. */
static const char *const keyrings[] = {"add_key", "request_key", "keyctl", NULL};
/* Large and young parts of the kernel, with programs or page faults that are answered by the caller. */
static const char *const kernel_programs[] = {"bpf", "perf_event_open", "userfaultfd", NULL};
/* Looking into or steering another process, the agent among them where it has the same uid. */
static const char *const other_processes[] = {"ptrace", "process_vm_readv", "process_vm_writev", "pidfd_getfd",
                                              "process_madvise", "process_mrelease", "kcmp", "migrate_pages",
                                              "move_pages", NULL};
/* Files by inode number, past every path check (the "shocker" escape). */
static const char *const handles[] = {"open_by_handle_at", "name_to_handle_at", NULL};
/* Watching whole mounts. */
static const char *const fanotify[] = {"fanotify_init", "fanotify_mark", NULL};
/* The kernel's own code. */
static const char *const kernel_code[] = {"init_module", "finit_module", "delete_module", "create_module",
                                          "query_module", "get_kernel_syms", "kexec_load", "kexec_file_load", NULL};
/* The whole machine's state. */
static const char *const machine[] = {"reboot", "swapon", "swapoff", "quotactl", "quotactl_fd", "acct", "settimeofday",
                                      "clock_settime", "clock_settime64", "clock_adjtime", "clock_adjtime64",
                                      "adjtimex", "sethostname", "setdomainname", "iopl", "ioperm", "syslog",
                                      "vhangup", "lookup_dcookie", NULL};
/* Historic: no program needs them, and nobody looks after them. */
static const char *const historic[] = {"nfsservctl", "uselib", "ustat", "sysfs", "_sysctl", "epoll_ctl_old",
                                       "epoll_wait_old", "afs_syscall", "getpmsg", "putpmsg", "security", "tuxcall",
                                       "vserver", NULL};

const char *const *const cordon_filter_denied[] = {
    mounts, namespaces, keyrings, kernel_programs, other_processes, handles, fanotify, kernel_code, machine, historic, NULL,
};
/* clang-format on */
