/* SPDX-License-Identifier: Apache-2.0 */
/*
 * All contexts that this process knows of. What it does not know, since an earlier gateway made it, it finds among the
 * programs of the guest, by their tags: cell:ID:LANGUAGE[:d].
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#include "base/log.h"
#include "cells/internal.h"

#define HOME "/home/user"

static pthread_mutex_t table_lock = PTHREAD_MUTEX_INITIALIZER; /* of the list and of references */
static struct cordon_context *table;                           /* oldest first */
static unsigned contexts_max = 16;

void cordon_cells_setup(const struct cordon_settings *settings)
{
    contexts_max = (unsigned)cordon_settings_int(settings, CORDON_DOOR_NATIVE, CORDON_SET_GUEST_CONTEXTS);
}

void cordon_context_tag(const struct cordon_context *context, char tag[64])
{
    (void)snprintf(tag, 64, "cell:%s:%s%s", context->info.id, context->language->name,
                   context->info.is_default ? ":d" : ""); /* fits */
}

static int new_id(char id[CORDON_CONTEXT_ID])
{
    static const char letters[] = "abcdefghijklmnopqrstuvwxyz0123456789";
    unsigned char bytes[CORDON_CONTEXT_ID - 1];
    if (getrandom(bytes, sizeof bytes, 0) != sizeof bytes)
        return -EIO;
    for (size_t i = 0; i < sizeof bytes; i++)
        id[i] = letters[bytes[i] % 36]; /* a little uneven: 123 bits at least */
    id[sizeof bytes] = '\0';
    return 0;
}

static struct cordon_context *allocate(const char *guest, const struct cordon_cells_language *language, const char *cwd,
                                       bool is_default)
{
    struct cordon_context *context = calloc(1, sizeof *context);
    if (!context)
        return NULL;
    pthread_mutex_init(&context->lock, NULL); /* default attributes: can't fail */
    context->references = 1;                  /* the table's */
    context->language = language;
    context->info.is_default = is_default;
    context->reader = CORDON_CELL_READER_INIT;
    (void)snprintf(context->guest, sizeof context->guest, "%s", guest);
    (void)snprintf(context->info.language, sizeof context->info.language, "%s", language->name);
    (void)snprintf(context->info.cwd, sizeof context->info.cwd, "%s", cwd);
    return context;
}

/* The lock is held, but for the last reference: then nobody else can find it. */
static void release(struct cordon_context *context)
{
    cordon_guests_close(context->stream);
    cordon_cell_reader_done(&context->reader);
    pthread_mutex_destroy(&context->lock);
    free(context);
}

void cordon_context_put(struct cordon_context *context)
{
    if (!context)
        return;
    pthread_mutex_lock(&table_lock);
    bool last = --context->references == 0;
    pthread_mutex_unlock(&table_lock);
    if (last)
        release(context);
}

static void append(struct cordon_context *context)
{
    struct cordon_context **at = &table;
    while (*at)
        at = &(*at)->next;
    *at = context;
}

/* Takes it out; true when it was there. The caller drops the table's reference. */
static bool unlink_context(struct cordon_context *context)
{
    for (struct cordon_context **at = &table; *at; at = &(*at)->next) {
        if (*at != context)
            continue;
        *at = context->next;
        return true;
    }
    return false;
}

/* Takes it out of the table. */
static void forget(struct cordon_context *context)
{
    pthread_mutex_lock(&table_lock);
    bool was_there = unlink_context(context);
    pthread_mutex_unlock(&table_lock);
    pthread_mutex_lock(&context->lock);
    context->removed = true;
    pthread_mutex_unlock(&context->lock);
    if (was_there)
        cordon_context_put(context);
}

/* --- those of guests that are gone --- */

static struct cordon_context *any_of(const char *guest)
{
    struct cordon_context *found;
    for (found = table; found && strcmp(found->guest, guest) != 0;)
        found = found->next;
    if (found)
        found->references++;
    return found;
}

static void forget_guest(const char *guest)
{
    for (;;) {
        pthread_mutex_lock(&table_lock);
        struct cordon_context *context = any_of(guest);
        pthread_mutex_unlock(&table_lock);
        if (!context)
            return;
        forget(context);
        cordon_context_put(context);
    }
}

