/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The guest protocol: what the host and the agent in a guest say to each other over one ordered byte channel (a
 * socketpair; later virtio-serial). Pure functions, no I/O; both ends and the fuzzers use the same ones.
 * docs/protocol/guest.md is the wire document.
 *
 * A frame is an 8 byte header (little endian) and its payload:
 *     u8 type · u8 zero · u16 exec · u32 length
 * exec numbers an execution in the guest (chosen by the host, from 1); 0 is the guest itself. Data payloads are raw
 * bytes; structured payloads are fields (below). The design's first idea, JSON for requests, was dropped: the agent
 * is process 1 with capabilities in its namespace and needs no JSON parser this way.
 */
#ifndef CORDON_PROTO_FRAME_H
#define CORDON_PROTO_FRAME_H

#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"

#define CORDON_PROTO_VERSION 1u
#define CORDON_FRAME_HEADER 8u
#define CORDON_FRAME_DATA_MAX 65536u       /* most payload of every frame but EXEC */
#define CORDON_FRAME_MAX (24u << 20)       /* most payload of EXEC: code, arguments and environment */
#define CORDON_CREDIT_INITIAL (256u << 10) /* bytes of each output stream the agent may send unasked */
#define CORDON_STDIN_WINDOW (256u << 10)   /* bytes of stdin the host may send unasked */

enum cordon_frame_type {
    /* host to guest */
    CORDON_FRAME_EXEC = 1, /* fields: start a program; ends the sequence of FILE_* that came before it */
    CORDON_FRAME_STDIN,    /* data */
    CORDON_FRAME_STDIN_EOF,
    CORDON_FRAME_CREDIT,    /* u8 stream (1 stdout, 2 stderr) · u32 bytes more */
    CORDON_FRAME_KILL,      /* u32 signal; SIGKILL ends everything the code started, and the exec */
    CORDON_FRAME_FILE_OPEN, /* fields PATH, MODE: a file that follows is put before the program starts */
    CORDON_FRAME_FILE_DATA,
    CORDON_FRAME_FILE_CLOSE,
    CORDON_FRAME_COLLECT, /* fields LIMITS: return the artifacts of an ended exec */
    /* host to a kept guest; exec is the number of an operation (proto/kept.h) */
    CORDON_FRAME_SETUP = 16, /* exec 0; fields LIMITS, ENV…: once, first */
    CORDON_FRAME_OPEN,       /* fields, OPERATION among them: start an operation */
    CORDON_FRAME_WRITE,      /* u8 enum cordon_stream_to · bytes: within the window */
    CORDON_FRAME_WINDOW,     /* u32: so many more bytes of payload may be sent for it */
    CORDON_FRAME_CONTROL, /* u32 enum cordon_control · u32 value; exec 0: u32 enum cordon_kept_notice · u32 value */
    CORDON_FRAME_CLOSE,   /* the host is done with it; answered by CLOSED */
    /* host to a virtual machine (proto/vm.h) */
    CORDON_FRAME_VM_LEASE = 32, /* once, before all else */
    /* guest to host */
    CORDON_FRAME_HELLO = 64,    /* u32 version: sent once, first */
    CORDON_FRAME_STARTED,       /* the program has its code */
    CORDON_FRAME_STDOUT,        /* data */
    CORDON_FRAME_STDERR,        /* data */
    CORDON_FRAME_RESULT,        /* data: main's result as JSON, may come in several frames, complete at EXIT */
    CORDON_FRAME_RESULT_ERROR,  /* text: why there is no result */
    CORDON_FRAME_EXIT,          /* struct cordon_exit; all output of the exec came before */
    CORDON_FRAME_ARTIFACT_OPEN, /* fields PATH (the name), SIZE */
    CORDON_FRAME_ARTIFACT_DATA,
    CORDON_FRAME_ARTIFACT_CLOSE,
    CORDON_FRAME_ARTIFACT_DROPPED, /* fields PATH, REASON, SIZE */
    CORDON_FRAME_COLLECTED,        /* no more artifacts */
    CORDON_FRAME_ERROR,            /* fields CODE_NUMBER (errno), REASON, PATH: what was asked can not be done */
    CORDON_FRAME_STDIN_CREDIT,     /* u32 bytes: as much more stdin may be sent, beyond CORDON_STDIN_WINDOW */
    /* a kept guest to the host */
    CORDON_FRAME_READY = 96, /* u32 version · u32 epoch: first on each channel; what was open before is closed */
    CORDON_FRAME_RUNNING,    /* u32: how many programs run now; exec 0 */
    CORDON_FRAME_BEGAN,      /* u32 pid */
    CORDON_FRAME_OUTPUT,     /* u8 enum cordon_output · bytes */
    CORDON_FRAME_ENDED,      /* struct cordon_ended: all output came before */
    CORDON_FRAME_ENTRY,      /* fields: a file */
    CORDON_FRAME_CHANGE,     /* fields CHANGE, PATH, and those of an entry where there is one */
    CORDON_FRAME_INFO,       /* fields: a program */
    CORDON_FRAME_DISK,       /* u64 used · u64 total */
    CORDON_FRAME_DONE,       /* it went well */
    CORDON_FRAME_FAILED,     /* fields CODE_NUMBER, REASON */
    CORDON_FRAME_CLOSED,     /* nothing more comes of it: the number is free */
    CORDON_FRAME_TAKEN,      /* u8 enum cordon_stream_to · u32: so many more bytes may be written to it */
    CORDON_FRAME_PORT,       /* with the connected socket as SCM_RIGHTS */
    CORDON_FRAME_HALF,       /* a connection that is relayed: its server sends no more, and may still read */
    /* a virtual machine to the host */
    CORDON_FRAME_VM_READY = 120, /* warm, and waiting for its lease */
    CORDON_FRAME_VM_LEASED
};

