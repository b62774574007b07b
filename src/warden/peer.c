/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Gateways. Whatever comes from one is hostile: a message is checked whole before anything is done, what is wrong with
 * it is said on the lease where there is one, and costs the gateway nothing but that message.
 */
#include "warden/machine.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/log.h"

#define MESSAGES_A_TURN 32

void cordon_peer_refuse(int lease, int status, const char *why)
{
    struct cordon_warden_grant grant = {.version = CORDON_WARDEN_VERSION, .status = status};
    (void)snprintf(grant.why, sizeof grant.why, "%s", why); /* cut at its size */
    (void)cordon_send_fds(lease, &grant, sizeof grant, NULL, 0,
                          MSG_DONTWAIT); /* gone or not a socket: nobody to tell */
}

/* Anything else than a lease must not even be written to: it may be a socket to somebody who would take our credentials
 * for his, and closing it may take long. */
static bool is_lease(int fd)
{
    int domain = 0, type = 0;
    socklen_t domain_size = sizeof domain, type_size = sizeof type;
    return getsockopt(fd, SOL_SOCKET, SO_DOMAIN, &domain, &domain_size) == 0 && domain == AF_UNIX &&
           getsockopt(fd, SOL_SOCKET, SO_TYPE, &type, &type_size) == 0 && type == SOCK_SEQPACKET;
}

/* The close of a TCP socket waits for its peer where SO_LINGER says so. The gateway's filter keeps it from saying so;
 * this is for sockets that it was given by others. */
static void drop(int fd)
{
    const struct linger none = {0};
    (void)setsockopt(fd, SOL_SOCKET, SO_LINGER, &none, sizeof none); /* fails where it means nothing */
    (void)close(fd);                                                 /* nothing was written */
}

static void acquire(struct cordon_warden *warden, const struct cordon_warden_acquire *request, int lease_take)
{
    cordon_autoclose int lease = lease_take;
    char why[sizeof warden->why];
    struct cordon_template *template = &warden->base;
    int r = cordon_request_check(warden, request, why, sizeof why);
    if (r == 0 && !request->unisolated)
        template = cordon_template_find(warden, request->template_name, &r, why, sizeof why);
    if (r == 0 && !request->machine && template->state == CORDON_TEMPLATE_SERVING)
        r = cordon_request_check_language(template, (enum cordon_guest_kind)request->kind, request->unisolated, why,
                                          sizeof why);
    if (r < 0) {
        cordon_log(CORDON_LOG_DEBUG, "acquire refused", "why", why, NULL);
        cordon_peer_refuse(lease, r, why);
        return;
    }
    if (request->machine == CORDON_MACHINE_LOOK) {
        cordon_machines_ask(warden->machines, CORDON_TAKE_FD(lease));
        return;
    }
    if (request->adopt) {
        cordon_keep_adopt(warden, request, CORDON_TAKE_FD(lease));
        return;
    }
    if (request->machine) {
        cordon_machine_acquire(warden, request, CORDON_TAKE_FD(lease));
        return;
    }
    size_t place = request->unisolated ? CORDON_POOLS_UNISOLATED
                   : request->network  ? CORDON_POOLS_NETWORK
                                       : CORDON_POOLS_PLAIN;
    cordon_pool_acquire(&template->pools[place][request->kind], request, CORDON_TAKE_FD(lease));
}

static void end_peer(struct cordon_peer *peer)
{
    struct cordon_warden *warden = peer->warden;
    for (struct cordon_peer **at = &warden->peers; *at; at = &(*at)->next) {
        if (*at == peer) {
            *at = peer->next;
            break;
        }
    }
    cordon_source_close(&warden->loop, &peer->source);
    free(peer);
    if (warden->config.oneshot && !warden->peers)
        warden->loop.stop = true;
}

