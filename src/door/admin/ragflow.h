/* SPDX-License-Identifier: Apache-2.0 */
/* What the files of RAGFlow's admin routes share. */
#ifndef CORDON_DOOR_ADMIN_RAGFLOW_H
#define CORDON_DOOR_ADMIN_RAGFLOW_H

#include "door/admin/admin.h"

/* --- providers and their forms: ragflow_form.c --- */

struct cordon_ragflow_form {
    unsigned provider;
    bool active; /* it is to be chosen as well */
};

bool cordon_ragflow_provider_find(const char *id, unsigned *ret);
const char *cordon_ragflow_provider_id(unsigned provider);
/* The `data` of RAGFlow's answers. */
void cordon_ragflow_providers_write(struct cordon_json *json);
void cordon_ragflow_schema_write(struct cordon_json *json, unsigned provider);
void cordon_ragflow_config_write(struct cordon_json *json, const struct cordon_settings *settings, unsigned provider);
/* {"provider_type", "config"?, "set_active"?}, checked as RAGFlow does, in its words: the changes of settings that it
 * is. */
int cordon_ragflow_form_read(const struct cordon_settings *settings, const struct cordon_value *body,
                             struct cordon_ragflow_form *ret, struct cordon_admin_changes *changes,
                             struct cordon_error *err);

/* --- fields that no setting stands for: ragflow_extra.c --- */

/* Has a field of that name its place elsewhere, or may it not be kept at all? */
typedef bool cordon_ragflow_is_known(const char *provider, const struct cordon_value *name);

/* Adds a change that keeps the fields of config that are not known, in the place of the provider's that were kept
 * before; none where nothing changes. INVALID: they are too much. */
int cordon_ragflow_extra_add(const struct cordon_settings *settings, const char *provider,
                             const struct cordon_value *config, cordon_ragflow_is_known *known,
                             struct cordon_admin_changes *changes, struct cordon_error *err);
/* Writes them as members of the object that was begun. */
void cordon_ragflow_extra_write(struct cordon_json *json, const struct cordon_settings *settings, const char *provider);

#endif
