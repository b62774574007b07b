/* SPDX-License-Identifier: Apache-2.0 */
#include "egress/log.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

int cordon_egress_log_init(struct cordon_egress_log *log, unsigned entries)
{
    *log = (struct cordon_egress_log){.size = entries};
    log->ring = entries ? calloc(entries, sizeof *log->ring) : NULL;
    return entries && !log->ring ? -ENOMEM : 0;
}

void cordon_egress_log_done(struct cordon_egress_log *log)
{
    free(log->ring);
    log->ring = NULL;
    log->size = log->used = 0;
}

static uint64_t now_ms(void)
{
    struct timespec now;
    (void)clock_gettime(CLOCK_REALTIME, &now); /* can't fail */
    return (uint64_t)now.tv_sec * 1000 + (uint64_t)now.tv_nsec / 1000000;
}

static struct cordon_egress_entry make(const char *name, const struct cordon_egress_address *address, uint16_t port,
                                       const struct cordon_egress_rule *rule, const char *why)
{
    struct cordon_egress_entry entry = {.at_ms = now_ms(), .port = port, .count = 1};
    (void)snprintf(entry.name, sizeof entry.name, "%s", name ? name : "");
    (void)snprintf(entry.why, sizeof entry.why, "%s", why); /* cut at its size */
    if (address)
        cordon_egress_address_format(address, entry.address);
    if (rule) {
        entry.rule[0] = '!';
        cordon_egress_rule_format(rule, entry.rule + rule->deny);
    }
    return entry;
}

static void push(struct cordon_egress_log *log, struct cordon_egress_entry *entry)
{
    entry->id = ++log->last_id;
    if (!log->size)
        return;
    log->ring[log->next] = *entry;
    log->next = (log->next + 1) % log->size;
    if (log->used < log->size)
        log->used++;
}

static struct cordon_egress_entry *newest(struct cordon_egress_log *log)
{
    return log->used ? &log->ring[(log->next + log->size - 1) % log->size] : NULL;
}

static bool alike_but_verdict(const struct cordon_egress_entry *a, const struct cordon_egress_entry *b)
{
    return a->port == b->port && strcmp(a->name, b->name) == 0 && strcmp(a->address, b->address) == 0 &&
           strcmp(a->why, b->why) == 0;
}

void cordon_egress_log_refused(struct cordon_egress_log *log, const char *name,
                               const struct cordon_egress_address *address, uint16_t port,
                               const struct cordon_egress_rule *rule, bool dns, const char *why)
{
    struct cordon_egress_counts *counts = &log->counts;
    struct cordon_egress_entry entry = make(name, address, port, rule, why), *last = newest(log);
    char port_text[8];
    (void)snprintf(port_text, sizeof port_text, "%u", port);
    if (dns)
        counts->names_refused++;
    else
        counts->refused++;
    if (!*counts->first_refused) /* cut at its size */
        (void)snprintf(counts->first_refused, sizeof counts->first_refused, "%.80s%s%s: %.60s",
                       *entry.name ? entry.name : entry.address, dns ? "" : ":", dns ? "" : port_text, why);
    if (last && !last->allowed && alike_but_verdict(last, &entry))
        last->count++;
    else
        push(log, &entry);
}

void cordon_egress_log_failed(struct cordon_egress_log *log, const char *name,
                              const struct cordon_egress_address *address, uint16_t port,
                              const struct cordon_egress_rule *rule, const char *why)
{
    struct cordon_egress_entry entry = make(name, address, port, rule, why), *last = newest(log);
    entry.allowed = true;
    if (last && last->allowed && *last->why && alike_but_verdict(last, &entry))
        last->count++;
    else
        push(log, &entry);
}

uint64_t cordon_egress_log_allowed(struct cordon_egress_log *log, const char *name,
                                   const struct cordon_egress_address *address, uint16_t port,
                                   const struct cordon_egress_rule *rule)
{
    struct cordon_egress_entry entry = make(name, address, port, rule, "");
    entry.allowed = true;
    log->counts.connections++;
    push(log, &entry);
    return entry.id;
}

void cordon_egress_log_bytes(struct cordon_egress_log *log, uint64_t id, uint64_t sent, uint64_t received,
                             const char *why)
{
    if (!id || log->last_id - id >= log->used)
        return;
    struct cordon_egress_entry *entry = &log->ring[(log->next + 2 * log->size - 1 - (log->last_id - id)) % log->size];
    entry->sent = sent;
    entry->received = received;
    (void)snprintf(entry->why, sizeof entry->why, "%s", why);
}

static void write_text(struct cordon_json *json, const char *key, const char *text)
{
    cordon_json_key(json, key);
    cordon_json_text(json, *text ? text : NULL);
}

static void write_number(struct cordon_json *json, const char *key, uint64_t number)
{
    cordon_json_key(json, key);
    cordon_json_uint(json, number);
}

void cordon_egress_log_write(const struct cordon_egress_log *log, struct cordon_json *json)
{
    cordon_json_array_begin(json);
    for (unsigned i = 0; i < log->used; i++) {
        const struct cordon_egress_entry *entry = &log->ring[(log->next + log->size - log->used + i) % log->size];
        cordon_json_object_begin(json);
        write_number(json, "at_ms", entry->at_ms);
        write_text(json, "name", entry->name);
        write_text(json, "address", entry->address);
        write_number(json, "port", entry->port);
        write_text(json, "decision", entry->allowed ? "allowed" : "refused");
        write_text(json, "rule", entry->rule);
        write_text(json, "why", entry->why);
        write_number(json, "count", entry->count);
        write_number(json, "bytes_sent", entry->sent);
        write_number(json, "bytes_received", entry->received);
        cordon_json_object_end(json);
    }
    cordon_json_array_end(json);
}
