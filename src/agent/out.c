/* SPDX-License-Identifier: Apache-2.0 */
#include <assert.h>
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>

#include "agent/agent.h"
#include "agent/vm.h"
#include "base/clock.h"

#define CHUNK (CORDON_FRAME_DATA_MAX + CORDON_FRAME_HEADER)
/* How long something small waits for company, since each wake of the host takes time from the program: most programs
 * write little, and end right after. */
#define LAZY_US 300
#define LAZY_STARTED_US 2000 /* nobody waits for this alone */
#define LAZY_BYTES 4096

static void make_room(struct cordon_agent_out *out)
{
    if (out->start == out->end) {
        out->start = out->end = 0;
    } else if (out->start && sizeof out->data - out->end < CHUNK + CORDON_AGENT_OUT_RESERVE) {
        memmove(out->data, out->data + out->start, out->end - out->start);
        out->end -= out->start;
        out->start = 0;
    }
}

bool cordon_agent_out_ready(const struct cordon_agent *agent)
{
    size_t used = agent->out.end - agent->out.start;
    return sizeof agent->out.data - used >= CHUNK + CORDON_AGENT_OUT_RESERVE;
}

char *cordon_agent_out_room(struct cordon_agent *agent)
{
    make_room(&agent->out);
    return agent->out.data + agent->out.end + CORDON_FRAME_HEADER;
}

void cordon_agent_out_commit(struct cordon_agent *agent, uint8_t type, uint16_t exec, uint32_t length)
{
    struct cordon_agent_out *out = &agent->out;
    bool lazy =
        type >= CORDON_FRAME_STARTED && type <= CORDON_FRAME_RESULT && out->end - out->start + length < LAZY_BYTES;
    uint64_t until_us = cordon_now_us() + (type == CORDON_FRAME_STARTED ? LAZY_STARTED_US : LAZY_US);
    if (!lazy)
        out->lazy_until_us = 0;
    else if (out->start == out->end || (out->lazy_until_us && until_us < out->lazy_until_us))
        out->lazy_until_us = until_us;
    cordon_frame_header(out->data + out->end, type, exec, length);
    out->end += CORDON_FRAME_HEADER + length;
}

void cordon_agent_send(struct cordon_agent *agent, uint8_t type, uint16_t exec, const void *payload, uint32_t length)
{
    struct cordon_agent_out *out = &agent->out;
    make_room(out);
    if (sizeof out->data - out->end < (size_t)CORDON_FRAME_HEADER + length)
        cordon_agent_quit(agent, 1, "the host asks for more answers than it reads");
    if (length)
        memcpy(out->data + out->end + CORDON_FRAME_HEADER, payload, length);
    cordon_agent_out_commit(agent, type, exec, length);
}

void cordon_agent_send_error(struct cordon_agent *agent, uint16_t exec, int code, const char *path, const char *fmt,
                             ...)
{
    char reason[256];
    va_list ap;
    va_start(ap, fmt);
    int n = vsnprintf(reason, sizeof reason, fmt, ap);
    va_end(ap);
    size_t size = n < 0 ? 0 : (size_t)n < sizeof reason ? (size_t)n : sizeof reason - 1;
    struct cordon_buf buf = CORDON_BUF_INIT(8192);
    (void)cordon_field_put_u32(&buf, CORDON_FIELD_CODE_NUMBER, (uint32_t)code); /* failures stick in buf.failed */
    (void)cordon_field_put(&buf, CORDON_FIELD_REASON, reason, (uint32_t)size);
    if (path)
        (void)cordon_field_put(&buf, CORDON_FIELD_PATH, path, (uint32_t)strnlen(path, 4096));
    if (buf.failed)
        cordon_agent_quit(agent, 1, "no memory to tell an error");
    cordon_agent_send(agent, CORDON_FRAME_ERROR, exec, buf.data, (uint32_t)buf.size);
    cordon_buf_done(&buf);
}

void cordon_agent_send_dropped(struct cordon_agent *agent, uint16_t exec, const char *name, const char *reason)
{
    struct cordon_buf buf = CORDON_BUF_INIT(2048);
    (void)cordon_field_put(&buf, CORDON_FIELD_PATH, name, (uint32_t)strlen(name)); /* failures stick in buf.failed */
    (void)cordon_field_put(&buf, CORDON_FIELD_REASON, reason, (uint32_t)strlen(reason));
    if (buf.failed)
        cordon_agent_quit(agent, 1, "no memory to tell of a dropped artifact");
    cordon_agent_send(agent, CORDON_FRAME_ARTIFACT_DROPPED, exec, buf.data, (uint32_t)buf.size);
    cordon_buf_done(&buf);
}

void cordon_agent_out_flush(struct cordon_agent *agent)
{
    struct cordon_agent_out *out = &agent->out;
    if (out->lazy_until_us && cordon_now_us() < out->lazy_until_us)
        return;
    out->lazy_until_us = 0; /* what does not go out now is waited for */
    while (out->start < out->end) {
        ssize_t n = cordon_vm_send(agent->channel, out->data + out->start, out->end - out->start);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0 && errno == EAGAIN)
            return;
        if (n < 0)
            cordon_agent_quit(agent, 0, NULL); /* the host has left: nobody to tell, nothing to keep */
        out->start += (size_t)n;
    }
    out->start = out->end = 0;
}
