/* SPDX-License-Identifier: Apache-2.0 */
/* What was verified: in memory, and in a file, which is written anew and put in the old one's place. */
#include "core/verify.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/log.h"
#include "core/value.h"

#define FILE_NAME "verified.json"
#define FILE_NEW "verified.json.new"
#define FILE_MAX (256u << 10)
#define BACKENDS_MAX 64u

static struct {
    pthread_mutex_t lock;
    int folder;
    struct cordon_verification list[BACKENDS_MAX];
    size_t count;
} verified = {.lock = PTHREAD_MUTEX_INITIALIZER, .folder = -1};

bool cordon_verification_differs(const struct cordon_verification *verification, enum cordon_verify_item item)
{
    return verification->items[item].declared == 1 && verification->items[item].verdict == CORDON_VERDICT_BROKEN;
}

static void write_answer(struct cordon_json *json, const char *key, int value)
{
    cordon_json_key(json, key);
    if (value < 0)
        cordon_json_null(json);
    else
        cordon_json_bool(json, value);
}

void cordon_verification_write(const struct cordon_verification *verification, struct cordon_json *json)
{
    uint64_t differences = 0;
    cordon_json_object_begin(json);
    cordon_json_key(json, "backend");
    cordon_json_text(json, verification->backend);
    cordon_json_key(json, "at");
    cordon_json_int(json, verification->at_s);
    cordon_json_key(json, "version");
    cordon_json_text(json, verification->version);
    cordon_json_key(json, "capabilities");
    cordon_json_array_begin(json);
    for (size_t i = 0; i < CORDON_VERIFY__COUNT; i++) {
        enum cordon_verdict verdict = verification->items[i].verdict;
        bool differs = cordon_verification_differs(verification, (enum cordon_verify_item)i);
        differences += differs;
        cordon_json_object_begin(json);
        cordon_json_key(json, "name");
        cordon_json_text(json, cordon_verify_item_name((enum cordon_verify_item)i));
        write_answer(json, "declared", verification->items[i].declared);
        write_answer(json, "verified", verdict == CORDON_VERDICT_UNKNOWN ? -1 : verdict == CORDON_VERDICT_HELD);
        write_answer(json, "differs", differs);
        cordon_json_key(json, "evidence");
        cordon_json_text(json, verification->items[i].evidence);
        cordon_json_object_end(json);
    }
    cordon_json_array_end(json);
    cordon_json_key(json, "differences");
    cordon_json_uint(json, differences);
    cordon_json_object_end(json);
}

/* --- reading --- */

static void read_text(const struct cordon_value *object, const char *name, char *to, size_t size)
{
    struct cordon_value value;
    if (cordon_value_member(object, name, &value))
        cordon_value_copy(&value, to, size);
}

static int read_answer(const struct cordon_value *object, const char *name)
{
    struct cordon_value value;
    if (!cordon_value_member(object, name, &value) || value.kind != CORDON_VALUE_BOOL)
        return -1;
    return cordon_value_true(&value);
}

static void read_item(const struct cordon_value *object, struct cordon_verification *to)
{
    char name[32] = "";
    read_text(object, "name", name, sizeof name);
    for (size_t i = 0; i < CORDON_VERIFY__COUNT; i++) {
        if (strcmp(cordon_verify_item_name((enum cordon_verify_item)i), name) != 0)
            continue;
        int held = read_answer(object, "verified");
        to->items[i].declared = read_answer(object, "declared");
        to->items[i].verdict = held < 0 ? CORDON_VERDICT_UNKNOWN : held ? CORDON_VERDICT_HELD : CORDON_VERDICT_BROKEN;
        read_text(object, "evidence", to->items[i].evidence, sizeof to->items[i].evidence);
    }
}

