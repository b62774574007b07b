/* SPDX-License-Identifier: Apache-2.0 */
/* Core's service of kept guests on backends and a registry of the test's own. */
#ifndef CORDON_TESTS_OWN_GUESTS_H
#define CORDON_TESTS_OWN_GUESTS_H

#include "core/guests.h"
#include "core_helper.h"

extern struct cordon_capabilities own_caps; /* of all the test's backends: all that the fake one can, and guests */
const struct cordon_capabilities *own_capabilities(void);

/* The first members of a row of struct cordon_backend. */
#define OWN_BACKEND(name_)                                                                                             \
    .abi_version = CORDON_ABI_VERSION, .struct_size = sizeof(struct cordon_backend), .name = (name_),                  \
    .capabilities = own_capabilities

/* What an earlier gateway left. more: "" or further members, each behind a comma. */
struct own_row {
    const char *id, *record; /* id NULL: the end */
};
#define OWN_RECORD(tenant, backend, more)                                                                              \
    "{\"tenant\":\"" tenant "\",\"name\":\"\",\"template\":\"default\",\"backend\":\"" backend "\"" more "}"

/* A registry that has these rows (NULL: none) and keeps nothing that it is told. */
struct cordon_guest_registry own_registry(const struct own_row *rows);

/* registry may be NULL; both are borrowed until stop. Adoption is the test's to begin. */
void own_guests_start(const struct cordon_backend *const *backends, const struct cordon_guest_registry *registry);
void own_guests_stop(void);

#endif
