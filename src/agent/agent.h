/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The inside of the agent. Theory of operation:
 *
 * One thread, one poll() a turn over a set that is built anew from the state, so interest and state can't disagree.
 * Nothing blocks but that poll. What goes to the host is put into one bounded queue (out.c) and sent at the end of a
 * turn; programs' pipes and workers are read only while the queue has room, so a host that does not read stops the
 * programs, not the agent, and frames of the agent itself (EXIT, ERROR, …) always fit. Each source is served at most
 * one chunk a turn.
 *
 * An *exec* is one program: PARKED (its interpreter is there or coming), WAITING (its EXEC is here, files are still
 * being put), RUNNING, ENDING (its end is known; the rest is killed and the pipes are emptied), ENDED. They stand in
 * a table by the host's number. One-shot guests have one.
 *
 * A *worker* is a forked child that has become the code (isolate/code.h) and touches files in its name; the agent
 * itself never opens a path that code could have made. It lives in put.c and collect.c and speaks frames.
 */
#ifndef CORDON_AGENT_AGENT_H
#define CORDON_AGENT_AGENT_H

#include <poll.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/stat.h>
#include <sys/types.h>

#include "agent/driver.h"
#include "agent/launch.h"
#include "agent/pace.h"
#include "base/buf.h"
#include "proto/frame.h"

#define CORDON_AGENT_EXECS 4
#define CORDON_AGENT_PUT_FILES 4096 /* files whose identity is remembered, so that they are no artifacts */
#define CORDON_AGENT_SOURCES (4 + 8 * CORDON_AGENT_EXECS)
#define CORDON_AGENT_OUT (4 * (CORDON_FRAME_DATA_MAX + CORDON_FRAME_HEADER))
#define CORDON_AGENT_OUT_RESERVE (16u << 10) /* kept free for the agent's own frames */

struct cordon_agent_config {
    bool forked; /* mode forked, else … */
    bool kept;   /* … mode kept, else spawn */
    bool isolated;
    bool told;            /* the guest's files tell memory_bytes and cpus already */
    bool awaited;         /* a run waits for the interpreter */
    const char *argument; /* of the driver; NULL: none, or "awaited" */
    const char *language;
    const char *workdir;
    const char *interpreter, *driver;
    uid_t code_uid;
    gid_t code_gid;
    uint64_t memory_bytes; /* what the guest was told when it was launched */
    uint32_t cpus;
    uint32_t open_files;
    uint32_t processes; /* 0: held by a control group */
    int cgroups;        /* how many descriptors from CORDON_AGENT_CGROUPS on */
};

/* Frames on their way to the host. */
struct cordon_agent_out {
    char data[CORDON_AGENT_OUT];
    size_t start, end;
    uint64_t lazy_until_us; /* not worth a message of its own before then; 0: send now */
};

struct cordon_agent_stream {
    int fd;         /* read end; -1 at its end */
    uint64_t total; /* written by the program */
    uint64_t kept;  /* sent to the host */
    uint64_t cap;
    uint64_t credit;
    bool empty; /* the last read found nothing */
};

enum cordon_agent_state {
    CORDON_AGENT_FREE = 0,
    CORDON_AGENT_PARKED,
    CORDON_AGENT_WAITING,
    CORDON_AGENT_RUNNING,
    CORDON_AGENT_ENDING,
    CORDON_AGENT_ENDED
};

/* A file as a worker left it. */
struct cordon_agent_put {
    uint64_t inode, size;
    int64_t ctime_s, ctime_ns;
};

struct cordon_agent_exec {
    enum cordon_agent_state state;
    uint16_t id;
    pid_t pid;       /* the program; 0: not known (yet) */
    bool dead;       /* it was reaped */
    bool by_bash;    /* results come raw, through result_fd */
    bool rehearsing; /* its driver was told to, and has not answered */
    int driver_fd, stdin_fd, result_fd, listener;
    struct cordon_driver_reader reader;
    struct cordon_agent_stream stream[2]; /* stdout, stderr */
    struct cordon_buf job;                /* payload of EXEC; sent behind its header */
    struct cordon_buf job_sent;           /* the same afterwards, kept when artifacts are wanted */
    size_t job_at;
    struct cordon_buf input; /* stdin on its way to the program */
    bool input_ended;
    uint32_t input_credit; /* to be given back to the host */
    uint64_t result_bytes; /* that came through result_fd */
    bool result_error_sent;
    uint64_t output_kill_bytes;
    uint64_t timeout_us, deadline_us; /* 0: none */
    uint32_t flags;
    struct stat before[2]; /* working directory and artifacts/, when the job was handed over */
    bool before_unsure;    /* too young to tell a change by its time */
    int64_t tasks_before;  /* last process number given out in this pid namespace; -1: not known */
    struct cordon_exit exit;
    bool announced; /* the driver told the exit code */
    bool settled;   /* nothing of the program runs any more, or nothing that matters */
    bool alone;     /* announced by a single process, which need not be dead before EXIT */
    bool killed_by_host;
    bool counted; /* exit.processes_left is what it has to be */
    uint64_t settle_by_us;
    uint32_t denied;
    struct cordon_pace pace;
    char blocked[32];
};

