/* SPDX-License-Identifier: Apache-2.0 */
/* `ucloud_agent_sandbox`: E2B's protocol on another service, with its own settings and one check more. */
#include <stdio.h>
#include <string.h>

#include "backend/builtin.h"
#include "backend/remote/e2b_guest.h"

static int configured(struct cordon_error *err)
{
    if (!*cordon_remote_text(CORDON_SET_UCLOUD_SANDBOX_API_KEY))
        return cordon_remote_unset(cordon_e2b_ucloud_kind.service,
                                   "UCloud Agent Sandbox API key is required (CORDON_UCLOUD_SANDBOX_API_KEY)", err);
    if (!*cordon_remote_text(CORDON_SET_UCLOUD_SANDBOX_TEMPLATE))
        return cordon_remote_unset(cordon_e2b_ucloud_kind.service,
                                   "template is required (CORDON_UCLOUD_SANDBOX_TEMPLATE)", err);
    return cordon_e2b_check_urls(&cordon_e2b_ucloud_kind, err);
}

static const struct cordon_remote_service service = {
    .name = "ucloud_agent_sandbox",
    .title = "UCloud Agent Sandbox",
    .max_output = CORDON_SET_UCLOUD_SANDBOX_MAX_OUTPUT_BYTES,
    .max_artifacts = CORDON_SET_UCLOUD_SANDBOX_MAX_ARTIFACTS,
    .max_artifact_bytes = CORDON_SET_UCLOUD_SANDBOX_MAX_ARTIFACT_BYTES,
    .configured = configured,
    CORDON_E2B_RUNS,
};

static const char *domain(void)
{
    static _Thread_local char made[200];
    const char *set = cordon_remote_text(CORDON_SET_UCLOUD_SANDBOX_DOMAIN);
    if (*set)
        return set;
    (void)snprintf(made, sizeof made, "%.100s.sandbox.ucloudai.com",
                   cordon_remote_text(CORDON_SET_UCLOUD_SANDBOX_REGION));
    return made;
}

static bool plain(void)
{
    return cordon_remote_true(CORDON_SET_UCLOUD_SANDBOX_INSECURE_HTTP);
}

static const char *scheme(void)
{
    return plain() ? "http" : "https";
}

static unsigned a_third(void)
{
    int64_t life = cordon_remote_number(CORDON_SET_UCLOUD_SANDBOX_TIMEOUT_S);
    return life > 3 ? (unsigned)(life / 3) : 1;
}

static struct cordon_remote_keeper keeper = CORDON_REMOTE_KEEPER(a_third, cordon_e2b_guest_renew);

struct cordon_e2b_kind cordon_e2b_ucloud_kind = {.service = &service,
                                                 .key = CORDON_SET_UCLOUD_SANDBOX_API_KEY,
                                                 .template_name = CORDON_SET_UCLOUD_SANDBOX_TEMPLATE,
                                                 .api_url = CORDON_SET_UCLOUD_SANDBOX_API_URL,
                                                 .sandbox_url = CORDON_SET_UCLOUD_SANDBOX_URL,
                                                 .life = CORDON_SET_UCLOUD_SANDBOX_TIMEOUT_S,
                                                 .domain = domain,
                                                 .scheme = scheme,
                                                 .plain_http = plain,
                                                 .keeper = &keeper,
                                                 .tries_inside = true};

static const struct cordon_capabilities *capabilities(void)
{
    struct cordon_capabilities now;
    cordon_remote_capable(&now, CORDON_ISOLATION_HARDWARE_VIRTUALIZED);
    now.deny_all_egress = true;
    now.streaming = now.guests = true;
    now.pause = CORDON_PAUSE_MEMORY;
    now.network = cordon_remote_true(CORDON_SET_UCLOUD_SANDBOX_ALLOW_INTERNET_ACCESS);
    now.max_timeout_s = (uint32_t)cordon_remote_number(CORDON_SET_UCLOUD_SANDBOX_EXECUTION_TIMEOUT_S);
    return cordon_remote_capabilities(&now);
}

static int ask(struct cordon_error *err)
{
    return cordon_e2b_ask(&cordon_e2b_ucloud_kind, err);
}

static int guest_create(const struct cordon_guest_spec *spec, struct cordon_guest_handle **ret,
                        struct cordon_error *err)
{
    return cordon_e2b_guest_create(&cordon_e2b_ucloud_kind, spec, ret, err);
}

static int guest_adopt(const char *id, int cancel_fd, struct cordon_guest_handle **ret, struct cordon_error *err)
{
    return cordon_e2b_guest_adopt(&cordon_e2b_ucloud_kind, id, cancel_fd, ret, err);
}

static void shutdown(void)
{
    cordon_remote_keeper_stop(&keeper);
}

CORDON_REMOTE_BACKEND(ucloud_agent_sandbox, &service, ask, CORDON_E2B_GUESTS, .shutdown = shutdown);
