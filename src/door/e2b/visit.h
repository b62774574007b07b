/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A request that goes to a sandbox itself (envd, interpreter, a port of its own): which one it is for, and whether it
 * shows the token that this needs. These doors' clients have no key: the sandbox's own tokens are what they show.
 *
 * A door that serves such requests sets claims, admit (which calls cordon_e2b_visit_enter), dismiss and reply_error
 * from here; its handlers find the struct in request->admitted.
 */
#ifndef CORDON_E2B_VISIT_H
#define CORDON_E2B_VISIT_H

#include "core/guests.h"
#include "door/e2b/address.h"
#include "door/e2b/box.h"
#include "http/request.h"

struct cordon_e2b_visit {
    struct cordon_guest_info *guest;
    struct cordon_e2b_box box;
    struct cordon_door_memory memory;
    uint16_t port;
};

/* Whether the request names a sandbox, by host name or by header, and which. */
bool cordon_e2b_visit_address(const struct cordon_http_request *request, struct cordon_e2b_address *ret);

enum cordon_e2b_token { CORDON_E2B_OPEN, CORDON_E2B_ACCESS, CORDON_E2B_ACCESS_OR_SIGNED, CORDON_E2B_TRAFFIC };

/* Finds the guest, checks the token: request->admitted is set, or negative with err: GONE for whatever can't be reached
 * (unknown, ended, paused without auto-resume), UNAUTHENTICATED, FORBIDDEN. */
int cordon_e2b_visit_enter(struct cordon_http_request *request, enum cordon_e2b_token needed, struct cordon_error *err);
void cordon_e2b_visit_dismiss(void *visit);

/* Errors of the sandbox's own routes: 502 in E2B's shape for one that can't be reached, Connect's for the services,
 * else
 * {"code","message"}. */
int cordon_e2b_visit_reply_error(struct cordon_http_request *request, const struct cordon_error *err);
/* Lets browsers' scripts of any origin read the reply. */
void cordon_e2b_cors(struct cordon_http_request *request);
int cordon_e2b_preflight(struct cordon_http_request *request, struct cordon_error *err);

#endif
