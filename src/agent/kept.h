/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The inside of the agent of a kept guest (mode `kept`). Theory of operation:
 *
 * As in agent.h: one thread, one poll() a turn over a set that is built anew from the state; nothing else blocks. The
 * host opens numbered *streams*, one for each operation. An *exec* is a program; it lives on its own, and streams of
 * kind EXEC or ATTACH read from its ring and write to its ends. All else is done by *workers*, processes of the user
 * that was named, whose frames are passed on.
 *
 * Programs and workers come from the *launcher* (kept_launch.c), a small child of the agent that joined the code's
 * control groups once, when the guest was made: no program waits for that.
 *
 * Every stream has a window: the agent sends no more for it than the host asked for. An exec's pipes are read
 * only while its slowest reader has room in the ring; without readers the ring forgets the oldest. So a host that does
 * not read stops what it reads, and nothing else; and the agent's memory is bounded by the tables' sizes.
 *
 * The channel may end and the guest goes on: the warden then brings a new one over the control socket. What streams
 * were open is closed (programs go on, but those that were to end with their stream), READY tells the new host.
 */
#ifndef CORDON_AGENT_KEPT_H
#define CORDON_AGENT_KEPT_H

#include <poll.h>

#include "agent/agent.h"
#include "agent/kept_ring.h"
#include "agent/pace.h"
#include "proto/kept.h"

#define CORDON_KEPT_STREAMS 288 /* at once; the host keeps to fewer */
#define CORDON_KEPT_RUNNING 64  /* programs at once */
#define CORDON_KEPT_EXECS 128   /* with those that ended not long ago */
#define CORDON_KEPT_SOURCES (8 + CORDON_KEPT_STREAMS + 8 * CORDON_KEPT_EXECS)
#define CORDON_KEPT_OUT (256u << 10)

enum { CORDON_KEPT_IN_STDIN, CORDON_KEPT_IN_CHANNEL, CORDON_KEPT_INS };
enum { CORDON_KEPT_OUT_STDOUT, CORDON_KEPT_OUT_STDERR, CORDON_KEPT_OUT_CHANNEL, CORDON_KEPT_OUTS };

/* kept_launch.c: something that the launcher was asked to start. What it was given is held until the child has said
 * that it got it: a launcher that was killed took the request with it, and the next one is asked again. */
#define CORDON_LAUNCH_FDS                                                                                              \
    6 /* status, payload, then four ends: stdin, stdout, stderr, channel; or a worker's socket                         \
       */
enum cordon_launch_kind { CORDON_LAUNCH_EXEC = 1, CORDON_LAUNCH_WORKER };

struct cordon_launch_request {
    uint32_t kind, pty, given; /* given: bits of the ends that come, from stdin on */
    uint32_t size;             /* of the payload */
    uint32_t open_files;
};

struct cordon_launch {
    int status; /* readable with what cordon_kept_launched reads; -1: none is under way */
    struct cordon_launch_request request;
    int held[CORDON_LAUNCH_FDS - 1]; /* all but the status; the first `holds` are open */
    size_t holds;
    unsigned tries;
};
#define CORDON_LAUNCH_INIT ((struct cordon_launch){.status = -1})

struct cordon_kept_exec {
    bool used, starting, running, reaped, pty;
    unsigned age;
    pid_t pid;
    struct cordon_launch launch; /* while it is starting */
    int listener;
    int in[CORDON_KEPT_INS];
    int out[CORDON_KEPT_OUTS];
    int left[CORDON_KEPT_OUTS]; /* once it was reaped: bytes of it that are still to be read */
    uint64_t settle_by_us;      /* of a PTY, whose last bytes take a moment */
    uint64_t bytes[2];          /* stdout, stderr */
    uint64_t output_kill_bytes;
    uint64_t started_us, deadline_us, paused_us; /* deadline 0: none; paused: how long, in all */
    uint32_t how;                                /* why we killed it; 0: we did not */
    int wait_status;
    uint32_t oom_kills_before;
    struct cordon_ended ended; /* when it neither starts nor runs */
    struct cordon_ring ring;
    struct cordon_pace pace;
    struct cordon_kept_stream *writer[CORDON_KEPT_INS]; /* whose bytes are on their way */
    char *about;                                        /* fields of INFO: tag, user, cwd, argv */
    size_t about_size;
};

