/* SPDX-License-Identifier: Apache-2.0 */
#include "core/history.h"

#include <pthread.h>
#include <stdlib.h>

#include "core/metrics.h"

#define MOST 4096 /* that wait to be taken; memory is held for those only */

struct noted {
    struct cordon_history_record record;
    struct noted *next;
};

static struct {
    pthread_mutex_t lock;
    struct noted *first, *last;
    size_t count;
} history = {.lock = PTHREAD_MUTEX_INITIALIZER};

void cordon_history_record_done(struct cordon_history_record *record)
{
    free(record->code);
    free(record->stdout_text);
    free(record->stderr_text);
    record->code = record->stdout_text = record->stderr_text = NULL;
}

/* The lock is held, and there is one. */
static struct noted *take_first(void)
{
    struct noted *noted = history.first;
    history.first = noted->next;
    history.count--;
    return noted;
}

void cordon_history_note(struct cordon_history_record *record)
{
    struct noted *noted = calloc(1, sizeof *noted), *lost = NULL;
    if (!noted) {
        cordon_metrics_add(CORDON_METRIC_HISTORY_LOST, 1);
        cordon_history_record_done(record);
        return;
    }
    noted->record = *record;
    pthread_mutex_lock(&history.lock);
    if (history.count == MOST)
        lost = take_first();
    if (history.first)
        history.last->next = noted;
    else
        history.first = noted;
    history.last = noted;
    history.count++;
    pthread_mutex_unlock(&history.lock);
    if (!lost)
        return;
    cordon_metrics_add(CORDON_METRIC_HISTORY_LOST, 1);
    cordon_history_record_done(&lost->record);
    free(lost);
}

size_t cordon_history_take(struct cordon_history_record *to, size_t most)
{
    size_t n = 0;
    pthread_mutex_lock(&history.lock);
    for (; n < most && history.count; n++) {
        struct noted *noted = take_first();
        to[n] = noted->record;
        free(noted);
    }
    pthread_mutex_unlock(&history.lock);
    return n;
}
