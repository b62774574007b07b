/* SPDX-License-Identifier: Apache-2.0 */
/* E2B's code interpreter, and its dialect of a cell's events. */
#ifndef CORDON_E2B_CODE_INTERPRETER_H
#define CORDON_E2B_CODE_INTERPRETER_H

#include "base/buf.h"
#include "cells/cells.h"

/* All zero at the start: holds what of a character a piece of output cut. */
struct cordon_e2b_cell_writer {
    struct {
        char bytes[4];
        size_t size;
    } carry[2];
};
/* Appends the event's lines (none, one or more). Failures are sticky in to->failed. */
void cordon_e2b_cell_write(struct cordon_e2b_cell_writer *writer, const struct cordon_cell_event *event,
                           struct cordon_buf *to);

#endif
