/* SPDX-License-Identifier: Apache-2.0 */
/* What the doors share: the gateway's objects, the check of keys, the tables. */
#ifndef CORDON_DOOR_DOOR_H
#define CORDON_DOOR_DOOR_H

#include <sys/types.h>

#include "base/json.h"
#include "core/settings.h"
#include "http/server.h"
#include "store/store.h"

/* The context of every request. All of it is read-only while the server runs. */
struct cordon_doors {
    struct cordon_settings *settings; /* changed by the admin door alone */
    struct cordon_store *store;
    const char *version;
    const struct cordon_http_door *const *list; /* the doors that are served */
    uint64_t started_us;
    int state; /* the state folder's descriptor */
    /* Has the supervisor write to `to` what it finds of the host, as `cordon doctor --json` has it: 0, or negative
     * errno. NULL: there is none. */
    int (*look_at_host)(int to);
};

extern const struct cordon_http_door cordon_door_native, cordon_door_executor_manager, cordon_door_status,
    cordon_door_admin, cordon_door_ragflow_admin;

extern const struct cordon_http_door cordon_door_guests;

/* NULL-terminated, every door that there is. */
extern const struct cordon_http_door *const cordon_door_list[];

/* What GET /v1/backends answers, for the command line as well. */
void cordon_door_backends_write(struct cordon_json *json);

/* At the start: puts the stored settings in their place. */
int cordon_door_load_stored(const struct cordon_doors *doors, struct cordon_error *err);
/* What is to be done once a second, by one thread: writes the history of runs. */
void cordon_door_flush(const struct cordon_doors *doors);

/* For cordon_http_config: a key in Authorization: Bearer or X-API-Key, or a unix socket's client that is root or the
 * user that the gateway runs as. */
int cordon_door_authorize(struct cordon_http_request *request, enum cordon_http_scope scope, struct cordon_error *err);
/* Is it a unix socket's client that is root or our own user? */
bool cordon_door_is_own_user(const struct cordon_http_request *request);

/* Before the first request: limits by the settings, and a log line that says who may use /run. */
int cordon_executor_manager_setup(const struct cordon_settings *settings, struct cordon_error *err);
void cordon_executor_manager_done(void);

#endif
