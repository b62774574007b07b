/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Private to the settings: the rows, and how a text becomes a value.
 *
 * Each name of each row has a *slot*: first one a row for the native names (index = enum cordon_setting), then one an
 * alias (index = CORDON_SET__COUNT + its number). Loading fills slots; `effective` says which slot answers for a door.
 */
#ifndef CORDON_CORE_SETTINGS_TABLE_H
#define CORDON_CORE_SETTINGS_TABLE_H

#include <stdatomic.h>

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

/* What was loaded, and over it a chain of the versions with stored values. Each is immutable, and none is freed before
 * all are, since anybody may hold a text of it: an admin's change costs some 20 KiB until the next start. */
struct cordon_settings {
    _Atomic(struct cordon_settings *) current; /* of the loaded one: the newest version; NULL: itself */
    struct cordon_settings *older;             /* of a version: the one before */
    uint64_t serial;
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
/* What a trial of this thread puts in the place of which loaded settings. */
extern _Thread_local const struct cordon_settings *cordon_settings_trial_of;
extern _Thread_local struct cordon_settings *cordon_settings_trial;

static inline const struct cordon_settings *cordon_settings_now(const struct cordon_settings *settings)
{
    if (cordon_settings_trial_of == settings)
        return cordon_settings_trial;
    const struct cordon_settings *now = atomic_load_explicit(&settings->current, memory_order_acquire);
    return now ? now : settings;
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

#define CORDON_SETTING_NAME_SIZE 80

/* Where a value comes from, for messages. */
struct cordon_setting_origin {
    enum cordon_setting_source source;
    const char *file;
    int line;
};

/* Steps of loading (settings_load.c) that taking stored values goes through as well. */
int cordon_settings_set_slot(struct cordon_settings *settings, size_t slot, const char *text,
                             const struct cordon_setting_origin *origin, struct cordon_error *err);
/* Fails: name is no setting, and which one may have been meant. */
int cordon_settings_unknown(const char *name, const struct cordon_setting_origin *origin, struct cordon_error *err);
/* Splits at the first '='; false if there is none or the name is longer than any of ours. */
bool cordon_settings_split(const char *pair, char name[CORDON_SETTING_NAME_SIZE], const char **text);
/* Defaults, which slot answers for which door, and what must agree. */
int cordon_settings_settle(struct cordon_settings *settings, struct cordon_error *err);
/* Whatever is secret is masked from now on in all that is logged or answered. */
void cordon_settings_keep_secrets(const struct cordon_settings *settings);

const char *cordon_door_name(enum cordon_door door);

#endif
