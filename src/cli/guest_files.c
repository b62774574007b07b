/* SPDX-License-Identifier: Apache-2.0 */
/* cordon guest: put, get, ls. Files go through piece by piece. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/fd.h"
#include "cli/cli.h"
#include "cli/guest.h"
#include "cli/run_events.h"

#define PIECE 65536

static int file_path(const struct cordon_guest_call *call, const char *name, const char *route, const char *path,
                     struct cordon_buf *to, struct cordon_error *err)
{
    int r = cordon_guest_path(to, name, route, err);
    (void)cordon_buf_appends(to, "?path="); /* sticky, as all of them */
    cordon_guest_escape(to, path);
    if (call->options->user) {
        (void)cordon_buf_appends(to, "&user=");
        cordon_guest_escape(to, call->options->user);
    }
    if (call->options->mode) {
        (void)cordon_buf_appends(to, "&mode=");
        cordon_guest_escape(to, call->options->mode);
    }
    return r == 0 && to->failed ? cordon_fail(err, -E2BIG, CORDON_ERROR_INVALID, "the path is too long") : r;
}

/* The answer to a request whose body is sent by now: its text, or its error. */
static int read_answer(int fd, struct cordon_error *err)
{
    struct cordon_http_reader http = CORDON_HTTP_READER_INIT(1u << 20);
    int r;
    do
        r = cordon_daemon_read(fd, &http, err);
    while (r > 0);
    if (r == 0 && http.status >= 300)
        r = cordon_error_read(http.body.data ? http.body.data : "", http.body.size, err);
    cordon_http_reader_done(&http);
    return r;
}

static int send_chunk(int fd, const char *data, size_t size)
{
    char head[24];
    int n = snprintf(head, sizeof head, "%zx\r\n", size);
    int r = cordon_write_full(fd, head, (size_t)n);
    if (r == 0 && size)
        r = cordon_write_full(fd, data, size);
    return r == 0 ? cordon_write_full(fd, "\r\n", 2) : r;
}

static int send_file(int fd, int file)
{
    char data[PIECE];
    for (;;) {
        ssize_t n = read(file, data, sizeof data);
        if (n < 0)
            return -errno;
        int r = send_chunk(fd, data, (size_t)n);
        if (r < 0 || n == 0)
            return r == -EPIPE || r == -ECONNRESET ? 0 : r; /* refused early: the answer says why */
    }
}

int cordon_guest_do_put(struct cordon_guest_call *call, struct cordon_error *err)
{
    char **argv = call->options->argv;
    struct cordon_buf path = CORDON_BUF_INIT(32u << 10), head = CORDON_BUF_INIT(64u << 10);
    cordon_autoclose int file = strcmp(argv[1], "-") == 0 ? dup(STDIN_FILENO) : open(argv[1], O_RDONLY | O_CLOEXEC);
    int r = file < 0 ? cordon_fail(err, -errno, CORDON_ERROR_INVALID, "%.200s: %s", argv[1], strerror(errno))
                     : file_path(call, argv[0], "/files", argv[2], &path, err);
    cordon_autoclose int fd = r < 0 ? -1 : cordon_guest_connect(call, err);
    if (r == 0 && fd < 0)
        r = fd;
    if (r == 0) {
        (void)cordon_buf_appendf(&head,
                                 "PUT %s HTTP/1.1\r\nHost: cordon\r\nContent-Type: application/octet-stream\r\n"
                                 "Transfer-Encoding: chunked\r\nConnection: close\r\n\r\n",
                                 path.data); /* bounded by the path */
        r = cordon_write_full(fd, head.data, head.size);
        if (r == 0)
            r = send_file(fd, file);
        r = r < 0 ? cordon_fail_errno(err, r, "sending %.200s", argv[1]) : read_answer(fd, err);
    }
    cordon_buf_done(&path);
    cordon_buf_done(&head);
    return r;
}

/* Writes what has come; for an error the body is kept. */
static int drain(struct cordon_http_reader *http, int to)
{
    if (http->status != 200 || !http->body.size)
        return 0;
    int r = cordon_write_full(to, http->body.data, http->body.size);
    http->body.size = 0;
    return r;
}

static int receive(int fd, int to, struct cordon_error *err)
{
    struct cordon_http_reader http = CORDON_HTTP_READER_INIT(1u << 20);
    int r;
    do {
        r = cordon_daemon_read(fd, &http, err);
        if (r >= 0 && drain(&http, to) < 0)
            r = cordon_fail_errno(err, -EIO, "writing the file");
    } while (r > 0);
    if (r == 0 && http.status >= 300)
        r = cordon_error_read(http.body.data ? http.body.data : "", http.body.size, err);
    cordon_http_reader_done(&http);
    return r;
}

int cordon_guest_do_get(struct cordon_guest_call *call, struct cordon_error *err)
{
    char **argv = call->options->argv;
    const char *local = call->options->argc > 2 ? argv[2] : "-";
    bool own = strcmp(local, "-") == 0;
    struct cordon_buf path = CORDON_BUF_INIT(32u << 10);
    int r = file_path(call, argv[0], "/files", argv[1], &path, err);
    cordon_autoclose int fd = r < 0 ? -1 : cordon_guest_connect(call, err);
    cordon_autoclose int file = -1;
    if (r == 0 && fd < 0)
        r = fd;
    if (r == 0)
        r = cordon_daemon_send(fd, "GET", path.data, "application/octet-stream", NULL, err);
    if (r == 0) {
        file = own ? dup(STDOUT_FILENO) : open(local, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
        r = file < 0 ? cordon_fail(err, -errno, CORDON_ERROR_INVALID, "%.200s: %s", local, strerror(errno))
                     : receive(fd, file, err);
    }
    if (r < 0 && !own && file >= 0)
        (void)unlink(local); /* half a file is none */
    cordon_buf_done(&path);
    return r;
}

int cordon_guest_do_ls(struct cordon_guest_call *call, struct cordon_error *err)
{
    char **argv = call->options->argv;
    struct cordon_buf path = CORDON_BUF_INIT(32u << 10), reply = CORDON_BUF_INIT(256u << 20);
    int r = file_path(call, argv[0], "/entries", call->options->argc > 1 ? argv[1] : ".", &path, err);
    if (r == 0)
        r = cordon_guest_ask(call, "GET", path.data, NULL, &reply, err);
    if (r == 0)
        (void)printf("%.*s", (int)reply.size, reply.data);
    cordon_buf_done(&path);
    cordon_buf_done(&reply);
    return r;
}
