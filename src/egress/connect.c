/* SPDX-License-Identifier: Apache-2.0 */
/* From a judged connection to its server: resolve, judge the addresses, connect to one after the other. */
#include <errno.h>
#include <netinet/tcp.h>
#include <string.h>
#include <sys/socket.h>

#include "base/fd.h"
#include "egress/egress.h"

#define TRY_US 5000000u /* for one address, and for a name server's answer */

static void try_next(struct cordon_connection *connection);

static struct cordon_loop *loop_of(const struct cordon_connection *connection)
{
    return &connection->session->egress->loop;
}

void cordon_connection_established(struct cordon_connection *connection)
{
    connection->entry = cordon_egress_log_allowed(&connection->session->log, connection->name, &connection->connected,
                                                  connection->port, connection->has_rule ? &connection->rule : NULL);
}

static void established(struct cordon_connection *connection)
{
    int on = 1;
    cordon_timer_cancel(loop_of(connection), &connection->timer);
    connection->state = CORDON_RELAYING;
    /* Small answers are not to wait for an acknowledgement, neither here nor there. */
    (void)setsockopt(connection->server.fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    (void)setsockopt(connection->guest.fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    if (connection->intercept) {
        cordon_intercept_connected(connection);
        return;
    }
    cordon_connection_established(connection);
    connection->guest.on_event(&connection->guest, 0); /* what was said meanwhile */
}

/* Why the address must not be connected to, or NULL. */
static const char *judge(const struct cordon_connection *connection, const struct cordon_egress_address *address,
                         const struct cordon_egress_rule **rule)
{
    *rule = cordon_egress_denied_address(&connection->session->policy, address, connection->port);
    if (*rule)
        return "the address is denied";
    return cordon_egress_forbidden(connection->session->egress, address);
}

/* 1: under way or established, 0: this address does not do. */
static int try_address(struct cordon_connection *connection)
{
    struct sockaddr_storage address;
    socklen_t size = cordon_egress_sockaddr(&connection->connected, connection->port, &address);
    cordon_autoclose int sock = socket(address.ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (sock < 0 || (connect(sock, (const struct sockaddr *)&address, size) < 0 && errno != EINPROGRESS))
        return 0;
    if (cordon_source_watch(loop_of(connection), &connection->server, CORDON_TAKE_FD(sock), EPOLLOUT) < 0)
        return 0;
    connection->server_events = EPOLLOUT;
    connection->state = CORDON_CONNECTING;
    cordon_timer_arm(loop_of(connection), &connection->timer, TRY_US);
    return 1;
}

/* It was allowed, and there is nobody: no rule has refused it. */
static void fail(struct cordon_connection *connection, const char *why)
{
    cordon_egress_log_failed(&connection->session->log, connection->name,
                             connection->targets.count ? &connection->connected : &connection->asked, connection->port,
                             connection->has_rule ? &connection->rule : NULL, why);
    cordon_connection_cut(connection, false, NULL, why);
}

static void try_next(struct cordon_connection *connection)
{
    const struct cordon_egress_rule *rule = NULL;
    const char *forbidden = NULL;
    while (connection->target < connection->targets.count) {
        connection->connected = connection->targets.addresses[connection->target++];
        const char *why = judge(connection, &connection->connected, &rule);
        if (why)
            forbidden = why;
        else if (try_address(connection))
            return;
    }
    if (forbidden)
        cordon_connection_cut(connection, true, rule, forbidden);
    else
        fail(connection,
             connection->targets.count ? "no address of it can be connected to" : "the name has no address");
}

void cordon_connect_event(struct cordon_connection *connection)
{
    int error = ETIMEDOUT; /* it was the timer, which is not armed then */
    socklen_t size = sizeof error;
    if (connection->timer.armed && getsockopt(connection->server.fd, SOL_SOCKET, SO_ERROR, &error, &size) < 0)
        error = errno;
    if (error == 0) {
        established(connection);
        return;
    }
    cordon_source_close(loop_of(connection), &connection->server);
    try_next(connection);
}

static void on_resolved(struct cordon_waiter *waiter, const struct cordon_resolved *resolved)
{
    struct cordon_connection *connection = CORDON_OWNER(struct cordon_connection, waiter, waiter);
    connection->targets = *resolved;
    if (resolved->status < 0)
        fail(connection, resolved->status == -ENOENT ? "there is no such name" : "no name server answered");
    else
        try_next(connection);
}

void cordon_connect_begin(struct cordon_connection *connection)
{
    struct cordon_egress_address standing;
    if (!connection->by_name) {
        connection->targets = (struct cordon_resolved){.count = 1, .addresses = {connection->asked}};
        try_next(connection);
        return;
    }
    struct cordon_name *name = cordon_name_get(&connection->session->names, connection->name, &standing);
    if (!name) {
        cordon_connection_cut(connection, true, NULL, "too many names");
        return;
    }
    connection->state = CORDON_RESOLVING;
    connection->waiter.on_resolved = on_resolved;
    cordon_timer_arm(loop_of(connection), &connection->timer, 2 * TRY_US);
    cordon_name_wait(name, &connection->waiter);
}
