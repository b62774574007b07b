/* SPDX-License-Identifier: Apache-2.0 */
/* What a program left in artifacts/ of a kept guest. All of it is the guest's claim: counted and capped as it comes. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/reuse.h"

#define FOLDER "artifacts"
#define DEPTH 8u
#define ENTRIES_MAX 10000u

struct listing {
    struct cordon_artifact_entry *entries;
    size_t count, room;
    bool failed;
};

static void add_entry(struct listing *to, const struct cordon_file_entry *entry)
{
    if (entry->type != CORDON_FILE_REGULAR || to->failed || to->count >= ENTRIES_MAX)
        return;
    if (to->count == to->room) {
        size_t room = to->room ? to->room * 2 : 32;
        void *grown = reallocarray(to->entries, room, sizeof *to->entries);
        to->failed = !grown;
        if (!grown)
            return;
        to->entries = grown;
        to->room = room;
    }
    struct cordon_artifact_entry *new = &to->entries[to->count];
    *new = (struct cordon_artifact_entry){strdup(entry->path), entry->size, entry->modified_ns};
    to->failed = !new->path;
    to->count += new->path != NULL;
}

static void free_entries(struct cordon_artifact_entry *entries, size_t count)
{
    for (size_t i = 0; i < count; i++)
        free(entries[i].path);
    free(entries);
}

static int by_path(const void *a, const void *b)
{
    return strcmp(((const struct cordon_artifact_entry *)a)->path, ((const struct cordon_artifact_entry *)b)->path);
}

/* -E2BIG: there are more than fit. */
static int list(const struct cordon_artifacts *artifacts, struct cordon_artifact_entry **ret, size_t *ret_count,
                struct cordon_error *err)
{
    struct cordon_operation operation = {.struct_size = sizeof operation,
                                         .kind = CORDON_OP_LIST,
                                         .path = FOLDER,
                                         .depth = DEPTH,
                                         .entries = ENTRIES_MAX,
                                         .cancel_fd = -1};
    struct cordon_live_stream *stream = NULL;
    struct cordon_stream_event event;
    struct listing found = {0};
    bool ended = false;
    int r = cordon_guests_open(artifacts->tenant, artifacts->guest, &operation, &stream, err);
    while (r >= 0 && !ended && (r = cordon_guests_next(stream, -1, &event, &ended, err)) == 1) {
        if (event.type == CORDON_STREAM_ENTRY)
            add_entry(&found, event.entry);
        if (event.type == CORDON_STREAM_END)
            break;
    }
    cordon_guests_close(stream);
    if (r < 0 || found.failed) {
        free_entries(found.entries, found.count);
        return r < 0 ? r : cordon_fail_errno(err, -ENOMEM, "listing " FOLDER "/");
    }
    if (found.count)
        qsort(found.entries, found.count, sizeof *found.entries, by_path);
    *ret = found.entries;
    *ret_count = found.count;
    return 0;
}

int cordon_artifacts_begin(struct cordon_artifacts *artifacts, struct cordon_error *err)
{
    struct cordon_operation operation = {
        .struct_size = sizeof operation, .kind = CORDON_OP_MKDIR, .path = FOLDER, .cancel_fd = -1};
    struct cordon_error why = {0};
    artifacts->content = CORDON_BUF_INIT(artifacts->bytes + 1);
    artifacts->files_left = artifacts->files;
    artifacts->bytes_left = artifacts->bytes;
    int r = cordon_guests_file(artifacts->tenant, artifacts->guest, &operation, NULL, NULL, &why);
    if (r < 0 && why.code != -EEXIST) {
        if (err)
            *err = why;
        return r;
    }
    r = list(artifacts, &artifacts->before, &artifacts->before_count, &why);
    if (r < 0 && why.code == -E2BIG) { /* so many that none can be told from a new one: they go */
        cordon_guest_remove(artifacts->tenant, artifacts->guest, FOLDER);
        return cordon_guests_file(artifacts->tenant, artifacts->guest, &operation, NULL, NULL, err);
    }
    if (r < 0 && why.code == -ENOTDIR)
        return 0; /* a file of that name: nothing will be returned, which the end tells */
    if (r < 0 && err)
        *err = why;
    return r < 0 ? r : 0;
}

int cordon_artifacts_end(struct cordon_artifacts *artifacts, struct cordon_error *err)
{
    struct cordon_error why = {0};
    int r = list(artifacts, &artifacts->after, &artifacts->after_count, &why);
    if (r < 0 && why.code == -ENOENT)
        return 0; /* the program removed it */
    if (r < 0 && (why.code == -E2BIG || why.code == -ENOTDIR)) {
        artifacts->too_many = true;
        (void)snprintf(artifacts->reason, sizeof artifacts->reason, "%s",
                       why.code == -E2BIG ? "there are more than 10,000 files" : "it is no directory"); /* fits */
        return 0;
    }
    if (r < 0 && err)
        *err = why;
    return r < 0 ? r : 0;
}

