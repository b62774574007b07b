/* SPDX-License-Identifier: Apache-2.0 */
/* What the files of the control plane share, and nobody else includes. */
#ifndef CORDON_E2B_CONTROL_H
#define CORDON_E2B_CONTROL_H

#include "base/log.h"
#include "core/guests.h"
#include "door/door.h"
#include "door/e2b/box.h"

/* What the SDKs make of it: which calls a sandbox knows. File metadata and network mounts are refused by themselves. */
#define CORDON_E2B_ENVD_VERSION "0.6.4"
#define CORDON_E2B_TTL_MAX_S 31536000

/* The sandbox that the path names, if it is the key's own and was made by this door: 0 or NOT_FOUND. living: one that
 * is gone is NOT_FOUND as well, with what ended it. */
int cordon_e2b_find(const struct cordon_http_request *request, bool living, struct cordon_guest_info **ret,
                    struct cordon_error *err);

/* Replies with what is in body, or with nothing (204). */
int cordon_e2b_reply(struct cordon_http_request *request, int status, struct cordon_buf *body,
                     struct cordon_error *err);
int cordon_e2b_reply_nothing(struct cordon_http_request *request, struct cordon_error *err);
int cordon_e2b_control_reply_error(struct cordon_http_request *request, const struct cordon_error *err);

/* Objects of the protocol, each a whole JSON object. */
void cordon_e2b_tell_sandbox(const struct cordon_http_request *request, const struct cordon_guest_info *guest,
                             const struct cordon_e2b_box *box, struct cordon_json *json);
void cordon_e2b_tell_detail(const struct cordon_http_request *request, const struct cordon_guest_info *guest,
                            const struct cordon_e2b_box *box, struct cordon_json *json);
void cordon_e2b_tell_listed(const struct cordon_guest_info *guest, const struct cordon_e2b_box *box,
                            struct cordon_json *json);
/* Replies with a Sandbox. */
int cordon_e2b_reply_sandbox(struct cordon_http_request *request, int status, const struct cordon_guest_info *guest,
                             struct cordon_error *err);

/* A network object (also its older spelling beside it) as the guest's egress. Texts are in memory. */
struct cordon_e2b_network {
    bool on;
    struct cordon_texts entries; /* of core/egress.h */
    bool public_traffic;
    const char *mask_host;
    const char *const *headers; /* of its rules, as core takes them; secrets */
    size_t header_count;
    struct cordon_value whole; /* as the client wrote it, but for the headers' values; data NULL: it wrote none */
};
/* rules.c: reads network's rules into ret's headers, and replaces ret's whole. */
int cordon_e2b_rules_read(const struct cordon_value *network, struct cordon_door_memory *memory,
                          struct cordon_e2b_network *ret, struct cordon_error *err);
int cordon_e2b_network_read(const struct cordon_settings *settings, const struct cordon_value *network,
                            const struct cordon_value *beside, struct cordon_door_memory *memory,
                            struct cordon_e2b_network *ret, struct cordon_error *err);

/* memory: false asks for a pause that keeps no processes, which is not offered. */
int cordon_e2b_check_memory(const struct cordon_value *body, const char *name, struct cordon_error *err);

/* One of the names that the SDKs ask for by themselves, which are the default template. */
bool cordon_e2b_template_is_own(const char *name);

/* Handlers of other files than control.c. */
cordon_http_handler cordon_e2b_create_old, cordon_e2b_create, cordon_e2b_list_old, cordon_e2b_list, cordon_e2b_metrics,
    cordon_e2b_metrics_many, cordon_e2b_logs_old, cordon_e2b_logs, cordon_e2b_network_put, cordon_e2b_absent,
    cordon_e2b_templates, cordon_e2b_template, cordon_e2b_template_alias;

#endif