/* The worker and what it still has to say or to hear. One at a time. */
struct cordon_agent_worker {
    pid_t pid; /* 0: none */
    int fd;
    bool collecting; /* else putting */
    bool told;       /* it said that it is done, or what went wrong */
    bool failed;     /* it said what went wrong */
    bool hung_up;    /* our end is shut: no more files come */
    uint64_t until_us;
    struct cordon_buf to;   /* frames for it */
    struct cordon_buf from; /* frames of it, not yet whole */
};

struct cordon_agent;
typedef void cordon_agent_on_event(struct cordon_agent *agent, struct cordon_agent_exec *exec, short events);

struct cordon_agent {
    struct cordon_agent_config config;
    int channel, signals, last_pid_fd;
    int warming; /* in a virtual machine, read end of the interpreter's ready pipe until it is warm; else -1 */
    int workdir_fd, artifacts_fd; /* only ever fstat'ed */
    struct cordon_agent_exec execs[CORDON_AGENT_EXECS];
    struct cordon_agent_worker worker;
    struct cordon_buf in; /* bytes of the host that are no whole frame yet */
    struct cordon_agent_out out;
    struct cordon_agent_put *puts;
    size_t put_count;
    bool files_put;    /* some FILE_OPEN came */
    bool files_failed; /* an ERROR told the host so; the EXEC that follows is not started */
    struct cordon_exec_limits collect_limits;
    uint16_t collect_exec;  /* COLLECT is waiting for its turn; 0: none */
    uint64_t collect_by_us; /* then it is done even if something is slow to die */
    bool reap_again;
    struct pollfd poll[CORDON_AGENT_SOURCES];
    struct {
        cordon_agent_on_event *on_event;
        struct cordon_agent_exec *exec;
    } source[CORDON_AGENT_SOURCES];
    size_t sources;
};

/* main.c */
void cordon_agent_quit(struct cordon_agent *agent, int status, const char *why) __attribute__((noreturn));
void cordon_agent_watch(struct cordon_agent *agent, int fd, short events, cordon_agent_on_event *on_event,
                        struct cordon_agent_exec *exec);

/* kept.c: mode kept */
_Noreturn void cordon_kept_main(const struct cordon_agent_config *config);

/* out.c: the queue to the host */
void cordon_agent_send(struct cordon_agent *agent, uint8_t type, uint16_t exec, const void *payload, uint32_t length);
void cordon_agent_send_error(struct cordon_agent *agent, uint16_t exec, int code, const char *path, const char *fmt,
                             ...) CORDON_PRINTF(5, 6);
void cordon_agent_send_dropped(struct cordon_agent *agent, uint16_t exec, const char *name, const char *reason);
/* May a chunk be read for the host? Then read it to out_room and commit what came as one frame. */
bool cordon_agent_out_ready(const struct cordon_agent *agent);
char *cordon_agent_out_room(struct cordon_agent *agent);
void cordon_agent_out_commit(struct cordon_agent *agent, uint8_t type, uint16_t exec, uint32_t length);
void cordon_agent_out_flush(struct cordon_agent *agent);

/* channel.c: frames of the host */
void cordon_agent_watch_channel(struct cordon_agent *agent);

/* exec.c: the life of an exec */
struct cordon_agent_exec *cordon_agent_exec_find(struct cordon_agent *agent, uint16_t id);
void cordon_agent_exec_init(struct cordon_agent_exec *exec);
void cordon_agent_exec_begin(struct cordon_agent *agent, uint16_t id, struct cordon_buf *payload_taken);
void cordon_agent_exec_release(struct cordon_agent *agent); /* the files are there: waiting execs may start */
void cordon_agent_exec_end(struct cordon_agent *agent, struct cordon_agent_exec *exec, enum cordon_exit_how how,
                           int status);
void cordon_agent_exec_watch(struct cordon_agent *agent, struct cordon_agent_exec *exec);
void cordon_agent_exec_step(struct cordon_agent *agent, struct cordon_agent_exec *exec);
void cordon_agent_exec_kill(struct cordon_agent *agent, struct cordon_agent_exec *exec, int signal);

