/* SPDX-License-Identifier: Apache-2.0 */
/* The one monotonic clock, and the time of day. */
#ifndef CORDON_BASE_CLOCK_H
#define CORDON_BASE_CLOCK_H

#include <stdint.h>

uint64_t cordon_now_us(void); /* CLOCK_MONOTONIC, microseconds */
int64_t cordon_wall_ms(void); /* Unix milliseconds; may jump */

#endif
