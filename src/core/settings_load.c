/* SPDX-License-Identifier: Apache-2.0 */
/* Loading: file, then environment, then flags, each over the one before; then what must agree is compared. */
#include "core/settings_table.h"

#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/json.h"
#include "base/log.h"
#include "base/secret.h"
#include "base/secret_key.h"

#define FILE_MAX (1u << 20)

extern char **environ;

/* Internals that pass between our own processes, and what belongs to tests and tools around the daemon. */
static const char *const ignored_exact[] = {"CORDON_LISTEN_FDS", "SANDBOX_EXECUTOR_MANAGER_PORT", NULL};
static const char *const ignored_prefix[] = {"CORDON_TEST_", "CORDON_BENCH_", "CORDON_DEV_", NULL};

static void warn(struct cordon_settings *settings, const char *fmt, ...) CORDON_PRINTF(2, 3);
static void warn(struct cordon_settings *settings, const char *fmt, ...)
{
    char *text = NULL;
    va_list ap;
    if (settings->warning_count == CORDON_WARNINGS_MAX)
        return; /* the first ones tell enough */
    va_start(ap, fmt);
    int n = vasprintf(&text, fmt, ap);
    va_end(ap);
    if (n >= 0)
        settings->warnings[settings->warning_count++] = text;
}

static const char *origin_text(const struct cordon_setting_origin *origin, char to[320])
{
    static const char *const texts[] = {"the default", "the configuration file", "the stored settings",
                                        "the environment", "the command line"};
    if (origin->line)
        (void)snprintf(to, 320, "line %d of %.250s", origin->line, origin->file);
    else
        (void)snprintf(to, 320, "%s", texts[origin->source]);
    return to;
}

int cordon_settings_set_slot(struct cordon_settings *settings, size_t slot, const char *text,
                             const struct cordon_setting_origin *origin, struct cordon_error *err)
{
    char needed[160] = "", where[320];
    struct cordon_setting_slot *to = &settings->slots[slot];
    struct cordon_setting_value value = {0};
    bool secret = cordon_setting_rows[cordon_slot_setting(slot)].secret;
    int r = cordon_setting_read(slot, text, &value, needed);
    if (r == -ENOMEM)
        return cordon_fail_errno(err, r, "read the settings");
    if (r < 0)
        return cordon_fail(err, r, CORDON_ERROR_INVALID, "%s is \"%.100s\" (%s): %s", cordon_slot_name(slot),
                           secret ? "(hidden)" : text, origin_text(origin, where), needed);
    if (r > 0)
        warn(settings, "%s is \"%.100s\" (%s), which is not of its form; taken as %s, as its system documents",
             cordon_slot_name(slot), text, origin_text(origin, where), cordon_slot_fallback(slot));
    cordon_setting_value_done(&to->value);
    *to = (struct cordon_setting_slot){.set = true, .source = origin->source, .line = origin->line, .value = value};
    return 0;
}

/* A name may be an alias of several rows: all are set. Returns how many, or negative. */
static int set_name(struct cordon_settings *settings, const char *name, const char *text, bool short_names,
                    const struct cordon_setting_origin *origin, struct cordon_error *err)
{
    int count = 0;
    size_t slot = cordon_slot_find(name, 0, short_names);
    for (; slot < CORDON_SLOT_COUNT; slot = cordon_slot_find(name, slot + 1, short_names), count++) {
        int r = cordon_settings_set_slot(settings, slot, text, origin, err);
        if (r < 0)
            return r;
    }
    return count;
}

int cordon_settings_unknown(const char *name, const struct cordon_setting_origin *origin, struct cordon_error *err)
{
    char where[320];
    const char *near = cordon_slot_near(name);
    return cordon_fail(err, -EINVAL, CORDON_ERROR_INVALID, "%.80s (%s) is no setting%s%s%s", name,
                       origin_text(origin, where), near ? "; was " : "; `cordon config show` lists them",
                       near ? near : "", near ? " meant?" : "");
}

bool cordon_settings_split(const char *pair, char name[CORDON_SETTING_NAME_SIZE], const char **text)
{
    const char *equals = strchr(pair, '=');
    if (!equals || (size_t)(equals - pair) >= CORDON_SETTING_NAME_SIZE)
        return false;
    memcpy(name, pair, (size_t)(equals - pair));
    name[equals - pair] = '\0';
    *text = equals + 1;
    return true;
}

