/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A run on a service elsewhere, written once. A service says how a guest is made and ended there, how bytes get in and
 * out, and how a command is run; this does the rest, in this order:
 *
 *     create -> put one archive -> exec: unpack it -> exec: the program -> exec: pack what is to be returned -> get
 *     -> destroy, always
 *
 * Until the program's exec was accepted, whatever fails is an error of run_open (UNAVAILABLE, BUSY, CANCELLED), so that
 * another backend may be tried; after it, it is the outcome's. Times are our own: a program that did not end by its
 * deadline timed out, whatever the service says of it.
 */
#ifndef CORDON_BACKEND_REMOTE_H
#define CORDON_BACKEND_REMOTE_H

#include <cordon/backend.h>

#include "backend/remote/tar.h"
#include "base/buf.h"
#include "base/error.h"
#include "core/settings.h"
#include "core/value.h"
#include "http/client.h"

enum cordon_remote_output_type { CORDON_REMOTE_STDOUT, CORDON_REMOTE_STDERR, CORDON_REMOTE_EXIT };

struct cordon_remote_output {
    enum cordon_remote_output_type type;
    struct cordon_bytes data; /* borrowed until the next call */
    int exit_code;            /* EXIT */
    int signal;               /* EXIT: 0, or what the service says that ended it */
    bool timed_out;           /* EXIT: the service ended it for its time, at our asking */
    uint64_t ended_us;        /* EXIT: when it was heard of; 0: now */
};

/* One a backend, constant. The functions get the run; its state is state_size zeroed bytes. All of them end by
 * run->deadline_us and when run->cancel_fd's peer leaves. */
struct cordon_remote_service {
    const char *name, *title; /* "ssh", and as errors name it: "SSH" */
    size_t state_size;
    enum cordon_isolation (*isolation)(void);
    const char *(*folder)(void); /* in which a run's own folder is made */
    const char *(*python)(void), *(*node)(void);
    int max_output, max_artifacts, max_artifact_bytes; /* enum cordon_setting; -1: no such limit */
    uint64_t grace_us; /* beyond the program's deadline until its end is given up; 0: 3 s */
    int (*configured)(struct cordon_error *err);
    int (*create)(struct cordon_run *run, struct cordon_error *err);
    int (*put)(struct cordon_run *run, const char *path, struct cordon_bytes content, struct cordon_error *err);
    /* Starts `sh -c command`. Kind INFRASTRUCTURE: it may have begun. limit_ms: when the service itself may end it. */
    int (*exec)(struct cordon_run *run, const char *command, uint64_t limit_ms, struct cordon_error *err);
    /* 1 and what came of it, EXIT being the last; negative: it broke off (-ETIMEDOUT: it may be called again). */
    int (*exec_next)(struct cordon_run *run, struct cordon_remote_output *ret, struct cordon_error *err);
    void (*exec_kill)(struct cordon_run *run); /* may be NULL: destroy does it */
    /* Reads a file from its start: then 1 and a piece, 0 at its end. */
    int (*get)(struct cordon_run *run, const char *path, struct cordon_error *err);
    int (*get_next)(struct cordon_run *run, struct cordon_bytes *ret, struct cordon_error *err);
    void (*destroy)(struct cordon_run *run); /* also after a create that failed half way; closes what is open */
};

enum cordon_remote_stage {
    CORDON_REMOTE_STARTED,
    CORDON_REMOTE_OUTPUT,
    CORDON_REMOTE_COLLECT,
    CORDON_REMOTE_ARCHIVE,
    CORDON_REMOTE_OUTCOME,
    CORDON_REMOTE_DONE
};

struct cordon_run {
    const struct cordon_remote_service *service;
    const struct cordon_request *request; /* borrowed until run_close */
    void *state;
    char folder[320]; /* the run's own, in the guest */
    char id[33];      /* random */
    int cancel_fd;    /* heeded by the service's functions now; -1: not */
    uint64_t deadline_us;
    enum cordon_remote_stage stage;
    uint64_t opened_us, exec_us, ended_us, program_deadline_us;
    bool timed_out;         /* our deadline passed before the program ended */
    bool killed_for_output; /* it wrote too much */
    bool ended;             /* EXIT came */
    char broken[256];       /* why there will be no EXIT; "" : there may be */
    bool cancelled;
    int exit_code, signal;
    uint64_t written[2], kept[2];
    struct cordon_remote_archive *archive;
    struct cordon_outcome outcome;
};

