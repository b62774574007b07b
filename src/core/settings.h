/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The settings: one table (settings.def) gives parsing, bounds, `config show`, the man page and the admin form.
 *
 * A row has a native name (CORDON_*) and aliases: the documented names of the systems that Cordon stands in for. An
 * alias has its own unit, bounds and default, and steers its system's door only. Two names of one row that are both
 * set and mean different values stop the start, naming both. Order for the native value: flag, environment, stored
 * (admin), file, default. Loaded once at start and shared by all threads; what an admin stores later takes the place
 * of the runtime-scope values in one step (cordon_settings_store), for whoever asks from then on.
 */
#ifndef CORDON_CORE_SETTINGS_H
#define CORDON_CORE_SETTINGS_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include "base/error.h"

enum cordon_setting_type { CORDON_SETTING_STRING, CORDON_SETTING_INT, CORDON_SETTING_BOOL, CORDON_SETTING_LIST };
enum cordon_setting_scope { CORDON_SCOPE_DEPLOYMENT, CORDON_SCOPE_RUNTIME };
enum cordon_setting_source {
    CORDON_SOURCE_DEFAULT,
    CORDON_SOURCE_FILE,
    CORDON_SOURCE_STORED,
    CORDON_SOURCE_ENVIRONMENT,
    CORDON_SOURCE_FLAG
};

enum cordon_door {
    CORDON_DOOR_NATIVE,
    CORDON_DOOR_LANGFLOW,
    CORDON_DOOR_EXECUTOR_MANAGER,
    CORDON_DOOR_CREATEOS,
    CORDON_DOOR_E2B,
    CORDON_DOOR__COUNT
};

/* X(ID, env name, type, default text, min, max, unit, scope, secret, help) */
enum cordon_setting {
#define CORDON_SETTING(id, ...) CORDON_SET_##id,
#include "core/settings.def"
#undef CORDON_SETTING
    CORDON_SET__COUNT
};

struct cordon_settings; /* opaque */

struct cordon_settings_input {
    const char *const *environ; /* NULL-terminated NAME=VALUE; NULL: the process's, which loses CORDON_SECRET_KEY */
    const char *file;           /* path or NULL */
    const char *const *flags;   /* NULL-terminated NAME=VALUE given on the command line; NULL: none */
};
int cordon_settings_load(const struct cordon_settings_input *input, struct cordon_settings **ret,
                         struct cordon_error *err);
void cordon_settings_free(struct cordon_settings *settings);

/* Puts stored values (NULL-terminated NAME=VALUE, any of a row's names) over file and defaults, and under environment
 * and flags; all that was stored before is replaced. Either all of it is taken or, with err, none: INVALID for a bad
 * value, an unknown name, a setting of deployment scope. Values that were handed out stay valid until settings are
 * freed. Callers take turns by themselves. */
int cordon_settings_store(struct cordon_settings *settings, const char *const *stored, struct cordon_error *err);
/* The same for the calling thread alone, until _trial_end: what a form says before it is saved. Texts that were read
 * meanwhile are not valid afterwards. */
int cordon_settings_trial_begin(const struct cordon_settings *settings, const char *const *stored,
                                struct cordon_error *err);
void cordon_settings_trial_end(void);
/* Another one whenever values may be others for the calling thread: what was found out with some settings is known for
 * these only. */
uint64_t cordon_settings_serial(const struct cordon_settings *settings);

/* One row as it is now, for the admin page. Texts are the table's or the settings', or are in value. */
struct cordon_setting_view {
    const char *name, *help, *unit, *fallback, *alias; /* alias: the name that set it, where it is not the row's */
    enum cordon_setting_type type;
    enum cordon_setting_scope scope;
    enum cordon_setting_source source;
    bool secret, set; /* set: by any name, anywhere */
    int64_t min, max;
    char value[1024]; /* of a secret: "" */
};
/* The i-th row; false at the end. */
bool cordon_settings_view(const struct cordon_settings *settings, size_t i, struct cordon_setting_view *ret);
/* The row that a name (native or alias) belongs to; false: none. native: its CORDON_ name; secret: as the row says. */
bool cordon_settings_row(const char *name, const char **native, bool *secret);
/* The i-th thing that whoever loaded should log at level warn (a value that fell back as its system documents, a name
 * that looks like a misspelt one); NULL at the end. */
const char *cordon_settings_warning(const struct cordon_settings *settings, size_t i);

/* Values as a door sees them (alias set > native set > the alias's own default > native default). */
int64_t cordon_settings_int(const struct cordon_settings *settings, enum cordon_door door, enum cordon_setting id);
bool cordon_settings_bool(const struct cordon_settings *settings, enum cordon_door door, enum cordon_setting id);
const char *cordon_settings_string(const struct cordon_settings *settings, enum cordon_door door,
                                   enum cordon_setting id);
/* LIST values: comma separated, trimmed, blanks dropped; the i-th entry or NULL. */
const char *cordon_settings_item(const struct cordon_settings *settings, enum cordon_door door, enum cordon_setting id,
                                 size_t i);
/* The name that an error should show for this door (the alias where one exists, else the native name). */
const char *cordon_settings_name(enum cordon_door door, enum cordon_setting id);
/* The name by which the environment gave the setting its native value; NULL: it came from elsewhere. */
const char *cordon_settings_environment(const struct cordon_settings *settings, enum cordon_setting id);
enum cordon_setting_source cordon_settings_source(const struct cordon_settings *settings, enum cordon_setting id);

/* `cordon config show [--json]`, `cordon config explain NAME`, and the man page's section (mandoc/scdoc text). state:
 * the folder in use, shown where CORDON_STATE names none; may be NULL. */
void cordon_settings_show(const struct cordon_settings *settings, const char *state, bool json, FILE *to);
int cordon_settings_explain(const struct cordon_settings *settings, const char *name, FILE *to,
                            struct cordon_error *err);
void cordon_settings_document(FILE *to);
void cordon_settings_sample(FILE *to); /* a settings file with everything commented out */

#endif
