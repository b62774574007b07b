/* SPDX-License-Identifier: Apache-2.0 */
/* What an admin stored: a new version of the settings over what was loaded, in one step. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/fd.h"
#include "core/settings_table.h"

static void free_settings(struct cordon_settings **settings)
{
    cordon_settings_free(*settings);
}

/* Copied, not read again: a text may be what an alias's form was made into. */
static int copy_value(const struct cordon_setting_value *from, struct cordon_setting_value *to)
{
    size_t count = 0;
    *to = (struct cordon_setting_value){.number = from->number, .truth = from->truth};
    if (from->text && !(to->text = strdup(from->text)))
        return -ENOMEM;
    if (!from->items)
        return 0;
    while (from->items[count])
        count++;
    to->items = calloc(count + 1, sizeof *to->items);
    for (size_t i = 0; to->items && i < count; i++)
        if (!(to->items[i] = strdup(from->items[i])))
            return -ENOMEM;
    return to->items ? 0 : -ENOMEM;
}

static int copy_loaded(const struct cordon_settings *from, struct cordon_settings *to, struct cordon_error *err)
{
    for (size_t slot = 0; slot < CORDON_SLOT_COUNT; slot++) {
        const struct cordon_setting_slot *s = &from->slots[slot];
        if (!s->set)
            continue;
        to->slots[slot] = (struct cordon_setting_slot){.set = true, .source = s->source, .line = s->line};
        if (copy_value(&s->value, &to->slots[slot].value) < 0)
            return cordon_fail_errno(err, -ENOMEM, "take the stored settings");
    }
    return 0;
}

/* Whether something that goes before a stored value set the row, by any of its names. */
static bool is_overridden(const struct cordon_settings *settings, enum cordon_setting id)
{
    for (size_t slot = 0; slot < CORDON_SLOT_COUNT; slot++)
        if (cordon_slot_setting(slot) == id && settings->slots[slot].set &&
            settings->slots[slot].source > CORDON_SOURCE_STORED)
            return true;
    return false;
}

/* What the file says under any name of the row gives way. */
static void clear_row(struct cordon_settings *settings, enum cordon_setting id)
{
    for (size_t slot = 0; slot < CORDON_SLOT_COUNT; slot++) {
        if (cordon_slot_setting(slot) != id || settings->slots[slot].source == CORDON_SOURCE_STORED)
            continue;
        cordon_setting_value_done(&settings->slots[slot].value);
        settings->slots[slot] = (struct cordon_setting_slot){0};
    }
}

/* An overridden value is read all the same: it may count at the next start. */
static int store_pair(struct cordon_settings *settings, const char *pair, struct cordon_error *err)
{
    static const struct cordon_setting_origin origin = {.source = CORDON_SOURCE_STORED};
    char name[CORDON_SETTING_NAME_SIZE], needed[160] = "";
    const char *text;
    if (!cordon_settings_split(pair, name, &text))
        return cordon_fail(err, -EINVAL, CORDON_ERROR_INVALID, "a stored setting is not NAME=VALUE");
    size_t slot = cordon_slot_find(name, 0, true);
    if (slot == CORDON_SLOT_COUNT)
        return cordon_settings_unknown(name, &origin, err);
    enum cordon_setting id = cordon_slot_setting(slot);
    if (cordon_setting_rows[id].scope != CORDON_SCOPE_RUNTIME)
        return cordon_fail(err, -EPERM, CORDON_ERROR_INVALID,
                           "%s is set where the daemon is started (environment, command line or file), not here", name);
    if (!is_overridden(settings, id)) {
        clear_row(settings, id);
        return cordon_settings_set_slot(settings, slot, text, &origin, err);
    }
    struct cordon_setting_value value = {0};
    int r = cordon_setting_read(slot, text, &value, needed);
    cordon_setting_value_done(&value);
    return r < 0 ? cordon_fail(err, r, CORDON_ERROR_INVALID, "%s: %s", cordon_slot_name(slot), needed) : 0;
}

static int build_version(const struct cordon_settings *loaded, const char *const *stored, struct cordon_settings **ret,
                         struct cordon_error *err)
{
    __attribute__((cleanup(free_settings))) struct cordon_settings *version = calloc(1, sizeof *version);
    if (!version)
        return cordon_fail_errno(err, -ENOMEM, "take the stored settings");
    static _Atomic(uint64_t) serials;
    version->serial = ++serials;
    int r = copy_loaded(loaded, version, err);
    for (; r == 0 && *stored; stored++)
        r = store_pair(version, *stored, err);
    if (r == 0)
        r = cordon_settings_settle(version, err);
    if (r < 0)
        return r;
    cordon_settings_keep_secrets(version);
    *ret = CORDON_TAKE(version);
    return 0;
}

int cordon_settings_store(struct cordon_settings *settings, const char *const *stored, struct cordon_error *err)
{
    struct cordon_settings *version;
    int r = build_version(settings, stored, &version, err);
    if (r < 0)
        return r;
    version->older = atomic_load_explicit(&settings->current, memory_order_relaxed);
    atomic_store_explicit(&settings->current, version, memory_order_release);
    return 0;
}

/* --- a trial --- */

_Thread_local const struct cordon_settings *cordon_settings_trial_of;
_Thread_local struct cordon_settings *cordon_settings_trial;

int cordon_settings_trial_begin(const struct cordon_settings *settings, const char *const *stored,
                                struct cordon_error *err)
{
    struct cordon_settings *version;
    int r = build_version(settings, stored, &version, err);
    if (r < 0)
        return r;
    cordon_settings_trial_end();
    cordon_settings_trial = version;
    cordon_settings_trial_of = settings;
    return 0;
}

void cordon_settings_trial_end(void)
{
    cordon_settings_free(cordon_settings_trial);
    cordon_settings_trial = NULL;
    cordon_settings_trial_of = NULL;
}

uint64_t cordon_settings_serial(const struct cordon_settings *settings)
{
    return cordon_settings_now(settings)->serial;
}

/* --- for the admin page --- */

bool cordon_settings_view(const struct cordon_settings *settings, size_t i, struct cordon_setting_view *ret)
{
    if (i >= CORDON_SET__COUNT)
        return false;
    const struct cordon_settings *now = cordon_settings_now(settings);
    const struct cordon_setting_row *row = &cordon_setting_rows[i];
    size_t slot = now->effective[CORDON_DOOR_NATIVE][i];
    *ret = (struct cordon_setting_view){
        .name = row->name,
        .help = row->help,
        .unit = row->unit,
        .fallback = row->fallback,
        .alias = slot == i ? NULL : cordon_slot_name(slot),
        .type = row->type,
        .scope = row->scope,
        .source = now->slots[slot].source,
        .secret = row->secret,
        .set = now->slots[slot].set,
        .min = row->min,
        .max = row->max,
    };
    if (!row->secret)
        cordon_setting_format((enum cordon_setting)i, &now->slots[slot].value, ret->value, sizeof ret->value);
    return true;
}

bool cordon_settings_row(const char *name, const char **native, bool *secret)
{
    size_t slot = cordon_slot_find(name, 0, false);
    if (slot == CORDON_SLOT_COUNT)
        return false;
    const struct cordon_setting_row *row = &cordon_setting_rows[cordon_slot_setting(slot)];
    *native = row->name;
    *secret = row->secret;
    return true;
}
