/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What an agent says, checked: pure, no I/O, fuzzed. An agent that was taken over by the code it runs may send
 * anything, so nothing here trusts it to be in order, within its limits, or honest about sizes; the first frame that
 * a sound agent could not have sent is a violation, and ends the run.
 */
#ifndef CORDON_GUEST_READER_H
#define CORDON_GUEST_READER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"
#include "proto/frame.h"

enum cordon_guest_state {
    CORDON_GUEST_GREETING = 0,
    CORDON_GUEST_RUNNING,
    CORDON_GUEST_EXITED,
    CORDON_GUEST_COLLECTED
};

struct cordon_guest_caps {
    uint64_t stdout_bytes, stderr_bytes, artifact_bytes, artifacts_bytes;
    uint32_t artifacts;
};

struct cordon_guest_reader {
    enum cordon_guest_state state;
    uint16_t exec;
    struct cordon_guest_caps caps;
    uint64_t kept[2]; /* of stdout and stderr */
    bool started;
    struct cordon_buf result;
    char result_error[256];
    struct cordon_exit exit;    /* from CORDON_GUEST_EXITED on */
    bool collecting;            /* COLLECT was sent: artifacts may come */
    struct cordon_buf artifact; /* the one under way */
    uint64_t artifact_size;
    bool artifact_open;
    char name[256], reason[256]; /* of the last artifact or dropped one; reason also of an error */
    uint64_t size;
    uint32_t count; /* for how many the last dropped one stands */
    uint32_t artifacts, dropped_frames;
    uint32_t dropped; /* artifacts that those frames stand for */
    uint64_t artifacts_bytes;
    int error_code;        /* errno of an ERROR frame */
    bool error_of_files;   /* it was about files that were put, not about the program */
    const char *violation; /* what a sound agent would not have done */
};

enum cordon_guest_event_type {
    CORDON_GUEST_MORE = 0, /* more bytes are needed */
    CORDON_GUEST_QUIET,    /* a frame was taken in; nothing to tell */
    CORDON_GUEST_STARTED,
    CORDON_GUEST_OUTPUT, /* data; stream 0 or 1 */
    CORDON_GUEST_WINDOW, /* bytes: as much more stdin may be sent */
    CORDON_GUEST_EXIT,
    CORDON_GUEST_ARTIFACT, /* reader->name, reader->artifact */
    CORDON_GUEST_DROPPED,  /* reader->name, reader->reason, reader->size */
    CORDON_GUEST_END,      /* COLLECTED */
    CORDON_GUEST_REFUSED,  /* ERROR: reader->reason, reader->error_code */
    CORDON_GUEST_VIOLATION
};

struct cordon_guest_event {
    enum cordon_guest_event_type type;
    int stream;
    const char *data; /* borrowed from what was read */
    size_t size;      /* of data; for WINDOW its bytes */
};

void cordon_guest_reader_init(struct cordon_guest_reader *reader, uint16_t exec, const struct cordon_guest_caps *caps);
void cordon_guest_reader_done(struct cordon_guest_reader *reader);
/* Takes the frame at the front of data; *used is its size, 0 with MORE. */
struct cordon_guest_event cordon_guest_reader_next(struct cordon_guest_reader *reader, const char *data, size_t size,
                                                   size_t *used);

#endif
