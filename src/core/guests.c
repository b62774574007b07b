/* SPDX-License-Identifier: Apache-2.0 */
/* The table of kept guests: finding, pinning, telling. See guests_internal.h. */
#include "core/guests_internal.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <time.h>

struct cordon_guests cordon_guests = {.lock = PTHREAD_MUTEX_INITIALIZER, .epoll = -1, .wake = -1};
const char cordon_guests_all[] = "", cordon_guests_look[] = "";

int64_t cordon_guests_now(void)
{
    struct timespec now;
    (void)clock_gettime(CLOCK_REALTIME, &now); /* can't fail */
    return (int64_t)now.tv_sec * 1000000 + now.tv_nsec / 1000;
}

void cordon_guests_lock(void)
{
    (void)pthread_mutex_lock(&cordon_guests.lock); /* can't fail for a plain mutex */
}

void cordon_guests_unlock(void)
{
    (void)pthread_mutex_unlock(&cordon_guests.lock);
}

/* --- items --- */

struct cordon_guest_item *cordon_guest_item_new(const char *id)
{
    struct cordon_guest_item *item = calloc(1, sizeof *item);
    if (!item)
        return NULL;
    item->refs = 1;
    item->gone_fd = -1;
    item->private_data.max = CORDON_GUEST_PRIVATE_MAX;
    (void)snprintf(item->id, sizeof item->id, "%s", id);
    (void)pthread_mutex_init(&item->life, NULL); /* default attributes: can't fail, nor the next ones */
    (void)pthread_mutex_init(&item->rules, NULL);
    (void)pthread_mutex_init(&item->saves, NULL);
    return item;
}

static void drop_rules(struct cordon_guest_item *item)
{
    cordon_guest_texts_free(item->domains, item->domain_count);
    cordon_guest_texts_free(item->headers, item->header_count);
    item->domains = item->headers = NULL;
    item->domain_count = item->header_count = 0;
}

void cordon_guest_item_unref(struct cordon_guest_item *item)
{
    if (--item->refs)
        return;
    for (size_t i = 0; i < item->metadata_count; i++) {
        free((char *)(uintptr_t)item->metadata[i].key);
        free((char *)(uintptr_t)item->metadata[i].value);
    }
    drop_rules(item);
    cordon_buf_wipe(&item->private_data); /* tokens */
    free(item->metadata);
    free(item->tenant);
    free(item->name);
    free(item->template_name);
    free(item->backend_name);
    free(item->remote);
    free(item->notes);
    (void)pthread_mutex_destroy(&item->life);
    (void)pthread_mutex_destroy(&item->rules);
    (void)pthread_mutex_destroy(&item->saves);
    free(item);
}

static size_t bucket_of(const char *id)
{
    uint32_t hash = 2166136261u;
    for (; *id; id++)
        hash = (hash ^ (unsigned char)*id) * 16777619u;
    return hash % CORDON_GUEST_BUCKETS;
}

void cordon_guest_item_enter(struct cordon_guest_item *item)
{
    struct cordon_guest_item **bucket = &cordon_guests.by_id[bucket_of(item->id)], *after = cordon_guests.last;
    item->next_by_id = *bucket;
    *bucket = item;
    while (after && after->created_us > item->created_us)
        after = after->previous;
    item->previous = after;
    item->next = after ? after->next : cordon_guests.first;
    *(after ? &after->next : &cordon_guests.first) = item;
    *(item->next ? &item->next->previous : &cordon_guests.last) = item;
}

void cordon_guest_item_leave(struct cordon_guest_item *item)
{
    struct cordon_guest_item **at = &cordon_guests.by_id[bucket_of(item->id)];
    while (*at && *at != item)
        at = &(*at)->next_by_id;
    if (!*at)
        return;
    *at = item->next_by_id;
    *(item->previous ? &item->previous->next : &cordon_guests.first) = item->next;
    *(item->next ? &item->next->previous : &cordon_guests.last) = item->previous;
    cordon_guest_item_unref(item);
}