static void read_one(const struct cordon_value *object, struct cordon_verification *to)
{
    struct cordon_value list, key, item;
    *to = (struct cordon_verification){.at_s = 0};
    for (size_t i = 0; i < CORDON_VERIFY__COUNT; i++)
        to->items[i].declared = -1;
    read_text(object, "backend", to->backend, sizeof to->backend);
    read_text(object, "version", to->version, sizeof to->version);
    if (cordon_value_member(object, "at", &item))
        (void)cordon_value_integer(&item, &to->at_s); /* else it is as old as can be */
    if (!cordon_value_member(object, "capabilities", &list) || list.kind != CORDON_VALUE_ARRAY)
        return;
    struct cordon_value_walk walk = cordon_value_walk(&list);
    while (cordon_value_next(&walk, &key, &item))
        read_item(&item, to);
}

int cordon_verified_load(int folder, struct cordon_error *err)
{
    struct cordon_value root, key, item;
    cordon_autofree char *text = malloc(FILE_MAX);
    if (!text)
        return cordon_fail_errno(err, -ENOMEM, "read %s", FILE_NAME);
    (void)pthread_mutex_lock(&verified.lock); /* can't fail for a plain mutex */
    verified.folder = folder;
    verified.count = 0;
    ssize_t n = folder < 0 ? -ENOENT : cordon_read_file(folder, FILE_NAME, text, FILE_MAX);
    int r = n == -ENOENT ? 0 : n < 0 ? (int)n : cordon_value_parse(text, (size_t)n, &root, err);
    if (n > 0 && r == 0 && root.kind == CORDON_VALUE_ARRAY) {
        struct cordon_value_walk walk = cordon_value_walk(&root);
        while (verified.count < BACKENDS_MAX && cordon_value_next(&walk, &key, &item))
            read_one(&item, &verified.list[verified.count++]);
    }
    (void)pthread_mutex_unlock(&verified.lock);
    return r < 0
               ? cordon_fail(err, r, CORDON_ERROR_INVALID, "%s can not be read; remove it, and verify again", FILE_NAME)
               : 0;
}

/* --- writing --- */

static int save(void)
{
    struct cordon_buf text = CORDON_BUF_INIT(FILE_MAX - 1);
    struct cordon_json json = {.buf = &text};
    cordon_json_array_begin(&json);
    for (size_t i = 0; i < verified.count; i++)
        cordon_verification_write(&verified.list[i], &json);
    cordon_json_array_end(&json);
    int r = text.failed ? -EMSGSIZE : 0;
    cordon_autoclose int fd =
        r < 0 ? -1 : openat(verified.folder, FILE_NEW, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (r == 0)
        r = fd < 0 ? -errno : cordon_write_full(fd, text.data, text.size);
    if (r == 0 && (fsync(fd) < 0 || renameat(verified.folder, FILE_NEW, verified.folder, FILE_NAME) < 0))
        r = -errno;
    cordon_buf_done(&text);
    return r;
}

static struct cordon_verification *find(const char *backend)
{
    for (size_t i = 0; i < verified.count; i++)
        if (strcmp(verified.list[i].backend, backend) == 0)
            return &verified.list[i];
    return NULL;
}

void cordon_verified_put(const struct cordon_verification *verification)
{
    (void)pthread_mutex_lock(&verified.lock); /* can't fail for a plain mutex */
    struct cordon_verification *place = find(verification->backend);
    if (!place && verified.count < BACKENDS_MAX)
        place = &verified.list[verified.count++];
    if (place)
        *place = *verification;
    int r = place && verified.folder >= 0 ? save() : 0;
    (void)pthread_mutex_unlock(&verified.lock);
    if (r < 0)
        cordon_log(CORDON_LOG_ERROR, "what was verified could not be stored", "error", strerror(-r), NULL);
}

bool cordon_verified_get(const char *backend, struct cordon_verification *ret)
{
    (void)pthread_mutex_lock(&verified.lock); /* can't fail for a plain mutex */
    const struct cordon_verification *found = find(backend);
    if (found)
        *ret = *found;
    (void)pthread_mutex_unlock(&verified.lock);
    return found != NULL;
}
