/* SPDX-License-Identifier: Apache-2.0 */
/* One function a rule, in the order of policy.h; the first that fails wins, and none gives way to another backend. */
#include "core/policy.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <time.h>

#include "core/egress.h"
#include "core/registry.h"
#include "core/verify.h"
#include "core/template.h"

struct question {
    const struct cordon_settings *settings;
    const struct cordon_run_request *run;
    const struct cordon_request *request;
    const char *backend;
    struct cordon_capabilities caps;
    bool named;
    const char *unproven; /* CORDON_REQUIRE_VERIFIED: behind each refusal for what was only declared; "" */
    bool unisolated;      /* the backend `none`, named and allowed: what isolation would hold is waived with it */
    struct cordon_error *err;
};

static const char *name_of(const struct question *q, enum cordon_setting id)
{
    return cordon_settings_name(q->run->door, id);
}

static int refuse(const struct question *q, const char *fmt, ...) CORDON_PRINTF(2, 3);
static int refuse(const struct question *q, const char *fmt, ...)
{
    char text[440];
    va_list ap;
    va_start(ap, fmt);
    (void)vsnprintf(text, sizeof text, fmt, ap); /* cut on purpose */
    va_end(ap);
    return cordon_fail(q->err, -EPERM, CORDON_ERROR_REFUSED, "the code was refused and not run: %s%s", text,
                       q->unproven);
}

static int check_none(const struct question *q)
{
    if (strcmp(q->backend, "none") != 0)
        return refuse(q,
                      "the backend %s isolates nothing, which %s forgives no backend but none itself; another backend "
                      "would be accepted",
                      q->backend, name_of(q, CORDON_SET_ALLOW_NONE));
    if (!q->named)
        return refuse(q,
                      "the backend none isolates nothing and runs only what names it, and this came to it by %s; "
                      "another value of that, such as local, would be accepted",
                      name_of(q, CORDON_SET_BACKEND));
    return refuse(q, "the backend none isolates nothing and %s is false; true would be accepted",
                  name_of(q, CORDON_SET_ALLOW_NONE));
}

/* CreateOS's clients tell their users "hardware-virtualized" whatever they find, so less is to be set for that door
 * alone. */
static enum cordon_setting floor_of(enum cordon_door door)
{
    return door == CORDON_DOOR_CREATEOS ? CORDON_SET_CREATEOS_MIN_ISOLATION : CORDON_SET_MIN_ISOLATION;
}

/* A machine that is emulated in software is no boundary by its emulator's own word: accepted only where the operator
 * says so, only of this backend, whose word about it is ours, and then told as what it is. */
static bool emulation_accepted(const struct question *q)
{
    return strcmp(q->backend, "exec-sandbox") == 0 && q->caps.isolation == CORDON_ISOLATION_SOFTWARE_EMULATED &&
           cordon_settings_bool(q->settings, q->run->door, CORDON_SET_ALLOW_SOFTWARE_EMULATION);
}

static int check_langflow(const struct question *q)
{
    if (q->caps.isolation == CORDON_ISOLATION_HARDWARE_VIRTUALIZED || emulation_accepted(q))
        return 0;
    bool may = q->caps.isolation == CORDON_ISOLATION_SOFTWARE_EMULATED && strcmp(q->backend, "exec-sandbox") == 0;
    return refuse(q,
                  "%s: the backend %s reports the isolation \"%s\", which is not a hardware-virtualized boundary; only "
                  "hardware-virtualized%s%s%s would be accepted",
                  name_of(q, CORDON_SET_BACKEND), q->backend, cordon_isolation_name(q->caps.isolation),
                  may ? " (`cordon doctor` says what this host lacks), or for trusted code " : "",
                  may ? name_of(q, CORDON_SET_ALLOW_SOFTWARE_EMULATION) : "", may ? "=true," : "");
}