static bool is_old(const struct cordon_artifacts *artifacts, const struct cordon_artifact_entry *entry)
{
    const struct cordon_artifact_entry *found =
        artifacts->before_count ? bsearch(entry, artifacts->before, artifacts->before_count, sizeof *entry, by_path)
                                : NULL;
    return found && found->size == entry->size && found->modified_ns == entry->modified_ns;
}

static int drop(struct cordon_artifacts *artifacts, struct cordon_event *event, const char *name, uint64_t size)
{
    *event =
        (struct cordon_event){.type = CORDON_EVENT_DROPPED, .name = name, .reason = artifacts->reason, .size = size};
    return 1;
}

/* Reads one; the cap binds while it comes, whatever the listing said of its size. -EFBIG: beyond it. What was opened
 * must be what was listed: a link, or anything else, may stand in its place by now. */
static int read_file(struct cordon_artifacts *artifacts, const struct cordon_artifact_entry *entry,
                     struct cordon_error *err)
{
    struct cordon_operation operation = {.struct_size = sizeof operation,
                                         .kind = CORDON_OP_READ,
                                         .path = entry->path,
                                         .size = artifacts->bytes_left + 1,
                                         .cancel_fd = -1};
    struct cordon_live_stream *stream = NULL;
    struct cordon_stream_event event;
    bool ended = false;
    artifacts->content.size = 0;
    int r = cordon_guests_open(artifacts->tenant, artifacts->guest, &operation, &stream, err);
    while (r >= 0 && !ended && (r = cordon_guests_next(stream, -1, &event, &ended, err)) == 1) {
        if (event.type == CORDON_STREAM_END)
            break;
        if (event.type == CORDON_STREAM_ENTRY &&
            (event.entry->size != entry->size || event.entry->modified_ns != entry->modified_ns)) {
            r = cordon_fail(err, -ESTALE, CORDON_ERROR_CONFLICT, "it changed while it was to be returned");
            break;
        }
        if (event.type != CORDON_STREAM_DATA)
            continue;
        if (artifacts->content.size + event.data.size > artifacts->bytes_left)
            r = cordon_fail(err, -EFBIG, CORDON_ERROR_TOO_LARGE, "larger than what is left of %llu bytes for all files",
                            (unsigned long long)artifacts->bytes);
        else if (cordon_buf_append(&artifacts->content, event.data.data, event.data.size) < 0)
            r = cordon_fail_errno(err, -ENOMEM, "reading a file");
        if (r < 0)
            break;
    }
    cordon_guests_close(stream);
    return r < 0 ? r : 0;
}

static const char *name_of(const char *path)
{
    const char *at = strstr(path, "/" FOLDER "/");
    return at ? at + sizeof FOLDER + 1 : path;
}

static int take(struct cordon_artifacts *artifacts, const struct cordon_artifact_entry *entry,
                struct cordon_event *event)
{
    struct cordon_error err = {0};
    const char *name = name_of(entry->path);
    if (!artifacts->files_left) {
        (void)snprintf(artifacts->reason, sizeof artifacts->reason, "more than %u files", artifacts->files); /* fits */
        return drop(artifacts, event, name, entry->size);
    }
    if (entry->size > artifacts->bytes_left) {
        (void)snprintf(artifacts->reason, sizeof artifacts->reason,
                       "larger than what is left of %llu bytes for all files",
                       (unsigned long long)artifacts->bytes); /* fits */
        return drop(artifacts, event, name, entry->size);
    }
    if (read_file(artifacts, entry, &err) < 0) {
        (void)snprintf(artifacts->reason, sizeof artifacts->reason, "%.120s", err.message); /* cut on purpose */
        return drop(artifacts, event, name, entry->size);
    }
    artifacts->files_left--;
    artifacts->bytes_left -= artifacts->content.size;
    cordon_guest_remove(artifacts->tenant, artifacts->guest, entry->path);
    *event =
        (struct cordon_event){.type = CORDON_EVENT_ARTIFACT,
                              .name = name,
                              .data = {artifacts->content.data ? artifacts->content.data : "", artifacts->content.size},
                              .size = artifacts->content.size};
    return 1;
}

int cordon_artifacts_next(struct cordon_artifacts *artifacts, struct cordon_event *event)
{
    if (artifacts->too_many) {
        artifacts->too_many = false;
        return drop(artifacts, event, FOLDER, 0);
    }
    while (artifacts->at < artifacts->after_count) {
        const struct cordon_artifact_entry *entry = &artifacts->after[artifacts->at++];
        if (!is_old(artifacts, entry))
            return take(artifacts, entry, event);
    }
    return 0;
}

void cordon_artifacts_done(struct cordon_artifacts *artifacts)
{
    free_entries(artifacts->before, artifacts->before_count);
    free_entries(artifacts->after, artifacts->after_count);
    cordon_buf_done(&artifacts->content);
}
