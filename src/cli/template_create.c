/* SPDX-License-Identifier: Apache-2.0 */
/* Making a template's file: nothing of it has a name before all of it is there, tried and on disk. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/fd.h"
#include "cli/template.h"
#include "isolate/base.h"
#include "supervisor/state.h"

#define NOBODY 65534

static int drop(const void *unused)
{
    (void)unused;
    if (geteuid() != 0)
        return 0;
    return setresgid(NOBODY, NOBODY, NOBODY) < 0 || setresuid(NOBODY, NOBODY, NOBODY) < 0 ? -errno : 0;
}

static int add_lines(char *recipe, size_t size, const char *kind, const struct cordon_packages *packages,
                     struct cordon_error *err)
{
    for (size_t i = 0; i < packages->count; i++) {
        size_t used = strlen(recipe);
        int n = snprintf(recipe + used, size - used, "%s %s\n", kind, packages->items[i]);
        if (n < 0 || (size_t)n >= size - used)
            return cordon_fail(err, -E2BIG, CORDON_ERROR_INVALID, "the names of the packages have more than %zu bytes",
                               size - 1);
    }
    return 0;
}

static int describe(const struct cordon_settings *settings, const struct cordon_template_plan *plan,
                    struct cordon_template_header *header, struct cordon_error *err)
{
    bool python = plan->pip.count || (plan->from && strcmp(plan->from, "python") == 0);
    bool node = plan->npm.count || (plan->from && strcmp(plan->from, "javascript") == 0);
    const struct cordon_base_question question = {
        .python = python ? cordon_settings_string(settings, CORDON_DOOR_NATIVE, CORDON_SET_PYTHON) : NULL,
        .node = node ? cordon_settings_string(settings, CORDON_DOOR_NATIVE, CORDON_SET_NODE) : NULL,
        .drop = drop};
    memcpy(header->magic, CORDON_TEMPLATE_MAGIC, sizeof CORDON_TEMPLATE_MAGIC);
    header->version = CORDON_TEMPLATE_VERSION;
    header->created_s = (int64_t)time(NULL);
    header->kind = plan->import ? CORDON_TEMPLATE_ROOTFS : CORDON_TEMPLATE_LAYER;
    int r = 0;
    if (plan->import) {
        const char *slash = strrchr(plan->import, '/');
        (void)snprintf(header->recipe, sizeof header->recipe, "import %.255s\n",
                       slash ? slash + 1 : plan->import); /* fits */
    } else {
        (void)snprintf(header->from, sizeof header->from, "%s", plan->from); /* fits: one of three */
        r = add_lines(header->recipe, sizeof header->recipe, "pip", &plan->pip, err);
        if (r == 0)
            r = add_lines(header->recipe, sizeof header->recipe, "npm", &plan->npm, err);
        if (r == 0)
            r = cordon_base_describe(&question, header->base, sizeof header->base, err);
    }
    return r < 0 ? r : cordon_template_header_key(header, err);
}

/* 1: one of the same is there; 0: none is, or it is to be replaced. */
static int look_at_old(int folder, const struct cordon_template_plan *plan, const struct cordon_template_header *header,
                       struct cordon_error *err)
{
    static struct cordon_template_header old;
    cordon_autoclose int file = cordon_template_file_open(folder, plan->name, err);
    if (file == -ENOENT || plan->replace)
        return 0;
    if (file < 0)
        return file;
    bool same = !plan->import && cordon_template_file_header(file, &old, NULL) == 0 &&
                memcmp(old.key, header->key, sizeof old.key) == 0 && cordon_template_file_verify(file, &old, NULL) == 0;
    if (same)
        return 1;
    return cordon_fail(err, -EEXIST, CORDON_ERROR_CONFLICT,
                       "template %s is there, made of something else: --replace makes it anew, rm removes it",
                       plan->name);
}

