/* SPDX-License-Identifier: Apache-2.0 */
/* Filling in struct cordon_error (see include/cordon/error.h for the convention). */
#ifndef CORDON_BASE_ERROR_H
#define CORDON_BASE_ERROR_H

#include <cordon/error.h>

#define CORDON_PRINTF(fmt, first) __attribute__((format(printf, fmt, first)))

/* Sets kind, code and message; returns code (negative errno) so that a caller can `return cordon_fail(…)`. */
int cordon_fail(struct cordon_error *err, int code, enum cordon_error_kind kind, const char *fmt, ...)
    CORDON_PRINTF(4, 5);
/* As cordon_fail with kind INFRASTRUCTURE and ": <errno text>" behind the message. */
int cordon_fail_errno(struct cordon_error *err, int code, const char *fmt, ...) CORDON_PRINTF(3, 4);
/* Puts "<text>: " before the message that is there. */
void cordon_error_context(struct cordon_error *err, const char *fmt, ...) CORDON_PRINTF(2, 3);
/* Sets the part that only the log may show. */
void cordon_error_detail(struct cordon_error *err, const char *fmt, ...) CORDON_PRINTF(2, 3);

/* The table's columns. */
const char *cordon_error_name(enum cordon_error_kind kind);
int cordon_error_http(enum cordon_error_kind kind);
const char *cordon_error_connect(enum cordon_error_kind kind);
int cordon_error_exit(enum cordon_error_kind kind);
const char *cordon_error_doc(enum cordon_error_kind kind);

#endif
