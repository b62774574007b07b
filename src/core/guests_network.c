/* SPDX-License-Identifier: Apache-2.0 */
/* What a kept guest may reach: told to its backend when it is made, adopted, or when its door says otherwise. */
#include <errno.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "base/fd.h"
#include "base/log.h"
#include "core/guests_internal.h"
#include "core/policy.h"
#include "core/registry.h"

#define HAS(backend, member)                                                                                           \
    ((backend)->struct_size >= offsetof(struct cordon_backend, member) + sizeof(backend)->member && (backend)->member)

/* Guests that may be given the network later are made with it, and with a policy that allows nothing. */
bool cordon_guest_may_have_network(const struct cordon_guest_item *item)
{
    return HAS(item->backend, guest_network) && cordon_registry_capabilities(item->backend).network &&
           cordon_settings_bool(cordon_guests.settings, item->door, CORDON_SET_ALLOW_NETWORK);
}

int cordon_guest_network_policy(const struct cordon_guest_item *item, struct cordon_egress_policy *ret,
                                struct cordon_error *err)
{
    return cordon_egress_policy_for(cordon_guests.settings, item->door, item->network,
                                    (const char *const *)item->domains, item->domain_count, ret, err);
}

void cordon_guest_network_restore(struct cordon_guest_item *item)
{
    struct cordon_egress_policy policy = CORDON_EGRESS_POLICY_OFF;
    struct cordon_error err = {0};
    if (!item->network || !HAS(item->backend, guest_network))
        return;
    int r = cordon_guest_network_policy(item, &policy, &err);
    if (r == 0)
        r = item->backend->guest_network(item->handle, &policy, &err);
    cordon_egress_policy_done(&policy);
    if (r < 0)
        cordon_log_error("an adopted guest has no network until its rules are set again", &err);
}

/* As for a run: is the network allowed here, and are the rules within the settings'? */
static int judge(const struct cordon_guest_item *item, bool network, const char *const *domains, size_t count,
                 struct cordon_error *err)
{
    struct cordon_run_request run = {.door = item->door};
    run.request = (struct cordon_request){
        .network = network, .allowed_domains = domains, .allowed_domain_count = count, .language = "python"};
    if (count > 256)
        return cordon_fail(err, -E2BIG, CORDON_ERROR_INVALID, "%zu egress rules: at most 256 are kept", count);
    return network ? cordon_policy_check_declared(cordon_guests.settings, &run, item->backend, true, err) : 0;
}

static char **copy(const char *const *domains, size_t count)
{
    char **copies = calloc(count + 1, sizeof *copies);
    for (size_t i = 0; copies && i < count; i++) {
        copies[i] = strdup(domains[i]);
        if (copies[i])
            continue;
        while (i)
            free(copies[--i]);
        free(copies);
        return NULL;
    }
    return copies;
}

static void keep(struct cordon_guest_item *item, bool network, char **domains_take, size_t count)
{
    cordon_guests_lock();
    for (size_t i = 0; i < item->domain_count; i++)
        free(item->domains[i]);
    free(item->domains);
    item->domains = domains_take;
    item->domain_count = count;
    item->network = network;
    cordon_guests_unlock();
    cordon_guest_save(item);
}

static int change(struct cordon_guest_item *item, bool network, const char *const *domains, size_t count,
                  struct cordon_error *err)
{
    struct cordon_egress_policy policy = CORDON_EGRESS_POLICY_OFF;
    if (!network && !item->network && !count)
        return 0; /* it has none, and goes on having none: any backend holds that */
    if (!HAS(item->backend, guest_network))
        return cordon_fail(err, -EOPNOTSUPP, CORDON_ERROR_UNSUPPORTED,
                           "what the guest %s may reach can't be changed by its backend %s", item->id,
                           item->backend_name);
    int r = judge(item, network, domains, count, err);
    if (r == 0)
        r = cordon_egress_policy_for(cordon_guests.settings, item->door, network, domains, count, &policy, err);
    char **copies = r == 0 ? copy(domains, count) : NULL;
    if (r == 0 && !copies)
        r = cordon_fail_errno(err, -ENOMEM, "keep the egress rules of the guest %s", item->id);
    if (r == 0)
        r = item->backend->guest_network(item->handle, &policy, err);
    cordon_egress_policy_done(&policy);
    if (r == 0) {
        keep(item, network, copies, count);
        return 0;
    }
    for (size_t i = 0; copies && i < count; i++)
        free(copies[i]);
    free(copies);
    return r;
}

int cordon_guests_set_network(const char *tenant, const char *id, bool network, const char *const *allowed_domains,
                              size_t count, struct cordon_error *err)
{
    struct cordon_guest_item *item;
    int r = cordon_guest_pin(tenant, id, false, &item, err);
    if (r < 0)
        return r;
    r = change(item, network, allowed_domains, count, err);
    cordon_guest_unpin(item);
    return r;
}

static void take_log(void *context, const char *log, size_t size)
{
    (void)cordon_buf_append(context, log, size); /* a failure is sticky in the buf */
}

int cordon_guests_egress(const char *tenant, const char *id, struct cordon_egress_counts *counts,
                         struct cordon_buf *log, struct cordon_error *err)
{
    struct cordon_guest_item *item;
    int r = cordon_guest_pin(tenant, id, false, &item, err);
    if (r < 0)
        return r;
    if (HAS(item->backend, guest_egress))
        r = item->backend->guest_egress(item->handle, counts, take_log, log, err);
    else
        r = cordon_fail(err, -EOPNOTSUPP, CORDON_ERROR_UNSUPPORTED, "the backend %s tells nothing of a guest's network",
                        item->backend_name);
    cordon_guest_unpin(item);
    return r;
}
