/* SPDX-License-Identifier: Apache-2.0 */
/* What server.c, places.c, exchange.c and reply.c share, and nobody else includes. */
#ifndef CORDON_HTTP_INTERNAL_H
#define CORDON_HTTP_INTERNAL_H

#include <microhttpd.h>
#include <pthread.h>
#include <stdatomic.h>

#include "http/server.h"

struct connection;

/* First in, first out. */
struct queue {
    struct connection *first, *last;
    size_t count;
};

/* One connection, made when it is accepted and used for its requests one after the other. */
struct connection {
    struct cordon_http_request request;
    struct cordon_http_server *server;
    struct connection *next, *previous; /* in server->active while a request is under way */
    bool active;
    struct queue *queue; /* who gives way, and when: places.c. Guarded, as all up to over_limit, by server->lock */
    struct connection *after, *before;
    unsigned address;            /* index into server->strangers */
    uint64_t waiting_since_us;   /* accepted, or done with its last request */
    bool trusted;                /* has shown a key or token, or is a local user */
    bool served;                 /* a request of one who has not is let through, and under way */
    bool heard;                  /* the header of a request has come */
    bool leaving;                /* told to end */
    bool over_limit;             /* beyond connections_max: gets one refusal */
    bool discard;                /* what comes of the body is thrown away */
    struct cordon_error refusal; /* kind set: the answer, once the body is out of the way */
    uint64_t started_us;
    uint64_t received;                                                         /* bytes of body */
    size_t body_charged;                                                       /* of server->bodies */
    int status;                                                                /* replied */
    void (*talk)(void *context, int fd, const char *early, size_t early_size); /* after an upgrade */
    void *talk_context;
};

struct counts {
    atomic_uint_fast64_t by_class[6];
    atomic_uint_fast64_t duration_us;
};

#define CORDON_HTTP_LISTENERS 16
#define CORDON_HTTP_ADDRESSES 1024u
/* Connections beyond connections_max: those that are to be told so, and those that were told to end. */
#define CORDON_HTTP_REFUSED_MAX 128u
#define CORDON_HTTP_LEAVING_MAX 256u

struct cordon_http_server {
    struct cordon_http_config config;
    size_t route_count;
    struct counts *counts; /* route_count + 1 of them */
    atomic_uint_fast64_t connections;
    atomic_uint_fast64_t bodies; /* bytes of request bodies held now, in whatever form, until their requests end */
    atomic_bool stopping;
    pthread_mutex_t lock; /* active, active_count, the queues, leaving, and what connections have for these */
    pthread_cond_t idle;  /* signalled when active_count falls to 0 */
    struct connection *active;
    size_t active_count;
    struct queue
        strangers[CORDON_HTTP_ADDRESSES]; /* by address, which may share one: have shown nothing, oldest first */
    struct queue resting;                 /* trusted, between requests, idle longest first */
    struct queue refused;                 /* over_limit, oldest first */
    size_t stranger_count;                /* in all of strangers */
    size_t leaving;                       /* told to end, and not yet closed */
    uint64_t seed;                        /* so that nobody can choose addresses that share a queue */
    struct MHD_Daemon *daemons[CORDON_HTTP_LISTENERS];
    int fds[CORDON_HTTP_LISTENERS];
    size_t daemon_count;
};

/* libmicrohttpd's callbacks, in exchange.c. */
enum MHD_Result cordon_http_on_request(void *server, struct MHD_Connection *mhd, const char *url, const char *method,
                                       const char *version, const char *upload, size_t *upload_size, void **state);
void *cordon_http_on_uri(void *server, const char *uri, struct MHD_Connection *mhd);
void cordon_http_on_completed(void *server, struct MHD_Connection *mhd, void **state,
                              enum MHD_RequestTerminationCode how);
void cordon_http_on_connection(void *server, struct MHD_Connection *mhd, void **state,
                               enum MHD_ConnectionNotificationCode what);

/* 0 switches the connection's idle timeout off (a run may be silent for long); else it starts anew. */
void cordon_http_idle_timeout(struct MHD_Connection *mhd, unsigned seconds);
/* The request is over; may come twice. */
void cordon_http_ended(struct connection *connection, enum MHD_RequestTerminationCode how);
struct connection *cordon_http_connection_of(struct cordon_http_request *request);

/* places.c: the connection gets a place, if need be that of another; or it is over_limit. */
void cordon_http_place_take(struct connection *connection);
void cordon_http_place_leave(struct connection *connection);
/* A request begins, passes (as keyless: nothing was shown), ends. */
void cordon_http_place_begin(struct connection *connection);
void cordon_http_place_pass(struct connection *connection, bool keyless);
void cordon_http_place_end(struct connection *connection);

#endif
