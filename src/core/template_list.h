/* SPDX-License-Identifier: Apache-2.0 */
/* What made templates there are, and what each is, for whoever lists them: the command line and the doors. */
#ifndef CORDON_CORE_TEMPLATE_LIST_H
#define CORDON_CORE_TEMPLATE_LIST_H

#include "base/json.h"
#include "core/template_file.h"

/* header is NULL where the file is none that this version reads; then why says so. Both are the caller's for the call.
 */
typedef void cordon_template_visit(void *context, const char *name, const struct cordon_template_header *header,
                                   const struct cordon_error *why);

/* Visits each, by name. folder: as cordon_template_folder_open gives it. 0, or negative with err. */
int cordon_templates_each(int folder, cordon_template_visit *visit, void *context, struct cordon_error *err);
/* One by its name, whatever the name: -ENOENT with NOT_FOUND when there is none. verify: its digest is compared, too.
 */
int cordon_template_read(int folder, const char *name, bool verify, struct cordon_template_header *ret,
                         struct cordon_error *err);
/* One JSON object: name, kind, from, base, pip, npm, bytes, created_s, digest, key. */
void cordon_template_write(const char *name, const struct cordon_template_header *header, struct cordon_json *json);

#endif
