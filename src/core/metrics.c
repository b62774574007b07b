/* SPDX-License-Identifier: Apache-2.0 */
/* Atomics only: counting takes no lock and never fails. */
#include "core/metrics.h"

#include <inttypes.h>
#include <stdatomic.h>
#include <string.h>

#include "core/registry.h"
#include "core/run.h"

enum { BACKENDS_MAX = 33, LANGUAGES = 4 }; /* the last of each: any other */

static atomic_int_least64_t plain[CORDON_METRIC__COUNT];
static atomic_uint_least64_t runs[BACKENDS_MAX][LANGUAGES][CORDON_CAUSE__COUNT];
static atomic_uint_least64_t errors[CORDON_ERROR__COUNT];

static const struct {
    const char *name, *type, *help;
} rows[] = {
#define CORDON_METRIC(id, name, type, help) {name, #type, help},
#include "core/metrics.def"
#undef CORDON_METRIC
};

static const char *const languages[LANGUAGES] = {"python", "javascript", "bash", "other"};

/* Upper bounds in microseconds. */
static const uint64_t bounds[] = {500,    1000,   2500,    5000,    10000,   25000,    50000,    100000,
                                  250000, 500000, 1000000, 2500000, 5000000, 10000000, 30000000, 120000000};
enum { BOUNDS = sizeof bounds / sizeof *bounds };

static struct histogram {
    const char *name, *help;
    atomic_uint_least64_t buckets[BOUNDS + 1], sum_us;
} histograms[] = {
    {.name = "cordon_queue_seconds", .help = "Waited for a place."},
    {.name = "cordon_start_seconds", .help = "Waited for a guest."},
    {.name = "cordon_run_seconds", .help = "Programs ran."},
    {.name = "cordon_total_seconds", .help = "Runs took in all."},
};

void cordon_metrics_add(enum cordon_metric metric, int64_t number)
{
    atomic_fetch_add_explicit(&plain[metric], number, memory_order_relaxed);
}

void cordon_metrics_set(enum cordon_metric metric, int64_t number)
{
    atomic_store_explicit(&plain[metric], number, memory_order_relaxed);
}

void cordon_metrics_error(enum cordon_error_kind kind)
{
    if ((unsigned)kind < CORDON_ERROR__COUNT)
        atomic_fetch_add_explicit(&errors[kind], 1, memory_order_relaxed);
}

static void observe(struct histogram *histogram, uint64_t us)
{
    size_t i = 0;
    while (i < BOUNDS && us > bounds[i])
        i++;
    atomic_fetch_add_explicit(&histogram->buckets[i], 1, memory_order_relaxed);
    atomic_fetch_add_explicit(&histogram->sum_us, us, memory_order_relaxed);
}

/* Names are told apart by the registry's order at writing time, which a later registration may change: so they are kept
 * in the order in which they first ran. */
static _Atomic(const char *) backends[BACKENDS_MAX - 1];

static size_t backend_index(const char *name)
{
    for (size_t i = 0; i < BACKENDS_MAX - 1; i++) {
        const char *there = atomic_load_explicit(&backends[i], memory_order_acquire);
        if (!there) {
            const struct cordon_backend *backend;
            if (cordon_registry_find(name, "backend", &backend, NULL) < 0)
                return BACKENDS_MAX - 1;
            /* Its own name lives for ever. Who loses the race finds what the winner stored. */
            if (atomic_compare_exchange_strong(&backends[i], &there, backend->name))
                there = backend->name;
        }
        if (strcmp(there, name) == 0)
            return i;
    }
    return BACKENDS_MAX - 1;
}

static size_t language_index(const char *language)
{
    size_t i = 0;
    while (i < LANGUAGES - 1 && strcmp(languages[i], language) != 0)
        i++;
    return i;
}

void cordon_metrics_outcome(const char *language, const struct cordon_outcome *outcome)
{
    unsigned cause = (unsigned)outcome->cause < CORDON_CAUSE__COUNT ? outcome->cause : CORDON_CAUSE_INFRASTRUCTURE;
    uint64_t written = outcome->stdout_bytes + outcome->stderr_bytes,
             kept = outcome->stdout_kept + outcome->stderr_kept;
    atomic_fetch_add_explicit(&runs[backend_index(outcome->backend)][language_index(language)][cause], 1,
                              memory_order_relaxed);
    observe(&histograms[0], outcome->queue_us);
    observe(&histograms[1], outcome->start_us);
    observe(&histograms[2], outcome->run_us);
    observe(&histograms[3], outcome->total_us);
    cordon_metrics_add(CORDON_METRIC_OUTPUT_BYTES, (int64_t)written);
    cordon_metrics_add(CORDON_METRIC_OUTPUT_DROPPED, written > kept ? (int64_t)(written - kept) : 0);
    cordon_metrics_add(CORDON_METRIC_ARTIFACTS_DROPPED, outcome->artifacts_dropped);
    cordon_metrics_add(CORDON_METRIC_OOM_KILLS, outcome->oom_kills);
    cordon_metrics_add(CORDON_METRIC_PROCESSES_LEFT, outcome->processes_left);
    cordon_metrics_add(CORDON_METRIC_SYSCALLS_DENIED, outcome->syscalls_denied);
    cordon_metrics_add(CORDON_METRIC_CPU_US, (int64_t)outcome->cpu_us);
    cordon_metrics_add(CORDON_METRIC_EGRESS_CONNECTIONS, (int64_t)outcome->egress.connections);
    cordon_metrics_add(CORDON_METRIC_EGRESS_REFUSED, (int64_t)outcome->egress.refused);
    cordon_metrics_add(CORDON_METRIC_EGRESS_NAMES_REFUSED, (int64_t)outcome->egress.names_refused);
    cordon_metrics_add(CORDON_METRIC_EGRESS_SENT, (int64_t)outcome->egress.sent);
    cordon_metrics_add(CORDON_METRIC_EGRESS_RECEIVED, (int64_t)outcome->egress.received);
    cordon_metrics_add(outcome->warm ? CORDON_METRIC_GUESTS_WARM : CORDON_METRIC_GUESTS_COLD, 1);
}

