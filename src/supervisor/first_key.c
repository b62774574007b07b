/* SPDX-License-Identifier: Apache-2.0 */
#include "supervisor/first_key.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/log.h"
#include "store/store.h"

/* What is printed there would be kept: a key is not. (systemd's documented test.) */
static bool output_is_journal(void)
{
    const char *stream = getenv("JOURNAL_STREAM");
    unsigned long long device, inode;
    struct stat found;
    return stream && sscanf(stream, "%llu:%llu", &device, &inode) == 2 && fstat(STDOUT_FILENO, &found) == 0 &&
           found.st_dev == device && found.st_ino == inode;
}

/* The operator said in another way who may use one of the doors. */
static bool has_other_secret(const struct cordon_settings *settings)
{
    return *cordon_settings_string(settings, CORDON_DOOR_EXECUTOR_MANAGER, CORDON_SET_EXECUTOR_TOKEN) ||
           cordon_settings_bool(settings, CORDON_DOOR_EXECUTOR_MANAGER, CORDON_SET_EXECUTOR_OPEN);
}

static int show_link(const struct cordon_settings *settings, struct cordon_store *store, struct cordon_error *err)
{
    char link[CORDON_LINK_TEXT];
    struct cordon_buf text = CORDON_BUF_INIT(4096);
    int r = cordon_link_create(store, link, err);
    if (r < 0)
        return r;
    cordon_state_link(settings, link, &text);
    (void)printf("cordon: the admin page, by a link that works once: %s\n", text.data ? text.data : "(no memory)");
    explicit_bzero(link, sizeof link);
    cordon_buf_wipe(&text);
    return 0;
}

int cordon_first_key(const struct cordon_settings *settings, struct cordon_state *state, bool loopback_only,
                     struct cordon_error *err)
{
    const char *path;
    struct cordon_store *store = NULL;
    struct cordon_key_info info;
    char key[CORDON_KEY_TEXT];
    int r = cordon_state_confine(state, &path, err);
    if (r == 0)
        r = cordon_store_open(path, &store, err);
    if (r == 0)
        r = cordon_key_count(store, err);
    if (r < 0)
        cordon_error_context(err, "%s/cordon.db", state->path);
    if (r == 0 && !loopback_only && has_other_secret(settings))
        cordon_log(CORDON_LOG_INFO, "there is no key: only the executor manager's door can be used", NULL);
    else if (r == 0 && !loopback_only)
        r = cordon_fail(
            err, -EPERM, CORDON_ERROR_INVALID,
            "listening beyond loopback needs a key, and state folder %s has none: cordon key create --state %s",
            state->path, state->path);
    else if (r == 0 && output_is_journal())
        cordon_log(CORDON_LOG_WARN, "there is no key yet: make one with `cordon key create`", "state", state->path,
                   NULL);
    else if (r == 0) {
        r = cordon_key_create(store, "first", CORDON_KEY_ADMIN, key, &info, err);
        if (r == 0)
            (void)printf("cordon: there was no key; this one is shown once: %s\n", key);
        if (r == 0)
            r = show_link(settings, store, err);
        explicit_bzero(key, sizeof key);
    }
    cordon_store_close(store);
    return r < 0 ? r : 0;
}
