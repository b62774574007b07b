/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One request, from its header to its reply. libmicrohttpd calls on_request once with the header, then with each piece
 * of the body, then once more; only in the first and the last of these calls may a reply be queued, and a reply in the
 * first closes the connection, which loses the reply when the client is still sending. So whatever is wrong with a
 * request is remembered, its body is read and thrown away (up to a bound), and the reply is given at the end.
 */
#include <arpa/inet.h>
#include <assert.h>
#include <errno.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/socket.h>

#include "base/clock.h"
#include "base/instance.h"
#include "base/log.h"
#include "http/internal.h"

#define DISCARD_MAX (64u << 20)            /* beyond the body's limit, read only to be able to answer */
#define RECEIVE_MAX_US (600u * 1000000ull) /* a body must be here by then */
#define INTAKE_MAX_US (3600u * 1000000ull) /* the same where it is taken as it comes */
#define BODIES_FACTOR 16u                  /* all bodies together, in units of the largest one */
#define TARGET_MAX (64u << 10)             /* more does not fit into the connection's pool */
#define STRANGER_BODY (64u << 10)          /* all that is kept of what comes from one who showed nothing */
#define BODY_KEEP (64u << 10)              /* a larger buffer is not kept for the connection's next request */

struct connection *cordon_http_connection_of(struct cordon_http_request *request)
{
    return (struct connection *)(void *)((char *)request - offsetof(struct connection, request));
}

/* libmicrohttpd cuts the query to pieces in place; what is passed on to others must be what came. */
void *cordon_http_on_uri(void *server, const char *uri, struct MHD_Connection *mhd)
{
    const union MHD_ConnectionInfo *info = MHD_get_connection_info(mhd, MHD_CONNECTION_INFO_SOCKET_CONTEXT);
    struct connection *connection = info ? info->socket_context : NULL;
    if (connection) {
        struct cordon_buf *target = &connection->request.target;
        target->max = TARGET_MAX;
        target->size = 0;
        (void)cordon_buf_append(target, uri, strlen(uri) + 1); /* sticky: then there is none */
    }
    return NULL; /* the first value of on_request's state */
}

const char *cordon_http_target(const struct cordon_http_request *request)
{
    return request->target.failed || !request->target.size ? request->path : request->target.data;
}

struct header_walk {
    void (*each)(void *context, const char *name, const char *value);
    void *context;
};

static enum MHD_Result walk_header(void *context, enum MHD_ValueKind kind, const char *name, const char *value)
{
    const struct header_walk *walk = context;
    walk->each(walk->context, name, value ? value : "");
    return MHD_YES;
}

void cordon_http_headers(const struct cordon_http_request *request,
                         void (*each)(void *context, const char *name, const char *value), void *context)
{
    struct header_walk walk = {each, context};
    (void)MHD_get_connection_values(request->mhd, MHD_HEADER_KIND, walk_header, &walk); /* how many there are */
}

void cordon_http_idle_timeout(struct MHD_Connection *mhd, unsigned seconds)
{
    (void)MHD_set_connection_option(mhd, MHD_CONNECTION_OPTION_TIMEOUT, seconds); /* can't fail for this option */
}

const char *cordon_http_header(const struct cordon_http_request *request, const char *name)
{
    return MHD_lookup_connection_value(request->mhd, MHD_HEADER_KIND, name);
}

bool cordon_http_accepts(const struct cordon_http_request *request, const char *type)
{
    const char *accept = cordon_http_header(request, MHD_HTTP_HEADER_ACCEPT);
    return accept && strcasestr(accept, type);
}

