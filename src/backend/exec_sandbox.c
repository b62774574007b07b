/* SPDX-License-Identifier: Apache-2.0 */
/*
 * `exec-sandbox`: guests are virtual machines of this host, made by the warden (warden/machine.h) and driven by the
 * same agent and protocol as others. Its isolation is what holds: hardware-virtualized where the accelerator was
 * measured to be that, else software-emulated, which policy takes only where the operator said so. Nothing here ever
 * falls back: what is missing is told by probe, and by each run. A machine has a network device only if its request has
 * the network, and where the warden can make one.
 */
#include <pthread.h>
#include <stdatomic.h>

#include "backend/builtin.h"
#include "base/error.h"
#include "guest/guest.h"
#include "guest/kept.h"

static const struct cordon_guest_backend self = {
    .name = "exec-sandbox", .isolation = CORDON_ISOLATION_SOFTWARE_EMULATED, .machine = true};

/* What capabilities() returned stays valid for ever, so there is one set for each word a warden can say. */
enum { KINDS = (1 << CORDON_GUEST_KIND__COUNT) - 1 };
enum network { NO_NETWORK, TWO_PORTS, EVERY_PORT, NETWORKS };
static struct cordon_capabilities sets[2][NETWORKS][KINDS + 1]; /* by hardware, network, languages */
static struct cordon_capabilities unknowns[NETWORKS];           /* accelerator and image are still being looked at */
static pthread_once_t sets_made = PTHREAD_ONCE_INIT;

static const struct cordon_capabilities unknown = {
    .struct_size = sizeof unknown,
    .isolation = CORDON_ISOLATION_SOFTWARE_EMULATED,
    .deny_all_egress = true,
    .guests = true,
    .files = true,
    .artifacts = true,
    .streaming = true,
    .memory_limit = true,
    .pids_limit = true,
    .cpu_limit = true,
    .agent_protected = true,
    .pause = CORDON_PAUSE_FREEZE,
    .languages = "python,javascript,bash",
};
static _Atomic(const struct cordon_capabilities *) newest = &unknown;

static struct cordon_capabilities make_unknown(enum network network)
{
    struct cordon_capabilities set = unknown;
    set.network = set.domain_allowlist = set.egress_headers = network != NO_NETWORK;
    set.egress_ports = network == TWO_PORTS ? "80,443" : "";
    return set;
}

static struct cordon_capabilities make_set(bool hardware, enum network network, uint32_t kinds)
{
    struct cordon_capabilities set = make_unknown(network);
    if (hardware)
        set.isolation = CORDON_ISOLATION_HARDWARE_VIRTUALIZED;
    set.accelerator = hardware ? "kvm" : "tcg";
    set.languages = cordon_backend_languages(kinds);
    return set;
}

static void make_sets(void)
{
    for (enum network network = 0; network < NETWORKS; network++)
        unknowns[network] = make_unknown(network);
    for (uint32_t hardware = 0; hardware <= 1; hardware++)
        for (enum network network = 0; network < NETWORKS; network++)
            for (uint32_t kinds = 0; kinds <= KINDS; kinds++)
                sets[hardware][network][kinds] = make_set(hardware, network, kinds);
}

static enum network network_of(const struct cordon_warden_hello *hello)
{
    if (!(hello->abilities & CORDON_ABLE_MACHINE_NETWORK))
        return NO_NETWORK;
    return hello->abilities & CORDON_ABLE_EVERY_PORT ? EVERY_PORT : TWO_PORTS;
}

/* Without an image it is not known which languages it will have. */
static const struct cordon_capabilities *get_capabilities(void)
{
    struct cordon_warden_hello hello;
    if (cordon_warden_hello(&hello, NULL) < 0)
        return atomic_load(&newest);           /* while a lost warden is replaced, its last word counts */
    (void)pthread_once(&sets_made, make_sets); /* can't fail with these arguments */
    if (hello.machine_status < 0) {
        atomic_store(&newest, &unknowns[network_of(&hello)]);
    } else {
        bool hardware = hello.machine_accel == CORDON_MACHINE_KVM;
        atomic_store(&newest, &sets[hardware][network_of(&hello)][hello.machine_languages & KINDS]);
    }
    return atomic_load(&newest);
}

static int probe(struct cordon_error *err)
{
    struct cordon_warden_hello hello;
    int r = cordon_warden_hello(&hello, err);
    if (r < 0)
        return r;
    return hello.machine_status == 0 ? 0 : cordon_warden_look(err);
}

static int run_open(const struct cordon_request *request, struct cordon_run **ret, struct cordon_error *err)
{
    return cordon_guest_run_open(&self, request, ret, err);
}

const struct cordon_backend cordon_backend_exec_sandbox = {
    .abi_version = CORDON_ABI_VERSION,
    .struct_size = sizeof cordon_backend_exec_sandbox,
    .name = "exec-sandbox",
    .capabilities = get_capabilities,
    .probe = probe,
    .run_open = run_open,
    .run_next = cordon_guest_run_next,
    .run_close = cordon_guest_run_close,
    .guest_create = cordon_kept_create_machine,
    .guest_adopt = cordon_kept_adopt_machine,
    CORDON_KEPT_OPERATIONS,
};
