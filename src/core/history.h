/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The runs that ended, on their way to the store. A run must not wait for a disk: its record goes into a list here, and
 * the gateway's main thread takes what is there once a second. When runs end faster than they are taken, the oldest
 * records are lost, and counted (cordon_history_lost_total).
 */
#ifndef CORDON_CORE_HISTORY_H
#define CORDON_CORE_HISTORY_H

#include <cordon/backend.h>

#include "core/settings.h"

#define CORDON_HISTORY_TEXT_MAX (64u << 10) /* kept of code and of each stream, where they are kept at all */

struct cordon_history_record {
    int64_t at_ms; /* Unix milliseconds */
    char subject[32], language[16];
    enum cordon_door door;
    struct cordon_outcome outcome;
    char *code, *stdout_text, *stderr_text; /* NULL unless CORDON_HISTORY_CODE; the record's own */
};

/* Takes the record's texts. */
void cordon_history_note(struct cordon_history_record *record);
/* The oldest ones, at most `most`: how many. Each is to be freed with _done. */
size_t cordon_history_take(struct cordon_history_record *to, size_t most);
void cordon_history_record_done(struct cordon_history_record *record);

#endif
