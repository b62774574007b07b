/* SPDX-License-Identifier: Apache-2.0 */
/* Parts of E2B's interface that this daemon does not have. docs/e2b.md lists them. */
#include <errno.h>

#include "door/e2b/control.h"

int cordon_e2b_absent(struct cordon_http_request *request, struct cordon_error *err)
{
    return cordon_fail(err, -ENOSYS, CORDON_ERROR_UNSUPPORTED,
                       "%.16s %.128s is not implemented by this server (cordon; docs/e2b.md lists what is)",
                       request->method, request->path);
}
