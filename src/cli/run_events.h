/* SPDX-License-Identifier: Apache-2.0 */
/* The daemon's NDJSON lines back into events: the reverse of cordon_event_write. Pure; fuzzed. */
#ifndef CORDON_CLI_RUN_EVENTS_H
#define CORDON_CLI_RUN_EVENTS_H

#include "core/run.h"

struct cordon_event_reader {
    struct cordon_buf data; /* of the event that was read last */
    char *name, *reason;
    struct cordon_outcome outcome;
};

/* Reads one line (without its newline): 1 and *event, borrowed until the next call; 0 for a line that stands for no
 * event
 * ("queued", and types of a newer daemon); negative with err for what is no such line, and for the daemon's error line,
 * whose error it then is. */
int cordon_event_read(struct cordon_event_reader *reader, const char *line, size_t size, struct cordon_event *event,
                      struct cordon_error *err);
/* An {"error":{"kind","message"}} document: fills err, returns its code (always negative). */
int cordon_error_read(const char *text, size_t size, struct cordon_error *err);
void cordon_event_reader_done(struct cordon_event_reader *reader);

#endif
