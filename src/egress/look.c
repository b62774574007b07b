/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Judging what a guest says first on a connection that was made for a name. On 443 it must be a TLS hello, on 80 an
 * HTTP request, elsewhere it may be either, or neither: then the name that the address stands for is all there is to
 * judge by. A name that is told must be the one that was asked for: the server is that one's in any case, and behind a
 * server of many names another would be another host.
 */
#include <stdio.h>
#include <string.h>

#include "egress/egress.h"
#include "egress/head.h"
#include "egress/hello.h"

#define TLS_PORT 443
#define HTTP_PORT 80

enum kind { KIND_MORE, KIND_TLS, KIND_HTTP, KIND_OTHER };

static enum kind guess(const struct cordon_connection *connection)
{
    const struct cordon_buf *in = &connection->in;
    if (connection->port == TLS_PORT)
        return KIND_TLS;
    if (connection->port == HTTP_PORT)
        return KIND_HTTP;
    if ((uint8_t)in->data[0] == 22)
        return in->size < 2 ? KIND_MORE : in->data[1] == 3 ? KIND_TLS : KIND_OTHER;
    switch (cordon_head_guess(in->data, in->size)) {
    case CORDON_HEAD_MORE:
        return KIND_MORE;
    case CORDON_HEAD_READ:
        return KIND_HTTP;
    default:
        return KIND_OTHER;
    }
}

/* Moves what was said to what is passed on. */
static enum cordon_look pass(struct cordon_connection *connection)
{
    struct cordon_buf in = connection->in;
    connection->in = CORDON_BUF_INIT(0);
    connection->out = in;
    return CORDON_LOOK_PASSED;
}

/* In mode OPEN only hosts that get headers are known by name; others go where the guest wants. */
static bool takes_name(struct cordon_connection *connection, const char *told)
{
    if (*connection->name)
        return strcmp(connection->name, told) == 0;
    const struct cordon_egress_policy *policy = &connection->session->policy;
    for (size_t i = 0; i < policy->header_count; i++)
        if (cordon_egress_rule_has_name(&policy->headers[i].host, told, connection->port))
            (void)snprintf(connection->name, sizeof connection->name, "%s", told);
    return true;
}

static enum cordon_look bad(char why[160], const char *text)
{
    (void)snprintf(why, 160, "%s", text);
    return CORDON_LOOK_BAD;
}

static enum cordon_look another(char why[160], const char *what, const char *told)
{
    (void)snprintf(why, 160, "%s %.60s is not the name that the address stands for", what, told);
    return CORDON_LOOK_BAD;
}

static bool gets_headers(const struct cordon_connection *connection)
{
    return *connection->name &&
           cordon_egress_policy_has_header(&connection->session->policy, connection->name, connection->port);
}

static enum cordon_look look_tls(struct cordon_connection *connection, char why[160])
{
    char told[CORDON_EGRESS_NAME_SIZE];
    switch (cordon_hello_read((const uint8_t *)connection->in.data, connection->in.size, told)) {
    case CORDON_HELLO_MORE:
        return CORDON_LOOK_MORE;
    case CORDON_HELLO_NAMED:
        break;
    case CORDON_HELLO_NAMELESS:
        return *connection->name ? bad(why, "TLS without a server name") : pass(connection);
    case CORDON_HELLO_ENCRYPTED:
        return *connection->name ? bad(why, "TLS with an encrypted client hello") : pass(connection);
    case CORDON_HELLO_BAD:
        return *connection->name ? bad(why, "no TLS hello, or a malformed or oversized one") : pass(connection);
    }
#ifdef CORDON_WEAKEN_SNI
    return pass(connection);
#endif
    if (!takes_name(connection, told))
        return another(why, "the TLS server name", told);
    if (!gets_headers(connection))
        return pass(connection);
    if (!connection->session->egress->authority)
        return bad(why, "TLS to a host whose requests get headers, and CORDON_EGRESS_CA is off");
    return CORDON_LOOK_TLS;
}

static enum cordon_look rewrite(struct cordon_connection *connection, const struct cordon_http_head *head,
                                char why[160])
{
    struct cordon_buf *in = &connection->in;
    struct cordon_buf out = CORDON_BUF_INIT(2 * CORDON_HEAD_MAX + CORDON_EGRESS_HEADERS_MAX * 8192u);
    unsigned added;
    int r = cordon_head_rewrite(in->data, head, &connection->session->policy, connection->name, connection->port, &out,
                                &added);
    if (r == 0 && !head->websocket)
        r = cordon_buf_append(&out, in->data + head->size, in->size - head->size);
    if (r < 0) {
        cordon_buf_wipe(&out);
        return bad(why, "no memory for a request's head");
    }
    if (head->websocket)
        cordon_buf_consume(in, head->size); /* what is said after it waits for the server's agreement */
    else
        cordon_buf_done(in);
    connection->out = out;
    connection->waits_for_101 = head->websocket;
    return CORDON_LOOK_PASSED;
}

enum cordon_look cordon_look_http(struct cordon_connection *connection, char why[160])
{
    struct cordon_http_head head;
    const char *wrong = NULL;
    switch (cordon_head_read(connection->in.data, connection->in.size, &head, &wrong)) {
    case CORDON_HEAD_MORE:
        return CORDON_LOOK_MORE;
    case CORDON_HEAD_BAD:
        if (!*connection->name)
            return pass(connection);
        (void)snprintf(why, 160, "HTTP with %s", wrong);
        return CORDON_LOOK_BAD;
    case CORDON_HEAD_READ:
        break;
    }
#ifdef CORDON_WEAKEN_HOST
    return pass(connection);
#endif
    if (head.port && head.port != connection->port)
        return *connection->name ? another(why, "the port of Host", head.host) : pass(connection);
    if (!takes_name(connection, head.host))
        return another(why, "the HTTP host", head.host);
    if (head.echo && gets_headers(connection))
        return bad(why, "HTTP with the method TRACE, to a host whose requests get headers");
    return *connection->name ? rewrite(connection, &head, why) : pass(connection);
}

enum cordon_look cordon_look(struct cordon_connection *connection, char why[160])
{
    if (!connection->in.size)
        return CORDON_LOOK_MORE;
    switch (guess(connection)) {
    case KIND_MORE:
        return CORDON_LOOK_MORE;
    case KIND_TLS:
        return look_tls(connection, why);
    case KIND_HTTP:
        return cordon_look_http(connection, why);
    case KIND_OTHER:
        break;
    }
    return pass(connection);
}