static int copy_archive(const char *path, int file, uint64_t most, uint64_t *bytes, struct cordon_error *err)
{
    bool own = strcmp(path, "-") == 0;
    cordon_autoclose int opened = own ? -1 : open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY);
    int from = own ? STDIN_FILENO : opened;
    cordon_autofree char *piece = malloc(1u << 18);
    if (from < 0 || !piece)
        return cordon_fail(err, -errno, CORDON_ERROR_INVALID, "--import %.200s: %s", path, strerror(errno));
    for (*bytes = 0;;) {
        ssize_t n = read(from, piece, 1u << 18);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return cordon_fail(err, -errno, CORDON_ERROR_INVALID, "--import %.200s: %s", path, strerror(errno));
        if (n == 0)
            break;
        if ((uint64_t)n > most - *bytes)
            return cordon_fail(err, -EFBIG, CORDON_ERROR_TOO_LARGE,
                               "--import %.200s: larger than CORDON_TEMPLATE_MB allows", path);
        if (pwrite(file, piece, (size_t)n, (off_t)(CORDON_TEMPLATE_PAYLOAD + *bytes)) != n)
            return cordon_fail_errno(err, -errno, "write the template's file");
        *bytes += (uint64_t)n;
    }
    return *bytes ? 0 : cordon_fail(err, -EINVAL, CORDON_ERROR_INVALID, "--import %.200s: it is empty", path);
}

/* One rename, or one link where there was none: whoever opens the name has the old file or the new one, whole. */
static int publish(int folder, int file, const struct cordon_template_plan *plan, struct cordon_error *err)
{
    char path[64], name[80], fresh[96];
    (void)snprintf(path, sizeof path, "/proc/self/fd/%d", file); /* all fit */
    (void)snprintf(name, sizeof name, "%s" CORDON_TEMPLATE_ENDING, plan->name);
    (void)snprintf(fresh, sizeof fresh, ".%s.new", plan->name);
    int r = linkat(AT_FDCWD, path, folder, name, AT_SYMLINK_FOLLOW) < 0 ? -errno : 0;
    if (r == -EEXIST && plan->replace) {
        (void)unlinkat(folder, fresh, 0); /* of a command that was killed between the two steps below */
        r = linkat(AT_FDCWD, path, folder, fresh, AT_SYMLINK_FOLLOW) < 0 ? -errno : 0;
        if (r == 0 && renameat(folder, fresh, folder, name) < 0)
            r = -errno;
    }
    if (r == 0 && fsync(folder) < 0)
        r = -errno;
    return r < 0 ? cordon_fail_errno(err, r, "publish template %s", plan->name) : 0;
}

static int make(const struct cordon_settings *settings, const struct cordon_template_plan *plan, int folder,
                struct cordon_template_header *header, struct cordon_error *err)
{
    uint64_t most = (uint64_t)cordon_settings_int(settings, CORDON_DOOR_NATIVE, CORDON_SET_TEMPLATE_MB) << 20;
    mode_t mask = umask(022);
    cordon_autoclose int file = openat(folder, ".", O_TMPFILE | O_RDWR | O_CLOEXEC, 0644);
    (void)umask(mask);
    if (file < 0)
        return cordon_fail_errno(err, -errno, "make a file in the folder of templates");
    int r =
        ftruncate(file, CORDON_TEMPLATE_PAYLOAD) < 0 ? cordon_fail_errno(err, -errno, "write the template's file") : 0;
    if (r == 0)
        r = plan->import ? copy_archive(plan->import, file, most, &header->payload_bytes, err)
                         : cordon_template_build(settings, plan, file, &header->payload_bytes, err);
    if (r == 0)
        r = cordon_template_file_seal(file, header, err);
    if (r == 0)
        r = cordon_template_try(settings, plan, file, err);
    return r < 0 ? r : publish(folder, file, plan, err);
}

int cordon_template_create(const struct cordon_settings *settings, const struct cordon_template_plan *plan,
                           struct cordon_error *err)
{
    static struct cordon_template_header header;
    struct cordon_state state = {.fd = -1};
    int r = cordon_state_open(settings, &state, err);
    if (r < 0)
        return r;
    mode_t mask = umask(022);
    if (mkdirat(state.fd, &CORDON_TEMPLATES_FOLDER[1], 0755) < 0 && errno != EEXIST)
        r = cordon_fail_errno(err, -errno, "make the folder of templates in %.300s", state.path);
    (void)umask(mask);
    cordon_autoclose int folder = r < 0 ? -1 : cordon_template_folder_open(state.fd, &CORDON_TEMPLATES_FOLDER[1], err);
    if (r == 0 && folder < 0)
        r = folder;
    if (r == 0)
        r = describe(settings, plan, &header, err);
    if (r == 0)
        r = look_at_old(folder, plan, &header, err);
    if (r == 0)
        r = make(settings, plan, folder, &header, err);
    cordon_state_close(&state);
    return r;
}
