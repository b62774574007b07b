/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Templates of machines, and the budget.
 *
 * A template lives in two memfds. When the machine that became it has ended they are sealed: from then on nobody, root
 * included, can write, cut or lengthen them, and a QEMU that opens one for writing can map it privately, and nothing
 * else. So what a clone starts from is what its template was; no digest has to be compared, and there is no file that
 * could be removed. They end with the warden: hash seeds and whatever else waits in an interpreter are of no use after.
 *
 * A template is of one survey: what changed on the host since (QEMU, the image, the accelerator) makes it stale, and
 * its parked clones with it. It is made anew after an hour, or some thousand clones, while the old one goes on.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/fd.h"
#include "base/log.h"
#include "warden/machine.h"

#define ROTATE_US UINT64_C(3600000000)
#define ROTATE_CLONES 2000u
#define REST_US 1000000u
#define REST_DOUBLINGS 6u
#define RUNNING_CPU 125u     /* percent: its guest's CPU and QEMU's own threads */
#define PARKED_MB 48u        /* what a clone that stands still has copied of its template, and its QEMU */
#define OVERHEAD_TCG_MB 208u /* QEMU's own memory, and what it translated */
#define OVERHEAD_KVM_MB 80u

uint32_t cordon_machine_overhead_mb(const struct cordon_machines *machines)
{
    return machines->found.hardware ? OVERHEAD_KVM_MB : OVERHEAD_TCG_MB;
}

/* --- the budget --- */

static uint32_t running_mb(const struct cordon_pool *pool)
{
    return pool->machine->memory_mb + cordon_machine_overhead_mb(pool->warden->machines);
}

void cordon_machine_charge(struct cordon_guest *guest, enum cordon_machine_charge charge)
{
    struct cordon_machines *machines = guest->warden->machines;
    struct cordon_vm *vm = &guest->vm;
    machines->memory_mb -= vm->charged_mb;
    machines->cpu -= vm->charged_cpu;
    bool runs = charge == CORDON_MACHINE_RUNNING;
    vm->charged_mb = runs ? running_mb(guest->pool) : charge == CORDON_MACHINE_PARKED ? PARKED_MB : 0;
    vm->charged_cpu = runs ? RUNNING_CPU : 0;
    machines->memory_mb += vm->charged_mb;
    machines->cpu += vm->charged_cpu;
}

static bool has_room(const struct cordon_machines *machines, uint64_t memory_mb, uint64_t cpu)
{
    const struct cordon_warden_config *config = &machines->warden->config;
    return machines->memory_mb + memory_mb <= config->machine_memory_mb &&
           (machines->cpu == 0 || machines->cpu + cpu <= config->machine_cpu_percent);
}

/* Nobody came earlier than the first who waits here. */
static bool is_first(const struct cordon_pool *pool)
{
    for (const struct cordon_machine_template *at = pool->warden->machines->templates; at; at = at->next)
        if (&at->pool != pool && at->pool.waiting && pool->waiting && at->pool.waiting->ticket < pool->waiting->ticket)
            return false;
    return true;
}

bool cordon_machine_may_lease(struct cordon_pool *pool)
{
    const struct cordon_machines *machines = pool->warden->machines;
    return is_first(pool) && has_room(machines, running_mb(pool) - PARKED_MB, RUNNING_CPU);
}

bool cordon_machine_may_make(struct cordon_pool *pool)
{
    const struct cordon_machines *machines = pool->warden->machines;
    if (!cordon_machines_surveyed(machines) || machines->found.status < 0 || !is_first(pool))
        return false;
    return has_room(machines, running_mb(pool), RUNNING_CPU);
}

bool cordon_machine_may_park(struct cordon_pool *pool)
{
    const struct cordon_machines *machines = pool->warden->machines;
    return pool->machine->ram >= 0 && cordon_machines_surveyed(machines) && machines->found.status == 0 &&
           machines->memory_mb + PARKED_MB <= pool->warden->config.machine_memory_mb;
}

/* --- templates --- */

static void drop_coming(struct cordon_machine_template *template)
{
    template->maker = NULL;
    cordon_close(&template->coming_ram);
    cordon_close(&template->coming_devices);
}

static void drop(struct cordon_machine_template *template)
{
    template->state = CORDON_MACHINE_NO_TEMPLATE;
    cordon_close(&template->ram);
    cordon_close(&template->devices);
}

static int seal(int fd)
{
    return fcntl(fd, F_ADD_SEALS, F_SEAL_WRITE | F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) < 0 ? -errno : 0;
}

static void rest(struct cordon_machine_template *template, const char *why)
{
    unsigned doublings = template->failures < REST_DOUBLINGS ? template->failures : REST_DOUBLINGS;
    template->failures++;
    cordon_log(CORDON_LOG_WARN, "template of machines could not be made; they are booted instead", "memory_mb",
               CORDON_NUM(template->memory_mb), "why", why, NULL);
    cordon_timer_arm(&template->warden->loop, &template->rest, (uint64_t)REST_US << doublings);
}

