/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CORDON_DOOR_METRICS_H
#define CORDON_DOOR_METRICS_H

#include "http/request.h"

/* GET /metrics: core's numbers, and those of the HTTP server. */
int cordon_door_metrics_get(struct cordon_http_request *request, struct cordon_error *err);

#endif
