/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A guest's connection, from the accept to its end. For a name on ports 80 and 443 the first words are judged before
 * anything is connected; on other ports the server may have the first word, so it is connected at once and what the
 * guest says is held back until it is judged.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include "base/clock.h"
#include "base/fd.h"
#include "base/log.h"
#include "egress/egress.h"
#include "egress/head.h"

#define LOOK_US 10000000u
#define UPGRADE_US 10000000u /* a server's agreement; the guest is held back so long, and both sides stay open */
#define DNS_PORT 53
#define IN_MAX (CORDON_HEAD_MAX + 4096u)
#define READ_SIZE 4096u

static struct cordon_loop *loop_of(const struct cordon_connection *connection)
{
    return &connection->session->egress->loop;
}

/* --- ends --- */

static void set_reset(int fd)
{
    const struct linger now = {.l_onoff = 1};
    if (fd >= 0)
        (void)setsockopt(fd, SOL_SOCKET, SO_LINGER, &now, sizeof now); /* else it ends in order, which is no harm */
}

static void free_connection(struct cordon_connection *connection)
{
    struct cordon_session *session = connection->session;
    struct cordon_loop *loop = loop_of(connection);
    cordon_waiter_leave(&connection->waiter);
    cordon_timer_cancel(loop, &connection->timer);
    if (connection->job) {
        connection->job->tcp = NULL; /* its answer goes nowhere */
        cordon_job_drop(CORDON_TAKE(connection->job));
    }
    cordon_intercept_done(connection);
    cordon_flow_done(session->egress, &connection->up);
    cordon_flow_done(session->egress, &connection->down);
    cordon_source_close(loop, &connection->guest);
    cordon_source_close(loop, &connection->server);
    cordon_buf_wipe(&connection->in);
    cordon_buf_wipe(&connection->out);
    if (connection->previous)
        connection->previous->next = connection->next;
    else
        session->connections = connection->next;
    if (connection->next)
        connection->next->previous = connection->previous;
    session->connection_count--;
    session->egress->connection_count--;
    free(connection);
}

void cordon_connection_log(struct cordon_connection *connection, const char *why)
{
    if (connection->entry)
        cordon_egress_log_bytes(&connection->session->log, connection->entry, connection->up.bytes,
                                connection->down.bytes, why);
}

void cordon_connection_cut(struct cordon_connection *connection, bool refused, const struct cordon_egress_rule *rule,
                           const char *why)
{
    if (refused)
        cordon_egress_log_refused(&connection->session->log, connection->name,
                                  connection->targets.count ? &connection->connected : &connection->asked,
                                  connection->port, rule, false, why);
    cordon_connection_log(connection, why);
    set_reset(connection->guest.fd);
    set_reset(connection->server.fd);
    free_connection(connection);
}

void cordon_connection_end(struct cordon_connection *connection)
{
    cordon_connection_log(connection, "");
    free_connection(connection);
}

/* --- judging --- */

static enum cordon_egress_verdict decide(const struct cordon_connection *connection,
                                         const struct cordon_egress_rule **rule)
{
    const struct cordon_egress_policy *policy = &connection->session->policy;
    if (connection->by_name)
        return cordon_egress_decide_name(policy, connection->name, connection->port, rule);
    return cordon_egress_decide_address(policy, &connection->asked, connection->port, rule);
}

static void keep_rule(struct cordon_connection *connection, const struct cordon_egress_rule *rule)
{
    connection->has_rule = rule != NULL;
    if (rule)
        connection->rule = *rule;
}

bool cordon_connection_judge_again(struct cordon_connection *connection)
{
    const struct cordon_egress_rule *rule = NULL;
    bool off = connection->session->policy.mode == CORDON_EGRESS_OFF;
    if (connection->state == CORDON_ASKING ? !off : decide(connection, &rule) == CORDON_EGRESS_ALLOW) {
        const struct cordon_egress_rule *denied =
            connection->server.fd >= 0
                ? cordon_egress_denied_address(&connection->session->policy, &connection->connected, connection->port)
                : NULL;
        if (!denied)
            return true;
        rule = denied;
    }
    cordon_connection_cut(connection, true, rule, "the rules changed, and it fits them no more");
    return false;
}

/* --- what the guest says first --- */

/* 1: something came, 0: nothing now, negative: its end or an error. */
static int receive(struct cordon_connection *connection)
{
    char *to = cordon_buf_reserve(&connection->in, READ_SIZE);
    if (!to)
        return -EMSGSIZE;
    ssize_t n = recv(connection->guest.fd, to, READ_SIZE, MSG_DONTWAIT);
    if (n < 0)
        return errno == EAGAIN || errno == EINTR ? 0 : -errno;
    connection->in.size += (size_t)n;
    return n ? 1 : -EPIPE;
}

