/* SPDX-License-Identifier: Apache-2.0 */
/* Finding the guest of a component again, or making it. */
#include <cordon/reuse.h>

#include <errno.h>
#include <poll.h>
#include <openssl/sha.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "core/reuse.h"

#define TRIES 250 /* with PAUSE_MS between them: as long as the making of a guest may take */
#define PAUSE_MS 20
static const char prefix[] = "lf-c-";

static const struct cordon_settings *settings; /* of the process */

void cordon_reuse_setup(const struct cordon_settings *loaded)
{
    settings = loaded;
}

static int compare(const void *a, const void *b)
{
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

/* The policy in one spelling: sorted, without doubles. */
static int write_policy(bool network, const char *const *domains, size_t count, struct cordon_buf *to)
{
    if (!network)
        return cordon_buf_appends(to, "none");
    if (!count)
        return cordon_buf_appends(to, "*");
    const char **sorted = calloc(count, sizeof *sorted);
    if (!sorted)
        return -ENOMEM;
    memcpy(sorted, domains, count * sizeof *sorted);
    qsort(sorted, count, sizeof *sorted, compare);
    for (size_t i = 0; i < count; i++)
        if (i == 0 || strcmp(sorted[i], sorted[i - 1]) != 0)
            (void)cordon_buf_appendf(to, "%s%s", i ? "," : "", sorted[i]); /* sticky */
    free(sorted);
    return to->failed ? -ENOMEM : 0;
}

int cordon_reuse_name(const struct cordon_reuse *reuse, char name[CORDON_REUSE_NAME], struct cordon_error *err)
{
    unsigned char hash[SHA256_DIGEST_LENGTH];
    struct cordon_buf text = CORDON_BUF_INIT(4u << 20);
    if (!reuse->component || !*reuse->component)
        return cordon_fail(err, -EINVAL, CORDON_ERROR_INVALID,
                           "a guest is found again by its component, and none was named");
    (void)cordon_buf_appendf(&text, "%s:%s:", reuse->flow && *reuse->flow ? reuse->flow : "noflow",
                             reuse->component); /* sticky */
    int r = write_policy(reuse->network, reuse->domains, reuse->domain_count, &text);
    if (r < 0 || text.failed || !SHA256((const unsigned char *)text.data, text.size, hash)) {
        cordon_buf_done(&text);
        return cordon_fail_errno(err, -ENOMEM, "naming a guest");
    }
    cordon_buf_done(&text);
    memcpy(name, prefix, sizeof prefix);
    for (size_t i = 0; sizeof prefix - 1 + i < CORDON_REUSE_NAME - 1; i++)
        name[sizeof prefix - 1 + i] = "0123456789abcdef"[i % 2 ? hash[i / 2] & 15 : hash[i / 2] >> 4];
    name[CORDON_REUSE_NAME - 1] = '\0';
    return 0;
}

static int same_policy(const struct cordon_reuse *reuse, const struct cordon_guest_info *info, bool *ret)
{
    struct cordon_buf asked = CORDON_BUF_INIT(4u << 20), found = CORDON_BUF_INIT(4u << 20);
    int r = write_policy(reuse->network, reuse->domains, reuse->domain_count, &asked);
    if (r == 0)
        r = write_policy(info->network, info->allowed_domains, info->allowed_domain_count, &found);
    *ret = r == 0 && asked.size == found.size && memcmp(asked.data, found.data, asked.size) == 0;
    cordon_buf_done(&asked);
    cordon_buf_done(&found);
    return r;
}

static int adopt(const struct cordon_reuse *reuse, const struct cordon_guest_info *info, struct cordon_error *err)
{
    bool same;
    if (same_policy(reuse, info, &same) < 0)
        return cordon_fail_errno(err, -ENOMEM, "comparing network policies");
    if (!same)
        return cordon_fail(err, -EPERM, CORDON_ERROR_REFUSED,
                           "guest %s (%s) may reach something else by now than this component asks for: destroy it "
                           "(cordon guest rm %s), or run without reuse",
                           info->name, info->id, info->name);
    if (info->condition != CORDON_GUEST_IS_PAUSED)
        return 0;
    int r = cordon_guests_resume(reuse->tenant, info->id, CORDON_KEEP, NULL, err);
    return r < 0 ? r : 0;
}

static int make(const struct cordon_reuse *reuse, const char *name, struct cordon_guest_info **ret,
                struct cordon_error *err)
{
    const struct cordon_pair metadata[] = {{"flow", reuse->flow ? reuse->flow : ""}, {"component", reuse->component}};
    int64_t idle_s = settings ? cordon_settings_int(settings, CORDON_DOOR_NATIVE, CORDON_SET_GUEST_IDLE_S) : 900;
    const struct cordon_guest_create create = {
        .tenant = reuse->tenant,
        .door = CORDON_DOOR_NATIVE,
        .backend = reuse->backend,
        .template_name = reuse->template_name,
        .name = name,
        .metadata = metadata,
        .metadata_count = 2,
        .memory_bytes = reuse->memory_bytes,
        .network = reuse->network,
        .allowed_domains = reuse->domains,
        .allowed_domain_count = reuse->domain_count,
        .idle_pause_ms = (uint64_t)idle_s * 1000,
        .auto_resume = true,
        .cancel_fd = reuse->cancel_fd,
    };
    return cordon_guests_create(&create, ret, err);
}

/* Once: 1 when it has the guest, 0 to look again, or negative. */
static int try_once(const struct cordon_reuse *reuse, const char *name, char id[CORDON_GUEST_ID], bool *reused,
                    struct cordon_error *err)
{
    struct cordon_guest_info *info = NULL;
    struct cordon_error why = {0};
    int r = cordon_guests_find(reuse->tenant, name, &info, &why);
    *reused = r >= 0;
    if (r >= 0)
        r = adopt(reuse, info, &why);
    else if (why.kind == CORDON_ERROR_NOT_FOUND)
        r = make(reuse, name, &info, &why);
    if (r >= 0)
        memcpy(id, info->id, CORDON_GUEST_ID);
    cordon_guest_info_free(info);
    if (r >= 0)
        return 1;
    if (why.kind == CORDON_ERROR_GONE || (why.kind == CORDON_ERROR_CONFLICT && why.code == -EEXIST))
        return 0; /* somebody was faster */
    if (err)
        *err = why;
    return r;
}

/* Who is faster has to be let finish. */
static int pause_or_leave(int cancel_fd, struct cordon_error *err)
{
    struct pollfd client = {.fd = cancel_fd, .events = POLLRDHUP};
    if (poll(&client, 1, PAUSE_MS) > 0)
        return cordon_fail(err, -ECANCELED, CORDON_ERROR_CANCELLED, "the client left while its guest was made");
    return 0;
}

int cordon_reuse_acquire(const struct cordon_reuse *reuse, char id[CORDON_GUEST_ID], bool *reused,
                         struct cordon_error *err)
{
    char name[CORDON_REUSE_NAME];
    int r = cordon_reuse_name(reuse, name, err);
    for (int i = 0; r == 0 && i < TRIES; i++) {
        r = try_once(reuse, name, id, reused, err);
        if (r == 0)
            r = pause_or_leave(reuse->cancel_fd, err);
    }
    if (r == 0)
        return cordon_fail(err, -EBUSY, CORDON_ERROR_CONFLICT,
                           "guest %s is made and destroyed by others all the time; try again later", name);
    return r < 0 ? r : 0;
}