static bool ignored(const char *name)
{
    for (const char *const *p = ignored_exact; *p; p++)
        if (strcmp(*p, name) == 0)
            return true;
    for (const char *const *p = ignored_prefix; *p; p++)
        if (strncmp(*p, name, strlen(*p)) == 0)
            return true;
    return false;
}

/* Names of the systems that we stand in for belong to them: a likely misspelling is only told. */
static void warn_near(struct cordon_settings *settings, const char *name)
{
    bool theirs = !ignored(name) && (strncmp(name, "LANGFLOW_SANDBOX_", 17) == 0 || strncmp(name, "SANDBOX_", 8) == 0);
    const char *near = theirs ? cordon_slot_near(name) : NULL;
    if (near)
        warn(settings, "%s (the environment) is no setting; was %s meant?", name, near);
}

static int load_environment(struct cordon_settings *settings, const char *const *pairs, struct cordon_error *err)
{
    const struct cordon_setting_origin origin = {.source = CORDON_SOURCE_ENVIRONMENT};
    for (; *pairs; pairs++) {
        char name[CORDON_SETTING_NAME_SIZE];
        const char *text;
        if (!cordon_settings_split(*pairs, name, &text))
            continue;
        int r = set_name(settings, name, text, false, &origin, err);
        if (r < 0)
            return r;
        if (r == 0 && strncmp(name, "CORDON_", 7) == 0 && !ignored(name))
            return cordon_settings_unknown(name, &origin, err);
        if (r == 0)
            warn_near(settings, name);
    }
    return 0;
}

static int load_flags(struct cordon_settings *settings, const char *const *flags, struct cordon_error *err)
{
    const struct cordon_setting_origin origin = {.source = CORDON_SOURCE_FLAG};
    for (; *flags; flags++) {
        char name[CORDON_SETTING_NAME_SIZE];
        const char *text;
        if (!cordon_settings_split(*flags, name, &text))
            return cordon_fail(err, -EINVAL, CORDON_ERROR_INVALID, "\"%.80s\" (the command line) is not NAME=VALUE",
                               *flags);
        int r = set_name(settings, name, text, true, &origin, err);
        if (r < 0)
            return r;
        if (r == 0)
            return cordon_settings_unknown(name, &origin, err);
    }
    return 0;
}

static char *trim(char *text)
{
    while (isspace((unsigned char)*text))
        text++;
    size_t size = strlen(text);
    while (size && isspace((unsigned char)text[size - 1]))
        text[--size] = '\0';
    return text;
}

static char *unquote(char *text)
{
    size_t size = strlen(text);
    if (size < 2 || *text != '"' || text[size - 1] != '"')
        return text;
    text[size - 1] = '\0';
    return text + 1;
}

static int load_line(struct cordon_settings *settings, char *line, const struct cordon_setting_origin *origin,
                     struct cordon_error *err)
{
    char where[320];
    char *name = trim(line);
    if (!*name || *name == '#' || *name == ';')
        return 0;
    char *equals = strchr(name, '=');
    if (*name == '[' || !equals)
        return cordon_fail(err, -EINVAL, CORDON_ERROR_INVALID,
                           "%s: \"%.80s\" is not `name = value` (there are no sections; comments begin with # or ;)",
                           origin_text(origin, where), name);
    *equals = '\0';
    name = trim(name);
    size_t slot = cordon_slot_find(name, 0, true);
    if (slot == CORDON_SLOT_COUNT)
        return cordon_settings_unknown(name, origin, err);
    if (settings->slots[slot].set)
        return cordon_fail(err, -EINVAL, CORDON_ERROR_INVALID, "%s: %s was already set in line %d",
                           origin_text(origin, where), name, settings->slots[slot].line);
    int r = set_name(settings, name, unquote(trim(equals + 1)), true, origin, err);
    return r < 0 ? r : 0;
}

/* The whole file, NUL-terminated; at most FILE_MAX bytes of UTF-8 text from a regular file. */
static int read_whole(const char *path, char **ret, struct cordon_error *err)
{
    struct stat st;
    cordon_autoclose int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK);
    if (fd < 0 || fstat(fd, &st) < 0) {
        int code = -errno;
        return cordon_fail(err, code, CORDON_ERROR_INVALID, "open the configuration file %.300s: %s", path,
                           strerror(-code));
    }
    if (!S_ISREG(st.st_mode) || st.st_size > FILE_MAX)
        return cordon_fail(err, -EINVAL, CORDON_ERROR_INVALID,
                           "the configuration file %.300s is not a regular file of at most 1 MiB", path);
    cordon_autofree char *text = calloc(1, (size_t)st.st_size + 1);
    if (!text)
        return cordon_fail_errno(err, -ENOMEM, "read the configuration file");
    int r = cordon_read_full(fd, text, (size_t)st.st_size);
    if (r < 0)
        return cordon_fail(err, r, CORDON_ERROR_INVALID, "read the configuration file %.300s: %s", path, strerror(-r));
    if (memchr(text, '\0', (size_t)st.st_size) || !cordon_utf8_valid(text, (size_t)st.st_size))
        return cordon_fail(err, -EINVAL, CORDON_ERROR_INVALID, "the configuration file %.300s is not UTF-8 text", path);
    *ret = CORDON_TAKE(text);
    return 0;
}

