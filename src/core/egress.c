/* SPDX-License-Identifier: Apache-2.0 */
/* The policy: entries in, decisions out. Order of a decision: strong denials, strong allowances, denials, allowances,
 * the mode. */
#include "core/egress.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/fd.h"

const char *cordon_egress_mode_name(enum cordon_egress_mode mode)
{
    static const char *const names[] = {"off", "names", "open"};
    _Static_assert(sizeof names / sizeof *names == CORDON_EGRESS_MODE__COUNT, "one name a mode");
    return (unsigned)mode < CORDON_EGRESS_MODE__COUNT ? names[mode] : "unknown";
}

void cordon_egress_policy_done(struct cordon_egress_policy *policy)
{
    cordon_egress_headers_done(policy);
    free(policy->rules);
    free(policy->strong);
    *policy = CORDON_EGRESS_POLICY_OFF;
}

/* --- making it --- */

/* Room for one more: doubled now and then, so that count alone tells the capacity. */
static int grow(void *list, size_t count, size_t size)
{
    void *old, *room;
    if (count & (count - 1))
        return 0;
    memcpy(&old, list, sizeof old);
    room = reallocarray(old, count ? count * 2 : 1, size);
    if (!room)
        return -ENOMEM;
    memcpy(list, &room, sizeof room);
    return 0;
}

static int add_rule(struct cordon_egress_policy *policy, const struct cordon_egress_rule *rule, bool strong,
                    struct cordon_error *err)
{
    if (policy->rule_count >= CORDON_EGRESS_RULES_MAX)
        return cordon_fail(err, -E2BIG, CORDON_ERROR_INVALID, "more than %u egress rules", CORDON_EGRESS_RULES_MAX);
    if (grow(&policy->rules, policy->rule_count, sizeof *policy->rules) < 0 ||
        grow(&policy->strong, policy->rule_count, sizeof *policy->strong) < 0)
        return cordon_fail_errno(err, -ENOMEM, "keep an egress rule");
    policy->rules[policy->rule_count] = *rule;
    policy->strong[policy->rule_count++] = strong;
    return 0;
}

static int check_open(const struct cordon_egress_policy *policy, struct cordon_error *err)
{
    for (size_t i = 0; policy->mode == CORDON_EGRESS_OPEN && i < policy->rule_count; i++) {
        const struct cordon_egress_rule *rule = &policy->rules[i];
        if (rule->deny && rule->form != CORDON_EGRESS_RANGE)
            return cordon_fail(err, -EINVAL, CORDON_ERROR_INVALID,
                               "egress rules: the name %.200s can not be denied beside \"*\", since every address is "
                               "allowed; deny its addresses, or list what is allowed",
                               rule->name);
    }
    return 0;
}

int cordon_egress_policy_add(struct cordon_egress_policy *policy, const char *entry, struct cordon_error *err)
{
    struct cordon_egress_rule rule;
    char mark = *entry;
    if (policy->mode == CORDON_EGRESS_OFF)
        policy->mode = CORDON_EGRESS_NAMES;
    if (strcmp(entry, "*") == 0) {
        policy->mode = CORDON_EGRESS_OPEN;
        return check_open(policy, err);
    }
    bool strong = mark == '+' || strncmp(entry, "!!", 2) == 0;
    if (mark == '!' || mark == '+')
        entry += mark == '!' && strong ? 2 : 1;
    int r = cordon_egress_rule_parse(entry, strlen(entry), &rule, err);
    if (r < 0)
        return r;
    rule.deny = mark == '!';
    r = add_rule(policy, &rule, strong, err);
    return r < 0 ? r : check_open(policy, err);
}

/* Langflow's exec-sandbox: a listed domain means the names below it as well. */
static int cover_subdomains(struct cordon_egress_policy *policy, struct cordon_error *err)
{
    size_t count = policy->rule_count;
    for (size_t i = 0; i < count; i++) {
        struct cordon_egress_rule below = policy->rules[i];
        if (below.form != CORDON_EGRESS_NAME)
            continue;
        below.form = CORDON_EGRESS_BELOW;
        int r = add_rule(policy, &below, policy->strong[i], err);
        if (r < 0)
            return r;
    }
    return 0;
}

static int add_setting(const struct cordon_settings *settings, enum cordon_door door, enum cordon_setting id,
                       struct cordon_egress_policy *policy, struct cordon_error *err)
{
    const char *item;
    int r = 0;
    for (size_t i = 0; r == 0 && (item = cordon_settings_item(settings, door, id, i)); i++)
        r = cordon_egress_policy_add(policy, item, err);
    if (r < 0)
        cordon_error_context(err, "%s", cordon_settings_name(door, id));
    return r;
}

