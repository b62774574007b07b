/* SPDX-License-Identifier: Apache-2.0 */
#include "core/settings_table.h"

#include <assert.h>
#include <ctype.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

const struct cordon_setting_row cordon_setting_rows[CORDON_SET__COUNT] = {
#define CORDON_SETTING(id, name, type, fallback, min, max, unit, scope, secret, help)                                  \
    [CORDON_SET_##id] = {name, CORDON_SETTING_##type, fallback, min, max, unit, CORDON_SCOPE_##scope, secret, help},
#include "core/settings.def"
#undef CORDON_SETTING
};

const struct cordon_alias_row cordon_alias_rows[CORDON_ALIAS_COUNT] = {
#define CORDON_ALIAS(id, name, door, form, fallback, min, max, note)                                                   \
    {CORDON_SET_##id, name, CORDON_DOOR_##door, CORDON_FORM_##form, fallback, min, max, note},
#include "core/settings_aliases.def"
#undef CORDON_ALIAS
};

const char *cordon_door_name(enum cordon_door door)
{
    static const char *const names[] = {"native", "langflow", "executor-manager", "createos", "e2b"};
    static_assert(sizeof names / sizeof *names == CORDON_DOOR__COUNT, "one name a door");
    return names[door];
}

const char *cordon_slot_name(size_t slot)
{
    const struct cordon_alias_row *alias = cordon_slot_alias(slot);
    return alias ? alias->name : cordon_setting_rows[slot].name;
}

const char *cordon_slot_fallback(size_t slot)
{
    const struct cordon_alias_row *alias = cordon_slot_alias(slot);
    return alias ? alias->fallback : cordon_setting_rows[slot].fallback;
}

static bool answers(size_t slot, const char *name, bool short_names)
{
    const char *own = cordon_slot_name(slot);
    if (strcmp(own, name) == 0)
        return true;
    if (!short_names)
        return false;
    return strcasecmp(own, name) == 0 || (slot < CORDON_SET__COUNT && strcasecmp(own + strlen("CORDON_"), name) == 0);
}

size_t cordon_slot_find(const char *name, size_t from, bool short_names)
{
    while (from < CORDON_SLOT_COUNT && !answers(from, name, short_names))
        from++;
    return from;
}

/* Edits between two names, letters' case apart; names longer than the table's longest are far from all. */
static size_t distance(const char *a, const char *b)
{
    enum { LONGEST = 64 };
    size_t row[LONGEST + 1], width = strlen(b);
    if (width > LONGEST || strlen(a) > LONGEST)
        return SIZE_MAX;
    for (size_t j = 0; j <= width; j++)
        row[j] = j;
    for (size_t i = 1; a[i - 1]; i++) {
        size_t diagonal = row[0];
        row[0] = i;
        for (size_t j = 1; j <= width; j++) {
            size_t same = tolower((unsigned char)a[i - 1]) == tolower((unsigned char)b[j - 1]) ? 0 : 1;
            size_t best = diagonal + same;
            diagonal = row[j];
            if (row[j] + 1 < best)
                best = row[j] + 1;
            if (row[j - 1] + 1 < best)
                best = row[j - 1] + 1;
            row[j] = best;
        }
    }
    return row[width];
}

const char *cordon_slot_near(const char *name)
{
    const char *best = NULL;
    size_t least = 4;
    for (size_t slot = 0; slot < CORDON_SLOT_COUNT; slot++) {
        const char *own = cordon_slot_name(slot);
        size_t d = distance(name, own);
        if (slot < CORDON_SET__COUNT) {
            size_t d_short = distance(name, own + strlen("CORDON_"));
            d = d_short < d ? d_short : d;
        }
        if (d < least) {
            least = d;
            best = own;
        }
    }
    return best;
}

void cordon_setting_value_done(struct cordon_setting_value *value)
{
    for (size_t i = 0; value->items && value->items[i]; i++)
        free(value->items[i]);
    free(value->items);
    if (value->text)
        explicit_bzero(value->text, strlen(value->text)); /* it may be a secret */
    free(value->text);
    *value = (struct cordon_setting_value){0};
}

static bool same_items(char *const *a, char *const *b)
{
    size_t i = 0;
    while (a[i] && b[i] && strcmp(a[i], b[i]) == 0)
        i++;
    return !a[i] && !b[i];
}

bool cordon_setting_same(enum cordon_setting id, const struct cordon_setting_value *a,
                         const struct cordon_setting_value *b)
{
    switch (cordon_setting_rows[id].type) {
    case CORDON_SETTING_INT:
        return a->number == b->number;
    case CORDON_SETTING_BOOL:
        return a->truth == b->truth;
    case CORDON_SETTING_LIST:
        return same_items(a->items, b->items);
    case CORDON_SETTING_STRING:
        break;
    }
    return strcmp(a->text, b->text) == 0;
}

void cordon_setting_format(enum cordon_setting id, const struct cordon_setting_value *value, char *to, size_t size)
{
    const struct cordon_setting_row *row = &cordon_setting_rows[id];
    size_t used = 0;
    *to = '\0';
    if (row->secret) {
        (void)snprintf(to, size, "%s", *value->text ? "(hidden)" : "");
        return;
    }
    switch (row->type) {
    case CORDON_SETTING_INT:
        (void)snprintf(to, size, "%lld", (long long)value->number);
        break;
    case CORDON_SETTING_BOOL:
        (void)snprintf(to, size, "%s", value->truth ? "true" : "false");
        break;
    case CORDON_SETTING_LIST:
        for (size_t i = 0; value->items[i] && used < size; i++)
            used += (size_t)snprintf(to + used, size - used, "%s%s", i ? "," : "", value->items[i]);
        break;
    case CORDON_SETTING_STRING:
        (void)snprintf(to, size, "%s", value->text);
        break;
    }
}
