/* SPDX-License-Identifier: Apache-2.0 */
/* E2B's doors, in the order in which they stand in the list of all doors. */
#ifndef CORDON_E2B_DOORS_H
#define CORDON_E2B_DOORS_H

#include "http/route.h"

/* The control plane; envd, by port 49983 or its paths; the code interpreter, by port
 * 49999; what listens in a sandbox, by any other port. */
extern const struct cordon_http_door cordon_door_e2b, cordon_door_e2b_envd, cordon_door_e2b_interpreter,
    cordon_door_e2b_port;

#endif
