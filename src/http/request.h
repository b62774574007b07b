/* SPDX-License-Identifier: Apache-2.0 */
/* One HTTP request as a door's handler sees it, and the replies that it can give. */
#ifndef CORDON_HTTP_REQUEST_H
#define CORDON_HTTP_REQUEST_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/buf.h"
#include "http/route.h"

struct MHD_Connection;
struct cordon_http_server;

struct cordon_http_request {
    struct cordon_http_server *server;
    void *context; /* the server's, for handlers */
    struct MHD_Connection *mhd;
    const char *method, *path; /* the path as it came: not percent-decoded, without the query */
    struct cordon_http_match match;
    struct cordon_buf body;         /* whole, within the route's limit; empty where the route has an intake */
    struct cordon_buf target;       /* cordon_http_target */
    struct cordon_buf reply_header; /* of the reply to come: cordon_http_reply_header */
    int fd;                         /* the connection's socket: POLLRDHUP when the client is gone */
    long peer_uid;                  /* of a unix socket's client; -1: TCP */
    char client[64];                /* address, for the log */
    bool stranger;     /* set by a door's admit: passes, but untrusted, and with a body of at most 64 KiB */
    bool body_dropped; /* a stranger's was larger */
    bool keyless;      /* set by a door's admit: passes, though nothing secret was shown, and may take its time */
    bool replied;
    char subject[32];              /* whom authorize found; "": nobody in particular, such as a local user */
    bool looks_only;               /* set by authorize: whose requests must change nothing, not even by reading */
    bool by_admin;                 /* set by authorize: shows a key of scope admin, or a session of one */
    bool sees_all;                 /* set by authorize: an operator at the admin page, who sees what is every key's */
    void *admitted;                /* what the door's admit found; its dismiss gets it */
    void (*finish)(void *context); /* when set: called once after the reply left or the client did */
    void *finish_context;
};

/* The header's value (names in any case) or NULL; borrowed while the request lives. */
const char *cordon_http_header(const struct cordon_http_request *request, const char *name);
/* Calls each for every header field, in their order. */
void cordon_http_headers(const struct cordon_http_request *request,
                         void (*each)(void *context, const char *name, const char *value), void *context);
/* A query parameter, decoded ("+" is a blank): its size, -ENOENT when it is not there, -EINVAL for a bad escape or a
 * NUL byte, -EMSGSIZE when it does not fit. NUL-terminated; empty after an error. */
ssize_t cordon_http_query(const struct cordon_http_request *request, const char *name, char *to, size_t room);
/* Decodes percent escapes in place of to, which may be text itself: the size, or -EINVAL. plus: "+" is a blank. */
ssize_t cordon_http_unescape(const char *text, size_t size, bool plus, char *to);
/* A parameter of the path, decoded and NUL-terminated: 0, -EINVAL or -EMSGSIZE. */
int cordon_http_param(const struct cordon_http_request *request, size_t i, char *to, size_t room);
/* The request's target as it came: path and query, escapes and all. */
const char *cordon_http_target(const struct cordon_http_request *request);
/* Whether the Accept header names this type literally. */
bool cordon_http_accepts(const struct cordon_http_request *request, const char *type);

/* Adds a field to the reply that comes next (but not to an error's that is given without it). */
void cordon_http_reply_header(struct cordon_http_request *request, const char *name, const char *value);
/* Replies, once a request. type NULL: none is said, nor anything else of ours (the reply is somebody else's). Takes the
 * body's memory (and empties body), also on failure. */
int cordon_http_reply(struct cordon_http_request *request, int status, const char *type, struct cordon_buf *body);
/* The status of an error's kind, or 405. */
int cordon_http_error_status(const struct cordon_http_request *request, const struct cordon_error *err);
int cordon_http_reply_error(struct cordon_http_request *request, const struct cordon_error *err);

/* A reply of unknown length, written while it is made. Each next() blocks, and what it appended leaves at once. */
struct cordon_http_stream {
    int (*next)(void *context, struct cordon_buf *out); /* 1: there is more; 0: that was the end; negative: break off */
    void (*close)(void *context);                       /* always called, once, also when the client left */
    void (*stalled)(void *context); /* may be NULL: what is there now has to wait for its reader; may come often */
};
/* Takes context: on failure the stream is closed as well. */
int cordon_http_reply_stream(struct cordon_http_request *request, const char *type,
                             const struct cordon_http_stream *stream, void *context);
#define CORDON_HTTP_SIZE_UNKNOWN UINT64_MAX
/* The same with a status, and a size that the stream must keep to. */
int cordon_http_reply_stream_as(struct cordon_http_request *request, int status, const char *type, uint64_t size,
                                const struct cordon_http_stream *stream, void *context);

/* Answers 101 with the fields added before (Upgrade among them). Then talk has the connection, as long as it likes: fd
 * is for reading, writing and shutdown only, early what came behind the request. It is not called when the client is
 * gone by then; request->finish is called in any case, at the end. */
int cordon_http_reply_upgrade(struct cordon_http_request *request,
                              void (*talk)(void *context, int fd, const char *early, size_t early_size), void *context);

#endif