int cordon_remote_run_open(const struct cordon_remote_service *service, const struct cordon_request *request,
                           struct cordon_run **ret, struct cordon_error *err);
int cordon_remote_run_next(struct cordon_run *run, struct cordon_event *event);
void cordon_remote_run_close(struct cordon_run *run);

/* The settings that cordon_backend_setup was given. */
const struct cordon_settings *cordon_remote_settings(void);
const char *cordon_remote_text(enum cordon_setting id);
int64_t cordon_remote_number(enum cordon_setting id);
bool cordon_remote_true(enum cordon_setting id);
enum cordon_isolation cordon_remote_isolation(enum cordon_setting id); /* a setting that names one */

/* For services whose sandboxes are virtual machines with the usual names on their PATH. */
enum cordon_isolation cordon_remote_virtualized(void);
const char *cordon_remote_python3(void);
const char *cordon_remote_node(void);

/* For a backend whose capabilities depend on its settings, which another thread's trial has others of: what they are
 * now, as a set that never changes and stays for ever. `now`: zeroed, padding included, before it was filled. */
const struct cordon_capabilities *cordon_remote_capabilities(const struct cordon_capabilities *now);

/* What a service was found to be, believed for a while and only with the settings that it was found with: those of a
 * trial may name another address, key or template. Zeroed: nothing is believed yet. */
struct cordon_remote_belief {
    uint64_t until_us, with;
};
/* Names the settings that this thread has now; never 0. Taken before the service is asked. */
uint64_t cordon_remote_with(void);
bool cordon_remote_believed(const struct cordon_remote_belief *belief, uint64_t with);
void cordon_remote_believe(struct cordon_remote_belief *belief, uint64_t with, uint64_t for_us); /* 0: no more */

/* Is it able to run? The settings at once; the connection by `ask`, whose yes is believed for 10 s. */
int cordon_remote_probe(struct cordon_remote_belief *belief, const struct cordon_remote_service *service,
                        int (*ask)(struct cordon_error *err), struct cordon_error *err);

/* Not configured: UNAVAILABLE, "<title>: <text>". */
int cordon_remote_unset(const struct cordon_remote_service *service, const char *text, struct cordon_error *err);
/* What a status that is no success means for a call that the run needs: fills err (BUSY for 429, else UNAVAILABLE) with
 * what was called and what the service said of it; secrets masked. */
int cordon_remote_refused(const struct cordon_remote_service *service, const char *what, unsigned status,
                          const struct cordon_buf *body, struct cordon_error *err);
/* A call within a run: its deadline, its cancel_fd. */
struct cordon_http_call cordon_remote_call(const struct cordon_run *run, const char *method, const char *url,
                                           const char *const *headers);
/* For calls that make something elsewhere: they are made with cancel_fd -1, since one whose answer is lost has made
 * what nobody knows and nobody ends. Behind them this is asked: 0, or -ECANCELED with err when the client has left. */
int cordon_remote_stayed(int cancel_fd, struct cordon_error *err);
/* How much of an address stands before a path: it without the slashes at its end. */
size_t cordon_remote_base(const char *url);

/* The headers of one call. */
#define CORDON_REMOTE_HEADERS 10
struct cordon_remote_headers {
    char lines[CORDON_REMOTE_HEADERS][400];
    const char *list[CORDON_REMOTE_HEADERS + 1]; /* NULL-terminated once one was added */
    size_t count;
};
void cordon_remote_add(struct cordon_remote_headers *to, const char *name, const char *value); /* "": not at all */

/* What a service reads from, piece by piece: a file's bytes, or the messages of a process's stream. */
struct cordon_remote_reader {
    struct cordon_http_transfer *transfer;
    struct cordon_buf in, decoded; /* not yet read as messages; of the newest message */
    size_t in_used;                /* of `in`, by the newest message */
};
void cordon_remote_reader_close(struct cordon_remote_reader *reader);
/* 1 and the next bytes, as they come, within the run's time. */
int cordon_remote_reader_next(const struct cordon_run *run, struct cordon_remote_reader *reader,
                              struct cordon_bytes *ret, struct cordon_error *err);