struct cordon_guest_item *cordon_guest_item_find(const char *id)
{
    struct cordon_guest_item *item = cordon_guests.by_id[bucket_of(id)];
    while (item && strcmp(item->id, id) != 0)
        item = item->next_by_id;
    return item;
}

bool cordon_guest_item_is_of(const struct cordon_guest_item *item, const char *tenant)
{
    return tenant == cordon_guests_all || tenant == cordon_guests_look || strcmp(item->tenant, tenant) == 0;
}

void cordon_guest_item_note(struct cordon_guest_item *item, const char *what, const char *fmt, ...)
{
    va_list ap;
    if (!item->notes) {
        item->notes = calloc(CORDON_GUEST_NOTES, sizeof *item->notes);
        item->note_room = CORDON_GUEST_NOTES;
    }
    if (!item->notes)
        return; /* a note less is no harm */
    struct cordon_note *note = &item->notes[(item->note_at + item->note_count) % item->note_room];
    if (item->note_count < item->note_room)
        item->note_count++;
    else
        item->note_at = (item->note_at + 1) % item->note_room;
    note->at_us = cordon_guests_now();
    note->what = what;
    va_start(ap, fmt);
    (void)vsnprintf(note->text, sizeof note->text, fmt, ap); /* cut at its size */
    va_end(ap);
}

/* The newest few. */
static void shorten_notes(struct cordon_guest_item *item)
{
    size_t kept = item->note_count < CORDON_GUEST_NOTES_GONE ? item->note_count : CORDON_GUEST_NOTES_GONE;
    struct cordon_note *notes = item->notes ? calloc(CORDON_GUEST_NOTES_GONE, sizeof *notes) : NULL;
    if (!notes)
        return;
    for (size_t i = 0; i < kept; i++)
        notes[i] = item->notes[(item->note_at + item->note_count - kept + i) % item->note_room];
    free(item->notes);
    item->notes = notes;
    item->note_at = 0;
    item->note_count = kept;
    item->note_room = CORDON_GUEST_NOTES_GONE;
}

/* What is told of one that is gone; nobody has it pinned. */
static void keep_tombstone(struct cordon_guest_item *item)
{
    drop_rules(item);
    if (item->private_data.size > CORDON_GUEST_PRIVATE_GONE)
        cordon_buf_wipe(&item->private_data);
    shorten_notes(item);
}

static size_t gone_of(const char *tenant, struct cordon_guest_item **to)
{
    size_t count = 0;
    for (struct cordon_guest_item *item = cordon_guests.first; item; item = item->next) {
        if (!item->gone || item->surplus || (tenant && strcmp(item->tenant, tenant) != 0))
            continue;
        if (to)
            to[count] = item;
        count++;
    }
    return count;
}

static int by_tenant_and_end(const void *a, const void *b)
{
    const struct cordon_guest_item *one = *(struct cordon_guest_item *const *)a;
    const struct cordon_guest_item *other = *(struct cordon_guest_item *const *)b;
    int order = strcmp(one->tenant, other->tenant);
    return order ? order : (one->gone_us > other->gone_us) - (one->gone_us < other->gone_us);
}

void cordon_guests_bound_tombstones(const char *tenant)
{
    size_t most = (size_t)cordon_settings_int(cordon_guests.settings, CORDON_DOOR_NATIVE, CORDON_SET_KEY_TOMBSTONES);
    size_t count = gone_of(tenant, NULL), kept = 0;
    struct cordon_guest_item **items = count > most ? calloc(count, sizeof(*items)) : NULL;
    if (!items) /* without memory, the next end tries again */
        return;
    count = gone_of(tenant, items);
    qsort(items, count, sizeof(*items), by_tenant_and_end);
    for (size_t i = count; i-- > 0;) {
        bool another = i + 1 == count || strcmp(items[i]->tenant, items[i + 1]->tenant) != 0;
        kept = another ? 1 : kept + 1;
        items[i]->surplus = kept > most;
    }
    free(items);
}

