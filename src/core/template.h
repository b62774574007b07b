/* SPDX-License-Identifier: Apache-2.0 */
/* Names of templates. (What a template's file holds: core/template_file.h.) */
#ifndef CORDON_CORE_TEMPLATE_H
#define CORDON_CORE_TEMPLATE_H

#include <stdbool.h>

#define CORDON_TEMPLATE_NAME 40 /* a name with its NUL */
#define CORDON_TEMPLATE_DEFAULT "default"
#define CORDON_TEMPLATE_TRIAL "trial" /* in a warden that was started to try a file: that file */

/* 1 to 39 of a-z, 0-9, ".", "_" and "-", beginning with a letter or digit: safe as the name of a file. */
bool cordon_template_name_valid(const char *name);
/* Means the built-in one: "default", or a language. Such a name can't be given to a template. */
bool cordon_template_is_default(const char *name);

#endif
