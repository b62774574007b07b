/* SPDX-License-Identifier: Apache-2.0 */
/* `none`: programs run as plain processes of this host. It isolates nothing; the agent, limits on output and time, and
 * the truth of the outcome are the same as elsewhere. */
#include <errno.h>

#include "backend/builtin.h"
#include "base/error.h"
#include "guest/guest.h"

/* The languages are all that may be tried: a missing interpreter is told by the run. */
static const struct cordon_capabilities capabilities = {
    .struct_size = sizeof capabilities,
    .isolation = CORDON_ISOLATION_NONE,
    .files = true,
    .artifacts = true,
    .streaming = true,
    .languages = "python,javascript,bash",
    .network = true,
};

static const struct cordon_guest_backend self = {
    .name = "none", .isolation = CORDON_ISOLATION_NONE, .unisolated = true};

static const struct cordon_capabilities *get_capabilities(void)
{
    return &capabilities;
}

static int probe(struct cordon_error *err)
{
    struct cordon_warden_hello hello;
    int r = cordon_warden_hello(&hello, err);
    if (r < 0)
        return r;
    if (!(hello.abilities & CORDON_ABLE_NONE_BACKEND))
        return cordon_fail(
            err, -EPERM, CORDON_ERROR_UNAVAILABLE,
            "the backend none isolates nothing and is not allowed here: CORDON_ALLOW_NONE=true allows it, to a "
            "daemon when it starts");
    return 0;
}

static int run_open(const struct cordon_request *request, struct cordon_run **ret, struct cordon_error *err)
{
    return cordon_guest_run_open(&self, request, ret, err);
}

const struct cordon_backend cordon_backend_none = {
    .abi_version = CORDON_ABI_VERSION,
    .struct_size = sizeof cordon_backend_none,
    .name = "none",
    .capabilities = get_capabilities,
    .probe = probe,
    .run_open = run_open,
    .run_next = cordon_guest_run_next,
    .run_close = cordon_guest_run_close,
};