static void describe_client(struct connection *connection, struct MHD_Connection *mhd)
{
    struct cordon_http_request *request = &connection->request;
    const union MHD_ConnectionInfo *info = MHD_get_connection_info(mhd, MHD_CONNECTION_INFO_CONNECTION_FD);
    struct sockaddr_storage address;
    socklen_t size = sizeof address;
    char text[INET6_ADDRSTRLEN] = "?";
    request->fd = info ? info->connect_fd : -1;
    request->peer_uid = -1;
    if (getpeername(request->fd, (struct sockaddr *)&address, &size) != 0)
        address.ss_family = AF_UNSPEC; /* it has left already */
    if (address.ss_family == AF_UNIX) {
        struct ucred peer;
        socklen_t peer_size = sizeof peer;
        if (getsockopt(request->fd, SOL_SOCKET, SO_PEERCRED, &peer, &peer_size) == 0)
            request->peer_uid = (long)peer.uid;
        (void)snprintf(request->client, sizeof request->client, "unix:uid=%ld", request->peer_uid); /* fits */
        return;
    }
    unsigned port = 0;
    if (address.ss_family == AF_INET) {
        const struct sockaddr_in *in = (const void *)&address;
        (void)inet_ntop(AF_INET, &in->sin_addr, text, sizeof text); /* a large enough buffer: can't fail */
        port = ntohs(in->sin_port);
    } else if (address.ss_family == AF_INET6) {
        const struct sockaddr_in6 *in6 = (const void *)&address;
        (void)inet_ntop(AF_INET6, &in6->sin6_addr, text, sizeof text);
        port = ntohs(in6->sin6_port);
    }
    (void)snprintf(request->client, sizeof request->client, "%s:%u", text, port); /* fits */
}

void cordon_http_on_connection(void *context, struct MHD_Connection *mhd, void **state,
                               enum MHD_ConnectionNotificationCode what)
{
    struct cordon_http_server *server = context;
    if (what == MHD_CONNECTION_NOTIFY_CLOSED) {
        struct connection *connection = *state;
        *state = NULL;
        if (!connection)
            return;
        cordon_http_place_leave(connection);
        cordon_buf_done(&connection->request.body);
        cordon_buf_done(&connection->request.reply_header);
        cordon_buf_done(&connection->request.target);
        free(connection);
        return;
    }
    struct connection *connection = calloc(1, sizeof *connection);
    *state = connection;
    if (!connection)
        return; /* on_request then closes it */
    connection->server = server;
    connection->request.server = server;
    connection->request.context = server->config.context;
    connection->request.mhd = mhd;
    describe_client(connection, mhd);
    /* A flood from the network must not lock out who sits at the machine. */
    connection->trusted = connection->request.peer_uid >= 0;
    cordon_http_place_take(connection);
}

static void activate(struct connection *connection)
{
    struct cordon_http_server *server = connection->server;
    pthread_mutex_lock(&server->lock);
    connection->next = server->active;
    connection->previous = NULL;
    if (server->active)
        server->active->previous = connection;
    server->active = connection;
    server->active_count++;
    connection->active = true;
    cordon_http_place_begin(connection);
    pthread_mutex_unlock(&server->lock);
}

static void deactivate(struct connection *connection)
{
    struct cordon_http_server *server = connection->server;
    if (!connection->active)
        return;
    pthread_mutex_lock(&server->lock);
    connection->active = false;
    cordon_http_place_end(connection);
    if (connection->next)
        connection->next->previous = connection->previous;
    if (connection->previous)
        connection->previous->next = connection->next;
    else
        server->active = connection->next;
    if (--server->active_count == 0)
        pthread_cond_broadcast(&server->idle);
    pthread_mutex_unlock(&server->lock);
}

static void body_uncharge(struct connection *connection)
{
    atomic_fetch_sub(&connection->server->bodies, connection->body_charged);
    connection->body_charged = 0;
}

static void refuse(struct connection *connection, enum cordon_error_kind kind, const char *message)
{
    (void)cordon_fail(&connection->refusal, -EINVAL, kind, "%s", message); /* only fills refusal */
    connection->discard = true;
}

static const struct cordon_http_intake *intake_of(const struct connection *connection)
{
    const struct cordon_http_match *match = &connection->request.match;
    return match->route && match->route->body_limit == CORDON_HTTP_BODY_INTAKE ? match->door->intake : NULL;
}