static int load_file(struct cordon_settings *settings, const char *path, struct cordon_error *err)
{
    cordon_autofree char *text = NULL;
    struct cordon_setting_origin origin = {.source = CORDON_SOURCE_FILE, .file = path};
    int r = read_whole(path, &text, err);
    char *rest = text;
    while (r == 0 && rest) {
        char *line = strsep(&rest, "\n");
        origin.line++;
        r = load_line(settings, line, &origin, err);
    }
    return r;
}

static int set_defaults(struct cordon_settings *settings, struct cordon_error *err)
{
    for (size_t slot = 0; slot < CORDON_SLOT_COUNT; slot++) {
        char needed[160];
        const char *fallback = cordon_slot_fallback(slot);
        if (settings->slots[slot].set || !fallback)
            continue;
        int r = cordon_setting_read(slot, fallback, &settings->slots[slot].value, needed);
        if (r < 0)
            return cordon_fail(err, r, CORDON_ERROR_INFRASTRUCTURE, "the default of %s can't be read",
                               cordon_slot_name(slot));
    }
    return 0;
}

/* Which slot answers: the door's alias if set, the native value if set, the alias's default, the native default. */
static size_t effective_slot(const struct cordon_settings *settings, enum cordon_door door, enum cordon_setting id)
{
    size_t own = CORDON_SLOT_COUNT, whole = (size_t)id;
    for (size_t slot = CORDON_SET__COUNT; slot < CORDON_SLOT_COUNT; slot++) {
        const struct cordon_alias_row *alias = cordon_slot_alias(slot);
        if (alias->id != id)
            continue;
        if (alias->door == CORDON_DOOR_NATIVE)
            whole = !settings->slots[id].set && settings->slots[slot].set ? slot : whole;
        else if (alias->door == door)
            own = slot;
    }
    bool answers = own < CORDON_SLOT_COUNT && (settings->slots[own].set || cordon_slot_fallback(own));
    return !answers || (!settings->slots[own].set && settings->slots[whole].set) ? whole : own;
}

/* A name of another system's, which only fills in where nothing else was said. */
static bool gives_way(size_t slot)
{
    const struct cordon_alias_row *alias = cordon_slot_alias(slot);
    return alias && alias->form == CORDON_FORM_PORT;
}

static int compare_names(const struct cordon_settings *settings, struct cordon_error *err)
{
    for (size_t b = CORDON_SET__COUNT; b < CORDON_SLOT_COUNT; b++) {
        enum cordon_setting id = cordon_slot_setting(b);
        for (size_t a = 0; a < b; a++) {
            const struct cordon_setting_slot *left = &settings->slots[a], *right = &settings->slots[b];
            if (cordon_slot_setting(a) != id || !left->set || !right->set || gives_way(b) ||
                cordon_setting_same(id, &left->value, &right->value))
                continue;
            bool secret = cordon_setting_rows[id].secret;
            return cordon_fail(err, -EINVAL, CORDON_ERROR_INVALID,
                               "%s is \"%.100s\" and %s is \"%.100s\": they name one setting and must agree; unset one",
                               cordon_slot_name(a), secret ? "(hidden)" : left->value.text, cordon_slot_name(b),
                               secret ? "(hidden)" : right->value.text);
        }
    }
    return 0;
}

/* Systems whose documents bound their time limit by nothing: where no largest was set, theirs is the largest. */
static bool raises_ceiling(const struct cordon_settings *settings, size_t slot, enum cordon_setting ceiling)
{
    const struct cordon_alias_row *alias = cordon_slot_alias(slot);
    return ceiling == CORDON_SET_MAX_TIMEOUT_S && !settings->slots[ceiling].set && alias &&
           alias->door == CORDON_DOOR_EXECUTOR_MANAGER;
}