/* What the operator denies is denied whatever a request allows. */
static int add_denials(const struct cordon_settings *settings, enum cordon_door door,
                       struct cordon_egress_policy *policy, struct cordon_error *err)
{
    char strong[CORDON_EGRESS_RULE_TEXT + 2];
    const char *item;
    int r = 0;
    for (size_t i = 0; r == 0 && (item = cordon_settings_item(settings, door, CORDON_SET_ALLOWED_DOMAINS, i)); i++) {
        if (*item != '!' || strlen(item) >= sizeof strong - 1)
            continue;
        (void)snprintf(strong, sizeof strong, "!%s", item + (item[1] == '!'));
        r = cordon_egress_policy_add(policy, strong, err);
    }
    return r;
}

static int fill(const struct cordon_settings *settings, enum cordon_door door, const char *const *entries, size_t count,
                struct cordon_egress_policy *policy, struct cordon_error *err)
{
    int r = 0;
    for (size_t i = 0; r == 0 && i < count; i++)
        r = cordon_egress_policy_add(policy, entries[i], err);
    if (r == 0)
        r = count ? add_denials(settings, door, policy, err)
                  : add_setting(settings, door, CORDON_SET_ALLOWED_DOMAINS, policy, err);
    if (r == 0 && policy->mode == CORDON_EGRESS_OFF && door == CORDON_DOOR_LANGFLOW)
        r = add_setting(settings, door, CORDON_SET_EGRESS_REGISTRIES, policy, err);
    if (r == 0 && policy->mode == CORDON_EGRESS_OFF)
        policy->mode = CORDON_EGRESS_OPEN;
    if (r == 0 && cordon_settings_bool(settings, door, CORDON_SET_EGRESS_SUBDOMAINS))
        r = cover_subdomains(policy, err);
    return r;
}

int cordon_egress_policy_for(const struct cordon_settings *settings, enum cordon_door door, bool network,
                             const char *const *entries, size_t count, struct cordon_egress_policy *ret,
                             struct cordon_error *err)
{
    struct cordon_egress_policy policy = CORDON_EGRESS_POLICY_OFF;
    int r = network ? fill(settings, door, entries, count, &policy, err) : 0;
    if (r < 0)
        cordon_egress_policy_done(&policy);
    else
        *ret = policy;
    return r;
}

/* --- settings --- */

int cordon_egress_range_setting(const struct cordon_settings *settings, enum cordon_setting id, size_t i,
                                bool only_addresses, struct cordon_egress_rule *ret, struct cordon_error *err)
{
    const char *item = cordon_settings_item(settings, CORDON_DOOR_NATIVE, id, i);
    if (!item)
        return 0;
    int r = cordon_egress_rule_parse(item, strlen(item), ret, err);
    if (r == 0 && (ret->form != CORDON_EGRESS_RANGE || (only_addresses && ret->bits != 128)))
        r = cordon_fail(err, -EINVAL, CORDON_ERROR_INVALID, "\"%.100s\" is no address%s", item,
                        only_addresses ? "" : " or CIDR");
    if (r < 0)
        cordon_error_context(err, "%s", cordon_settings_name(CORDON_DOOR_NATIVE, id));
    return r < 0 ? r : 1;
}

static int check_ranges(const struct cordon_settings *settings, enum cordon_setting id, bool only_addresses,
                        struct cordon_error *err)
{
    struct cordon_egress_rule rule;
    int r = 1;
    for (size_t i = 0; r > 0; i++)
        r = cordon_egress_range_setting(settings, id, i, only_addresses, &rule, err);
    return r;
}

/* NAME:PORT, and addresses behind a slash, which verify reads. */
static int check_target(const struct cordon_settings *settings, enum cordon_setting id, struct cordon_error *err)
{
    struct cordon_egress_rule rule;
    const char *text = cordon_settings_string(settings, CORDON_DOOR_NATIVE, id);
    if (!*text || (cordon_egress_rule_parse(text, strcspn(text, "/"), &rule, NULL) == 0 &&
                   rule.form == CORDON_EGRESS_NAME && rule.port))
        return 0;
    return cordon_fail(err, -EINVAL, CORDON_ERROR_INVALID,
                       "%s: \"%.100s\" is no name and port of a probe server, as probe.example.com:8080 is",
                       cordon_settings_name(CORDON_DOOR_NATIVE, id), text);
}

