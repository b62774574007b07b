/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The backend interface: what a place where code runs must offer, and the words in which core speaks to it.
 * C99, stable: fields are only ever added at the end, and struct_size tells how many a side knows.
 *
 * Strings are UTF-8 and NUL-terminated unless they travel as struct cordon_bytes, which may hold anything.
 * Pointers inside a request are borrowed until run_close; pointers inside an event until the next run_next.
 */
#ifndef CORDON_BACKEND_H
#define CORDON_BACKEND_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <cordon/error.h>

#define CORDON_ABI_VERSION 1u

struct cordon_bytes {
    const char *data;
    size_t size;
};

/* Ordered: a later one is a stronger boundary. */
enum cordon_isolation {
    CORDON_ISOLATION_NONE = 0,
    CORDON_ISOLATION_NAMESPACE,         /* namespaces, seccomp, cgroups on the host's kernel */
    CORDON_ISOLATION_USERSPACE_KERNEL,  /* gVisor */
    CORDON_ISOLATION_SOFTWARE_EMULATED, /* a VM without hardware help */
    CORDON_ISOLATION_HARDWARE_VIRTUALIZED,
    CORDON_ISOLATION__COUNT
};

enum cordon_pause { CORDON_PAUSE_NONE = 0, CORDON_PAUSE_FREEZE = 1, CORDON_PAUSE_MEMORY = 2, CORDON_PAUSE_DISK = 4 };

/* What a backend *can* enforce. All zero grants nothing, so that an omitted field is refused, not trusted. */
struct cordon_capabilities {
    uint32_t struct_size;
    enum cordon_isolation isolation;
    bool deny_all_egress;
    bool domain_allowlist;
    bool guests; /* kept guests: reuse */
    bool files;  /* put and get */
    bool artifacts;
    bool streaming;
    bool memory_limit; /* held by the kernel, not asked for politely */
    bool pids_limit;
    bool cpu_limit;
    bool agent_protected;          /* the guest's process 1 has a uid that the code does not have */
    uint32_t pause;                /* enum cordon_pause, or-ed */
    uint32_t max_timeout_s;        /* 0: no cap */
    const char *languages;         /* comma separated: "python,javascript,bash" */
    const char *egress_exceptions; /* comma separated ranges that stay reachable; "" or NULL: none */
    bool network;                  /* can give a run the network at all */
};

struct cordon_limits {
    uint64_t timeout_ms;   /* wall clock, from the start of the program; ends everything */
    uint64_t cpu_ms;       /* CPU time of all its processes together; 0: none */
    uint64_t memory_bytes; /* of the code, kernel memory and tmpfs included; no swap */
    uint64_t disk_bytes;   /* private writable files */
    uint64_t disk_inodes;
    uint64_t stdout_bytes; /* kept of each stream; what is more is counted and thrown away */
    uint64_t stderr_bytes;
    uint64_t output_kill_bytes; /* a stream that wrote more than this ends the run; 0: never */
    uint64_t artifact_bytes;    /* largest single artifact */
    uint64_t artifacts_bytes;   /* all of them together */
    uint32_t artifacts;         /* how many */
    uint32_t pids;
    uint32_t open_files;
    uint32_t cpu_percent; /* share of CPU: 100 is one whole CPU */
};

struct cordon_file {
    const char *path; /* relative to the working directory, or absolute in the guest */
    struct cordon_bytes content;
    uint32_t mode; /* permission bits; 0 means 0644 */
};

struct cordon_request {
    uint32_t struct_size;
    const char *language; /* "python", "javascript", "bash" */
    struct cordon_bytes code;
    struct cordon_bytes arguments;  /* JSON object for main(); data NULL: run as a script, do not call main */
    struct cordon_bytes stdin_data; /* empty: immediate end of file */
    const char *const *env;         /* "NAME=VALUE", env_count of them */
    size_t env_count;
    const struct cordon_file *files;
    size_t file_count;
    struct cordon_limits limits;
    bool artifacts; /* collect them */
    bool network;
    const char *const *allowed_domains;
    size_t allowed_domain_count;
    bool fresh_interpreter; /* execute a new interpreter, share no memory image with other runs */
    int cancel_fd;          /* a socket: the run is cancelled when its peer shuts down (POLLRDHUP); -1: none */
};

