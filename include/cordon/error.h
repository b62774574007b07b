/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Errors of the public interface.
 *
 * Convention, everywhere in Cordon: a function that can fail returns an int, 0 or a count on success and a
 * negative errno value on failure. Its last parameter is a `struct cordon_error *`, owned by the caller and
 * of fixed size: it is filled exactly when the return is negative and untouched otherwise. NULL is allowed.
 */
#ifndef CORDON_ERROR_H
#define CORDON_ERROR_H

/* The one table of error kinds: X(ID, wire name, HTTP status, Connect code, CLI exit status, doc line). */
#define CORDON_ERROR_KINDS(X)                                                                                          \
    X(INVALID, "invalid_request", 400, "invalid_argument", 2, "the request is malformed or out of bounds")             \
    X(UNAUTHENTICATED, "unauthenticated", 401, "unauthenticated", 125, "no valid key came with the request")           \
    X(FORBIDDEN, "forbidden", 403, "permission_denied", 125, "the key lacks the scope that this needs")                \
    X(REFUSED, "refused", 403, "failed_precondition", 126, "policy refused to run the code on this backend")           \
    X(NOT_FOUND, "not_found", 404, "not_found", 2, "no such route or object")                                          \
    X(CONFLICT, "conflict", 409, "already_exists", 125, "the object is in a state that does not allow this")           \
    X(PAUSED, "paused", 409, "failed_precondition", 125, "the guest is paused: resume it first")                       \
    X(GONE, "gone", 410, "not_found", 125, "the guest is no more; the message says what ended it")                     \
    X(TOO_LARGE, "too_large", 413, "resource_exhausted", 2, "a part of the request is larger than its limit")          \
    X(QUOTA, "quota_exceeded", 429, "resource_exhausted", 125, "the key has used up its share; try again later")       \
    X(CANCELLED, "cancelled", 499, "canceled", 125, "the client went away or cancelled")                               \
    X(INFRASTRUCTURE, "infrastructure", 500, "internal", 125, "the sandbox itself failed, not the code in it")         \
    X(UNSUPPORTED, "unsupported", 501, "unimplemented", 125, "this backend or daemon does not offer that")             \
    X(BUSY, "busy", 503, "unavailable", 125, "all places are taken and the queue is full; try again later")            \
    X(UNAVAILABLE, "unavailable", 503, "unavailable", 125, "the configured backend can not work as things stand")

enum cordon_error_kind {
    CORDON_ERROR_NONE = 0,
#define CORDON_X(id, name, http, connect, exit, doc) CORDON_ERROR_##id,
    CORDON_ERROR_KINDS(CORDON_X)
#undef CORDON_X
        CORDON_ERROR__COUNT
};

struct cordon_error {
    int code; /* negative errno */
    enum cordon_error_kind kind;
    char message[512]; /* for the client: what was tried, on what, what was found, what to do */
    char detail[512];  /* for the log only: host paths, errno texts */
};

#endif
