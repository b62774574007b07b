/* SPDX-License-Identifier: Apache-2.0 */
#include "backend/builtin.h"

#include "warden/wire.h"

const struct cordon_backend *const cordon_backend_builtin[] = {
    &cordon_backend_none,
    &cordon_backend_local,
    &cordon_backend_exec_sandbox,
    &cordon_backend_self_managed,
    &cordon_backend_ssh,
    &cordon_backend_e2b,
    &cordon_backend_createos,
    &cordon_backend_tenki,
    &cordon_backend_ucloud_agent_sandbox,
    &cordon_backend_aliyun_codeinterpreter,
    NULL,
};

static const struct cordon_backend *const remote[] = {
    &cordon_backend_self_managed,
    &cordon_backend_ssh,
    &cordon_backend_e2b,
    &cordon_backend_createos,
    &cordon_backend_tenki,
    &cordon_backend_ucloud_agent_sandbox,
    &cordon_backend_aliyun_codeinterpreter,
};

bool cordon_backend_needs_warden(const struct cordon_backend *backend)
{
    for (size_t i = 0; i < sizeof remote / sizeof *remote; i++)
        if (remote[i] == backend)
            return false;
    for (size_t i = 0; cordon_backend_builtin[i]; i++)
        if (cordon_backend_builtin[i] == backend)
            return true;
    return false;
}

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