/* Named by what it said itself (mode OPEN with headers): now it must fit as a name. False: it was cut. */
static bool judge_told(struct cordon_connection *connection)
{
    const struct cordon_egress_rule *rule = NULL;
    if (connection->by_name || !*connection->name)
        return true;
    connection->by_name = true;
    if (decide(connection, &rule) == CORDON_EGRESS_ALLOW)
        return true;
    cordon_connection_cut(connection, true, rule, "the name is not allowed");
    return false;
}

/* False, as after a cut: it goes on by itself from here. */
static bool intercept(struct cordon_connection *connection)
{
    if (connection->state != CORDON_LOOKING) { /* its server was begun, or stands already, for the guest's own TLS */
        cordon_connection_cut(connection, true, NULL, "the rules changed, and its requests get headers now");
        return false;
    }
    if (!judge_told(connection))
        return false;
    if (cordon_intercept_begin(connection))
        cordon_intercept_event(connection);
    else
        cordon_connection_cut(connection, true, NULL, "no memory for TLS");
    return false;
}

/* False: it was cut, or goes on within TLS. */
static bool look(struct cordon_connection *connection)
{
    char why[160] = "";
    int r;
    while ((r = receive(connection)) > 0) {
        switch (cordon_look(connection, why)) {
        case CORDON_LOOK_MORE:
            continue;
        case CORDON_LOOK_BAD:
            cordon_connection_cut(connection, true, NULL, why);
            return false;
        case CORDON_LOOK_TLS:
            return intercept(connection);
        case CORDON_LOOK_PASSED:
            break;
        }
        connection->passed = true;
        if (connection->state == CORDON_RELAYING)
            cordon_timer_cancel(loop_of(connection), &connection->timer);
        return true;
    }
    if (r == 0) {
        if (connection->in.size && connection->state == CORDON_RELAYING && !connection->timer.armed)
            cordon_timer_arm(loop_of(connection), &connection->timer, LOOK_US); /* it has begun: it has to go on */
        return true;
    }
    if (r == -EPIPE && !connection->in.size && connection->state == CORDON_LOOKING) {
        cordon_connection_end(connection); /* somebody looked whether the port is open */
        return false;
    }
    if (r == -EPIPE && !connection->in.size) {
        connection->passed = true; /* it only listens */
        return true;
    }
    cordon_connection_cut(connection, true, NULL,
                          r == -EMSGSIZE ? "it says too much without a name" : "it ended before it named a host");
    return false;
}

static void on_guest(struct cordon_source *source, uint32_t events)
{
    struct cordon_connection *connection = CORDON_OWNER(struct cordon_connection, guest, source);
    bool broken = false;
    if (connection->state == CORDON_ASKING) {
        if (connection->job && events & (EPOLLHUP | EPOLLERR)) /* always told: it would wake us until the answer came */
            cordon_connection_end(connection);
        else
            cordon_answer_tcp(connection);
        return;
    }
    if (connection->intercept) {
        if (events & EPOLLERR && connection->state != CORDON_RELAYING)
            cordon_connection_cut(connection, false, NULL, "the guest reset it");
        else
            cordon_intercept_event(connection);
        return;
    }
    if (!connection->passed) {
        if (!look(connection))
            return;
        if (connection->passed && connection->state == CORDON_LOOKING) {
            if (judge_told(connection))
                cordon_connect_begin(connection);
            return;
        }
    }
    if (connection->state != CORDON_RELAYING) {
        if (events & EPOLLERR)
            cordon_connection_cut(connection, false, NULL, "the guest reset it");
        return;
    }
    if (cordon_relay(connection, &broken))
        cordon_relay_watch(connection);
    else if (broken)
        cordon_connection_cut(connection, false, NULL, "it broke");
    else
        cordon_connection_end(connection);
}

static void on_server(struct cordon_source *source, uint32_t events)
{
    struct cordon_connection *connection = CORDON_OWNER(struct cordon_connection, server, source);
    bool broken = false;
    if (connection->state == CORDON_CONNECTING) {
        cordon_connect_event(connection);
        return;
    }
    if (connection->intercept) {
        cordon_intercept_event(connection);
        return;
    }
    if (cordon_relay(connection, &broken))
        cordon_relay_watch(connection);
    else if (broken)
        cordon_connection_cut(connection, false, NULL, "it broke");
    else
        cordon_connection_end(connection);
}

void cordon_connection_upgrade(struct cordon_connection *connection)
{
    if (!connection->waits_for_101)
        cordon_timer_cancel(loop_of(connection), &connection->timer);
    else if (!connection->timer.armed)
        cordon_timer_arm(loop_of(connection), &connection->timer, UPGRADE_US);
}

