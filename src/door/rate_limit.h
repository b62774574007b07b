/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How many calls an address may make: a sliding window for each, in a table of fixed size. Thread-safe.
 *
 * A window is cut into 64 slices, so what an address did counts for at most a 63rd of the period longer than it should,
 * and never shorter. Addresses beyond the table's room push out the one of their row that was heard of longest ago.
 * IPv6 addresses count by their /64, which is what one client has.
 */
#ifndef CORDON_DOOR_RATE_LIMIT_H
#define CORDON_DOOR_RATE_LIMIT_H

#include <stdbool.h>
#include <stdint.h>

#include "core/rate.h"

struct cordon_rate_limit;

/* NULL: no memory. */
struct cordon_rate_limit *cordon_rate_limit_new(const struct cordon_rate *rate);
void cordon_rate_limit_free(struct cordon_rate_limit *limit);
/* client: as in cordon_http_request, "address:port". Counts a call: true; or false without counting it, when the window
 * is full. *ret_first: this is the first refusal of this client in its window (for the log); may be NULL. */
bool cordon_rate_limit_take(struct cordon_rate_limit *limit, const char *client, uint64_t now_us, bool *ret_first);
/* Would a call be refused? Counts nothing. */
bool cordon_rate_limit_full(struct cordon_rate_limit *limit, const char *client, uint64_t now_us, bool *ret_first);

#endif