static bool is_gone(const char *guest)
{
    struct cordon_guest_info *info = NULL;
    struct cordon_error err = {0};
    bool gone = false;
    if (cordon_guests_info(cordon_guests_all, guest, &info, &err) < 0)
        gone = err.kind == CORDON_ERROR_NOT_FOUND || err.kind == CORDON_ERROR_GONE;
    else
        gone = info->condition == CORDON_GUEST_IS_GONE;
    cordon_guest_info_free(info);
    return gone;
}

/* Now and then: with each new context one that may have outlived its guest is looked at. */
static void sweep(void)
{
    static unsigned turn; /* under the lock */
    char guest[CORDON_GUEST_ID] = "";
    size_t count = 0, at = 0;
    pthread_mutex_lock(&table_lock);
    for (const struct cordon_context *context = table; context; context = context->next)
        count++;
    size_t wanted = count ? turn++ % count : 0;
    for (const struct cordon_context *context = table; context; context = context->next)
        if (at++ == wanted)
            memcpy(guest, context->guest, sizeof guest);
    pthread_mutex_unlock(&table_lock);
    if (*guest && is_gone(guest))
        forget_guest(guest);
}

/* --- those of an earlier gateway --- */

static bool parse_tag(const char *tag, char id[CORDON_CONTEXT_ID], char language[CORDON_CONTEXT_LANGUAGE],
                      bool *is_default)
{
    char flag[4] = "";
    int n = tag ? sscanf(tag, "cell:%24[a-z0-9]:%15[a-z]:%3s", id, language, flag) : 0;
    *is_default = n == 3 && strcmp(flag, "d") == 0;
    return n >= 2 && strlen(id) == CORDON_CONTEXT_ID - 1;
}

static struct cordon_context *find(const char *guest, const char *id)
{
    for (struct cordon_context *context = table; context; context = context->next)
        if (strcmp(context->guest, guest) == 0 && strcmp(context->info.id, id) == 0)
            return context;
    return NULL;
}

static void note_exec(void *guest, const struct cordon_exec_info *exec)
{
    char id[CORDON_CONTEXT_ID], name[CORDON_CONTEXT_LANGUAGE];
    bool is_default;
    if (!exec->running || !parse_tag(exec->tag, id, name, &is_default))
        return;
    const struct cordon_cells_language *language = cordon_cells_language(name);
    pthread_mutex_lock(&table_lock);
    if (language && !find(guest, id)) {
        struct cordon_context *context = allocate(guest, language, exec->cwd ? exec->cwd : HOME, is_default);
        if (context) {
            memcpy(context->info.id, id, sizeof id);
            context->started = true;
            context->pid = exec->pid;
            append(context);
        }
    }
    pthread_mutex_unlock(&table_lock);
}

/* Also tells whether the tenant has such a guest: nothing of the table is given out before. */
static int look(const char *tenant, const char *guest, struct cordon_error *err)
{
    char copy[CORDON_GUEST_ID];
    (void)snprintf(copy, sizeof copy, "%s", guest);
    struct cordon_error why = {0};
    int r = cordon_guests_execs(tenant, guest, note_exec, copy, &why);
    if (r < 0 && why.kind == CORDON_ERROR_GONE)
        forget_guest(guest);
    if (r < 0 && err)
        *err = why;
    return r < 0 ? r : 0;
}

/* Whether the guest is the tenant's. */
static int check_guest(const char *tenant, const char *guest, struct cordon_error *err)
{
    sweep();
    struct cordon_guest_info *info = NULL;
    int r = cordon_guests_info(tenant, guest, &info, err);
    if (r >= 0 && info->condition == CORDON_GUEST_IS_GONE)
        r = cordon_fail(err, -ESTALE, CORDON_ERROR_GONE, "guest %s is gone: %s", guest,
                        info->reason ? info->reason : "");
    cordon_guest_info_free(info);
    return r < 0 ? r : 0;
}

/* --- finding and making --- */

static struct cordon_context *get(const char *guest, const char *id)
{
    pthread_mutex_lock(&table_lock);
    struct cordon_context *context = find(guest, id);
    if (context)
        context->references++;
    pthread_mutex_unlock(&table_lock);
    return context;
}