/* False: the peer is at its end. */
static bool receive(struct cordon_peer *peer, bool *more)
{
    struct cordon_warden_acquire request = {0};
    int lease = -1;
    size_t nfds = 1;
    ssize_t n = cordon_recv_fds(peer->source.fd, &request, sizeof request, &lease, &nfds, MSG_DONTWAIT);
    *more = n != -EAGAIN;
    if (n == -EAGAIN)
        return true;
    if (n == 0 && nfds == 0)
        return false;
    if (nfds == 1 && n >= 0 && !is_lease(lease)) {
        drop(lease);
        cordon_log(CORDON_LOG_WARN, "message of a gateway dropped: its descriptor is no lease", NULL);
        return true;
    }
    if (n == (ssize_t)sizeof request && nfds == 1) {
        acquire(peer->warden, &request, lease);
        return true;
    }
    if (nfds == 1 && n >= 0) {
        cordon_peer_refuse(lease, -EBADMSG, "malformed request");
        cordon_close(&lease);
    }
    bool lost = n < 0 && n != -EMSGSIZE; /* the socket's end, e.g. with our hello unread */
    if (lost)
        cordon_log(CORDON_LOG_INFO, "a gateway is gone", "error", strerror((int)-n), NULL);
    else
        cordon_log(CORDON_LOG_WARN, "malformed message of a gateway dropped", "size", CORDON_NUM(n), NULL);
    return !lost;
}

static void on_peer(struct cordon_source *source, uint32_t events)
{
    struct cordon_peer *peer = CORDON_OWNER(struct cordon_peer, source, source);
    bool more = true;
    for (int i = 0; i < MESSAGES_A_TURN && more; i++) {
        if (!receive(peer, &more)) {
            end_peer(peer);
            return;
        }
    }
}

static void tell_machines(const struct cordon_warden *warden, struct cordon_warden_hello *hello)
{
    const struct cordon_machines *machines = warden->machines;
    hello->machine_accel = cordon_machines_accel(machines);
    hello->machine_status = machines->found.status;
    hello->machine_languages = machines->found.languages;
    if (warden->local_status < 0)
        hello->machine_status = warden->local_status;
    else if (!cordon_machines_surveyed(machines))
        hello->machine_status = -EAGAIN;
}

static void fill_hello(const struct cordon_warden *warden, struct cordon_warden_hello *hello)
{
    *hello = (struct cordon_warden_hello){.version = CORDON_WARDEN_VERSION,
                                          .abilities = warden->abilities,
                                          .languages = warden->base.languages,
                                          .status = warden->local_status,
                                          .start_ms = (uint32_t)(warden->config.start_us / 1000)};
    if (hello->status < 0)
        (void)snprintf(hello->why, sizeof hello->why, "%s", warden->why);
    else
        hello->status = cordon_pools_status(warden, hello->why, sizeof hello->why);
    tell_machines(warden, hello);
}

static int say_hello(struct cordon_warden *warden, int fd)
{
    struct cordon_warden_hello hello;
    fill_hello(warden, &hello);
    ssize_t n = cordon_send_fds(fd, &hello, sizeof hello, NULL, 0, MSG_DONTWAIT);
    warden->told_status = hello.status;
    warden->told_machines = hello.machine_status;
    warden->told_abilities = hello.abilities;
    return n < 0 ? (int)n : 0;
}

void cordon_peers_tell(struct cordon_warden *warden)
{
    struct cordon_warden_hello hello;
    fill_hello(warden, &hello);
    if (hello.status == warden->told_status && hello.machine_status == warden->told_machines &&
        hello.abilities == warden->told_abilities)
        return;
    warden->told_status = hello.status;
    warden->told_machines = hello.machine_status;
    warden->told_abilities = hello.abilities;
    for (struct cordon_peer *peer = warden->peers; peer; peer = peer->next) /* one that does not read keeps the old */
        (void)cordon_send_fds(peer->source.fd, &hello, sizeof hello, NULL, 0, MSG_DONTWAIT);
}

int cordon_peer_add(struct cordon_warden *warden, int fd_take)
{
    cordon_autoclose int fd = fd_take;
    cordon_autofree struct cordon_peer *peer = calloc(1, sizeof *peer);
    if (!peer)
        return -ENOMEM;
    int r = say_hello(warden, fd);
    if (r < 0)
        return r;
    peer->warden = warden;
    peer->source.on_event = on_peer;
    r = cordon_source_watch(&warden->loop, &peer->source, CORDON_TAKE_FD(fd), EPOLLIN);
    if (r < 0)
        return r;
    peer->next = warden->peers;
    warden->peers = CORDON_TAKE(peer);
    return 0;
}

void cordon_peers_done(struct cordon_warden *warden)
{
    while (warden->peers)
        end_peer(warden->peers);
}