static void take_built(struct cordon_machine_template *template, const struct cordon_guest *guest)
{
    struct stat st = {0};
    int r = seal(template->coming_ram);
    if (r == 0)
        r = seal(template->coming_devices);
    if (r < 0) {
        rest(template, "its memory could not be sealed");
        drop_coming(template);
        return;
    }
    (void)fstat(template->coming_ram, &st); /* for the log */
    drop(template);
    template->ram = CORDON_TAKE_FD(template->coming_ram);
    template->devices = CORDON_TAKE_FD(template->coming_devices);
    template->state = CORDON_MACHINE_TEMPLATE_READY;
    template->born_us = cordon_now_us();
    template->clones = template->failures = 0;
    template->maker = NULL;
    cordon_log(CORDON_LOG_INFO, "template of machines made", "memory_mb", CORDON_NUM(template->memory_mb), "kept_kb",
               CORDON_NUM((long long)st.st_blocks / 2), "took_us",
               CORDON_NUM((long long)(template->born_us - guest->started_us)), NULL);
}

/* The guest ends here, whatever became of it. */
void cordon_machine_built(struct cordon_guest *guest, int status, const char *why)
{
    struct cordon_machine_template *template = guest->pool->machine;
    bool wanted = template->maker == guest && template->survey == template->warden->machines->surveys;
    if (template->maker == guest && (status < 0 || !wanted)) {
        if (status < 0)
            rest(template, why);
        drop_coming(template);
        if (template->ram < 0)
            template->state = CORDON_MACHINE_NO_TEMPLATE;
    } else if (wanted) {
        /* QEMU has ended in order: none of its mappings is left. */
        take_built(template, guest);
    }
    cordon_guest_destroy(guest);
}

static void on_rested(struct cordon_timer *timer)
{
    (void)timer; /* the step at the end of the turn looks again */
}

static bool is_due(const struct cordon_machine_template *template)
{
    if (template->maker || template->rest.armed || template->warden->config.oneshot)
        return false;
    if (template->ram < 0)
        return template->booted && !template->pool.waiting;
    return template->clones > ROTATE_CLONES || cordon_now_us() - template->born_us > ROTATE_US;
}

void cordon_machines_step(struct cordon_warden *warden)
{
    struct cordon_machines *machines = warden->machines;
    for (struct cordon_machine_template *at = machines->templates; at; at = at->next) {
        struct cordon_error err;
        if (!is_due(at) || !cordon_machines_surveyed(machines) || machines->found.status < 0 ||
            !has_room(machines, running_mb(&at->pool), RUNNING_CPU))
            continue;
        at->survey = machines->surveys;
        at->maker = cordon_guest_make_template(&at->pool, &err);
        if (!at->maker)
            rest(at, err.message);
        else if (at->ram < 0)
            at->state = CORDON_MACHINE_TEMPLATE_MAKING;
    }
}

/* Copies of what is no more: those that wait, and those that would come to wait. Who has one keeps it. */
static void end_copies(struct cordon_pool *pool)
{
    cordon_pool_end_parked(pool);
    for (struct cordon_guest *guest = pool->warden->guests, *next; guest; guest = next) {
        next = guest->next;
        if (guest->pool != pool || guest->state >= CORDON_GUEST_READY || guest->vm.booted || guest->vm.builds)
            continue;
        pool->making--;
        cordon_guest_destroy(guest);
    }
}

/* Whoever asks next wants it filled again: it may serve then. */
static void close_pool(struct cordon_pool *pool, int status, const char *why)
{
    cordon_pool_close(pool, status, why);
    pool->wanted = false;
}

void cordon_machines_stale(struct cordon_machines *machines, int status)
{
    for (struct cordon_machine_template *at = machines->templates; at; at = at->next) {
        drop(at);
        at->booted = false;
        at->failures = 0;
        cordon_timer_cancel(&machines->warden->loop, &at->rest);
        end_copies(&at->pool);
        if (status < 0)
            close_pool(&at->pool, status, machines->found.why);
        else if (at->pool.network && machines->found.network < 0)
            close_pool(&at->pool, -EPERM, CORDON_NO_MACHINE_NETWORK);
    }
}

/* --- who asks --- */

static uint32_t memory_of(const struct cordon_warden_acquire *request)
{
    uint64_t mb = ((request->memory_bytes >> 20) + CORDON_MACHINE_MEMORY_STEP_MB - 1) / CORDON_MACHINE_MEMORY_STEP_MB *
                  CORDON_MACHINE_MEMORY_STEP_MB;
    return mb < CORDON_MACHINE_MEMORY_MIN_MB ? CORDON_MACHINE_MEMORY_MIN_MB : (uint32_t)mb;
}

