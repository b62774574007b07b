/* SPDX-License-Identifier: Apache-2.0 */
/* Lists of kept guests: filtered, ordered, in pages. The mark of the next page is the creation time and id of the last
 * one told, so that what comes and goes meanwhile repeats and hides nothing else. */
#include <errno.h>
#include <fnmatch.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "core/guests_internal.h"

#define LIMIT_USUAL 100u
#define LIMIT_MOST 500u

static bool has_metadata(const struct cordon_guest_item *item, const struct cordon_pair *wanted)
{
    for (size_t i = 0; i < item->metadata_count; i++)
        if (strcmp(item->metadata[i].key, wanted->key) == 0)
            return strcmp(item->metadata[i].value, wanted->value) == 0;
    return false;
}

static bool is_in_condition(const struct cordon_guest_item *item, const struct cordon_guest_query *query)
{
    bool any = !query->running && !query->paused && !query->gone;
    if (item->gone)
        return query->gone;
    return any || (item->paused ? query->paused : query->running);
}

static bool is_idle(struct cordon_guest_item *item, uint64_t idle_ms)
{
    uint64_t changed_us;
    if (item->gone || item->streams)
        return false;
    if (!item->paused && item->handle && item->backend->guest_running &&
        item->backend->guest_running(item->handle, &changed_us) > item->resting)
        return false;
    return cordon_guests_now() - item->active_us >= (int64_t)idle_ms * 1000;
}

static bool matches(struct cordon_guest_item *item, const struct cordon_guest_query *query)
{
    if (item->making || !cordon_guest_item_is_of(item, query->tenant) || !is_in_condition(item, query))
        return false;
    if (query->door >= 0 && (int)item->door != query->door)
        return false;
    if (query->name && fnmatch(query->name, item->name, 0) != 0)
        return false;
    if (query->template_name && strcmp(query->template_name, item->template_name) != 0)
        return false;
    if (query->started_after_us && item->started_us <= query->started_after_us)
        return false;
    for (size_t i = 0; i < query->metadata_count; i++)
        if (!has_metadata(item, &query->metadata[i]))
            return false;
    return !query->idle_ms || is_idle(item, query->idle_ms);
}

struct mark {
    bool there;
    int64_t created_us;
    char id[CORDON_GUEST_ID];
};

static int read_mark(const char *text, struct mark *ret, struct cordon_error *err)
{
    *ret = (struct mark){0};
    if (!text || !*text)
        return 0;
    int end = 0;
    if (sscanf(text, "%" SCNx64 "-%20[a-z0-9]%n", (uint64_t *)&ret->created_us, ret->id, &end) != 2 || text[end])
        return cordon_fail(err, -EINVAL, CORDON_ERROR_INVALID,
                           "the mark of the next page is none that was given out: \"%.60s\"", text);
    ret->there = true;
    return 0;
}

static bool is_behind(const struct cordon_guest_item *item, const struct mark *mark, bool ascending)
{
    int order = item->created_us < mark->created_us   ? -1
                : item->created_us > mark->created_us ? 1
                                                      : strcmp(item->id, mark->id);
    return !mark->there || (ascending ? order > 0 : order < 0);
}

static int by_creation(const void *a, const void *b)
{
    const struct cordon_guest_item *left = *(struct cordon_guest_item *const *)a;
    const struct cordon_guest_item *right = *(struct cordon_guest_item *const *)b;
    if (left->created_us != right->created_us)
        return left->created_us < right->created_us ? -1 : 1;
    return strcmp(left->id, right->id);
}

/* With the lock held: all that match, in order. */
static size_t collect(const struct cordon_guest_query *query, struct cordon_guest_item **list,
                      struct cordon_guest_page *page)
{
    size_t count = 0;
    for (struct cordon_guest_item *item = cordon_guests.first; item; item = item->next) {
        if (!matches(item, query))
            continue;
        page->running += !item->gone && !item->paused;
        list[count++] = item;
    }
    page->total = count;
    qsort(list, count, sizeof(struct cordon_guest_item *), by_creation);
    for (size_t i = 0; !query->ascending && i < count / 2; i++) {
        struct cordon_guest_item *swap = list[i];
        list[i] = list[count - 1 - i];
        list[count - 1 - i] = swap;
    }
    return count;
}

static size_t count_all(void)
{
    size_t count = 0;
    for (struct cordon_guest_item *item = cordon_guests.first; item; item = item->next)
        count++;
    return count;
}

/* With the lock held. */
static int fill(const struct cordon_guest_query *query, const struct mark *mark, struct cordon_guest_page *page)
{
    size_t limit = !query->limit ? LIMIT_USUAL : query->limit > LIMIT_MOST ? LIMIT_MOST : query->limit;
    struct cordon_guest_item **list = calloc(count_all() + 1, sizeof(struct cordon_guest_item *));
    page->guests = calloc(limit, sizeof(struct cordon_guest_info *));
    if (!list || !page->guests) {
        free(list);
        return -ENOMEM;
    }
    size_t count = collect(query, list, page), at = mark->there ? 0 : query->offset;
    int r = 0;
    while (at < count && !is_behind(list[at], mark, query->ascending))
        at++;
    for (; at < count && page->count < limit && r == 0; at++) {
        page->guests[page->count] = cordon_guest_item_info(list[at]);
        r = page->guests[page->count] ? 0 : -ENOMEM;
        page->count += r == 0;
    }
    if (r == 0 && at < count && page->count)
        (void)snprintf(page->next, sizeof page->next, "%" PRIx64 "-%s", (uint64_t)list[at - 1]->created_us,
                       list[at - 1]->id);
    free(list);
    return r;
}

int cordon_guests_list(const struct cordon_guest_query *query, struct cordon_guest_page *ret, struct cordon_error *err)
{
    struct cordon_guest_page page = {0};
    struct mark mark;
    int r = read_mark(query->after, &mark, err);
    if (r < 0)
        return r;
    cordon_guests_lock();
    cordon_guests_settle(query->tenant);
    r = fill(query, &mark, &page);
    cordon_guests_unlock();
    if (r < 0) {
        cordon_guest_page_done(&page);
        return cordon_fail_errno(err, r, "list guests");
    }
    *ret = page;
    return 0;
}

void cordon_guest_page_done(struct cordon_guest_page *page)
{
    for (size_t i = 0; i < page->count; i++)
        cordon_guest_info_free(page->guests[i]);
    free(page->guests);
    *page = (struct cordon_guest_page){0};
}

void cordon_guests_count(const char *tenant, struct cordon_guests_counts *ret)
{
    *ret = (struct cordon_guests_counts){0};
    cordon_guests_lock();
    for (struct cordon_guest_item *item = cordon_guests.first; item; item = item->next) {
        if (item->gone || !cordon_guest_item_is_of(item, tenant))
            continue;
        ret->running += !item->paused;
        ret->paused += item->paused;
        ret->memory_bytes += item->limits.memory_bytes;
    }
    cordon_guests_unlock();
}
