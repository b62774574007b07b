/* SPDX-License-Identifier: Apache-2.0 */
/* The one monotonic clock. */
#ifndef CORDON_BASE_CLOCK_H
#define CORDON_BASE_CLOCK_H

#include <stdint.h>

uint64_t cordon_now_us(void); /* CLOCK_MONOTONIC, microseconds */

#endif
