/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a run left, as one archive that the guest packed and that is read while it comes: the result, and artifacts one
 * by one. The guest made the archive, so all limits are held here, and a name is only ever shown.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "backend/remote/remote.h"
#include "base/json.h"

#define RESULT_MAX (16u << 20)
#define REASON_MAX 256
#define DEPTH_MAX 16
#define ARTIFACTS "work/artifacts/"
#define OVERHEAD (4u << 20) /* of names and padding, beyond the content that is allowed */
#define DROPPED_MAX 256     /* told one by one */

struct cordon_remote_archive {
    struct cordon_tar_reader tar;
    struct cordon_bytes in;
    size_t in_at;
    bool strict;
    struct cordon_buf file; /* the artifact, or the result, that is being read */
    enum { IGNORE, RESULT, RESULT_ERROR, ARTIFACT } what;
    char name[CORDON_TAR_NAME];
    char reason[REASON_MAX]; /* why this one is dropped; "" : it is not */
    bool pending;            /* an entry has begun and has not been told */
    uint64_t max_one, max_all, taken, received;
    uint32_t max_count, count, dropped;
    bool result_given;
    char result_error[REASON_MAX], refusal[REASON_MAX];
};

static bool listed(enum cordon_setting id, const char *name)
{
    const char *item;
    for (size_t i = 0; (item = cordon_settings_item(cordon_remote_settings(), CORDON_DOOR_NATIVE, id, i)); i++)
        if (strcmp(item, name) == 0)
            return true;
    return false;
}

static uint64_t smaller(uint64_t limit, int setting)
{
    uint64_t own = setting >= 0 ? (uint64_t)cordon_remote_number((enum cordon_setting)setting) : UINT64_MAX;
    return own < limit ? own : limit;
}

int cordon_remote_archive_open(struct cordon_run *run, struct cordon_error *err)
{
    const struct cordon_limits *limits = &run->request->limits;
    struct cordon_remote_archive *self = calloc(1, sizeof *self);
    if (!self)
        return cordon_fail_errno(err, -ENOMEM, "reading what the run left");
    self->strict = listed(CORDON_SET_STRICT_ARTIFACTS, run->service->name);
    self->max_one = smaller(limits->artifact_bytes, run->service->max_artifact_bytes);
    self->max_all = limits->artifacts_bytes;
    self->max_count = (uint32_t)smaller(limits->artifacts, run->service->max_artifacts);
    run->archive = self;
    return 0;
}

void cordon_remote_archive_close(struct cordon_run *run)
{
    if (!run->archive)
        return;
    cordon_buf_done(&run->archive->file);
    free(run->archive);
    run->archive = NULL;
}

/* What RAGFlow lets through. */
static bool known_type(const char *name)
{
    static const char *const ends[] = {".png", ".jpg", ".jpeg", ".svg", ".pdf", ".csv", ".json", ".html"};
    const char *dot = strrchr(name, '.');
    for (size_t i = 0; dot && i < sizeof ends / sizeof *ends; i++)
        if (strcasecmp(dot, ends[i]) == 0)
            return true;
    return false;
}

static bool bad_name(const char *name)
{
    size_t depth = 0;
    for (const char *part = name;; depth++) {
        size_t size = strcspn(part, "/");
        if (!size || (size == 1 && *part == '.') || (size == 2 && memcmp(part, "..", 2) == 0))
            return true;
        for (size_t i = 0; i < size; i++)
            if ((unsigned char)part[i] < 32 || part[i] == 127 || part[i] == '\\')
                return true;
        if (!part[size])
            break;
        part += size + 1;
    }
    return depth > DEPTH_MAX || !cordon_utf8_valid(name, strlen(name));
}

/* Why the artifact that begins now is not returned; the strict form's words where it has some. */
static void judge(struct cordon_remote_archive *self, const char *title)
{
    const struct cordon_tar_reader *tar = &self->tar;
    const char *name = self->name;
    *self->reason = '\0';
    if (bad_name(name))
        (void)snprintf(self->reason, REASON_MAX, "Unsupported artifact entry: %.180s", name); /* cut on purpose, all */
    else if (tar->kind == '2' || tar->kind == '1')
        (void)snprintf(self->reason, REASON_MAX, "Artifact symlinks are not allowed: %.180s", name);
    else if (tar->kind != '0' && tar->kind != '7')
        (void)snprintf(self->reason, REASON_MAX, "Unsupported artifact entry: %.180s", name);
    else if (self->strict && !known_type(name))
        (void)snprintf(self->reason, REASON_MAX, "Unsupported artifact type: %.180s", name);
    else if (tar->file_size > self->max_one)
        (void)snprintf(self->reason, REASON_MAX, "Artifact exceeds %llu bytes: %.180s",
                       (unsigned long long)self->max_one, name);
    else if (self->count >= self->max_count)
        (void)snprintf(self->reason, REASON_MAX, "%s execution produced more than %u artifacts.", title,
                       self->max_count);
    else if (self->taken + tar->file_size > self->max_all)
        (void)snprintf(self->reason, REASON_MAX, "all artifacts together exceed %llu bytes",
                       (unsigned long long)self->max_all);
}

