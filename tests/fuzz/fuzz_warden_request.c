/* SPDX-License-Identifier: Apache-2.0 */
/* What a taken-over gateway may send as ACQUIRE: nothing beyond the ceilings passes, and a refusal has words. */
#include <stdlib.h>
#include <string.h>

#include "fuzz.h"
#include "warden/warden.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static struct cordon_warden warden = {
        .config = {.max_memory_bytes = 1u << 30, .interpreters.python = "/usr/bin/python3"}};
    struct cordon_warden_acquire request = {0};
    char why[512] = "";
    if (size < 1)
        return 0;
    warden.config.allow_none = data[0] & 1;
    warden.local_status = data[0] & 2 ? -1 : 0;
    warden.base.interpreters = warden.config.interpreters;
    warden.base.languages = data[0] >> 3;
    (void)memcpy(warden.why, "not here", sizeof "not here");
    memcpy(&request, data + 1, size - 1 < sizeof request ? size - 1 : sizeof request);
    int r = cordon_request_check(&warden, &request, why, sizeof why);
    if (r < 0 ? !why[0] : why[0] != '\0')
        abort();
    if (r == 0 &&
        (request.version != CORDON_WARDEN_VERSION || request.kind >= CORDON_GUEST_KIND__COUNT ||
         request.memory_bytes > warden.config.max_memory_bytes || request.unisolated > 1 ||
         (request.unisolated && !warden.config.allow_none) || (!request.unisolated && warden.local_status < 0) ||
         !memchr(request.template_name, 0, sizeof request.template_name) || strchr(request.template_name, '/') ||
         (request.unisolated && strcmp(request.template_name, "default") != 0) ||
         (strcmp(request.template_name, "default") == 0 && !(warden.base.languages & 1u << request.kind))))
        abort();
    return 0;
}
