/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The guest protocol of kept guests: what is in the frames from CORDON_FRAME_SETUP and CORDON_FRAME_READY on. Pure.
 * docs/protocol/guest.md, "Kept guests", has the rules.
 */
#ifndef CORDON_PROTO_KEPT_H
#define CORDON_PROTO_KEPT_H

#include <cordon/backend.h>

#include "proto/frame.h"

#define CORDON_KEPT_VERSION 2u
#define CORDON_KEPT_WINDOW (256u << 10)   /* bytes that the guest may send unasked for an operation */
#define CORDON_KEPT_WRITE_MAX (64u << 10) /* bytes that the host may write unasked, to each end of an operation */
#define CORDON_KEPT_REPLAY_MAX (64u << 10)
#define CORDON_KEPT_PATH_MAX 4096u
#define CORDON_KEPT_TAG_MAX 64u /* with its NUL */

/* What a frame of the guest takes of its operation's window: all of its bytes, since the host keeps all of them; 0 of
 * those that come once in an operation. A frame may be sent while there is any window left. */
uint32_t cordon_kept_cost(uint8_t type, uint32_t length);

/* Operations that no door asks for in these words. */
enum cordon_kept_operation {
    CORDON_KEPT_OP_EXECS = 100, /* INFO for each program, DONE */
    CORDON_KEPT_OP_PORT         /* field PORT: PORT with the socket, or FAILED */
};

enum cordon_kept_notice {                        /* CONTROL with exec 0 */
                          CORDON_KEPT_PAUSED = 1 /* value 1: the code is about to be frozen, 0: it runs again */
};

enum cordon_output { CORDON_OUTPUT_STDOUT = 1, CORDON_OUTPUT_STDERR, CORDON_OUTPUT_CHANNEL, CORDON_OUTPUT_FILE };

enum cordon_open_flags { /* of the FLAGS field */
                         CORDON_OPEN_STDIN = 1,
                         CORDON_OPEN_CHANNEL = 2,
                         CORDON_OPEN_KILL = 4, /* kill_on_close */
                         CORDON_OPEN_RECURSIVE = 8
};

/* The fields of OPEN. Failures stick in to->failed. */
void cordon_operation_put(struct cordon_buf *to, const struct cordon_operation *operation);

/* What an agent or a worker reads of it. Texts point into the payload and are not terminated. */
struct cordon_open {
    uint32_t kind, flags, terminal, pid, replay, mode, depth, entries, port;
    uint64_t timeout_us, output_kill_bytes, offset, size;
    struct cordon_field user, cwd, tag, path, target; /* data NULL: not there */
    size_t arguments, environment;                    /* how many */
};
/* 0, or -EBADMSG: a malformed payload. */
int cordon_open_parse(const char *payload, size_t size, struct cordon_open *ret);

enum cordon_ended_how {
    CORDON_ENDED_EXITED = 0, /* status is the exit code */
    CORDON_ENDED_SIGNALLED,  /* status is the signal */
    CORDON_ENDED_OUTPUT,     /* the agent killed it for its output */
    CORDON_ENDED_TIMEOUT,    /* … when its time was over */
    CORDON_ENDED_KILLED      /* … because the host said so */
};
#define CORDON_ENDED_SIZE 36u
struct cordon_ended {
    uint32_t how;
    int32_t status;
    uint64_t run_us, stdout_bytes, stderr_bytes;
    uint32_t oom_kills; /* while it ran, in a virtual machine; 0 elsewhere, where the host counts */
};
void cordon_ended_write(char to[CORDON_ENDED_SIZE], const struct cordon_ended *ended);
int cordon_ended_read(const char *data, size_t size, struct cordon_ended *ret); /* 0 or -EBADMSG */

#endif
