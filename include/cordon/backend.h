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
    bool templates;                /* starts guests from named templates */
    bool egress_headers;           /* puts headers into a guest's requests (src/core/egress.h) */
    const char *egress_ports; /* with network: the TCP ports that names are reached on, "80,443"; "" or NULL: any */
    const char *accelerator;  /* of virtual machines: "kvm" or "tcg"; NULL: it makes none */
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

struct cordon_egress_policy; /* core's own */

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
    bool fresh_interpreter;        /* execute a new interpreter, share no memory image with other runs */
    int cancel_fd;                 /* a socket: the run is cancelled when its peer shuts down (POLLRDHUP); -1: none */
    const char *template_name;     /* what its guest starts from; NULL: the language's default */
    bool artifacts_flat;           /* only files directly in the working directory and in artifacts/ are artifacts; of
                                      two of one name the former is the one */
    const char *artifact_suffixes; /* comma separated, lower case ("png,csv"): others are no artifacts; NULL: all are */
    /* With network: what that means, made by core of settings and allowed_domains (src/core/egress.h). */
    const struct cordon_egress_policy *egress;
};

enum cordon_event_type {
    CORDON_EVENT_STARTED = 1, /* the program was handed to its guest */
    CORDON_EVENT_STDOUT,      /* data */
    CORDON_EVENT_STDERR,      /* data */
    CORDON_EVENT_RESULT,      /* data: main's result as JSON; at most once */
    CORDON_EVENT_ARTIFACT,    /* name, data: the whole file */
    CORDON_EVENT_DROPPED,     /* name, reason: an artifact that is not returned; size where known */
    CORDON_EVENT_OUTCOME,     /* outcome; the last event of every run */
    CORDON_EVENT_EGRESS       /* data: the guest's egress log, a JSON array; at most once, before the outcome */
};

