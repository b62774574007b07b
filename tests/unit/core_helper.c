/* SPDX-License-Identifier: Apache-2.0 */
#include "core_helper.h"

#include <errno.h>
#include <unistd.h>

#include "base/error.h"

struct cordon_settings *load_settings(const char *first, ...)
{
    const char *pairs[32] = {first};
    size_t count = first ? 1 : 0;
    va_list ap;
    va_start(ap, first);
    while (first && (pairs[count] = va_arg(ap, const char *)))
        count++;
    va_end(ap);
    struct cordon_settings_input input = {.environ = pairs};
    struct cordon_settings *settings = NULL;
    struct cordon_error err = {0};
    if (cordon_settings_load(&input, &settings, &err) < 0)
        fail_msg("%s", err.message);
    return settings;
}

struct fake fake;
struct cordon_run {
    size_t next;
};

static const struct cordon_capabilities *fake_capabilities(void)
{
    return &fake.caps;
}

static int fake_probe(struct cordon_error *err)
{
    if (fake.probe_result < 0)
        return cordon_fail(err, fake.probe_result, CORDON_ERROR_UNAVAILABLE, "the host lacks something");
    return 0;
}

static int fake_open(const struct cordon_request *request, struct cordon_run **ret, struct cordon_error *err)
{
    fake.seen = *request;
    if (fake.open_result < 0)
        return cordon_fail(err, fake.open_result, CORDON_ERROR_UNAVAILABLE, "no guest");
    *ret = calloc(1, sizeof **ret);
    __atomic_fetch_add(&fake.opened, 1, __ATOMIC_SEQ_CST);
    return 0;
}

static int fake_next(struct cordon_run *run, struct cordon_event *event)
{
    char byte;
    if (run->next == 0 && fake.gate >= 0 && read(fake.gate, &byte, 1) < 0)
        return 0;
    if (run->next == fake.event_count)
        return 0;
    *event = fake.events[run->next++];
    return 1;
}

static void fake_close(struct cordon_run *run)
{
    if (run)
        __atomic_fetch_add(&fake.closed, 1, __ATOMIC_SEQ_CST);
    free(run);
}

const struct cordon_backend fake_backend = {
    .abi_version = CORDON_ABI_VERSION,
    .struct_size = sizeof fake_backend,
    .name = "local",
    .capabilities = fake_capabilities,
    .probe = fake_probe,
    .run_open = fake_open,
    .run_next = fake_next,
    .run_close = fake_close,
};

static const struct cordon_capabilities none_caps = {
    .struct_size = sizeof none_caps, .languages = "python", .network = true};

static const struct cordon_capabilities *get_none_caps(void)
{
    return &none_caps;
}

static const struct cordon_backend fake_none = {
    .abi_version = CORDON_ABI_VERSION,
    .struct_size = sizeof fake_none,
    .name = "none",
    .capabilities = get_none_caps,
    .run_open = fake_open,
    .run_next = fake_next,
    .run_close = fake_close,
};

void fake_reset(void)
{
    static const struct cordon_outcome exited = {.struct_size = sizeof exited, .run_us = 1234};
    static const struct cordon_event events[] = {{.type = CORDON_EVENT_STARTED},
                                                 {.type = CORDON_EVENT_STDOUT, .data = {"hi\n", 3}},
                                                 {.type = CORDON_EVENT_OUTCOME, .outcome = &exited}};
    static const struct cordon_backend *const builtin[] = {&fake_none, &fake_backend, NULL};
    fake = (struct fake){
        .caps = {.struct_size = sizeof fake.caps,
                 .isolation = CORDON_ISOLATION_NAMESPACE,
                 .deny_all_egress = true,
                 .domain_allowlist = true,
                 .files = true,
                 .artifacts = true,
                 .memory_limit = true,
                 .pids_limit = true,
                 .cpu_limit = true,
                 .agent_protected = true,
                 .languages = "python,javascript,bash",
                 .network = true},
        .events = events,
        .event_count = 3,
        .gate = -1,
    };
    cordon_registry_setup(builtin);
}