/* What an intake takes has its own bounds, wherever it goes. */
static size_t body_limit(const struct connection *connection)
{
    const struct cordon_http_route *route = connection->request.match.route;
    if (intake_of(connection))
        return SIZE_MAX / 2;
    size_t max = connection->server->config.body_max;
    return route && route->body_limit < max ? route->body_limit : max;
}

static void refuse_too_large(struct connection *connection)
{
    connection->discard = true;
    connection->request.body_dropped = connection->request.stranger;
    if (connection->request.stranger)
        return; /* its door answers, without the body */
    (void)cordon_fail(&connection->refusal, -EMSGSIZE, CORDON_ERROR_TOO_LARGE,
                      "the request's body is larger than %zu bytes (CORDON_BODY_MB)", body_limit(connection));
}

/* Counts the fields that frame a body; a name with white space in it may be one to whoever stands before us. */
static enum MHD_Result count_framing(void *context, enum MHD_ValueKind kind, const char *name, const char *value)
{
    unsigned *count = context;
    if (strcasecmp(name, MHD_HTTP_HEADER_CONTENT_LENGTH) == 0 ||
        strcasecmp(name, MHD_HTTP_HEADER_TRANSFER_ENCODING) == 0)
        ++*count;
    else if (strpbrk(name, " \t"))
        *count += 2;
    return MHD_YES;
}

/* How the body is framed. Two framings, or one that we don't know, are how requests are smuggled past proxies. */
static bool framing_ok(const struct cordon_http_request *request, uint64_t *ret_length, bool *ret_has_body)
{
    const char *length = cordon_http_header(request, MHD_HTTP_HEADER_CONTENT_LENGTH);
    const char *encoding = cordon_http_header(request, MHD_HTTP_HEADER_TRANSFER_ENCODING);
    unsigned count = 0;
    *ret_length = 0;
    *ret_has_body = encoding || length;
    (void)MHD_get_connection_values(request->mhd, MHD_HEADER_KIND, count_framing, &count); /* how many there are */
    if (count > 1)
        return false;
    if (encoding)
        return strcasecmp(encoding, "chunked") == 0;
    if (!length)
        return true;
    char *end;
    errno = 0;
    *ret_length = strtoull(length, &end, 10);
    *ret_has_body = *ret_length > 0;
    return length[0] >= '0' && length[0] <= '9' && !*end && !errno;
}

static void find_route(struct connection *connection)
{
    struct cordon_http_request *request = &connection->request;
    cordon_http_route_match(connection->server->config.doors, request, &request->match);
    if (request->match.route)
        return;
    request->match.index = connection->server->route_count;
    enum cordon_error_kind kind = request->match.allow[0] ? CORDON_ERROR_INVALID : CORDON_ERROR_NOT_FOUND;
    (void)cordon_fail(&connection->refusal, -ENOENT, kind,
                      request->match.allow[0] ? "%.16s is not a method of %.128s; it knows %s"
                                              : "no route for %.16s %.128s; GET /openapi.json lists them%s",
                      request->method, request->path, request->match.allow);
    connection->discard = true;
}

static void authorize(struct connection *connection)
{
    const struct cordon_http_route *route = connection->request.match.route;
    if (connection->refusal.kind || route->scope == CORDON_HTTP_OPEN)
        return;
    const struct cordon_http_config *config = &connection->server->config;
    struct cordon_http_request *request = &connection->request;
    int r = route->scope == CORDON_HTTP_OWN ? request->match.door->admit(request, &connection->refusal)
                                            : config->authorize(request, route->scope, &connection->refusal);
    if (r < 0) {
        connection->discard = true;
        return;
    }
    if (request->stranger) {
        request->body.max = request->body.max < STRANGER_BODY ? request->body.max : STRANGER_BODY;
        return;
    }
    cordon_http_place_pass(connection, request->keyless);
}

/* Beyond the limit only admins get in, and whose key it is was seen by now. */
static void refuse_over_limit(struct connection *connection)
{
    if (connection->over_limit)
        refuse(connection, CORDON_ERROR_BUSY, "all connections are taken (CORDON_CONNECTIONS); try again later");
}