void cordon_guest_item_end(struct cordon_guest_item *item, const char *cause, const char *reason)
{
    if (item->gone)
        return;
    item->gone = true;
    item->paused = false;
    item->gone_us = cordon_guests_now();
    (void)snprintf(item->cause, sizeof item->cause, "%s", cause); /* cut at their sizes */
    (void)snprintf(item->reason, sizeof item->reason, "%s", reason);
    cordon_guest_item_note(item, "gone", "%s", reason);
    cordon_guests_bound_tombstones(item->tenant);
}

void cordon_guest_item_remote(struct cordon_guest_item *item)
{
    const char *name = CORDON_GUEST_HAS(item->backend, guest_remote) ? item->backend->guest_remote(item->handle) : NULL;
    char *copy = name && *name ? strdup(name) : NULL;
    if (!copy) /* it has none, or keeps the one that it had */
        return;
    free(item->remote);
    item->remote = copy;
}

/* --- pins --- */

static int not_found(const char *id, struct cordon_error *err)
{
    return cordon_fail(err, -ENOENT, CORDON_ERROR_NOT_FOUND, "there is no guest %.40s", id);
}

int cordon_guest_say_gone(const struct cordon_guest_item *item, struct cordon_error *err)
{
    char when[32];
    struct tm tm;
    time_t seconds = (time_t)(item->gone_us / 1000000);
    if (!gmtime_r(&seconds, &tm) || !strftime(when, sizeof when, "%Y-%m-%dT%H:%M:%SZ", &tm))
        *when = '\0';
    return cordon_fail(err, -ESRCH, CORDON_ERROR_GONE, "the guest %s is gone since %s: %s", item->id, when,
                       item->reason);
}

static int pin(const char *tenant, const char *id, bool also_gone, bool also_sought, struct cordon_guest_item **ret,
               struct cordon_error *err)
{
    int r = 0;
    cordon_guests_lock();
    struct cordon_guest_item *item = id ? cordon_guest_item_find_sought(id, tenant) : NULL;
    if (!item || item->making || !cordon_guest_item_is_of(item, tenant))
        r = not_found(id ? id : "", err);
    else if (item->gone && !also_gone)
        r = cordon_guest_say_gone(item, err);
    else if (!item->gone && !item->handle && !also_sought)
        r = cordon_guest_say_sought(item, err);
    if (r == 0) {
        item->uses++;
        item->refs++;
        *ret = item;
    }
    cordon_guests_unlock();
    return r;
}

int cordon_guest_pin(const char *tenant, const char *id, bool also_gone, struct cordon_guest_item **ret,
                     struct cordon_error *err)
{
    return pin(tenant, id, also_gone, false, ret, err);
}

int cordon_guest_pin_any(const char *tenant, const char *id, struct cordon_guest_item **ret, struct cordon_error *err)
{
    return pin(tenant, id, true, true, ret, err);
}

void cordon_guest_unpin(struct cordon_guest_item *item)
{
    struct cordon_guest_handle *handle = NULL;
    cordon_guests_lock();
    const struct cordon_backend *backend = item->backend; /* of one that was just found again, it is new */
    if (--item->uses == 0 && item->gone) {
        handle = item->handle;
        item->handle = NULL;
        keep_tombstone(item);
    }
    cordon_guest_item_unref(item);
    cordon_guests_unlock();
    if (handle)
        backend->guest_release(handle);
}

/* --- telling --- */

/* All of an info lies behind it, in one allocation. */
struct room {
    char *at;
    size_t size;
};

static size_t rounded(size_t size)
{
    return (size + 15) & ~(size_t)15;
}

static void *take(struct room *room, size_t size)
{
    void *ret = room->at;
    room->at += rounded(size);
    return ret;
}

static const char *copy_text(struct room *room, const char *text)
{
    size_t size = strlen(text ? text : "") + 1;
    return memcpy(take(room, size), text ? text : "", size);
}

static size_t text_room(const char *text)
{
    return rounded(strlen(text ? text : "") + 1);
}

