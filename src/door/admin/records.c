/* SPDX-License-Identifier: Apache-2.0 */
/* The audit log and the history of runs. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/fd.h"
#include "base/log.h"
#include "core/history.h"
#include "core/run.h"
#include "core/settings_table.h"
#include "door/admin/admin.h"

#define LIST_MOST 500
#define LIST_USUAL 100
#define FLUSH_MOST 512
#define PRUNE_EVERY_US 60000000u
#define DAY_MS INT64_C(86400000)

/* --- reading --- */

static int write_audit(void *context, const struct cordon_audit_entry *entry)
{
    struct cordon_json *json = context;
    const struct {
        const char *key, *text;
    } texts[] = {{"who", entry->who},
                 {"action", entry->action},
                 {"subject", entry->subject},
                 {"before", entry->before},
                 {"after", entry->after}};
    cordon_json_object_begin(json);
    cordon_json_key(json, "id");
    cordon_json_int(json, entry->id);
    cordon_json_key(json, "at_s");
    cordon_json_int(json, entry->at_s);
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        cordon_json_key(json, texts[i].key);
        cordon_json_text(json, texts[i].text);
    }
    cordon_json_object_end(json);
    return 0;
}

int cordon_admin_audit_get(struct cordon_http_request *request, struct cordon_error *err)
{
    const struct cordon_doors *doors = request->context;
    struct cordon_buf body = CORDON_BUF_INIT(8u << 20);
    struct cordon_json json = {.buf = &body};
    int64_t before, limit;
    int r = cordon_admin_number(request, "before", 0, INT64_MAX, &before, err);
    if (r == 0)
        r = cordon_admin_number(request, "limit", LIST_USUAL, LIST_MOST, &limit, err);
    if (r < 0)
        return r;
    cordon_json_object_begin(&json);
    cordon_json_key(&json, "entries");
    cordon_json_array_begin(&json);
    r = cordon_audit_list(doors->store, before, (unsigned)limit, write_audit, &json, err);
    cordon_json_array_end(&json);
    cordon_json_object_end(&json);
    if (r == 0)
        return cordon_admin_reply(request, &body, err);
    cordon_buf_done(&body);
    return r;
}

struct history_writer {
    struct cordon_json json;
    bool whole; /* with what the operator had kept of programs and output */
};

static void write_numbers(struct cordon_json *json, const struct cordon_history_entry *entry)
{
    const struct {
        const char *key;
        uint64_t us;
    } times[] = {{"queue_ms", entry->queue_us},
                 {"start_ms", entry->start_us},
                 {"run_ms", entry->run_us},
                 {"total_ms", entry->total_us},
                 {"cpu_ms", entry->cpu_us}};
    const struct {
        const char *key;
        uint64_t bytes;
    } sizes[] = {{"memory_peak_bytes", entry->memory_peak_bytes},
                 {"stdout_bytes", entry->stdout_bytes},
                 {"stderr_bytes", entry->stderr_bytes}};
    for (size_t i = 0; i < sizeof times / sizeof *times; i++) {
        cordon_json_key(json, times[i].key);
        cordon_json_ms(json, times[i].us);
    }
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        cordon_json_key(json, sizes[i].key);
        cordon_json_uint(json, sizes[i].bytes);
    }
}

static int write_history(void *context, const struct cordon_history_entry *entry)
{
    struct history_writer *writer = context;
    struct cordon_json *json = &writer->json;
    const struct {
        const char *key, *text;
    } texts[] = {{"key", entry->key},           {"door", entry->door},   {"backend", entry->backend},
                 {"language", entry->language}, {"cause", entry->cause}, {"message", entry->message}};
    const struct {
        const char *key, *text;
    } kept[] = {{"code", entry->code}, {"stdout", entry->stdout_text}, {"stderr", entry->stderr_text}};
    cordon_json_object_begin(json);
    cordon_json_key(json, "id");
    cordon_json_int(json, entry->id);
    cordon_json_key(json, "at_ms");
    cordon_json_int(json, entry->at_ms);
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        cordon_json_key(json, texts[i].key);
        cordon_json_text(json, texts[i].text);
    }
    cordon_json_key(json, "exit_code");
    cordon_json_int(json, entry->exit_code);
    write_numbers(json, entry);
    for (size_t i = 0; writer->whole && i < sizeof kept / sizeof *kept; i++) {
        cordon_json_key(json, kept[i].key);
        cordon_json_text(json, kept[i].text);
    }
    cordon_json_object_end(json);
    return 0;
}

/* An absent or empty parameter means any. */
static const char *any_text(const struct cordon_http_request *request, const char *name, char *to, size_t room)
{
    return cordon_http_query(request, name, to, room) > 0 ? to : NULL;
}

