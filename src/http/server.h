/* SPDX-License-Identifier: Apache-2.0 */
/* The HTTP server: libmicrohttpd with a thread a connection on listeners that somebody else opened. */
#ifndef CORDON_HTTP_SERVER_H
#define CORDON_HTTP_SERVER_H

#include <stdint.h>

#include "http/request.h"

struct cordon_http_config {
    const struct cordon_http_door *const *doors; /* NULL-terminated, borrowed for ever */
    void *context;                               /* for handlers and authorize */
    /* May this request use a route of that scope (never CORDON_HTTP_OPEN)? Called before the body is read. */
    int (*authorize)(struct cordon_http_request *request, enum cordon_http_scope scope, struct cordon_error *err);
    const int *listen_fds; /* taken */
    size_t listen_count;
    const char *tls_cert, *tls_key; /* PEM texts; NULL: no TLS. Unix sockets never speak it */
    size_t body_max;
    unsigned connections_max;
    unsigned idle_timeout_s;
};

int cordon_http_server_start(const struct cordon_http_config *config, struct cordon_http_server **ret,
                             struct cordon_error *err);
/* Stops accepting; what runs gets grace_ms to end, then its clients' sides are shut (which cancels runs but lets the
 * answer out) and it gets grace_ms once more; then all is closed. */
void cordon_http_server_stop(struct cordon_http_server *server, unsigned grace_ms);

/* To be called about once a second: closes the connections of strangers who have kept one too long without a request
 * that shows a key, all the sooner when connections are short. Without it, a few thousand idle ones lock everybody out.
 */
void cordon_http_server_expire(struct cordon_http_server *server);

/* Counters for /metrics. Index: as in cordon_http_match; the route count itself stands for requests that found no
 * route. Classes: 1xx … 5xx at [1] … [5], broken off at [0]. */
struct cordon_http_counts {
    uint64_t by_class[6];
    uint64_t duration_us;
};
void cordon_http_counts_read(const struct cordon_http_server *server, size_t index, struct cordon_http_counts *ret);
uint64_t cordon_http_connections(const struct cordon_http_server *server);

#endif
