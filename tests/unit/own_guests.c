/* SPDX-License-Identifier: Apache-2.0 */
#include "own_guests.h"

struct cordon_capabilities own_caps;
static struct cordon_settings *settings;

const struct cordon_capabilities *own_capabilities(void)
{
    return &own_caps;
}

static int put(void *context, const char *id, const char *record, size_t size, struct cordon_error *e)
{
    return 0;
}

static int forget(void *context, const char *id, struct cordon_error *e)
{
    return 0;
}

static int each(void *context, void (*row)(void *row_context, const char *id, const char *record, size_t size),
                void *row_context, struct cordon_error *e)
{
    for (const struct own_row *at = context; at && at->id; at++)
        row(row_context, at->id, at->record, strlen(at->record));
    return 0;
}

struct cordon_guest_registry own_registry(const struct own_row *rows)
{
    return (struct cordon_guest_registry){
        .context = (void *)(uintptr_t)rows, .put = put, .remove = forget, .each = each};
}

void own_guests_start(const struct cordon_backend *const *backends, const struct cordon_guest_registry *registry)
{
    struct cordon_error err = {0};
    fake_reset();
    own_caps = fake.caps;
    own_caps.guests = true;
    cordon_registry_setup(backends);
    settings = load_settings("CORDON_ALLOW_NETWORK=true", NULL);
    if (cordon_guests_setup(settings, registry, &err) < 0)
        fail_msg("%s", err.message);
}

void own_guests_stop(void)
{
    cordon_guests_done();
    cordon_settings_free(settings);
}
