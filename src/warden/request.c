/* SPDX-License-Identifier: Apache-2.0 */
/* What a gateway may ask for. It may have been taken over, so the ceilings here are the warden's own. Pure, fuzzed. */
#include "warden/warden.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "core/template.h"

#define MEMORY_MIN (4u << 20)
#define PIDS_MIN 2u
#define PIDS_MAX 32768u
#define CPU_PERCENT_MAX 100000u
#define ID_SIZE 20u

static bool is_id(const struct cordon_warden_acquire *request)
{
    static const char zero[sizeof request->id] = "";
    if (request->kind != CORDON_GUEST_KEPT)
        return !request->adopt && memcmp(request->id, zero, sizeof zero) == 0;
    for (size_t i = 0; i < sizeof request->id; i++) {
        char c = request->id[i];
        bool good = (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9');
        if (i < ID_SIZE ? !good : c != '\0')
            return false;
    }
    return true;
}

static bool named_well(const struct cordon_warden_acquire *request)
{
    return memchr(request->template_name, '\0', sizeof request->template_name) &&
           cordon_template_name_valid(request->template_name);
}

int cordon_request_check_language(const struct cordon_template *template, enum cordon_guest_kind kind, bool unisolated,
                                  char *why, size_t size)
{
    const char *path = cordon_interpreter_of(&template->interpreters, kind);
    if (!(template->languages & 1u << kind)) {
        (void)snprintf(why, size, *path ? "there is no interpreter at %s" : "the template has no interpreter for it%s",
                       path);
        return -ENOENT;
    }
    if (!unisolated && template->unseen[kind][0]) {
        (void)snprintf(why, size, "%s", template->unseen[kind]);
        return -EACCES;
    }
    return 0;
}

int cordon_request_check(const struct cordon_warden *warden, const struct cordon_warden_acquire *request, char *why,
                         size_t size)
{
    const struct cordon_warden_config *config = &warden->config;
    const struct {
        bool wrong;
        int status;
        const char *why;
    } rules[] = {
        {request->version != CORDON_WARDEN_VERSION, -EPROTO, "gateway and warden are of different versions"},
        {request->kind >= CORDON_GUEST_KIND__COUNT, -EINVAL, "unknown kind of guest"},
        {request->unisolated > 1 || request->adopt > 1 || request->network > 1 || request->machine > 2, -EINVAL,
         "malformed request"},
        {request->machine && request->unisolated, -EINVAL, "a machine is not without isolation"},
        {!is_id(request), -EINVAL, "a kept guest has an id of 20 letters a-z and digits, and no other guest has one"},
        {request->unisolated && request->kind == CORDON_GUEST_KEPT, -EINVAL, "backend none keeps no guests"},
        {!named_well(request), -EINVAL, "malformed name of a template"},
        {request->unisolated && strcmp(request->template_name, CORDON_TEMPLATE_DEFAULT) != 0, -EINVAL,
         "backend none starts from no template"},
        {request->unisolated && !config->allow_none, -EPERM,
         "backend none is not allowed: it takes CORDON_ALLOW_NONE=true in the warden's own settings"},
        {request->network && (request->unisolated || !(warden->abilities & CORDON_ABLE_NETWORK)), -EPERM,
         "no guest of this kind can have a network here"},
        {request->machine && request->network && !(warden->abilities & CORDON_ABLE_MACHINE_NETWORK), -EPERM,
         CORDON_NO_MACHINE_NETWORK},
        {request->machine && strcmp(request->template_name, CORDON_TEMPLATE_DEFAULT) != 0, -EINVAL,
         "machines start from the image's own template"},
        {request->memory_bytes < MEMORY_MIN, -EINVAL, "memory limit below 4 MiB"},
        {request->memory_bytes > config->max_memory_bytes, -EPERM, "memory limit above CORDON_MAX_MEMORY_MB"},
        {request->pids < PIDS_MIN || request->pids > PIDS_MAX, -EPERM, "limit of processes outside 2 to 32768"},
        {request->cpu_percent < 1 || request->cpu_percent > CPU_PERCENT_MAX, -EPERM, "CPU share outside 1 to 100000 %"},
    };
    for (size_t i = 0; i < sizeof rules / sizeof *rules; i++) {
        if (!rules[i].wrong)
            continue;
        (void)snprintf(why, size, "%s", rules[i].why);
        return rules[i].status;
    }
    if (!request->unisolated && warden->local_status < 0) {
        (void)snprintf(why, size, "%s", warden->why);
        return warden->local_status;
    }
    if (request->machine || strcmp(request->template_name, CORDON_TEMPLATE_DEFAULT) != 0)
        return 0;
    return cordon_request_check_language(&warden->base, (enum cordon_guest_kind)request->kind, request->unisolated, why,
                                         size);
}
