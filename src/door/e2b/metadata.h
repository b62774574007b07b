/* SPDX-License-Identifier: Apache-2.0 */
#ifndef CORDON_E2B_METADATA_H
#define CORDON_E2B_METADATA_H

#include "door/fields.h"

/* The list's metadata filter: "k=v&k=v" as a query's value, whose form and whose every key and value may be escaped
 * once more. text: the value with the query's own escapes still in it. Pure; fuzzed. */
int cordon_e2b_metadata_read(const char *text, struct cordon_door_memory *memory, struct cordon_pairs *ret,
                             struct cordon_error *err);

#endif
