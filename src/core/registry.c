/* SPDX-License-Identifier: Apache-2.0 */
/* A fixed array under one lock; entries are never removed, so pointers given out stay good. */
#include "core/registry.h"

#include <assert.h>
#include <ctype.h>
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "core/settings.h"

#define BACKENDS_MAX 32
#define NAME_SIZE 64

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct {
    char name[NAME_SIZE];
    const struct cordon_backend *backend;
    bool builtin;
} entries[BACKENDS_MAX];
static size_t count;

/* Trimmed and lower-cased; false if nothing is left or it is longer than a name can be. */
static bool spelled(const char *name, char to[NAME_SIZE])
{
    while (isspace((unsigned char)*name))
        name++;
    size_t size = strlen(name);
    while (size && isspace((unsigned char)name[size - 1]))
        size--;
    if (!size || size >= NAME_SIZE)
        return false;
    for (size_t i = 0; i < size; i++)
        to[i] = (char)tolower((unsigned char)name[i]);
    to[size] = '\0';
    return true;
}

static bool before(const char *a, const char *b)
{
    if (strcmp(a, "none") == 0 || strcmp(b, "none") == 0)
        return strcmp(b, "none") != 0;
    return strcmp(a, b) < 0;
}

/* Keeps `none` first and the others in order. The lock is held. */
static void insert(const char *name, const struct cordon_backend *backend, bool builtin)
{
    size_t at = 0;
    while (at < count && before(entries[at].name, name))
        at++;
    memmove(&entries[at + 1], &entries[at], (count - at) * sizeof *entries);
    (void)snprintf(entries[at].name, NAME_SIZE, "%s", name);
    entries[at].backend = backend;
    entries[at].builtin = builtin;
    count++;
}

void cordon_registry_setup(const struct cordon_backend *const *builtin)
{
    char name[NAME_SIZE];
    pthread_mutex_lock(&lock);
    count = 0;
    for (; *builtin; builtin++) {
        bool good = spelled((*builtin)->name, name);
        assert(good && count < BACKENDS_MAX - 1 && (*builtin)->abi_version == CORDON_ABI_VERSION);
        insert(name, *builtin, true);
    }
    pthread_mutex_unlock(&lock);
}

static size_t find_entry(const char *name)
{
    size_t i = 0;
    while (i < count && strcmp(entries[i].name, name) != 0)
        i++;
    return i;
}

static int add(const char *name, const struct cordon_backend *backend, struct cordon_error *err)
{
    size_t i = find_entry(name);
    if (strcmp(name, "none") == 0)
        return cordon_fail(err, -EINVAL, CORDON_ERROR_INVALID, "the backend name none is reserved");
    if (i < count && entries[i].builtin)
        return cordon_fail(err, -EINVAL, CORDON_ERROR_INVALID, "the backend %s is built in and can't be replaced",
                           name);
    if (i < count)
        return cordon_fail(err, -EEXIST, CORDON_ERROR_CONFLICT, "a backend %s is already registered", name);
    if (count >= BACKENDS_MAX - 1)
        return cordon_fail(err, -ENOSPC, CORDON_ERROR_CONFLICT, "the backend %s is one too many: there are %zu", name,
                           count);
    insert(name, backend, false);
    return 0;
}

int cordon_registry_add(const struct cordon_backend *backend, struct cordon_error *err)
{
    char name[NAME_SIZE];
    if (backend->abi_version != CORDON_ABI_VERSION || !backend->capabilities)
        return cordon_fail(err, -EINVAL, CORDON_ERROR_INVALID,
                           "the backend speaks version %u of the interface, this program version %u",
                           backend->abi_version, CORDON_ABI_VERSION);
    if (!backend->name || !spelled(backend->name, name))
        return cordon_fail(err, -EINVAL, CORDON_ERROR_INVALID,
                           "a backend's name can't be empty or longer than %d bytes", NAME_SIZE - 1);
    pthread_mutex_lock(&lock);
    int r = add(name, backend, err);
    pthread_mutex_unlock(&lock);
    return r;
}

/* The lock is held. */
static void known_names(char *to, size_t size)
{
    size_t used = 0;
    *to = '\0';
    for (size_t i = 0; i < count && used < size; i++)
        used += (size_t)snprintf(to + used, size - used, "%s%s", i ? ", " : "", entries[i].name);
}

int cordon_registry_find(const char *name, const char *setting_name, const struct cordon_backend **ret,
                         struct cordon_error *err)
{
    char own[NAME_SIZE] = "", known[320];
    const struct cordon_backend *found = NULL;
    bool good = spelled(name, own);
    pthread_mutex_lock(&lock);
    size_t i = find_entry(own);
    if (good && i < count)
        found = entries[i].backend;
    else
        known_names(known, sizeof known);
    pthread_mutex_unlock(&lock);
    if (!found)
        return cordon_fail(err, -EINVAL, CORDON_ERROR_INVALID,
                           "%s must name one of these backends: %s; \"%.64s\" is none of them", setting_name, known,
                           name);
    *ret = found;
    return 0;
}

/* Those of CORDON_BACKENDS, the first of which is CORDON_BACKEND where that is set, too. */
static int check_list(const struct cordon_settings *settings, struct cordon_error *err)
{
    const char *name, *usual = cordon_settings_string(settings, CORDON_DOOR_NATIVE, CORDON_SET_BACKEND);
    const struct cordon_backend *backend;
    bool set = cordon_settings_source(settings, CORDON_SET_BACKEND) != CORDON_SOURCE_DEFAULT;
    for (size_t i = 0; (name = cordon_settings_item(settings, CORDON_DOOR_NATIVE, CORDON_SET_BACKENDS, i)); i++) {
        int r = cordon_registry_find(name, "CORDON_BACKENDS", &backend, err);
        if (r < 0)
            return r;
        if (i == 0 && set && strcmp(name, usual) != 0)
            return cordon_fail(
                err, -EINVAL, CORDON_ERROR_INVALID,
                "CORDON_BACKENDS begins with %.64s and CORDON_BACKEND is %.64s: set one of them, or both the "
                "same",
                name, usual);
    }
    return 0;
}

int cordon_registry_check(const struct cordon_settings *settings, struct cordon_error *err)
{
    for (int door = 0; door < CORDON_DOOR__COUNT; door++) {
        const struct cordon_backend *backend;
        int r = cordon_registry_find(cordon_settings_string(settings, (enum cordon_door)door, CORDON_SET_BACKEND),
                                     cordon_settings_name((enum cordon_door)door, CORDON_SET_BACKEND), &backend, err);
        if (r < 0)
            return r;
    }
    return check_list(settings, err);
}

struct cordon_capabilities cordon_registry_capabilities(const struct cordon_backend *backend)
{
    struct cordon_capabilities ret = {0};
    const struct cordon_capabilities *own = backend->capabilities();
    memcpy(&ret, own, own->struct_size < sizeof ret ? own->struct_size : sizeof ret);
    return ret;
}

const struct cordon_backend *cordon_registry_at(size_t i)
{
    pthread_mutex_lock(&lock);
    const struct cordon_backend *backend = i < count ? entries[i].backend : NULL;
    pthread_mutex_unlock(&lock);
    return backend;
}

void cordon_registry_shutdown(void)
{
    const struct cordon_backend *backend;
    for (size_t i = 0; (backend = cordon_registry_at(i)); i++)
        if (backend->shutdown)
            backend->shutdown();
}