static int check_isolation(const struct question *q)
{
    enum cordon_isolation needed = CORDON_ISOLATION_HARDWARE_VIRTUALIZED;
    if (q->unisolated)
        return 0;
    if (q->run->door == CORDON_DOOR_LANGFLOW)
        return check_langflow(q);
    if (q->caps.isolation == CORDON_ISOLATION_NONE)
        return check_none(q);
    if (q->caps.isolation == CORDON_ISOLATION_SOFTWARE_EMULATED && strcmp(q->backend, "exec-sandbox") == 0 &&
        !emulation_accepted(q))
        return refuse(
            q,
            "the backend %s can only emulate machines in software here, which is no boundary, and %s is false; "
            "hardware virtualization (`cordon doctor` says what this host lacks), or for trusted code true, "
            "would be accepted",
            q->backend, name_of(q, CORDON_SET_ALLOW_SOFTWARE_EMULATION));
    enum cordon_setting least = floor_of(q->run->door);
    const char *text = cordon_settings_string(q->settings, q->run->door, least);
    if (cordon_isolation_parse(text, &needed) == 0 && q->caps.isolation >= needed)
        return 0;
    return refuse(q, "%s is %s and the backend %s reports the isolation \"%s\"; %s or stronger would be accepted",
                  name_of(q, least), text, q->backend, cordon_isolation_name(q->caps.isolation), text);
}

/* The executor manager's programs do not ask for themselves: its operator does, for all, which is leave enough. */
static enum cordon_setting leave_setting(const struct question *q)
{
    return q->run->door == CORDON_DOOR_EXECUTOR_MANAGER ? CORDON_SET_EXECUTOR_NETWORK : CORDON_SET_ALLOW_NETWORK;
}

static int check_egress(const struct question *q)
{
    const char *name = name_of(q, leave_setting(q));
    bool allowed = cordon_settings_bool(q->settings, q->run->door, leave_setting(q));
    if (q->unisolated)
        return 0;
    if (!q->request->network && !q->caps.deny_all_egress)
        return refuse(q,
                      "%s is %s, the request asks for no network, and the backend %s cannot block all egress; a "
                      "backend that can would be accepted",
                      name, allowed ? "true" : "false", q->backend);
    if (q->request->network && !allowed)
        return refuse(q,
                      "the request asks for the network, for which %s must be true, and it is false (backend %s); a "
                      "request without network would be accepted",
                      name, q->backend);
    if (q->request->network && !q->caps.network)
        return refuse(q,
                      "the request asks for the network (%s is true) and the backend %s can give none here "
                      "(`cordon doctor` tells what is lacking); a request without network would be accepted",
                      name, q->backend);
    return 0;
}

/* The first of the request's entries that the settings do not cover; NULL: none. */
static const char *beyond(const struct question *q)
{
    struct cordon_egress_policy most = CORDON_EGRESS_POLICY_OFF;
    const char *found = NULL;
    if (cordon_egress_policy_for(q->settings, q->run->door, true, NULL, 0, &most, NULL) < 0)
        return q->request->allowed_domains[0]; /* no memory, or settings that were not checked */
    for (size_t i = 0; i < q->request->allowed_domain_count && !found; i++)
        if (!cordon_egress_policy_covers(&most, q->request->allowed_domains[i]))
            found = q->request->allowed_domains[i];
    cordon_egress_policy_done(&most);
    return found;
}

static int check_domains(const struct question *q)
{
    const char *name = name_of(q, CORDON_SET_ALLOWED_DOMAINS);
    const char *first = cordon_settings_item(q->settings, q->run->door, CORDON_SET_ALLOWED_DOMAINS, 0);
    if (!first && !q->request->allowed_domain_count)
        return 0;
    if (!q->caps.domain_allowlist)
        return refuse(q, "%s names %s%s and the backend %s cannot restrict egress by domain; none would be accepted",
                      first ? name : "the request's allowed_domains", first ? first : q->request->allowed_domains[0],
                      first ? "" : " (no setting does)", q->backend);
    const char *entry = q->request->allowed_domain_count ? beyond(q) : NULL;
    if (entry)
        return refuse(q,
                      "the request's allowed_domains names %.100s, which is in none of %s (backend %s); what those "
                      "allow would be accepted",
                      entry, name, q->backend);
    return 0;
}

/* Copies the next entry of a comma separated list, trimmed; NULL at the end. */
static const char *next_entry(const char *list, char *entry, size_t size)
{
    while (*list == ' ' || *list == ',')
        list++;
    size_t length = strcspn(list, ", ");
    if (!length)
        return NULL;
    (void)snprintf(entry, size, "%.*s", (int)length, list);
    return list + length;
}

/* Is the port one of the list? */
static bool has_port(const char *list, uint16_t port)
{
    char entry[16];
    while ((list = next_entry(list, entry, sizeof entry)))
        if (strtoul(entry, NULL, 10) == port)
            return true;
    return false;
}

