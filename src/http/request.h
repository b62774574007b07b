/* SPDX-License-Identifier: Apache-2.0 */
/* One HTTP request as a door's handler sees it, and the replies that it can give. */
#ifndef CORDON_HTTP_REQUEST_H
#define CORDON_HTTP_REQUEST_H

#include <stdbool.h>
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
    struct cordon_buf body; /* whole, within the route's limit */
    int fd;                 /* the connection's socket: POLLRDHUP when the client is gone */
    long peer_uid;          /* of a unix socket's client; -1: TCP */
    char client[64];        /* address, for the log */
    bool replied;
    void (*finish)(void *context); /* when set: called once after the reply left or the client did */
    void *finish_context;
};

/* The header's value (names in any case) or NULL; borrowed while the request lives. */
const char *cordon_http_header(const struct cordon_http_request *request, const char *name);
/* Whether the Accept header names this type literally. */
bool cordon_http_accepts(const struct cordon_http_request *request, const char *type);

/* Replies, once a request. Takes the body's memory (and empties body), also on failure. */
int cordon_http_reply(struct cordon_http_request *request, int status, const char *type, struct cordon_buf *body);
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

#endif