static size_t room_of(const struct cordon_guest_item *item)
{
    size_t size = rounded(sizeof(struct cordon_guest_info)) + text_room(item->tenant) + text_room(item->name) +
                  text_room(item->template_name) + text_room(item->backend_name) + text_room(item->cause) +
                  text_room(item->reason) + text_room(item->remote) + rounded(item->private_data.size + 1) +
                  rounded(item->metadata_count * sizeof(struct cordon_pair)) +
                  rounded(item->domain_count * sizeof(char *));
    for (size_t i = 0; i < item->metadata_count; i++)
        size += text_room(item->metadata[i].key) + text_room(item->metadata[i].value);
    for (size_t i = 0; i < item->domain_count; i++)
        size += text_room(item->domains[i]);
    return size;
}

static void copy_lists(struct room *room, const struct cordon_guest_item *item, struct cordon_guest_info *info)
{
    struct cordon_pair *pairs = take(room, item->metadata_count * sizeof *pairs);
    const char **domains = take(room, item->domain_count * sizeof *domains);
    for (size_t i = 0; i < item->metadata_count; i++)
        pairs[i] =
            (struct cordon_pair){copy_text(room, item->metadata[i].key), copy_text(room, item->metadata[i].value)};
    for (size_t i = 0; i < item->domain_count; i++)
        domains[i] = copy_text(room, item->domains[i]);
    info->metadata = pairs;
    info->metadata_count = item->metadata_count;
    info->allowed_domains = domains;
    info->allowed_domain_count = item->domain_count;
    info->header_count = item->header_count;
    char *data = take(room, item->private_data.size + 1);
    if (item->private_data.size)
        memcpy(data, item->private_data.data, item->private_data.size);
    info->private_data = (struct cordon_bytes){data, item->private_data.size};
}

struct cordon_guest_info *cordon_guest_item_info(const struct cordon_guest_item *item)
{
    size_t size = room_of(item);
    struct cordon_guest_info *info = calloc(1, size);
    struct room room = {(char *)info, size};
    if (!info)
        return NULL;
    (void)take(&room, sizeof *info);
    *info = (struct cordon_guest_info){
        .door = item->door,
        .condition = item->gone     ? CORDON_GUEST_IS_GONE
                     : item->paused ? CORDON_GUEST_IS_PAUSED
                                    : CORDON_GUEST_IS_RUNNING,
        .limits = item->limits,
        .network = item->network,
        .isolation = item->isolation,
        .created_us = item->created_us,
        .started_us = item->started_us,
        .paused_us = item->paused ? item->paused_us : 0,
        .ends_us = item->paused ? item->left_us ? cordon_guests_now() + item->left_us : 0 : item->ends_us,
        .active_us = item->active_us,
        .idle_pause_ms = item->idle_pause_ms,
        .at_end = item->at_end,
        .auto_resume = item->auto_resume,
        .gone_us = item->gone_us,
    };
    memcpy(info->id, item->id, sizeof info->id);
    info->tenant = copy_text(&room, item->tenant);
    info->name = copy_text(&room, item->name);
    info->template_name = copy_text(&room, item->template_name);
    info->backend = copy_text(&room, item->backend_name);
    info->cause = copy_text(&room, item->cause);
    info->reason = copy_text(&room, item->reason);
    info->remote = copy_text(&room, item->remote);
    copy_lists(&room, item, info);
    return info;
}

void cordon_guest_info_free(struct cordon_guest_info *info)
{
    if (!info)
        return;
    explicit_bzero((void *)(uintptr_t)info->private_data.data, info->private_data.size); /* tokens */
    free(info);
}

static int tell(const struct cordon_guest_item *item, struct cordon_guest_info **ret, struct cordon_error *err)
{
    *ret = cordon_guest_item_info(item);
    return *ret ? 0 : cordon_fail_errno(err, -ENOMEM, "tell of the guest %s", item->id);
}

int cordon_guests_info(const char *tenant, const char *id, struct cordon_guest_info **ret, struct cordon_error *err)
{
    cordon_guests_lock();
    struct cordon_guest_item *item = id ? cordon_guest_item_find_sought(id, tenant) : NULL;
    int r = !item || item->making || !cordon_guest_item_is_of(item, tenant) ? not_found(id ? id : "", err)
                                                                            : tell(item, ret, err);
    cordon_guests_unlock();
    return r;
}

