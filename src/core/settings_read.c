/* SPDX-License-Identifier: Apache-2.0 */
/* How a setting's text becomes a value: by its row's type, and by the form that the alias's own system documents. */
#include "core/settings_table.h"

#include <ctype.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/secret_key.h"
#include "core/rate.h"
#include "core/template.h"

static const char *const isolations[] = {
    "none", "namespace", "userspace-kernel", "software-emulated", "hardware-virtualized", NULL};
static const char *const log_levels[] = {"error", "warn", "info", "debug", NULL};
static const char *const limits[] = {"memory", "pids", "cpu", "agent", NULL};

static bool is_rate(const char *text)
{
    struct cordon_rate rate;
    return cordon_rate_parse(text, &rate);
}

static bool is_template(const char *text)
{
    return !*text || cordon_template_name_valid(text);
}

static bool is_secret_key(const char *text)
{
    unsigned char key[CORDON_SECRET_KEY_SIZE];
    bool good = !*text || cordon_secret_key_read(text, key);
    explicit_bzero(key, sizeof key);
    return good;
}

/* Texts that are words: lower-cased unless they are secret, and of a list where there is one, else of a form, else at
 * least not empty. */
static const struct word_rule {
    enum cordon_setting id;
    const char *const *choices;
    bool (*valid)(const char *text);
    const char *needed;
} word_rules[] = {
    {CORDON_SET_BACKEND, NULL, NULL, "a name"},
    {CORDON_SET_MIN_ISOLATION, isolations, NULL, NULL},
    {CORDON_SET_CREATEOS_MIN_ISOLATION, isolations, NULL, NULL},
    {CORDON_SET_LOG_LEVEL, log_levels, NULL, NULL},
    {CORDON_SET_REQUIRE_LIMITS, limits, NULL, NULL},
    {CORDON_SET_BACKEND_PLUGINS, NULL, NULL, "a name"},
    {CORDON_SET_ALLOWED_DOMAINS, NULL, NULL, "a name"},
    {CORDON_SET_BACKENDS, NULL, NULL, "a name"},
    {CORDON_SET_STRICT_ARTIFACTS, NULL, NULL, "a name"},
    {CORDON_SET_SSH_ISOLATION, isolations, NULL, NULL},
    {CORDON_SET_SELF_MANAGED_ISOLATION, isolations, NULL, NULL},
    {CORDON_SET_EXECUTOR_RATE, NULL, is_rate, "one rate, such as 120/minute or 5/second,"},
    {CORDON_SET_EXECUTOR_FAILURES, NULL, is_rate, "one rate, such as 30/minute or 5/second,"},
    {CORDON_SET_TEMPLATE_PYTHON, NULL, is_template,
     "a template's name (a-z, 0-9, \".\", \"_\", \"-\"; at most 39) or nothing"},
    {CORDON_SET_TEMPLATE_JAVASCRIPT, NULL, is_template,
     "a template's name (a-z, 0-9, \".\", \"_\", \"-\"; at most 39) or nothing"},
    {CORDON_SET_SECRET_KEY, NULL, is_secret_key, "a key of 64 hex digits, or of 32 bytes in base64,"},
};

static const struct word_rule *word_rule(enum cordon_setting id)
{
    for (size_t i = 0; i < sizeof word_rules / sizeof *word_rules; i++)
        if (word_rules[i].id == id)
            return &word_rules[i];
    return NULL;
}

static enum cordon_alias_form form_of(size_t slot)
{
    const struct cordon_alias_row *alias = cordon_slot_alias(slot);
    return alias ? alias->form : CORDON_FORM_PLAIN;
}

static bool chosen(const struct word_rule *rule, const char *word)
{
    for (size_t i = 0; rule->choices && rule->choices[i]; i++)
        if (strcmp(rule->choices[i], word) == 0)
            return true;
    return !rule->choices && (rule->valid ? rule->valid(word) : *word);
}

static void lower(char *text)
{
    for (; *text; text++)
        *text = (char)tolower((unsigned char)*text);
}

