/* SPDX-License-Identifier: Apache-2.0 */
/* Rates as settings have them: "120/minute", "5 per second", "100 per 2 hours". Pure. */
#ifndef CORDON_CORE_RATE_H
#define CORDON_CORE_RATE_H

#include <stdbool.h>
#include <stdint.h>

struct cordon_rate {
    uint32_t count;     /* at least 1 */
    uint64_t period_us; /* a second to some days */
};

/* False: it is none, or more than one. */
bool cordon_rate_parse(const char *text, struct cordon_rate *ret);

#endif
