/* SPDX-License-Identifier: Apache-2.0 */
/* What a door sees of the loaded settings. */
#include "core/settings.h"

#include <assert.h>

#include "core/settings_table.h"

static const struct cordon_setting_slot *seen(const struct cordon_settings *settings, enum cordon_door door,
                                              enum cordon_setting id, enum cordon_setting_type type)
{
    assert(door < CORDON_DOOR__COUNT && id < CORDON_SET__COUNT && cordon_setting_rows[id].type == type);
    const struct cordon_settings *now = cordon_settings_now(settings);
    return &now->slots[now->effective[door][id]];
}

int64_t cordon_settings_int(const struct cordon_settings *settings, enum cordon_door door, enum cordon_setting id)
{
    return seen(settings, door, id, CORDON_SETTING_INT)->value.number;
}

bool cordon_settings_bool(const struct cordon_settings *settings, enum cordon_door door, enum cordon_setting id)
{
    return seen(settings, door, id, CORDON_SETTING_BOOL)->value.truth;
}

const char *cordon_settings_string(const struct cordon_settings *settings, enum cordon_door door,
                                   enum cordon_setting id)
{
    return seen(settings, door, id, CORDON_SETTING_STRING)->value.text;
}

const char *cordon_settings_item(const struct cordon_settings *settings, enum cordon_door door, enum cordon_setting id,
                                 size_t i)
{
    char *const *items = seen(settings, door, id, CORDON_SETTING_LIST)->value.items;
    while (i && *items)
        i--, items++;
    return *items;
}

const char *cordon_settings_name(enum cordon_door door, enum cordon_setting id)
{
    for (size_t i = 0; door != CORDON_DOOR_NATIVE && i < CORDON_ALIAS_COUNT; i++)
        if (cordon_alias_rows[i].id == id && cordon_alias_rows[i].door == door)
            return cordon_alias_rows[i].name;
    return cordon_setting_rows[id].name;
}

enum cordon_setting_source cordon_settings_source(const struct cordon_settings *settings, enum cordon_setting id)
{
    const struct cordon_settings *now = cordon_settings_now(settings);
    return now->slots[now->effective[CORDON_DOOR_NATIVE][id]].source;
}

const char *cordon_settings_environment(const struct cordon_settings *settings, enum cordon_setting id)
{
    const struct cordon_settings *now = cordon_settings_now(settings);
    size_t slot = now->effective[CORDON_DOOR_NATIVE][id];
    const struct cordon_setting_slot *found = &now->slots[slot];
    return found->set && found->source == CORDON_SOURCE_ENVIRONMENT ? cordon_slot_name(slot) : NULL;
}

const char *cordon_settings_warning(const struct cordon_settings *settings, size_t i)
{
    return i < settings->warning_count ? settings->warnings[i] : NULL;
}