int cordon_context_get(const char *tenant, const char *guest, const char *id, struct cordon_context **ret,
                       struct cordon_error *err)
{
    int r = check_guest(tenant, guest, err);
    if (r < 0)
        return r;
    *ret = get(guest, id);
    if (!*ret)
        r = look(tenant, guest, err);
    if (r == 0 && !*ret)
        *ret = get(guest, id);
    if (r == 0 && !*ret)
        r = cordon_fail(err, -ENOENT, CORDON_ERROR_NOT_FOUND, "guest %s has no context %.40s", guest, id);
    return r;
}

static struct cordon_context *get_default(const char *guest, const struct cordon_cells_language *language)
{
    struct cordon_context *found;
    pthread_mutex_lock(&table_lock);
    for (found = table; found; found = found->next)
        if (found->info.is_default && found->language == language && strcmp(found->guest, guest) == 0)
            break;
    if (found)
        found->references++;
    pthread_mutex_unlock(&table_lock);
    return found;
}

static size_t count_of(const char *guest)
{
    size_t count = 0;
    for (const struct cordon_context *context = table; context; context = context->next)
        count += strcmp(context->guest, guest) == 0;
    return count;
}

/* Of two that make the same default one at once, both get the first. */
static struct cordon_context *append_once(struct cordon_context *context)
{
    struct cordon_context *found = NULL;
    for (struct cordon_context *at = table; at && context->info.is_default; at = at->next)
        if (at->info.is_default && at->language == context->language && strcmp(at->guest, context->guest) == 0)
            found = at;
    if (!found)
        append(found = context);
    found->references++;
    return found;
}

static int make_context(const char *tenant, const char *guest, const struct cordon_cells_language *language,
                        const char *cwd, bool is_default, struct cordon_context **ret, struct cordon_error *err)
{
    int r = look(tenant, guest, err);
    if (r < 0)
        return r;
    if (cwd && strlen(cwd) >= CORDON_CONTEXT_CWD)
        return cordon_fail(err, -ENAMETOOLONG, CORDON_ERROR_INVALID, "cwd is longer than %d bytes",
                           CORDON_CONTEXT_CWD - 1);
    struct cordon_context *context = allocate(guest, language, cwd && *cwd ? cwd : HOME, is_default);
    if (!context || new_id(context->info.id) < 0) {
        free(context);
        return cordon_fail_errno(err, -ENOMEM, "making a context");
    }
    pthread_mutex_lock(&table_lock);
    bool full = count_of(guest) >= contexts_max;
    if (!full)
        *ret = append_once(context);
    pthread_mutex_unlock(&table_lock);
    if (full || *ret != context)
        release(context);
    return full ? cordon_fail(err, -EDQUOT, CORDON_ERROR_QUOTA,
                              "guest %s has %u contexts already (CORDON_GUEST_CONTEXTS); remove one", guest,
                              contexts_max)
                : 0;
}

int cordon_context_get_default(const char *tenant, const char *guest, const struct cordon_cells_language *language,
                               struct cordon_context **ret, struct cordon_error *err)
{
    int r = check_guest(tenant, guest, err);
    if (r < 0)
        return r;
    *ret = get_default(guest, language);
    if (*ret)
        return 0;
    return make_context(tenant, guest, language, NULL, true, ret, err);
}

/* --- telling of them --- */

static void fill_info(struct cordon_context *context, struct cordon_context_info *ret)
{
    pthread_mutex_lock(&context->lock);
    *ret = context->info;
    ret->cells = context->number;
    ret->state = context->cell                        ? CORDON_CONTEXT_BUSY
                 : context->started && context->ended ? CORDON_CONTEXT_ENDED
                                                      : CORDON_CONTEXT_IDLE;
    pthread_mutex_unlock(&context->lock);
}

int cordon_cells_info(const char *tenant, const char *guest, const char *id, struct cordon_context_info *ret,
                      struct cordon_error *err)
{
    struct cordon_context *context = NULL;
    int r = cordon_context_get(tenant, guest, id, &context, err);
    if (r == 0)
        fill_info(context, ret);
    cordon_context_put(context);
    return r;
}

