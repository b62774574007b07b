/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a backend really enforces, measured: probe programs (verify_probe.py) in fresh guests, on any backend that runs
 * Python. The result stands beside what the backend declares, with the evidence; a difference is loud, and with
 * CORDON_REQUIRE_VERIFIED the policy believes only what was measured, and not too long ago.
 *
 * A probe that finds nothing reachable proves something only where there is something to reach: targets are probe
 * servers (`cordon probe-server`), and what can't be reached from here either is told as not known.
 */
#ifndef CORDON_CORE_VERIFY_H
#define CORDON_CORE_VERIFY_H

#include <cordon/backend.h>

#include "base/json.h"
#include "core/settings.h"

enum cordon_verify_item {
    CORDON_VERIFY_DENY_ALL = 0, /* network off: nothing is reachable */
    CORDON_VERIFY_EXCEPTIONS,   /* …the metadata ranges neither, but for those declared */
    CORDON_VERIFY_DOMAINS,      /* with one name allowed, it is reachable and nothing else is */
    CORDON_VERIFY_MEMORY,       /* the limit holds */
    CORDON_VERIFY_DEADLINE,     /* a signal-proof program and its orphan end at the limit */
    CORDON_VERIFY_TRUTH,        /* output and exit status are told as they were */
    CORDON_VERIFY_FRESH,        /* nothing of the last guest is left */
    CORDON_VERIFY_HOST,         /* nothing of the host's secrets is visible */
    CORDON_VERIFY__COUNT
};

enum cordon_verdict { CORDON_VERDICT_UNKNOWN = 0, CORDON_VERDICT_HELD, CORDON_VERDICT_BROKEN };

struct cordon_verification {
    char backend[32];
    int64_t at_s; /* real time */
    char version[24];
    struct {
        int declared; /* 1, 0; -1: there is no capability for it */
        enum cordon_verdict verdict;
        char evidence[256];
    } items[CORDON_VERIFY__COUNT];
};

const char *cordon_verify_item_name(enum cordon_verify_item item);
/* Takes some seconds. 0, or negative with err when the backend can run nothing. version: of this program. */
int cordon_verify(const struct cordon_settings *settings, const struct cordon_backend *backend, const char *version,
                  struct cordon_verification *ret, struct cordon_error *err);
/* Is something declared that was measured not to hold? */
bool cordon_verification_differs(const struct cordon_verification *verification, enum cordon_verify_item item);
void cordon_verification_write(const struct cordon_verification *verification, struct cordon_json *json);

/* verified.c: the newest of each backend, kept in the file verified.json of a folder. Any thread. */
int cordon_verified_load(int folder, struct cordon_error *err); /* borrowed for ever; -1: in memory only */
void cordon_verified_put(const struct cordon_verification *verification);
bool cordon_verified_get(const char *backend, struct cordon_verification *ret);

#endif