enum cordon_kept_kind { CORDON_KEPT_FREE = 0, CORDON_KEPT_OF_EXEC, CORDON_KEPT_OF_WORKER, CORDON_KEPT_OF_PORT };

struct cordon_kept_stream {
    enum cordon_kept_kind kind;
    uint16_t id;
    uint32_t operation;
    bool ended;   /* its last frame was sent */
    bool closing; /* the host is done; what it wrote is still on its way */
    bool kill_on_close;
    bool told; /* BEGAN was sent; OF_PORT: PORT, and it is relayed */
    int64_t window;
    struct cordon_buf in[CORDON_KEPT_INS]; /* written by the host; a worker has the first */
    bool in_end[CORDON_KEPT_INS];
    uint32_t taken[CORDON_KEPT_INS]; /* to be told */
    uint32_t owed;                   /* OF_WORKER: to be taken once there is room */
    struct cordon_kept_exec *exec;   /* OF_EXEC */
    struct cordon_ring_place place;
    int fd;                      /* OF_WORKER: its socket; OF_PORT: the socket that connects */
    struct cordon_launch launch; /* a worker's */
    pid_t pid;                   /* OF_WORKER; 0: not known (yet), or reaped */
    struct cordon_buf from;      /* of the worker: no whole frame yet */
    unsigned tries;              /* OF_PORT */
    bool deaf;                   /* OF_PORT: nothing more goes to its server, which may still answer */
    bool mute;                   /* OF_PORT: its server sends no more, and may still read */
    uint32_t port;
};

struct cordon_kept;
typedef void cordon_kept_on_event(struct cordon_kept *kept, void *object, short events);

struct cordon_kept {
    struct cordon_agent_config config;
    int channel;    /* -1: no host now */
    bool port_lost; /* in a virtual machine: the port's other end is closed, or was */
    int control, signals, null;
    uint32_t epoch;
    pid_t launcher;
    int launcher_fd;
    uint64_t paused_at_us; /* 0: not paused */
    uint32_t running_told;
    struct cordon_buf in, out;
    char **env; /* of every exec, NAME=VALUE */
    size_t env_count;
    unsigned age;
    struct cordon_kept_exec execs[CORDON_KEPT_EXECS];
    struct cordon_kept_stream streams[CORDON_KEPT_STREAMS];
    struct pollfd poll[CORDON_KEPT_SOURCES];
    struct {
        cordon_kept_on_event *on_event;
        void *object;
    } source[CORDON_KEPT_SOURCES];
    size_t sources;
};

/* kept.c: the loop, and frames to the host */
void cordon_kept_watch(struct cordon_kept *kept, int fd, short events, cordon_kept_on_event *on_event, void *object);
_Noreturn void cordon_kept_quit(const char *why);
bool cordon_kept_has_room(const struct cordon_kept *kept); /* for frames with payload of the guest */
void cordon_kept_send(struct cordon_kept *kept, uint8_t type, uint16_t id, const void *payload, uint32_t length);
void cordon_kept_send_number(struct cordon_kept *kept, uint8_t type, uint16_t id, uint32_t number);
/* FAILED, after which nothing but CLOSED comes of the stream. code: positive errno. */
void cordon_kept_fail(struct cordon_kept *kept, struct cordon_kept_stream *stream, int code, const char *fmt, ...)
    CORDON_PRINTF(4, 5);
bool cordon_kept_flush(struct cordon_kept *kept); /* true: all is out */

