/* SPDX-License-Identifier: Apache-2.0 */
/* Which plugins there are, and which of them may be loaded. Manifests are read, nothing is opened as code. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/error.h"
#include "base/fd.h"
#include "base/log.h"
#include "core/registry.h"
#include "plugin/manifest.h"
#include "plugin/plugin.h"

#define CANDIDATES 64
#define ENDING ".plugin"

struct candidate {
    struct cordon_manifest manifest;
    char folder[3600];
};

struct finding {
    const struct cordon_settings *settings;
    struct candidate *list;
    size_t count;
};

static bool listed(const struct cordon_settings *settings, const char *name)
{
    const char *item;
    for (size_t i = 0; (item = cordon_settings_item(settings, CORDON_DOOR_NATIVE, CORDON_SET_BACKEND_PLUGINS, i)); i++)
        if (strcmp(item, name) == 0)
            return true;
    return false;
}

/* Can nobody but root, or us, change it? */
static bool is_safe(const struct stat *found)
{
    return (found->st_uid == 0 || found->st_uid == geteuid()) && !(found->st_mode & (S_IWGRP | S_IWOTH));
}

static void skip(const char *path, const char *why)
{
    cordon_log(CORDON_LOG_WARN, "a plugin is skipped", "file", path, "why", why, NULL);
}

static void read_manifest(struct finding *self, int folder, const char *folder_path, const char *name)
{
    char path[PATH_MAX], text[CORDON_MANIFEST_MAX + 1], fault[160];
    struct stat found;
    (void)snprintf(path, sizeof path, "%.3600s/%.255s", folder_path, name); /* fits */
    cordon_autoclose int fd = openat(folder, name, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    if (fd < 0 || fstat(fd, &found) < 0) {
        skip(path, errno == ELOOP ? "it is a link" : strerror(errno));
        return;
    }
    if (!S_ISREG(found.st_mode) || !is_safe(&found)) {
        skip(path,
             "it must be a regular file that belongs to root (or to who starts this) and that nobody else can write");
        return;
    }
    ssize_t size = found.st_size <= (off_t)CORDON_MANIFEST_MAX ? pread(fd, text, CORDON_MANIFEST_MAX, 0) : -1;
    if (size < 0) {
        skip(path, "it is no manifest: it is longer than 4 KiB, or can not be read");
        return;
    }
    struct candidate *candidate = &self->list[self->count];
    if (cordon_manifest_parse(text, (size_t)size, &candidate->manifest, fault) < 0) {
        skip(path, fault);
        return;
    }
    (void)snprintf(candidate->folder, sizeof candidate->folder, "%s", folder_path); /* fits: checked by the caller */
    self->count++;
}

static void read_folder(struct finding *self, const char *path)
{
    struct stat found;
    cordon_autoclose int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0 || fstat(fd, &found) < 0) {
        skip(path, strerror(errno));
        return;
    }
    if (!is_safe(&found) || strlen(path) >= sizeof self->list->folder) {
        skip(path, "the folder must belong to root (or to who starts this), and nobody else may write to it");
        return;
    }
    DIR *dir = cordon_opendir(fd);
    for (struct dirent *entry = dir ? readdir(dir) : NULL; entry && self->count < CANDIDATES; entry = readdir(dir)) {
        size_t size = strlen(entry->d_name), end = sizeof ENDING - 1;
        if (size > end && strcmp(entry->d_name + size - end, ENDING) == 0)
            read_manifest(self, fd, path, entry->d_name);
    }
    if (dir)
        (void)closedir(dir); /* read only */
}

static int by_distribution(const void *a, const void *b)
{
    return strcmp(((const struct candidate *)a)->manifest.distribution,
                  ((const struct candidate *)b)->manifest.distribution);
}

static void warn_duplicates(const struct finding *self, const char *name)
{
    char all[1024] = "";
    size_t used = 0;
    for (size_t i = 0; i < self->count && used < sizeof all; i++)
        if (strcmp(self->list[i].manifest.name, name) == 0)
            used += (size_t)snprintf(all + used, sizeof all - used, "%s%s", used ? ", " : "",
                                     self->list[i].manifest.distribution);
    cordon_log(CORDON_LOG_WARN, "several plugins claim one name, none of them is loaded: uninstall all but one", "name",
               name, "distributions", all, NULL);
}

