/* SPDX-License-Identifier: Apache-2.0 */
/* What core's tests share: settings out of a few pairs, and a backend that plays a script. */
#ifndef CORDON_TESTS_CORE_HELPER_H
#define CORDON_TESTS_CORE_HELPER_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "core/registry.h"
#include "core/run.h"

/* Loads settings whose environment is exactly the pairs; fails the test if they are bad. */
struct cordon_settings *load_settings(const char *first, ...) __attribute__((sentinel));
#define NO_SETTINGS load_settings(NULL, NULL)

/* The fake backend: its capabilities and its run are set by the test. */
struct fake {
    struct cordon_capabilities caps;
    const struct cordon_event *events; /* event_count of them; then run_next gives 0 */
    size_t event_count;
    int open_result;    /* negative: run_open fails so, with kind UNAVAILABLE */
    int probe_result;   /* likewise */
    int opened, closed; /* counted */
    int gate;           /* >= 0: run_next first reads a byte here */
    struct cordon_request seen;
};
extern struct fake fake;
extern const struct cordon_backend fake_backend;
void fake_reset(void); /* grants all, exits 0 at once; registers it as the only built-in beside `none` */

#endif
