/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The inside of the egress process. Theory of operation:
 *
 * One thread, one loop. A guest's network namespace has nothing but a loopback device and a route that makes every
 * address local; the sockets that the warden opened in it are here. So whatever a guest connects to comes to us, with
 * the address that it meant as our own end's. There is no other way out.
 *
 *   session     a guest: its policy, its sockets, its names, its log (session.c, request.c).
 *   name        a name that the guest asked for and may reach, with the address that stands for it in the guest
 *               (names.c). In mode NAMES a guest never learns a real address: an A record is one of 198.18.0.0/15,
 *               different for each name, so a connection tells the name that it was made for, and no answer of any name
 *               server can steer a guest to an address of its choosing.
 *   job         a DNS question on its way (answer.c); lookup: one of ours to the name servers (resolve.c).
 *   connection  of a guest (connection.c): looked at (look.c: TLS server name, HTTP Host), judged, connected to what we
 *               resolved (connect.c), relayed (relay.c); or, where requests get headers, intercepted (intercept.c).
 *
 * All that a guest can make grow is bounded: connections by a setting, names, jobs and log entries by constants, bytes
 * held before a decision by CORDON_HELLO_MAX and CORDON_HEAD_MAX, bytes on their way by pipes.
 */
#ifndef CORDON_EGRESS_EGRESS_H
#define CORDON_EGRESS_EGRESS_H

#include <netinet/in.h>
#include <stdbool.h>
#include <sys/socket.h>

#include "base/loop.h"
#include "egress/dns.h"
#include "egress/log.h"
#include "egress/wire.h"

#define CORDON_NAMES_MAX 4096u
#define CORDON_JOBS_MAX 128u /* of a session at once */
#define CORDON_RESOLVED_MAX 8u

struct cordon_egress;

/* --- resolve.c: our own questions --- */

struct cordon_resolved {
    int status; /* 0, -ENOENT (no such name), or negative: no name server answered */
    unsigned count;
    struct cordon_egress_address addresses[CORDON_RESOLVED_MAX];
    uint32_t ttl_s;
};

/* on_done is called once, perhaps before the call returns, unless the lookup is dropped. */
struct cordon_lookup {
    void (*on_resolved)(struct cordon_lookup *lookup, const struct cordon_resolved *resolved);
    void (*on_answer)(struct cordon_lookup *lookup, const uint8_t *answer, size_t size); /* size 0: none came */
    struct cordon_lookup_call *call;                                                     /* under way; NULL: not */
};

struct cordon_resolver;
int cordon_resolver_new(struct cordon_loop *loop, const struct cordon_settings *settings, struct cordon_resolver **ret,
                        struct cordon_error *err);
void cordon_resolver_free(struct cordon_resolver *resolver);
void cordon_resolve(struct cordon_resolver *resolver, const char *name, struct cordon_lookup *lookup);
void cordon_resolve_raw(struct cordon_resolver *resolver, const char *name, uint16_t type,
                        struct cordon_lookup *lookup);
void cordon_lookup_drop(struct cordon_lookup *lookup);

/* --- names.c --- */

/* Somebody who waits for a name to be resolved; embedded in what waits. */
struct cordon_waiter {
    void (*on_resolved)(struct cordon_waiter *waiter, const struct cordon_resolved *resolved);
    struct cordon_name *name; /* NULL: does not wait */
    struct cordon_waiter *next;
};

struct cordon_name {
    struct cordon_egress *egress;
    char name[CORDON_EGRESS_NAME_SIZE];
    uint32_t hash;
    struct cordon_resolved resolved;
    uint64_t fresh_until_us; /* 0: never resolved */
    struct cordon_lookup lookup;
    struct cordon_waiter *waiting;
};

struct cordon_names {
    struct cordon_egress *egress;
    struct cordon_name **list; /* the i-th has the address 198.18.1.1 + i */
    unsigned count, next;      /* next: which gives way when there are CORDON_NAMES_MAX */
};

void cordon_names_done(struct cordon_names *names);
/* The guest's entry for the name, made where there is none: NULL when there is no room or memory. */
struct cordon_name *cordon_name_get(struct cordon_names *names, const char *name, struct cordon_egress_address *ret);
/* The name that an address stands for; NULL: for none. *standing: the address is of the range for names. */
struct cordon_name *cordon_name_at(const struct cordon_names *names, const struct cordon_egress_address *address,
                                   bool *standing);