/* Is this the first of those that claim its name; *count: how many they are. */
static bool is_first(const struct finding *self, size_t at, size_t *count)
{
    const char *name = self->list[at].manifest.name;
    bool first = true;
    *count = 0;
    for (size_t i = 0; i < self->count; i++) {
        if (strcmp(self->list[i].manifest.name, name) != 0)
            continue;
        first = first && i >= at;
        ++*count;
    }
    return first;
}

static const char *check_library(const struct candidate *candidate, struct cordon_plugin_found *to)
{
    struct stat file, folder;
    const char *library = candidate->manifest.library;
    char parent[sizeof to->library];
    if (*library == '/')
        (void)snprintf(to->library, sizeof to->library, "%s", library); /* both fit */
    else
        (void)snprintf(to->library, sizeof to->library, "%s/%s", candidate->folder, library);
    memcpy(parent, to->library, sizeof parent);
    *strrchr(parent, '/') = '\0'; /* there is one */
    if (lstat(to->library, &file) < 0)
        return strerror(errno);
    if (S_ISLNK(file.st_mode))
        return "its library is a link";
    if (!S_ISREG(file.st_mode) || !is_safe(&file))
        return "its library must be a regular file that belongs to root (or to who starts this) and that nobody else "
               "can write";
    if (stat(*parent ? parent : "/", &folder) < 0 || !is_safe(&folder))
        return "the folder of its library must belong to root (or to who starts this), and nobody else may write to it";
    return NULL;
}

static bool is_builtin(const char *name)
{
    const struct cordon_backend *backend;
    return strcmp(name, "none") == 0 || cordon_registry_find(name, "plugin", &backend, NULL) == 0;
}

/* The rules in their order. */
static bool admit(const struct finding *self, size_t at, struct cordon_plugin_found *to)
{
    const struct candidate *candidate = &self->list[at];
    const struct cordon_manifest *manifest = &candidate->manifest;
    size_t count;
    if (!is_first(self, at, &count))
        return false;
    if (!listed(self->settings, manifest->name)) {
        cordon_log(CORDON_LOG_DEBUG, "a plugin is not listed and not loaded", "name", manifest->name, "distribution",
                   manifest->distribution, NULL);
        return false;
    }
    if (count > 1) {
        warn_duplicates(self, manifest->name);
        return false;
    }
    if (is_builtin(manifest->name)) {
        cordon_log(CORDON_LOG_WARN, "a plugin claims the name of a built-in backend and is not loaded", "name",
                   manifest->name, "distribution", manifest->distribution, NULL);
        return false;
    }
    char fault[160] = "";
    if (manifest->abi != CORDON_ABI_VERSION)
        (void)snprintf(fault, sizeof fault, "it was built for version %u of the interface, this program has %u",
                       manifest->abi, CORDON_ABI_VERSION); /* fits */
    const char *why = *fault ? fault : check_library(candidate, to);
    if (why) {
        cordon_log(CORDON_LOG_WARN, "a plugin is skipped", "name", manifest->name, "distribution",
                   manifest->distribution, "why", why, NULL);
        return false;
    }
    (void)snprintf(to->name, sizeof to->name, "%s", manifest->name); /* same sizes */
    (void)snprintf(to->distribution, sizeof to->distribution, "%s", manifest->distribution);
    return true;
}

size_t cordon_plugins_find(const struct cordon_settings *settings, struct cordon_plugin_found *to, size_t max)
{
    struct finding self = {.settings = settings};
    const char *path;
    size_t count = 0;
    if (!cordon_settings_item(settings, CORDON_DOOR_NATIVE, CORDON_SET_BACKEND_PLUGINS, 0))
        return 0; /* nothing is looked at */
    self.list = calloc(CANDIDATES, sizeof *self.list);
    for (size_t i = 0;
         self.list && (path = cordon_settings_item(settings, CORDON_DOOR_NATIVE, CORDON_SET_PLUGIN_DIRS, i)); i++)
        read_folder(&self, path);
    if (self.list && !cordon_settings_item(settings, CORDON_DOOR_NATIVE, CORDON_SET_PLUGIN_DIRS, 0))
        read_folder(&self, CORDON_PLUGIN_FOLDER);
    if (self.list)
        qsort(self.list, self.count, sizeof *self.list, by_distribution);
    for (size_t i = 0; i < self.count && count < max; i++)
        count += admit(&self, i, &to[count]);
    free(self.list);
    return count;
}
