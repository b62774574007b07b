/* SPDX-License-Identifier: Apache-2.0 */
/* For tests of backends' own code: the gateway's end of kept guests is not under test, and not linked. */
#include <errno.h>

#include "guest/kept.h"

#define STUB(name, ...)                                                                                                \
    int name(__VA_ARGS__)                                                                                              \
    {                                                                                                                  \
        return -ENOSYS;                                                                                                \
    }
#define GUEST struct cordon_guest_handle *guest __attribute__((unused))
#define ERR struct cordon_error *err __attribute__((unused))
#define UNUSED __attribute__((unused))

STUB(cordon_kept_create, const struct cordon_guest_spec *s UNUSED, struct cordon_guest_handle **ret UNUSED, ERR)
STUB(cordon_kept_adopt, const char *id UNUSED, int cancel_fd UNUSED, struct cordon_guest_handle **ret UNUSED, ERR)
STUB(cordon_kept_create_machine, const struct cordon_guest_spec *s UNUSED, struct cordon_guest_handle **ret UNUSED, ERR)
STUB(cordon_kept_adopt_machine, const char *id UNUSED, int cancel_fd UNUSED, struct cordon_guest_handle **ret UNUSED,
     ERR)
STUB(cordon_kept_destroy, GUEST, ERR)
STUB(cordon_kept_pause, GUEST, enum cordon_pause how UNUSED, ERR)
STUB(cordon_kept_resume, GUEST, ERR)
STUB(cordon_kept_watch, GUEST)
STUB(cordon_kept_network, GUEST, const struct cordon_egress_policy *policy UNUSED, ERR)
STUB(cordon_kept_egress, GUEST, struct cordon_egress_counts *ret UNUSED,
     void (*tell)(void *context, const char *log, size_t size) UNUSED, void *context UNUSED, ERR)
STUB(cordon_kept_usage, GUEST, struct cordon_guest_usage *ret UNUSED, ERR)
STUB(cordon_kept_execs, GUEST, void (*each)(void *context, const struct cordon_exec_info *exec) UNUSED,
     void *context UNUSED, ERR)
STUB(cordon_kept_port, GUEST, uint16_t port UNUSED, int cancel_fd UNUSED, int *ret UNUSED, ERR)
STUB(cordon_kept_open, GUEST, const struct cordon_operation *operation UNUSED, struct cordon_stream **ret UNUSED, ERR)
STUB(cordon_kept_stream_next, struct cordon_stream *stream UNUSED, int timeout_ms UNUSED,
     struct cordon_stream_event *event UNUSED, ERR)
STUB(cordon_kept_stream_write, struct cordon_stream *stream UNUSED, enum cordon_stream_to to UNUSED,
     const void *data UNUSED, size_t size UNUSED, ERR)
STUB(cordon_kept_stream_control, struct cordon_stream *stream UNUSED, enum cordon_control control UNUSED,
     uint32_t value UNUSED, ERR)

void cordon_kept_release(GUEST)
{
}

void cordon_kept_stream_close(struct cordon_stream *stream UNUSED)
{
}

enum cordon_guest_condition cordon_kept_condition(GUEST)
{
    return CORDON_GUEST_IS_GONE;
}

uint32_t cordon_kept_running(GUEST, uint64_t *changed_us UNUSED)
{
    return 0;
}

const char *cordon_kept_why_gone(GUEST)
{
    return NULL;
}
