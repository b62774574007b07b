/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Private to the settings: the rows, and how a text becomes a value.
 *
 * Each name of each row has a *slot*: first one a row for the native names (index = enum cordon_setting), then one an
 * alias (index = CORDON_SET__COUNT + its number). Loading fills slots; `effective` says which slot answers for a door.
 */
#ifndef CORDON_CORE_SETTINGS_TABLE_H
#define CORDON_CORE_SETTINGS_TABLE_H

#include "core/settings.h"

enum cordon_alias_form {
    CORDON_FORM_PLAIN,
    CORDON_FORM_DURATION,
    CORDON_FORM_SIZE,
    CORDON_FORM_FLAG,    /* 1, true, yes, on; all else is false */
    CORDON_FORM_PORT,    /* of the loopback; gives way to any other name of its row */
    CORDON_FORM_IMAGE,   /* "registry/folder/name:tag" is the template "name" */
    CORDON_FORM_NETWORK, /* Docker's name of a network */
};

struct cordon_setting_row {
    const char *name;
    enum cordon_setting_type type;
    const char *fallback;
    int64_t min, max;
    const char *unit;
    enum cordon_setting_scope scope;
    bool secret;
    const char *help;
};

struct cordon_alias_row {
    enum cordon_setting id;
    const char *name;
    enum cordon_door door;
    enum cordon_alias_form form;
    const char *fallback;
    int64_t min, max;
    const char *note;
};

enum {
#define CORDON_ALIAS(...) +1
    CORDON_ALIAS_COUNT = 0
#include "core/settings_aliases.def"
#undef CORDON_ALIAS
    ,
    CORDON_SLOT_COUNT = CORDON_SET__COUNT + CORDON_ALIAS_COUNT
};

extern const struct cordon_setting_row cordon_setting_rows[CORDON_SET__COUNT];
extern const struct cordon_alias_row cordon_alias_rows[CORDON_ALIAS_COUNT];

struct cordon_setting_value {
    char *text; /* as given, trimmed; for shown texts and STRING */
    int64_t number;
    bool truth;
    char **items; /* NULL-terminated, for LIST */
};

struct cordon_setting_slot {
    bool set;
    enum cordon_setting_source source;
    int line; /* in the file, else 0 */
    struct cordon_setting_value value;
};

#define CORDON_WARNINGS_MAX 16

struct cordon_settings {
    struct cordon_setting_slot slots[CORDON_SLOT_COUNT];
    uint16_t effective[CORDON_DOOR__COUNT][CORDON_SET__COUNT];
    char *warnings[CORDON_WARNINGS_MAX + 1];
    size_t warning_count;
};

static inline enum cordon_setting cordon_slot_setting(size_t slot)
{
    return slot < CORDON_SET__COUNT ? (enum cordon_setting)slot : cordon_alias_rows[slot - CORDON_SET__COUNT].id;
}
static inline const struct cordon_alias_row *cordon_slot_alias(size_t slot)
{
    return slot < CORDON_SET__COUNT ? NULL : &cordon_alias_rows[slot - CORDON_SET__COUNT];
}
const char *cordon_slot_name(size_t slot);
const char *cordon_slot_fallback(size_t slot); /* NULL: the native slot answers */
/* The first slot at or after `from` that answers to a name; short: also `timeout_s` and other spellings. Or SLOT_COUNT.
 */
size_t cordon_slot_find(const char *name, size_t from, bool short_names);
const char *cordon_slot_near(const char *name); /* a name that was perhaps meant, or NULL */

/* Reads a text into a value. 0; -EINVAL with what would be accepted in `needed` (a phrase); 1: fell back, as the
 * alias's system documents; -ENOMEM. */
int cordon_setting_read(size_t slot, const char *text, struct cordon_setting_value *ret, char needed[160]);
void cordon_setting_value_done(struct cordon_setting_value *value);
bool cordon_setting_same(enum cordon_setting id, const struct cordon_setting_value *a,
                         const struct cordon_setting_value *b);
/* The value as `config show` has it: the native unit, lists joined, secrets hidden. */
void cordon_setting_format(enum cordon_setting id, const struct cordon_setting_value *value, char *to, size_t size);

const char *cordon_door_name(enum cordon_door door);

#endif
