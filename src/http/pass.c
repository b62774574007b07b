/* SPDX-License-Identifier: Apache-2.0 */
#include "http/pass.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/fd.h"
#include "http/internal.h"
#include "http/pump.h"
#include "http/reader.h"

#define HEADER_MAX (64u << 10)
#define FIELDS_MAX (32u << 10)
#define PIECE (32u << 10)
#define BODY_HELD (256u << 10) /* decoded at once, at most */

struct cordon_http_pass {
    int fd;        /* the server */
    int client_fd; /* to see it leave */
    int half_ms;   /* for pump.h */
    int silent_ms; /* the server's patience; -1: none */
    bool chunked;  /* the request's body, as we send it */
    bool deaf;     /* the server takes no more of the body */
    struct cordon_http_reader reader;
};

/* Fields of one connection (RFC 9110, 7.6.1), and those that we frame messages with. */
static const char *const own_fields[] = {"Connection",
                                         "Keep-Alive",
                                         "Proxy-Connection",
                                         "Proxy-Authenticate",
                                         "Proxy-Authorization",
                                         "TE",
                                         "Trailer",
                                         "Transfer-Encoding",
                                         "Upgrade",
                                         "Content-Length",
                                         "Expect",
                                         "Host",
                                         NULL};

static bool named(const char *const *names, const char *name)
{
    for (; names && *names; names++)
        if (strcasecmp(*names, name) == 0)
            return true;
    return false;
}

/* Whether a Connection field's value has this token. */
static bool has_token(const char *list, const char *token)
{
    size_t size = strlen(token);
    for (const char *at = list; at && *at; at += *at == ',') {
        at += strspn(at, " \t,");
        size_t length = strcspn(at, " \t,");
        if (length == size && strncasecmp(at, token, size) == 0)
            return true;
        at += strcspn(at, ",");
    }
    return false;
}

static bool clean(const char *value)
{
    for (; *value; value++)
        if ((unsigned char)*value < 0x20 || *value == 0x7f)
            return false;
    return true;
}

struct header_copy {
    struct cordon_buf *to;
    const struct cordon_http_pass_options *options;
    const char *connection;
};

static void copy_field(void *context, const char *name, const char *value)
{
    const struct header_copy *copy = context;
    if (named(own_fields, name) || named(copy->options->left_out, name) || has_token(copy->connection, name) ||
        !clean(value))
        return;
    (void)cordon_buf_appendf(copy->to, "%s: %s\r\n", name, value); /* sticky, seen when it is sent */
}

static bool wants_upgrade(const struct cordon_http_request *request)
{
    const char *upgrade = cordon_http_header(request, "Upgrade");
    return upgrade && clean(upgrade) && has_token(cordon_http_header(request, "Connection"), "upgrade");
}

static void write_header(const struct cordon_http_request *request, const struct cordon_http_pass_options *options,
                         struct cordon_http_pass *pass, struct cordon_buf *to)
{
    const char *host = options->host ? options->host : cordon_http_header(request, "Host");
    const char *length = cordon_http_header(request, "Content-Length"),
               *upgrade = cordon_http_header(request, "Upgrade");
    struct header_copy copy = {to, options, cordon_http_header(request, "Connection")};
    pass->chunked = !length && cordon_http_header(request, "Transfer-Encoding");
    (void)cordon_buf_appendf(to, "%s %s HTTP/1.1\r\nHost: %s\r\n", request->method, cordon_http_target(request),
                             host && clean(host) ? host : "localhost"); /* sticky, as all of these */
    cordon_http_headers(request, copy_field, &copy);
    if (length)
        (void)cordon_buf_appendf(to, "Content-Length: %s\r\n", length);
    if (pass->chunked)
        (void)cordon_buf_appends(to, "Transfer-Encoding: chunked\r\n");
    pass->reader.upgrade = wants_upgrade(request);
    if (pass->reader.upgrade)
        (void)cordon_buf_appendf(to, "Connection: Upgrade\r\nUpgrade: %s\r\n\r\n", upgrade);
    else
        (void)cordon_buf_appends(to, "Connection: close\r\n\r\n");
}

