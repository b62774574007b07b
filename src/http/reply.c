/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/fd.h"
#include "base/json.h"
#include "http/internal.h"

#define PIECE (16u << 10)            /* a socket that can be written to takes as much at once */
#define REPLY_HEADER_MAX (48u << 10) /* must fit into the connection's pool beside the request */
#define PENDING_KEEP (256u << 10)    /* a larger buffer is given back once its content left */

/* The reply of a request on its way through libmicrohttpd, cut to pieces of the size that it asks for. */
struct outflow {
    const struct cordon_http_stream *stream;
    void *context;
    struct MHD_Connection *mhd;
    int fd;
    unsigned idle_timeout_s;
    struct cordon_buf pending;
    size_t sent; /* of pending */
    bool ended;
};

static void close_outflow(void *context)
{
    struct outflow *flow = context;
    flow->stream->close(flow->context);
    cordon_buf_done(&flow->pending);
    free(flow);
}

/* Blocks until the stream has bytes: 1, its end: 0, or broken: negative. */
static int fill(struct outflow *flow)
{
    if (flow->pending.capacity > PENDING_KEEP)
        cordon_buf_done(&flow->pending);
    flow->pending.size = 0;
    flow->sent = 0;
    if (flow->ended)
        return 0;
    cordon_http_idle_timeout(flow->mhd, 0);
    int more;
    do
        more = flow->stream->next(flow->context, &flow->pending);
    while (more > 0 && !flow->pending.size && !flow->pending.failed);
    cordon_http_idle_timeout(flow->mhd, flow->idle_timeout_s);
    flow->ended = more <= 0;
    if (more < 0 || flow->pending.failed)
        return -EIO;
    return flow->pending.size > 0;
}

static bool is_stalled(const struct outflow *flow)
{
    struct pollfd fd = {.fd = flow->fd, .events = POLLOUT};
    return poll(&fd, 1, 0) == 0;
}

static ssize_t read_outflow(void *context, uint64_t position, char *to, size_t room)
{
    struct outflow *flow = context;
    if (flow->sent == flow->pending.size) {
        int have = fill(flow);
        if (have <= 0)
            return have < 0 ? MHD_CONTENT_READER_END_WITH_ERROR : MHD_CONTENT_READER_END_OF_STREAM;
    }
    size_t size = flow->pending.size - flow->sent;
    if (size > room)
        size = room;
    if (size > PIECE)
        size = PIECE;
    if (flow->stream->stalled && is_stalled(flow))
        flow->stream->stalled(flow->context);
    memcpy(to, flow->pending.data + flow->sent, size);
    flow->sent += size;
    return (ssize_t)size;
}

static bool add_header(struct MHD_Response *response, const char *name, const char *value)
{
    return MHD_add_response_header(response, name, value) == MHD_YES;
}

void cordon_http_reply_header(struct cordon_http_request *request, const char *name, const char *value)
{
    struct cordon_buf *fields = &request->reply_header;
    fields->max = REPLY_HEADER_MAX;
    (void)cordon_buf_append(fields, name, strlen(name) + 1); /* sticky in failed, seen when the reply is made */
    (void)cordon_buf_append(fields, value, strlen(value) + 1);
}

/* What libmicrohttpd refuses to write, without telling that from a want of memory. */
static bool is_writable(const char *text)
{
    return *text && !strpbrk(text, "\t\r\n");
}

/* The fields that the door added, each a name and a value. Its own Retry-After is better than ours. */
static int add_fields(struct cordon_buf *fields, struct MHD_Response *response, bool *has_retry)
{
    int r = fields->failed ? -EMSGSIZE : 0;
    for (const char *at = fields->data; r == 0 && at && at < fields->data + fields->size;) {
        const char *value = at + strlen(at) + 1;
        *has_retry = *has_retry || strcasecmp(at, MHD_HTTP_HEADER_RETRY_AFTER) == 0;
        if (!is_writable(at) || !is_writable(value))
            r = -EINVAL;
        else if (!add_header(response, at, value))
            r = -ENOMEM;
        at = value + strlen(value) + 1;
    }
    fields->size = 0;
    fields->failed = false;
    return r;
}

/* What our own replies say besides. */
static bool add_own(const struct cordon_http_request *request, int status, bool has_retry,
                    struct MHD_Response *response)
{
    bool ok = add_header(response, "Cache-Control", "no-store");
    if (status == 401)
        ok = ok && add_header(response, MHD_HTTP_HEADER_WWW_AUTHENTICATE, "Bearer realm=\"cordon\"");
    if ((status == 429 || status == 503) && !has_retry)
        ok = ok && add_header(response, MHD_HTTP_HEADER_RETRY_AFTER, "1");
    if (status == 405 && request->match.allow[0])
        ok = ok && add_header(response, MHD_HTTP_HEADER_ALLOW, request->match.allow);
    return ok;
}

