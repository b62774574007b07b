/* SPDX-License-Identifier: Apache-2.0 */
/* A guest's names, the addresses that stand for them, and who waits for them to be resolved. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/fd.h"
#include "egress/egress.h"

#define FRESH_LEAST_S 5u
#define FRESH_MOST_S 300u
#define FAILED_FRESH_S 2u
#define FIRST_ADDRESS 0xc6120101u /* 198.18.1.1; 198.18.0.0/24 has the guest's name server */

static uint32_t hash_of(const char *name)
{
    uint32_t hash = 2166136261u;
    for (; *name; name++)
        hash = (hash ^ (unsigned char)*name) * 16777619u;
    return hash;
}

static struct cordon_egress_address address_at(unsigned index)
{
    uint32_t number = FIRST_ADDRESS + index;
    return (struct cordon_egress_address){{[10] = 0xff,
                                           [11] = 0xff,
                                           [12] = (uint8_t)(number >> 24),
                                           [13] = (uint8_t)(number >> 16),
                                           [14] = (uint8_t)(number >> 8),
                                           [15] = (uint8_t)number}};
}

static void tell(struct cordon_name *name)
{
    struct cordon_waiter *waiter;
    while ((waiter = name->waiting)) { /* a waiter that is told may end others */
        name->waiting = waiter->next;
        waiter->name = NULL;
        waiter->on_resolved(waiter, &name->resolved);
    }
}

static void on_resolved(struct cordon_lookup *lookup, const struct cordon_resolved *resolved)
{
    struct cordon_name *name = CORDON_OWNER(struct cordon_name, lookup, lookup);
    uint32_t fresh_s = resolved->ttl_s;
    if (resolved->status < 0)
        fresh_s = FAILED_FRESH_S;
    else if (fresh_s < FRESH_LEAST_S)
        fresh_s = FRESH_LEAST_S;
    name->resolved = *resolved;
    name->fresh_until_us = cordon_now_us() + 1000000ull * (fresh_s > FRESH_MOST_S ? FRESH_MOST_S : fresh_s);
    tell(name);
}

static void free_name(struct cordon_name *name)
{
    cordon_lookup_drop(&name->lookup);
    name->resolved = (struct cordon_resolved){.status = -ECANCELED};
    tell(name);
    free(name);
}

void cordon_names_done(struct cordon_names *names)
{
    while (names->count)
        free_name(names->list[--names->count]);
    free(names->list);
    names->list = NULL;
}

static struct cordon_name *make(struct cordon_names *names, const char *text, uint32_t hash)
{
    struct cordon_name *name = calloc(1, sizeof *name);
    if (!name)
        return NULL;
    name->egress = names->egress;
    name->hash = hash;
    name->lookup.on_resolved = on_resolved;
    (void)snprintf(name->name, sizeof name->name, "%s", text);
    return name;
}

/* Where it is kept; an older name that nobody waits for gives way. UINT_MAX-like: CORDON_NAMES_MAX for none. */
static unsigned find_place(struct cordon_names *names)
{
    if (names->count < CORDON_NAMES_MAX)
        return names->count;
    for (unsigned tries = 0; tries < CORDON_NAMES_MAX; tries++) {
        unsigned at = names->next++ % CORDON_NAMES_MAX;
        if (!names->list[at]->waiting)
            return at;
    }
    return CORDON_NAMES_MAX;
}

static unsigned find(const struct cordon_names *names, const char *text, uint32_t hash)
{
    unsigned i = 0;
    while (i < names->count && (names->list[i]->hash != hash || strcmp(names->list[i]->name, text) != 0))
        i++;
    return i;
}

bool cordon_name_known(const struct cordon_names *names, const char *name)
{
    unsigned i = find(names, name, hash_of(name));
    return i < names->count && names->list[i]->fresh_until_us > cordon_now_us();
}

struct cordon_name *cordon_name_get(struct cordon_names *names, const char *text, struct cordon_egress_address *ret)
{
    uint32_t hash = hash_of(text);
    unsigned known = find(names, text, hash);
    if (known < names->count) {
        *ret = address_at(known);
        return names->list[known];
    }
    unsigned at = find_place(names);
    bool full = at == names->count && (at & (at - 1)) == 0;
    struct cordon_name **list =
        full ? reallocarray(names->list, at ? 2 * (size_t)at : 1, sizeof(struct cordon_name *)) : names->list;
    if (!list || at == CORDON_NAMES_MAX)
        return NULL;
    names->list = list;
    struct cordon_name *name = make(names, text, hash);
    if (!name)
        return NULL;
    if (at < names->count)
        free_name(names->list[at]);
    else
        names->count++;
    names->list[at] = name;
    *ret = address_at(at);
    return name;
}

struct cordon_name *cordon_name_at(const struct cordon_names *names, const struct cordon_egress_address *address,
                                   bool *standing)
{
    const uint8_t *bytes = address->bytes;
    *standing = cordon_egress_address_is_v4(address) && bytes[12] == 198 && (bytes[13] & 0xfe) == 18;
    if (!*standing)
        return NULL;
    uint32_t number = (uint32_t)bytes[12] << 24 | (uint32_t)bytes[13] << 16 | (uint32_t)bytes[14] << 8 | bytes[15];
    uint32_t index = number - FIRST_ADDRESS; /* one before the first wraps to one that is not there */
    return index < names->count ? names->list[index] : NULL;
}

void cordon_name_wait(struct cordon_name *name, struct cordon_waiter *waiter)
{
    if (name->fresh_until_us > cordon_now_us()) {
        waiter->on_resolved(waiter, &name->resolved);
        return;
    }
    waiter->name = name;
    waiter->next = name->waiting;
    name->waiting = waiter;
    if (!name->lookup.call)
        cordon_resolve(name->egress->resolver, name->name, &name->lookup);
}

void cordon_waiter_leave(struct cordon_waiter *waiter)
{
    if (!waiter->name)
        return;
    struct cordon_waiter **at = &waiter->name->waiting;
    while (*at && *at != waiter)
        at = &(*at)->next;
    if (*at)
        *at = waiter->next;
    waiter->name = NULL;
}