/* kept_stream.c */
struct cordon_kept_stream *cordon_kept_stream_find(struct cordon_kept *kept, uint16_t id);
void cordon_kept_stream_open(struct cordon_kept *kept, const struct cordon_frame *frame);
void cordon_kept_stream_write(struct cordon_kept *kept, const struct cordon_frame *frame);
void cordon_kept_stream_control(struct cordon_kept *kept, const struct cordon_frame *frame);
void cordon_kept_stream_close(struct cordon_kept *kept, struct cordon_kept_stream *stream);
void cordon_kept_streams_drop(struct cordon_kept *kept); /* the host is gone */
void cordon_kept_streams_watch(struct cordon_kept *kept);
void cordon_kept_streams_step(struct cordon_kept *kept);

/* kept_exec.c */
int cordon_kept_exec_start(struct cordon_kept *kept, struct cordon_kept_stream *stream, const struct cordon_open *open,
                           const struct cordon_frame *frame);
struct cordon_kept_exec *cordon_kept_exec_find(struct cordon_kept *kept, uint32_t pid);
void cordon_kept_exec_signal(struct cordon_kept *kept, struct cordon_kept_exec *exec, int signal);
void cordon_kept_exec_resize(struct cordon_kept_exec *exec, uint32_t size);
void cordon_kept_exec_kill(struct cordon_kept_exec *exec, uint32_t how);
void cordon_kept_execs_watch(struct cordon_kept *kept);
void cordon_kept_execs_step(struct cordon_kept *kept);
void cordon_kept_execs_reaped(struct cordon_kept *kept, pid_t pid, int status);
void cordon_kept_execs_settle_starts(struct cordon_kept *kept); /* takes in what launches have said by now */
void cordon_kept_execs_tell(struct cordon_kept *kept, struct cordon_kept_stream *stream);
void cordon_kept_execs_pause(struct cordon_kept *kept, bool paused);
uint64_t cordon_kept_execs_due(const struct cordon_kept *kept); /* 0: nothing is */
uint32_t cordon_kept_execs_running(const struct cordon_kept *kept);

/* kept_pump.c: what goes between an exec's ends, its ring and its streams */
void cordon_kept_pump_watch(struct cordon_kept *kept, struct cordon_kept_exec *exec);
void cordon_kept_pump_streams(struct cordon_kept *kept, struct cordon_kept_exec *exec); /* ring to streams */
bool cordon_kept_pump_is_dry(const struct cordon_kept_exec *exec); /* reaped, and all it wrote is in the ring */

/* kept_launch.c: the launcher, and asking it */
int cordon_kept_launcher_start(struct cordon_kept *kept);
/* payload: EXEC's or an operation's fields, copied. ends: copied; -1 where there is none. 0 or negative errno; then
 * nothing is under way. */
int cordon_kept_launch(struct cordon_kept *kept, struct cordon_launch *launch, enum cordon_launch_kind kind,
                       const char *payload, size_t size, const int ends[4], bool pty);
struct cordon_launched {
    pid_t pid;
    int error; /* 0, or negative errno and */
    char stage[64];
};
/* 1: a message, and the listener where one came; 0: nothing yet; negative: the end. */
int cordon_kept_launched(struct cordon_kept *kept, struct cordon_launch *launch, struct cordon_launched *ret,
                         int *listener);
void cordon_kept_launch_done(struct cordon_launch *launch);

/* kept_kill.c: SIGKILL to a program, its group, its session, and all that descend from them */
void cordon_kept_kill_tree(pid_t pid);

/* kept_port.c */
void cordon_kept_port_open(struct cordon_kept *kept, struct cordon_kept_stream *stream, uint32_t port);
void cordon_kept_port_watch(struct cordon_kept *kept, struct cordon_kept_stream *stream);

/* kept_worker.c and kept_files.c: in a worker's process, as the user; exit status */
int cordon_kept_worker_main(int fd, const char *payload, size_t size);

#endif
