/* SPDX-License-Identifier: Apache-2.0 */
/* The page and its files. Nothing of it is secret, so it is served to anybody; what it shows is asked for with a
 * session. It may load nothing from elsewhere, run no inline script, and stand in nobody's frame. */
#include "door/admin/page.h"

#include <errno.h>
#include <string.h>

#include "door/admin/admin.h"

static const struct {
    const char *name, *value;
} fixed[] = {
    {"Content-Security-Policy",
     "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' blob:; connect-src 'self'; "
     "form-action 'none'; frame-ancestors 'none'; base-uri 'none'"},
    {"X-Content-Type-Options", "nosniff"},
    {"Referrer-Policy", "no-referrer"},
    {"Cross-Origin-Opener-Policy", "same-origin"},
    {"Cross-Origin-Resource-Policy", "same-origin"},
    {"Cache-Control", "no-cache"}, /* asks each time, and is told that nothing changed */
    {"Vary", "Accept-Encoding"},
};

static int reply_file(struct cordon_http_request *request, const struct cordon_page_file *file,
                      struct cordon_error *err)
{
    const char *known = cordon_http_header(request, "If-None-Match");
    const char *encodings = cordon_http_header(request, "Accept-Encoding");
    bool same = known && strcmp(known, file->etag) == 0, gzip = encodings && strstr(encodings, "gzip");
    struct cordon_buf body = CORDON_BUF_INIT(4u << 20);
    for (size_t i = 0; i < sizeof fixed / sizeof *fixed; i++)
        cordon_http_reply_header(request, fixed[i].name, fixed[i].value);
    cordon_http_reply_header(request, "ETag", file->etag);
    if (gzip && !same)
        cordon_http_reply_header(request, "Content-Encoding", "gzip");
    if (!same) /* sticky, seen by the reply */
        (void)cordon_buf_append(&body, gzip ? file->gzip : file->data, gzip ? file->gzip_size : file->size);
    int r = cordon_http_reply(request, same ? 304 : 200, file->type, &body);
    return r < 0 ? cordon_fail_errno(err, r, "writing %s", file->name) : 0;
}

int cordon_admin_page(struct cordon_http_request *request, struct cordon_error *err)
{
    return reply_file(request, &cordon_page_files[0], err);
}

int cordon_admin_file(struct cordon_http_request *request, struct cordon_error *err)
{
    char name[64];
    if (cordon_http_param(request, 0, name, sizeof name) == 0)
        for (const struct cordon_page_file *file = cordon_page_files; file->name; file++)
            if (strcmp(file->name, name) == 0)
                return reply_file(request, file, err);
    return cordon_fail(err, -ENOENT, CORDON_ERROR_NOT_FOUND, "the admin page has no such file");
}
