/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Private to `createos`: what single runs (createos.c) and kept guests (createos_guest.c, createos_stream.c,
 * createos_files.c) share. Plain REST with JSend envelopes, output as lines of JSON.
 */
#ifndef CORDON_BACKEND_REMOTE_CREATEOS_H
#define CORDON_BACKEND_REMOTE_CREATEOS_H

#include "backend/remote/remote.h"

#define CORDON_CREATEOS_URL 1024
#define CORDON_CREATEOS_EXCEPTION "169.254.0.0/16" /* stays reachable with the network off */

extern const struct cordon_remote_service cordon_createos_service;

/* --- createos_calls.c --- */

/* A call whose answer is an envelope: *data is its data, within answer->body, which is the caller's to free in any
 * case. path: behind the base address. call: method, body, times. */
int cordon_createos_ask(struct cordon_http_call *call, const char *path, const char *what,
                        struct cordon_http_answer *answer, struct cordon_value *data, struct cordon_error *err);

/* The same as a transfer, whose status is the caller's to judge. type: "" where there is no body. */
int cordon_createos_open(struct cordon_http_call *call, const char *path, const char *type,
                         struct cordon_http_transfer **ret, struct cordon_error *err);

struct cordon_createos_wish {
    const char *name; /* at most 22 characters, unique among an account's living sandboxes */
    const char *shape;
    bool network;
    uint64_t pause_s; /* pauses by itself after so long without use: 60 to 86,400 */
    const char *const *env;
    size_t env_count;
    uint64_t deadline_us;
    int cancel_fd;
};
/* Without network, only where the service says that it has none. After an error *id may be set: to be ended. It is also
 * when the answer was lost, if the sandbox is there; a client that leaves is heeded once it has been made. */
int cordon_createos_make(const struct cordon_createos_wish *wish, char id[80], struct cordon_error *err);
/* May a sandbox have this network? In the order of the sheet: before anything is asked of the service. */
int cordon_createos_check_network(bool network, size_t rules, struct cordon_error *err);
bool cordon_createos_id_ok(const char *id);
/* It has ended, or is about to, by its status. */
bool cordon_createos_gone(const char *status);
/* The living sandbox of that name: its id and status. -ENOENT, GONE: there is none. */
int cordon_createos_named(const char *name, uint64_t deadline_us, int cancel_fd, char id[80], char status[24],
                          struct cordon_error *err);
/* One of that name may have been made, or may yet be: ended when it is seen in the next half hour. createos_lost.c */
void cordon_createos_lost_add(const char *name);
void cordon_createos_lost_stop(void);
/* Fine when it was gone. */
int cordon_createos_kill(const char *id, uint64_t deadline_us, int cancel_fd, struct cordon_error *err);

/* A whole file: 0 with the answer's status, which is the caller's to judge. */
int cordon_createos_upload(const char *id, const char *path, struct cordon_bytes content, uint64_t deadline_us,
                           int cancel_fd, struct cordon_http_answer *answer, struct cordon_error *err);
/* Opens a file's content: 0 with a transfer whose status is the caller's to judge. */
int cordon_createos_download(const char *id, const char *path, uint64_t deadline_us, int cancel_fd,
                             struct cordon_http_transfer **ret, struct cordon_error *err);

/* --- createos_shapes.c --- */

/* The smallest shape that has what is needed; never a smaller one. */
int cordon_createos_shape_choose(uint64_t memory_bytes, uint64_t deadline_us, int cancel_fd, char to[64],
                                 struct cordon_error *err);

/* --- createos_exec.c: a command and what comes of it --- */

struct cordon_createos_exec {
    struct cordon_http_transfer *transfer;
    struct cordon_buf in, decoded;
    size_t in_used;
    bool ended, buffered, streams;          /* buffered: this server has no streams; streams: it was seen to */
    struct cordon_remote_output waiting[3]; /* of a buffered one */
    size_t waiting_count, waiting_at;
};
/* Starts `sh -c command`. *status: what it was refused with; 0: not refused. Kind INFRASTRUCTURE: it may have begun. */
int cordon_createos_exec_open(struct cordon_createos_exec *exec, const char *id, const char *command,
                              uint64_t deadline_us, int cancel_fd, unsigned *status, struct cordon_error *err);
/* As exec_next of a service. */
int cordon_createos_exec_next(struct cordon_createos_exec *exec, uint64_t deadline_us, struct cordon_remote_output *ret,
                              struct cordon_error *err);
void cordon_createos_exec_close(struct cordon_createos_exec *exec); /* may be opened again */

#endif
