/* SPDX-License-Identifier: Apache-2.0 */
/* The settings for people: `cordon config show`, `cordon config explain`, and the man page's section. */
#include "core/settings_table.h"

#include <errno.h>
#include <string.h>

#include "base/json.h"

static const char *const type_names[] = {"text", "whole number", "true or false", "comma separated list"};
static const char *const type_words[] = {"string", "int", "bool", "list"};
static const char *const scope_names[] = {"deployment", "runtime"};
static const char *const source_names[] = {"default", "file", "stored", "environment", "flag"};

static const struct cordon_setting_slot *seen(const struct cordon_settings *settings, int door, int id)
{
    const struct cordon_settings *now = cordon_settings_now(settings);
    return &now->slots[now->effective[door][id]];
}

/* A door's value is worth a mention where it is not the native one's. */
static bool differs(const struct cordon_settings *settings, int door, int id)
{
    return !cordon_setting_same((enum cordon_setting)id, &seen(settings, door, id)->value,
                                &seen(settings, CORDON_DOOR_NATIVE, id)->value);
}

static void show_row(const struct cordon_settings *settings, int id, const char *state, FILE *to)
{
    char text[512];
    const struct cordon_setting_row *row = &cordon_setting_rows[id];
    const struct cordon_setting_slot *slot = seen(settings, CORDON_DOOR_NATIVE, id);
    cordon_setting_format((enum cordon_setting)id, &slot->value, text, sizeof text);
    if (id == CORDON_SET_STATE && state && !*text)
        (void)snprintf(text, sizeof text, "%s", state); /* cut on purpose */
    (void)fprintf(to, "%-34s %-20s %-12s %-10s", row->name, *text ? text : "-", source_names[slot->source],
                  scope_names[row->scope]);
    for (int door = 0; door < CORDON_DOOR__COUNT; door++) {
        if (!differs(settings, door, id))
            continue;
        cordon_setting_format((enum cordon_setting)id, &seen(settings, door, id)->value, text, sizeof text);
        (void)fprintf(to, " %s=%s", cordon_door_name((enum cordon_door)door), *text ? text : "-");
    }
    (void)fputc('\n', to);
}

static void write_value(enum cordon_setting id, const struct cordon_setting_value *value, struct cordon_json *json)
{
    const struct cordon_setting_row *row = &cordon_setting_rows[id];
    char text[512];
    if (row->secret) {
        cordon_setting_format(id, value, text, sizeof text);
        cordon_json_text(json, text);
        return;
    }
    switch (row->type) {
    case CORDON_SETTING_INT:
        cordon_json_int(json, value->number);
        return;
    case CORDON_SETTING_BOOL:
        cordon_json_bool(json, value->truth);
        return;
    case CORDON_SETTING_STRING:
        cordon_json_text(json, value->text);
        return;
    case CORDON_SETTING_LIST:
        break;
    }
    cordon_json_array_begin(json);
    for (size_t i = 0; value->items[i]; i++)
        cordon_json_text(json, value->items[i]);
    cordon_json_array_end(json);
}

static void write_row(const struct cordon_settings *settings, int id, const char *state, struct cordon_json *json)
{
    const struct cordon_setting_row *row = &cordon_setting_rows[id];
    const struct cordon_setting_slot *slot = seen(settings, CORDON_DOOR_NATIVE, id);
    cordon_json_object_begin(json);
    cordon_json_pair_text(json, "name", row->name);
    cordon_json_key(json, "value");
    if (id == CORDON_SET_STATE && state && !*slot->value.text)
        cordon_json_text(json, state);
    else
        write_value((enum cordon_setting)id, &slot->value, json);
    cordon_json_pair_text(json, "type", type_words[row->type]);
    cordon_json_pair_text(json, "unit", row->unit);
    cordon_json_pair_text(json, "source", source_names[slot->source]);
    cordon_json_pair_text(json, "scope", scope_names[row->scope]);
    cordon_json_key(json, "doors");
    cordon_json_object_begin(json);
    for (int door = 0; door < CORDON_DOOR__COUNT; door++) {
        if (!differs(settings, door, id))
            continue;
        cordon_json_key(json, cordon_door_name((enum cordon_door)door));
        write_value((enum cordon_setting)id, &seen(settings, door, id)->value, json);
    }
    cordon_json_object_end(json);
    cordon_json_object_end(json);
}

