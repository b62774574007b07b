/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CORDON_DOOR_NATIVE_SCHEMAS_H
#define CORDON_DOOR_NATIVE_SCHEMAS_H

#include "http/route.h"

#define CORDON_NATIVE_SCHEMAS 10u
extern const struct cordon_http_schema cordon_native_schemas[CORDON_NATIVE_SCHEMAS];

#endif
