/* SPDX-License-Identifier: Apache-2.0 */
/* A program that a request asks for in a guest, and its answer: that of POST /v1/runs. */
#ifndef CORDON_DOOR_GUEST_PROGRAM_H
#define CORDON_DOOR_GUEST_PROGRAM_H

#include <cordon/reuse.h>

#include "core/run.h"
#include "door/guests/guests.h"

struct cordon_guest_asked {
    struct cordon_door_memory memory;
    char guest[CORDON_GUEST_ID];
    struct cordon_program_request program;
    struct cordon_limits limits; /* of what is kept of its output */
    struct cordon_texts env;
    struct cordon_buf input;
    bool timeout_given;
    struct cordon_run_request run; /* where the body is that of a run */
    bool has_run;
};

/* The members that all have: stdin, stdin_b64, env, cwd, user, timeout_s. */
int cordon_guest_asked_common(const struct cordon_http_request *request, const struct cordon_value *body,
                              struct cordon_guest_asked *asked, struct cordon_error *err);
/* Runs it and replies: as NDJSON where that is accepted, else whole. */
int cordon_guest_asked_run(struct cordon_http_request *request, struct cordon_guest_asked *asked,
                           struct cordon_error *err);
void cordon_guest_asked_done(struct cordon_guest_asked *asked);

#endif
