/* SPDX-License-Identifier: Apache-2.0 */
/*
 * libmicrohttpd runs one daemon a listener, each with a thread that accepts and a thread a connection; the handlers are
 * blocking code. It must be told to use poll: with select, connections stop at descriptor 1,024.
 *
 * Its own limit of connections would leave what comes beyond in the backlog without an answer. So it is set a little
 * higher than ours, for the connections that are told "busy" and those that make room (places.c). Its idle timeout
 * starts anew with each byte; what bounds the whole stay of a client without a key is server_expire.
 */
#include "http/server.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "base/log.h"
#include "base/sanitize.h"
#include "http/internal.h"

#define POOL_BYTES (64u << 10) /* of a connection: header in, pieces out; touched only as far as used */
#define STACK_BYTES (256u << 10)
#ifdef CORDON_SANITIZED /* frames are several times as large */
#undef STACK_BYTES
#define STACK_BYTES (2u << 20)
#endif

/* Paths are matched as they came. What decodes them must not be cut by %00, as a C string would be. */
static size_t leave_escaped(void *context, struct MHD_Connection *mhd, char *text)
{
    return strlen(text);
}

static void log_line(void *context, const char *format, va_list ap) __attribute__((format(printf, 2, 0)));
static void log_line(void *context, const char *format, va_list ap)
{
    char text[256];
    if (!cordon_log_wants(CORDON_LOG_DEBUG))
        return;
    (void)vsnprintf(text, sizeof text, format, ap); /* cut on purpose */
    text[strcspn(text, "\n")] = '\0';
    cordon_log(CORDON_LOG_DEBUG, "http", "detail", text, NULL); /* clients cause these at will: never louder */
}

static bool is_unix(int fd)
{
    int domain = 0;
    socklen_t size = sizeof domain;
    return getsockopt(fd, SOL_SOCKET, SO_DOMAIN, &domain, &size) == 0 && domain == AF_UNIX;
}

static struct MHD_Daemon *start_daemon(struct cordon_http_server *server, int fd)
{
    const struct cordon_http_config *config = &server->config;
    bool tls = config->tls_cert && !is_unix(fd);
    unsigned flags = MHD_USE_THREAD_PER_CONNECTION | MHD_USE_POLL | MHD_USE_INTERNAL_POLLING_THREAD | MHD_USE_ITC |
                     MHD_USE_ERROR_LOG | MHD_ALLOW_UPGRADE | (tls ? MHD_USE_TLS : 0u);
    struct MHD_OptionItem tls_options[] = {
        {MHD_OPTION_HTTPS_MEM_CERT, 0, (void *)(uintptr_t)config->tls_cert},
        {MHD_OPTION_HTTPS_PRIORITIES, 0, (void *)(uintptr_t) "NORMAL:-VERS-ALL:+VERS-TLS1.3:+VERS-TLS1.2"},
        {MHD_OPTION_HTTPS_MEM_KEY, 0, (void *)(uintptr_t)config->tls_key},
        {MHD_OPTION_END, 0, NULL},
    };
    struct MHD_OptionItem no_options[] = {{MHD_OPTION_END, 0, NULL}};
    return MHD_start_daemon(flags, 0, NULL, NULL, cordon_http_on_request, server, MHD_OPTION_EXTERNAL_LOGGER, log_line,
                            NULL, MHD_OPTION_LISTEN_SOCKET, fd, MHD_OPTION_CONNECTION_LIMIT,
                            config->connections_max + CORDON_HTTP_REFUSED_MAX + CORDON_HTTP_LEAVING_MAX,
                            MHD_OPTION_CONNECTION_TIMEOUT, config->idle_timeout_s, MHD_OPTION_CONNECTION_MEMORY_LIMIT,
                            (size_t)POOL_BYTES, MHD_OPTION_THREAD_STACK_SIZE, (size_t)STACK_BYTES,
                            MHD_OPTION_NOTIFY_COMPLETED, cordon_http_on_completed, server, MHD_OPTION_NOTIFY_CONNECTION,
                            cordon_http_on_connection, server, MHD_OPTION_URI_LOG_CALLBACK, cordon_http_on_uri, server,
                            MHD_OPTION_UNESCAPE_CALLBACK, leave_escaped, NULL, MHD_OPTION_STRICT_FOR_CLIENT, 1,
                            MHD_OPTION_ARRAY, tls ? tls_options : no_options, MHD_OPTION_END);
}

static void free_server(struct cordon_http_server *server)
{
    for (size_t i = 0; i < server->daemon_count; i++)
        MHD_stop_daemon(server->daemons[i]);
    for (size_t i = 0; i < server->config.listen_count; i++)
        (void)close(server->fds[i]); /* a listener has nothing to lose */
    pthread_cond_destroy(&server->idle);
    pthread_mutex_destroy(&server->lock);
    free(server->counts);
    free(server);
}

