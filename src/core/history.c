/* SPDX-License-Identifier: Apache-2.0 */
#include "core/history.h"

#include <pthread.h>
#include <stdlib.h>

#include "core/metrics.h"

#define RING 2048

static struct {
    pthread_mutex_t lock;
    struct cordon_history_record *ring; /* RING of them, made at the first note */
    size_t first, count;
} history = {.lock = PTHREAD_MUTEX_INITIALIZER};

void cordon_history_record_done(struct cordon_history_record *record)
{
    free(record->code);
    free(record->stdout_text);
    free(record->stderr_text);
    record->code = record->stdout_text = record->stderr_text = NULL;
}

void cordon_history_note(struct cordon_history_record *record)
{
    struct cordon_history_record lost = {0};
    pthread_mutex_lock(&history.lock);
    if (!history.ring)
        history.ring = calloc(RING, sizeof *history.ring);
    if (!history.ring) {
        lost = *record;
    } else {
        if (history.count == RING) {
            lost = history.ring[history.first];
            history.first = (history.first + 1) % RING;
            history.count--;
        }
        history.ring[(history.first + history.count++) % RING] = *record;
    }
    pthread_mutex_unlock(&history.lock);
    if (lost.at_ms)
        cordon_metrics_add(CORDON_METRIC_HISTORY_LOST, 1);
    cordon_history_record_done(&lost);
}

size_t cordon_history_take(struct cordon_history_record *to, size_t most)
{
    size_t n = 0;
    pthread_mutex_lock(&history.lock);
    for (; n < most && history.count; n++, history.count--) {
        to[n] = history.ring[history.first];
        history.first = (history.first + 1) % RING;
    }
    pthread_mutex_unlock(&history.lock);
    return n;
}
