/* SPDX-License-Identifier: Apache-2.0 */
/* What a kept guest may reach: told to its backend when it is made, adopted, or when its door says otherwise. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/fd.h"
#include "base/log.h"
#include "core/guests_internal.h"
#include "core/policy.h"
#include "core/registry.h"

/* Guests that may be given the network later are made with it, and with a policy that allows nothing. */
bool cordon_guest_may_have_network(const struct cordon_guest_item *item)
{
    return CORDON_GUEST_HAS(item->backend, guest_network) && cordon_registry_capabilities(item->backend).network &&
           cordon_settings_bool(cordon_guests.settings, item->door, CORDON_SET_ALLOW_NETWORK);
}

/* What that means behind the door: INVALID for what is malformed. Free with _done. */
static int make_policy(enum cordon_door door, const struct cordon_guest_network *network,
                       struct cordon_egress_policy *ret, struct cordon_error *err)
{
    const struct cordon_settings *settings = cordon_guests.settings;
    struct cordon_egress_policy policy = CORDON_EGRESS_POLICY_OFF;
    int r = cordon_egress_policy_for(settings, door, network->on, network->allowed_domains,
                                     network->allowed_domain_count, &policy, err);
    if (r == 0)
        r = cordon_egress_policy_add_headers(&policy, settings, door, network->headers, network->header_count, err);
    if (r < 0)
        cordon_egress_policy_done(&policy);
    else
        *ret = policy;
    return r;
}

int cordon_guest_network_check(const struct cordon_guest_create *create, struct cordon_error *err)
{
    const struct cordon_guest_network network = {.on = create->network,
                                                 .allowed_domains = create->allowed_domains,
                                                 .allowed_domain_count = create->allowed_domain_count,
                                                 .headers = create->headers,
                                                 .header_count = create->header_count};
    struct cordon_egress_policy policy = CORDON_EGRESS_POLICY_OFF;
    int r = make_policy(create->door, &network, &policy, err);
    cordon_egress_policy_done(&policy);
    return r;
}

int cordon_guest_network_policy(const struct cordon_guest_item *item, struct cordon_egress_policy *ret,
                                struct cordon_error *err)
{
    const struct cordon_guest_network network = {.on = item->network,
                                                 .allowed_domains = (const char *const *)item->domains,
                                                 .allowed_domain_count = item->domain_count,
                                                 .headers = (const char *const *)item->headers,
                                                 .header_count = item->header_count};
    return make_policy(item->door, &network, ret, err);
}

void cordon_guest_network_restore(struct cordon_guest_item *item)
{
    struct cordon_egress_policy policy = CORDON_EGRESS_POLICY_OFF;
    struct cordon_error err = {0};
    int r = 0;
    (void)pthread_mutex_lock(&item->rules); /* can't fail for a plain mutex */
    if (item->network && CORDON_GUEST_HAS(item->backend, guest_network)) {
        r = cordon_guest_network_policy(item, &policy, &err);
        if (r == 0)
            r = item->backend->guest_network(item->handle, &policy, &err);
    }
    (void)pthread_mutex_unlock(&item->rules); /* can't fail: it is ours */
    cordon_egress_policy_done(&policy);
    if (r < 0)
        cordon_log_error("an adopted guest has no network until its rules are set again", &err);
}

/* As for a run: is the network allowed here, and are the rules within the settings'? */
static int judge(const struct cordon_guest_item *item, const struct cordon_guest_network *network,
                 struct cordon_error *err)
{
    struct cordon_run_request run = {
        .door = item->door, .headers = network->headers, .header_count = network->header_count};
    run.request = (struct cordon_request){.network = network->on,
                                          .allowed_domains = network->allowed_domains,
                                          .allowed_domain_count = network->allowed_domain_count,
                                          .language = "python"};
    if (network->allowed_domain_count > CORDON_GUEST_DOMAINS_MAX)
        return cordon_fail(err, -E2BIG, CORDON_ERROR_INVALID, "%zu egress rules: at most %u are kept",
                           network->allowed_domain_count, CORDON_GUEST_DOMAINS_MAX);
    return network->on ? cordon_policy_check_declared(cordon_guests.settings, &run, item->backend, true, err) : 0;
}

char **cordon_guest_texts_copy(const char *const *texts, size_t count)
{
    char **copies = calloc(count + 1, sizeof *copies);
    for (size_t i = 0; copies && i < count; i++) {
        copies[i] = strdup(texts[i]);
        if (copies[i])
            continue;
        cordon_guest_texts_free(copies, i);
        return NULL;
    }
    return copies;
}

void cordon_guest_texts_free(char **texts, size_t count)
{
    for (size_t i = 0; texts && i < count; i++) {
        explicit_bzero(texts[i], strlen(texts[i]));
        free(texts[i]);
    }
    free(texts);
}

/* What is kept of a change, made before anything is enforced. */
struct kept {
    char **domains, **headers;
    struct cordon_buf private_data;
};