/* What a guest's connections came to. */
struct cordon_egress_counts {
    uint64_t connections, refused; /* relayed; not relayed, for whatever reason */
    uint64_t open;                 /* now */
    uint64_t names, names_refused; /* DNS questions answered; refused */
    uint64_t sent, received;       /* bytes of payload, as the guest sees it */
    char first_refused[160];       /* "name:port: why"; "" */
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
    bool network;                    /* it had one that was counted: */
    struct cordon_egress_counts egress;
    char accelerator[16]; /* of a virtual machine: "kvm", or "tcg", which is emulation in software; else "" */
    char start[16]; /* how it came to be: "booted" for this run, "copied" of a template, "pooled": copied before */
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

/*
 * Guests that are kept. A backend that has them sets all of the guest_… functions that it can; core adds names, owners,
 * lifetimes, quotas and the registry (src/core/guests.h is what doors call).
 *
 * All that goes on in a guest is an *operation*, opened on its handle, which gives a *stream* of events. Operations run
 * side by side; a handle may be used by any number of threads, a stream by one at a time (stream_control may come from
 * another one, any time before stream_close). Guest-made paths are walked in the guest only, by the named user.
 */
struct cordon_guest_spec {
    uint32_t struct_size;
    const char *id;              /* 20 characters a-z0-9, chosen by core; what adopt will ask for */
    const char *template_name;   /* "default" */
    struct cordon_limits limits; /* memory_bytes, disk_bytes, disk_inodes, pids, open_files, cpu_percent count */
    const char *const *env;      /* "NAME=VALUE": of every exec in this guest */
    size_t env_count;
    bool network;
    const char *const *allowed_domains;
    size_t allowed_domain_count;
    int cancel_fd; /* as in cordon_request; only until create returns */
    /* Not NULL: it may have the network, now (by this policy, which may be OFF) or later, by guest_network. */
    const struct cordon_egress_policy *egress;
};

enum cordon_operation_kind {
    CORDON_OP_EXEC = 1, /* start a program */
    CORDON_OP_ATTACH,   /* to a program that was started before: pid, replay_bytes */
    CORDON_OP_READ,     /* a regular file: path, offset, size */
    CORDON_OP_WRITE,    /* a regular file: path, mode; made anew or emptied; then stream_write, then its end */
    CORDON_OP_STAT,     /* path; a link itself is told, not followed */
    CORDON_OP_LIST,     /* path, depth */
    CORDON_OP_MKDIR,    /* path, and what is missing above it; -EEXIST when it is there */
    CORDON_OP_MOVE,     /* path to target; missing directories above target are made; replaces a file */
    CORDON_OP_REMOVE,   /* path with all below it; fine when there is nothing */
    CORDON_OP_WATCH,    /* path (a directory), recursive */
    CORDON_OP_DISK,     /* one CORDON_STREAM_DISK: what the writable layer holds and may hold */
    CORDON_OP__COUNT
};

struct cordon_operation {
    uint32_t struct_size;
    enum cordon_operation_kind kind;
    const char *user; /* "user" (also for NULL) or "root" of the guest */
    /* EXEC */
    const char *const *argv; /* argv[0] without a slash is looked up in the exec's PATH */
    size_t argc;
    const char *const *env; /* over the guest's own */
    size_t env_count;
    const char *cwd;     /* absolute, or relative to the user's home; NULL: the home */
    uint64_t timeout_ms; /* of the guest's running time (a pause stops it); then all it started is killed; 0: none */
    uint64_t output_kill_bytes; /* a stream that wrote more ends the exec; 0: never */
    uint16_t cols, rows;        /* both set: on a PTY of that size; its output is STDOUT */
    bool stdin_open;            /* stream_write reaches it; else stdin is at its end */
    bool channel; /* descriptor 3 of the program is a stream socket: CORDON_STREAM_CHANNEL and CORDON_TO_CHANNEL */
    bool kill_on_close; /* stream_close (and a lost gateway) ends it with all that it started; else it goes on */
    const char *tag;    /* the caller's own name for it, at most 63 bytes, told by execs; NULL: none */
    /* ATTACH */
    uint32_t pid;          /* as CORDON_STREAM_STARTED told it */
    uint32_t replay_bytes; /* of the newest output (at most what the guest keeps, 64 KiB) that comes first */
    /* files */
    const char *path;   /* absolute, or relative to the user's home; at most 4,095 bytes, no NUL */
    const char *target; /* MOVE */
    uint32_t mode;      /* WRITE, MKDIR: permission bits; 0: 0644, 0755 */
    uint64_t offset;    /* READ */
    uint64_t size; /* READ: at most so much; 0: to the end. WRITE: the most that may come; 0: no limit but the disk's */
    uint32_t depth;   /* LIST: levels below path; 0 means 1. Links are not followed */
    uint32_t entries; /* LIST: at most so many, then -E2BIG; 0: 10,000 */
    bool recursive;   /* WATCH */
    int cancel_fd;    /* a socket whose shutdown by its peer ends waits on this stream with -ECANCELED; -1: none */
};

enum cordon_stream_event_type {
    CORDON_STREAM_STARTED = 1, /* EXEC, ATTACH: pid. First */
    CORDON_STREAM_STDOUT,      /* data, never empty */
    CORDON_STREAM_STDERR,
    CORDON_STREAM_CHANNEL,  /* data: what the program wrote to descriptor 3; all output it wrote before came before */
    CORDON_STREAM_EXIT,     /* EXEC, ATTACH: exit. Last */
    CORDON_STREAM_ENTRY,    /* STAT, READ, LIST, MKDIR, MOVE, WRITE (at its end): entry. READ tells it first */
    CORDON_STREAM_DATA,     /* READ: data */
    CORDON_STREAM_WATCHING, /* WATCH: from now on nothing is missed. First */
    CORDON_STREAM_CHANGE,   /* WATCH: change, name (relative to the watched directory), entry where it could be had */
    CORDON_STREAM_DISK,     /* DISK: disk_used, disk_total */
    CORDON_STREAM_END       /* of all but EXEC and ATTACH: it went well. Last */
};

enum cordon_file_type { CORDON_FILE_OTHER = 0, CORDON_FILE_REGULAR, CORDON_FILE_DIRECTORY, CORDON_FILE_LINK };

/* A file as the guest tells it: its own claim, bounded and UTF-8 checked, not more. */
struct cordon_file_entry {
    const char *name; /* last component */
    const char *path; /* absolute in the guest */
    enum cordon_file_type type;
    uint64_t size;
    uint32_t mode; /* permission bits */
    const char *owner, *group;
    int64_t modified_ns; /* since 1970 */
    const char *target;  /* of a link; else NULL */
};

enum cordon_change {
    CORDON_CHANGE_CREATE = 1,
    CORDON_CHANGE_WRITE,
    CORDON_CHANGE_REMOVE,
    CORDON_CHANGE_RENAME, /* the old name; the new one is told by CREATE */
    CORDON_CHANGE_CHMOD,
    CORDON_CHANGE_LOST /* more happened than could be told: look anew. No name */
};

struct cordon_exec_exit {
    enum cordon_cause cause; /* EXITED, SIGNALLED, TIMEOUT, MEMORY (a SIGKILL while the guest's memory ran out),
                                OUTPUT_LIMIT, CANCELLED (by our kill), INFRASTRUCTURE */
    int exit_code;           /* EXITED; else -1 */
    int signal;              /* SIGNALLED, MEMORY; else 0 */
    uint64_t run_us;
    uint64_t stdout_bytes, stderr_bytes; /* written by the program */
    char message[256];                   /* "" when it simply exited */
};

struct cordon_stream_event {
    enum cordon_stream_event_type type;
    struct cordon_bytes data; /* borrowed until the next stream_next or stream_close; so are all pointers here */
    uint32_t pid;
    const struct cordon_exec_exit *exit;
    const struct cordon_file_entry *entry;
    enum cordon_change change;
    const char *name;
    uint64_t disk_used, disk_total;
};

enum cordon_stream_to { CORDON_TO_STDIN = 1, CORDON_TO_CHANNEL, CORDON_TO_FILE };

enum cordon_control {
    CORDON_CONTROL_SIGNAL = 1, /* value: a signal's number. To the program's process group, so a shell's job gets it;
                                  SIGKILL: to all that it started */
    CORDON_CONTROL_RESIZE,     /* value: cols << 16 | rows. EXEC on a PTY only */
    CORDON_CONTROL_END         /* value: enum cordon_stream_to: no more will be written (a PTY gets an EOT) */
};

/* One program of a guest, running or ended not long ago (the newest 64 are remembered). */
struct cordon_exec_info {
    uint32_t pid;
    const char *tag, *command, *cwd, *user; /* command: argv joined with NULs, command_size bytes in all; may be cut */
    size_t command_size;
    bool running, pty;
    struct cordon_exec_exit exit; /* when it does not run */
};

struct cordon_guest_usage {
    uint32_t struct_size;
    uint64_t cpu_us; /* used by all its processes since it was made */
    uint64_t memory_bytes, memory_cache_bytes, memory_limit_bytes;
    uint32_t processes, cpu_percent; /* cpu_percent: its share, 100 is one CPU */
};

enum cordon_guest_condition { CORDON_GUEST_IS_RUNNING = 1, CORDON_GUEST_IS_PAUSED, CORDON_GUEST_IS_GONE };

struct cordon_guest_handle; /* a backend's own */
struct cordon_stream;       /* a backend's own */

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

