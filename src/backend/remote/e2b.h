/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Private to the backends that speak E2B's protocol: what single runs (e2b.c) and kept guests (e2b_guest*.c) share. The
 * control plane makes and ends sandboxes; the agent in each, envd on port 49983, takes files and runs processes.
 */
#ifndef CORDON_BACKEND_REMOTE_E2B_H
#define CORDON_BACKEND_REMOTE_E2B_H

#include "backend/remote/remote.h"

#define CORDON_E2B_URL 512

/* One a backend. */
struct cordon_e2b_kind {
    const struct cordon_remote_service *service;
    enum cordon_setting key, template_name, api_url, sandbox_url, life;
    bool newest; /* knows POST /v2/sandboxes */
    const char *(*domain)(void);
    const char *(*scheme)(void);
    bool (*plain_http)(void); /* was allowed by a setting */
    uint64_t inside_good_until_us;
};
extern struct cordon_e2b_kind cordon_e2b_kind;

/* A sandbox; its secrets are to be wiped. */
struct cordon_e2b_box {
    char id[80], token[300], traffic[300], domain[200]; /* id: letters, digits and dashes; "": there is none */
    bool root;                                          /* as whom envd is called: root of the sandbox, else its user */
};

/* A call of the control plane, or of a sandbox's envd: url and headers must live as long as it. */
struct cordon_http_call cordon_e2b_api_call(const struct cordon_e2b_kind *kind, const char *method, const char *path,
                                            char url[CORDON_E2B_URL], struct cordon_remote_headers *headers);
struct cordon_http_call cordon_e2b_envd_call(const struct cordon_e2b_kind *kind, const struct cordon_e2b_box *box,
                                             const char *method, const char *path, const char *type,
                                             char url[CORDON_E2B_URL], struct cordon_remote_headers *headers);

struct cordon_e2b_wish {
    uint64_t life_s;
    bool network;
    const char *guest;      /* what is kept with it as metadata, to find it again; NULL: nothing */
    const char *const *env; /* "NAME=VALUE" of all its processes */
    size_t env_count;
    uint64_t deadline_us;
    int cancel_fd;
};
/* Without network, only where the service says that it has none. After an error the box may have an id: to be killed.
 */
int cordon_e2b_make(const struct cordon_e2b_kind *kind, const struct cordon_e2b_wish *wish, struct cordon_e2b_box *box,
                    struct cordon_error *err);
/* What an answer says of a sandbox. */
int cordon_e2b_take(const struct cordon_e2b_kind *kind, const struct cordon_http_answer *answer,
                    struct cordon_e2b_box *box, struct cordon_error *err);
/* Fine when it was gone. */
int cordon_e2b_kill(const struct cordon_e2b_kind *kind, const struct cordon_e2b_box *box, uint64_t deadline_us,
                    int cancel_fd, struct cordon_error *err);
/* The path of a file for an envd call: 0, or -ENAMETOOLONG with err. */
int cordon_e2b_file_path(const struct cordon_e2b_kind *kind, const char *user, const char *path,
                         char to[CORDON_E2B_URL], struct cordon_error *err);
/* A whole file. boundary: random. */
int cordon_e2b_upload(const struct cordon_e2b_kind *kind, struct cordon_http_call *call, const char *boundary,
                      struct cordon_bytes content, struct cordon_http_answer *answer, struct cordon_error *err);
/* The number of the signal in "signal: killed", as Go has it; 0: none. */
int cordon_e2b_signal(const char *status);

struct cordon_json;
/* Writes the member key: an object of "NAME=VALUE" texts. A failure is in json->buf->failed. */
void cordon_e2b_write_env(struct cordon_json *json, const char *key, const char *const *env, size_t count);

#endif