/* A rule for a port that can't be reached there would be held by nothing but its failure. */
static int check_ports(const struct question *q)
{
    const char *ports = q->caps.egress_ports ? q->caps.egress_ports : "";
    if (!*ports || !q->request->network)
        return 0;
    for (size_t i = 0; i < q->request->allowed_domain_count; i++) {
        const char *text = q->request->allowed_domains[i];
        struct cordon_egress_rule rule;
        text += *text == '+';
        if (cordon_egress_rule_parse(text, strlen(text), &rule, NULL) < 0 || !rule.port || has_port(ports, rule.port))
            continue; /* "*" and what is denied among them */
        return refuse(
            q,
            "the request's allowed_domains names %.100s, and guests of the backend %s (%s) reach names on the "
            "ports %s only (`cordon doctor` says why); those would be accepted",
            text, q->backend, name_of(q, CORDON_SET_BACKEND), ports);
    }
    return 0;
}

static int check_headers(const struct question *q)
{
    if (!q->run->header_count || q->caps.egress_headers)
        return 0;
    return refuse(q,
                  "the request puts headers into requests (egress_headers) and the backend %s (%s) can't; one without "
                  "would be accepted",
                  q->backend, name_of(q, CORDON_SET_BACKEND));
}

static int check_timeout(const struct question *q)
{
    uint64_t cap_ms = 1000ull * q->caps.max_timeout_s;
    if (!cap_ms || q->request->limits.timeout_ms <= cap_ms)
        return 0;
    return refuse(q,
                  "%s or the request's timeout_s is %.10g s and the backend %s can run for %u s at most; up to %u s "
                  "would be accepted",
                  name_of(q, CORDON_SET_TIMEOUT_S), (double)q->request->limits.timeout_ms / 1000, q->backend,
                  q->caps.max_timeout_s, q->caps.max_timeout_s);
}

static bool accepted(const struct question *q, const char *range)
{
    const char *item;
    for (size_t i = 0; (item = cordon_settings_item(q->settings, q->run->door, CORDON_SET_ACCEPT_EGRESS_EXCEPTIONS, i));
         i++)
        if (strcasecmp(item, range) == 0)
            return true;
    return false;
}

static int check_exceptions(const struct question *q)
{
    char range[64];
    const char *at = q->caps.egress_exceptions ? q->caps.egress_exceptions : "";
    if (q->unisolated || q->request->network)
        return 0;
    while ((at = next_entry(at, range, sizeof range)))
        if (!accepted(q, range))
            return refuse(q,
                          "with the network off the backend %s still reaches %s, which %s does not name; it would be "
                          "accepted there",
                          q->backend, range, name_of(q, CORDON_SET_ACCEPT_EGRESS_EXCEPTIONS));
    return 0;
}

/* Where the interpreter is ours to choose: which setting did. */
static const char *interpreter_of(const struct question *q, char to[200])
{
    bool python = strcmp(q->request->language, "python") == 0;
    enum cordon_setting id = python ? CORDON_SET_PYTHON : CORDON_SET_NODE;
    *to = '\0';
    if (strcmp(q->backend, "local") == 0 && (python || strcmp(q->request->language, "javascript") == 0))
        (void)snprintf(to, 200, "; its interpreter is %.60s: %.100s", name_of(q, id),
                       cordon_settings_string(q->settings, q->run->door, id)); /* fits */
    return to;
}

static int check_language(const struct question *q)
{
    char language[64];
    const char *offered = q->caps.languages ? q->caps.languages : "";
    for (const char *at = offered; (at = next_entry(at, language, sizeof language));)
        if (strcmp(language, q->request->language) == 0)
            return 0;
    char interpreter[200];
    return refuse(q, "%s: the backend %s does not run %s here; accepted by it: %s%s", name_of(q, CORDON_SET_BACKEND),
                  q->backend, q->request->language, *offered ? offered : "no language, its interpreters are missing",
                  interpreter_of(q, interpreter));
}

static bool holds(const struct question *q, const char *limit)
{
    return strcmp(limit, "memory") == 0 ? q->caps.memory_limit
           : strcmp(limit, "pids") == 0 ? q->caps.pids_limit
           : strcmp(limit, "cpu") == 0  ? q->caps.cpu_limit
                                        : q->caps.agent_protected;
}