struct cordon_frame {
    uint8_t type;
    uint16_t exec;
    uint32_t length;
    const char *payload; /* borrowed from the bytes that were parsed */
};

/* Looks at data: returns the whole size of the frame at its front with *frame filled when the frame is complete; 0
 * when more bytes are needed; -EBADMSG for a header that can not be (unknown type for that direction, reserved byte
 * set, too long). from_guest tells the direction. */
int64_t cordon_frame_parse(const char *data, size_t size, int from_guest, struct cordon_frame *frame);
/* Appends a frame; payload may be NULL when length is 0. */
int cordon_frame_put(struct cordon_buf *to, uint8_t type, uint16_t exec, const void *payload, uint32_t length);
/* The u32 at an offset of a frame's payload; 0 when the payload ends before it. */
uint32_t cordon_frame_u32(const struct cordon_frame *frame, size_t at);
void cordon_frame_header(char header[CORDON_FRAME_HEADER], uint8_t type, uint16_t exec, uint32_t length);

/* Fields: u8 tag · u32 length · bytes, repeated. */
enum cordon_field_tag {
    CORDON_FIELD_LANGUAGE = 1, /* text: python, javascript, bash */
    CORDON_FIELD_CODE,
    CORDON_FIELD_ARGUMENTS, /* JSON; present means that main is called */
    CORDON_FIELD_ENV,       /* NAME=VALUE, repeated */
    CORDON_FIELD_CWD,       /* absolute path in the guest; default the working directory */
    CORDON_FIELD_LIMITS,    /* struct cordon_exec_limits, packed by cordon_exec_limits_put */
    CORDON_FIELD_FLAGS,     /* u32 of enum cordon_exec_flags */
    CORDON_FIELD_PATH,
    CORDON_FIELD_MODE,        /* u32 permission bits */
    CORDON_FIELD_SIZE,        /* u64 */
    CORDON_FIELD_REASON,      /* text */
    CORDON_FIELD_CODE_NUMBER, /* u32 errno */
    CORDON_FIELD_TIMEOUT,     /* u64 microseconds: the agent ends the program then should the host be held up */
    CORDON_FIELD_COUNT,       /* u32: for how many artifacts an ARTIFACT_DROPPED stands; 1 when left out */
    CORDON_FIELD_SUFFIXES,    /* text "png,csv": what else COLLECT finds is no artifact */
    /* of kept guests */
    CORDON_FIELD_OPERATION = 32, /* u32 enum cordon_operation_kind, or of enum cordon_kept_operation */
    CORDON_FIELD_USER,           /* text */
    CORDON_FIELD_ARGUMENT,       /* text, repeated */
    CORDON_FIELD_TAG,            /* text */
    CORDON_FIELD_TERMINAL,       /* u32 cols << 16 | rows */
    CORDON_FIELD_PID,            /* u32 */
    CORDON_FIELD_REPLAY,         /* u32 */
    CORDON_FIELD_TARGET,         /* text: of a move, or of a link */
    CORDON_FIELD_OFFSET,         /* u64 */
    CORDON_FIELD_DEPTH,          /* u32 */
    CORDON_FIELD_ENTRIES,        /* u32 */
    CORDON_FIELD_PORT,           /* u32 */
    CORDON_FIELD_KILL,           /* u64: output that ends the program */
    CORDON_FIELD_TYPE,           /* u32 enum cordon_file_type */
    CORDON_FIELD_OWNER,          /* text */
    CORDON_FIELD_GROUP,          /* text */
    CORDON_FIELD_TIME,           /* u64 nanoseconds since 1970 */
    CORDON_FIELD_CHANGE,         /* u32 enum cordon_change */
    CORDON_FIELD_ENDED           /* struct cordon_ended; absent: it runs */
};

enum cordon_exec_flags {
    CORDON_EXEC_STDIN = 1,     /* STDIN frames follow; without it stdin is at its end */
    CORDON_EXEC_ARTIFACTS = 2, /* the host will ask to COLLECT: create artifacts/ */
    CORDON_EXEC_FLAT = 4 /* COLLECT looks into no folder but artifacts/, and prefers the working directory's files */
};