static int copy(const struct cordon_guest_network *network, struct kept *ret, struct cordon_error *err)
{
    const struct cordon_bytes *data = &network->private_data;
    ret->domains = cordon_guest_texts_copy(network->allowed_domains, network->allowed_domain_count);
    ret->headers = cordon_guest_texts_copy(network->headers, network->header_count);
    ret->private_data = CORDON_BUF_INIT(CORDON_GUEST_PRIVATE_MAX);
    if (data->data && cordon_buf_append(&ret->private_data, data->data, data->size) < 0)
        return cordon_fail(err, -E2BIG, CORDON_ERROR_TOO_LARGE,
                           "what the door keeps beside a guest is larger than %u bytes", CORDON_GUEST_PRIVATE_MAX);
    return ret->domains && ret->headers ? 0 : cordon_fail_errno(err, -ENOMEM, "keep a guest's egress rules");
}

static void forget(struct kept *kept, const struct cordon_guest_network *network)
{
    cordon_guest_texts_free(kept->domains, network->allowed_domain_count);
    cordon_guest_texts_free(kept->headers, network->header_count);
    cordon_buf_wipe(&kept->private_data);
}

/* It is in force when it can't be stored; but who tightened it must hear that a new gateway would find the old. */
static int keep(struct cordon_guest_item *item, const struct cordon_guest_network *network, struct kept *take,
                struct cordon_error *err)
{
    struct cordon_error own = {0};
    struct cordon_buf old = CORDON_BUF_INIT(0);
    cordon_guests_lock();
    cordon_guest_texts_free(item->domains, item->domain_count);
    cordon_guest_texts_free(item->headers, item->header_count);
    item->domains = take->domains;
    item->domain_count = network->allowed_domain_count;
    item->headers = take->headers;
    item->header_count = network->header_count;
    item->network = network->on;
    if (network->private_data.data) {
        old = item->private_data;
        item->private_data = take->private_data;
    }
    cordon_guests_unlock();
    cordon_buf_wipe(&old); /* tokens */
    int r = cordon_guest_store(item, &own);
    if (r < 0)
        return cordon_fail(err, r, CORDON_ERROR_INFRASTRUCTURE,
                           "what the guest %s may reach is in force as asked, but could not be stored, which is tried "
                           "again: if the gateway starts anew before that, the old rules hold again (%.200s)",
                           item->id, own.message);
    return 0;
}

static int enforce(const struct cordon_guest_item *item, const struct cordon_guest_network *network,
                   struct cordon_error *err)
{
    struct cordon_egress_policy policy = CORDON_EGRESS_POLICY_OFF;
    if (!network->on && !item->network && !network->allowed_domain_count && !network->header_count)
        return 0; /* it has none, and goes on having none: any backend holds that */
    if (!CORDON_GUEST_HAS(item->backend, guest_network))
        return cordon_fail(err, -EOPNOTSUPP, CORDON_ERROR_UNSUPPORTED,
                           "what the guest %s may reach can't be changed by its backend %s", item->id,
                           item->backend_name);
    int r = make_policy(item->door, network, &policy, err); /* malformed rules are told before refused ones */
    if (r == 0)
        r = judge(item, network, err);
    if (r == 0)
        r = item->backend->guest_network(item->handle, &policy, err);
    cordon_egress_policy_done(&policy);
    return r;
}

/* With the `rules` lock: of two at once, the second enforces and records after the first has done both. */
static int change(struct cordon_guest_item *item, const struct cordon_guest_network *network, struct cordon_error *err)
{
    struct kept kept;
    int r = copy(network, &kept, err);
    if (r == 0)
        r = enforce(item, network, err);
    if (r == 0)
        return keep(item, network, &kept, err);
    forget(&kept, network);
    return r;
}

int cordon_guests_set_network(const char *tenant, const char *id, const struct cordon_guest_network *network,
                              struct cordon_error *err)
{
    struct cordon_guest_item *item;
    int r = cordon_guest_pin(tenant, id, false, &item, err);
    if (r < 0)
        return r;
    (void)pthread_mutex_lock(&item->rules); /* can't fail for a plain mutex */
    r = change(item, network, err);
    (void)pthread_mutex_unlock(&item->rules); /* can't fail: it is ours */
    cordon_guest_unpin(item);
    return r;
}

int cordon_guest_trust(struct cordon_guest_item *item, const char *const *env, size_t count, const char ***ret,
                       size_t *ret_count, struct cordon_error *err)
{
    *ret = NULL;
    *ret_count = count;
    cordon_guests_lock();
    bool headers = item->header_count > 0;
    cordon_guests_unlock();
    if (!headers || !cordon_settings_bool(cordon_guests.settings, item->door, CORDON_SET_EGRESS_CA))
        return 0;
    *ret = cordon_egress_trust(env, count, ret_count);
    return *ret ? 0 : cordon_fail_errno(err, -ENOMEM, "start a program in the guest %s", item->id);
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
    if (CORDON_GUEST_HAS(item->backend, guest_egress))
        r = item->backend->guest_egress(item->handle, counts, take_log, log, err);
    else
        r = cordon_fail(err, -EOPNOTSUPP, CORDON_ERROR_UNSUPPORTED, "the backend %s tells nothing of a guest's network",
                        item->backend_name);
    cordon_guest_unpin(item);
    return r;
}