static void show_json(const struct cordon_settings *settings, const char *state, FILE *to)
{
    struct cordon_buf buf = CORDON_BUF_INIT(4u << 20);
    struct cordon_json json = {.buf = &buf};
    cordon_json_object_begin(&json);
    cordon_json_key(&json, "settings");
    cordon_json_array_begin(&json);
    for (int id = 0; id < CORDON_SET__COUNT; id++)
        write_row(settings, id, state, &json);
    cordon_json_array_end(&json);
    cordon_json_object_end(&json);
    if (!buf.failed)
        (void)fprintf(to, "%s\n", buf.data);
    cordon_buf_done(&buf);
}

void cordon_settings_show(const struct cordon_settings *settings, const char *state, bool json, FILE *to)
{
    if (json) {
        show_json(settings, state, to);
        return;
    }
    (void)fprintf(to, "%-34s %-20s %-12s %-10s %s\n", "NAME", "VALUE", "SOURCE", "SCOPE", "DOORS");
    for (int id = 0; id < CORDON_SET__COUNT; id++)
        show_row(settings, id, state, to);
}

static void explain_bounds(int64_t min, int64_t max, const char *unit, FILE *to)
{
    (void)fprintf(to, "  bounds   %lld to %lld%s%s\n", (long long)min, (long long)max, *unit ? " " : "", unit);
}

static void explain_alias(const struct cordon_alias_row *alias, FILE *to)
{
    static const char *const forms[] = {
        [CORDON_FORM_DURATION] = "duration (NmNs, Ns, Nm, plain seconds)",
        [CORDON_FORM_SIZE] = "size (whole number with b, k, m or g)",
        [CORDON_FORM_FLAG] = "flag (1, true, yes, on; all else is false)",
        [CORDON_FORM_PORT] = "port",
        [CORDON_FORM_IMAGE] = "name of an image",
        [CORDON_FORM_NETWORK] = "name of a network",
    };
    const struct cordon_setting_row *row = &cordon_setting_rows[alias->id];
    bool whole = alias->door == CORDON_DOOR_NATIVE;
    (void)fprintf(to, "\nalso %s (%s%s)\n", alias->name, whole ? "the whole daemon" : "the door ",
                  whole ? "" : cordon_door_name(alias->door));
    (void)fprintf(to, "  type     %s\n", alias->form == CORDON_FORM_PLAIN ? type_names[row->type] : forms[alias->form]);
    if (alias->max)
        explain_bounds(alias->min, alias->max, row->unit, to);
    if (alias->fallback)
        (void)fprintf(to, "  default  %s\n", *alias->fallback ? alias->fallback : "(empty)");
    if (*alias->note)
        (void)fprintf(to, "  %s\n", alias->note);
}

static void explain_row(const struct cordon_settings *settings, int id, FILE *to)
{
    char text[512];
    const struct cordon_setting_row *row = &cordon_setting_rows[id];
    (void)fprintf(to, "%s\n  %s\n  type     %s\n", row->name, row->help, type_names[row->type]);
    if (row->type == CORDON_SETTING_INT)
        explain_bounds(row->min, row->max, row->unit, to);
    (void)fprintf(to, "  default  %s\n  scope    %s (%s)\n", *row->fallback ? row->fallback : "(empty)",
                  scope_names[row->scope],
                  row->scope == CORDON_SCOPE_RUNTIME ? "also editable while it runs"
                                                     : "flag, environment or file only, at the start");
    for (int door = 0; door < CORDON_DOOR__COUNT; door++) {
        const struct cordon_setting_slot *slot = seen(settings, door, id);
        if (door != CORDON_DOOR_NATIVE && !differs(settings, door, id))
            continue;
        cordon_setting_format((enum cordon_setting)id, &slot->value, text, sizeof text);
        (void)fprintf(to, "  value    %s (%s%s%s", *text ? text : "(empty)", source_names[slot->source],
                      slot->set ? ": " : "",
                      slot->set ? cordon_slot_name((size_t)(slot - cordon_settings_now(settings)->slots)) : "");
        (void)fprintf(to, "%s%s)\n", door ? ", for the door " : "",
                      door ? cordon_door_name((enum cordon_door)door) : "");
    }
    for (size_t i = 0; i < CORDON_ALIAS_COUNT; i++)
        if (cordon_alias_rows[i].id == (enum cordon_setting)id)
            explain_alias(&cordon_alias_rows[i], to);
}

