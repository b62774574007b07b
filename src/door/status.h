/* SPDX-License-Identifier: Apache-2.0 */
/* What /readyz tells, for others as well. */
#ifndef CORDON_DOOR_STATUS_H
#define CORDON_DOOR_STATUS_H

#include "door/door.h"

/* One object; whether a run on the default backend could start now. */
bool cordon_door_ready_write(const struct cordon_doors *doors, struct cordon_json *json);

#endif
