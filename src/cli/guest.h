/* SPDX-License-Identifier: Apache-2.0 */
/* `cordon guest ACTION`: what its actions share. All of them ask the daemon of the state folder. */
#ifndef CORDON_CLI_GUEST_H
#define CORDON_CLI_GUEST_H

#include "base/json.h"
#include "cli/daemon.h"
#include "cli/run_options.h"

/* The options of all actions; each takes those that mean something to it. */
struct cordon_guest_options {
    const char *state;
    const char *backend, *template_name, *memory_mb, *disk_mb, *ttl_s, *idle;
    const char *name, *user, *cwd, *timeout_s, *stdin_file, *language, *context, *code, *mode;
    struct cordon_words env, domains, headers, metadata;
    bool network, off, json, all, forget, auto_resume, background;
    int argc; /* what follows the options */
    char **argv;
};

struct cordon_guest_call {
    const struct cordon_guest_options *options;
    struct cordon_settings *settings;
};

typedef int cordon_guest_action(struct cordon_guest_call *call, struct cordon_error *err);

/* A connection to the daemon; an error when there is none: guests live with it. */
int cordon_guest_connect(struct cordon_guest_call *call, struct cordon_error *err);
/* A whole exchange: the answer's body is appended to reply (may be NULL) when its status is below 300, else err. */
int cordon_guest_ask(struct cordon_guest_call *call, const char *method, const char *path,
                     const struct cordon_buf *body, struct cordon_buf *reply, struct cordon_error *err);
/* Appends /v1/guests/NAME and rest; the name is checked. */
int cordon_guest_path(struct cordon_buf *to, const char *name, const char *rest, struct cordon_error *err);
/* Appends text as a part of a query. */
void cordon_guest_escape(struct cordon_buf *to, const char *text);
/* "90", "15m", "6h", "7d": seconds. */
int cordon_guest_duration(const char *text, const char *option, double *ret, struct cordon_error *err);

/* A member, where there is text; one of "NAME=VALUE" words, where there are any. */
void cordon_guest_write_text(struct cordon_json *json, const char *key, const char *text);
void cordon_guest_write_pairs(struct cordon_json *json, const char *key, const struct cordon_words *words);

/* guest_life.c, guest_egress.c, guest_exec.c, guest_files.c */
cordon_guest_action cordon_guest_do_create, cordon_guest_do_list, cordon_guest_do_show, cordon_guest_do_pause,
    cordon_guest_do_resume, cordon_guest_do_extend, cordon_guest_do_rm, cordon_guest_do_log;
cordon_guest_action cordon_guest_do_egress;
cordon_guest_action cordon_guest_do_exec, cordon_guest_do_ps, cordon_guest_do_cell;
cordon_guest_action cordon_guest_do_put, cordon_guest_do_get, cordon_guest_do_ls;

/* What exec and cell end with when it is not an error; set by them. */
extern int cordon_guest_status;

#endif
