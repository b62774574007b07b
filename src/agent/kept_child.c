/* SPDX-License-Identifier: Apache-2.0 */
#include "agent/kept_child.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "isolate/root.h"

/* Where what is installed for one user goes, for each installer; and what tells Debian's pip that this is wanted. */
static const struct {
    const char *name;
    bool home; /* before the rest stands the home */
    const char *rest;
} usual[] = {
    {"HOME", true, ""},
    {"PATH", true, "/.local/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"},
    {"LANG", false, "C.UTF-8"},
    {"SHELL", false, "/bin/bash"},
    {"PIP_BREAK_SYSTEM_PACKAGES", false, "1"},
    {"PIP_DISABLE_PIP_VERSION_CHECK", false, "1"},
    {"NPM_CONFIG_PREFIX", true, "/.local"},
    {"NODE_PATH", true, "/.local/lib/node_modules:" CORDON_ROOT_NODE_PATH},
};
#define USUAL (sizeof usual / sizeof *usual)

/* "user" (also empty) or "root": 0 or -EINVAL. */
static int take_user(const struct cordon_agent_config *config, const struct cordon_field *user, uid_t *uid,
                     const char **home)
{
    static const char root[] = "root", code[] = "user";
    *uid = config->code_uid;
    *home = config->workdir;
    if (!user->data || (user->length == sizeof code - 1 && memcmp(user->data, code, user->length) == 0))
        return 0;
    if (user->length != sizeof root - 1 || memcmp(user->data, root, user->length) != 0 || !config->isolated)
        return -EINVAL;
    *uid = 0;
    *home = CORDON_ROOT_ROOT_HOME;
    return 0;
}

static char *copy(const struct cordon_field *field)
{
    return memchr(field->data, '\0', field->length) ? NULL : strndup(field->data, field->length);
}

static size_t name_size(const char *text)
{
    return strcspn(text, "=") + 1;
}

/* A later one of the same name counts. */
static void set_env(struct cordon_child *child, size_t *count, char *text)
{
    size_t size = name_size(text);
    for (size_t i = 0; i < *count; i++) {
        if (strncmp(child->env[i], text, size) != 0)
            continue;
        child->env[i] = text;
        return;
    }
    child->env[(*count)++] = text;
}

static int usual_env(struct cordon_child *child, size_t *count)
{
    char *text;
    for (size_t i = 0; i < USUAL; i++) {
        if (asprintf(&text, "%s=%s%s", usual[i].name, usual[i].home ? child->home : "", usual[i].rest) < 0)
            return -ENOMEM;
        set_env(child, count, text);
    }
    const char *name = child->uid ? "user" : "root";
    for (int i = 0; i < 2; i++) {
        if (asprintf(&text, "%s=%s", i ? "LOGNAME" : "USER", name) < 0)
            return -ENOMEM;
        set_env(child, count, text);
    }
    return 0;
}

static int read_cwd(struct cordon_child *child, const struct cordon_field *cwd)
{
    if (!cwd->data || cwd->length == 0) {
        child->cwd = strdup(child->home);
        return child->cwd ? 0 : -ENOMEM;
    }
    char *text = copy(cwd);
    if (!text)
        return -EINVAL;
    if (*text == '/') {
        child->cwd = text;
        return 0;
    }
    int n = asprintf(&child->cwd, "%s/%s", child->home, text);
    free(text);
    return n < 0 ? -ENOMEM : 0;
}

static int read_lists(struct cordon_child *child, const char *payload, size_t size, size_t *env_count)
{
    struct cordon_field field;
    size_t at = 0, argc = 0;
    while (cordon_field_next(payload, size, &at, &field) == 1) {
        if (field.tag != CORDON_FIELD_ARGUMENT && field.tag != CORDON_FIELD_ENV)
            continue;
        char *text = copy(&field);
        if (!text)
            return -EINVAL;
        if (field.tag == CORDON_FIELD_ARGUMENT)
            child->argv[argc++] = text;
        else if (strchr(text, '='))
            set_env(child, env_count, text);
    }
    child->argv[argc] = NULL;
    child->env[*env_count] = NULL;
    return 0;
}

int cordon_child_read(const struct cordon_agent_config *config, const char *payload, size_t size,
                      struct cordon_child *ret)
{
    struct cordon_open open;
    size_t env_count = 0;
    *ret = (struct cordon_child){0};
    int r = cordon_open_parse(payload, size, &open);
    if (r == 0)
        r = take_user(config, &open.user, &ret->uid, &ret->home);
    if (r < 0 || open.kind != CORDON_OP_EXEC)
        return r;
    if (open.arguments == 0)
        return -EINVAL;
    ret->argv = calloc(open.arguments + 1, sizeof *ret->argv);
    ret->env = calloc(open.environment + USUAL + 3, sizeof *ret->env);
    if (!ret->argv || !ret->env)
        return -ENOMEM;
    r = usual_env(ret, &env_count);
    if (r == 0)
        r = read_cwd(ret, &open.cwd);
    return r < 0 ? r : read_lists(ret, payload, size, &env_count);
}

int cordon_child_exec(const struct cordon_child *child, const char **stage)
{
    *stage = "entering the working directory";
    if (chdir(child->cwd) < 0)
        return -errno;
    *stage = "executing the program";
    environ = child->env; /* execvp looks in the PATH that is there */
    (void)execvp(child->argv[0], child->argv);
    return -errno;
}
