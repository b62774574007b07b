/* SPDX-License-Identifier: Apache-2.0 */
/* The settings' file and environment: the input is a file; its lines with a = are also an environment and flags. */
#include "fuzz.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "core/settings.h"

enum { PAIRS_MAX = 64 };

static void need(int truth)
{
    if (!truth)
        abort();
}

static void look_at(struct cordon_settings *settings)
{
    static FILE *nowhere;
    if (!nowhere)
        nowhere = fopen("/dev/null", "w");
    need(nowhere != NULL);
    cordon_settings_show(settings, NULL, true, nowhere);
    cordon_settings_show(settings, "/x", false, nowhere);
    for (size_t i = 0; cordon_settings_warning(settings, i); i++)
        need(*cordon_settings_warning(settings, i));
    for (int door = 0; door < CORDON_DOOR__COUNT; door++) {
        int64_t timeout_s = cordon_settings_int(settings, (enum cordon_door)door, CORDON_SET_TIMEOUT_S);
        need(timeout_s >= 1 && timeout_s <= 86400);
        need(*cordon_settings_string(settings, (enum cordon_door)door, CORDON_SET_BACKEND));
    }
    cordon_settings_free(settings);
}

static void load(const char *file, const char *const *environ_pairs, const char *const *flags)
{
    struct cordon_settings *settings = NULL;
    struct cordon_error err = {0};
    struct cordon_settings_input input = {.environ = environ_pairs, .file = file, .flags = flags};
    if (cordon_settings_load(&input, &settings, &err) == 0)
        look_at(settings);
    else
        need(err.code < 0 && *err.message && !settings);
}

static void load_as_file(const uint8_t *data, size_t size)
{
    static const char *const none[] = {NULL};
    char path[64];
    int fd = memfd_create("settings", MFD_CLOEXEC);
    need(fd >= 0 && write(fd, data, size) == (ssize_t)size);
    (void)snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    load(path, none, NULL);
    close(fd);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const char *const none[] = {NULL};
    const char *pairs[PAIRS_MAX + 1];
    size_t count = 0;
    char *text = malloc(size + 1), *rest = text;
    need(text != NULL);
    memcpy(text, data, size);
    text[size] = '\0';
    load_as_file(data, size);
    for (char *line; count < PAIRS_MAX && (line = strsep(&rest, "\n"));)
        pairs[count++] = line;
    pairs[count] = NULL;
    load(NULL, pairs, NULL);
    load(NULL, none, pairs);
    free(text);
    return 0;
}
