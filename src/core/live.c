/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One live run. open: bounds, lookup, blank code, policy, probe: whatever needs no waiting fails at once. The first
 * next: the queue, then the backend. Each next after it: one event of the backend's. The outcome is completed with what
 * only core knows (queue and total time) and counted.
 */
#include <errno.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/clock.h"
#include "base/fd.h"
#include "core/admission.h"
#include "core/egress.h"
#include "core/history.h"
#include "core/metrics.h"
#include "core/policy.h"
#include "core/registry.h"
#include "core/request.h"

enum state {
    STATE_BLANK,   /* nothing to run: the outcome is next */
    STATE_WAITING, /* no place yet */
    STATE_RUNNING, /* has a place and a backend's run */
    STATE_ENDED,   /* the outcome was given */
    STATE_FAILED   /* an error was given instead of events */
};

struct cordon_live {
    enum state state;
    const struct cordon_settings *settings;
    const struct cordon_run_request *asked;
    const struct cordon_backend *backend;
    size_t candidate;              /* which of CORDON_BACKENDS it is */
    struct cordon_request request; /* the caller's, with the domains of the settings where it has none */
    struct cordon_run *run;
    bool placed;
    uint64_t opened_us, queue_us;
    struct cordon_outcome outcome;
    enum cordon_door door;
    char subject[32];
    bool noted, keep_texts; /* in the history */
    struct cordon_buf kept[2];
    const char *domains[CORDON_DOMAINS_MAX];
    struct cordon_egress_policy egress;
    const char **env; /* the request's and what makes programs trust our authority; NULL: the request's alone */
};

static atomic_bool stopping;

void cordon_live_stopping(void)
{
    atomic_store(&stopping, true);
}

/* A run with network may reach what the settings name, unless it names less itself. */
static void usual_domains(struct cordon_live *live, const struct cordon_settings *settings, enum cordon_door door)
{
    const char *domain;
    size_t count = 0;
    if (!live->request.network || live->request.allowed_domain_count)
        return;
    while (count < CORDON_DOMAINS_MAX &&
           (domain = cordon_settings_item(settings, door, CORDON_SET_ALLOWED_DOMAINS, count)))
        live->domains[count++] = domain;
    live->request.allowed_domains = live->domains;
    live->request.allowed_domain_count = count;
}

/*
 * Failover. Where the operator lists several backends, the next one is tried only when one is unavailable before the
 * run began, only if the next one passes the same policy, and never for less isolation than the first. A refusal ends
 * the search: it would be a fallback. A request that names its backend, and the Langflow door, whose setting names one,
 * have no others.
 */
static const char *candidate_name(const struct cordon_settings *settings, const struct cordon_run_request *run,
                                  size_t i)
{
    if (*run->backend || run->door == CORDON_DOOR_LANGFLOW)
        return NULL;
    return cordon_settings_item(settings, run->door, CORDON_SET_BACKENDS, i);
}

int cordon_run_request_backend(const struct cordon_settings *settings, const struct cordon_run_request *run,
                               const struct cordon_backend **ret, struct cordon_error *err)
{
    const char *first = candidate_name(settings, run, 0);
    if (!*run->backend && run->door == CORDON_DOOR_LANGFLOW &&
        strcmp(cordon_settings_string(settings, run->door, CORDON_SET_BACKEND), "none") == 0)
        return cordon_fail(err, -EPERM, CORDON_ERROR_REFUSED,
                           "the code was refused and not run: %s is none, which for Langflow means no sandbox, and "
                           "outside of one nothing is run here; exec-sandbox would be accepted",
                           cordon_settings_name(run->door, CORDON_SET_BACKEND));
    if (*run->backend)
        return cordon_registry_find(run->backend, "the request's backend", ret, err);
    if (first)
        return cordon_registry_find(first, cordon_settings_name(run->door, CORDON_SET_BACKENDS), ret, err);
    return cordon_registry_find(cordon_settings_string(settings, run->door, CORDON_SET_BACKEND),
                                cordon_settings_name(run->door, CORDON_SET_BACKEND), ret, err);
}

static int judge(const struct cordon_settings *settings, const struct cordon_run_request *run,
                 const struct cordon_backend *backend, struct cordon_error *err)
{
    int r = cordon_policy_check_declared(settings, run, backend, *run->backend, err);
    if (r < 0)
        return r;
    if (!backend->run_open || !backend->run_next || !backend->run_close)
        return cordon_fail(err, -EOPNOTSUPP, CORDON_ERROR_UNSUPPORTED, "the backend %s does not run programs",
                           backend->name);
    r = backend->probe ? backend->probe(err) : 0;
    return r < 0 ? r : cordon_policy_check_held(settings, run, backend, *run->backend, err);
}

