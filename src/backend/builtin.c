/* SPDX-License-Identifier: Apache-2.0 */
#include "backend/builtin.h"

#include "warden/wire.h"

const struct cordon_backend *const cordon_backend_builtin[] = {&cordon_backend_none, &cordon_backend_local, NULL};

const char *cordon_backend_languages(uint32_t kinds)
{
    static const char *const lists[] = {
        "",     "python",      "javascript",      "python,javascript",
        "bash", "python,bash", "javascript,bash", "python,javascript,bash",
    };
    /* Without a zygote a fresh interpreter still runs Python. */
    bool python =
        kinds & (1u << CORDON_GUEST_PYTHON | 1u << CORDON_GUEST_PYTHON_DATA | 1u << CORDON_GUEST_PYTHON_FRESH);
    bool javascript = kinds & 1u << CORDON_GUEST_JAVASCRIPT, bash = kinds & 1u << CORDON_GUEST_BASH;
    return lists[python | javascript << 1 | bash << 2];
}
