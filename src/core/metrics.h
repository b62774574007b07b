/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The process's numbers for /metrics (Prometheus text). Plain ones are rows of metrics.def: add a row, then add to it
 * or set it. Runs are counted by core itself, by backend, language and cause, errors by kind, times in histograms.
 */
#ifndef CORDON_CORE_METRICS_H
#define CORDON_CORE_METRICS_H

#include <cordon/backend.h>

#include "base/buf.h"

enum cordon_metric {
#define CORDON_METRIC(id, name, type, help) CORDON_METRIC_##id,
#include "core/metrics.def"
#undef CORDON_METRIC
    CORDON_METRIC__COUNT
};

void cordon_metrics_add(enum cordon_metric metric, int64_t number);
void cordon_metrics_set(enum cordon_metric metric, int64_t number);
/* Core calls these itself for every live run (an outcome, or an error of open or next). Doors call _error only for what
 * they answer before there is a live run (a body that can't be read, a missing key). */
void cordon_metrics_outcome(const char *language, const struct cordon_outcome *outcome);
void cordon_metrics_error(enum cordon_error_kind kind);
void cordon_metrics_write(struct cordon_buf *to);

#endif
