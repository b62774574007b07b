/* SPDX-License-Identifier: Apache-2.0 */
/* What the files of envd's services share, and nobody else includes. */
#ifndef CORDON_E2B_ENVD_H
#define CORDON_E2B_ENVD_H

#include "base/json.h"
#include "core/guests.h"
#include "door/e2b/visit.h"
#include "door/fields.h"
#include "http/request.h"

#define CORDON_E2B_KEEPALIVE_S 90 /* where the client names no interval */

static inline const struct cordon_e2b_visit *cordon_e2b_visit(const struct cordon_http_request *request)
{
    return request->admitted;
}

/* The user that the request names (HTTP Basic, or for /files the query): "user", "root", or UNAUTHENTICATED. */
int cordon_e2b_user(const struct cordon_http_request *request, const char **ret, struct cordon_error *err);
/* The same for a name; NULL or "": the default one. */
int cordon_e2b_user_named(const char *name, const char **ret, struct cordon_error *err);

/* A unary call's message, and its answer. */
int cordon_e2b_message(const struct cordon_http_request *request, struct cordon_value *ret, struct cordon_error *err);
int cordon_e2b_answer(struct cordon_http_request *request, struct cordon_buf *body, struct cordon_error *err);
int cordon_e2b_answer_empty(struct cordon_http_request *request, struct cordon_error *err);
/* The message of a call that is answered by a stream. */
int cordon_e2b_stream_message(const struct cordon_http_request *request, struct cordon_value *ret,
                              struct cordon_error *err);

/* A path as the protocol has it, in the words of core's operations: "" and "~" are the home; "~/x" is below it; "~x" is
 * INVALID. */
int cordon_e2b_path(const char *text, const char **ret, struct cordon_error *err);
int cordon_e2b_path_field(const struct cordon_value *message, const char *name, struct cordon_door_memory *memory,
                          const char **ret, struct cordon_error *err);

/* EntryInfo as a JSON object. */
void cordon_e2b_tell_entry(struct cordon_json *json, const struct cordon_file_entry *entry);

/* A stream of core's told as a stream of envelopes. */
struct cordon_e2b_outlet {
    struct cordon_live_stream *live;
    int keepalive_ms;
    bool ended;
    const char *keepalive; /* the message that is sent when nothing happens */
    /* Writes an event as messages: 0; 1: and it was the last one; 2: and the end as well; negative with err: the stream
     * ends with that. */
    int (*tell)(struct cordon_e2b_outlet *outlet, const struct cordon_stream_event *event, struct cordon_buf *to,
                struct cordon_error *err);
    bool pty;      /* the program's output is a terminal's */
    bool entries;  /* changes are told with the file's entry */
    bool starting; /* no program runs yet: what is not found then is a fault of the call */
};
/* Opens the operation, and answers with its events from then on. outlet: a template, copied. */
int cordon_e2b_stream(struct cordon_http_request *request, const struct cordon_operation *operation,
                      const struct cordon_e2b_outlet *outlet, struct cordon_error *err);
/* One message in its envelope. */
void cordon_e2b_envelope_text(struct cordon_buf *to, const char *message);

cordon_http_handler cordon_e2b_process_start, cordon_e2b_process_connect, cordon_e2b_process_list,
    cordon_e2b_process_input, cordon_e2b_process_signal, cordon_e2b_process_close_stdin, cordon_e2b_process_update,
    cordon_e2b_fs_stat, cordon_e2b_fs_mkdir, cordon_e2b_fs_move, cordon_e2b_fs_list, cordon_e2b_fs_remove,
    cordon_e2b_fs_watch, cordon_e2b_watcher_create, cordon_e2b_watcher_events, cordon_e2b_watcher_remove,
    cordon_e2b_files_get, cordon_e2b_files_post;
extern const struct cordon_http_intake cordon_e2b_files_intake;

#endif
