/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Our own questions, by c-ares. Its sockets are watched in our loop, its timeouts are one timer. Neither the hosts file
 * nor search domains are consulted: a name means what DNS says of exactly that name. A lookup that is dropped only
 * forgets who asked; its answer is thrown away.
 */
#include <ares.h>
#include <errno.h>
#include <netdb.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/time.h>

#include "base/fd.h"
#include "egress/egress.h"

#define TIMEOUT_MS 2000
#define TRIES 2
#define SOCKETS 32
#define SERVERS_TEXT 1024

struct cordon_lookup_call {
    struct cordon_lookup *lookup; /* NULL: dropped */
};

struct socket {
    struct cordon_source source;
    struct cordon_resolver *resolver;
};

struct cordon_resolver {
    struct cordon_loop *loop;
    ares_channel channel;
    struct socket sockets[SOCKETS];
    struct cordon_timer timer;
};

/* --- c-ares in our loop --- */

static void plan(struct cordon_resolver *resolver)
{
    struct timeval wait;
    if (ares_timeout(resolver->channel, NULL, &wait))
        cordon_timer_arm(resolver->loop, &resolver->timer,
                         (uint64_t)wait.tv_sec * 1000000 + (uint64_t)wait.tv_usec + 1000);
    else
        cordon_timer_cancel(resolver->loop, &resolver->timer);
}

static void on_due(struct cordon_timer *timer)
{
    struct cordon_resolver *resolver = CORDON_OWNER(struct cordon_resolver, timer, timer);
    ares_process_fd(resolver->channel, ARES_SOCKET_BAD, ARES_SOCKET_BAD);
    plan(resolver);
}

static void on_socket(struct cordon_source *source, uint32_t events)
{
    struct socket *sock = CORDON_OWNER(struct socket, source, source);
    struct cordon_resolver *resolver = sock->resolver;
    ares_socket_t fd = source->fd;
    ares_process_fd(resolver->channel, events & (EPOLLIN | EPOLLHUP | EPOLLERR) ? fd : ARES_SOCKET_BAD,
                    events & EPOLLOUT ? fd : ARES_SOCKET_BAD);
    plan(resolver);
}

static struct socket *find_socket(struct cordon_resolver *resolver, int fd)
{
    for (size_t i = 0; i < SOCKETS; i++)
        if (resolver->sockets[i].source.fd == fd)
            return &resolver->sockets[i];
    return NULL;
}

/* One that can't be watched is served by the timer, and its question fails by its timeout. */
static void on_state(void *data, ares_socket_t fd, int readable, int writable)
{
    struct cordon_resolver *resolver = data;
    uint32_t events = (readable ? EPOLLIN : 0u) | (writable ? EPOLLOUT : 0u);
    struct socket *sock = find_socket(resolver, fd);
    if (sock && events)
        (void)cordon_source_set(resolver->loop, &sock->source, events);
    else if (sock)
        cordon_source_forget(resolver->loop, &sock->source);
    else if (events && (sock = find_socket(resolver, -1)))
        (void)cordon_source_lend(resolver->loop, &sock->source, fd, events);
}

/* "address" and "address:port", as c-ares takes them. */
static int set_servers(struct cordon_resolver *resolver, const struct cordon_settings *settings,
                       struct cordon_error *err)
{
    char text[SERVERS_TEXT] = "", one[CORDON_EGRESS_RULE_TEXT];
    struct cordon_egress_rule rule;
    size_t used = 0, i = 0;
    int r;
    for (; (r = cordon_egress_range_setting(settings, CORDON_SET_EGRESS_RESOLVER, i, true, &rule, err)) > 0; i++) {
        cordon_egress_rule_format(&rule, one);
        used += (size_t)snprintf(text + used, sizeof text - used, "%s%s", i ? "," : "", one);
        if (used >= sizeof text)
            return cordon_fail(err, -E2BIG, CORDON_ERROR_INVALID, "CORDON_EGRESS_RESOLVER: too many name servers");
    }
    if (r < 0 || !i)
        return r;
    r = ares_set_servers_ports_csv(resolver->channel, text);
    return r == ARES_SUCCESS ? 0
                             : cordon_fail(err, -EINVAL, CORDON_ERROR_INVALID, "CORDON_EGRESS_RESOLVER: %s: %s", text,
                                           ares_strerror(r));
}

