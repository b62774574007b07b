/* SPDX-License-Identifier: Apache-2.0 */
/* A guest as the registry keeps it: a JSON object. What is not understood is left out; a guest without the needed
 * members is not taken in. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/fd.h"
#include "base/json.h"
#include "base/log.h"
#include "core/guests_internal.h"
#include "core/value.h"

#define RECORD_MAX (1u << 20)
#define SAVE_AGAIN_US 5000000

/* The numbers: one row each, for both directions. */
#define NUMBERS(X)                                                                                                     \
    X("door", door)                                                                                                    \
    X("memory_bytes", limits.memory_bytes)                                                                             \
    X("disk_bytes", limits.disk_bytes)                                                                                 \
    X("disk_inodes", limits.disk_inodes)                                                                               \
    X("pids", limits.pids)                                                                                             \
    X("open_files", limits.open_files)                                                                                 \
    X("cpu_percent", limits.cpu_percent)                                                                               \
    X("network", network)                                                                                              \
    X("isolation", isolation)                                                                                          \
    X("created_us", created_us)                                                                                        \
    X("started_us", started_us)                                                                                        \
    X("paused_us", paused_us)                                                                                          \
    X("ends_us", ends_us)                                                                                              \
    X("ttl_us", ttl_us)                                                                                                \
    X("left_us", left_us)                                                                                              \
    X("active_us", active_us)                                                                                          \
    X("gone_us", gone_us)                                                                                              \
    X("idle_pause_ms", idle_pause_ms)                                                                                  \
    X("at_end", at_end)                                                                                                \
    X("auto_resume", auto_resume)                                                                                      \
    X("paused", paused)                                                                                                \
    X("gone", gone)

static void write_text(struct cordon_json *json, const char *key, const char *text)
{
    cordon_json_key(json, key);
    cordon_json_text(json, text ? text : "");
}

/* Joined and sealed. Where that fails a restart knows nothing of them, which is said then. */
static void write_headers(struct cordon_json *json, const struct cordon_guest_item *item)
{
    const struct cordon_guest_registry *registry = cordon_guests.registry;
    struct cordon_buf text = CORDON_BUF_INIT(CORDON_EGRESS_TEXT_MAX), sealed = CORDON_BUF_INIT(RECORD_MAX);
    struct cordon_error err = {0};
    if (!item->header_count || !registry || !registry->seal)
        return;
    for (size_t i = 0; i < item->header_count; i++)
        (void)cordon_buf_appendf(&text, "%s\n", item->headers[i]); /* sticky */
    int r = text.failed ? -ENOMEM : registry->seal(registry->context, item->id, text.data, text.size, &sealed, &err);
    if (r < 0)
        cordon_log_error("the headers of a guest are not kept beyond this process", &err);
    cordon_json_key(json, "headers");
    cordon_json_base64(json, r < 0 ? "" : sealed.data, r < 0 ? 0 : sealed.size);
    cordon_buf_wipe(&text);
    cordon_buf_done(&sealed);
}

static void write_rules(struct cordon_json *json, const struct cordon_guest_item *item)
{
    cordon_json_key(json, "domains");
    cordon_json_array_begin(json);
    for (size_t i = 0; i < item->domain_count; i++)
        cordon_json_text(json, item->domains[i]);
    cordon_json_array_end(json);
    write_headers(json, item);
}

static void write_record(const struct cordon_guest_item *item, struct cordon_buf *to)
{
    struct cordon_json json = {.buf = to};
    cordon_json_object_begin(&json);
    write_text(&json, "tenant", item->tenant);
    write_text(&json, "name", item->name);
    write_text(&json, "template", item->template_name);
    write_text(&json, "backend", item->backend_name);
    write_text(&json, "cause", item->cause);
    write_text(&json, "reason", item->reason);
    write_text(&json, "remote", item->remote);
#define WRITE(key, member)                                                                                             \
    cordon_json_key(&json, key);                                                                                       \
    cordon_json_int(&json, (int64_t)item->member);
    NUMBERS(WRITE)
    cordon_json_key(&json, "metadata");
    cordon_json_object_begin(&json);
    for (size_t i = 0; i < item->metadata_count; i++)
        write_text(&json, item->metadata[i].key, item->metadata[i].value);
    cordon_json_object_end(&json);
    if (!item->gone)
        write_rules(&json, item);
    if (!item->gone || item->private_data.size <= CORDON_GUEST_PRIVATE_GONE) {
        cordon_json_key(&json, "private");
        cordon_json_base64(&json, item->private_data.data, item->private_data.size);
    }
    cordon_json_object_end(&json);
}