/* What an intake failed with is the answer. */
static void note_failure(struct connection *connection, int code)
{
    if (code >= 0)
        return;
    if (!connection->refusal.kind)
        (void)cordon_fail_errno(&connection->refusal, code, "taking the request's body"); /* only fills refusal */
    connection->discard = true;
    connection->received = 0; /* from here on it is counted as thrown away */
    connection->request.body.max = 0;
}

/* The header is here: decides what will be answered, as far as that is known already. */
static enum MHD_Result begin(struct connection *connection, const char *url, const char *method)
{
    struct cordon_http_request *request = &connection->request;
    uint64_t length;
    bool has_body;
    request->method = method;
    request->path = url;
    request->replied = false;
    request->stranger = request->body_dropped = request->keyless = false;
    request->by_admin = request->sees_all = request->looks_only = false;
    request->body.size = 0;
    request->body.failed = false;
    request->reply_header.size = 0;
    request->subject[0] = '\0';
    connection->refusal = (struct cordon_error){0};
    connection->discard = false;
    connection->received = 0;
    connection->status = 0;
    connection->started_us = cordon_now_us();
    activate(connection);
    find_route(connection);
    request->body.max = body_limit(connection);
    const char *instance = cordon_http_header(request, CORDON_INSTANCE_HEADER);
    bool framed = framing_ok(request, &length, &has_body);
    if (!framed)
        refuse(connection, CORDON_ERROR_INVALID,
               "the body's framing is not clear: give either Content-Length or Transfer-Encoding: chunked, once");
    else if (instance && strcmp(instance, cordon_instance_id()) == 0)
        refuse(connection, CORDON_ERROR_CONFLICT, "this endpoint is this daemon: choose `local`");
    else if (atomic_load(&connection->server->stopping))
        refuse(connection, CORDON_ERROR_UNAVAILABLE, "the daemon is stopping");
    else if (!connection->refusal.kind)
        authorize(connection);
    refuse_over_limit(connection);
    if (connection->refusal.kind && intake_of(connection))
        request->body.max = 0; /* nobody will take it */
    connection->discard = connection->discard || !request->body.max;
    if (!connection->discard && length > request->body.max)
        refuse_too_large(connection);
    if (!connection->discard && intake_of(connection))
        note_failure(connection, intake_of(connection)->begin(request, &connection->refusal));
    bool waits = cordon_http_header(request, MHD_HTTP_HEADER_EXPECT);
    bool endless = length > request->body.max + DISCARD_MAX;
    if (!framed || (connection->refusal.kind && has_body && (waits || endless)))
        return cordon_http_reply_error(request, &connection->refusal) < 0 ? MHD_NO : MHD_YES;
    return MHD_YES;
}

static enum MHD_Result receive(struct connection *connection, const char *data, size_t size)
{
    struct cordon_http_request *request = &connection->request;
    struct cordon_http_server *server = connection->server;
    connection->received += size;
    uint64_t receive_max_us = intake_of(connection) ? INTAKE_MAX_US : RECEIVE_MAX_US;
    if (connection->received > request->body.max + (uint64_t)DISCARD_MAX ||
        cordon_now_us() - connection->started_us > receive_max_us)
        return MHD_NO; /* no end to be seen: closes the connection */
    if (connection->discard)
        return MHD_YES;
    if (intake_of(connection)) {
        note_failure(connection, intake_of(connection)->piece(request, data, size, &connection->refusal));
        cordon_http_idle_timeout(request->mhd, server->config.idle_timeout_s); /* what it blocked was not idle */
        return MHD_YES;
    }
    uint64_t held = atomic_fetch_add(&server->bodies, size);
    connection->body_charged += size;
    if (held + size > (uint64_t)server->config.body_max * BODIES_FACTOR)
        refuse(connection, CORDON_ERROR_BUSY, "too many large requests are under way; try again later");
    else if (cordon_buf_append(&request->body, data, size) == -EMSGSIZE)
        refuse_too_large(connection);
    else if (request->body.failed)
        refuse(connection, CORDON_ERROR_BUSY, "no memory for the request's body; try again later");
    if (connection->discard)
        cordon_buf_done(&request->body);
    return MHD_YES;
}

