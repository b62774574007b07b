/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CORDON_DOOR_NATIVE_RUN_H
#define CORDON_DOOR_NATIVE_RUN_H

#include "http/request.h"

/* POST /v1/runs */
int cordon_native_run(struct cordon_http_request *request, struct cordon_error *err);

#endif