static struct cordon_http_server *new_server(const struct cordon_http_config *config)
{
    struct cordon_http_server *server = calloc(1, sizeof *server);
    if (!server)
        return NULL;
    server->config = *config;
    server->route_count = cordon_http_route_count(config->doors);
    server->counts = calloc(server->route_count + 1, sizeof *server->counts);
    if (getrandom(&server->seed, sizeof server->seed, 0) != (ssize_t)sizeof server->seed)
        server->seed = (uint64_t)(uintptr_t)server; /* can't fail once the kernel has booted */
    pthread_condattr_t attributes;
    pthread_condattr_init(&attributes);
    pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
    pthread_cond_init(&server->idle, &attributes);
    pthread_condattr_destroy(&attributes);
    pthread_mutex_init(&server->lock, NULL);
    memcpy(server->fds, config->listen_fds, config->listen_count * sizeof *server->fds);
    server->config.listen_fds = server->fds;
    if (!server->counts) {
        server->config.listen_count = 0; /* the caller keeps its descriptors */
        free_server(server);
        return NULL;
    }
    return server;
}

int cordon_http_server_start(const struct cordon_http_config *config, struct cordon_http_server **ret,
                             struct cordon_error *err)
{
    if (config->listen_count > CORDON_HTTP_LISTENERS)
        return cordon_fail(err, -E2BIG, CORDON_ERROR_INVALID, "%zu listeners are too many; at most %d are served",
                           config->listen_count, CORDON_HTTP_LISTENERS);
    struct cordon_http_server *server = new_server(config);
    if (!server)
        return cordon_fail_errno(err, -ENOMEM, "start of the HTTP server");
    for (size_t i = 0; i < config->listen_count; i++) {
        struct MHD_Daemon *daemon = start_daemon(server, server->fds[i]);
        if (!daemon) {
            free_server(server);
            return cordon_fail(err, -EINVAL, CORDON_ERROR_INFRASTRUCTURE,
                               "the HTTP server does not start on listener %zu%s", i,
                               config->tls_cert ? " (are certificate and key a matching pair in PEM form?)" : "");
        }
        server->daemons[server->daemon_count++] = daemon;
    }
    *ret = server;
    return 0;
}

static bool wait_idle(struct cordon_http_server *server, unsigned grace_ms)
{
    struct timespec until;
    (void)clock_gettime(CLOCK_MONOTONIC, &until); /* can't fail for this clock */
    until.tv_sec += grace_ms / 1000;
    until.tv_nsec += (long)(grace_ms % 1000) * 1000000;
    if (until.tv_nsec >= 1000000000) {
        until.tv_sec++;
        until.tv_nsec -= 1000000000;
    }
    pthread_mutex_lock(&server->lock);
    while (server->active_count && pthread_cond_timedwait(&server->idle, &server->lock, &until) != ETIMEDOUT)
        continue;
    bool idle = server->active_count == 0;
    pthread_mutex_unlock(&server->lock);
    return idle;
}

/* To its run a half-closed connection looks like a client that left, but what is still to say can be sent. */
static void cancel_active(struct cordon_http_server *server)
{
    pthread_mutex_lock(&server->lock);
    for (struct connection *connection = server->active; connection; connection = connection->next)
        (void)shutdown(connection->request.fd, SHUT_RD); /* it may have left by itself */
    pthread_mutex_unlock(&server->lock);
}

void cordon_http_server_stop(struct cordon_http_server *server, unsigned grace_ms)
{
    if (!server)
        return;
    atomic_store(&server->stopping, true);
    for (size_t i = 0; i < server->daemon_count; i++)
        (void)MHD_quiesce_daemon(server->daemons[i]); /* the descriptor is ours, in fds, until free_server */
    if (!wait_idle(server, grace_ms)) {
        cancel_active(server);
        (void)wait_idle(server, grace_ms); /* what is left then is cut off */
    }
    free_server(server);
}

void cordon_http_counts_read(const struct cordon_http_server *server, size_t index, struct cordon_http_counts *ret)
{
    const struct counts *counts = &server->counts[index];
    for (size_t i = 0; i < 6; i++)
        ret->by_class[i] = atomic_load_explicit(&counts->by_class[i], memory_order_relaxed);
    ret->duration_us = atomic_load_explicit(&counts->duration_us, memory_order_relaxed);
}

uint64_t cordon_http_connections(const struct cordon_http_server *server)
{
    return atomic_load(&server->connections);
}
