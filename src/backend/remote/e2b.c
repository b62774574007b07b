/* SPDX-License-Identifier: Apache-2.0 */
/* `e2b`: what it is set by, what it declares, and its row. */
#include <stdio.h>
#include <string.h>

#include "backend/builtin.h"
#include "backend/remote/e2b_guest.h"

static int configured(struct cordon_error *err)
{
    if (!*cordon_remote_text(CORDON_SET_E2B_API_KEY))
        return cordon_remote_unset(cordon_e2b_kind.service, "E2B API key is required (CORDON_E2B_API_KEY)", err);
    return cordon_e2b_check_urls(&cordon_e2b_kind, err);
}

static const struct cordon_remote_service service = {
    .name = "e2b",
    .title = "E2B",
    CORDON_REMOTE_UNLIMITED,
    .configured = configured,
    CORDON_E2B_RUNS,
};

static const char *domain(void)
{
    return cordon_remote_text(CORDON_SET_E2B_SERVICE_DOMAIN);
}

static const char *https(void)
{
    return "https";
}

static bool never(void)
{
    return false;
}

static unsigned a_third(void)
{
    int64_t life = cordon_remote_number(CORDON_SET_E2B_TIMEOUT_S);
    return life > 3 ? (unsigned)(life / 3) : 1;
}

static struct cordon_remote_keeper keeper = CORDON_REMOTE_KEEPER(a_third, cordon_e2b_guest_renew);

struct cordon_e2b_kind cordon_e2b_kind = {.service = &service,
                                          .key = CORDON_SET_E2B_API_KEY,
                                          .template_name = CORDON_SET_E2B_TEMPLATE,
                                          .api_url = CORDON_SET_E2B_API_URL,
                                          .sandbox_url = CORDON_SET_E2B_SANDBOX_URL,
                                          .life = CORDON_SET_E2B_TIMEOUT_S,
                                          .newest = true,
                                          .domain = domain,
                                          .scheme = https,
                                          .plain_http = never,
                                          .keeper = &keeper};

static const struct cordon_capabilities *capabilities(void)
{
    int64_t life = cordon_remote_number(CORDON_SET_E2B_TIMEOUT_S);
    struct cordon_capabilities now;
    cordon_remote_capable(&now, CORDON_ISOLATION_HARDWARE_VIRTUALIZED);
    now.deny_all_egress = true;
    now.streaming = now.network = now.guests = true;
    now.pause = CORDON_PAUSE_MEMORY;
    now.max_timeout_s = life > 60 ? (uint32_t)life - 30 : 30;
    return cordon_remote_capabilities(&now);
}

static int ask(struct cordon_error *err)
{
    return cordon_e2b_ask(&cordon_e2b_kind, err);
}

static int guest_create(const struct cordon_guest_spec *spec, struct cordon_guest_handle **ret,
                        struct cordon_error *err)
{
    return cordon_e2b_guest_create(&cordon_e2b_kind, spec, ret, err);
}

static int guest_adopt(const char *id, int cancel_fd, struct cordon_guest_handle **ret, struct cordon_error *err)
{
    return cordon_e2b_guest_adopt(&cordon_e2b_kind, id, cancel_fd, ret, err);
}

static void shutdown(void)
{
    cordon_remote_keeper_stop(&keeper);
}

CORDON_REMOTE_BACKEND(e2b, &service, ask, CORDON_E2B_GUESTS, .shutdown = shutdown);