int cordon_admin_history_get(struct cordon_http_request *request, struct cordon_error *err)
{
    const struct cordon_doors *doors = request->context;
    struct cordon_buf body = CORDON_BUF_INIT(8u << 20);
    struct history_writer writer = {.json.buf = &body};
    char backend[32], language[16], cause[24];
    int64_t before, limit;
    int r = cordon_admin_number(request, "before", 0, INT64_MAX, &before, err);
    if (r == 0)
        r = cordon_admin_number(request, "limit", LIST_USUAL, LIST_MOST, &limit, err);
    if (r < 0)
        return r;
    const struct cordon_history_filter filter = {
        .before = before,
        .limit = (unsigned)limit,
        .backend = any_text(request, "backend", backend, sizeof backend),
        .language = any_text(request, "language", language, sizeof language),
        .cause = any_text(request, "cause", cause, sizeof cause),
    };
    cordon_json_object_begin(&writer.json);
    cordon_json_key(&writer.json, "runs");
    cordon_json_array_begin(&writer.json);
    r = cordon_history_list(doors->store, &filter, write_history, &writer, err);
    cordon_json_array_end(&writer.json);
    cordon_json_object_end(&writer.json);
    if (r == 0)
        return cordon_admin_reply(request, &body, err);
    cordon_buf_done(&body);
    return r;
}

int cordon_admin_history_one(struct cordon_http_request *request, struct cordon_error *err)
{
    const struct cordon_doors *doors = request->context;
    struct cordon_buf body = CORDON_BUF_INIT(4u << 20);
    struct history_writer writer = {.json.buf = &body, .whole = true};
    char text[24], *end;
    int r = cordon_http_param(request, 0, text, sizeof text);
    errno = 0;
    long long id = r == 0 ? strtoll(text, &end, 10) : 0;
    if (r < 0 || errno || *end || id <= 0)
        return cordon_fail(err, -EINVAL, CORDON_ERROR_INVALID, "a run of the history is named by its number");
    r = cordon_history_get(doors->store, id, write_history, &writer, err);
    if (r == 0)
        return cordon_admin_reply(request, &body, err);
    cordon_buf_done(&body);
    return r;
}

/* --- writing: the gateway's main thread, once a second --- */

/* The texts go over to the entry. */
static void entry_of(struct cordon_history_record *record, struct cordon_history_entry *ret)
{
    const struct cordon_outcome *outcome = &record->outcome;
    *ret = (struct cordon_history_entry){
        .at_ms = record->at_ms,
        .tenant = "default",
        .exit_code = outcome->exit_code,
        .queue_us = outcome->queue_us,
        .start_us = outcome->start_us,
        .run_us = outcome->run_us,
        .total_us = outcome->total_us,
        .cpu_us = outcome->cpu_us,
        .memory_peak_bytes = outcome->memory_peak_bytes,
        .stdout_bytes = outcome->stdout_bytes,
        .stderr_bytes = outcome->stderr_bytes,
        .code = record->code,
        .stdout_text = record->stdout_text,
        .stderr_text = record->stderr_text,
    };
    (void)snprintf(ret->key, sizeof ret->key, "%.16s", record->subject); /* longer is what came from no key */
    (void)snprintf(ret->door, sizeof ret->door, "%s", cordon_door_name(record->door));
    (void)snprintf(ret->backend, sizeof ret->backend, "%s", outcome->backend);
    (void)snprintf(ret->language, sizeof ret->language, "%s", record->language);
    (void)snprintf(ret->cause, sizeof ret->cause, "%s", cordon_cause_name(outcome->cause));
    (void)snprintf(ret->message, sizeof ret->message, "%s", outcome->message);
}

static size_t flush_some(const struct cordon_doors *doors, struct cordon_history_record *records,
                         struct cordon_history_entry *entries)
{
    struct cordon_error err = {0};
    size_t n = cordon_history_take(records, FLUSH_MOST);
    for (size_t i = 0; i < n; i++)
        entry_of(&records[i], &entries[i]);
    int r = n ? cordon_history_add(doors->store, entries, n, &err) : 0;
    if (r < 0)
        cordon_log_error("runs could not be added to the history", &err);
    for (size_t i = 0; i < n; i++)
        cordon_history_record_done(&records[i]);
    return r < 0 ? 0 : n; /* what failed now would fail again at once */
}

static void prune(const struct cordon_doors *doors)
{
    static uint64_t next_us;
    struct cordon_error err = {0};
    uint64_t now = cordon_now_us();
    if (now < next_us)
        return;
    next_us = now + PRUNE_EVERY_US;
    int64_t days = cordon_settings_int(doors->settings, CORDON_DOOR_NATIVE, CORDON_SET_HISTORY_DAYS);
    int64_t most = cordon_settings_int(doors->settings, CORDON_DOOR_NATIVE, CORDON_SET_HISTORY);
    if (cordon_history_prune(doors->store, cordon_wall_ms() - days * DAY_MS, (uint64_t)most, &err) < 0)
        cordon_log_error("the history could not be shortened", &err);
}

void cordon_door_flush(const struct cordon_doors *doors)
{
    cordon_autofree struct cordon_history_record *records = calloc(FLUSH_MOST, sizeof *records);
    cordon_autofree struct cordon_history_entry *entries = calloc(FLUSH_MOST, sizeof *entries);
    if (!records || !entries)
        return; /* the ring keeps them until the next time */
    while (flush_some(doors, records, entries) == FLUSH_MOST)
        continue;
    prune(doors);
}