struct cordon_field {
    uint8_t tag;
    uint32_t length;
    const char *data;
};

/* Iterates: 1 and *field, 0 at the end, -EBADMSG when a field is cut. *at starts at 0. */
int cordon_field_next(const char *data, size_t size, size_t *at, struct cordon_field *field);
int cordon_field_put(struct cordon_buf *to, uint8_t tag, const void *data, uint32_t length);
int cordon_field_put_u32(struct cordon_buf *to, uint8_t tag, uint32_t value);
int cordon_field_put_u64(struct cordon_buf *to, uint8_t tag, uint64_t value);
/* 0, or -EBADMSG when the length is not that of the number. */
int cordon_field_u32(const struct cordon_field *field, uint32_t *ret);
int cordon_field_u64(const struct cordon_field *field, uint64_t *ret);

/* The limits that are held inside the guest. (Memory, pids and CPU are held by cgroups, time by the host.) */
struct cordon_exec_limits {
    uint64_t disk_bytes, disk_inodes; /* of the private tmpfs; 0: as mounted */
    uint64_t memory_bytes;            /* told to the guest: /proc/meminfo, V8's heap */
    uint64_t stdout_bytes, stderr_bytes, output_kill_bytes;
    uint64_t artifact_bytes, artifacts_bytes;
    uint32_t artifacts, open_files, cpu_percent;
};
int cordon_exec_limits_put(struct cordon_buf *to, const struct cordon_exec_limits *limits); /* as a LIMITS field */
int cordon_exec_limits_parse(const struct cordon_field *field, struct cordon_exec_limits *ret);

enum cordon_exit_how {
    CORDON_EXIT_EXITED = 0,       /* status is the exit code (for a forked interpreter: as its driver announced it) */
    CORDON_EXIT_SIGNALLED = 1,    /* status is the signal */
    CORDON_EXIT_OUTPUT_LIMIT = 2, /* the agent ended it: a stream passed output_kill_bytes */
    CORDON_EXIT_TIMEOUT = 3       /* the agent ended it: TIMEOUT was over and the host had not done so */
};

struct cordon_exit {
    uint32_t how;
    int32_t status;
    uint64_t stdout_bytes, stderr_bytes; /* written by the program, kept or not */
    uint32_t processes_left;             /* alive when the program had ended, then killed */
    uint32_t syscalls_denied;
    char blocked_syscall[32];    /* the last denied one, NUL-terminated */
    uint32_t may_have_artifacts; /* 0: nothing was written to the working directory, COLLECT would find none */
    /* As the control group in a virtual machine counted; 0 elsewhere, where the host counts. */
    uint32_t oom_kills;
    uint64_t cpu_us, memory_peak_bytes;
};
int cordon_exit_put(struct cordon_buf *to, uint16_t exec, const struct cordon_exit *exit); /* appends the whole frame */
int cordon_exit_parse(const struct cordon_frame *frame, struct cordon_exit *ret);          /* 0 or -EBADMSG */

/*
 * The driver channel: between the agent and the interpreter's driver (a close-on-exec SEQPACKET-free stream
 * socketpair, fd CORDON_DRIVER_FD in the interpreter). Agent to driver: one frame, the payload of EXEC verbatim,
 * type JOB; before it, in a virtual machine, RESEED and REHEARSE. Driver to agent: frames with the same 8 byte header,
 * of the types below.
 */
enum cordon_driver_frame {
    CORDON_DRIVER_JOB = 1,    /* to the driver: the fields of EXEC */
    CORDON_DRIVER_RESEED = 2, /* to the driver, empty, before the job: it may be one of several copies by now */
    CORDON_DRIVER_REHEARSE =
        3,                     /* to the driver, empty, before the job: a run's steps, without effect; then REHEARSED */
    CORDON_DRIVER_RESULT = 64, /* JSON text (may be several, joined) */
    CORDON_DRIVER_RESULT_ERROR, /* text */
    CORDON_DRIVER_LISTENER,     /* with the seccomp listener's fd attached (SCM_RIGHTS); sent before the job */
    CORDON_DRIVER_EXIT,         /* i32 exit code: streams are flushed; the process may be killed now */
    CORDON_DRIVER_REHEARSED     /* empty */
};

#define CORDON_DRIVER_RESULT_MAX (16u << 20) /* most bytes of one RESULT frame and of all of them together */

/* Reads the header of a frame that came from a driver (all of it is hostile): 0 with type and length in *frame and no
 * payload, or -EBADMSG. RESULT may be as long as CORDON_DRIVER_RESULT_MAX, so its payload is passed on piece by piece.
 */
int cordon_driver_header_parse(const char header[CORDON_FRAME_HEADER], struct cordon_frame *frame);

#endif
