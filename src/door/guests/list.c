/* SPDX-License-Identifier: Apache-2.0 */
/* What is told of guests: lists, metrics, what happened. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "door/guests/guests.h"
#include "door/json_time.h"

#define QUERY_MAX 256u

/* A query parameter that need not be there: 1, 0, or negative. */
static int query(const struct cordon_http_request *request, const char *name, char to[QUERY_MAX],
                 struct cordon_error *err)
{
    ssize_t n = cordon_http_query(request, name, to, QUERY_MAX);
    if (n == -ENOENT)
        return 0;
    return n < 0 ? cordon_fail(err, (int)n, CORDON_ERROR_INVALID, "the query's %s is malformed or too long", name) : 1;
}

static int query_number(const struct cordon_http_request *request, const char *name, uint64_t max, uint64_t *ret,
                        struct cordon_error *err)
{
    char text[QUERY_MAX], *end;
    int r = query(request, name, text, err);
    if (r <= 0)
        return r;
    errno = 0;
    unsigned long long value = strtoull(text, &end, 10);
    if (!*text || *end || errno || text[0] == '-' || value > max)
        return cordon_fail(err, -EINVAL, CORDON_ERROR_INVALID,
                           "the query's %s must be a number up to %llu; it is \"%.40s\"", name, (unsigned long long)max,
                           text);
    *ret = value;
    return 1;
}

static int read_states(const char *text, struct cordon_guest_query *ret, struct cordon_error *err)
{
    for (const char *at = text; *at; at += strcspn(at, ","), at += *at == ',') {
        size_t size = strcspn(at, ",");
        if (size == 7 && strncmp(at, "running", size) == 0)
            ret->running = true;
        else if (size == 6 && strncmp(at, "paused", size) == 0)
            ret->paused = true;
        else if (size == 4 && strncmp(at, "gone", size) == 0)
            ret->gone = true;
        else
            return cordon_fail(err, -EINVAL, CORDON_ERROR_INVALID,
                               "the query's state is a list of running, paused, gone; \"%.40s\" is none", text);
    }
    return 0;
}

/* The texts that a query borrows. */
struct query_texts {
    char name[QUERY_MAX], template_name[QUERY_MAX], after[QUERY_MAX], state[QUERY_MAX];
};

static int read_query(const struct cordon_http_request *request, struct query_texts *texts,
                      struct cordon_guest_query *ret, struct cordon_error *err)
{
    uint64_t limit = 0, idle_s = 0;
    int r = query(request, "name", texts->name, err);
    ret->name = r > 0 ? texts->name : NULL;
    if (r >= 0)
        r = query(request, "template", texts->template_name, err);
    ret->template_name = r > 0 ? texts->template_name : NULL;
    if (r >= 0)
        r = query(request, "after", texts->after, err);
    ret->after = r > 0 ? texts->after : NULL;
    if (r >= 0)
        r = query(request, "state", texts->state, err);
    if (r > 0)
        r = read_states(texts->state, ret, err);
    if (r >= 0)
        r = query_number(request, "limit", 500, &limit, err);
    if (r >= 0)
        r = query_number(request, "idle_s", 315360000, &idle_s, err);
    ret->limit = limit;
    ret->idle_ms = idle_s * 1000;
    return r;
}

int cordon_guest_list_get(struct cordon_http_request *request, struct cordon_error *err)
{
    struct query_texts texts;
    struct cordon_guest_query wanted = {.tenant = cordon_guest_viewer(request), .door = -1};
    struct cordon_guest_page page = {0};
    int r = read_query(request, &texts, &wanted, err);
    if (r >= 0)
        r = cordon_guests_list(&wanted, &page, err);
    if (r < 0)
        return r;
    struct cordon_guest_reply reply;
    cordon_guest_reply_begin(&reply);
    cordon_json_object_begin(&reply.json);
    cordon_json_key(&reply.json, "guests");
    cordon_json_array_begin(&reply.json);
    for (size_t i = 0; i < page.count; i++)
        cordon_guest_write(&reply.json, page.guests[i]);
    cordon_json_array_end(&reply.json);
    cordon_json_key(&reply.json, "total");
    cordon_json_uint(&reply.json, page.total);
    cordon_json_key(&reply.json, "next");
    cordon_json_text(&reply.json, page.next[0] ? page.next : NULL);
    cordon_json_object_end(&reply.json);
    cordon_guest_page_done(&page);
    return cordon_guest_reply_send(request, 200, &reply, err);
}

int cordon_guest_metrics_get(struct cordon_http_request *request, struct cordon_error *err)
{
    char id[CORDON_GUEST_ID];
    struct cordon_guest_metrics metrics = {0};
    int r = cordon_guest_of(request, id, err);
    if (r == 0)
        r = cordon_guests_metrics(cordon_guest_viewer(request), id, &metrics, err);
    if (r < 0)
        return r;
    const struct {
        const char *key;
        uint64_t value;
    } numbers[] = {{"memory_bytes", metrics.usage.memory_bytes},
                   {"memory_cache_bytes", metrics.usage.memory_cache_bytes},
                   {"memory_limit_bytes", metrics.usage.memory_limit_bytes},
                   {"disk_used_bytes", metrics.disk_used},
                   {"disk_total_bytes", metrics.disk_total},
                   {"processes", metrics.usage.processes},
                   {"cpu_percent", metrics.usage.cpu_percent}};
    struct cordon_guest_reply reply;
    cordon_guest_reply_begin(&reply);
    cordon_json_object_begin(&reply.json);
    cordon_json_key(&reply.json, "at");
    cordon_json_time(&reply.json, metrics.at_us);
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++) {
        cordon_json_key(&reply.json, numbers[i].key);
        cordon_json_uint(&reply.json, numbers[i].value);
    }
    cordon_json_key(&reply.json, "cpu_ms");
    cordon_json_ms(&reply.json, metrics.usage.cpu_us);
    cordon_json_key(&reply.json, "cpu_used_percent");
    (void)cordon_buf_appendf(&reply.body, "%.2f", metrics.cpu_used_percent); /* sticky */
    reply.json.need_comma = true;
    cordon_json_object_end(&reply.json);
    return cordon_guest_reply_send(request, 200, &reply, err);
}

static void write_note(void *context, const struct cordon_guest_note *note)
{
    struct cordon_json *json = context;
    cordon_json_object_begin(json);
    cordon_json_key(json, "at");
    cordon_json_time(json, note->at_us);
    cordon_json_key(json, "what");
    cordon_json_text(json, note->what);
    cordon_json_key(json, "text");
    cordon_json_text(json, note->text);
    cordon_json_object_end(json);
}

int cordon_guest_notes_get(struct cordon_http_request *request, struct cordon_error *err)
{
    char id[CORDON_GUEST_ID];
    struct cordon_guest_reply reply;
    int r = cordon_guest_of(request, id, err);
    if (r < 0)
        return r;
    cordon_guest_reply_begin(&reply);
    cordon_json_object_begin(&reply.json);
    cordon_json_key(&reply.json, "notes");
    cordon_json_array_begin(&reply.json);
    r = cordon_guests_notes(cordon_guest_viewer(request), id, 0, write_note, &reply.json, err);
    cordon_json_array_end(&reply.json);
    cordon_json_object_end(&reply.json);
    if (r < 0) {
        cordon_buf_done(&reply.body);
        return r;
    }
    return cordon_guest_reply_send(request, 200, &reply, err);
}
