/* SPDX-License-Identifier: Apache-2.0 */
#include "core/settings_table.h"

#include <assert.h>
#include <ctype.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include <cordon/backend.h>

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

static const char *const isolations[] = {
    "none", "namespace", "userspace-kernel", "software-emulated", "hardware-virtualized", NULL};
static const char *const log_levels[] = {"error", "warn", "info", "debug", NULL};
static const char *const limits[] = {"memory", "pids", "cpu", "agent", NULL};

/* Texts that are words: lower-cased, never empty, and of a list where there is one. */
static const struct word_rule {
    enum cordon_setting id;
    const char *const *choices;
} word_rules[] = {
    {CORDON_SET_BACKEND, NULL},          {CORDON_SET_MIN_ISOLATION, isolations}, {CORDON_SET_LOG_LEVEL, log_levels},
    {CORDON_SET_REQUIRE_LIMITS, limits}, {CORDON_SET_BACKEND_PLUGINS, NULL},     {CORDON_SET_ALLOWED_DOMAINS, NULL},
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

static const struct word_rule *word_rule(enum cordon_setting id)
{
    for (size_t i = 0; i < sizeof word_rules / sizeof *word_rules; i++)
        if (word_rules[i].id == id)
            return &word_rules[i];
    return NULL;
}

static bool chosen(const struct word_rule *rule, const char *word)
{
    for (size_t i = 0; rule->choices && rule->choices[i]; i++)
        if (strcmp(rule->choices[i], word) == 0)
            return true;
    return !rule->choices && *word;
}

static void lower(char *text)
{
    for (; *text; text++)
        *text = (char)tolower((unsigned char)*text);
}

static void need_choices(const struct word_rule *rule, const char *what, char needed[160])
{
    size_t used = (size_t)snprintf(needed, 160, "%s is needed", what);
    for (size_t i = 0; rule->choices && rule->choices[i] && used < 160; i++)
        used += (size_t)snprintf(needed + used, 160 - used, "%s %s", i ? "," : ":", rule->choices[i]);
}

static int read_string(enum cordon_setting id, struct cordon_setting_value *value, char needed[160])
{
    const struct word_rule *rule = word_rule(id);
    if (!rule)
        return 0;
    lower(value->text);
    if (chosen(rule, value->text))
        return 0;
    need_choices(rule, rule->choices ? "one of these" : "a name", needed);
    return -EINVAL;
}

static char *trimmed_copy(const char *text, size_t size)
{
    while (size && isspace((unsigned char)*text))
        text++, size--;
    while (size && isspace((unsigned char)text[size - 1]))
        size--;
    return strndup(text, size);
}

static int read_list(enum cordon_setting id, struct cordon_setting_value *value, char needed[160])
{
    const struct word_rule *rule = word_rule(id);
    size_t room = 2, count = 0;
    for (const char *p = value->text; *p; p++)
        room += *p == ',';
    value->items = calloc(room, sizeof *value->items);
    if (!value->items)
        return -ENOMEM;
    for (const char *p = value->text;;) {
        size_t size = strcspn(p, ",");
        char *item = trimmed_copy(p, size);
        if (!item)
            return -ENOMEM;
        if (rule)
            lower(item);
        if (*item)
            value->items[count++] = item;
        else
            free(item);
        if (!p[size])
            break;
        p += size + 1;
    }
    for (size_t i = 0; rule && rule->choices && i < count; i++) {
        if (!chosen(rule, value->items[i])) {
            need_choices(rule, "a list of some of these", needed);
            return -EINVAL;
        }
    }
    return 0;
}

static int read_bool(struct cordon_setting_value *value, char needed[160])
{
    static const char *const words[] = {"0", "1", "false", "true", "f", "t", "no", "yes", "n", "y", "off", "on"};
    for (size_t i = 0; i < sizeof words / sizeof *words; i++) {
        if (strcasecmp(words[i], value->text) == 0) {
            value->truth = i % 2;
            return 0;
        }
    }
    (void)snprintf(needed, 160, "true or false is needed (also 1, t, yes, y, on; 0, f, no, n, off)");
    return -EINVAL;
}

static bool read_number(const char *text, int64_t *ret)
{
    const char *digits = *text == '-' ? text + 1 : text;
    if (!isdigit((unsigned char)*digits) || digits[strspn(digits, "0123456789")])
        return false;
    errno = 0;
    *ret = strtoll(text, NULL, 10);
    return errno == 0;
}

/* `NmNs`, `Ns`, `Nm` of the executor manager, and plain seconds. */
static bool read_duration(const char *text, int64_t *ret)
{
    int64_t total = 0;
    const char *p = text;
    for (const char *units = "ms"; *units; units++) {
        char *end;
        if (!isdigit((unsigned char)*p))
            break;
        errno = 0;
        long long n = strtoll(p, &end, 10);
        if (errno || n > INT32_MAX)
            return false;
        bool plain = p == text && !*end;
        if (!plain && tolower((unsigned char)*end) != *units)
            continue;
        total += n * (*units == 'm' && !plain ? 60 : 1);
        p = plain ? end : end + 1;
    }
    *ret = total;
    return !*p && total > 0;
}

/* `[1-9][0-9]*(b|k|m|g)` of the executor manager, to whole MiB downwards. */
static bool read_size(const char *text, int64_t *ret)
{
    static const char units[] = "bkmg";
    char *end;
    if (*text < '1' || *text > '9')
        return false;
    errno = 0;
    unsigned long long n = strtoull(text, &end, 10);
    const char *unit = *end ? strchr(units, tolower((unsigned char)*end)) : NULL;
    if (errno || !unit || !*unit || end[1] || n > (1ull << 62) >> (10 * (unit - units)))
        return false;
    *ret = (int64_t)(n << (10 * (unit - units)) >> 20);
    return true;
}

static int read_int(size_t slot, struct cordon_setting_value *value, char needed[160])
{
    const struct cordon_setting_row *row = &cordon_setting_rows[cordon_slot_setting(slot)];
    const struct cordon_alias_row *alias = cordon_slot_alias(slot);
    int64_t min = alias && alias->max ? alias->min : row->min, max = alias && alias->max ? alias->max : row->max;
    enum cordon_alias_form form = alias ? alias->form : CORDON_FORM_PLAIN;
    int fell_back = 0;
    bool good = form == CORDON_FORM_DURATION ? read_duration(value->text, &value->number)
                : form == CORDON_FORM_SIZE   ? read_size(value->text, &value->number)
                                             : read_number(value->text, &value->number);
    if (!good && form != CORDON_FORM_PLAIN) {
        fell_back = 1;
        good = form == CORDON_FORM_DURATION ? read_duration(alias->fallback, &value->number)
                                            : read_size(alias->fallback, &value->number);
    }
    if (good && value->number >= min && value->number <= max)
        return fell_back;
    (void)snprintf(needed, 160, "a whole number from %lld to %lld%s%s is needed", (long long)min, (long long)max,
                   *row->unit ? " " : "", row->unit);
    return -EINVAL;
}

int cordon_setting_read(size_t slot, const char *text, struct cordon_setting_value *ret, char needed[160])
{
    enum cordon_setting id = cordon_slot_setting(slot);
    struct cordon_setting_value value = {.text = trimmed_copy(text, strlen(text))};
    if (!value.text)
        return -ENOMEM;
    int r = 0;
    switch (cordon_setting_rows[id].type) {
    case CORDON_SETTING_STRING:
        r = read_string(id, &value, needed);
        break;
    case CORDON_SETTING_LIST:
        r = read_list(id, &value, needed);
        break;
    case CORDON_SETTING_BOOL:
        r = read_bool(&value, needed);
        break;
    case CORDON_SETTING_INT:
        r = read_int(slot, &value, needed);
        break;
    }
    if (r < 0)
        cordon_setting_value_done(&value);
    else
        *ret = value;
    return r;
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