int cordon_settings_explain(const struct cordon_settings *settings, const char *name, FILE *to,
                            struct cordon_error *err)
{
    size_t slot = cordon_slot_find(name, 0, true);
    if (slot == CORDON_SLOT_COUNT) {
        const char *near = cordon_slot_near(name);
        return cordon_fail(err, -EINVAL, CORDON_ERROR_INVALID, "%.80s is no setting%s%s%s", name,
                           near ? "; was " : "; `cordon config show` lists them", near ? near : "",
                           near ? " meant?" : "");
    }
    for (bool first = true; slot < CORDON_SLOT_COUNT; slot = cordon_slot_find(name, slot + 1, true), first = false) {
        if (!first)
            (void)fputc('\n', to);
        explain_row(settings, (int)cordon_slot_setting(slot), to);
    }
    return 0;
}

/* scdoc takes _ and * for markup. */
static void put_scdoc(const char *text, FILE *to)
{
    for (; *text; text++) {
        if (strchr("_*\\`#", *text))
            (void)fputc('\\', to);
        (void)fputc(*text, to);
    }
}

void cordon_settings_document(FILE *to)
{
    for (size_t id = 0; id < CORDON_SET__COUNT; id++) {
        const struct cordon_setting_row *row = &cordon_setting_rows[id];
        (void)fputc('*', to);
        put_scdoc(row->name, to);
        (void)fprintf(to, "* (%s, %s", type_names[row->type], scope_names[row->scope]);
        if (row->type == CORDON_SETTING_INT)
            (void)fprintf(to, ", %lld to %lld%s%s", (long long)row->min, (long long)row->max, *row->unit ? " " : "",
                          row->unit);
        (void)fprintf(to, ", default: ");
        put_scdoc(*row->fallback ? row->fallback : "empty", to);
        (void)fprintf(to, ")\n\t");
        put_scdoc(row->help, to);
        for (size_t i = 0; i < CORDON_ALIAS_COUNT; i++) {
            const struct cordon_alias_row *alias = &cordon_alias_rows[i];
            if (alias->id != (enum cordon_setting)id)
                continue;
            (void)fprintf(to, " Also ");
            put_scdoc(alias->name, to);
            (void)fprintf(to, " (%s",
                          alias->door == CORDON_DOOR_NATIVE ? "the whole daemon" : cordon_door_name(alias->door));
            if (alias->fallback)
                (void)fprintf(to, ", default: %s", *alias->fallback ? alias->fallback : "empty");
            (void)fprintf(to, ").");
        }
        (void)fprintf(to, "\n\n");
    }
}

/* A comment of at most `width` columns a line. */
static void put_comment(const char *text, size_t width, FILE *to)
{
    while (*text) {
        size_t size = strlen(text), cut = size;
        if (size > width)
            for (cut = width; cut && text[cut] != ' '; cut--)
                ;
        if (cut == 0) /* one long word */
            cut = strcspn(text, " ");
        (void)fprintf(to, "# %.*s\n", (int)cut, text);
        text += cut;
        text += strspn(text, " ");
    }
}

void cordon_settings_sample(FILE *to)
{
    (void)fputs(
        "# Settings of cordon serve: one NAME=VALUE a line. All stand here with their defaults, commented out.\n"
        "# cordon.conf(5), `cordon config explain NAME`; after a change: systemctl restart cordon\n",
        to);
    for (size_t id = 0; id < CORDON_SET__COUNT; id++) {
        const struct cordon_setting_row *row = &cordon_setting_rows[id];
        (void)fputc('\n', to);
        put_comment(row->help, 110, to);
        if (row->type == CORDON_SETTING_INT)
            (void)fprintf(to, "# (%lld to %lld%s%s)\n", (long long)row->min, (long long)row->max, *row->unit ? " " : "",
                          row->unit);
        (void)fprintf(to, "#%s=%s\n", row->name, row->fallback);
    }
}
