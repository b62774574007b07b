/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Private to the backends that speak E2B's protocol: what single runs (e2b.c) and kept guests (e2b_guest*.c) share. The
 * control plane makes and ends sandboxes; the agent in each, envd on port 49983, takes files and runs processes.
 */
#ifndef CORDON_BACKEND_REMOTE_E2B_H
#define CORDON_BACKEND_REMOTE_E2B_H

#include "backend/remote/kept.h"
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
    struct cordon_remote_keeper *keeper;
    bool tries_inside; /* its word about the network is not enough: a connection is tried from inside */
    struct cordon_remote_belief inside; /* that it has no way out */
};
extern struct cordon_e2b_kind cordon_e2b_kind, cordon_e2b_ucloud_kind;

/* From inside, before anything else runs: is there a way out? Status 3 says so. "No" is believed for a while. */
#define CORDON_E2B_INSIDE                                                                                              \
    "import socket\n"                                                                                                  \
    "for a in (('1.1.1.1',443),('8.8.8.8',53),('223.5.5.5',53)):\n"                                                    \
    " s=socket.socket(); s.settimeout(1)\n"                                                                            \
    " if s.connect_ex(a)==0: raise SystemExit(3)"
/* with: the settings that the sandbox was made with (cordon_remote_with). */
bool cordon_e2b_inside_known(const struct cordon_e2b_kind *kind, uint64_t with);
/* status: of what was tried; -1: it could not be tried. 0, or UNAVAILABLE with err. */
int cordon_e2b_inside_judge(struct cordon_e2b_kind *kind, uint64_t with, int status, struct cordon_error *err);

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

/* A single run: e2b_run.c, for the backends' services. */
struct cordon_e2b_state {
    struct cordon_e2b_box box;
    struct cordon_remote_reader reader;
    int64_t pid;
    bool ended;
};
int cordon_e2b_run_create(struct cordon_run *run, struct cordon_error *err);
int cordon_e2b_run_put(struct cordon_run *run, const char *path, struct cordon_bytes content, struct cordon_error *err);
int cordon_e2b_run_exec(struct cordon_run *run, const char *command, uint64_t limit_ms, struct cordon_error *err);
int cordon_e2b_run_exec_next(struct cordon_run *run, struct cordon_remote_output *ret, struct cordon_error *err);
void cordon_e2b_run_exec_kill(struct cordon_run *run);
int cordon_e2b_run_get(struct cordon_run *run, const char *path, struct cordon_error *err);
int cordon_e2b_run_get_next(struct cordon_run *run, struct cordon_bytes *ret, struct cordon_error *err);
void cordon_e2b_run_destroy(struct cordon_run *run);
#define CORDON_E2B_RUNS                                                                                                \
    .state_size = sizeof(struct cordon_e2b_state), .folder = cordon_e2b_home, CORDON_REMOTE_VIRTUAL,                   \
    .create = cordon_e2b_run_create, .put = cordon_e2b_run_put, .exec = cordon_e2b_run_exec,                           \
    .exec_next = cordon_e2b_run_exec_next, .exec_kill = cordon_e2b_run_exec_kill, .get = cordon_e2b_run_get,           \
    .get_next = cordon_e2b_run_get_next, .destroy = cordon_e2b_run_destroy

const char *cordon_e2b_home(void);
/* May keys be sent to the addresses that are set? 0, or UNAVAILABLE with err. */
int cordon_e2b_check_urls(const struct cordon_e2b_kind *kind, struct cordon_error *err);
/* Asks the service whether it is there and knows the key. */
int cordon_e2b_ask(const struct cordon_e2b_kind *kind, struct cordon_error *err);

#endif