    /* --- guests that are kept --- */

    /* Makes a guest: 0 and *ret, to be given back by guest_release. BUSY, UNAVAILABLE, CANCELLED. */
    int (*guest_create)(const struct cordon_guest_spec *spec, struct cordon_guest_handle **ret,
                        struct cordon_error *err);
    /* Finds a guest again that an earlier process (or handle) left alive; its programs go on, streams are attached
     * anew. cancel_fd as in cordon_request: the daemon's end does not wait for it. GONE when there is none; CANCELLED.
     */
    int (*guest_adopt)(const char *id, int cancel_fd, struct cordon_guest_handle **ret, struct cordon_error *err);
    /* Forgets the handle, the guest lives on for whoever adopts it. No stream of it may be open. NULL is allowed. */
    void (*guest_release)(struct cordon_guest_handle *guest);
    /* Ends the guest, in whatever condition it is, within 5 s; streams that are open, and calls of other threads that
     * are under way, end with GONE. The handle stays, to be given back by guest_release. Fine when it was gone already.
     */
    int (*guest_destroy)(struct cordon_guest_handle *guest, struct cordon_error *err);
    /* Idempotent. After pause returned nothing of the guest's code runs. */
    int (*guest_pause)(struct cordon_guest_handle *guest, enum cordon_pause how, struct cordon_error *err);
    int (*guest_resume)(struct cordon_guest_handle *guest, struct cordon_error *err);
    enum cordon_guest_condition (*guest_condition)(struct cordon_guest_handle *guest); /* no waiting */
    /* A descriptor that becomes readable once the guest is gone; borrowed while the handle lives. */
    int (*guest_watch)(struct cordon_guest_handle *guest);
    /* How many of its programs run now, with the connections to its ports that the backend itself relays, and when
     * (CLOCK_MONOTONIC, microseconds) that changed last; no waiting. */
    uint32_t (*guest_running)(struct cordon_guest_handle *guest, uint64_t *changed_us);
    int (*guest_usage)(struct cordon_guest_handle *guest, struct cordon_guest_usage *ret, struct cordon_error *err);
    /* Its programs; each is called once for every one, running ones first, with pointers that hold during the call. */
    int (*guest_execs)(struct cordon_guest_handle *guest,
                       void (*each)(void *context, const struct cordon_exec_info *exec), void *context,
                       struct cordon_error *err);
    /* Connects to a TCP port that the guest's code listens on (loopback or any address in the guest): a non-blocking
     * socket, the caller's to close. CONFLICT with -ECONNREFUSED when nobody listens. */
    int (*guest_port)(struct cordon_guest_handle *guest, uint16_t port, int cancel_fd, int *ret,
                      struct cordon_error *err);
    /* Starts an operation. What the guest refuses (a missing path, a program that can't be executed) may be told here
     * or by the first stream_next. The operation is copied. Kinds, here and from the stream functions: PAUSED, GONE,
     * INVALID; and what the guest's kernel says, with err->code its errno: NOT_FOUND (ENOENT), CONFLICT (EEXIST,
     * ENOTEMPTY), FORBIDDEN (EACCES, EPERM, EROFS), TOO_LARGE (ENOSPC, EDQUOT, EFBIG, E2BIG), QUOTA (too many
     * operations at once), INVALID (all else: EISDIR, ENOTDIR, ELOOP, …). */
    int (*guest_open)(struct cordon_guest_handle *guest, const struct cordon_operation *operation,
                      struct cordon_stream **ret, struct cordon_error *err);
    /* Waits for the next event: 1; 0 when timeout_ms (-1: for ever) passed without one, or after the last; negative:
     * it failed, or ended with its guest, or -ECANCELED. */
    int (*stream_next)(struct cordon_stream *stream, int timeout_ms, struct cordon_stream_event *event,
                       struct cordon_error *err);
    /* Writes all of data, waiting while the guest does not take it in; -EPIPE when the other end takes no more. A write
     * to a file must not be mixed with stream_next until CORDON_CONTROL_END; then stream_next tells ENTRY and END. */
    int (*stream_write)(struct cordon_stream *stream, enum cordon_stream_to to, const void *data, size_t size,
                        struct cordon_error *err);
    int (*stream_control)(struct cordon_stream *stream, enum cordon_control control, uint32_t value,
                          struct cordon_error *err);
    /* An operation under way is broken off (a file half written is removed); an exec without kill_on_close goes on.
     * NULL is allowed. */
    void (*stream_close)(struct cordon_stream *stream);

    /* Replaces what a guest that was made with egress may reach; connections that fit no more are cut before it
     * returns. */
    int (*guest_network)(struct cordon_guest_handle *guest, const struct cordon_egress_policy *policy,
                         struct cordon_error *err);
    /* What its connections came to, and its egress log, a JSON array, given by one call of tell. */
    int (*guest_egress)(struct cordon_guest_handle *guest, struct cordon_egress_counts *ret,
                        void (*tell)(void *context, const char *log, size_t size), void *context,
                        struct cordon_error *err);
    /* Of guests that are a service's elsewhere: what it calls this one, for who must look for it there. Borrowed while
     * the handle lives. */
    const char *(*guest_remote)(struct cordon_guest_handle *guest);
    /* Why a guest is gone that was not destroyed: a sentence without a full stop, valid while the handle lives. Asked
     * only when guest_condition has said GONE; no waiting. */
    const char *(*guest_why_gone)(struct cordon_guest_handle *guest);
};

#endif
