/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The admin door: the page under /admin, what it asks under /v1/admin (for scripts with an admin or view key as well),
 * and RAGFlow's routes under /api/v1/admin/sandbox. Handlers are grouped by what they are about, one file each.
 */
#ifndef CORDON_DOOR_ADMIN_H
#define CORDON_DOOR_ADMIN_H

#include "core/run.h"
#include "core/value.h"
#include "door/door.h"
#include "store/admin.h"

/* login.c */
cordon_http_handler cordon_admin_login, cordon_admin_logout, cordon_admin_session;
/* page.c */
cordon_http_handler cordon_admin_page, cordon_admin_file;
/* settings.c */
cordon_http_handler cordon_admin_settings_get, cordon_admin_settings_put;
/* records.c */
cordon_http_handler cordon_admin_audit_get, cordon_admin_history_get, cordon_admin_history_one;
/* doctor.c, quotas.c */
cordon_http_handler cordon_admin_doctor_get, cordon_admin_quotas_get;
/* keys.c */
cordon_http_handler cordon_admin_keys_get, cordon_admin_keys_post, cordon_admin_keys_delete;
/* trial.c */
cordon_http_handler cordon_admin_trial_post;
/* ragflow.c */
cordon_http_handler cordon_admin_providers_get, cordon_admin_schema_get, cordon_admin_config_get,
    cordon_admin_config_post, cordon_admin_test_post;

/* What a form shows of a secret that is set; one that comes back with it leaves the secret alone. */
#define CORDON_ADMIN_MASK "\u2022\u2022\u2022\u2022\u2022\u2022"

/* Who asks, for the audit log: the key's id, "link" for a session without one, "local" on the unix socket. */
const char *cordon_admin_who(const struct cordon_http_request *request);

/* Replies 200 with what was written, and a line's end. */
int cordon_admin_reply(struct cordon_http_request *request, struct cordon_buf *body, struct cordon_error *err);

/* The request's body as a JSON object. */
int cordon_admin_body(struct cordon_http_request *request, struct cordon_value *ret, struct cordon_error *err);
/* A member of an object; false: there is none. */
bool cordon_admin_member(const struct cordon_value *object, const char *name, struct cordon_value *ret);
/* A member that is a string, NUL-terminated: NOT there is "" . INVALID when it is something else, holds a NUL, or does
 * not fit. */
int cordon_admin_text(const struct cordon_value *object, const char *name, char *to, size_t room,
                      struct cordon_error *err);

/* Whole numbers of the query; otherwise is returned where there is none. INVALID: no such number. */
int cordon_admin_number(const struct cordon_http_request *request, const char *name, int64_t otherwise, int64_t most,
                        int64_t *ret, struct cordon_error *err);

/* --- changes of settings: settings.c --- */

struct cordon_admin_changes {
    struct cordon_setting_change *rows;
    size_t count;
    char **texts; /* what rows point to */
    size_t text_count;
};

/* From an object of names and values (texts, numbers, booleans, lists of texts; null: forget). */
int cordon_admin_changes_read(const struct cordon_value *values, struct cordon_admin_changes *ret, char field[80],
                              struct cordon_error *err);
int cordon_admin_changes_add(struct cordon_admin_changes *changes, const char *name, const char *value,
                             struct cordon_error *err);
void cordon_admin_changes_done(struct cordon_admin_changes *changes);
/* Checks them as a whole, with what is stored already; stores and applies them. */
int cordon_admin_changes_apply(const struct cordon_http_request *request, const struct cordon_admin_changes *changes,
                               struct cordon_error *err);
/* The stored settings with the changes in them, as NAME=VALUE, for cordon_settings_store and _trial_begin. Free with
 * cordon_admin_pairs_free. */
int cordon_admin_pairs(struct cordon_store *store, const struct cordon_admin_changes *changes, char ***ret,
                       struct cordon_error *err);
void cordon_admin_pairs_free(char **pairs);

/* --- where secrets are sent to: places.c --- */

#define CORDON_ADMIN_PLACES 8u
/* Each secret of a provider's, and what says where it goes, as they are for the calling thread. Wiped by _done. */
struct cordon_admin_places {
    struct cordon_buf secrets[CORDON_ADMIN_PLACES], places[CORDON_ADMIN_PLACES];
};
void cordon_admin_places_read(const struct cordon_settings *settings, struct cordon_admin_places *ret);
/* INVALID where a secret that stays the same would go to another place: who may try settings is not told secrets. */
int cordon_admin_places_check(const struct cordon_admin_places *before, const struct cordon_admin_places *after,
                              struct cordon_error *err);
void cordon_admin_places_done(struct cordon_admin_places *places);

/* --- the test program: trial.c --- */

struct cordon_admin_trial {
    bool passed;
    int exit_code;
    uint64_t total_us;
    struct cordon_buf output, errors; /* stdout, stderr; at most some KiB each */
    char message[768];
    char cause[24];
};

/* What is tested. Whatever thread runs it must not outlive the request. */
struct cordon_admin_trial_order {
    const struct cordon_settings *settings;
    char backend[64], subject[32];
    int cancel_fd;
    char **pairs; /* what is stored with the form's changes in it, NAME=VALUE */
};

/* Reads what is stored, with the changes over it, and records it in the audit log. INVALID: together they are no
 * settings, or would take a stored secret to another address. On success free with _done. */
int cordon_admin_trial_order(const struct cordon_http_request *request, const char *backend,
                             const struct cordon_admin_changes *changes, struct cordon_admin_trial_order *ret,
                             struct cordon_error *err);
void cordon_admin_trial_order_done(struct cordon_admin_trial_order *order);

/* What is told of a test while it happens: "probing", "connected" (the backend is there, and policy lets the program
 * run), then the run's events, with step NULL. */
struct cordon_admin_trial_watch {
    void (*tell)(void *context, const char *step, const struct cordon_event *event);
    void *context;
};

/* Runs the test program with the order's settings, which count for the calling thread alone. What went wrong is in
 * ret->message. watch: may be NULL. */
void cordon_admin_trial_run(const struct cordon_admin_trial_order *order, const struct cordon_admin_trial_watch *watch,
                            struct cordon_admin_trial *ret);
void cordon_admin_trial_done(struct cordon_admin_trial *trial);
/* Its members, into an object that was begun. */
void cordon_admin_trial_write(const struct cordon_admin_trial *trial, struct cordon_json *json);

/* trial_stream.c: replies with the test as lines of JSON while it happens. Takes what is in order in any case. */
int cordon_admin_trial_stream(struct cordon_http_request *request, struct cordon_admin_trial_order *order,
                              struct cordon_error *err);

#endif