/* With the lock held: the newest one that lives. */
static struct cordon_guest_item *find_named(const char *tenant, const char *name)
{
    struct cordon_guest_item *item = *name ? cordon_guests.last : NULL;
    while (item && (item->gone || item->making || !item->name || strcmp(item->name, name) != 0 ||
                    !cordon_guest_item_is_of(item, tenant)))
        item = item->previous;
    return item;
}

int cordon_guests_find(const char *tenant, const char *name, struct cordon_guest_info **ret, struct cordon_error *err)
{
    struct cordon_guest_item *item;
    cordon_guests_lock();
    do
        item = find_named(tenant, name);
    while (item && cordon_guest_item_await(item));
    int r = item ? tell(item, ret, err)
                 : cordon_fail(err, -ENOENT, CORDON_ERROR_NOT_FOUND, "there is no guest of the name %.64s", name);
    cordon_guests_unlock();
    return r;
}

int cordon_guests_notes(const char *tenant, const char *id, int64_t after_us,
                        void (*each)(void *context, const struct cordon_guest_note *note), void *context,
                        struct cordon_error *err)
{
    struct cordon_guest_item *item;
    int r = cordon_guest_pin(tenant, id, true, &item, err);
    if (r < 0)
        return r;
    cordon_guests_lock();
    for (size_t i = 0; i < item->note_count; i++) {
        const struct cordon_note *note = &item->notes[(item->note_at + i) % item->note_room];
        const struct cordon_guest_note told = {note->at_us, note->what, note->text};
        if (note->at_us > after_us)
            each(context, &told); /* which must not call the service */
    }
    cordon_guests_unlock();
    cordon_guest_unpin(item);
    return 0;
}

/* --- start and end --- */

static int take_node(void)
{
    static const char letters[] = "abcdefghijklmnopqrstuvwxyz0123456789";
    unsigned char random[4];
    if (*cordon_guests.node)
        return 0;
    if (getrandom(random, sizeof random, 0) != sizeof random)
        return -EIO;
    for (int i = 0; i < 4; i++)
        cordon_guests.node[i] = letters[random[i] % 36];
    return 1;
}

static void take_row(void *context, const char *id, const char *record, size_t size)
{
    (void)context;
    if (strcmp(id, "node") == 0) {
        (void)snprintf(cordon_guests.node, sizeof cordon_guests.node, "%.*s", (int)(size < 4 ? size : 4), record);
        return;
    }
    struct cordon_guest_item *item =
        strlen(id) == CORDON_GUEST_ID - 1 ? cordon_guest_record_read(id, record, size) : NULL;
    if (item)
        cordon_guest_item_enter(item);
}

int cordon_guests_setup(const struct cordon_settings *settings, const struct cordon_guest_registry *registry,
                        struct cordon_error *err)
{
    cordon_guests.settings = settings;
    cordon_guests.registry = registry;
    cordon_guests_lock();
    int r = registry ? registry->each(registry->context, take_row, NULL, err) : 0;
    if (r == 0)
        cordon_guests_bound_tombstones(NULL);
    int node = r < 0 ? 0 : take_node();
    cordon_guests_unlock();
    if (r == 0 && node < 0)
        r = cordon_fail_errno(err, node, "choose a name for this node");
    if (r == 0 && node == 1 && registry)
        r = registry->put(registry->context, "node", cordon_guests.node, 4, err);
    if (r == 0)
        r = cordon_guests_watch_start(err);
    cordon_guests.ready = r == 0;
    return r;
}

void cordon_guests_done(void)
{
    cordon_guests_watch_stop();
    cordon_guests_lock();
    while (cordon_guests.first) {
        struct cordon_guest_item *item = cordon_guests.first;
        if (item->handle && item->uses == 0)
            item->backend->guest_release(item->handle);
        item->handle = NULL;
        cordon_guest_item_leave(item);
    }
    cordon_guests.ready = false;
    cordon_guests_unlock();
}
