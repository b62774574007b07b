/* SPDX-License-Identifier: Apache-2.0 */
/* The lists of sandboxes. */
#include <errno.h>
#include <microhttpd.h>
#include <stdlib.h>
#include <string.h>

#include "door/e2b/control.h"
#include "door/e2b/metadata.h"
#include "door/json_time.h"

static int bad(struct cordon_error *err, const char *name, const char *needed)
{
    return cordon_fail(err, -EINVAL, CORDON_ERROR_INVALID, "%s: %s is needed", name, needed);
}

/* A parameter's decoded text; "" when it is not there. */
static int parameter(const struct cordon_http_request *request, const char *name, char *to, size_t room,
                     struct cordon_error *err)
{
    ssize_t n = cordon_http_query(request, name, to, room);
    return n >= 0 || n == -ENOENT ? 0 : bad(err, name, "a shorter and well escaped value");
}

static int read_metadata(const struct cordon_http_request *request, struct cordon_door_memory *memory,
                         struct cordon_guest_query *query, struct cordon_error *err)
{
    struct cordon_pairs pairs = {0};
    /* With the query's escapes still in it: it is decoded layer by layer. */
    const char *text = MHD_lookup_connection_value(request->mhd, MHD_GET_ARGUMENT_KIND, "metadata");
    int r = text ? cordon_e2b_metadata_read(text, memory, &pairs, err) : 0;
    query->metadata = pairs.items;
    query->metadata_count = pairs.count;
    return r;
}

static int read_state(const char *text, struct cordon_guest_query *query, struct cordon_error *err)
{
    for (; *text; text += *text == ',') {
        size_t size = strcspn(text, ",");
        if (size == 7 && strncmp(text, "running", size) == 0)
            query->running = true;
        else if (size == 6 && strncmp(text, "paused", size) == 0)
            query->paused = true;
        else if (size)
            return bad(err, "state", "running, paused or both");
        text += size;
    }
    return 0;
}

static int read_limit(const char *text, struct cordon_guest_query *query, struct cordon_error *err)
{
    size_t size = strlen(text);
    query->limit = 100;
    if (!size)
        return 0;
    if (size > 6 || strspn(text, "0123456789") != size)
        return bad(err, "limit", "a number from 1 to 100");
    query->limit = (size_t)strtoul(text, NULL, 10);
    return query->limit < 1 || query->limit > 100 ? bad(err, "limit", "a number from 1 to 100") : 0;
}

/* The texts stay in the caller's. */
struct list_texts {
    char state[64], started[64], template_id[256], order[8], limit[8], next[64];
};

static int read_query(const struct cordon_http_request *request, struct cordon_door_memory *memory,
                      struct list_texts *texts, struct cordon_guest_query *query, struct cordon_error *err)
{
    const struct {
        const char *name;
        char *to;
        size_t room;
    } rows[] = {{"state", texts->state, sizeof texts->state},
                {"startedAfter", texts->started, sizeof texts->started},
                {"template", texts->template_id, sizeof texts->template_id},
                {"order", texts->order, sizeof texts->order},
                {"limit", texts->limit, sizeof texts->limit},
                {"nextToken", texts->next, sizeof texts->next}};
    int r = 0;
    for (size_t i = 0; r == 0 && i < sizeof rows / sizeof *rows; i++)
        r = parameter(request, rows[i].name, rows[i].to, rows[i].room, err);
    if (r == 0)
        r = read_metadata(request, memory, query, err);
    if (r == 0)
        r = read_state(texts->state, query, err);
    if (r == 0)
        r = read_limit(texts->limit, query, err);
    if (r == 0 && *texts->started && !cordon_time_parse(texts->started, &query->started_after_us))
        r = bad(err, "startedAfter", "a time such as 2026-01-02T03:04:05Z");
    if (r == 0 && *texts->order && strcmp(texts->order, "asc") != 0 && strcmp(texts->order, "desc") != 0)
        r = bad(err, "order", "asc or desc");
    query->ascending = strcmp(texts->order, "asc") == 0;
    query->after = texts->next;
    if (*texts->template_id)
        query->template_name = texts->template_id;
    return r;
}

static void tell_page(const struct cordon_guest_page *page, struct cordon_json *json)
{
    cordon_json_array_begin(json);
    for (size_t i = 0; i < page->count; i++) {
        cordon_autoforget struct cordon_door_memory memory = {0};
        struct cordon_e2b_box box;
        if (cordon_e2b_box_read(page->guests[i]->private_data, &memory, &box, NULL) == 0)
            cordon_e2b_tell_listed(page->guests[i], &box, json);
    }
    cordon_json_array_end(json);
}

static int reply_page(struct cordon_http_request *request, const struct cordon_guest_query *query,
                      struct cordon_error *err)
{
    struct cordon_guest_page page = {0};
    struct cordon_buf body = CORDON_BUF_INIT(32u << 20);
    struct cordon_json json = {.buf = &body};
    char total[24];
    int r = cordon_guests_list(query, &page, err);
    if (r < 0)
        return r;
    tell_page(&page, &json);
    if (page.next[0])
        cordon_http_reply_header(request, "X-Next-Token", page.next);
    cordon_http_reply_header(request, "X-Total-Running", cordon_log_number(total, (long long)page.running));
    cordon_guest_page_done(&page);
    return cordon_e2b_reply(request, 200, &body, err);
}

int cordon_e2b_list(struct cordon_http_request *request, struct cordon_error *err)
{
    cordon_autoforget struct cordon_door_memory memory = {0};
    struct cordon_guest_query query = {.tenant = request->subject, .door = CORDON_DOOR_E2B};
    struct list_texts texts;
    int r = read_query(request, &memory, &texts, &query, err);
    /* The names of the SDKs' own templates are all the default one. */
    if (query.template_name && cordon_e2b_template_is_own(query.template_name))
        query.template_name = "default";
    return r < 0 ? r : reply_page(request, &query, err);
}

int cordon_e2b_list_old(struct cordon_http_request *request, struct cordon_error *err)
{
    cordon_autoforget struct cordon_door_memory memory = {0};
    struct cordon_guest_query query = {
        .tenant = request->subject, .door = CORDON_DOOR_E2B, .running = true, .limit = 500};
    int r = read_metadata(request, &memory, &query, err);
    return r < 0 ? r : reply_page(request, &query, err);
}