static char *text_of(const struct cordon_value *value)
{
    char *text = value->kind == CORDON_VALUE_STRING ? malloc(value->size + 1) : NULL;
    ssize_t n = text ? cordon_value_string(value, text) : -1;
    if (n < 0) {
        free(text);
        return NULL;
    }
    text[n] = '\0';
    return text;
}

static void read_text(const struct cordon_value *value, char **to)
{
    free(*to);
    *to = text_of(value);
}

static void read_metadata(const struct cordon_value *value, struct cordon_guest_item *item)
{
    struct cordon_value_walk walk = cordon_value_walk(value);
    struct cordon_value key, member;
    item->metadata = calloc(CORDON_GUEST_METADATA_MAX, sizeof *item->metadata);
    while (item->metadata && item->metadata_count < CORDON_GUEST_METADATA_MAX &&
           cordon_value_next(&walk, &key, &member)) {
        char *name = text_of(&key), *text = text_of(&member);
        if (name && text) {
            item->metadata[item->metadata_count++] = (struct cordon_pair){name, text};
            continue;
        }
        free(name);
        free(text);
    }
}

static void read_domains(const struct cordon_value *value, struct cordon_guest_item *item)
{
    struct cordon_value_walk walk = cordon_value_walk(value);
    struct cordon_value key, member;
    item->domains = calloc(CORDON_GUEST_DOMAINS_MAX, sizeof *item->domains);
    while (item->domains && item->domain_count < CORDON_GUEST_DOMAINS_MAX && cordon_value_next(&walk, &key, &member)) {
        char *text = text_of(&member);
        if (text)
            item->domains[item->domain_count++] = text;
    }
}

static void take_headers(struct cordon_guest_item *item, char *text)
{
    const char *items[CORDON_EGRESS_HEADERS_MAX];
    size_t count = 0;
    char *rest = NULL;
    for (char *line = strtok_r(text, "\n", &rest); line && count < CORDON_EGRESS_HEADERS_MAX;
         line = strtok_r(NULL, "\n", &rest))
        items[count++] = line;
    item->headers = cordon_guest_texts_copy(items, count);
    item->header_count = item->headers ? count : 0;
}

static void read_headers(const struct cordon_value *value, struct cordon_guest_item *item)
{
    const struct cordon_guest_registry *registry = cordon_guests.registry;
    struct cordon_buf sealed = CORDON_BUF_INIT(RECORD_MAX), clear = CORDON_BUF_INIT(RECORD_MAX);
    struct cordon_error err = {0};
    cordon_autofree char *text = text_of(value);
    if (item->headers || !text || !registry || !registry->open)
        return;
    int r = cordon_buf_unbase64(&sealed, text, strlen(text));
    if (r >= 0 && sealed.size)
        r = registry->open(registry->context, item->id, sealed.data, sealed.size, &clear, &err);
    if (r < 0)
        cordon_log_error("the headers of a guest are lost: set what it may reach again", &err);
    if (clear.size)
        take_headers(item, clear.data);
    cordon_buf_done(&sealed);
    cordon_buf_wipe(&clear);
}

static void read_private(const struct cordon_value *value, struct cordon_guest_item *item)
{
    cordon_autofree char *text = text_of(value);
    if (text)
        (void)cordon_buf_unbase64(&item->private_data, text, strlen(text)); /* what is malformed stays empty */
}