static enum cordon_guest_kind kind_of(uint32_t kind)
{
    return kind == CORDON_GUEST_PYTHON_DATA || kind == CORDON_GUEST_PYTHON_FRESH ? CORDON_GUEST_PYTHON
                                                                                 : (enum cordon_guest_kind)kind;
}

static bool has_guests(const struct cordon_machine_template *template)
{
    for (const struct cordon_guest *guest = template->warden->guests; guest; guest = guest->next)
        if (guest->pool == &template->pool)
            return true;
    return false;
}

/* The one that was not used for longest, and of which nothing is in use now, gives way to another. */
static bool evict(struct cordon_machines *machines)
{
    struct cordon_machine_template **oldest = NULL;
    for (struct cordon_machine_template **at = &machines->templates; *at; at = &(*at)->next)
        if (!(*at)->pool.waiting && !(*at)->maker && (!oldest || (*at)->used_us < (*oldest)->used_us) &&
            (*at)->pool.parked_count + (*at)->pool.making == 0 && !has_guests(*at))
            oldest = at;
    if (!oldest)
        return false;
    struct cordon_machine_template *template = *oldest;
    *oldest = template->next;
    cordon_pool_close(&template->pool, -ESTALE, "another one takes its place");
    cordon_timer_cancel(&machines->warden->loop, &template->rest);
    drop(template);
    free(template);
    machines->template_count--;
    return true;
}

/* Parked clones keep a template from giving way; they go first, and it next time. */
static void make_room(struct cordon_machines *machines)
{
    struct cordon_machine_template *oldest = NULL;
    for (struct cordon_machine_template *at = machines->templates; at; at = at->next)
        if (!at->pool.waiting && !at->maker && (!oldest || at->used_us < oldest->used_us))
            oldest = at;
    if (!oldest)
        return;
    oldest->pool.wanted = false;
    oldest->pool.target = 0;
    cordon_pool_end_parked(&oldest->pool);
}

static struct cordon_machine_template *add(struct cordon_machines *machines, enum cordon_guest_kind kind,
                                           uint32_t memory_mb, bool network)
{
    if (machines->template_count >= CORDON_MACHINE_TEMPLATES_MAX && !evict(machines)) {
        make_room(machines);
        return NULL;
    }
    struct cordon_machine_template *template = calloc(1, sizeof *template);
    if (!template)
        return NULL;
    template->warden = machines->warden;
    template->memory_mb = memory_mb;
    template->ram = template->devices = template->coming_ram = template->coming_devices = -1;
    template->rest.on_due = on_rested;
    cordon_pool_init_machine(&template->pool, template, kind);
    template->pool.network = network;
    template->next = machines->templates;
    machines->templates = template;
    machines->template_count++;
    return template;
}

static struct cordon_machine_template *find(struct cordon_machines *machines, enum cordon_guest_kind kind,
                                            uint32_t memory_mb, bool network)
{
    for (struct cordon_machine_template *at = machines->templates; at; at = at->next)
        if (at->pool.kind == kind && at->memory_mb == memory_mb && at->pool.network == network)
            return at;
    return add(machines, kind, memory_mb, network);
}

void cordon_machine_acquire(struct cordon_warden *warden, const struct cordon_warden_acquire *request, int lease_take)
{
    cordon_autoclose int lease = lease_take;
    struct cordon_machines *machines = warden->machines;
    char why[200];
    cordon_machines_look(machines);
    bool known = cordon_machines_surveyed(machines);
    if (known && machines->found.status < 0) {
        cordon_peer_refuse(lease, machines->found.status, machines->found.why);
        return;
    }
    if (known && !(machines->found.languages & 1u << request->kind)) {
        cordon_peer_refuse(lease, -ENOENT, "the image of virtual machines has no interpreter for this language");
        return;
    }
    uint32_t memory_mb = memory_of(request), whole = memory_mb + cordon_machine_overhead_mb(machines);
    if (whole > warden->config.machine_memory_mb) {
        (void)snprintf(why, sizeof why,
                       "a machine of %u MiB takes %u MiB of the host, and all machines together may have %llu MiB "
                       "(CORDON_VM_MEMORY_BUDGET_MB)",
                       memory_mb, whole, (unsigned long long)warden->config.machine_memory_mb); /* fits */
        cordon_peer_refuse(lease, -EPERM, why);
        return;
    }
    struct cordon_machine_template *template = find(machines, kind_of(request->kind), memory_mb, request->network);
    if (!template) {
        cordon_peer_refuse(lease, -EAGAIN,
                           "machines of too many different memory sizes and networks are in use at once");
        return;
    }
    template->used_us = cordon_now_us();
    cordon_pool_acquire(&template->pool, request, CORDON_TAKE_FD(lease));
}
