/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Stored secrets are never given back. A form that is tried is sent with them, so one that only names another address
 * would get them told there: it must bring its own.
 */
#include <errno.h>
#include <string.h>

#include "door/admin/admin.h"

#define PLACES_MAX 4

static const struct {
    enum cordon_setting secret, places[PLACES_MAX];
    size_t count;
} table[] = {
    {CORDON_SET_SELF_MANAGED_TOKEN, {CORDON_SET_SELF_MANAGED_ENDPOINT}, 1},
    {CORDON_SET_SSH_PASSWORD, {CORDON_SET_SSH_HOST, CORDON_SET_SSH_PORT}, 2},
    {CORDON_SET_E2B_API_KEY, {CORDON_SET_E2B_SERVICE_DOMAIN, CORDON_SET_E2B_API_URL, CORDON_SET_E2B_SANDBOX_URL}, 3},
    {CORDON_SET_UCLOUD_SANDBOX_API_KEY,
     {CORDON_SET_UCLOUD_SANDBOX_REGION, CORDON_SET_UCLOUD_SANDBOX_DOMAIN, CORDON_SET_UCLOUD_SANDBOX_API_URL,
      CORDON_SET_UCLOUD_SANDBOX_URL},
     4},
    {CORDON_SET_CREATEOS_API_KEY, {CORDON_SET_CREATEOS_BASE_URL}, 1},
    {CORDON_SET_TENKI_API_KEY, {CORDON_SET_TENKI_API_URL}, 1},
    {CORDON_SET_AGENTRUN_ACCESS_KEY_SECRET,
     {CORDON_SET_AGENTRUN_ACCOUNT_ID, CORDON_SET_AGENTRUN_REGION, CORDON_SET_AGENTRUN_DATA_ENDPOINT},
     3},
    {CORDON_SET_AGENTRUN_SECURITY_TOKEN,
     {CORDON_SET_AGENTRUN_ACCOUNT_ID, CORDON_SET_AGENTRUN_REGION, CORDON_SET_AGENTRUN_DATA_ENDPOINT},
     3},
};
_Static_assert(sizeof table / sizeof *table == CORDON_ADMIN_PLACES, "each has its place in struct cordon_admin_places");

void cordon_admin_places_read(const struct cordon_settings *settings, struct cordon_admin_places *ret)
{
    struct cordon_setting_view view;
    for (size_t i = 0; i < CORDON_ADMIN_PLACES; i++) {
        ret->secrets[i] = CORDON_BUF_INIT(65536); /* failures stick, and are told by _check */
        ret->places[i] = CORDON_BUF_INIT(65536);
        (void)cordon_buf_appends(&ret->secrets[i],
                                 cordon_settings_string(settings, CORDON_DOOR_NATIVE, table[i].secret));
        for (size_t p = 0; p < table[i].count; p++)
            if (cordon_settings_view(settings, table[i].places[p], &view))
                (void)cordon_buf_appendf(&ret->places[i], "%s\n", view.value);
    }
}

static bool same(const struct cordon_buf *a, const struct cordon_buf *b)
{
    return a->size == b->size && (!a->size || memcmp(a->data, b->data, a->size) == 0);
}

int cordon_admin_places_check(const struct cordon_admin_places *before, const struct cordon_admin_places *after,
                              struct cordon_error *err)
{
    for (size_t i = 0; i < CORDON_ADMIN_PLACES; i++) {
        const struct cordon_buf *secret = &after->secrets[i];
        if (secret->failed || after->places[i].failed || before->secrets[i].failed || before->places[i].failed)
            return cordon_fail_errno(err, -ENOMEM, "compare where secrets go");
        if (secret->size && same(secret, &before->secrets[i]) && !same(&before->places[i], &after->places[i]))
            return cordon_fail(err, -EINVAL, CORDON_ERROR_INVALID,
                               "%s: what is stored was given for another address, and is not sent to this one: fill it "
                               "in anew, or save the address first",
                               cordon_settings_name(CORDON_DOOR_NATIVE, table[i].secret));
    }
    return 0;
}

void cordon_admin_places_done(struct cordon_admin_places *places)
{
    for (size_t i = 0; i < CORDON_ADMIN_PLACES; i++) {
        cordon_buf_wipe(&places->secrets[i]);
        cordon_buf_done(&places->places[i]);
    }
}
