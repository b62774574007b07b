/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Who has a place, and who gives his up. A thread belongs to each connection, so there are connections_max places, and
 * whoever can open sockets can ask for all of them. When they are taken, a new connection gets the place of another:
 *
 * - of the oldest stranger of the address that has most of them. Age counts from accepting, so no stranger keeps a
 * place by being busy; a client with a key needs one only until its first header was read, and then is none any longer.
 * Where all have one address (loopback, a proxy), that is the oldest stranger of all;
 * - while strangers have few places, of the trusted connection that is idle longest.
 *
 * If there is neither, all places are taken by requests of trusted clients under way, and the new connection is over
 * the limit: its header is read, and unless that shows an admin's key it is told to come again.
 *
 * A connection that has to go is shut down, which wakes its thread, whatever that waits for. libmicrohttpd closes the
 * descriptor after it has told us (place_leave), so it is no other's while we know it.
 */
#include <netinet/in.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

#include "base/clock.h"
#include "http/internal.h"

#define STRANGER_US (30u * 1000000ull)       /* without a key, from connecting to the end of a request */
#define STRANGER_SCARCE_US (5u * 1000000ull) /* the same while connections_max are taken */
#define FEW_STRANGERS 4u                     /* one in so many places: as long, they are not the first to go */
#define LOOKED_AT 16u                        /* in one queue, for one that may go */

static void queue_remove(struct connection *connection)
{
    struct queue *queue = connection->queue;
    if (!queue)
        return;
    if (connection->before)
        connection->before->after = connection->after;
    else
        queue->first = connection->after;
    if (connection->after)
        connection->after->before = connection->before;
    else
        queue->last = connection->before;
    queue->count--;
    connection->queue = NULL;
}

static void queue_append(struct queue *queue, struct connection *connection)
{
    connection->before = queue->last;
    connection->after = NULL;
    if (queue->last)
        queue->last->after = connection;
    else
        queue->first = connection;
    queue->last = connection;
    queue->count++;
    connection->queue = queue;
}

/* Where it belongs, by what is known of it. NULL: it gives way to nobody, or is leaving already. */
static struct queue *queue_of(struct connection *connection)
{
    struct cordon_http_server *server = connection->server;
    if (connection->leaving)
        return NULL;
    if (connection->over_limit)
        return &server->refused;
    if (!connection->trusted)
        return &server->strangers[connection->address];
    return connection->active ? NULL : &server->resting;
}

static bool is_strangers(const struct cordon_http_server *server, const struct queue *queue)
{
    return queue && queue >= server->strangers && queue < server->strangers + CORDON_HTTP_ADDRESSES;
}

/* It keeps its age in a queue that it is in already. */
static void settle(struct connection *connection)
{
    struct cordon_http_server *server = connection->server;
    struct queue *to = queue_of(connection);
    if (to == connection->queue)
        return;
    server->stranger_count -= is_strangers(server, connection->queue);
    queue_remove(connection);
    server->stranger_count += is_strangers(server, to);
    if (to)
        queue_append(to, connection);
}

static void send_away(struct connection *connection)
{
    connection->leaving = true;
    connection->server->leaving++;
    settle(connection);
    (void)shutdown(connection->request.fd, SHUT_RDWR); /* it may have left by itself */
}

/* Connections that are here to stay. */
static size_t held(const struct cordon_http_server *server)
{
    return atomic_load(&server->connections) - server->leaving;
}

/* What has come and waits for its thread is not to be lost: a first request, or the next one of a trusted client. */
static bool has_unread(const struct connection *connection)
{
    int size = 0;
    return (!connection->heard || connection->trusted) && ioctl(connection->request.fd, FIONREAD, &size) == 0 &&
           size > 0;
}

static struct connection *oldest(const struct queue *queue)
{
    struct connection *connection = queue->first;
    for (unsigned i = 0; connection && has_unread(connection); i++)
        connection = i < LOOKED_AT ? connection->after : NULL;
    return connection;
}

static const struct queue *largest_crowd(const struct cordon_http_server *server)
{
    const struct queue *largest = server->strangers;
    for (unsigned i = 1; i < CORDON_HTTP_ADDRESSES; i++)
        if (server->strangers[i].count > largest->count)
            largest = &server->strangers[i];
    return largest;
}