static void need_choices(const struct word_rule *rule, const char *what, char needed[160])
{
    size_t used = (size_t)snprintf(needed, 160, "%s is needed", rule->needed ? rule->needed : what);
    for (size_t i = 0; rule->choices && rule->choices[i] && used < 160; i++)
        used += (size_t)snprintf(needed + used, 160 - used, "%s %s", i ? "," : ":", rule->choices[i]);
}

/* The images of the executor manager's own releases hold what the default template holds. */
static void image_to_template(char *text)
{
    const char *name = strrchr(text, '/') ? strrchr(text, '/') + 1 : text;
    memmove(text, name, strlen(name) + 1);
    text[strcspn(text, ":@")] = '\0';
    if (strcmp(text, "sandbox-base-python") == 0 || strcmp(text, "sandbox-base-nodejs") == 0)
        *text = '\0';
}

static int read_string(size_t slot, struct cordon_setting_value *value, char needed[160])
{
    const struct word_rule *rule = word_rule(cordon_slot_setting(slot));
    if (!rule)
        return 0;
    if (!cordon_setting_rows[cordon_slot_setting(slot)].secret)
        lower(value->text);
    if (form_of(slot) == CORDON_FORM_IMAGE)
        image_to_template(value->text);
    if (chosen(rule, value->text))
        return 0;
    need_choices(rule, "one of these", needed);
    return -EINVAL;
}

static bool read_number(const char *text, int64_t *ret);

static int port_to_address(struct cordon_setting_value *value, char needed[160])
{
    int64_t port;
    char *address;
    if (!read_number(value->text, &port) || port < 1 || port > 65535) {
        (void)snprintf(needed, 160, "a port from 1 to 65535 is needed");
        return -EINVAL;
    }
    if (asprintf(&address, "127.0.0.1:%d", (int)port) < 0)
        return -ENOMEM;
    free(value->text);
    value->text = address;
    return 0;
}

static char *trimmed_copy(const char *text, size_t size)
{
    while (size && isspace((unsigned char)*text))
        text++, size--;
    while (size && isspace((unsigned char)text[size - 1]))
        size--;
    return strndup(text, size);
}

static int read_list(size_t slot, struct cordon_setting_value *value, char needed[160])
{
    const struct word_rule *rule = word_rule(cordon_slot_setting(slot));
    size_t room = 2, count = 0;
    int r = form_of(slot) == CORDON_FORM_PORT ? port_to_address(value, needed) : 0;
    if (r < 0)
        return r;
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

/* 1 where it is neither a yes nor one of the usual words for no. */
static int read_flag(struct cordon_setting_value *value)
{
    static const char *const yes[] = {"1", "true", "yes", "on"}, *const no[] = {"", "0", "false", "no", "off"};
    for (size_t i = 0; i < sizeof yes / sizeof *yes; i++)
        value->truth = value->truth || strcasecmp(yes[i], value->text) == 0;
    for (size_t i = 0; i < sizeof no / sizeof *no; i++)
        if (strcasecmp(no[i], value->text) == 0)
            return 0;
    return value->truth ? 0 : 1;
}

static int read_network(struct cordon_setting_value *value, char needed[160])
{
    value->truth = strcasecmp(value->text, "bridge") == 0;
    if (value->truth || !*value->text || strcasecmp(value->text, "none") == 0)
        return 0;
    (void)snprintf(needed, 160, "none or bridge is needed: other networks of Docker mean nothing here");
    return -EINVAL;
}

static int read_bool(size_t slot, struct cordon_setting_value *value, char needed[160])
{
    if (form_of(slot) == CORDON_FORM_FLAG)
        return read_flag(value);
    if (form_of(slot) == CORDON_FORM_NETWORK)
        return read_network(value, needed);
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
    enum cordon_alias_form form = form_of(slot);
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
        r = read_string(slot, &value, needed);
        break;
    case CORDON_SETTING_LIST:
        r = read_list(slot, &value, needed);
        break;
    case CORDON_SETTING_BOOL:
        r = read_bool(slot, &value, needed);
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
