/* SPDX-License-Identifier: Apache-2.0 */
/* The OpenAPI document, made from the doors' route tables and schemas. */
#ifndef CORDON_HTTP_OPENAPI_H
#define CORDON_HTTP_OPENAPI_H

#include "base/buf.h"
#include "http/route.h"

/* Appends the whole document; failures are sticky in to->failed. */
void cordon_http_openapi_write(const struct cordon_http_door *const *doors, const char *version, struct cordon_buf *to);

#endif
