/* SPDX-License-Identifier: Apache-2.0 */
/* clang-format off */
/*
 * Guests that are virtual machines. Theory of operation:
 *
 * A machine is a guest like others (a slot with its namespaces and control groups, a pool, a lease), but process 1 of
 * its pid namespace is a vmm (src/vmm), which drives one QEMU and tells the warden of it by fixed-size structs.
 *
 *   survey    what is needed of this host, looked at once and whenever it changed: accelerator, network device, QEMU,
 *             image (machine_survey.c). What parses is a child without privilege.
 *   template  of a language (or of kept guests), a memory size, and with a network or without: the memory and the
 *             devices of a machine that was booted and waits, in two sealed memfds, which nobody can write or cut any
 *             more (machine_template.c).
 *   guest     a machine that was booted, or, once there is a template, a clone: it maps the template's memory privately
 *             and stands still in its pool until it is leased (machine.c, machine_child.c).
 *   budget    memory and CPUs of all machines together. Who comes first is served first, whatever the size
 *             (machine_template.c).
 *
 * The first run does not wait for a template: its machine is booted for it, and the template is made behind it.
 */
/* clang-format on */
#ifndef CORDON_WARDEN_MACHINE_H
#define CORDON_WARDEN_MACHINE_H

#include "vmm/wire.h"
#include "warden/warden.h"

#define CORDON_MACHINE_MEMORY_MIN_MB 128u
#define CORDON_MACHINE_MEMORY_STEP_MB 16u
#define CORDON_MACHINE_TEMPLATES_MAX 12u
#define CORDON_MACHINE_ASKERS_MAX 32u

enum cordon_machine_template_state {
    CORDON_MACHINE_NO_TEMPLATE = 0,
    CORDON_MACHINE_TEMPLATE_MAKING,
    CORDON_MACHINE_TEMPLATE_READY,
};

struct cordon_machine_template {
    struct cordon_warden *warden;
    struct cordon_pool pool;
    uint32_t memory_mb;
    enum cordon_machine_template_state state; /* of the one that clones are made of */
    int ram, devices;                         /* READY: sealed */
    struct cordon_guest *maker;               /* the machine that is to become it, or the next one */
    int coming_ram, coming_devices;
    uint64_t survey; /* of which survey it, or what is coming, is */
    uint64_t clones, born_us, used_us;
    unsigned failures;
    bool booted;              /* a machine was booted for somebody since the last survey */
    struct cordon_timer rest; /* armed: no attempt to make one */
    struct cordon_machine_template *next;
};

/* What the survey's child found out: one message with the image's three files as descriptors. */
struct cordon_machine_survey {
    int32_t status;    /* 0, or negative errno and why */
    uint32_t hardware; /* 1: by KVM */
    uint32_t acpi, languages;
    int32_t network; /* 0, or negative errno: no network device can be made for a machine */
    char append[128];
    char network_stage[96]; /* at what that failed */
    char why[512];
};

struct cordon_machines {
    struct cordon_warden *warden;
    uint64_t surveys; /* how many were made; 0: none yet */
    struct cordon_machine_survey found;
    char seen[256]; /* what image and QEMU looked like when the survey began */
    struct cordon_child surveyor;
    struct cordon_source report;
    struct cordon_timer late;
    int askers[CORDON_MACHINE_ASKERS_MAX]; /* leases of those who wait for the survey's result */
    size_t asker_count;
    int kernel, initrd, root, program; /* program: this one, for the vmm */
    int trusting;                      /* of machines with network: initrd with an authority behind it; -1: none */
    uint64_t memory_mb, cpu;           /* charged now; cpu in percent */
    uint64_t tickets;
    unsigned template_count;
    struct cordon_machine_template *templates;
};

/* machine_survey.c */
void cordon_machines_init(struct cordon_warden *warden);
void cordon_machines_look(struct cordon_machines *machines);                /* begins a survey when something changed */
void cordon_machines_ask(struct cordon_machines *machines, int lease_take); /* looks, and answers when it has */
bool cordon_machines_surveyed(const struct cordon_machines *machines);
_Noreturn void cordon_machine_survey_main(const struct cordon_warden *warden, int folder, int sock);
void cordon_machines_done(struct cordon_warden *warden);
uint32_t cordon_machines_accel(const struct cordon_machines *machines); /* enum cordon_machine_accel */

/* machine_template.c */
void cordon_machine_acquire(struct cordon_warden *warden, const struct cordon_warden_acquire *request, int lease_take);
void cordon_machines_step(struct cordon_warden *warden); /* at the end of a turn: templates that are missing */
void cordon_machines_stale(struct cordon_machines *machines, int status); /* after a survey */
void cordon_machine_built(struct cordon_guest *guest, int status, const char *why);
/* May the pool's next machine be made, or (for one that is parked) leased? */
bool cordon_machine_may_make(struct cordon_pool *pool);
bool cordon_machine_may_park(struct cordon_pool *pool);
bool cordon_machine_may_lease(struct cordon_pool *pool);
/* Sets what a guest is charged: nothing, parked, running. */
enum cordon_machine_charge { CORDON_MACHINE_FREE = 0, CORDON_MACHINE_PARKED, CORDON_MACHINE_RUNNING };
void cordon_machine_charge(struct cordon_guest *guest, enum cordon_machine_charge charge);
uint32_t cordon_machine_overhead_mb(const struct cordon_machines *machines); /* of a QEMU, beyond its guest's memory */

/* machine.c */
/* Takes its share of the budget, before it waits for a slot; then it begins. */
void cordon_machine_reserve(struct cordon_guest *guest);
int cordon_machine_begin(struct cordon_guest *guest, struct cordon_error *err);
void cordon_machine_lease(struct cordon_guest *guest, struct cordon_acquire *acquire);
void cordon_machine_dying(struct cordon_guest *guest);
void cordon_machine_gone(struct cordon_guest *guest); /* its vmm ended, before the guest is destroyed */
int cordon_machine_order(struct cordon_guest *guest, enum cordon_vmm_verb verb, uint32_t asked_seq, int fd);

/* machine_trust.c: a copy of the initramfs with the daemon's authority behind it; negative errno */
int cordon_machine_add_trust(const struct cordon_warden_config *config, int initrd);

/* machine_child.c: in the new process; becomes a vmm. fds[0] is CORDON_VMM_CONTROL, and so on. */
_Noreturn void cordon_machine_child(const struct cordon_guest *guest, const int fds[CORDON_VMM__END - 3]);

#endif
