/* SPDX-License-Identifier: Apache-2.0 */
/* The conformance suite: conformance.c runs it, conformance_checks.c has the checks. */
#ifndef CORDON_CLI_CONFORMANCE_H
#define CORDON_CLI_CONFORMANCE_H

#include <cordon/backend.h>

#include "base/buf.h"
#include "core/settings.h"

struct cordon_conformance {
    const struct cordon_settings *settings;
    const struct cordon_backend *backend;
    struct cordon_capabilities caps;
    size_t passed, failed, skipped;
};

struct cordon_conformance_program {
    const char *language; /* NULL: python */
    const char *code, *arguments, *input;
    const char *const *env;         /* one, or NULL */
    const struct cordon_file *file; /* one, or NULL */
    bool artifacts, cancel;         /* cancel: once it has written something */
    uint64_t timeout_ms, stdout_bytes;
};

struct cordon_conformance_result {
    struct cordon_error err; /* of run_open */
    struct cordon_buf out, errors, result, artifacts, dropped;
    struct cordon_outcome outcome;
    size_t events;
    bool started, ended;
    uint64_t us;
};

struct cordon_conformance_check {
    const char *name;     /* what must hold */
    const char *language; /* that it needs; NULL: python */
    size_t needs;         /* offset of a capability that it needs; 0: none */
    const char *needed;   /* what that is */
    void (*function)(const struct cordon_conformance *self, char *why, size_t size); /* why stays "": it holds */
};
extern const struct cordon_conformance_check cordon_conformance_checks[]; /* ended by one without a name */

/* Why this backend is not asked this, or NULL. */
const char *cordon_conformance_lacks(const struct cordon_conformance *self,
                                     const struct cordon_conformance_check *check);
/* Runs a program to its end. Negative: run_open's, with err; the result must be freed in any case. */
int cordon_conformance_run(const struct cordon_conformance *self, const struct cordon_conformance_program *program,
                           struct cordon_conformance_result *ret);
void cordon_conformance_result_done(struct cordon_conformance_result *result);

#endif