int cordon_egress_check_settings(const struct cordon_settings *settings, struct cordon_error *err)
{
    struct cordon_egress_policy policy = CORDON_EGRESS_POLICY_OFF;
    int r = check_ranges(settings, CORDON_SET_EGRESS_RANGES, false, err);
    if (r == 0)
        r = check_ranges(settings, CORDON_SET_EGRESS_RESOLVER, true, err);
    if (r == 0)
        r = check_target(settings, CORDON_SET_VERIFY_LISTED, err);
    if (r == 0)
        r = check_target(settings, CORDON_SET_VERIFY_UNLISTED, err);
    if (r == 0)
        r = add_setting(settings, CORDON_DOOR_NATIVE, CORDON_SET_EGRESS_REGISTRIES, &policy, err);
    cordon_egress_policy_done(&policy);
    for (int door = 0; r == 0 && door < CORDON_DOOR__COUNT; door++) {
        r = add_setting(settings, (enum cordon_door)door, CORDON_SET_ALLOWED_DOMAINS, &policy, err);
        cordon_egress_policy_done(&policy);
    }
    return r;
}

/* --- deciding --- */

enum rank { STRONGLY_DENIED, STRONGLY_ALLOWED, DENIED, ALLOWED, RANKS };

static enum rank rank_of(const struct cordon_egress_policy *policy, size_t i)
{
    if (policy->strong[i])
        return policy->rules[i].deny ? STRONGLY_DENIED : STRONGLY_ALLOWED;
    return policy->rules[i].deny ? DENIED : ALLOWED;
}

static bool has_name(const struct cordon_egress_rule *rule, const char *name, uint16_t port)
{
    bool any_port = port == 0 && !rule->deny; /* a question alone: some port may be allowed, none must be denied */
    return cordon_egress_rule_has_name(rule, name, any_port ? rule->port : port);
}

/* The first rule of each rank that fits name, or else address. */
static void find(const struct cordon_egress_policy *policy, const char *name,
                 const struct cordon_egress_address *address, uint16_t port,
                 const struct cordon_egress_rule *found[RANKS])
{
    for (size_t i = 0; i < policy->rule_count; i++) {
        const struct cordon_egress_rule *rule = &policy->rules[i];
        bool fits = name ? has_name(rule, name, port) : cordon_egress_rule_has_address(rule, address, port);
        enum rank rank = rank_of(policy, i);
        if (fits && !found[rank])
            found[rank] = rule;
    }
}

static enum cordon_egress_verdict decide(const struct cordon_egress_policy *policy, const char *name,
                                         const struct cordon_egress_address *address, uint16_t port,
                                         const struct cordon_egress_rule **rule)
{
    const struct cordon_egress_rule *found[RANKS] = {NULL};
    *rule = NULL;
    if (policy->mode == CORDON_EGRESS_OFF)
        return CORDON_EGRESS_REFUSE;
    find(policy, name, address, port, found);
    for (unsigned rank = 0; rank < RANKS; rank++) {
        if (!found[rank])
            continue;
        *rule = found[rank];
        return found[rank]->deny ? CORDON_EGRESS_REFUSE : CORDON_EGRESS_ALLOW;
    }
#ifdef CORDON_WEAKEN_EGRESS
    return CORDON_EGRESS_ALLOW;
#endif
    return policy->mode == CORDON_EGRESS_OPEN ? CORDON_EGRESS_ALLOW : CORDON_EGRESS_REFUSE;
}

enum cordon_egress_verdict cordon_egress_decide_name(const struct cordon_egress_policy *policy, const char *name,
                                                     uint16_t port, const struct cordon_egress_rule **rule)
{
    return decide(policy, name, NULL, port, rule);
}

enum cordon_egress_verdict cordon_egress_decide_address(const struct cordon_egress_policy *policy,
                                                        const struct cordon_egress_address *address, uint16_t port,
                                                        const struct cordon_egress_rule **rule)
{
    return decide(policy, NULL, address, port, rule);
}

const struct cordon_egress_rule *cordon_egress_denied_address(const struct cordon_egress_policy *policy,
                                                              const struct cordon_egress_address *address,
                                                              uint16_t port)
{
    const struct cordon_egress_rule *found[RANKS] = {NULL};
    find(policy, NULL, address, port, found);
    if (found[STRONGLY_DENIED])
        return found[STRONGLY_DENIED];
    return found[STRONGLY_ALLOWED] ? NULL : found[DENIED];
}

bool cordon_egress_policy_covers(const struct cordon_egress_policy *policy, const char *entry)
{
    struct cordon_egress_policy one = CORDON_EGRESS_POLICY_OFF;
    bool covers = cordon_egress_policy_add(&one, entry, NULL) == 0;
    if (covers && policy->mode != CORDON_EGRESS_OPEN && one.mode == CORDON_EGRESS_OPEN)
        covers = false;
    if (covers && policy->mode != CORDON_EGRESS_OPEN && one.rule_count && !one.rules[0].deny) {
        covers = false;
        for (size_t i = 0; i < policy->rule_count && !covers; i++)
            covers = !policy->rules[i].deny && cordon_egress_rule_within(&one.rules[0], &policy->rules[i]);
    }
    cordon_egress_policy_done(&one);
    return covers;
}

/* --- as text --- */

