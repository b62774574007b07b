/* SPDX-License-Identifier: Apache-2.0 */
/* A guest's egress log: its newest entries, and what they come to. Bounded. */
#ifndef CORDON_EGRESS_LOG_H
#define CORDON_EGRESS_LOG_H

#include "core/egress.h"

struct cordon_egress_entry {
    uint64_t id, at_ms; /* at_ms: real time */
    char name[CORDON_EGRESS_NAME_SIZE];
    char address[CORDON_EGRESS_ADDRESS_TEXT]; /* that was connected to, or asked for */
    uint16_t port;
    bool allowed;
    char rule[CORDON_EGRESS_RULE_TEXT + 1]; /* with its mark */
    char why[120];                          /* of a refusal or a failure */
    uint64_t sent, received;
    uint32_t count; /* alike ones in a row that were refused are one entry */
};

struct cordon_egress_log {
    struct cordon_egress_entry *ring;
    unsigned size, used, next;
    uint64_t last_id;
    struct cordon_egress_counts counts;
};

int cordon_egress_log_init(struct cordon_egress_log *log, unsigned entries); /* 0 or -ENOMEM */
void cordon_egress_log_done(struct cordon_egress_log *log);
/* A refusal (dns: of a name that was asked for). */
void cordon_egress_log_refused(struct cordon_egress_log *log, const char *name,
                               const struct cordon_egress_address *address, uint16_t port,
                               const struct cordon_egress_rule *rule, bool dns, const char *why);
/* One that was allowed and came to nothing: nobody listens there. It counts neither as refused nor as a connection. */
void cordon_egress_log_failed(struct cordon_egress_log *log, const char *name,
                              const struct cordon_egress_address *address, uint16_t port,
                              const struct cordon_egress_rule *rule, const char *why);
/* A connection that is relayed: its entry's id, for the bytes. */
uint64_t cordon_egress_log_allowed(struct cordon_egress_log *log, const char *name,
                                   const struct cordon_egress_address *address, uint16_t port,
                                   const struct cordon_egress_rule *rule);
/* Its bytes so far; nothing when its entry is gone. why: "" or how it ended badly. */
void cordon_egress_log_bytes(struct cordon_egress_log *log, uint64_t id, uint64_t sent, uint64_t received,
                             const char *why);
void cordon_egress_log_write(const struct cordon_egress_log *log, struct cordon_json *json); /* an array */

#endif