/* After `backend` was unavailable (err says why): the next one of the list that may have the run, or err as it was. */
static int fail_over(const struct cordon_settings *settings, const struct cordon_run_request *run,
                     const struct cordon_backend **backend, size_t *candidate, struct cordon_error *err)
{
    const char *name;
    const struct cordon_backend *first = *backend, *next;
    enum cordon_isolation least = CORDON_ISOLATION_NONE;
    if (candidate_name(settings, run, 0) &&
        cordon_registry_find(candidate_name(settings, run, 0), "CORDON_BACKENDS", &next, NULL) == 0)
        least = cordon_registry_capabilities(next).isolation;
    while (err->kind == CORDON_ERROR_UNAVAILABLE && (name = candidate_name(settings, run, ++*candidate))) {
        struct cordon_error own = {0};
        if (cordon_registry_find(name, "CORDON_BACKENDS", &next, NULL) < 0)
            continue;
        if (cordon_registry_capabilities(next).isolation < least) {
            cordon_error_context(err, "%s would be next and isolates less", next->name);
            break;
        }
        int r = judge(settings, run, next, &own);
        if (r == 0) {
            *backend = next;
            cordon_metrics_add(CORDON_METRIC_RUNS_FAILED_OVER, 1);
            return 0;
        }
        cordon_error_context(&own, "%.80s is unavailable", first->name);
        *err = own; /* a refusal ends it */
    }
    return err->code;
}

/* What its guest may reach, and, where headers are put into its requests, trusts. */
static int set_egress(struct cordon_live *live, const struct cordon_run_request *run, struct cordon_error *err)
{
    const struct cordon_request *request = &run->request;
    int r = cordon_egress_policy_for(live->settings, run->door, request->network, request->allowed_domains,
                                     request->allowed_domain_count, &live->egress, err);
    if (r == 0)
        r = cordon_egress_policy_add_headers(&live->egress, live->settings, run->door, run->headers, run->header_count,
                                             err);
    if (r < 0 || !run->header_count || !cordon_settings_bool(live->settings, run->door, CORDON_SET_EGRESS_CA))
        return r;
    live->env = cordon_egress_trust(request->env, request->env_count, &live->request.env_count);
    live->request.env = live->env;
    return live->env ? 0 : cordon_fail_errno(err, -ENOMEM, "start a run");
}

static int open_live(const struct cordon_settings *settings, const struct cordon_run_request *run,
                     struct cordon_live **ret, struct cordon_error *err)
{
    const struct cordon_backend *backend;
    size_t candidate = 0;
    int r = cordon_run_request_check(settings, run, err);
    if (r == 0)
        r = cordon_run_request_backend(settings, run, &backend, err);
    if (r < 0)
        return r;
    bool blank = cordon_request_blank(&run->request);
    r = blank ? 0 : judge(settings, run, backend, err);
    if (r < 0)
        r = fail_over(settings, run, &backend, &candidate, err);
    if (r < 0)
        return r;
    struct cordon_live *live = calloc(1, sizeof *live);
    if (!live)
        return cordon_fail_errno(err, -ENOMEM, "start a run");
    live->state = blank ? STATE_BLANK : STATE_WAITING;
    live->settings = settings;
    live->asked = run;
    live->candidate = candidate;
    live->backend = backend;
    live->request = run->request;
    live->opened_us = cordon_now_us();
    r = set_egress(live, run, err);
    if (r < 0) {
        cordon_egress_policy_done(&live->egress);
        free(live);
        return r;
    }
    live->door = run->door;
    memcpy(live->subject, run->subject, sizeof live->subject);
    live->noted = cordon_settings_int(settings, CORDON_DOOR_NATIVE, CORDON_SET_HISTORY) > 0;
    live->keep_texts = live->noted && cordon_settings_bool(settings, CORDON_DOOR_NATIVE, CORDON_SET_HISTORY_CODE);
    live->kept[0] = live->kept[1] = CORDON_BUF_INIT(CORDON_HISTORY_TEXT_MAX);
    usual_domains(live, settings, run->door);
    live->request.egress = &live->egress;
    *ret = live;
    return 0;
}

int cordon_live_open(const struct cordon_settings *settings, const struct cordon_run_request *request,
                     struct cordon_live **ret, struct cordon_error *err)
{
    struct cordon_error own = {0};
    int r = open_live(settings, request, ret, &own);
    if (r == 0)
        return 0;
    cordon_metrics_error(own.kind);
    if (err)
        *err = own;
    return r;
}

/* What the backend holds and the place. Once. */
static void give_back(struct cordon_live *live)
{
    if (live->run)
        live->backend->run_close(CORDON_TAKE(live->run));
    if (live->placed)
        cordon_admission_leave();
    live->placed = false;
}

static int start(struct cordon_live *live, struct cordon_error *err)
{
    int r = cordon_admission_enter(live->request.cancel_fd, err);
    if (r < 0)
        return r;
    live->placed = true;
    live->queue_us = cordon_now_us() - live->opened_us;
    for (;;) {
        r = live->backend->run_open(&live->request, &live->run, err);
        if (r >= 0)
            return 0;
        live->run = NULL; /* only a success gives one */
        r = fail_over(live->settings, live->asked, &live->backend, &live->candidate, err);
        if (r < 0)
            return r;
    }
}

