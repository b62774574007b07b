/* SPDX-License-Identifier: Apache-2.0 */
/* The made templates, as doors list them. */
#ifndef CORDON_DOOR_TEMPLATES_H
#define CORDON_DOOR_TEMPLATES_H

#include "core/template_list.h"
#include "door/door.h"

/* As cordon_templates_each and cordon_template_read; before the first template was made there is none. */
int cordon_door_templates_each(const struct cordon_doors *doors, cordon_template_visit *visit, void *context,
                               struct cordon_error *err);
int cordon_door_template_read(const struct cordon_doors *doors, const char *name, struct cordon_template_header *ret,
                              struct cordon_error *err);

/* GET /v1/templates, GET /v1/templates/{name} */
cordon_http_handler cordon_native_templates, cordon_native_template;

#endif