static void head(struct cordon_buf *to, const char *name, const char *type, const char *help)
{
    (void)cordon_buf_appendf(to, "# HELP %s %s\n# TYPE %s %s\n", name, help, name, type); /* sticky in the buf */
}

static void write_runs(struct cordon_buf *to)
{
    head(to, "cordon_runs_total", "counter", "Runs that ended, by backend, language and cause.");
    for (size_t b = 0; b < BACKENDS_MAX; b++) {
        const char *backend = b < BACKENDS_MAX - 1 ? atomic_load(&backends[b]) : "other";
        for (size_t l = 0; backend && l < LANGUAGES; l++) {
            for (unsigned c = 0; c < CORDON_CAUSE__COUNT; c++) {
                uint64_t count = atomic_load(&runs[b][l][c]);
                if (count)
                    (void)cordon_buf_appendf(
                        to, "cordon_runs_total{backend=\"%s\",language=\"%s\",cause=\"%s\"} %" PRIu64 "\n", backend,
                        languages[l], cordon_cause_name((enum cordon_cause)c), count);
            }
        }
    }
}

static void write_errors(struct cordon_buf *to)
{
    head(to, "cordon_errors_total", "counter", "Requests answered with an error, by kind.");
    for (unsigned kind = CORDON_ERROR_NONE + 1; kind < CORDON_ERROR__COUNT; kind++)
        (void)cordon_buf_appendf(to, "cordon_errors_total{kind=\"%s\"} %" PRIu64 "\n",
                                 cordon_error_name((enum cordon_error_kind)kind), (uint64_t)atomic_load(&errors[kind]));
}

static void write_histogram(struct histogram *histogram, struct cordon_buf *to)
{
    uint64_t total = 0;
    head(to, histogram->name, "histogram", histogram->help);
    for (size_t i = 0; i < BOUNDS; i++) {
        total += atomic_load(&histogram->buckets[i]);
        (void)cordon_buf_appendf(to, "%s_bucket{le=\"%g\"} %" PRIu64 "\n", histogram->name, (double)bounds[i] / 1e6,
                                 total);
    }
    total += atomic_load(&histogram->buckets[BOUNDS]);
    uint64_t sum_us = atomic_load(&histogram->sum_us);
    (void)cordon_buf_appendf(to, "%s_bucket{le=\"+Inf\"} %" PRIu64 "\n%s_sum %" PRIu64 ".%06u\n%s_count %" PRIu64 "\n",
                             histogram->name, total, histogram->name, sum_us / 1000000, (unsigned)(sum_us % 1000000),
                             histogram->name, total);
}

static void write_admission(struct cordon_buf *to)
{
    struct cordon_admission now;
    cordon_admission_read(&now);
    const struct {
        const char *name, *type, *help;
        uint64_t number;
    } numbers[] = {
        {"cordon_runs_running", "gauge", "Runs that have a place now.", now.running},
        {"cordon_runs_waiting", "gauge", "Runs that wait for a place now.", now.waiting},
        {"cordon_runs_max", "gauge", "Places.", now.max_runs},
        {"cordon_runs_waiting_max", "gauge", "Runs that may wait.", now.max_waiting},
        {"cordon_runs_admitted_total", "counter", "Runs that got a place.", now.admitted},
        {"cordon_runs_turned_away_total", "counter", "Runs refused as busy.", now.refused},
    };
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++) {
        head(to, numbers[i].name, numbers[i].type, numbers[i].help);
        (void)cordon_buf_appendf(to, "%s %" PRIu64 "\n", numbers[i].name, numbers[i].number);
    }
}

void cordon_metrics_write(struct cordon_buf *to)
{
    write_runs(to);
    write_errors(to);
    write_admission(to);
    for (size_t i = 0; i < CORDON_METRIC__COUNT; i++) {
        head(to, rows[i].name, rows[i].type, rows[i].help);
        (void)cordon_buf_appendf(to, "%s %" PRId64 "\n", rows[i].name, (int64_t)atomic_load(&plain[i]));
    }
    for (size_t i = 0; i < sizeof histograms / sizeof *histograms; i++)
        write_histogram(&histograms[i], to);
}