/* Is the answer for that name here, and fresh? */
bool cordon_name_known(const struct cordon_names *names, const char *name);
/* Calls the waiter when the name is resolved: at once where that is known and fresh. */
void cordon_name_wait(struct cordon_name *name, struct cordon_waiter *waiter);
void cordon_waiter_leave(struct cordon_waiter *waiter);

/* --- host.c --- */

/* Why no guest may reach the address: a special range, or the host's own; NULL: it may. */
const char *cordon_egress_forbidden(const struct cordon_egress *egress, const struct cordon_egress_address *address);
struct cordon_egress_address cordon_egress_address_of(const struct sockaddr_storage *from, uint16_t *port);
socklen_t cordon_egress_sockaddr(const struct cordon_egress_address *address, uint16_t port,
                                 struct sockaddr_storage *ret);

/* --- relay.c --- */

struct cordon_pipe {
    int ends[2];
    struct cordon_pipe *next;
};

struct cordon_flow {          /* one direction */
    struct cordon_pipe *pipe; /* while something is in it */
    size_t held;
    uint64_t bytes;
    bool ended; /* the source is at its end, and the target was told */
};

/* --- connection.c, look.c, connect.c --- */

enum cordon_connection_state {
    CORDON_LOOKING = 0, /* waits for what the guest says first */
    CORDON_RESOLVING,
    CORDON_CONNECTING,
    CORDON_RELAYING,
    CORDON_ASKING /* DNS over TCP */
};

struct cordon_session;

struct cordon_connection {
    struct cordon_session *session;
    enum cordon_connection_state state;
    struct cordon_source guest, server;
    uint32_t guest_events, server_events; /* as they are set */
    struct cordon_egress_address asked;   /* that the guest connected to */
    uint16_t port;
    char name[CORDON_EGRESS_NAME_SIZE]; /* that it stands for; "" */
    bool by_name;                       /* judged by name; else by address */
    bool passed;                        /* what it said first was judged, or need not be */
    bool waits_for_101;                 /* an upgrade that the server has not agreed to */
    bool goes_on;                       /* there was more than its share of a turn */
    struct cordon_egress_rule rule;     /* that allowed it, for the log; as_rule: there is one */
    bool has_rule;
    struct cordon_buf in;  /* said by the guest, not yet passed */
    struct cordon_buf out; /* passed, goes to the server before all else */
    size_t out_at;
    struct cordon_resolved targets;
    unsigned target; /* the next to try */
    struct cordon_egress_address connected;
    struct cordon_waiter waiter;
    struct cordon_timer timer;
    struct cordon_flow up, down;        /* guest to server, server to guest */
    struct cordon_intercept *intercept; /* within TLS, since its host's requests get headers; NULL: not */
    struct cordon_job *job;             /* ASKING: under way */
    bool answering;                     /* ASKING: within cordon_answer_tcp */
    uint64_t entry;                     /* in the log */
    struct cordon_connection *previous, *next;
};

/* While an upgrade waits for the server's agreement: the time that it has for that runs. After it: no more. */
void cordon_connection_upgrade(struct cordon_connection *connection);

/* A connection came in on a guest's socket. */
void cordon_connection_accept(struct cordon_session *session, int fd_take);
/* Ends it with a reset on both sides. refused: it counts and is logged as refused, with why; else as ended so. */
void cordon_connection_cut(struct cordon_connection *connection, bool refused, const struct cordon_egress_rule *rule,
                           const char *why);
void cordon_connection_end(struct cordon_connection *connection); /* in order */
/* False: it was cut since the policy does not allow it any more. */
bool cordon_connection_judge_again(struct cordon_connection *connection);
void cordon_connection_log(struct cordon_connection *connection, const char *why); /* its bytes so far */

/* look.c: judges what the guest said first. MORE: wait; PASSED (in was moved to out); TLS: its requests get headers,
 * and it is to be intercepted; BAD: *why. */
