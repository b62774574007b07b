/* SPDX-License-Identifier: Apache-2.0 */
/*
 * `local`: guests in namespaces of this host's kernel, made by the warden. What it can hold depends on the host (which
 * cgroup controllers, a range of uids or not), so the capabilities are made of what the warden found and said in its
 * hello; until one came, nothing that depends on it is granted. While a lost warden is replaced, its last word counts.
 */
#include <pthread.h>
#include <stdatomic.h>

#include "backend/builtin.h"
#include "base/error.h"
#include "guest/guest.h"
#include "guest/kept.h"

static const struct cordon_guest_backend self = {.name = "local", .isolation = CORDON_ISOLATION_NAMESPACE};

/* What capabilities() returned stays valid for ever, so there is one set for each word a warden can say. */
enum {
    ABILITIES = CORDON_ABLE_MEMORY | CORDON_ABLE_PIDS | CORDON_ABLE_CPU | CORDON_ABLE_AGENT_PROTECTED |
                CORDON_ABLE_FREEZE | CORDON_ABLE_NETWORK | CORDON_ABLE_EVERY_PORT
};
enum { KINDS = (1 << CORDON_GUEST_KIND__COUNT) - 1 };
static struct cordon_capabilities sets[ABILITIES + 1][KINDS + 1];
static pthread_once_t sets_made = PTHREAD_ONCE_INIT;

static const struct cordon_capabilities unknown = {
    .struct_size = sizeof unknown,
    .isolation = CORDON_ISOLATION_NAMESPACE,
    .deny_all_egress = true,
    .files = true,
    .artifacts = true,
    .streaming = true,
    .templates = true,
    .languages = "python,javascript,bash",
};
static _Atomic(const struct cordon_capabilities *) newest = &unknown;

static void make_sets(void)
{
    for (uint32_t abilities = 0; abilities <= ABILITIES; abilities++) {
        for (uint32_t kinds = 0; kinds <= KINDS; kinds++) {
            struct cordon_capabilities *set = &sets[abilities][kinds];
            *set = unknown;
            set->memory_limit = abilities & CORDON_ABLE_MEMORY;
            set->pids_limit = abilities & CORDON_ABLE_PIDS;
            set->cpu_limit = abilities & CORDON_ABLE_CPU;
            set->agent_protected = abilities & CORDON_ABLE_AGENT_PROTECTED;
            set->guests = kinds & 1u << CORDON_GUEST_KEPT;
            set->pause = abilities & CORDON_ABLE_FREEZE ? CORDON_PAUSE_FREEZE : CORDON_PAUSE_NONE;
            set->network = set->domain_allowlist = set->egress_headers = abilities & CORDON_ABLE_NETWORK;
            set->egress_ports = set->network && !(abilities & CORDON_ABLE_EVERY_PORT) ? "80,443" : "";
            set->languages = cordon_backend_languages(kinds);
        }
    }
}

static const struct cordon_capabilities *get_capabilities(void)
{
    struct cordon_warden_hello hello;
    if (cordon_warden_hello(&hello, NULL) == 0 && hello.status == 0) {
        (void)pthread_once(&sets_made, make_sets); /* can't fail with these arguments */
        atomic_store(&newest, &sets[hello.abilities & ABILITIES][hello.languages & KINDS]);
    }
    return atomic_load(&newest);
}

static int probe(struct cordon_error *err)
{
    struct cordon_warden_hello hello;
    int r = cordon_warden_hello(&hello, err);
    if (r < 0)
        return r;
    if (hello.status < 0)
        return cordon_fail(err, hello.status, CORDON_ERROR_UNAVAILABLE, "the backend local can't run here: %.400s",
                           hello.why);
    return 0;
}

static int run_open(const struct cordon_request *request, struct cordon_run **ret, struct cordon_error *err)
{
    return cordon_guest_run_open(&self, request, ret, err);
}

const struct cordon_backend cordon_backend_local = {
    .abi_version = CORDON_ABI_VERSION,
    .struct_size = sizeof cordon_backend_local,
    .name = "local",
    .capabilities = get_capabilities,
    .probe = probe,
    .run_open = run_open,
    .run_next = cordon_guest_run_next,
    .run_close = cordon_guest_run_close,
    .guest_create = cordon_kept_create,
    .guest_adopt = cordon_kept_adopt,
    CORDON_KEPT_OPERATIONS,
};
