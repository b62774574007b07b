/* SPDX-License-Identifier: Apache-2.0 */
/* Private to `tenki`: tenki_calls.c has the calls of both planes, tenki.c the backend. */
#ifndef CORDON_BACKEND_REMOTE_TENKI_H
#define CORDON_BACKEND_REMOTE_TENKI_H

#include "backend/remote/remote.h"

struct cordon_tenki_state {
    char id[128], credential[4096], endpoint[300];
    struct cordon_buf out, errors, file;
    int exit_code;
    bool timed_out;
    uint64_t ended_us;
    int stage; /* of exec_next: stdout, stderr, exit, end */
    bool file_given;
};

extern const struct cordon_remote_service cordon_tenki_service;

struct cordon_json;

/* A call of the control plane: 0 with a good answer. The answer's body is the caller's to free, also after an error. */
int cordon_tenki_control(struct cordon_http_call *call, const char *method, const struct cordon_buf *body,
                         struct cordon_http_answer *answer, struct cordon_error *err);
/* {"sessionId":… begun; the caller adds what else there is. */
void cordon_tenki_begin(struct cordon_json *json, const struct cordon_tenki_state *state);
/* GetSession, CreateSessionCredential, TerminateSession: they take the session's id and nothing else. */
int cordon_tenki_session(struct cordon_run *run, const char *method, enum cordon_http_retry retry,
                         struct cordon_http_answer *answer, struct cordon_error *err);
/* A call of the session's own data plane, as the two above. */
int cordon_tenki_data(struct cordon_run *run, const char *method, const struct cordon_buf *body, size_t answer_max,
                      struct cordon_http_answer *answer, struct cordon_error *err);
/* What an answer says of credential and address of the data plane; a new credential. */
void cordon_tenki_credential(struct cordon_tenki_state *state, const struct cordon_value *root);
int cordon_tenki_mint(struct cordon_run *run, struct cordon_error *err);

#endif
