/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Passing a request on to another HTTP/1.1 server, over a socket that somebody connected, and its answer back: bodies
 * as they come, upgrades (WebSocket) as two byte streams. One request a socket. What frames a message or belongs to one
 * connection only is made anew on each side, so that neither can smuggle a second message past us.
 */
#ifndef CORDON_HTTP_PASS_H
#define CORDON_HTTP_PASS_H

#include "http/request.h"

struct cordon_http_pass;

struct cordon_http_pass_options {
    const char *host;            /* the Host field; NULL: the client's */
    const char *const *left_out; /* names of further fields that are not passed on; NULL-terminated, or NULL */
    unsigned patience_s;         /* how long the server may neither take nor send a byte; 0: for ever */
};

/* Sends the header. Takes fd (non-blocking) in any case. On success *ret is to be freed. */
int cordon_http_pass_begin(struct cordon_http_request *request, int fd, const struct cordon_http_pass_options *options,
                           struct cordon_http_pass **ret, struct cordon_error *err);
/* A piece of the body. A server that takes no more of it may have answered already: that is no error. */
int cordon_http_pass_piece(struct cordon_http_pass *pass, const char *data, size_t size, struct cordon_error *err);
/* The body is whole: waits for the answer and replies with it. pass must live until the request's end. */
int cordon_http_pass_reply(struct cordon_http_request *request, struct cordon_http_pass *pass,
                           struct cordon_error *err);
void cordon_http_pass_free(struct cordon_http_pass *pass); /* NULL is allowed */

#endif
