/* SPDX-License-Identifier: Apache-2.0 */
/* Private to core: taking and giving back one of the places in which runs run. */
#ifndef CORDON_CORE_ADMISSION_H
#define CORDON_CORE_ADMISSION_H

#include "base/error.h"

/* Waits for a place in the order of arrival. 0: leave must follow. BUSY: the queue is full or the wait too long;
 * CANCELLED: cancel_fd's peer shut down (-1: none). */
int cordon_admission_enter(int cancel_fd, struct cordon_error *err);
void cordon_admission_leave(void);

#endif
