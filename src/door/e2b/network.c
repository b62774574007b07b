/* SPDX-License-Identifier: Apache-2.0 */
/*
 * E2B's network object in the words of core/egress.h.
 *
 * Its rules: allowOut has addresses, ranges and names, denyOut addresses and ranges; what is allowed beats what is
 * denied; allow_internet_access false denies everything. A sandbox that says nothing of all this, or only true, gets as
 * much as the operator lets it: none, if that is so, and its details tell it. Whoever names rules gets these or an
 * error. `rules` put headers into requests (rules.c).
 */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "door/e2b/control.h"

struct wishes {
    struct cordon_texts allow, deny;
    bool internet_said, internet;
};

static int unsupported(struct cordon_error *err, const char *what)
{
    return cordon_fail(err, -ENOSYS, CORDON_ERROR_UNSUPPORTED, "%s is not implemented by this server", what);
}

static bool is_empty(const struct cordon_value *value)
{
    struct cordon_value key, member;
    if (value->kind != CORDON_VALUE_OBJECT && value->kind != CORDON_VALUE_ARRAY)
        return false;
    struct cordon_value_walk walk = cordon_value_walk(value);
    return !cordon_value_next(&walk, &key, &member);
}

static int refuse_absent(const struct cordon_value *network, struct cordon_error *err)
{
    struct cordon_value value;
    return cordon_field(network, "egressProxy", &value) && !is_empty(&value) ? unsupported(err, "network.egressProxy")
                                                                             : 0;
}

static bool denies_all(const char *entry)
{
    return strcmp(entry, "0.0.0.0/0") == 0 || strcmp(entry, "*") == 0 || strcmp(entry, "::/0") == 0;
}

static bool any_denies_all(const struct cordon_texts *deny)
{
    for (size_t i = 0; i < deny->count; i++)
        if (denies_all(deny->items[i]))
            return true;
    return false;
}

static int add_entry(struct cordon_door_memory *memory, const char *mark, const char *text, struct cordon_texts *to)
{
    size_t size = strlen(text) + 2;
    char *entry = cordon_door_take(memory, size);
    if (!entry)
        return -ENOMEM;
    (void)snprintf(entry, size, "%s%s", mark, text); /* fits */
    to->items[to->count++] = entry;
    return 0;
}

/* "*" unless everything is denied; then nothing but what is allowed. */
static int make_entries(const struct wishes *wishes, bool all, struct cordon_door_memory *memory,
                        struct cordon_texts *to, struct cordon_error *err)
{
    *to = (struct cordon_texts){
        cordon_door_take(memory, (wishes->allow.count + wishes->deny.count + 2) * sizeof *to->items), 0};
    int r = to->items ? 0 : -ENOMEM;
    if (r == 0 && all)
        r = add_entry(memory, "", "*", to);
    for (size_t i = 0; r == 0 && i < wishes->allow.count; i++)
        r = add_entry(memory, all ? "+" : "", wishes->allow.items[i], to);
    for (size_t i = 0; r == 0 && i < wishes->deny.count; i++)
        if (!denies_all(wishes->deny.items[i]) && all)
            r = add_entry(memory, "!", wishes->deny.items[i], to);
    return r < 0 ? cordon_fail_errno(err, r, "reading the network's rules") : 0;
}

static bool operator_allows(const struct cordon_settings *settings)
{
    return cordon_settings_bool(settings, CORDON_DOOR_E2B, CORDON_SET_ALLOW_NETWORK);
}

static int decide(const struct cordon_settings *settings, const struct wishes *wishes,
                  struct cordon_door_memory *memory, struct cordon_e2b_network *ret, struct cordon_error *err)
{
    bool all = !(wishes->internet_said && !wishes->internet) && !any_denies_all(&wishes->deny);
    if (!all && !wishes->allow.count) {
        ret->on = false;
        return 0;
    }
    if (all && !wishes->allow.count && !wishes->deny.count) {
        ret->on = operator_allows(settings); /* and core adds the operator's own list of names */
        return 0;
    }
    ret->on = true;
    return make_entries(wishes, all, memory, &ret->entries, err);
}

int cordon_e2b_network_read(const struct cordon_settings *settings, const struct cordon_value *network,
                            const struct cordon_value *beside, struct cordon_door_memory *memory,
                            struct cordon_e2b_network *ret, struct cordon_error *err)
{
    struct wishes wishes = {.internet = true};
    *ret = (struct cordon_e2b_network){.public_traffic = true, .mask_host = ""};
    int r = cordon_field_bool(beside, "allow_internet_access", &wishes.internet, err);
    wishes.internet_said = r > 0;
    if (r >= 0 && network) {
        ret->whole = *network;
        r = refuse_absent(network, err);
        if (r >= 0)
            r = cordon_field_texts(network, "allowOut", memory, &wishes.allow, err);
        if (r >= 0)
            r = cordon_field_texts(network, "denyOut", memory, &wishes.deny, err);
        if (r >= 0)
            r = cordon_field_bool(network, "allowPublicTraffic", &ret->public_traffic, err);
        if (r >= 0)
            r = cordon_field_text(network, "maskRequestHost", memory, &ret->mask_host, err);
        if (r >= 0)
            r = cordon_e2b_rules_read(network, memory, ret, err);
    }
    return r < 0 ? r : decide(settings, &wishes, memory, ret, err);
}