/* Waits for the server, as long as the client is there: 0, -ECANCELED, or -ETIMEDOUT. */
static int wait_server(const struct cordon_http_pass *pass, short events)
{
    struct pollfd fds[] = {{.fd = pass->fd, .events = events}, {.fd = pass->client_fd, .events = POLLRDHUP}};
    int r;
    while ((r = poll(fds, 2, pass->silent_ms)) < 0 && errno == EINTR)
        continue;
    return fds[0].revents ? 0 : r == 0 ? -ETIMEDOUT : -ECANCELED;
}

static int send_all(struct cordon_http_pass *pass, const char *data, size_t size)
{
    while (size && !pass->deaf) {
        ssize_t n = send(pass->fd, data, size, MSG_NOSIGNAL | MSG_DONTWAIT);
        if (n >= 0) {
            data += n;
            size -= (size_t)n;
        } else if (errno == EAGAIN) {
            int r = wait_server(pass, POLLOUT);
            if (r < 0)
                return r;
        } else if (errno != EINTR) {
            pass->deaf = true; /* its answer, if there is one, is still to be read */
        }
    }
    return 0;
}

static int fail_wait(const struct cordon_http_pass *pass, int code, struct cordon_error *err)
{
    if (code != -ETIMEDOUT)
        return cordon_fail(err, -ECANCELED, CORDON_ERROR_CANCELLED, "the client went away");
    return cordon_fail(err, code, CORDON_ERROR_UNAVAILABLE,
                       "the server on this port neither took nor sent anything for %d s", pass->silent_ms / 1000);
}

int cordon_http_pass_begin(struct cordon_http_request *request, int fd, const struct cordon_http_pass_options *options,
                           struct cordon_http_pass **ret, struct cordon_error *err)
{
    struct cordon_buf header = CORDON_BUF_INIT(HEADER_MAX);
    struct cordon_http_pass *pass = calloc(1, sizeof *pass);
    if (!pass) {
        (void)close(fd); /* a socket has nothing to lose */
        return cordon_fail_errno(err, -ENOMEM, "passing the request on");
    }
    pass->fd = fd;
    pass->client_fd = request->fd;
    pass->half_ms = (int)request->server->config.idle_timeout_s * 1000;
    pass->silent_ms = options->patience_s ? (int)options->patience_s * 1000 : -1;
    pass->reader = CORDON_HTTP_READER_INIT(BODY_HELD);
    pass->reader.fields.max = FIELDS_MAX;
    pass->reader.no_body = strcmp(request->method, "HEAD") == 0;
    write_header(request, options, pass, &header);
    int r = header.failed ? cordon_fail(err, -EMSGSIZE, CORDON_ERROR_TOO_LARGE, "the request's header is too large")
                          : send_all(pass, header.data, header.size);
    cordon_buf_done(&header);
    if (r == -ECANCELED || r == -ETIMEDOUT)
        r = fail_wait(pass, r, err);
    if (r < 0) {
        cordon_http_pass_free(pass);
        return r;
    }
    *ret = pass;
    return 0;
}

int cordon_http_pass_piece(struct cordon_http_pass *pass, const char *data, size_t size, struct cordon_error *err)
{
    char head[24];
    int n = snprintf(head, sizeof head, "%zx\r\n", size); /* fits */
    int r = pass->chunked ? send_all(pass, head, (size_t)n) : 0;
    if (r == 0)
        r = send_all(pass, data, size);
    if (r == 0 && pass->chunked)
        r = send_all(pass, "\r\n", 2);
    return r < 0 ? fail_wait(pass, r, err) : 0;
}

/* Reads once: 1, 0 at the end of what the server sends, or negative. */
static int read_some(struct cordon_http_pass *pass)
{
    char data[PIECE];
    int r = wait_server(pass, POLLIN);
    if (r < 0)
        return r;
    ssize_t n = recv(pass->fd, data, sizeof data, MSG_DONTWAIT);
    if (n < 0)
        return errno == EAGAIN || errno == EINTR ? 1 : -errno;
    if (n == 0)
        return 0;
    r = cordon_http_reader_feed(&pass->reader, data, (size_t)n);
    /* What a server sends behind its answer is nobody's. */
    return r < 0 && pass->reader.state != CORDON_READER_DONE ? r : 1;
}

