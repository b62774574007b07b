/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Private to operations in kept guests on E2B: e2b_stream.c opens and closes them and makes envd's unary calls,
 * e2b_program.c has programs, e2b_files.c files.
 */
#ifndef CORDON_BACKEND_REMOTE_E2B_STREAM_H
#define CORDON_BACKEND_REMOTE_E2B_STREAM_H

#include "backend/remote/e2b_entry.h"
#include "backend/remote/e2b_guest.h"

#define CORDON_E2B_PROCESS "/process.Process/"
#define CORDON_E2B_FILESYSTEM "/filesystem.Filesystem/"
#define CORDON_E2B_CALL_US 20000000u

/* As errors name the service. */
#define CORDON_E2B_TITLE(stream) ((stream)->guest->kind->service->title)

struct cordon_stream {
    struct cordon_guest_handle *guest;
    enum cordon_operation_kind kind;
    int cancel_fd;
    bool root, pty, kill_on_close, began, ended;
    /* programs */
    struct cordon_http_transfer *transfer;
    struct cordon_buf in, decoded;
    size_t held; /* of what all uploads may hold; WRITE */
    size_t in_used;
    uint32_t pid;
    uint64_t opened_us, deadline_us, kill_bytes; /* deadline_us: 0: none */
    enum cordon_cause cause;                     /* why we ended it; EXITED: we did not */
    struct cordon_exec_exit exit;
    /* files */
    char path[4096];
    struct cordon_remote_range range; /* READ */
    uint64_t left;                    /* LIST: of the entries that were asked for */
    struct cordon_buf answer;         /* whose entries are told one by one */
    struct cordon_value_walk walk;
    struct cordon_e2b_entry entry;
    bool entry_told;
};

/* An answer that is no success, in the words of the interface. */
int cordon_e2b_fail(struct cordon_guest_handle *guest, const char *what, const struct cordon_http_answer *answer,
                    struct cordon_error *err);
/* A call of envd's; safe: it may be sent twice. The answer's body is the caller's to free, also after an error. */
int cordon_e2b_unary(const struct cordon_stream *stream, const char *path, const struct cordon_buf *body, bool safe,
                     struct cordon_http_answer *answer, struct cordon_error *err);
int cordon_e2b_unreadable(const struct cordon_stream *stream, struct cordon_error *err);

int cordon_e2b_program_open(struct cordon_stream *stream, const struct cordon_operation *operation,
                            struct cordon_error *err);
int cordon_e2b_program_next(struct cordon_stream *stream, int timeout_ms, struct cordon_stream_event *event,
                            struct cordon_error *err);
int cordon_e2b_program_write(struct cordon_stream *stream, const char *data, size_t size, struct cordon_error *err);
int cordon_e2b_program_control(struct cordon_stream *stream, enum cordon_control control, uint32_t value,
                               struct cordon_error *err);

/* What a call of the filesystem service answers: its entries are told by cordon_e2b_entries_next. */
int cordon_e2b_entries_open(struct cordon_stream *stream, const char *method, const struct cordon_operation *operation,
                            bool safe, struct cordon_error *err);
int cordon_e2b_entries_next(struct cordon_stream *stream, struct cordon_stream_event *event, struct cordon_error *err);
int cordon_e2b_read_open(struct cordon_stream *stream, const struct cordon_operation *operation,
                         struct cordon_error *err);
int cordon_e2b_read_next(struct cordon_stream *stream, int timeout_ms, struct cordon_stream_event *event,
                         struct cordon_error *err);
/* Sends what was written; then its entry can be told. */
int cordon_e2b_write_end(struct cordon_stream *stream, struct cordon_error *err);

#endif
