/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the agent does for a program is in nobody's CPU account, and may be done at real-time priority. A denied call,
 * or a byte that is written alone, costs it about as much as it costs the program. So each uses up some of the time
 * that passes, a part of which may be saved up; when it is used up the agent rests, and does for the program nothing
 * but to end it. Callers wait meanwhile, which costs nothing, and what is written gathers and is then read at once.
 */
#include "agent/agent.h"
#include "base/clock.h"

#define COST_US 500     /* 2,000 a second in the long run */
#define SAVED_US 500000 /* 1,000 of them at once */
#define REST_US 2000

void cordon_agent_pace_spend(struct cordon_agent_exec *exec, unsigned things)
{
    uint64_t now = cordon_now_us();
    if (exec->spent_us + SAVED_US < now)
        exec->spent_us = now - SAVED_US;
    exec->spent_us += (uint64_t)COST_US * things;
    if (exec->spent_us >= now) /* until what was done too much is made up for */
        exec->rest_until_us = exec->spent_us > now + REST_US ? exec->spent_us : now + REST_US;
}

bool cordon_agent_pace_rests(struct cordon_agent_exec *exec)
{
    if (exec->rest_until_us && (exec->state != CORDON_AGENT_RUNNING || cordon_now_us() >= exec->rest_until_us))
        exec->rest_until_us = 0;
    return exec->rest_until_us != 0;
}