static char *copy_text(const char *data, size_t size)
{
    return strndup(data ? data : "", size < CORDON_HISTORY_TEXT_MAX ? size : CORDON_HISTORY_TEXT_MAX);
}

/* A text that there is no memory for is missing in the history, which is no reason to fail the run. */
static void note(struct cordon_live *live)
{
    struct cordon_history_record record = {.at_ms = cordon_wall_ms(), .door = live->door, .outcome = live->outcome};
    memcpy(record.subject, live->subject, sizeof record.subject);
    (void)snprintf(record.language, sizeof record.language, "%.15s", live->request.language);
    if (live->keep_texts) {
        record.code = copy_text(live->request.code.data, live->request.code.size);
        record.stdout_text = copy_text(live->kept[0].data, live->kept[0].size);
        record.stderr_text = copy_text(live->kept[1].data, live->kept[1].size);
    }
    cordon_history_note(&record);
}

/* The beginning of each stream; what does not fit is not kept. */
static void keep_output(struct cordon_live *live, const struct cordon_event *event)
{
    bool output = event->type == CORDON_EVENT_STDOUT || event->type == CORDON_EVENT_STDERR;
    if (!live->keep_texts || !output)
        return;
    struct cordon_buf *to = &live->kept[event->type == CORDON_EVENT_STDERR];
    size_t room = to->max - to->size;
    (void)cordon_buf_append(to, event->data.data, event->data.size < room ? event->data.size : room);
}

static void end(struct cordon_live *live, const struct cordon_outcome *outcome)
{
    struct cordon_outcome *own = &live->outcome;
    size_t size = outcome->struct_size && outcome->struct_size < sizeof *own ? outcome->struct_size : sizeof *own;
    memset(own, 0, sizeof *own);
    memcpy(own, outcome, size); /* an older backend knows fewer fields */
    own->struct_size = sizeof *own;
    own->queue_us = live->queue_us;
    own->total_us = cordon_now_us() - live->opened_us;
    if (!*own->backend)
        (void)snprintf(own->backend, sizeof own->backend, "%.31s", live->backend->name);
    if (own->cause == CORDON_CAUSE_CANCELLED && atomic_load(&stopping))
        (void)snprintf(own->message, sizeof own->message, "the run was cancelled: the daemon is stopping");
    live->state = STATE_ENDED;
    if (live->noted)
        note(live);
}

static int give_outcome(struct cordon_live *live, const struct cordon_outcome *outcome, struct cordon_event *event)
{
    end(live, outcome);
    *event = (struct cordon_event){.type = CORDON_EVENT_OUTCOME, .outcome = &live->outcome};
    return 1;
}

static int give_blank(struct cordon_live *live, struct cordon_event *event)
{
    struct cordon_outcome outcome = {.struct_size = sizeof outcome,
                                     .cause = CORDON_CAUSE_EXITED,
                                     .isolation = cordon_registry_capabilities(live->backend).isolation};
    cordon_metrics_add(CORDON_METRIC_RUNS_BLANK, 1);
    return give_outcome(live, &outcome, event);
}

static int give_next(struct cordon_live *live, struct cordon_event *event)
{
    static const struct cordon_outcome lost = {
        .struct_size = sizeof lost,
        .cause = CORDON_CAUSE_INFRASTRUCTURE,
        .exit_code = -1,
        .message = "the backend ended the run without an outcome",
    };
    int r = live->backend->run_next(live->run, event);
    if (r > 0 && event->type != CORDON_EVENT_OUTCOME) {
        keep_output(live, event);
        return 1;
    }
    r = give_outcome(live, r > 0 && event->outcome ? event->outcome : &lost, event);
    cordon_metrics_outcome(live->request.language, &live->outcome);
    return r;
}

int cordon_live_next(struct cordon_live *live, struct cordon_event *event, struct cordon_error *err)
{
    struct cordon_error own = {0};
    if (live->state == STATE_WAITING) {
        int r = start(live, &own);
        if (r < 0) {
            live->state = STATE_FAILED;
            give_back(live);
            if (own.kind == CORDON_ERROR_CANCELLED && atomic_load(&stopping))
                (void)cordon_fail(&own, r, own.kind, "the run was cancelled before it began: the daemon is stopping");
            cordon_metrics_error(own.kind);
            if (err)
                *err = own;
            return r;
        }
        live->state = STATE_RUNNING;
    }
    if (live->state == STATE_BLANK)
        return give_blank(live, event);
    if (live->state == STATE_RUNNING)
        return give_next(live, event);
    give_back(live);
    return 0;
}

void cordon_live_close(struct cordon_live *live)
{
    if (!live)
        return;
    give_back(live);
    cordon_egress_policy_done(&live->egress);
    free(live->env);
    cordon_buf_wipe(&live->kept[0]);
    cordon_buf_wipe(&live->kept[1]);
    free(live);
}