/* A default that the operator set beyond the largest that requests may set contradicts it. */
static int compare_ceiling(const struct cordon_settings *settings, enum cordon_setting id, enum cordon_setting ceiling,
                           struct cordon_error *err)
{
    int64_t most = settings->slots[ceiling].value.number;
    for (size_t slot = 0; slot < CORDON_SLOT_COUNT; slot++) {
        const struct cordon_setting_slot *s = &settings->slots[slot];
        if (cordon_slot_setting(slot) == id && s->set && s->value.number > most &&
            !raises_ceiling(settings, slot, ceiling))
            return cordon_fail(err, -EINVAL, CORDON_ERROR_INVALID,
                               "%s is %lld %s, more than %s allows (%lld): lower the one or raise the other",
                               cordon_slot_name(slot), (long long)s->value.number, cordon_setting_rows[id].unit,
                               cordon_setting_rows[ceiling].name, (long long)most);
    }
    return 0;
}

static int compare_rows(const struct cordon_settings *settings, struct cordon_error *err)
{
    int r = compare_ceiling(settings, CORDON_SET_TIMEOUT_S, CORDON_SET_MAX_TIMEOUT_S, err);
    if (r == 0)
        r = compare_ceiling(settings, CORDON_SET_MEMORY_MB, CORDON_SET_MAX_MEMORY_MB, err);
    bool cert = *settings->slots[CORDON_SET_TLS_CERT].value.text, key = *settings->slots[CORDON_SET_TLS_KEY].value.text;
    if (r == 0 && cert != key)
        r = cordon_fail(err, -EINVAL, CORDON_ERROR_INVALID, "%s is set and %s is not: TLS needs both",
                        cordon_slot_name(cert ? CORDON_SET_TLS_CERT : CORDON_SET_TLS_KEY),
                        cordon_slot_name(cert ? CORDON_SET_TLS_KEY : CORDON_SET_TLS_CERT));
    return r;
}

int cordon_settings_settle(struct cordon_settings *settings, struct cordon_error *err)
{
    int r = set_defaults(settings, err);
    if (r < 0)
        return r;
    for (int door = 0; door < CORDON_DOOR__COUNT; door++)
        for (int id = 0; id < CORDON_SET__COUNT; id++)
            settings->effective[door][id] =
                (uint16_t)effective_slot(settings, (enum cordon_door)door, (enum cordon_setting)id);
    r = compare_names(settings, err);
    return r < 0 ? r : compare_rows(settings, err);
}

static void free_settings(struct cordon_settings **settings)
{
    cordon_settings_free(*settings);
}

void cordon_settings_keep_secrets(const struct cordon_settings *settings)
{
    bool full = false;
    for (size_t slot = 0; slot < CORDON_SLOT_COUNT; slot++)
        if (settings->slots[slot].set && cordon_setting_rows[cordon_slot_setting(slot)].secret)
            full = cordon_secret_add(settings->slots[slot].value.text) == -ENOSPC || full; /* a short one is none */
    if (full)
        cordon_log(
            CORDON_LOG_WARN,
            "more secrets were set since the start than can be masked: new ones may show in errors and in the log",
            NULL);
}

int cordon_settings_load(const struct cordon_settings_input *input, struct cordon_settings **ret,
                         struct cordon_error *err)
{
    __attribute__((cleanup(free_settings))) struct cordon_settings *settings = calloc(1, sizeof *settings);
    if (!settings)
        return cordon_fail_errno(err, -ENOMEM, "load the settings");
    const char *const *pairs = input->environ ? input->environ : (const char *const *)environ;
    int r = input->file ? load_file(settings, input->file, err) : 0;
    if (r == 0)
        r = load_environment(settings, pairs, err);
    if (!input->environ)
        cordon_secret_key_hide();
    if (r == 0 && input->flags)
        r = load_flags(settings, input->flags, err);
    if (r == 0)
        r = cordon_settings_settle(settings, err);
    if (r < 0)
        return r;
    cordon_settings_keep_secrets(settings);
    *ret = CORDON_TAKE(settings);
    return 0;
}

static void free_version(struct cordon_settings *settings)
{
    for (size_t slot = 0; slot < CORDON_SLOT_COUNT; slot++)
        cordon_setting_value_done(&settings->slots[slot].value);
    for (size_t i = 0; i < settings->warning_count; i++)
        free(settings->warnings[i]);
    free(settings);
}

void cordon_settings_free(struct cordon_settings *settings)
{
    if (!settings)
        return;
    for (struct cordon_settings *version = settings->current; version;) {
        struct cordon_settings *older = version->older;
        free_version(version);
        version = older;
    }
    free_version(settings);
}
