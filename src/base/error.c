/* SPDX-License-Identifier: Apache-2.0 */
#include "base/error.h"

#include <assert.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/secret.h"

struct kind_row {
    const char *name;
    int http;
    const char *connect;
    int exit;
    const char *doc;
};

static const struct kind_row kinds[CORDON_ERROR__COUNT] = {[CORDON_ERROR_NONE] = {"ok", 200, "ok", 0, "no error"},
#define CORDON_X(id, name, http, connect, exit, doc) [CORDON_ERROR_##id] = {name, http, connect, exit, doc},
                                                           CORDON_ERROR_KINDS(CORDON_X)
#undef CORDON_X
};

static const struct kind_row *row(enum cordon_error_kind kind)
{
    assert((unsigned)kind < CORDON_ERROR__COUNT);
    return &kinds[kind];
}

int cordon_fail(struct cordon_error *err, int code, enum cordon_error_kind kind, const char *fmt, ...)
{
    assert(code < 0);
    if (!err)
        return code;
    err->code = code;
    err->kind = kind;
    err->detail[0] = '\0';
    va_list ap;
    va_start(ap, fmt);
    (void)vsnprintf(err->message, sizeof err->message, fmt, ap); /* cut at the field's size on purpose */
    va_end(ap);
    cordon_secret_mask(err->message);
    return code;
}

int cordon_fail_errno(struct cordon_error *err, int code, const char *fmt, ...)
{
    char text[sizeof err->message];
    va_list ap;
    va_start(ap, fmt);
    (void)vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    return cordon_fail(err, code, CORDON_ERROR_INFRASTRUCTURE, "%s: %s", text, strerror(-code));
}

void cordon_error_context(struct cordon_error *err, const char *fmt, ...)
{
    if (!err)
        return;
    char text[sizeof err->message], old[sizeof err->message];
    va_list ap;
    va_start(ap, fmt);
    (void)vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    memcpy(old, err->message, sizeof old);
    (void)snprintf(err->message, sizeof err->message, "%.200s: %.300s", text, old);
    cordon_secret_mask(err->message);
}

void cordon_error_detail(struct cordon_error *err, const char *fmt, ...)
{
    if (!err)
        return;
    va_list ap;
    va_start(ap, fmt);
    (void)vsnprintf(err->detail, sizeof err->detail, fmt, ap);
    va_end(ap);
    cordon_secret_mask(err->detail);
}

const char *cordon_error_name(enum cordon_error_kind kind)
{
    return row(kind)->name;
}

int cordon_error_http(enum cordon_error_kind kind)
{
    return row(kind)->http;
}

const char *cordon_error_connect(enum cordon_error_kind kind)
{
    return row(kind)->connect;
}

int cordon_error_exit(enum cordon_error_kind kind)
{
    return row(kind)->exit;
}

const char *cordon_error_doc(enum cordon_error_kind kind)
{
    return row(kind)->doc;
}
