/* SPDX-License-Identifier: Apache-2.0 */
/* How much the agent does for a program: see pace.c. */
#ifndef CORDON_AGENT_PACE_H
#define CORDON_AGENT_PACE_H

#include <stdbool.h>
#include <stdint.h>

struct cordon_pace {
    uint64_t spent_us, rest_until_us; /* 0: no rest */
};
/* Spend for each small thing that the program wants; then there may be a rest. */
void cordon_pace_spend(struct cordon_pace *pace, unsigned things);
bool cordon_pace_rests(struct cordon_pace *pace);

#endif
