/* SPDX-License-Identifier: Apache-2.0 */
/* The backends that come with Cordon, for cordon_registry_setup. */
#ifndef CORDON_BACKEND_BUILTIN_H
#define CORDON_BACKEND_BUILTIN_H

#include <cordon/backend.h>

extern const struct cordon_backend cordon_backend_none, cordon_backend_local;
extern const struct cordon_backend *const cordon_backend_builtin[]; /* NULL-terminated */

/* "python,javascript,bash": what the warden's interpreters allow. Lives for ever. */
const char *cordon_backend_languages(uint32_t kinds);

#endif
