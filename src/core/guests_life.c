/* SPDX-License-Identifier: Apache-2.0 */
/* A kept guest's life: made, paused, resumed, given more time, destroyed. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/random.h>

#include "base/fd.h"
#include "base/log.h"
#include "core/guests_internal.h"
#include "core/policy.h"
#include "core/registry.h"
#include "core/request.h"

#define MIB (UINT64_C(1) << 20)

static uint64_t setting(enum cordon_door door, enum cordon_setting id)
{
    int64_t value = cordon_settings_int(cordon_guests.settings, door, id);
    return value > 0 ? (uint64_t)value : 0;
}

/* --- what may be made --- */

static int check_name(const char *name, struct cordon_error *err)
{
    static const char letters[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._-";
    size_t size = name ? strlen(name) : 0;
    if (!name || (size > 0 && size <= CORDON_GUEST_NAME_MAX && strspn(name, letters) == size))
        return 0;
    return cordon_fail(err, -EINVAL, CORDON_ERROR_INVALID,
                       "a guest's name has 1 to %u letters, digits, dots, '_' or '-'; \"%.64s\" has not",
                       CORDON_GUEST_NAME_MAX, name);
}

static int check_metadata(const struct cordon_guest_create *create, struct cordon_error *err)
{
    size_t bytes = 0;
    for (size_t i = 0; i < create->metadata_count; i++)
        bytes += strlen(create->metadata[i].key) + strlen(create->metadata[i].value);
    if (create->metadata_count <= CORDON_GUEST_METADATA_MAX && bytes <= CORDON_GUEST_METADATA_BYTES)
        return 0;
    return cordon_fail(err, -E2BIG, CORDON_ERROR_TOO_LARGE,
                       "%zu metadata of %zu bytes: at most %u of %u bytes together", create->metadata_count, bytes,
                       CORDON_GUEST_METADATA_MAX, CORDON_GUEST_METADATA_BYTES);
}

static int check_ttl(enum cordon_door door, uint64_t ttl_ms, struct cordon_error *err)
{
    uint64_t most = setting(door, CORDON_SET_GUEST_MAX_TTL_S);
    if (!most || (ttl_ms && ttl_ms <= most * 1000))
        return 0;
    return cordon_fail(err, -EINVAL, CORDON_ERROR_INVALID,
                       "a guest may live %llu s at most (%s); ask for a time to live of 1 to %llu s",
                       (unsigned long long)most, cordon_settings_name(door, CORDON_SET_GUEST_MAX_TTL_S),
                       (unsigned long long)most);
}

static int take_limits(const struct cordon_guest_create *create, struct cordon_limits *ret, struct cordon_error *err)
{
    enum cordon_door door = create->door;
    uint64_t most = setting(door, CORDON_SET_MAX_MEMORY_MB) * MIB;
    *ret = (struct cordon_limits){
        .memory_bytes = create->memory_bytes ? create->memory_bytes : setting(door, CORDON_SET_GUEST_MEMORY_MB) * MIB,
        .disk_bytes = create->disk_bytes ? create->disk_bytes : setting(door, CORDON_SET_GUEST_DISK_MB) * MIB,
        .disk_inodes = create->disk_inodes ? create->disk_inodes : setting(door, CORDON_SET_GUEST_DISK_INODES),
        .pids = create->pids ? create->pids : (uint32_t)setting(door, CORDON_SET_GUEST_PIDS),
        .open_files = (uint32_t)setting(door, CORDON_SET_OPEN_FILES),
        .cpu_percent = create->cpu_percent ? create->cpu_percent : (uint32_t)setting(door, CORDON_SET_CPU_PERCENT),
    };
    if (ret->memory_bytes > most && !create->memory_bytes)
        ret->memory_bytes = most;
    if (ret->memory_bytes < 16 * MIB || ret->memory_bytes > most)
        return cordon_fail(err, -EINVAL, CORDON_ERROR_INVALID,
                           "a guest may have 16 to %llu MiB of memory (%s), not %llu", (unsigned long long)(most / MIB),
                           cordon_settings_name(door, CORDON_SET_MAX_MEMORY_MB),
                           (unsigned long long)(ret->memory_bytes / MIB));
    return 0;
}

/* As for a run of what the backend speaks anyway: isolation, egress, limits that must be held. */
static int judge(const struct cordon_guest_create *create, const struct cordon_limits *limits,
                 const struct cordon_backend *backend, bool named, struct cordon_error *err)
{
    char language[32];
    struct cordon_capabilities caps = cordon_registry_capabilities(backend);
    struct cordon_run_request run = {.door = create->door,
                                     .memory_asked = create->memory_bytes != 0,
                                     .headers = create->headers,
                                     .header_count = create->header_count};
    (void)snprintf(language, sizeof language, "%.*s", (int)strcspn(caps.languages ? caps.languages : "", ","),
                   caps.languages ? caps.languages : "");
    run.request = (struct cordon_request){.language = language,
                                          .network = create->network,
                                          .allowed_domains = create->allowed_domains,
                                          .allowed_domain_count = create->allowed_domain_count,
                                          .limits = *limits};
    int r = cordon_guest_network_check(create, err);
    if (r == 0)
        r = cordon_policy_check_declared(cordon_guests.settings, &run, backend, named, err);
    if (r < 0)
        return r;
    r = backend->probe ? backend->probe(err) : 0;
    if (r < 0)
        return r;
    caps = cordon_registry_capabilities(backend); /* a probe may have found more */
    if (!caps.guests || backend->struct_size < offsetof(struct cordon_backend, stream_close) || !backend->guest_create)
        return cordon_fail(err, -EOPNOTSUPP, CORDON_ERROR_UNSUPPORTED, "the backend %s keeps no guests", backend->name);
    return cordon_policy_check_held(cordon_guests.settings, &run, backend, named, err);
}

/* --- making one --- */

static int random_id(char id[CORDON_GUEST_ID])
{
    static const char letters[] = "abcdefghijklmnopqrstuvwxyz0123456789";
    unsigned char random[64];
    size_t at = 4, used = sizeof random;
    memcpy(id, cordon_guests.node, 4);
    while (at < CORDON_GUEST_ID - 1) {
        if (used == sizeof random) {
            if (getrandom(random, sizeof random, 0) != sizeof random)
                return -EIO;
            used = 0;
        }
        if (random[used] < 252) /* 7 times 36: each letter as likely as the others */
            id[at++] = letters[random[used] % 36];
        used++;
    }
    id[at] = '\0';
    return 0;
}

static char *copy(const char *text)
{
    return strdup(text ? text : "");
}

static bool copy_lists(const struct cordon_guest_create *create, struct cordon_guest_item *item)
{
    item->metadata = calloc(create->metadata_count + 1, sizeof *item->metadata);
    item->domains = calloc(create->allowed_domain_count + 1, sizeof *item->domains);
    if (!item->metadata || !item->domains)
        return false;
    for (size_t i = 0; i < create->metadata_count; i++) {
        struct cordon_pair *pair = &item->metadata[item->metadata_count++];
        *pair = (struct cordon_pair){copy(create->metadata[i].key), copy(create->metadata[i].value)};
        if (!pair->key || !pair->value)
            return false;
    }
    item->headers = cordon_guest_texts_copy(create->headers, create->header_count);
    item->header_count = item->headers ? create->header_count : 0;
    if (!item->headers)
        return false;
    for (size_t i = 0; i < create->allowed_domain_count; i++)
        if (!(item->domains[item->domain_count++] = copy(create->allowed_domains[i])))
            return false;
    return !create->private_data.size ||
           cordon_buf_append(&item->private_data, create->private_data.data, create->private_data.size) == 0;
}

static struct cordon_guest_item *new_item(const struct cordon_guest_create *create, const struct cordon_limits *limits,
                                          const struct cordon_backend *backend)
{
    char id[CORDON_GUEST_ID];
    struct cordon_guest_item *item = random_id(id) == 0 ? cordon_guest_item_new(id) : NULL;
    if (!item)
        return NULL;
    item->making = true;
    item->backend = backend;
    item->door = create->door;
    item->limits = *limits;
    item->network = create->network;
    item->isolation = cordon_registry_capabilities(backend).isolation;
    item->idle_pause_ms = create->idle_pause_ms;
    item->at_end = create->at_end;
    item->auto_resume = create->auto_resume;
    item->created_us = item->started_us = item->active_us = cordon_guests_now();
    item->tenant = copy(create->tenant);
    item->name = copy(create->name);
    item->template_name = copy(create->template_name ? create->template_name : "default");
    item->backend_name = copy(backend->name);
    if (copy_lists(create, item) && item->tenant && item->name && item->template_name && item->backend_name)
        return item;
    cordon_guest_item_unref(item);
    return NULL;
}

/* With the lock held. */
static size_t count_living(void)
{
    size_t living = 0;
    for (struct cordon_guest_item *item = cordon_guests.first; item; item = item->next)
        living += !item->gone;
    return living;
}

/* With the lock held, which is given up while it waits. */
static int check_free(const struct cordon_guest_item *item, struct cordon_error *err)
{
    uint64_t most = setting(item->door, CORDON_SET_MAX_GUESTS);
    cordon_guests_settle(item->tenant); /* what is no more takes no place */
    if (count_living() >= most)
        cordon_guests_settle(cordon_guests_all);
    size_t living = count_living();
    for (struct cordon_guest_item *other = cordon_guests.first; other; other = other->next)
        if (!other->gone && *item->name && strcmp(other->name, item->name) == 0 &&
            strcmp(other->tenant, item->tenant) == 0)
            return cordon_fail(err, -EEXIST, CORDON_ERROR_CONFLICT, "a guest of the name %s is there already",
                               item->name);
    if (living >= most)
        return cordon_fail(
            err, -EAGAIN, CORDON_ERROR_BUSY,
            "%zu guests are kept, as many as may be (CORDON_MAX_GUESTS): destroy one, or try again later", living);
    return cordon_quota_guest_check(item->tenant, item->door, item->limits.memory_bytes, err);
}

static int make(struct cordon_guest_item *item, const struct cordon_guest_create *create, struct cordon_error *err)
{
    struct cordon_egress_policy egress = CORDON_EGRESS_POLICY_OFF;
    const struct cordon_guest_spec spec = {.struct_size = sizeof spec,
                                           .id = item->id,
                                           .template_name = item->template_name,
                                           .limits = item->limits,
                                           .env = create->env,
                                           .env_count = create->env_count,
                                           .network = item->network,
                                           .allowed_domains = create->allowed_domains,
                                           .allowed_domain_count = create->allowed_domain_count,
                                           .cancel_fd = create->cancel_fd,
                                           .egress = cordon_guest_may_have_network(item) ? &egress : NULL};
    struct cordon_guest_handle *handle = NULL;
    int r = cordon_guest_network_policy(item, &egress, err);
    if (r == 0)
        r = item->backend->guest_create(&spec, &handle, err);
    cordon_egress_policy_done(&egress);
    cordon_guests_lock();
    item->making = false;
    item->handle = handle;
    item->started_us = item->active_us = cordon_guests_now();
    item->ttl_us = (int64_t)create->ttl_ms * 1000;
    item->ends_us = create->ttl_ms ? item->started_us + (int64_t)create->ttl_ms * 1000 : 0;
    if (r < 0) {
        cordon_guest_item_leave(item);
    } else {
        cordon_guest_item_remote(item);
        cordon_guest_item_note(item, "created", "by the backend %s", item->backend_name);
    }
    cordon_guests_unlock();
    return r;
}

int cordon_guests_create(const struct cordon_guest_create *create, struct cordon_guest_info **ret,
                         struct cordon_error *err)
{
    const struct cordon_backend *backend;
    struct cordon_limits limits;
    enum cordon_door door = create->door;
    const char *name =
        create->backend ? create->backend : cordon_settings_string(cordon_guests.settings, door, CORDON_SET_BACKEND);
    int r = check_name(create->name, err);
    if (r == 0)
        r = check_metadata(create, err);
    if (r == 0)
        r = check_ttl(door, create->ttl_ms, err);
    if (r == 0 && create->private_data.size > CORDON_GUEST_PRIVATE_MAX)
        r = cordon_fail(err, -E2BIG, CORDON_ERROR_TOO_LARGE,
                        "what the door keeps beside a guest is larger than %u bytes", CORDON_GUEST_PRIVATE_MAX);
    if (r == 0)
        r = take_limits(create, &limits, err);
    if (r == 0)
        r = cordon_registry_find(
            name, create->backend ? "the request's backend" : cordon_settings_name(door, CORDON_SET_BACKEND), &backend,
            err);
    if (r == 0)
        r = judge(create, &limits, backend, create->backend != NULL, err);
    if (r == 0)
        r = cordon_quota_rate(create->tenant, err);
    if (r < 0)
        return r;
    struct cordon_guest_item *item = new_item(create, &limits, backend);
    if (!item)
        return cordon_fail_errno(err, -ENOMEM, "make a guest");
    cordon_guests_lock();
    r = check_free(item, err);
    if (r == 0) {
        item->uses++; /* pinned: it may end, by its ttl or by who finds it in a list, before it is told */
        item->refs++;
        cordon_guest_item_enter(item);
    } else {
        cordon_guest_item_unref(item);
    }
    cordon_guests_unlock();
    if (r < 0)
        return r;
    r = make(item, create, err);
    if (r == 0) {
        (void)cordon_guests_watch_add(item); /* without, its end shows at its next use */
        r = cordon_guest_store(item, err);   /* one that is not stored would be lost with the gateway */
        if (r < 0)
            (void)cordon_guest_life_destroy(item, "unstored", "its record could not be stored", &(bool){false}, NULL);
        cordon_guests_watch_wake();
    }
    cordon_guests_lock();
    if (r == 0 && !(*ret = cordon_guest_item_info(item)))
        r = cordon_fail_errno(err, -ENOMEM, "tell of the guest %s", item->id);
    cordon_guests_unlock();
    cordon_guest_unpin(item);
    return r;
}

/* --- pause and resume --- */

static int begin(struct cordon_guest_item *item, struct cordon_error *err)
{
    (void)pthread_mutex_lock(&item->life); /* can't fail for a plain mutex */
    cordon_guests_lock();
    int r = item->gone ? cordon_guest_say_gone(item, err) : 0;
    cordon_guests_unlock();
    return r;
}

static int end(struct cordon_guest_item *item, int r, bool save)
{
    (void)pthread_mutex_unlock(&item->life); /* can't fail: it is ours */
    if (save)
        cordon_guest_save(item);
    cordon_guests_watch_wake();
    return r;
}

void cordon_guest_item_paused(struct cordon_guest_item *item)
{
    item->paused = true;
    item->paused_us = cordon_guests_now();
    /* Paused at its end, it has all of its time again when it goes on. */
    int64_t left = item->ends_us - item->paused_us;
    item->left_us = !item->ends_us ? 0 : left > 0 ? left : item->ttl_us > 0 ? item->ttl_us : 1;
}

void cordon_guest_item_resumed(struct cordon_guest_item *item)
{
    int64_t now = cordon_guests_now();
    item->paused = false;
    item->ends_us = item->left_us ? now + item->left_us : 0;
    item->started_us = item->active_us = now;
}

int cordon_guest_life_pause(struct cordon_guest_item *item, const char *why, bool *changed, struct cordon_error *err)
{
    int r = begin(item, err);
    *changed = false;
    if (r < 0 || item->paused)
        return end(item, r, false);
    if (!item->backend->guest_pause)
        return end(item,
                   cordon_fail(err, -EOPNOTSUPP, CORDON_ERROR_UNSUPPORTED, "the backend %s pauses no guests",
                               item->backend_name),
                   false);
    r = item->backend->guest_pause(item->handle, CORDON_PAUSE_FREEZE, err);
    if (r < 0)
        return end(item, r, false);
    cordon_guests_lock();
    cordon_guest_item_paused(item);
    *changed = true;
    cordon_guest_item_note(item, "paused", "%s", why);
    cordon_guests_unlock();
    return end(item, 0, true);
}

static void set_end(struct cordon_guest_item *item, uint64_t ttl_ms, int64_t now)
{
    item->ends_us = ttl_ms ? now + (int64_t)ttl_ms * 1000 : 0;
    item->left_us = item->ttl_us = ttl_ms ? (int64_t)ttl_ms * 1000 : 0;
}

int cordon_guest_life_resume(struct cordon_guest_item *item, uint64_t ttl_ms, bool *changed, struct cordon_error *err)
{
    int r = begin(item, err);
    *changed = false;
    /* It may be paused without our knowing: a service's answer to a pause was lost. */
    bool paused = r == 0 && (item->paused || item->backend->guest_condition(item->handle) == CORDON_GUEST_IS_PAUSED);
    if (paused)
        r = item->backend->guest_resume ? item->backend->guest_resume(item->handle, err)
                                        : cordon_fail(err, -EOPNOTSUPP, CORDON_ERROR_UNSUPPORTED,
                                                      "the backend %s resumes no guests", item->backend_name);
    if (r < 0)
        return end(item, r, false);
    cordon_guests_lock();
    int64_t now = cordon_guests_now();
    *changed = paused;
    if (*changed && !item->paused) /* its time went on */
        item->left_us = item->ends_us ? item->ends_us > now ? item->ends_us - now : 1 : 0;
    if (*changed) {
        cordon_guest_item_resumed(item);
        cordon_guest_item_note(item, "resumed", "it runs again");
    }
    if (ttl_ms != CORDON_KEEP)
        set_end(item, ttl_ms, now);
    cordon_guests_unlock();
    return end(item, 0, true);
}

int cordon_guests_pause(const char *tenant, const char *id, bool *changed, struct cordon_error *err)
{
    struct cordon_guest_item *item;
    bool own;
    int r = cordon_guest_pin(tenant, id, false, &item, err);
    if (r < 0)
        return r;
    r = cordon_guest_life_pause(item, "on request", changed ? changed : &own, err);
    cordon_guest_unpin(item);
    return r;
}

int cordon_guests_resume(const char *tenant, const char *id, uint64_t ttl_ms, bool *changed, struct cordon_error *err)
{
    struct cordon_guest_item *item;
    bool own;
    int r = cordon_guest_pin(tenant, id, false, &item, err);
    if (r < 0)
        return r;
    r = ttl_ms == CORDON_KEEP ? 0 : check_ttl(item->door, ttl_ms, err);
    if (r == 0)
        r = cordon_guest_life_resume(item, ttl_ms, changed ? changed : &own, err);
    cordon_guest_unpin(item);
    return r;
}

/* --- small changes --- */

int cordon_guests_extend(const char *tenant, const char *id, uint64_t ttl_ms, bool only_later, struct cordon_error *err)
{
    struct cordon_guest_item *item;
    int r = cordon_guest_pin(tenant, id, false, &item, err);
    if (r < 0)
        return r;
    r = check_ttl(item->door, ttl_ms, err);
    cordon_guests_lock();
    int64_t now = cordon_guests_now(), wanted = ttl_ms ? now + (int64_t)ttl_ms * 1000 : INT64_MAX;
    int64_t there = item->paused    ? item->left_us ? now + item->left_us : INT64_MAX
                    : item->ends_us ? item->ends_us
                                    : INT64_MAX;
    if (r == 0 && (!only_later || wanted > there)) {
        set_end(item, ttl_ms, now);
        cordon_guest_item_note(item, "extended", "to live for %llu s from now", (unsigned long long)(ttl_ms / 1000));
    }
    cordon_guests_unlock();
    if (r == 0)
        cordon_guest_save(item);
    cordon_guests_watch_wake();
    cordon_guest_unpin(item);
    return r;
}

int cordon_guests_set_idle_pause(const char *tenant, const char *id, uint64_t idle_pause_ms, struct cordon_error *err)
{
    struct cordon_guest_item *item;
    int r = cordon_guest_pin(tenant, id, false, &item, err);
    if (r < 0)
        return r;
    cordon_guests_lock();
    item->idle_pause_ms = idle_pause_ms;
    cordon_guests_unlock();
    cordon_guest_save(item);
    cordon_guests_watch_wake();
    cordon_guest_unpin(item);
    return 0;
}

/* --- the end --- */

int cordon_guest_life_destroy(struct cordon_guest_item *item, const char *cause, const char *reason, bool *changed,
                              struct cordon_error *err)
{
    int r = begin(item, NULL);
    *changed = false;
    if (r < 0) /* it is gone, which is what was wanted */
        return end(item, 0, false);
    r = item->backend->guest_destroy(item->handle, err);
    if (r < 0)
        return end(item, r, false);
    cordon_guests_lock();
    *changed = !item->gone;
    cordon_guest_item_end(item, cause, reason);
    cordon_guests_unlock();
    cordon_guests_watch_remove(item);
    return end(item, 0, true);
}

int cordon_guests_destroy(const char *tenant, const char *id, bool *changed, struct cordon_error *err)
{
    struct cordon_guest_item *item;
    bool own;
    int r = cordon_guest_pin(tenant, id, true, &item, err);
    if (r < 0)
        return r;
    r = cordon_guest_life_destroy(item, "destroyed", "it was destroyed on request", changed ? changed : &own, err);
    cordon_guest_unpin(item);
    return r;
}

/* With or without a handle; the item is pinned. */
static void give_up(struct cordon_guest_item *item, const char *why, bool *changed)
{
    char reason[sizeof item->reason];
    cordon_guests_lock();
    (void)snprintf(reason, sizeof reason, "it was given up on request, and may still be there (%s%.80s): %.90s",
                   item->remote ? "as " : "by the guest's id", item->remote ? item->remote : "", why);
    *changed = !item->gone;
    cordon_guest_item_end(item, "forgotten", reason);
    cordon_guests_unlock();
    if (!*changed)
        return;
    cordon_log(CORDON_LOG_WARN, "a guest that could not be ended was given up: end it where it is", "guest", item->id,
               "backend", item->backend_name, "remote", item->remote ? item->remote : "", "error", why, NULL);
    cordon_guests_watch_remove(item);
    cordon_guest_save(item);
    cordon_guests_watch_wake();
}

int cordon_guests_forget(const char *tenant, const char *id, bool *changed, struct cordon_error *err)
{
    struct cordon_guest_item *item;
    struct cordon_error why = {0};
    bool own;
    changed = changed ? changed : &own;
    *changed = false;
    int r = cordon_guest_pin_any(tenant, id, &item, err);
    if (r < 0)
        return r;
    cordon_guests_lock();
    bool there = item->handle, gone = item->gone;
    cordon_guests_unlock();
    if (there && !gone)
        r = cordon_guest_life_destroy(item, "destroyed", "it was destroyed on request", changed, &why);
    if (!gone && (!there || r < 0))
        give_up(item, there ? why.message : "it was not found again after a restart", changed);
    cordon_guest_unpin(item);
    return 0;
}