enum cordon_look { CORDON_LOOK_MORE = 0, CORDON_LOOK_PASSED, CORDON_LOOK_TLS, CORDON_LOOK_BAD };
enum cordon_look cordon_look(struct cordon_connection *connection, char why[160]);
enum cordon_look cordon_look_http(struct cordon_connection *connection, char why[160]); /* as one of HTTP */

/* intercept.c. begin: false: no memory, and it is to be cut. event, connected: may end the connection. */
bool cordon_intercept_begin(struct cordon_connection *connection);
void cordon_intercept_event(struct cordon_connection *connection);
void cordon_intercept_connected(struct cordon_connection *connection);
bool cordon_intercept_lingers(const struct cordon_connection *connection); /* its answer was given */
void cordon_intercept_done(struct cordon_connection *connection);
void cordon_connection_established(struct cordon_connection *connection); /* logs it; in connect.c */

/* connect.c */
void cordon_connect_begin(struct cordon_connection *connection); /* resolves where needed; may end the connection */
void cordon_connect_event(struct cordon_connection *connection);

/* relay.c: moves what can be moved. False: the connection is over (*broken: by an error). */
bool cordon_relay(struct cordon_connection *connection, bool *broken);
void cordon_relay_watch(struct cordon_connection *connection); /* sets the events to wait for */
void cordon_flow_done(struct cordon_egress *egress, struct cordon_flow *flow);

/* --- answer.c: a guest's DNS questions --- */

struct cordon_job {
    struct cordon_session *session;
    struct cordon_dns_question question;
    uint8_t query[CORDON_DNS_QUESTION_MAX];
    struct cordon_connection *tcp; /* over which it came; NULL: UDP */
    enum cordon_egress_socket socket;
    struct sockaddr_storage peer;
    socklen_t peer_size;
    union {
        struct in_pktinfo v4;
        struct in6_pktinfo v6;
    } local;                              /* the address that was asked */
    struct cordon_egress_address address; /* that stands for the name */
    struct cordon_waiter waiter;
    struct cordon_lookup lookup;
    struct cordon_job *previous, *next;
};

void cordon_answer_udp(struct cordon_session *session, enum cordon_egress_socket which);
void cordon_answer_tcp(struct cordon_connection *connection); /* bytes came, or may be written */
void cordon_job_drop(struct cordon_job *job);

/* --- session.c --- */

struct cordon_session_socket {
    struct cordon_source source;
    struct cordon_session *session;
    enum cordon_egress_socket which;
};

struct cordon_session {
    struct cordon_egress *egress;
    char guest[32];
    struct cordon_source control; /* to the gateway */
    int touched;                  /* eventfd; -1: written */
    struct cordon_session_socket sockets[CORDON_EGRESS_SOCKETS];
    struct cordon_egress_policy policy;
    struct cordon_names names;
    struct cordon_egress_log log;
    struct cordon_connection *connections;
    unsigned connection_count;
    struct cordon_job *jobs;
    unsigned job_count;
    double tokens; /* of DNS questions */
    uint64_t tokens_us;
    struct cordon_session *previous, *next;
};

/* Takes the session's end, the eventfd and the sockets (-1: absent), on failure too. policy: its text. */
int cordon_egress_guest_open(struct cordon_egress *egress, const struct cordon_egress_open *open, const char *policy,
                             size_t policy_size, int end_take, int touched_take,
                             int sockets_take[CORDON_EGRESS_SOCKETS]);
void cordon_egress_guest_close(struct cordon_session *session);
/* True while the guest asks no more than its share; cost: of a question, 1 where nothing is known of its answer. */
bool cordon_egress_guest_may_ask(struct cordon_session *session, double cost);

/* --- main.c --- */

struct cordon_egress {
    struct cordon_loop loop;
    struct cordon_resolver *resolver;
    struct cordon_authority *authority; /* NULL: no headers within TLS */
    struct cordon_egress_rule *ranges;  /* of the operator */
    size_t range_count;
    unsigned connections_max, log_entries; /* of a guest */
    unsigned connection_count, connections_in_all_max;
    struct cordon_pipe *pipes; /* idle ones */
    unsigned pipe_count;
    struct cordon_session *sessions;
    unsigned session_count;
    struct cordon_source control, signals, peer;
    bool oneshot;
};

#endif
