/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Private to kept guests on CreateOS: createos_guest.c has their lives, createos_stream.c operations and programs,
 * createos_files.c files. The service runs commands and moves whole files; what else there is of files and programs is
 * done by commands of ours, in the sandbox's own shell.
 */
#ifndef CORDON_BACKEND_REMOTE_CREATEOS_GUEST_H
#define CORDON_BACKEND_REMOTE_CREATEOS_GUEST_H

#include "backend/remote/createos.h"
#include "backend/remote/kept.h"

#define CORDON_CREATEOS_CALL_US 30000000u

struct cordon_guest_handle {
    struct cordon_remote_kept kept; /* the first, as kept.h wants it */
    char id[80];
};

struct cordon_stream {
    struct cordon_guest_handle *guest;
    enum cordon_operation_kind kind;
    int cancel_fd;
    bool ended;
    /* programs */
    struct cordon_createos_exec exec;
    char nonce[33];                   /* which its first line shows, and its environment */
    struct cordon_remote_output rest; /* what came behind that line */
    uint32_t pid;
    bool began;
    uint64_t opened_us, deadline_us, kill_bytes; /* deadline_us: 0: none */
    enum cordon_cause cause;                     /* why we ended it; EXITED: we did not */
    struct cordon_exec_exit exit;
    /* files */
    char path[4096]; /* absolute */
    uint32_t mode;
    struct cordon_remote_range range; /* READ */
    uint64_t left;                    /* LIST: of the entries that were asked for */
    struct cordon_http_transfer *transfer;
    struct cordon_buf content; /* to be written; or entries, to be told one by one */
    size_t held;               /* of what all uploads may hold */
    size_t told;
    struct cordon_file_entry entry;
    bool entry_told;
};

/* createos_guest.c */
int cordon_createos_guest_create(const struct cordon_guest_spec *spec, struct cordon_guest_handle **ret,
                                 struct cordon_error *err);
int cordon_createos_guest_adopt(const char *id, int cancel_fd, struct cordon_guest_handle **ret,
                                struct cordon_error *err);
void cordon_createos_guest_release(struct cordon_guest_handle *guest);
int cordon_createos_guest_destroy(struct cordon_guest_handle *guest, struct cordon_error *err);
int cordon_createos_guest_pause(struct cordon_guest_handle *guest, enum cordon_pause how, struct cordon_error *err);
int cordon_createos_guest_resume(struct cordon_guest_handle *guest, struct cordon_error *err);
enum cordon_guest_condition cordon_createos_guest_condition(struct cordon_guest_handle *guest);
int cordon_createos_guest_watch(struct cordon_guest_handle *guest);
const char *cordon_createos_guest_remote(struct cordon_guest_handle *guest);
void cordon_createos_guests_stop(void);
/* What an answer that is no success means for an operation. */
int cordon_createos_guest_refused(struct cordon_guest_handle *guest, const char *what, unsigned status,
                                  const struct cordon_buf *body, struct cordon_error *err);
/* A sandbox that the service has paused by itself answers 409: true when it runs again, and the call may be repeated.
 */
bool cordon_createos_guest_woke(struct cordon_guest_handle *guest, unsigned status);

/* createos_stream.c */
int cordon_createos_stream_open(struct cordon_guest_handle *guest, const struct cordon_operation *operation,
                                struct cordon_stream **ret, struct cordon_error *err);
int cordon_createos_stream_next(struct cordon_stream *stream, int timeout_ms, struct cordon_stream_event *event,
                                struct cordon_error *err);
int cordon_createos_stream_write(struct cordon_stream *stream, enum cordon_stream_to to, const void *data, size_t size,
                                 struct cordon_error *err);
int cordon_createos_stream_control(struct cordon_stream *stream, enum cordon_control control, uint32_t value,
                                   struct cordon_error *err);
void cordon_createos_stream_close(struct cordon_stream *stream);
int cordon_createos_execs(struct cordon_guest_handle *guest,
                          void (*each)(void *context, const struct cordon_exec_info *exec), void *context,
                          struct cordon_error *err);

/* Where libc's words for a failure stand in it: true, and err's code and kind are that failure's. */
bool cordon_createos_words(const char *said, struct cordon_error *err);

/* createos_command.c: a command of ours, to its end. What it wrote to stdout is in *out (bounded by its max); a status
 * other than 0 is an error, by what it wrote to stderr in libc's words. */
int cordon_createos_command(struct cordon_guest_handle *guest, const struct cordon_buf *command, int cancel_fd,
                            struct cordon_buf *out, struct cordon_error *err);
/* Starts one, waking a sandbox that the service has paused. */
int cordon_createos_command_open(struct cordon_guest_handle *guest, struct cordon_createos_exec *exec,
                                 const char *command, uint64_t deadline_us, int cancel_fd, struct cordon_error *err);

/* createos_files.c */
int cordon_createos_file_open(struct cordon_stream *stream, const struct cordon_operation *operation,
                              struct cordon_error *err);
int cordon_createos_file_next(struct cordon_stream *stream, int timeout_ms, struct cordon_stream_event *event,
                              struct cordon_error *err);
/* Sends what was written; then its entry can be told. */
int cordon_createos_file_end(struct cordon_stream *stream, struct cordon_error *err);

#endif