/* Its server stands already, and what the guest says is not yet known for what it is. */
static bool is_held_back(const struct cordon_connection *connection)
{
    return connection->state == CORDON_RELAYING && !connection->passed && !connection->intercept;
}

static void on_due(struct cordon_timer *timer)
{
    struct cordon_connection *connection = CORDON_OWNER(struct cordon_connection, timer, timer);
    if (connection->state == CORDON_ASKING || cordon_intercept_lingers(connection))
        cordon_connection_end(connection);
    else if (connection->state == CORDON_LOOKING || is_held_back(connection))
        cordon_connection_cut(connection, true, NULL, "it named no host in time");
    else if (connection->state == CORDON_CONNECTING)
        cordon_connect_event(connection);
    else if (connection->state == CORDON_RELAYING && connection->waits_for_101)
        cordon_connection_cut(connection, false, NULL, "the server did not answer the upgrade in time");
    else
        cordon_connection_cut(connection, false, NULL, "nobody answered in time");
}

/* --- the accept --- */

static struct cordon_connection *new_connection(struct cordon_session *session, int fd)
{
    struct cordon_connection *connection = calloc(1, sizeof *connection);
    struct sockaddr_storage here = {0};
    socklen_t size = sizeof here;
    if (!connection)
        return NULL;
    connection->session = session;
    connection->guest = (struct cordon_source){.fd = fd, .on_event = on_guest};
    connection->server = (struct cordon_source){.fd = -1, .on_event = on_server};
    connection->timer.on_due = on_due;
    connection->in = CORDON_BUF_INIT(IN_MAX);
    (void)getsockname(fd, (struct sockaddr *)&here, &size); /* of our own socket: can't fail */
    connection->asked = cordon_egress_address_of(&here, &connection->port);
    connection->next = session->connections;
    if (connection->next)
        connection->next->previous = connection;
    session->connections = connection;
    session->connection_count++;
    session->egress->connection_count++;
    return connection;
}

/* What is to be done with it: NULL, or why it is refused. */
static const char *judge(struct cordon_connection *connection, const struct cordon_egress_rule **rule)
{
    struct cordon_session *session = connection->session;
    struct cordon_egress *egress = session->egress;
    bool standing = false;
    const struct cordon_name *name = cordon_name_at(&session->names, &connection->asked, &standing);
    if (session->policy.mode == CORDON_EGRESS_OFF)
        return "the network is off";
    if (session->connection_count > egress->connections_max ||
        egress->connection_count > egress->connections_in_all_max)
        return "too many connections at once";
    if (connection->port == DNS_PORT && !name) {
        connection->state = CORDON_ASKING;
        return NULL;
    }
    connection->by_name = name != NULL;
    if (name)
        memcpy(connection->name, name->name, sizeof connection->name);
    if (decide(connection, rule) == CORDON_EGRESS_REFUSE)
        return name ? "the name is not allowed on this port" : "the address is not allowed";
    keep_rule(connection, *rule);
    return name ? NULL : cordon_egress_forbidden(egress, &connection->asked);
}

static bool must_be_looked_at(const struct cordon_connection *connection)
{
    const struct cordon_egress_policy *policy = &connection->session->policy;
    bool well_known = connection->port == 80 || connection->port == 443;
    return connection->by_name || (policy->mode == CORDON_EGRESS_OPEN && policy->header_count && well_known);
}

void cordon_connection_accept(struct cordon_session *session, int fd_take)
{
    struct cordon_connection *connection = new_connection(session, fd_take);
    const struct cordon_egress_rule *rule = NULL;
    if (!connection) {
        set_reset(fd_take);
        cordon_close(&fd_take);
        return;
    }
    const char *why = judge(connection, &rule);
    int fd = CORDON_TAKE_FD(connection->guest.fd);
    int r = cordon_source_watch(loop_of(connection), &connection->guest, fd, EPOLLIN | EPOLLRDHUP | EPOLLET);
    if (r < 0 || why) {
        cordon_connection_cut(connection, true, rule, why ? why : "no memory");
        return;
    }
    cordon_timer_arm(loop_of(connection), &connection->timer, LOOK_US);
    if (connection->state == CORDON_ASKING)
        return; /* its event comes */
    bool looked_at = must_be_looked_at(connection);
    /* It must speak first, and is judged before: on these ports, and where requests get headers. */
    bool first =
        connection->port == 80 || connection->port == 443 ||
        (connection->by_name && cordon_egress_policy_has_header(&session->policy, connection->name, connection->port));
    connection->passed = !looked_at;
    if (!looked_at || !first)
        cordon_connect_begin(connection);
}