/* Copies of what the table has: told without its lock. */
static struct cordon_context_info *copy_infos(const char *guest, size_t *ret_count)
{
    pthread_mutex_lock(&table_lock);
    struct cordon_context_info *infos = calloc(count_of(guest) + 1, sizeof *infos);
    *ret_count = 0;
    for (struct cordon_context *at = table; infos && at; at = at->next)
        if (strcmp(at->guest, guest) == 0)
            fill_info(at, &infos[(*ret_count)++]);
    pthread_mutex_unlock(&table_lock);
    return infos;
}

int cordon_cells_list(const char *tenant, const char *guest,
                      void (*each)(void *context, const struct cordon_context_info *info), void *context,
                      struct cordon_error *err)
{
    size_t count;
    int r = look(tenant, guest, err);
    if (r < 0)
        return r;
    struct cordon_context_info *infos = copy_infos(guest, &count);
    if (!infos)
        return cordon_fail_errno(err, -ENOMEM, "listing contexts");
    for (size_t i = 0; i < count; i++)
        each(context, &infos[i]);
    free(infos);
    return 0;
}

int cordon_cells_create(const char *tenant, const char *guest, const char *language, const char *cwd,
                        struct cordon_context_info *ret, struct cordon_error *err)
{
    const struct cordon_cells_language *known = cordon_cells_language(language);
    struct cordon_context *context = NULL;
    bool fresh;
    if (!known)
        return cordon_fail(err, -EINVAL, CORDON_ERROR_UNSUPPORTED,
                           "there are no contexts of \"%.40s\" here; python, javascript and bash there are", language);
    int r = make_context(tenant, guest, known, cwd, false, &context, err);
    if (r < 0)
        return r;
    r = cordon_context_enter(context, -1, err);
    if (r == 0) {
        r = cordon_context_start(tenant, context, &fresh, err);
        cordon_context_leave(context);
    }
    if (r == 0)
        fill_info(context, ret);
    else
        forget(context);
    cordon_context_put(context);
    return r;
}

/* Ends what runs in it, and gives its turn: with what was running there, nothing else is left. */
static int take_over(struct cordon_context *context, struct cordon_error *err)
{
    pthread_mutex_lock(&context->lock);
    context->restarting = true;
    pthread_mutex_unlock(&context->lock);
    cordon_context_kill(context);
    int r = cordon_context_enter(context, -1, err);
    pthread_mutex_lock(&context->lock);
    context->restarting = false;
    pthread_mutex_unlock(&context->lock);
    if (r == 0 && context->started) {
        cordon_context_kill(context);
        cordon_context_stop(context);
    }
    return r;
}

int cordon_cells_restart(const char *tenant, const char *guest, const char *id, struct cordon_error *err)
{
    struct cordon_context *context = NULL;
    bool fresh;
    int r = cordon_context_get(tenant, guest, id, &context, err);
    if (r == 0)
        r = take_over(context, err);
    if (r == 0) {
        r = context->removed ? cordon_fail(err, -ENOENT, CORDON_ERROR_NOT_FOUND, "context %s was removed", id)
                             : cordon_context_start(tenant, context, &fresh, err);
        cordon_context_leave(context);
    }
    cordon_context_put(context);
    return r;
}

int cordon_cells_remove(const char *tenant, const char *guest, const char *id, struct cordon_error *err)
{
    struct cordon_context *context = NULL;
    int r = cordon_context_get(tenant, guest, id, &context, err);
    if (r == 0)
        r = take_over(context, err);
    if (r == 0) {
        forget(context);
        cordon_context_leave(context);
    }
    cordon_context_put(context);
    return r;
}

int cordon_cells_interrupt(const char *tenant, const char *guest, const char *id, struct cordon_error *err)
{
    struct cordon_context *context = NULL;
    int r = cordon_context_get(tenant, guest, id, &context, err);
    if (r == 0 && cordon_context_interrupt(context) < 0)
        cordon_log(CORDON_LOG_DEBUG, "an interrupt met a context that has ended", "context", id, NULL);
    cordon_context_put(context);
    return r;
}
