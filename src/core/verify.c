/* SPDX-License-Identifier: Apache-2.0 */
#include "core/verify.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netdb.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/fd.h"
#include "core/egress.h"
#include "core/registry.h"
#include "core/run.h"
#include "core/value.h"

#include "core/verify_probe.h"

#define RUN_MS 25000u
#define DEADLINE_MS 2000u
#define DEADLINE_MORE_US 3000000u
#define MEMORY_MIB 64u
#define OUT_MAX (64u << 10)
#define ADDRESSES 8u

const char *cordon_verify_item_name(enum cordon_verify_item item)
{
    static const char *const names[] = {"deny_all_egress", "egress_exceptions", "domain_allowlist", "memory_limit",
                                        "deadline",        "output_truth",      "fresh_guest",      "host_hidden"};
    _Static_assert(sizeof names / sizeof *names == CORDON_VERIFY__COUNT, "one name an item");
    return names[item];
}

/* --- one program in one guest --- */

struct answer {
    struct cordon_buf out, err;
    struct cordon_outcome outcome;
    uint64_t took_us; /* from when it had its guest: how long a machine took to start says nothing of its deadline */
};

static void answer_done(struct answer *answer)
{
    cordon_buf_done(&answer->out);
    cordon_buf_done(&answer->err);
}

static void take(struct cordon_buf *to, const struct cordon_bytes *data)
{
    size_t room = to->max - to->size;
    (void)cordon_buf_append(to, data->data, data->size < room ? data->size : room); /* no more is looked at */
}

static int run(const struct cordon_backend *backend, struct cordon_request *request, const char *mode,
               const char *targets, struct answer *ret, struct cordon_error *err)
{
    struct cordon_buf code = CORDON_BUF_INIT(256u << 10);
    struct cordon_event event;
    struct cordon_run *live = NULL;
    uint64_t began = cordon_now_us(), took;
    *ret = (struct answer){.out = CORDON_BUF_INIT(OUT_MAX), .err = CORDON_BUF_INIT(OUT_MAX)};
    (void)cordon_buf_appendf(&code, "MODE, TARGETS = %s, %s\n", mode, targets); /* failures are sticky */
    (void)cordon_buf_appends(&code, verify_probe);
    if (code.failed)
        return cordon_fail_errno(err, -ENOMEM, "make a probe program");
    request->code = (struct cordon_bytes){code.data, code.size};
    int r = backend->run_open(request, &live, err);
    while (r == 0 && backend->run_next(live, &event) > 0) {
        if (event.type == CORDON_EVENT_STDOUT)
            take(&ret->out, &event.data);
        if (event.type == CORDON_EVENT_STDERR)
            take(&ret->err, &event.data);
        if (event.type == CORDON_EVENT_OUTCOME) {
            ret->outcome = *event.outcome;
            break;
        }
    }
    took = cordon_now_us() - began;
    ret->took_us = took > ret->outcome.start_us ? took - ret->outcome.start_us : 0;
    if (r == 0)
        backend->run_close(live);
    cordon_buf_done(&code);
    return r;
}

static struct cordon_request request_of(uint64_t timeout_ms)
{
    return (struct cordon_request){
        .struct_size = sizeof(struct cordon_request),
        .language = "python",
        .limits = {.timeout_ms = timeout_ms,
                   .memory_bytes = 256u << 20,
                   .disk_bytes = 16u << 20,
                   .disk_inodes = 1024,
                   .stdout_bytes = OUT_MAX,
                   .stderr_bytes = OUT_MAX,
                   .pids = 64,
                   .open_files = 256,
                   .cpu_percent = 100},
        .cancel_fd = -1,
    };
}

/* The object of the last line that a probe said. */
static bool said(const struct answer *answer, struct cordon_value *ret, const char *member, struct cordon_value *value)
{
    static const char start[] = "{\"cordon-verify\": ";
    const char *last = NULL;
    for (const char *at = answer->out.data; at && (at = strstr(at, start)); at++)
        last = at;
    if (!last)
        return false;
    struct cordon_value root;
    const char *end = strchr(last, '\n');
    if (!end || cordon_value_parse(last, (size_t)(end - last), &root, NULL) < 0 ||
        !cordon_value_member(&root, "cordon-verify", ret))
        return false;
    return cordon_value_member(ret, member, value);
}