static void read_member(struct cordon_guest_item *item, const struct cordon_value *key,
                        const struct cordon_value *value)
{
    const struct {
        const char *key;
        char **to;
    } texts[] = {{"tenant", &item->tenant},
                 {"name", &item->name},
                 {"template", &item->template_name},
                 {"backend", &item->backend_name},
                 {"remote", &item->remote}};
    int64_t number = 0;
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++)
        if (cordon_value_equals(key, texts[i].key))
            read_text(value, texts[i].to);
    char *cause = cordon_value_equals(key, "cause") || cordon_value_equals(key, "reason") ? text_of(value) : NULL;
    if (cause && cordon_value_equals(key, "cause"))
        (void)snprintf(item->cause, sizeof item->cause, "%s", cause); /* cut at their sizes */
    else if (cause)
        (void)snprintf(item->reason, sizeof item->reason, "%s", cause);
    free(cause);
    if (cordon_value_equals(key, "metadata") && value->kind == CORDON_VALUE_OBJECT)
        read_metadata(value, item);
    if (cordon_value_equals(key, "domains") && value->kind == CORDON_VALUE_ARRAY)
        read_domains(value, item);
    if (cordon_value_equals(key, "headers"))
        read_headers(value, item);
    if (cordon_value_equals(key, "private"))
        read_private(value, item);
    if (!cordon_value_integer(value, &number))
        return;
#define READ(text, member)                                                                                             \
    if (cordon_value_equals(key, text))                                                                                \
        item->member = (__typeof__(item->member))number;
    NUMBERS(READ)
}

struct cordon_guest_item *cordon_guest_record_read(const char *id, const char *record, size_t size)
{
    struct cordon_value whole, key, value;
    if (cordon_value_parse(record, size, &whole, NULL) < 0 || whole.kind != CORDON_VALUE_OBJECT)
        return NULL;
    struct cordon_guest_item *item = cordon_guest_item_new(id);
    struct cordon_value_walk walk = cordon_value_walk(&whole);
    while (item && cordon_value_next(&walk, &key, &value))
        read_member(item, &key, &value);
    if (item && (!item->tenant || !item->backend_name || !item->template_name || !item->name)) {
        cordon_guest_item_unref(item);
        return NULL;
    }
    return item;
}

static void tell_saved(struct cordon_guest_item *item, int r, const struct cordon_error *err)
{
    cordon_guests_lock();
    bool again = item->save_again_us != 0;
    item->save_again_us = r < 0 ? cordon_guests_now() + SAVE_AGAIN_US : 0;
    cordon_guests_unlock();
    if (r == 0 || again)
        return;
    cordon_log(
        CORDON_LOG_ERROR,
        "a kept guest's record could not be stored, which is tried again: a gateway that starts before that finds "
        "what was stored last",
        "guest", item->id, "error", err->message, NULL);
    cordon_guests_watch_wake();
}

int cordon_guest_store(struct cordon_guest_item *item, struct cordon_error *err)
{
    struct cordon_error own = {0};
    int r;
    const struct cordon_guest_registry *registry = cordon_guests.registry;
    struct cordon_buf record = CORDON_BUF_INIT(RECORD_MAX);
    if (!registry)
        return 0;
    (void)pthread_mutex_lock(&item->saves); /* can't fail for a plain mutex */
    cordon_guests_lock();
    write_record(item, &record);
    cordon_guests_unlock();
    r = record.failed ? cordon_fail_errno(&own, -ENOMEM, "write the record of the guest %s", item->id)
                      : registry->put(registry->context, item->id, record.data, record.size, &own);
    tell_saved(item, r, &own);
    (void)pthread_mutex_unlock(&item->saves); /* can't fail: it is ours */
    cordon_buf_wipe(&record);
    if (r < 0 && err)
        *err = own;
    return r;
}

void cordon_guest_save(struct cordon_guest_item *item)
{
    (void)cordon_guest_store(item, NULL); /* logged, and tried again */
}