/* What the run needs of its guest: limits held by the kernel, files in, artifacts out. */
static int check_needs(const struct question *q)
{
    const char *limit;
    for (size_t i = 0; (limit = cordon_settings_item(q->settings, q->run->door, CORDON_SET_REQUIRE_LIMITS, i)); i++)
        if (!holds(q, limit))
            return refuse(q,
                          "%s names %s and the backend %s cannot hold that here (`cordon doctor` says why); a backend "
                          "that can would be accepted",
                          name_of(q, CORDON_SET_REQUIRE_LIMITS), limit, q->backend);
    if (q->run->memory_asked && !q->caps.memory_limit && !q->unisolated)
        return refuse(q,
                      "the request sets memory_mb and the backend %s cannot hold a memory limit here (`cordon doctor` "
                      "says why); a request without one, limited by %s only as far as it goes, would be accepted",
                      q->backend, name_of(q, CORDON_SET_MEMORY_MB));
    if (q->request->file_count && !q->caps.files)
        return refuse(q,
                      "the request has files and the backend %s (%s) takes none; a request without would be accepted",
                      q->backend, name_of(q, CORDON_SET_BACKEND));
    if (q->request->artifacts && !q->caps.artifacts)
        return refuse(q,
                      "the request wants artifacts and the backend %s (%s) gives none; a request without would be "
                      "accepted",
                      q->backend, name_of(q, CORDON_SET_BACKEND));
    if (q->request->template_name && !cordon_template_is_default(q->request->template_name) && !q->caps.templates)
        return refuse(q,
                      "the request names the template %s and the backend %s (%s) starts from none; a request without "
                      "would be accepted",
                      q->request->template_name, q->backend, name_of(q, CORDON_SET_BACKEND));
    return 0;
}

/* Takes back what was declared and not measured. True: something was. */
static bool believe_only_measured(struct question *q)
{
    struct cordon_verification found = {.at_s = 0};
    struct cordon_capabilities *caps = &q->caps;
    const struct cordon_capabilities declared = *caps;
    int64_t hours = cordon_settings_int(q->settings, q->run->door, CORDON_SET_VERIFIED_HOURS);
    if (!cordon_settings_bool(q->settings, q->run->door, CORDON_SET_REQUIRE_VERIFIED))
        return false;
    bool fresh = cordon_verified_get(q->backend, &found) && (int64_t)time(NULL) - found.at_s <= hours * 3600;
#define HELD(item) (fresh && found.items[CORDON_VERIFY_##item].verdict == CORDON_VERDICT_HELD)
    caps->deny_all_egress = caps->deny_all_egress && HELD(DENY_ALL) && HELD(EXCEPTIONS);
    caps->domain_allowlist = caps->domain_allowlist && HELD(DOMAINS);
    caps->memory_limit = caps->memory_limit && HELD(MEMORY);
#undef HELD
    return caps->deny_all_egress != declared.deny_all_egress || caps->domain_allowlist != declared.domain_allowlist ||
           caps->memory_limit != declared.memory_limit;
}

static int check(const struct cordon_settings *settings, const struct cordon_run_request *request,
                 const struct cordon_backend *backend, bool named, int (*const *rules)(const struct question *),
                 struct cordon_error *err)
{
    struct question q = {
        .settings = settings,
        .run = request,
        .request = &request->request,
        .backend = backend->name,
        .caps = cordon_registry_capabilities(backend),
        .named = named,
        .err = err,
    };
    q.unproven = believe_only_measured(&q) ? " (CORDON_REQUIRE_VERIFIED: what cordon verify did not measure to hold, "
                                             "or too long ago, counts as missing)"
                                           : "";
    q.unisolated = named && strcmp(backend->name, "none") == 0 && request->door != CORDON_DOOR_LANGFLOW &&
                   (request->by_operator || cordon_settings_bool(settings, request->door, CORDON_SET_ALLOW_NONE));
    for (; *rules; rules++) {
        int r = (*rules)(&q);
        if (r < 0)
            return r;
    }
    return 0;
}

int cordon_policy_check_declared(const struct cordon_settings *settings, const struct cordon_run_request *request,
                                 const struct cordon_backend *backend, bool named, struct cordon_error *err)
{
    static int (*const rules[])(const struct question *) = {check_isolation,  check_egress,  check_domains,
                                                            check_ports,      check_headers, check_timeout,
                                                            check_exceptions, NULL};
    return check(settings, request, backend, named, rules, err);
}

int cordon_policy_check_held(const struct cordon_settings *settings, const struct cordon_run_request *request,
                             const struct cordon_backend *backend, bool named, struct cordon_error *err)
{
    static int (*const rules[])(const struct question *) = {check_language, check_needs, NULL};
    return check(settings, request, backend, named, rules, err);
}