/* stream.c: the program's pipes */
bool cordon_agent_stream_pump(struct cordon_agent *agent, struct cordon_agent_exec *exec, int which);
void cordon_agent_stream_watch(struct cordon_agent *agent, struct cordon_agent_exec *exec);
int cordon_agent_stdin_add(struct cordon_agent_exec *exec, const char *data, size_t size);
void cordon_agent_stdin_end(struct cordon_agent_exec *exec);
void cordon_agent_stdin_watch(struct cordon_agent *agent, struct cordon_agent_exec *exec);

/* link.c: the driver channel and bash's result pipe */
void cordon_agent_link_watch(struct cordon_agent *agent, struct cordon_agent_exec *exec);
/* Takes in what is there now; false when the host must read first. */
bool cordon_agent_link_pump(struct cordon_agent *agent, struct cordon_agent_exec *exec);
void cordon_agent_link_open(struct cordon_agent_exec *exec);
void cordon_agent_link_job(struct cordon_agent *agent, struct cordon_agent_exec *exec); /* hands exec->job over */
/* Tells a parked driver what has no payload: that it is a copy (RESEED), or to rehearse (exec->rehearsing until it
 * has). Negative errno. */
int cordon_agent_link_tell(struct cordon_agent_exec *exec, enum cordon_driver_frame type);

/* pace.c, for an exec */
#define CORDON_AGENT_SMALL 4096 /* bytes that are more than a small thing */
void cordon_agent_pace_spend(struct cordon_agent_exec *exec, unsigned things);
bool cordon_agent_pace_rests(struct cordon_agent_exec *exec);

/* notify.c: denied system calls */
#define CORDON_NOTIFY_AGAIN (-1)              /* nothing was answered */
#define CORDON_NOTIFY_END (-2)                /* the listener is of no more use */
int cordon_agent_notify_answer(int listener); /* answers one that waits: its call's number, or one of these */
void cordon_agent_notify_watch(struct cordon_agent *agent, struct cordon_agent_exec *exec);
void cordon_agent_notify_setup(int listener);

/* reap.c: ends of processes */
void cordon_agent_reap(struct cordon_agent *agent);
/* Kills all that is not the agent (isolated), or all its descendants; returns how many were seen besides the program
 * (only without isolation: in a pid namespace they are counted when they are reaped). */
uint32_t cordon_agent_kill_all(struct cordon_agent *agent);
bool cordon_agent_alone(void); /* no child is left */
int64_t cordon_agent_last_pid(const struct cordon_agent *agent);

/* spawn.c: mode spawn, and what every child of the agent does first */
int cordon_agent_spawn(struct cordon_agent *agent, struct cordon_agent_exec *exec);
/* In a child: joins the code's control groups and becomes the code. All descriptors above 9 are
 * closed on the way. 0, or negative errno and *stage. */
int cordon_agent_become_code(const struct cordon_agent *agent, bool join, uint32_t open_files, int *listener,
                             const char **stage);
/* In a child: closes everything but stdio and the first keep descriptors. */
void cordon_agent_close_from(int first);

/* bash.c: the parked bash, in its own process; never returns */
void cordon_agent_bash(const struct cordon_agent_config *config, int driver, int ready, int result)
    __attribute__((noreturn));

/* worker.c: the agent's side of workers */
void cordon_agent_worker_feed(struct cordon_agent *agent, const struct cordon_frame *frame);
bool cordon_agent_worker_full(const struct cordon_agent *agent);
void cordon_agent_worker_hang_up(struct cordon_agent *agent);
void cordon_agent_worker_watch(struct cordon_agent *agent);
void cordon_agent_worker_step(struct cordon_agent *agent);

/* What of the EXEC whose artifacts are collected says which files are meant. */
struct cordon_agent_wish {
    struct cordon_field code; /* the program's text, which is no artifact where a driver wrote it; length 0: unknown */
    struct cordon_field suffixes; /* "png,csv"; data NULL: all */
    bool flat;                    /* CORDON_EXEC_FLAT */
};

/* put.c, collect.c: the workers themselves; they run as the code and return an exit status. */
int cordon_agent_put_files(int fd, const char *workdir);
int cordon_agent_collect_files(int fd, uint16_t exec, const char *workdir, const struct cordon_exec_limits *limits,
                               const struct cordon_agent_put *puts, size_t put_count,
                               const struct cordon_agent_wish *wish);

/* limits.c: what the guest is told about its memory and CPUs, and the size of its files */
void cordon_agent_tell_limits(uint64_t memory_bytes, uint32_t cpus);
int cordon_agent_resize_files(uint64_t bytes, uint64_t inodes);
/* Makes this the whole of a small file: what was longer is cut afterwards, so that no page is freed and made anew. 0 or
 * negative errno. */
int cordon_agent_overwrite(int fd, const char *text, size_t size);

#endif