int cordon_egress_policy_write(const struct cordon_egress_policy *policy, bool with_headers, struct cordon_buf *to)
{
    char text[CORDON_EGRESS_RULE_TEXT];
    (void)cordon_buf_appendf(to, "%s\n", cordon_egress_mode_name(policy->mode)); /* failures are sticky */
    for (size_t i = 0; i < policy->rule_count; i++) {
        cordon_egress_rule_format(&policy->rules[i], text);
        bool strong = policy->strong[i];
        const char *mark = policy->rules[i].deny ? (strong ? "!!" : "!") : strong ? "+" : "";
        (void)cordon_buf_appendf(to, "%s%s\n", mark, text);
    }
    for (size_t i = 0; with_headers && i < policy->header_count; i++) {
        cordon_egress_rule_format(&policy->headers[i].host, text);
        (void)cordon_buf_appendf(to, "=%s %s: %s\n", text, policy->headers[i].name, policy->headers[i].value);
    }
    return to->failed ? -EMSGSIZE : 0;
}

/* "=host name: value" */
static int read_header(char *line, struct cordon_egress_policy *policy, struct cordon_error *err)
{
    char *name = strchr(line, ' '), *value = name ? strstr(name, ": ") : NULL;
    if (!value)
        return cordon_fail(err, -EINVAL, CORDON_ERROR_INVALID, "egress policy: malformed header");
    *name = *value = '\0';
    return cordon_egress_policy_add_header(policy, line + 1, name + 1, value + 2, err);
}

static int read_line(char *line, bool first, struct cordon_egress_policy *policy, struct cordon_error *err)
{
    if (!first)
        return *line == '=' ? read_header(line, policy, err)
               : strcmp(line, "*") == 0
                   ? cordon_fail(err, -EINVAL, CORDON_ERROR_INVALID, "egress policy: its mode comes first")
                   : cordon_egress_policy_add(policy, line, err);
    for (unsigned mode = 0; mode < CORDON_EGRESS_MODE__COUNT; mode++) {
        if (strcmp(line, cordon_egress_mode_name((enum cordon_egress_mode)mode)) == 0) {
            policy->mode = (enum cordon_egress_mode)mode;
            return 0;
        }
    }
    return cordon_fail(err, -EINVAL, CORDON_ERROR_INVALID, "egress policy: unknown mode");
}

static int read_lines(char *text, size_t size, struct cordon_egress_policy *policy, struct cordon_error *err)
{
    int r = size ? 0 : cordon_fail(err, -EINVAL, CORDON_ERROR_INVALID, "egress policy: empty");
    for (size_t at = 0; r == 0 && at < size;) {
        char *end = memchr(text + at, '\n', size - at);
        size_t length = end ? (size_t)(end - text) - at : 0;
        if (!end || strlen(text + at) < length) /* every line ends, and none has a NUL */
            return cordon_fail(err, -EINVAL, CORDON_ERROR_INVALID, "egress policy: malformed line");
        *end = '\0';
        r = read_line(text + at, at == 0, policy, err);
        if (r == 0 && at && policy->mode == CORDON_EGRESS_NAMES && strncmp(text, "off", 3) == 0)
            r = cordon_fail(err, -EINVAL, CORDON_ERROR_INVALID, "egress policy: off has no rules");
        at += length + 1;
    }
    return r;
}

int cordon_egress_policy_read(const char *text, size_t size, struct cordon_egress_policy *ret, struct cordon_error *err)
{
    struct cordon_egress_policy policy = CORDON_EGRESS_POLICY_OFF;
    char *copy = size <= CORDON_EGRESS_TEXT_MAX ? malloc(size + 1) : NULL;
    if (!copy)
        return cordon_fail(err, -E2BIG, CORDON_ERROR_INVALID, "egress policy: %zu bytes", size);
    if (size)
        memcpy(copy, text, size);
    copy[size] = '\0';
    int r = read_lines(copy, size, &policy, err);
    explicit_bzero(copy, size); /* it may have secrets */
    free(copy);
    if (r < 0)
        cordon_egress_policy_done(&policy);
    else
        *ret = policy;
    return r;
}

void cordon_egress_counts_write(const struct cordon_egress_counts *counts, struct cordon_json *json)
{
    const struct {
        const char *key;
        uint64_t number;
    } rows[] = {
        {"connections", counts->connections},     {"refused", counts->refused}, {"names", counts->names},
        {"names_refused", counts->names_refused}, {"bytes_sent", counts->sent}, {"bytes_received", counts->received}};
    cordon_json_object_begin(json);
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        cordon_json_key(json, rows[i].key);
        cordon_json_uint(json, rows[i].number);
    }
    cordon_json_key(json, "first_refused");
    cordon_json_text(json, *counts->first_refused ? counts->first_refused : NULL);
    cordon_json_object_end(json);
}