enum cordon_event_type {
    CORDON_EVENT_STARTED = 1, /* the program was handed to its guest */
    CORDON_EVENT_STDOUT,      /* data */
    CORDON_EVENT_STDERR,      /* data */
    CORDON_EVENT_RESULT,      /* data: main's result as JSON; at most once */
    CORDON_EVENT_ARTIFACT,    /* name, data: the whole file */
    CORDON_EVENT_DROPPED,     /* name, reason: an artifact that is not returned; size where known */
    CORDON_EVENT_OUTCOME      /* outcome; the last event of every run */
};

enum cordon_cause {
    CORDON_CAUSE_EXITED = 0,
    CORDON_CAUSE_SIGNALLED,
    CORDON_CAUSE_TIMEOUT, /* our own deadline (limit_hit says wall clock or CPU time) */
    CORDON_CAUSE_MEMORY,
    CORDON_CAUSE_OUTPUT_LIMIT,
    CORDON_CAUSE_CANCELLED,
    CORDON_CAUSE_REFUSED,
    CORDON_CAUSE_UNAVAILABLE,
    CORDON_CAUSE_INFRASTRUCTURE,
    CORDON_CAUSE__COUNT
};

struct cordon_outcome {
    uint32_t struct_size;
    enum cordon_cause cause;
    int exit_code; /* the program's own when cause is EXITED; 128+signal when SIGNALLED; else -1 (137 for MEMORY) */
    int signal;    /* 0: none */
    char limit_hit[24];                            /* "", "timeout_s", "cpu_s", "memory_mb", "output_kill_mb" */
    char message[256];                             /* one sentence for people; "" when it simply exited */
    uint64_t queue_us, start_us, run_us, total_us; /* waited for a place, for a guest, ran, all */
    uint64_t cpu_us;                               /* user + system, all processes; 0 where it can't be known */
    uint64_t memory_peak_bytes;                    /* 0 where it can't be known */
    uint32_t oom_kills;                            /* processes that the memory limit killed */
    uint32_t processes_left;                       /* that the program left running and that were killed */
    uint64_t stdout_bytes, stderr_bytes;           /* written by the program */
    uint64_t stdout_kept, stderr_kept;             /* delivered */
    uint32_t artifacts_dropped;
    uint32_t syscalls_denied;
    char blocked_syscall[32]; /* the last denied one; "" if none */
    bool warm;                /* the guest came out of the pool */
    char backend[32];
    enum cordon_isolation isolation; /* the one that held for this run */
    char result_error[256];          /* why main's result could not be had, else "" */
};

struct cordon_event {
    enum cordon_event_type type;
    struct cordon_bytes data;
    const char *name;
    const char *reason;
    uint64_t size;
    const struct cordon_outcome *outcome;
};

struct cordon_run; /* a backend's own */

/* All functions may be called from any thread. An unset one means "unsupported"; core says so, once. */
struct cordon_backend {
    uint32_t abi_version;
    uint32_t struct_size;
    const char *name;
    /* No I/O. Owned by the backend, valid for ever. */
    const struct cordon_capabilities *(*capabilities)(void);
    /* Is it able to run now? 0, or negative with the reason in the words that a run would fail with. */
    int (*probe)(struct cordon_error *err);
    /* Starts a run. A failing program is not an error. On success *ret must be closed with run_close. */
    int (*run_open)(const struct cordon_request *request, struct cordon_run **ret, struct cordon_error *err);
    /* Blocks for the next event: 1 and *event, or 0 after CORDON_EVENT_OUTCOME was given. Never negative:
     * what breaks under way is told by the outcome. */
    int (*run_next)(struct cordon_run *run, struct cordon_event *event);
    /* Ends whatever still runs, frees. NULL is allowed. */
    void (*run_close)(struct cordon_run *run);
    void (*shutdown)(void);
    void (*reset_after_fork)(void);
};

#endif
