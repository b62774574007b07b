/* SPDX-License-Identifier: Apache-2.0 */
/* The one list of backends: built-in names are sealed, `none` is reserved, names are trimmed and lower-cased. */
#ifndef CORDON_CORE_REGISTRY_H
#define CORDON_CORE_REGISTRY_H

#include <cordon/backend.h>

/* Called by main with the built-in backends (NULL-terminated), once; seals their names. */
void cordon_registry_setup(const struct cordon_backend *const *builtin);
/* Adds one more: INVALID for an empty or built-in or reserved name, CONFLICT for one that is there. */
int cordon_registry_add(const struct cordon_backend *backend, struct cordon_error *err);
/* Finds by any spelling; unknown: INVALID, listing every known name and setting_name (e.g. CORDON_BACKEND). */
int cordon_registry_find(const char *name, const char *setting_name, const struct cordon_backend **ret,
                         struct cordon_error *err);
struct cordon_settings;
/* Every backend that the settings name is known: what a start must check before it serves (INVALID, as find). */
int cordon_registry_check(const struct cordon_settings *settings, struct cordon_error *err);
/* A backend's capabilities as this program knows them: what an older one does not have grants nothing. */
struct cordon_capabilities cordon_registry_capabilities(const struct cordon_backend *backend);
/* The i-th backend, `none` first, then by name; NULL at the end. */
const struct cordon_backend *cordon_registry_at(size_t i);
void cordon_registry_shutdown(void); /* each backend's shutdown, for all processes that ran any */

#endif