static int next_body(void *context, struct cordon_buf *out)
{
    struct cordon_http_pass *pass = context;
    struct cordon_http_reader *reader = &pass->reader;
    while (!reader->body.size && reader->state != CORDON_READER_DONE) {
        int r = read_some(pass);
        if (r == 0 && cordon_http_reader_end(reader) < 0)
            r = -EPIPE;
        if (r < 0)
            return r;
    }
    if (!reader->body.size)
        return 0;
    int r = cordon_buf_append(out, reader->body.data, reader->body.size);
    reader->body.size = 0;
    return r < 0 ? r : 1;
}

static void close_body(void *context)
{
    (void)context; /* the pass lives until the request's end */
}

/* The answer's fields, and its length where it tells one. */
static uint64_t copy_answer(struct cordon_http_request *request, const struct cordon_http_reader *reader)
{
    uint64_t size = CORDON_HTTP_SIZE_UNKNOWN;
    const char *const end = reader->fields.data + reader->fields.size;
    const char *connection = NULL;
    for (const char *at = reader->fields.data, *value; at && at < end; at = value + strlen(value) + 1) {
        value = at + strlen(at) + 1;
        if (strcasecmp(at, "Connection") == 0)
            connection = value;
    }
    for (const char *at = reader->fields.data, *value; at && at < end; at = value + strlen(value) + 1) {
        value = at + strlen(at) + 1;
        bool upgrade = reader->status == 101 && strcasecmp(at, "Upgrade") == 0;
        if (strcasecmp(at, "Content-Length") == 0)
            size = strtoull(value, NULL, 10); /* the reader has seen that it is a number */
        if (*value && *at && clean(value) && !strpbrk(at, " \t") &&
            (upgrade || (!named(own_fields, at) && !has_token(connection, at))))
            cordon_http_reply_header(request, at, value);
    }
    return size;
}

static void talk(void *context, int fd, const char *early, size_t early_size)
{
    struct cordon_http_pass *pass = context;
    const struct cordon_buf *late = &pass->reader.body;
    if (cordon_http_pump_first(fd, late->data, late->size) == 0 &&
        cordon_http_pump_first(pass->fd, early, early_size) == 0)
        cordon_http_pump(fd, pass->client_fd, pass->fd, pass->half_ms);
}

static int fail_answer(const struct cordon_http_pass *pass, int code, struct cordon_error *err)
{
    if (code == -ECANCELED || code == -ETIMEDOUT)
        return fail_wait(pass, code, err);
    return cordon_fail(err, code, CORDON_ERROR_UNAVAILABLE,
                       code == -EPIPE || code == -ECONNRESET
                           ? "the server on this port closed the connection without an answer"
                           : "what the server on this port answered is not HTTP/1.1");
}

int cordon_http_pass_reply(struct cordon_http_request *request, struct cordon_http_pass *pass, struct cordon_error *err)
{
    static const struct cordon_http_stream stream = {.next = next_body, .close = close_body};
    struct cordon_http_reader *reader = &pass->reader;
    int r = pass->chunked ? send_all(pass, "0\r\n\r\n", 5) : 0;
    while (r >= 0 && reader->state == CORDON_READER_HEADER) {
        r = read_some(pass);
        if (r == 0)
            r = -EPIPE;
    }
    if (r < 0)
        return fail_answer(pass, r, err);
    uint64_t size = copy_answer(request, reader);
    if (reader->state == CORDON_READER_DONE && !reader->no_body)
        size = reader->body.size; /* all of it is here */
    else if (reader->state != CORDON_READER_LENGTH && !reader->no_body)
        size = CORDON_HTTP_SIZE_UNKNOWN;
    r = reader->status == 101 ? cordon_http_reply_upgrade(request, talk, pass)
                              : cordon_http_reply_stream_as(request, reader->status, NULL, size, &stream, pass);
    return r < 0 ? cordon_fail_errno(err, r, "passing the answer back") : 0;
}

void cordon_http_pass_free(struct cordon_http_pass *pass)
{
    if (!pass)
        return;
    cordon_close(&pass->fd);
    cordon_http_reader_done(&pass->reader);
    free(pass);
}