static void begin(struct cordon_run *run)
{
    struct cordon_remote_archive *self = run->archive;
    const char *name = self->tar.name;
    size_t prefix = sizeof ARTIFACTS - 1;
    self->what = IGNORE;
    cordon_buf_done(&self->file);
    self->pending = true;
    *self->reason = '\0';
    if (strcmp(name, "meta/result") == 0 && self->tar.kind == '0')
        self->what = RESULT;
    else if (strcmp(name, "meta/result.error") == 0 && self->tar.kind == '0')
        self->what = RESULT_ERROR;
    else if (strncmp(name, ARTIFACTS, prefix) == 0 && name[prefix] && self->tar.kind != '5' &&
             run->request->artifacts) {
        self->what = ARTIFACT;
        (void)snprintf(self->name, sizeof self->name, "%s", name + prefix); /* fits */
        judge(self, run->service->title);
    }
    self->file.max = self->what == ARTIFACT ? self->max_one : self->what == RESULT ? RESULT_MAX : REASON_MAX - 1;
}

static int tell_result(struct cordon_run *run, struct cordon_event *event)
{
    struct cordon_remote_archive *self = run->archive;
    struct cordon_value value;
    if (self->result_given || !run->request->arguments.data)
        return 0;
    if (self->file.failed)
        (void)snprintf(self->result_error, REASON_MAX, "main's result is larger than 16 MiB");
    else if (!self->file.size)
        return 0;
    else if (cordon_value_parse(self->file.data, self->file.size, &value, NULL) < 0)
        (void)snprintf(self->result_error, REASON_MAX, "main's result is not JSON");
    else {
        self->result_given = true;
        *event = (struct cordon_event){.type = CORDON_EVENT_RESULT, .data = {value.data, value.size}};
        return 1;
    }
    return 0;
}

static int tell_artifact(struct cordon_run *run, struct cordon_event *event)
{
    struct cordon_remote_archive *self = run->archive;
    if (!*self->reason && !self->file.failed) {
        self->count++;
        self->taken += self->file.size;
        *event = (struct cordon_event){.type = CORDON_EVENT_ARTIFACT,
                                       .name = self->name,
                                       .data = {self->file.data ? self->file.data : "", self->file.size},
                                       .size = self->file.size};
        return 1;
    }
    if (self->strict && !*self->refusal)
        (void)snprintf(self->refusal, sizeof self->refusal, "%s", self->reason);
    run->outcome.artifacts_dropped++;
    if (++self->dropped > DROPPED_MAX)
        return 0;
    *event = (struct cordon_event){.type = CORDON_EVENT_DROPPED,
                                   .name = self->name,
                                   .reason = *self->reason ? self->reason : "it changed while it was read",
                                   .size = self->tar.file_size};
    return 1;
}

/* The member that began is here, or as much of it as counts. */
static int tell(struct cordon_run *run, struct cordon_event *event)
{
    struct cordon_remote_archive *self = run->archive;
    if (!self->pending)
        return 0;
    self->pending = false;
    if (self->what == RESULT)
        return tell_result(run, event);
    if (self->what == ARTIFACT)
        return tell_artifact(run, event);
    if (self->what == RESULT_ERROR)
        (void)snprintf(self->result_error, REASON_MAX, "%.*s", (int)self->file.size,
                       self->file.data ? self->file.data : "");
    return 0;
}

static int refill(struct cordon_run *run, struct cordon_error *err)
{
    struct cordon_remote_archive *self = run->archive;
    self->in_at = 0;
    int r = run->service->get_next(run, &self->in, err);
    if (r <= 0)
        return r;
    self->received += self->in.size;
    if (self->received > self->max_all + RESULT_MAX + OVERHEAD)
        return cordon_fail(err, -EMSGSIZE, CORDON_ERROR_INFRASTRUCTURE, "what the run left is larger than its limits");
    return 1;
}

int cordon_remote_archive_next(struct cordon_run *run, struct cordon_event *event, struct cordon_error *err)
{
    struct cordon_remote_archive *self = run->archive;
    for (;;) {
        size_t used = 0;
        /* The next entry comes only after the last one was told: its name and content are still here. */
        enum cordon_tar_type type =
            cordon_tar_next(&self->tar, self->in.data + self->in_at, self->in.size - self->in_at, &used);
        self->in_at += used;
        if (type == CORDON_TAR_BROKEN)
            return cordon_fail(err, -EBADMSG, CORDON_ERROR_INFRASTRUCTURE, "what the run left can not be read");
        if (type == CORDON_TAR_DATA && self->what != IGNORE && !*self->reason)
            (void)cordon_buf_append(&self->file, self->tar.data, self->tar.size); /* sticky */
        if (type == CORDON_TAR_END)
            return tell(run, event);
        if (type == CORDON_TAR_ENTRY)
            begin(run);
        if (self->pending && !self->tar.left && type != CORDON_TAR_MORE && tell(run, event))
            return 1;
        if (type == CORDON_TAR_MORE) {
            int r = refill(run, err);
            if (r <= 0)
                return r < 0 ? r : cordon_fail(err, -EPIPE, CORDON_ERROR_INFRASTRUCTURE, "what the run left broke off");
        }
    }
}

const char *cordon_remote_archive_refusal(const struct cordon_run *run)
{
    return run->archive ? run->archive->refusal : "";
}

const char *cordon_remote_archive_result_error(const struct cordon_run *run)
{
    return run->archive ? run->archive->result_error : "";
}

bool cordon_remote_archive_result(const struct cordon_run *run)
{
    return run->archive && run->archive->result_given;
}
