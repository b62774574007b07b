/* SPDX-License-Identifier: Apache-2.0 */
/* What the files of the native door to kept guests share: /v1/guests and all below. */
#ifndef CORDON_DOOR_GUEST_H
#define CORDON_DOOR_GUEST_H

#include "base/json.h"
#include "core/guests.h"
#include "door/door.h"
#include "door/fields.h"

#define CORDON_GUEST_PATH_MAX 4096u

/* The tenant that the request speaks for when it makes something; when it looks for something, who sits at the machine
 * or at the admin page is the operator and sees all. */
const char *cordon_guest_tenant(const struct cordon_http_request *request);
const char *cordon_guest_viewer(const struct cordon_http_request *request);

/* The guest that the path names, by id or by name. */
int cordon_guest_of(const struct cordon_http_request *request, char id[CORDON_GUEST_ID], struct cordon_error *err);
int cordon_guest_object_of(const struct cordon_http_request *request, struct cordon_guest_info **ret,
                           struct cordon_error *err);

void cordon_guest_write(struct cordon_json *json, const struct cordon_guest_info *info);
/* cause, exit_code, signal, run_ms. */
void cordon_guest_exit_write(struct cordon_json *json, const struct cordon_exec_exit *exit);
/* The program that the path names, by its pid. */
int cordon_guest_pid_of(const struct cordon_http_request *request, uint32_t *ret, struct cordon_error *err);
/* Milliseconds of a member in seconds (fractions allowed): 1, 0 when it is not there, or negative. */
int cordon_guest_seconds(const struct cordon_value *object, const char *name, double max_s, uint64_t *ret_ms,
                         struct cordon_error *err);

/* Of a body: network, allowed_domains, egress_headers. */
int cordon_guest_read_network(const struct cordon_value *body, struct cordon_door_memory *memory,
                              struct cordon_guest_network *ret, struct cordon_error *err);
/* The members that tell of them; of headers only how many there are. */
void cordon_guest_write_network(struct cordon_json *json, const struct cordon_guest_info *info);
/* 200 and the guest as it is now. */
int cordon_guest_reply_now(struct cordon_http_request *request, const char *id, struct cordon_error *err);

/* A JSON reply: begin, write, send. */
struct cordon_guest_reply {
    struct cordon_buf body;
    struct cordon_json json;
};
void cordon_guest_reply_begin(struct cordon_guest_reply *reply);
int cordon_guest_reply_send(struct cordon_http_request *request, int status, struct cordon_guest_reply *reply,
                            struct cordon_error *err);
int cordon_guest_reply_nothing(struct cordon_http_request *request, struct cordon_error *err); /* 204 */

/* Handlers, one file each group. */
cordon_http_handler cordon_guest_create_post, cordon_guest_list_get, cordon_guest_get, cordon_guest_delete,
    cordon_guest_pause_post, cordon_guest_resume_post, cordon_guest_extend_post, cordon_guest_metrics_get,
    cordon_guest_notes_get;                                                                         /* life.c, list.c */
cordon_http_handler cordon_guest_network_put, cordon_guest_egress_get, cordon_guest_egress_log_get; /* egress.c */
cordon_http_handler cordon_guest_exec_post, cordon_guest_execs_get, cordon_guest_signal_post;       /* exec.c */
cordon_http_handler cordon_guest_terminal_post, cordon_guest_input_post, cordon_guest_resize_post;  /* terminal.c */
cordon_http_handler cordon_guest_run_post, cordon_guest_reuse_post;                                 /* run.c */
cordon_http_handler cordon_guest_file_get, cordon_guest_file_put, cordon_guest_file_delete, cordon_guest_entries_get,
    cordon_guest_move_post, cordon_guest_mkdir_post; /* files.c */
cordon_http_handler cordon_guest_contexts_get, cordon_guest_context_post, cordon_guest_context_get,
    cordon_guest_context_delete, cordon_guest_context_restart, cordon_guest_context_interrupt; /* contexts.c */
cordon_http_handler cordon_guest_cell_post;                                                    /* cells.c */
extern const struct cordon_http_intake cordon_guest_file_intake;

#define CORDON_GUEST_SCHEMAS 27u
extern const struct cordon_http_schema cordon_guest_schemas[CORDON_GUEST_SCHEMAS];

#endif