static void conclude(struct cordon_verification *to, enum cordon_verify_item item, enum cordon_verdict verdict,
                     const char *fmt, ...) CORDON_PRINTF(4, 5);
static void conclude(struct cordon_verification *to, enum cordon_verify_item item, enum cordon_verdict verdict,
                     const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    to->items[item].verdict = verdict;
    (void)vsnprintf(to->items[item].evidence, sizeof to->items[item].evidence, fmt, ap); /* cut at its size */
    va_end(ap);
}

/* An array of texts as one; its count. */
static size_t join(const struct cordon_value *array, char *to, size_t size)
{
    struct cordon_value key, item;
    struct cordon_value_walk walk = cordon_value_walk(array);
    size_t count = 0, used = 0;
    *to = '\0';
    while (array->kind == CORDON_VALUE_ARRAY && cordon_value_next(&walk, &key, &item)) {
        if (used < size) /* its own words, quotes and all */
            used += (size_t)snprintf(to + used, size - used, "%s%.*s", count ? ", " : "", (int)item.size, item.data);
        count++;
    }
    return count;
}

/* --- targets --- */

struct target {
    char host[CORDON_EGRESS_NAME_SIZE];
    uint16_t port;
    char addresses[ADDRESSES][CORDON_EGRESS_ADDRESS_TEXT];
    unsigned count;
    bool there; /* a probe server answers us */
};

