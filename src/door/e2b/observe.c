/* SPDX-License-Identifier: Apache-2.0 */
/* Metrics and logs of sandboxes. No history of metrics is kept: what is told is measured by the call. */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "door/e2b/control.h"
#include "door/json_time.h"

static void tell_metric(const struct cordon_guest_metrics *metrics, struct cordon_json *json)
{
    const struct cordon_guest_usage *usage = &metrics->usage;
    uint64_t percent = metrics->cpu_used_percent > 0 ? (uint64_t)(metrics->cpu_used_percent * 100 + 0.5) : 0;
    cordon_json_object_begin(json);
    cordon_json_key(json, "timestamp");
    cordon_json_time(json, metrics->at_us);
    cordon_json_pair_uint(json, "timestampUnix", (uint64_t)(metrics->at_us / 1000000));
    cordon_json_pair_uint(json, "cpuCount", usage->cpu_percent ? (usage->cpu_percent + 99) / 100 : 1);
    cordon_json_key(json, "cpuUsedPct");
    char text[32];
    int size = snprintf(text, sizeof text, "%" PRIu64 ".%02" PRIu64, percent / 100, percent % 100); /* fits */
    cordon_json_raw(json, text, (size_t)size);
    cordon_json_pair_uint(json, "memUsed", usage->memory_bytes);
    cordon_json_pair_uint(json, "memTotal", usage->memory_limit_bytes);
    cordon_json_pair_uint(json, "memCache", usage->memory_cache_bytes);
    cordon_json_pair_uint(json, "diskUsed", metrics->disk_used);
    cordon_json_pair_uint(json, "diskTotal", metrics->disk_total);
    cordon_json_object_end(json);
}

/* A bound of the time asked for, in Unix seconds (or milliseconds, as some SDKs have it): fallback when not there. */
static int64_t bound(const struct cordon_http_request *request, const char *name, int64_t fallback)
{
    char text[24];
    ssize_t n = cordon_http_query(request, name, text, sizeof text);
    return n > 0 && strspn(text, "0123456789") == (size_t)n ? strtoll(text, NULL, 10) : fallback;
}

int cordon_e2b_metrics(struct cordon_http_request *request, struct cordon_error *err)
{
    struct cordon_guest_metrics metrics;
    struct cordon_guest_info *guest;
    struct cordon_buf body = CORDON_BUF_INIT(65536);
    struct cordon_json json = {.buf = &body};
    int r = cordon_e2b_find(request, true, &guest, err);
    if (r < 0)
        return r;
    r = cordon_guests_metrics(request->subject, guest->id, &metrics, err);
    cordon_guest_info_free(guest);
    if (r < 0)
        return r;
    int64_t now_s = metrics.at_us / 1000000;
    bool wanted = bound(request, "start", 0) <= now_s && bound(request, "end", INT64_MAX) >= now_s - 1;
    cordon_json_array_begin(&json);
    if (wanted)
        tell_metric(&metrics, &json);
    cordon_json_array_end(&json);
    return cordon_e2b_reply(request, 200, &body, err);
}

int cordon_e2b_metrics_many(struct cordon_http_request *request, struct cordon_error *err)
{
    struct cordon_buf body = CORDON_BUF_INIT(1u << 20);
    struct cordon_json json = {.buf = &body};
    char ids[4096], *rest = NULL;
    ssize_t n = cordon_http_query(request, "sandbox_ids", ids, sizeof ids);
    if (n < 0)
        return cordon_fail(err, -EINVAL, CORDON_ERROR_INVALID,
                           "sandbox_ids: a list of at most 4,095 characters is needed");
    cordon_json_object_begin(&json);
    cordon_json_key(&json, "sandboxes");
    cordon_json_object_begin(&json);
    for (char *id = strtok_r(ids, ",", &rest); id; id = strtok_r(NULL, ",", &rest)) {
        struct cordon_guest_metrics metrics;
        id[strcspn(id, "-")] = '\0';
        if (cordon_guests_metrics(request->subject, id, &metrics, NULL) < 0)
            continue; /* unknown or gone: it has none */
        cordon_json_key(&json, id);
        tell_metric(&metrics, &json);
    }
    cordon_json_object_end(&json);
    cordon_json_object_end(&json);
    return cordon_e2b_reply(request, 200, &body, err);
}

