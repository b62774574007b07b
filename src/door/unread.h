/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Answers that wait for slow readers after their runs are over. All together have a bound; beyond it a slow reader
 * keeps its run's guest and place. One counter for all doors.
 */
#ifndef CORDON_DOOR_UNREAD_H
#define CORDON_DOOR_UNREAD_H

#include <stdbool.h>
#include <stddef.h>

/* Adds size to *charged, if there is room for it. */
bool cordon_unread_charge(size_t *charged, size_t size);
/* Should guest and place be given back before an answer of that size leaves? Then it is charged. A small one leaves at
 * once, and they are better given back after it. */
bool cordon_unread_gives_back(size_t *charged, size_t size);
void cordon_unread_done(size_t charged); /* it was sent, or its reader is gone */

#endif