struct cordon_json;
/* Writes the member key: an object of "NAME=VALUE" texts. A failure is in json->buf->failed. */
void cordon_remote_write_env(struct cordon_json *json, const char *key, const char *const *env, size_t count);
/* The members "cmd" and "args" of a request that runs the command by a shell, in E2B's and CreateOS's JSON. */
void cordon_remote_write_shell(struct cordon_json *json, const char *command);

/* Appends 's' quoted for sh. */
void cordon_remote_quote(struct cordon_buf *to, const char *text);

/* Capabilities to begin with: of that isolation, with files and artifacts, in all three languages; nothing else. */
void cordon_remote_capable(struct cordon_capabilities *now, enum cordon_isolation isolation);
/* May a key be sent to the address that this setting has ? https, or this machine. */
int cordon_remote_check_url(const struct cordon_remote_service *service, enum cordon_setting id,
                            struct cordon_error *err);

/* The members of a service whose sandboxes are virtual machines with the usual names on their PATH, and of one that has
 * no limits beside the run's own. */
#define CORDON_REMOTE_VIRTUAL                                                                                          \
    .isolation = cordon_remote_virtualized, .python = cordon_remote_python3, .node = cordon_remote_node
#define CORDON_REMOTE_UNLIMITED .max_output = -1, .max_artifacts = -1, .max_artifact_bytes = -1
/* Its functions, under the names that they have in every service's file. */
#define CORDON_REMOTE_FUNCTIONS                                                                                        \
    .configured = configured, .create = create, .put = put, .exec = exec, .exec_next = exec_next, .get = get,          \
    .get_next = get_next, .destroy = destroy

/* The row of a backend whose runs are a service's: `capabilities` and what else is named stand before it. */
#define CORDON_REMOTE_BACKEND(id, service_, ask_, ...)                                                                 \
    static int id##_probe(struct cordon_error *err)                                                                    \
    {                                                                                                                  \
        static struct cordon_remote_belief kept;                                                                       \
        return cordon_remote_probe(&kept, service_, ask_, err);                                                        \
    }                                                                                                                  \
    static int id##_open(const struct cordon_request *request, struct cordon_run **ret, struct cordon_error *err)      \
    {                                                                                                                  \
        return cordon_remote_run_open(service_, request, ret, err);                                                    \
    }                                                                                                                  \
    const struct cordon_backend cordon_backend_##id = {.abi_version = CORDON_ABI_VERSION,                              \
                                                       .struct_size = sizeof cordon_backend_##id,                      \
                                                       .name = #id,                                                    \
                                                       .capabilities = capabilities,                                   \
                                                       .probe = id##_probe,                                            \
                                                       .run_open = id##_open,                                          \
                                                       .run_next = cordon_remote_run_next,                             \
                                                       .run_close = cordon_remote_run_close,                           \
                                                       __VA_ARGS__}

/* --- upload.c: files that are held here until they are sent whole --- */

/* Takes size bytes of what all uploads may hold together (CORDON_REMOTE_UPLOADS_MB) and adds them to *held; -EAGAIN,
 * BUSY: there are not so many. Let go of, *held is 0. */
int cordon_remote_hold(size_t *held, size_t size, struct cordon_error *err);
void cordon_remote_let_go(size_t *held);
/* Appends what came of a file, and holds it. */
int cordon_remote_upload_add(struct cordon_buf *buf, size_t *held, const void *data, size_t size,
                             struct cordon_error *err);

/* --- script.c: what is sent along with a program --- */

/* The archive with the program, its files and what starts it, and the command that starts it once it is unpacked. */
int cordon_remote_pack(const struct cordon_run *run, struct cordon_buf *to, struct cordon_error *err);

/* --- archive.c: what comes back --- */

/* Reads the archive of results as it comes. strict: one bad artifact fails the run. */
int cordon_remote_archive_open(struct cordon_run *run, struct cordon_error *err);
void cordon_remote_archive_close(struct cordon_run *run);
/* 1 and RESULT, ARTIFACT or DROPPED; 0 at the end; negative when it broke off. */
int cordon_remote_archive_next(struct cordon_run *run, struct cordon_event *event, struct cordon_error *err);
/* Why the strict rule fails the run; "" : it does not. */
const char *cordon_remote_archive_refusal(const struct cordon_run *run);
const char *cordon_remote_archive_result_error(const struct cordon_run *run);
bool cordon_remote_archive_result(const struct cordon_run *run); /* it was given */

#endif