int cordon_resolver_new(struct cordon_loop *loop, const struct cordon_settings *settings, struct cordon_resolver **ret,
                        struct cordon_error *err)
{
    struct cordon_resolver *resolver = calloc(1, sizeof *resolver);
    char lookups[] = "b"; /* DNS alone, no hosts file */
    if (!resolver)
        return cordon_fail_errno(err, -ENOMEM, "make a resolver");
    resolver->loop = loop;
    resolver->timer.on_due = on_due;
    for (size_t i = 0; i < SOCKETS; i++)
        resolver->sockets[i] = (struct socket){.source = {.fd = -1, .on_event = on_socket}, .resolver = resolver};
    struct ares_options options = {.flags = ARES_FLAG_NOSEARCH | ARES_FLAG_NOALIASES | ARES_FLAG_STAYOPEN,
                                   .timeout = TIMEOUT_MS,
                                   .tries = TRIES,
                                   .lookups = lookups,
                                   .sock_state_cb = on_state,
                                   .sock_state_cb_data = resolver};
    int r = ares_library_init(ARES_LIB_INIT_ALL);
    if (r == ARES_SUCCESS)
        r = ares_init_options(&resolver->channel, &options,
                              ARES_OPT_FLAGS | ARES_OPT_TIMEOUTMS | ARES_OPT_TRIES | ARES_OPT_LOOKUPS |
                                  ARES_OPT_SOCK_STATE_CB);
    if (r != ARES_SUCCESS) {
        free(resolver);
        return cordon_fail(err, -EIO, CORDON_ERROR_INFRASTRUCTURE, "make a resolver: %s", ares_strerror(r));
    }
    r = set_servers(resolver, settings, err);
    if (r < 0) {
        cordon_resolver_free(resolver);
        return r;
    }
    *ret = resolver;
    return 0;
}

void cordon_resolver_free(struct cordon_resolver *resolver)
{
    if (!resolver)
        return;
    cordon_timer_cancel(resolver->loop, &resolver->timer);
    ares_destroy(resolver->channel); /* calls back what is under way, and for each of its sockets */
    cordon_timer_cancel(resolver->loop, &resolver->timer);
    ares_library_cleanup();
    free(resolver);
}

/* --- questions --- */

static struct cordon_lookup_call *begin(struct cordon_lookup *lookup)
{
    struct cordon_lookup_call *call = malloc(sizeof *call);
    if (call)
        call->lookup = lookup;
    lookup->call = call;
    return call;
}

/* Who asked, if anybody still wants to know. */
static struct cordon_lookup *end(struct cordon_lookup_call *call)
{
    struct cordon_lookup *lookup = call->lookup;
    if (lookup)
        lookup->call = NULL;
    free(call);
    return lookup;
}

void cordon_lookup_drop(struct cordon_lookup *lookup)
{
    if (lookup->call)
        lookup->call->lookup = NULL;
    lookup->call = NULL;
}

static int status_of(int status)
{
    switch (status) {
    case ARES_SUCCESS:
        return 0;
    case ARES_ENOTFOUND:
    case ARES_ENODATA:
    case ARES_EBADNAME:
        return -ENOENT;
    case ARES_ENOMEM:
        return -ENOMEM;
    default:
        return -EAGAIN;
    }
}

static void take(const struct ares_addrinfo *info, struct cordon_resolved *resolved)
{
    resolved->ttl_s = UINT32_MAX;
    for (const struct ares_addrinfo_node *node = info->nodes; node && resolved->count < CORDON_RESOLVED_MAX;
         node = node->ai_next) {
        struct sockaddr_storage address = {0};
        uint16_t port;
        if (node->ai_addrlen > sizeof address || (node->ai_family != AF_INET && node->ai_family != AF_INET6))
            continue;
        memcpy(&address, node->ai_addr, node->ai_addrlen);
        resolved->addresses[resolved->count++] = cordon_egress_address_of(&address, &port);
        if (node->ai_ttl >= 0 && (uint32_t)node->ai_ttl < resolved->ttl_s)
            resolved->ttl_s = (uint32_t)node->ai_ttl;
    }
    if (!resolved->count)
        resolved->status = -ENOENT;
}

static void on_addresses(void *arg, int status, int timeouts, struct ares_addrinfo *info)
{
    struct cordon_lookup *lookup = end(arg);
    struct cordon_resolved resolved = {.status = status_of(status)};
    if (status == ARES_SUCCESS && info)
        take(info, &resolved);
    ares_freeaddrinfo(info);
    if (lookup)
        lookup->on_resolved(lookup, &resolved);
}

void cordon_resolve(struct cordon_resolver *resolver, const char *name, struct cordon_lookup *lookup)
{
    const struct ares_addrinfo_hints hints = {.ai_family = AF_UNSPEC, .ai_socktype = SOCK_STREAM};
    const struct cordon_resolved failed = {.status = -ENOMEM};
    struct cordon_lookup_call *call = begin(lookup);
    if (!call) {
        lookup->on_resolved(lookup, &failed);
        return;
    }
    ares_getaddrinfo(resolver->channel, name, NULL, &hints, on_addresses, call);
    plan(resolver);
}

static void on_raw(void *arg, int status, int timeouts, unsigned char *answer, int size)
{
    struct cordon_lookup *lookup = end(arg);
    if (lookup)
        lookup->on_answer(lookup, answer, answer && size > 0 ? (size_t)size : 0);
}

void cordon_resolve_raw(struct cordon_resolver *resolver, const char *name, uint16_t type, struct cordon_lookup *lookup)
{
    struct cordon_lookup_call *call = begin(lookup);
    if (!call) {
        lookup->on_answer(lookup, NULL, 0);
        return;
    }
    ares_query(resolver->channel, name, 1, type, on_raw, call);
    plan(resolver);
}