static bool answers(const struct sockaddr *address, socklen_t size)
{
    static const char ask[] = "GET /cordon-probe HTTP/1.1\r\nHost: probe\r\nConnection: close\r\n\r\n";
    const struct timeval wait = {.tv_sec = 3};
    char data[512];
    cordon_autoclose int sock = socket(address->sa_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (sock < 0 || setsockopt(sock, SOL_SOCKET, SO_RCVTIMEO, &wait, sizeof wait) < 0 ||
        setsockopt(sock, SOL_SOCKET, SO_SNDTIMEO, &wait, sizeof wait) < 0)
        return false;
    if (connect(sock, address, size) < 0 || send(sock, ask, sizeof ask - 1, MSG_NOSIGNAL) < 0)
        return false;
    ssize_t n = recv(sock, data, sizeof data - 1, MSG_WAITALL);
    if (n <= 0)
        return false;
    data[n] = '\0';
    return strstr(data, "cordon-probe") != NULL;
}

/* One address, as text: is a probe server there? */
static void add_address(const char *text, size_t size, struct target *to)
{
    struct cordon_egress_address address;
    struct sockaddr_in6 there = {.sin6_family = AF_INET6, .sin6_port = htons(to->port)};
    if (to->count == ADDRESSES || cordon_egress_address_read(text, size, &address) < 0)
        return;
    cordon_egress_address_format(&address, to->addresses[to->count++]);
    memcpy(&there.sin6_addr, address.bytes, sizeof address.bytes); /* IPv4 as ::ffff:… */
    to->there = to->there || answers((const struct sockaddr *)&there, sizeof there);
}

static void look_up(struct target *to)
{
    const struct addrinfo hints = {.ai_socktype = SOCK_STREAM};
    struct addrinfo *found = NULL;
    char text[CORDON_EGRESS_ADDRESS_TEXT + 20];
    if (getaddrinfo(to->host, NULL, &hints, &found) != 0)
        return;
    for (const struct addrinfo *at = found; at; at = at->ai_next)
        if (getnameinfo(at->ai_addr, at->ai_addrlen, text, sizeof text, NULL, 0, NI_NUMERICHOST) == 0)
            add_address(text, strlen(text), to);
    freeaddrinfo(found);
}

/* "name:port", or "name:port/address+address" where the name is not known here. False: nobody answers there. */
static bool read_target(const char *text, struct target *ret)
{
    struct cordon_egress_rule rule;
    size_t size = strcspn(text, "/");
    *ret = (struct target){.count = 0};
    if (!size || cordon_egress_rule_parse(text, size, &rule, NULL) < 0 || rule.form != CORDON_EGRESS_NAME || !rule.port)
        return false;
    (void)snprintf(ret->host, sizeof ret->host, "%s", rule.name);
    ret->port = rule.port;
    if (!text[size])
        look_up(ret);
    for (const char *at = text + size; *at; at += size) {
        size = strcspn(++at, "+");
        add_address(at, size, ret);
    }
    return ret->there;
}

static void write_targets(const struct target *targets, const bool *used, struct cordon_buf *to)
{
    struct cordon_json json = {.buf = to};
    cordon_json_array_begin(&json);
    for (size_t i = 0; i < 2; i++) {
        if (!used[i])
            continue;
        cordon_json_object_begin(&json);
        cordon_json_key(&json, "host");
        cordon_json_text(&json, targets[i].host);
        cordon_json_key(&json, "port");
        cordon_json_uint(&json, targets[i].port);
        cordon_json_key(&json, "addresses");
        cordon_json_array_begin(&json);
        for (unsigned address = 0; address < targets[i].count; address++)
            cordon_json_text(&json, targets[i].addresses[address]);
        cordon_json_array_end(&json);
        cordon_json_object_end(&json);
    }
    cordon_json_array_end(&json);
}

/* --- the probes --- */

struct verifier {
    const struct cordon_settings *settings;
    const struct cordon_backend *backend;
    struct cordon_capabilities caps;
    struct cordon_verification *to;
    struct target targets[2]; /* listed, unlisted */
    bool there[2];
    struct cordon_buf list; /* as Python */
};

static int probe(struct verifier *self, struct cordon_request request, const char *mode, enum cordon_verify_item item,
                 struct answer *ret, struct cordon_error *err)
{
    struct cordon_error own = {0};
    int r = run(self->backend, &request, mode, self->list.data, ret, &own);
    if (r < 0)
        conclude(self->to, item, CORDON_VERDICT_UNKNOWN, "the probe could not be run: %.200s", own.message);
    if (r < 0 && err)
        *err = own;
    return r;
}

/* What stays reachable that is not among the exceptions declared. */
static void judge_exceptions(struct verifier *self, const struct cordon_value *exceptions)
{
    char text[160];
    size_t count = join(exceptions, text, sizeof text);
    bool declared = self->caps.egress_exceptions && *self->caps.egress_exceptions;
    conclude(self->to, CORDON_VERIFY_EXCEPTIONS, count && !declared ? CORDON_VERDICT_BROKEN : CORDON_VERDICT_HELD,
             "%s%s",
             count ? "reachable with the network off: " : "no metadata service and no link-local address is reachable",
             text);
}

static int verify_deny(struct verifier *self, struct cordon_error *err)
{
    struct answer answer;
    struct cordon_value object, reached, exceptions, done;
    char text[180];
    int r = probe(self, request_of(RUN_MS), "'deny'", CORDON_VERIFY_DENY_ALL, &answer, err);
    if (r == 0 && said(&answer, &object, "reached", &reached)) {
        size_t count = join(&reached, text, sizeof text);
        bool whole = said(&answer, &object, "done", &done) && cordon_value_true(&done);
        bool something = whole && (self->there[0] || self->there[1]);
        conclude(self->to, CORDON_VERIFY_DENY_ALL,
                 count       ? CORDON_VERDICT_BROKEN
                 : something ? CORDON_VERDICT_HELD
                             : CORDON_VERDICT_UNKNOWN,
                 "%s%s",
                 count       ? "reached: "
                 : something ? "by name, by address, TCP, UDP and DNS: nothing was reached"
                 : whole     ? "nothing was reached, but no target is set that could be (CORDON_VERIFY_LISTED)"
                             : "nothing was reached before the probe's time was over",
                 text);
        if (said(&answer, &object, "exceptions", &exceptions))
            judge_exceptions(self, &exceptions);
    } else if (r == 0) {
        conclude(self->to, CORDON_VERIFY_DENY_ALL, CORDON_VERDICT_UNKNOWN, "the probe said nothing: %.120s",
                 answer.err.size ? answer.err.data : answer.outcome.message);
    }
    answer_done(&answer);
    return r;
}

static void verify_domains(struct verifier *self)
{
    struct answer answer;
    struct cordon_value object, reached, listed;
    struct cordon_egress_policy policy = CORDON_EGRESS_POLICY_OFF;
    struct cordon_request request = request_of(RUN_MS);
    char rule[CORDON_EGRESS_RULE_TEXT], text[180];
    const char *const domains[] = {rule};
    if (!self->there[0] || !self->there[1]) {
        conclude(self->to, CORDON_VERIFY_DOMAINS, CORDON_VERDICT_UNKNOWN,
                 "CORDON_VERIFY_LISTED and CORDON_VERIFY_UNLISTED must name two probe servers that answer here");
        return;
    }
    if (!self->caps.network) {
        conclude(self->to, CORDON_VERIFY_DOMAINS, CORDON_VERDICT_UNKNOWN, "the backend gives no network");
        return;
    }
    (void)snprintf(rule, sizeof rule, "%s:%u", self->targets[0].host, self->targets[0].port);
    if (cordon_egress_policy_add(&policy, rule, NULL) < 0)
        return;
    request.network = true;
    request.allowed_domains = domains;
    request.allowed_domain_count = 1;
    request.egress = &policy;
    if (probe(self, request, "'allow'", CORDON_VERIFY_DOMAINS, &answer, NULL) == 0) {
        bool whole = said(&answer, &object, "reached", &reached) && said(&answer, &object, "listed", &listed);
        size_t count = whole ? join(&reached, text, sizeof text) : 0;
        bool there = whole && cordon_value_equals(&listed, "reached");
        conclude(self->to, CORDON_VERIFY_DOMAINS,
                 !whole            ? CORDON_VERDICT_UNKNOWN
                 : count || !there ? CORDON_VERDICT_BROKEN
                                   : CORDON_VERDICT_HELD,
                 "%s%.180s",
                 !whole  ? "the probe said nothing: "
                 : count ? "with only the listed name allowed it reached "
                 : there ? "the listed name was reached, and nothing else"
                         : "the listed name was not reached",
                 !whole  ? answer.outcome.message
                 : count ? text
                         : "");
    }
    answer_done(&answer);
    cordon_egress_policy_done(&policy);
}

static void verify_memory(struct verifier *self)
{
    struct answer answer;
    struct cordon_value object, touched;
    struct cordon_request request = request_of(RUN_MS);
    int64_t most = 0;
    request.limits.memory_bytes = MEMORY_MIB << 20;
    if (probe(self, request, "'memory'", CORDON_VERIFY_MEMORY, &answer, NULL) == 0 &&
        said(&answer, &object, "touched", &touched) && cordon_value_integer(&touched, &most))
        conclude(self->to, CORDON_VERIFY_MEMORY,
                 most > 2 * (int64_t)MEMORY_MIB ? CORDON_VERDICT_BROKEN : CORDON_VERDICT_HELD,
                 "with a limit of %u MiB it touched %lld MiB; cause %s", MEMORY_MIB, (long long)most,
                 cordon_cause_name(answer.outcome.cause));
    answer_done(&answer);
}

static void verify_deadline(struct verifier *self)
{
    struct answer answer, orphan = {.took_us = 0};
    if (probe(self, request_of(DEADLINE_MS), "'deadline'", CORDON_VERIFY_DEADLINE, &answer, NULL) == 0 &&
        probe(self, request_of(RUN_MS), "'orphan'", CORDON_VERIFY_DEADLINE, &orphan, NULL) == 0) {
        bool in_time =
            answer.outcome.cause == CORDON_CAUSE_TIMEOUT && answer.took_us < DEADLINE_MS * 1000ull + DEADLINE_MORE_US;
        bool unheld = orphan.took_us < 10000000;
        conclude(self->to, CORDON_VERIFY_DEADLINE, in_time && unheld ? CORDON_VERDICT_HELD : CORDON_VERDICT_BROKEN,
                 "limit %u ms: a program that ignores signals was told as %s after %llu ms; one with an orphan ended "
                 "after %llu ms",
                 DEADLINE_MS, cordon_cause_name(answer.outcome.cause), (unsigned long long)answer.took_us / 1000,
                 (unsigned long long)orphan.took_us / 1000);
    }
    answer_done(&answer);
    answer_done(&orphan);
}

static void verify_truth(struct verifier *self)
{
    struct answer answer;
    if (probe(self, request_of(RUN_MS), "'truth'", CORDON_VERIFY_TRUTH, &answer, NULL) == 0) {
        bool out = answer.out.data && strcmp(answer.out.data, "out-7731\n") == 0;
        bool err = answer.err.data && strstr(answer.err.data, "err-7731\n") != NULL;
        bool code = answer.outcome.cause == CORDON_CAUSE_EXITED && answer.outcome.exit_code == 7;
        conclude(self->to, CORDON_VERIFY_TRUTH, out && err && code ? CORDON_VERDICT_HELD : CORDON_VERDICT_BROKEN,
                 "stdout %s, stderr %s, exit status 7 told as %d (%s)", out ? "whole" : "changed",
                 err ? "whole" : "changed", answer.outcome.exit_code, cordon_cause_name(answer.outcome.cause));
    }
    answer_done(&answer);
}

static void verify_fresh(struct verifier *self)
{
    struct answer answer, second = {.took_us = 0};
    struct cordon_value object, state, environment, files;
    char text[120], more[120];
    if (probe(self, request_of(RUN_MS), "'leave'", CORDON_VERIFY_FRESH, &answer, NULL) == 0 &&
        probe(self, request_of(RUN_MS), "'host'", CORDON_VERIFY_FRESH, &second, NULL) == 0 &&
        said(&second, &object, "state", &state) && said(&second, &object, "environment", &environment) &&
        said(&second, &object, "files", &files)) {
        size_t count = join(&state, text, sizeof text);
        conclude(self->to, CORDON_VERIFY_FRESH, count ? CORDON_VERDICT_BROKEN : CORDON_VERDICT_HELD, "%s%s",
                 count ? "files of the guest before: " : "nothing of the guest before is there", text);
        count = join(&environment, text, sizeof text) + join(&files, more, sizeof more);
        conclude(self->to, CORDON_VERIFY_HOST, count ? CORDON_VERDICT_BROKEN : CORDON_VERDICT_HELD, "%s%s%s%s",
                 count ? "visible: " : "no variable that looks like a secret, no file of the host", text,
                 *text && *more ? ", " : "", more);
    }
    answer_done(&answer);
    answer_done(&second);
}

static void declare(struct verifier *self)
{
    struct cordon_verification *to = self->to;
    for (size_t i = 0; i < CORDON_VERIFY__COUNT; i++)
        to->items[i].declared = -1;
    to->items[CORDON_VERIFY_DENY_ALL].declared = self->caps.deny_all_egress;
    to->items[CORDON_VERIFY_EXCEPTIONS].declared = !self->caps.egress_exceptions || !*self->caps.egress_exceptions;
    to->items[CORDON_VERIFY_DOMAINS].declared = self->caps.domain_allowlist;
    to->items[CORDON_VERIFY_MEMORY].declared = self->caps.memory_limit;
}

int cordon_verify(const struct cordon_settings *settings, const struct cordon_backend *backend, const char *version,
                  struct cordon_verification *ret, struct cordon_error *err)
{
    struct verifier self = {.settings = settings,
                            .backend = backend,
                            .caps = cordon_registry_capabilities(backend),
                            .to = ret,
                            .list = CORDON_BUF_INIT(64u << 10)};
    *ret = (struct cordon_verification){.at_s = (int64_t)time(NULL)};
    (void)snprintf(ret->backend, sizeof ret->backend, "%s", backend->name);
    (void)snprintf(ret->version, sizeof ret->version, "%s", version);
    if (!backend->run_open || !backend->run_next || !backend->run_close)
        return cordon_fail(err, -EOPNOTSUPP, CORDON_ERROR_UNSUPPORTED, "the backend %s does not run programs",
                           backend->name);
    int r = backend->probe ? backend->probe(err) : 0;
    if (r < 0)
        return r;
    self.caps = cordon_registry_capabilities(backend); /* a probe may have found more */
    declare(&self);
    self.there[0] =
        read_target(cordon_settings_string(settings, CORDON_DOOR_NATIVE, CORDON_SET_VERIFY_LISTED), &self.targets[0]);
    self.there[1] =
        read_target(cordon_settings_string(settings, CORDON_DOOR_NATIVE, CORDON_SET_VERIFY_UNLISTED), &self.targets[1]);
    write_targets(self.targets, self.there, &self.list);
    r = verify_deny(&self, err);
    if (r == 0) {
        verify_domains(&self);
        verify_memory(&self);
        verify_deadline(&self);
        verify_truth(&self);
        verify_fresh(&self);
    }
    cordon_buf_done(&self.list);
    return r;
}