/* False: nobody gives way. */
static bool make_room(struct cordon_http_server *server)
{
    bool few = server->stranger_count <= server->config.connections_max / FEW_STRANGERS;
    struct connection *goes = few ? oldest(&server->resting) : NULL;
    if (!goes)
        goes = oldest(largest_crowd(server));
    if (!goes && !few)
        goes = oldest(&server->resting);
    if (!goes || server->leaving >= CORDON_HTTP_LEAVING_MAX)
        return false;
    send_away(goes);
    return true;
}

/* An IPv4 address (also one that came as IPv6) whole, of an IPv6 address its /64. */
static unsigned address_index(const struct cordon_http_server *server, int fd)
{
    struct sockaddr_storage address = {0};
    socklen_t size = sizeof address;
    uint64_t prefix = 0;
    if (getpeername(fd, (struct sockaddr *)&address, &size) != 0)
        return 0; /* it has left already */
    if (address.ss_family == AF_INET) {
        prefix = ((const struct sockaddr_in *)(const void *)&address)->sin_addr.s_addr;
    } else if (address.ss_family == AF_INET6) {
        const struct in6_addr *in6 = &((const struct sockaddr_in6 *)(const void *)&address)->sin6_addr;
        memcpy(&prefix, in6->s6_addr + (IN6_IS_ADDR_V4MAPPED(in6) ? 12 : 0), IN6_IS_ADDR_V4MAPPED(in6) ? 4 : 8);
    }
    /* The finalizer of MurmurHash3: spreads whatever differs over all bits. */
    uint64_t mixed = prefix ^ server->seed;
    mixed = (mixed ^ mixed >> 33) * 0xff51afd7ed558ccdull;
    mixed = (mixed ^ mixed >> 33) * 0xc4ceb9fe1a85ec53ull;
    return (unsigned)((mixed ^ mixed >> 33) % CORDON_HTTP_ADDRESSES);
}

void cordon_http_place_take(struct connection *connection)
{
    struct cordon_http_server *server = connection->server;
    connection->address = address_index(server, connection->request.fd);
    pthread_mutex_lock(&server->lock);
    connection->waiting_since_us = cordon_now_us();
    bool room = held(server) < server->config.connections_max || make_room(server);
    connection->over_limit = !room && !connection->trusted;
    if (connection->over_limit && server->refused.count >= CORDON_HTTP_REFUSED_MAX &&
        server->leaving < CORDON_HTTP_LEAVING_MAX)
        send_away(server->refused.first);
    atomic_fetch_add(&server->connections, 1);
    settle(connection);
    pthread_mutex_unlock(&server->lock);
}

void cordon_http_place_leave(struct connection *connection)
{
    struct cordon_http_server *server = connection->server;
    pthread_mutex_lock(&server->lock);
    server->leaving -= connection->leaving;
    connection->leaving = true;
    settle(connection);
    atomic_fetch_sub(&server->connections, 1);
    pthread_mutex_unlock(&server->lock);
}

void cordon_http_place_begin(struct connection *connection)
{
    connection->heard = true;
    settle(connection);
}

void cordon_http_place_pass(struct connection *connection, bool keyless)
{
    pthread_mutex_lock(&connection->server->lock);
    connection->over_limit = connection->over_limit && !connection->request.by_admin;
    if (!connection->over_limit) {
        connection->trusted = connection->trusted || !keyless;
        connection->served = !connection->trusted;
    }
    settle(connection);
    pthread_mutex_unlock(&connection->server->lock);
}

void cordon_http_place_end(struct connection *connection)
{
    connection->waiting_since_us = cordon_now_us();
    connection->served = false;
    settle(connection);
}

static void expire_queue(const struct queue *queue, uint64_t now, uint64_t most)
{
    for (struct connection *connection = queue->first, *after; connection; connection = after) {
        after = connection->after;
        if (!connection->served && now - connection->waiting_since_us > most)
            send_away(connection);
    }
}

void cordon_http_server_expire(struct cordon_http_server *server)
{
    pthread_mutex_lock(&server->lock);
    uint64_t most = held(server) >= server->config.connections_max ? STRANGER_SCARCE_US : STRANGER_US;
    uint64_t now = cordon_now_us(); /* within the lock: later than all that is linked */
    expire_queue(&server->refused, now, most);
    for (unsigned i = 0; i < CORDON_HTTP_ADDRESSES; i++)
        expire_queue(&server->strangers[i], now, most);
    pthread_mutex_unlock(&server->lock);
}
