/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Structured logs: one line an event on stderr, logfmt ("ts=… level=info role=gateway msg="…" key=value …") or JSON.
 * Only programs (roles, commands) log; libraries return errors. Never code, output, secrets or request bodies.
 */
#ifndef CORDON_BASE_LOG_H
#define CORDON_BASE_LOG_H

#include <stdbool.h>

#include "base/error.h"

enum cordon_log_level { CORDON_LOG_ERROR, CORDON_LOG_WARN, CORDON_LOG_INFO, CORDON_LOG_DEBUG };

/* role is shown on each line and borrowed for ever. */
void cordon_log_setup(const char *role, enum cordon_log_level level, bool json);
/* Returns false for an unknown name. */
bool cordon_log_level_parse(const char *name, enum cordon_log_level *ret);

/* Whether such a line would be written: for hot paths, which then don't even make its fields. */
bool cordon_log_wants(enum cordon_log_level level);

/* fields: pairs of key (const char *) and value (const char *), ended by NULL; values are escaped. */
void cordon_log(enum cordon_log_level level, const char *message, ...) __attribute__((sentinel));
/* Logs an error with its message, kind and the detail that no client sees. */
void cordon_log_error(const char *message, const struct cordon_error *err);
/* A number as a field's value: valid until the end of the full expression's block. */
#define CORDON_NUM(n) (cordon_log_number((char[24]){0}, (long long)(n)))
const char *cordon_log_number(char text[24], long long number);

#endif