static enum MHD_Result answer(struct connection *connection)
{
    struct cordon_http_request *request = &connection->request;
    struct cordon_error err = {0};
    if (connection->refusal.kind)
        return cordon_http_reply_error(request, &connection->refusal) < 0 ? MHD_NO : MHD_YES;
    cordon_http_idle_timeout(request->mhd, 0);
    int code = request->match.route->handle(request, &err);
    cordon_http_idle_timeout(request->mhd, connection->server->config.idle_timeout_s);
    if (request->replied)
        return MHD_YES;
    if (!err.kind)
        (void)cordon_fail_errno(&err, code < 0 ? code : -EIO, "%s %s could not be answered", request->method,
                                request->match.route->pattern);
    if (err.kind ==
        CORDON_ERROR_INFRASTRUCTURE) /* the others are told where they arise, once, and not by each client */
        cordon_log_error("request failed", &err);
    return cordon_http_reply_error(request, &err) < 0 ? MHD_NO : MHD_YES;
}

enum MHD_Result cordon_http_on_request(void *server, struct MHD_Connection *mhd, const char *url, const char *method,
                                       const char *version, const char *upload, size_t *upload_size, void **state)
{
    struct connection *connection = *state;
    if (!connection) {
        const union MHD_ConnectionInfo *info = MHD_get_connection_info(mhd, MHD_CONNECTION_INFO_SOCKET_CONTEXT);
        connection = info ? info->socket_context : NULL;
        *state = connection;
        return connection ? begin(connection, url, method) : MHD_NO;
    }
    if (!*upload_size)
        return answer(connection);
    size_t size = *upload_size;
    *upload_size = 0;
    return receive(connection, upload, size);
}

static void count(struct connection *connection, enum MHD_RequestTerminationCode how)
{
    struct counts *counts = &connection->server->counts[connection->request.match.index];
    bool whole = how == MHD_REQUEST_TERMINATED_COMPLETED_OK && connection->status;
    unsigned class = whole ? (unsigned)connection->status / 100 : 0;
    assert(class < 6);
    atomic_fetch_add_explicit(&counts->by_class[class], 1, memory_order_relaxed);
    atomic_fetch_add_explicit(&counts->duration_us, cordon_now_us() - connection->started_us, memory_order_relaxed);
}

static void log_request(const struct connection *connection, enum MHD_RequestTerminationCode how)
{
    const struct cordon_http_request *request = &connection->request;
    const struct cordon_http_route *route = request->match.route;
    if (!cordon_log_wants(CORDON_LOG_DEBUG))
        return;
    cordon_log(CORDON_LOG_DEBUG, "request", "client", request->client, "method", route ? route->method : "?", "route",
               route ? route->pattern : "", "status", CORDON_NUM(connection->status), "us",
               CORDON_NUM(cordon_now_us() - connection->started_us), "end",
               how == MHD_REQUEST_TERMINATED_COMPLETED_OK ? "whole" : "broken", NULL);
}

void cordon_http_ended(struct connection *connection, enum MHD_RequestTerminationCode how)
{
    struct cordon_http_request *request = &connection->request;
    if (!connection->active)
        return;
    if (request->finish)
        request->finish(request->finish_context);
    request->finish = NULL;
    if (request->admitted)
        request->match.door->dismiss(request->admitted);
    request->admitted = NULL;
    body_uncharge(connection);
    if (request->body.capacity > BODY_KEEP)
        cordon_buf_done(&request->body);
    cordon_buf_done(&request->reply_header);
    count(connection, how);
    log_request(connection, how);
    deactivate(connection);
}

void cordon_http_on_completed(void *server, struct MHD_Connection *mhd, void **state,
                              enum MHD_RequestTerminationCode how)
{
    struct connection *connection = *state;
    *state = NULL;
    if (connection)
        cordon_http_ended(connection, how);
}