/* Notes go to both lists of the older answer, so each is written twice. */
struct log_writer {
    struct cordon_json *lines, *entries; /* lines may be NULL */
    const char *search;
    size_t left;
};

static const char *level_of(const struct cordon_guest_note *note)
{
    return strcmp(note->what, "gone") == 0 ? "warn" : "info";
}

static void tell_note(void *context, const struct cordon_guest_note *note)
{
    struct log_writer *writer = context;
    if (!writer->left || (*writer->search && !strcasestr(note->text, writer->search)))
        return;
    writer->left--;
    if (writer->lines) {
        cordon_json_object_begin(writer->lines);
        cordon_json_key(writer->lines, "timestamp");
        cordon_json_time(writer->lines, note->at_us);
        cordon_json_key(writer->lines, "line");
        cordon_json_text(writer->lines, note->text);
        cordon_json_object_end(writer->lines);
    }
    cordon_json_object_begin(writer->entries);
    cordon_json_key(writer->entries, "timestamp");
    cordon_json_time(writer->entries, note->at_us);
    cordon_json_key(writer->entries, "message");
    cordon_json_text(writer->entries, note->text);
    cordon_json_key(writer->entries, "level");
    cordon_json_text(writer->entries, level_of(note));
    cordon_json_key(writer->entries, "fields");
    cordon_json_object_begin(writer->entries);
    cordon_json_key(writer->entries, "event");
    cordon_json_text(writer->entries, note->what);
    cordon_json_object_end(writer->entries);
    cordon_json_object_end(writer->entries);
}

static int reply_logs(struct cordon_http_request *request, bool old, int64_t after_ms, struct cordon_error *err)
{
    struct cordon_buf body = CORDON_BUF_INIT(8u << 20), second = CORDON_BUF_INIT(4u << 20);
    struct cordon_json json = {.buf = &body}, other = {.buf = &second};
    char search[256];
    int64_t limit = bound(request, "limit", 1000);
    struct cordon_guest_info *guest;
    (void)cordon_http_query(request, "search", search, sizeof search); /* "" where it is not there */
    int r = cordon_e2b_find(request, false, &guest, err);
    if (r < 0)
        return r;
    struct log_writer writer = {old ? &json : NULL, old ? &other : &json, search, limit > 0 ? (size_t)limit : 0};
    cordon_json_object_begin(&json);
    cordon_json_key(&json, "logs");
    cordon_json_array_begin(&json);
    r = cordon_guests_notes(request->subject, guest->id, after_ms > 0 ? after_ms * 1000 : 0, tell_note, &writer, err);
    cordon_json_array_end(&json);
    if (old) {
        cordon_json_key(&json, "logEntries");
        cordon_json_array_begin(&json);
        cordon_json_raw(&json, second.data ? second.data : "", second.size);
        cordon_json_array_end(&json);
    }
    cordon_json_object_end(&json);
    body.failed = body.failed || second.failed;
    cordon_buf_done(&second);
    cordon_guest_info_free(guest);
    if (r == 0)
        return cordon_e2b_reply(request, 200, &body, err);
    cordon_buf_done(&body);
    return r;
}

int cordon_e2b_logs_old(struct cordon_http_request *request, struct cordon_error *err)
{
    return reply_logs(request, true, bound(request, "start", 0), err);
}

int cordon_e2b_logs(struct cordon_http_request *request, struct cordon_error *err)
{
    return reply_logs(request, false, bound(request, "cursor", 0), err);
}
