/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a guest may reach: one policy, with the same meaning behind every door. Doors and cells hand entries (texts) to
 * core; core makes a policy of them; the backend `local` holds it by the egress process (src/egress, guest/egress.h).
 *
 * Modes. OFF: nothing. NAMES: only what a rule allows. OPEN: all of the internet but what a rule denies; TCP to any
 * port, DNS, no other UDP. In every mode special ranges (cordon_egress_address_special) and the host's own addresses
 * are out of reach unless the operator's CORDON_EGRESS_RANGES has the address; no request can add to that list.
 *
 * An entry is a rule of egress_rule.h, maybe with a mark before it:
 *     rule     allowed
 *     !rule    denied: beats what is allowed. A range counts for what a name resolves to, too. With "*", only addresses
 *              and ranges can be denied, since whoever may connect to any address needs no name
 *     !!rule   denied, whatever is allowed: what CORDON_ALLOWED_DOMAINS denies becomes this in every policy
 *     +rule    allowed, and beats what is denied (the E2B door's allowOut, by its protocol)
 *     *        everything that no rule denies: the mode is OPEN
 * A port without a mark is part of the rule. Entries without "*" make NAMES, even when there is none that allows.
 */
#ifndef CORDON_CORE_EGRESS_H
#define CORDON_CORE_EGRESS_H

#include <cordon/backend.h>

#include "base/buf.h"
#include "base/json.h"
#include "core/egress_rule.h"
#include "core/settings.h"

#define CORDON_EGRESS_RULES_MAX 512u
#define CORDON_EGRESS_HEADERS_MAX 32u
#define CORDON_EGRESS_HEADER_NAME_MAX 128u
#define CORDON_EGRESS_HEADER_VALUE_MAX 4096u
#define CORDON_EGRESS_TEXT_MAX (192u << 10) /* of a policy's text, and of a log's JSON */

enum cordon_egress_mode { CORDON_EGRESS_OFF = 0, CORDON_EGRESS_NAMES, CORDON_EGRESS_OPEN, CORDON_EGRESS_MODE__COUNT };

/* Put into each request to the host that the rule names (a NAME or BELOW rule), in place of one of that name. */
struct cordon_egress_header {
    struct cordon_egress_rule host;
    char *name, *value; /* value is a secret: wiped when freed, never shown */
};

struct cordon_egress_policy {
    enum cordon_egress_mode mode;
    struct cordon_egress_rule *rules; /* with deny set or not */
    bool *strong;                     /* of each rule: it beats denials */
    size_t rule_count;
    struct cordon_egress_header *headers;
    size_t header_count;
};

struct cordon_value; /* core/value.h */

#define CORDON_EGRESS_POLICY_OFF ((struct cordon_egress_policy){.mode = CORDON_EGRESS_OFF})

void cordon_egress_policy_done(struct cordon_egress_policy *policy); /* frees, wipes; the policy is OFF then */
/* Adds one entry; sets the mode as told above. INVALID with err, or -E2BIG beyond CORDON_EGRESS_RULES_MAX. */
int cordon_egress_policy_add(struct cordon_egress_policy *policy, const char *entry, struct cordon_error *err);
/* Header names and values are checked (a token; no control bytes); names that frame a message (Host, Content-Length,
 * Transfer-Encoding, Connection, …) are refused. The host must be a name rule. */
int cordon_egress_policy_add_header(struct cordon_egress_policy *policy, const char *host, const char *name,
                                    const char *value, struct cordon_error *err);
/* Those of a request, each "HOST NAME: VALUE": as above; the policy must allow the host (INVALID), and where TLS is
 * possible (no port, or 443) CORDON_EGRESS_CA must be on (REFUSED). Messages never show a value. */
int cordon_egress_policy_add_headers(struct cordon_egress_policy *policy, const struct cordon_settings *settings,
                                     enum cordon_door door, const char *const *headers, size_t count,
                                     struct cordon_error *err);
bool cordon_egress_policy_has_header(const struct cordon_egress_policy *policy, const char *name, uint16_t port);
void cordon_egress_headers_done(struct cordon_egress_policy *policy); /* of policy_done */
/* {"HOST": {"NAME": "VALUE", …}, …} as such texts, in memory that take gives (zeroed, NULL: none). INVALID names the
 * field, and never shows a value. */
int cordon_egress_headers_read(const struct cordon_value *object, const char *field,
                               void *(*take)(void *memory, size_t size), void *memory, const char *const **ret,
                               size_t *count, struct cordon_error *err);
/* The environment of a guest in which programs trust the authority that signs for hosts with headers: env and what is
 * missing in it. An array to be freed, whose texts are borrowed; NULL: no memory. *ret: how many. */
const char **cordon_egress_trust(const char *const *env, size_t count, size_t *ret);

/*
 * The policy of a run or guest behind a door. network false: OFF. Else its own entries; where it has none, those of
 * CORDON_ALLOWED_DOMAINS (as the door sees it); where there are none either, OPEN, but for the Langflow door, where
 * that means the package registries (CORDON_EGRESS_REGISTRIES). For a door with CORDON_EGRESS_SUBDOMAINS each name rule
 * covers the names below it as well. Whether the entries lie within CORDON_ALLOWED_DOMAINS is policy's to check
 * (core/policy.h). Free with _done.
 */
int cordon_egress_policy_for(const struct cordon_settings *settings, enum cordon_door door, bool network,
                             const char *const *entries, size_t count, struct cordon_egress_policy *ret,
                             struct cordon_error *err);

/* Are the egress settings what they must be? 0, or INVALID naming the one that is not. */
int cordon_egress_check_settings(const struct cordon_settings *settings, struct cordon_error *err);
/* Reads a setting that is a list of addresses and CIDRs (with only_addresses: of addresses, maybe with port): the i-th
 * as a rule, 1; 0 at the end; negative with err. */
int cordon_egress_range_setting(const struct cordon_settings *settings, enum cordon_setting id, size_t i,
                                bool only_addresses, struct cordon_egress_rule *ret, struct cordon_error *err);

/* The decision, and the rule that made it (NULL: the mode did). */
enum cordon_egress_verdict { CORDON_EGRESS_REFUSE = 0, CORDON_EGRESS_ALLOW };
/* May a connection to this name and port be made? name as cordon_egress_name_read made it. port 0: to some port, which
 * is what a DNS question asks. */
enum cordon_egress_verdict cordon_egress_decide_name(const struct cordon_egress_policy *policy, const char *name,
                                                     uint16_t port, const struct cordon_egress_rule **rule);
/* …to this address, which the guest chose itself. Special ranges are the egress process's to judge. */
enum cordon_egress_verdict cordon_egress_decide_address(const struct cordon_egress_policy *policy,
                                                        const struct cordon_egress_address *address, uint16_t port,
                                                        const struct cordon_egress_rule **rule);

/* Does the entry ask for nothing that the policy does not allow? (For what a request may name: what it denies itself is
 * fine.) */
bool cordon_egress_policy_covers(const struct cordon_egress_policy *policy, const char *entry);

/* Does a rule deny this address, whichever name led to it? */
const struct cordon_egress_rule *cordon_egress_denied_address(const struct cordon_egress_policy *policy,
                                                              const struct cordon_egress_address *address,
                                                              uint16_t port);

/* The policy as text, to the egress process and into the store: one line an entry. Read is for hostile text, fuzzed:
 * -EINVAL for what write would not have written. Headers are written only with_headers. */
int cordon_egress_policy_write(const struct cordon_egress_policy *policy, bool with_headers, struct cordon_buf *to);
int cordon_egress_policy_read(const char *text, size_t size, struct cordon_egress_policy *ret,
                              struct cordon_error *err);

const char *cordon_egress_mode_name(enum cordon_egress_mode mode); /* "off", "names", "open" */

void cordon_egress_counts_write(const struct cordon_egress_counts *counts, struct cordon_json *json);

#endif