/* Takes the response. */
static int queue(struct cordon_http_request *request, int status, const char *type, struct MHD_Response *response)
{
    struct connection *connection = cordon_http_connection_of(request);
    bool close = status != 101 && (connection->over_limit || atomic_load(&connection->server->stopping));
    bool has_retry = false;
    int r = add_fields(&request->reply_header, response, &has_retry);
    bool ok = r == 0;
    if (type)
        ok = ok && add_header(response, MHD_HTTP_HEADER_CONTENT_TYPE, type) &&
             add_own(request, status, has_retry, response);
    if (close)
        ok = ok && add_header(response, MHD_HTTP_HEADER_CONNECTION, "close");
    ok = ok && MHD_queue_response(request->mhd, (unsigned)status, response) == MHD_YES;
    MHD_destroy_response(response);
    if (!ok)
        return r < 0 ? r : -ENOMEM;
    request->replied = true;
    connection->status = status;
    return 0;
}

int cordon_http_reply(struct cordon_http_request *request, int status, const char *type, struct cordon_buf *body)
{
    bool failed = body->failed;
    size_t size = body->size;
    char *data = body->data ? body->data : strdup("");
    *body = CORDON_BUF_INIT(body->max);
    if (!data)
        return -ENOMEM;
    if (failed) {
        free(data);
        return -EMSGSIZE;
    }
    struct MHD_Response *response = MHD_create_response_from_buffer(size, data, MHD_RESPMEM_MUST_FREE);
    if (!response) {
        free(data);
        return -ENOMEM;
    }
    return queue(request, status, type, response);
}

int cordon_http_error_status(const struct cordon_http_request *request, const struct cordon_error *err)
{
    /* A path that knows other methods is a 405, which the error table has no kind for. */
    return request->match.allow[0] ? 405 : cordon_error_http(err->kind);
}

int cordon_http_reply_error(struct cordon_http_request *request, const struct cordon_error *err)
{
    const struct cordon_http_door *door = request->match.door;
    struct cordon_buf body = CORDON_BUF_INIT(16384);
    struct cordon_json json = {.buf = &body};
    if (door && door->reply_error)
        return door->reply_error(request, err);
    cordon_json_object_begin(&json);
    cordon_json_error(&json, err);
    cordon_json_object_end(&json);
    (void)cordon_buf_append(&body, "\n", 1); /* sticky in body.failed, seen by the reply */
    return cordon_http_reply(request, cordon_http_error_status(request, err), "application/json", &body);
}

int cordon_http_reply_stream(struct cordon_http_request *request, const char *type,
                             const struct cordon_http_stream *stream, void *context)
{
    return cordon_http_reply_stream_as(request, 200, type, CORDON_HTTP_SIZE_UNKNOWN, stream, context);
}

int cordon_http_reply_stream_as(struct cordon_http_request *request, int status, const char *type, uint64_t size,
                                const struct cordon_http_stream *stream, void *context)
{
    struct outflow *flow = calloc(1, sizeof *flow);
    if (!flow) {
        stream->close(context);
        return -ENOMEM;
    }
    *flow = (struct outflow){.stream = stream,
                             .context = context,
                             .mhd = request->mhd,
                             .fd = request->fd,
                             .idle_timeout_s = request->server->config.idle_timeout_s,
                             .pending = CORDON_BUF_INIT(SIZE_MAX / 2)};
    struct MHD_Response *response = MHD_create_response_from_callback(size, PIECE, read_outflow, flow, close_outflow);
    if (!response) {
        close_outflow(flow);
        return -ENOMEM;
    }
    return queue(request, status, type, response);
}

static void on_upgrade(void *context, struct MHD_Connection *mhd, void *state, const char *early, size_t early_size,
                       MHD_socket fd, struct MHD_UpgradeResponseHandle *handle)
{
    struct connection *connection = context;
    connection->talk(connection->talk_context, fd, early, early_size);
    cordon_http_ended(connection, MHD_REQUEST_TERMINATED_COMPLETED_OK);
    (void)MHD_upgrade_action(handle, MHD_UPGRADE_ACTION_CLOSE); /* can't fail for this action */
}

int cordon_http_reply_upgrade(struct cordon_http_request *request,
                              void (*talk)(void *context, int fd, const char *early, size_t early_size), void *context)
{
    struct connection *connection = cordon_http_connection_of(request);
    struct MHD_Response *response = MHD_create_response_for_upgrade(on_upgrade, connection);
    connection->talk = talk;
    connection->talk_context = context;
    return response ? queue(request, 101, NULL, response) : -ENOMEM;
}
