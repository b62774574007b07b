/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the agent does for a program is in nobody's CPU account, and may be done at real-time priority. A denied call,
 * or a byte that is written alone, costs it about as much as it costs the program. So each uses up some of the time
 * that passes, a part of which may be saved up; when it is used up the agent rests, and does for the program nothing
 * but to end it. Callers wait meanwhile, which costs nothing, and what is written gathers and is then read at once.
 */
#include "agent/pace.h"

#include "agent/agent.h"
#include "base/clock.h"

#define COST_US 500     /* 2,000 a second in the long run */
#define SAVED_US 500000 /* 1,000 of them at once */
#define REST_US 2000

void cordon_pace_spend(struct cordon_pace *pace, unsigned things)
{
    uint64_t now = cordon_now_us();
    if (pace->spent_us + SAVED_US < now)
        pace->spent_us = now - SAVED_US;
    pace->spent_us += (uint64_t)COST_US * things;
    if (pace->spent_us >= now) /* until what was done too much is made up for */
        pace->rest_until_us = pace->spent_us > now + REST_US ? pace->spent_us : now + REST_US;
}

bool cordon_pace_rests(struct cordon_pace *pace)
{
    if (pace->rest_until_us && cordon_now_us() >= pace->rest_until_us)
        pace->rest_until_us = 0;
    return pace->rest_until_us != 0;
}

void cordon_agent_pace_spend(struct cordon_agent_exec *exec, unsigned things)
{
    cordon_pace_spend(&exec->pace, things);
}

bool cordon_agent_pace_rests(struct cordon_agent_exec *exec)
{
    if (exec->state != CORDON_AGENT_RUNNING)
        exec->pace.rest_until_us = 0;
    return cordon_pace_rests(&exec->pace);
}
