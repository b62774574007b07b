/* SPDX-License-Identifier: Apache-2.0 */
#include "base/clock.h"

#include <time.h>

uint64_t cordon_now_us(void)
{
    struct timespec ts;
    (void)clock_gettime(CLOCK_MONOTONIC, &ts); /* can't fail for this clock */
    return (uint64_t)ts.tv_sec * 1000000u + (uint64_t)ts.tv_nsec / 1000u;
}

int64_t cordon_wall_ms(void)
{
    struct timespec now;
    (void)clock_gettime(CLOCK_REALTIME, &now); /* can't fail for this clock */
    return (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000;
}
