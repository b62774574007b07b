/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CORDON_CREATEOS_DOORS_H
#define CORDON_CREATEOS_DOORS_H

#include "http/route.h"

extern const struct cordon_http_door cordon_door_createos;

#endif
