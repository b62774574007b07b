/* SPDX-License-Identifier: Apache-2.0 */
/* Shapes: ceilings of a guest, not reservations. */
#ifndef CORDON_CREATEOS_SHAPES_H
#define CORDON_CREATEOS_SHAPES_H

#include <stddef.h>
#include <stdint.h>

#include "core/settings.h"

struct cordon_createos_shape {
    const char *id;
    uint32_t vcpu, memory_mib;
};

/* The i-th shape that the operator's largest memory limit has room for; NULL at the end. */
const struct cordon_createos_shape *cordon_createos_shape_at(const struct cordon_settings *settings, size_t i);
/* NULL: there is none of that id, or it is too large for this daemon. */
const struct cordon_createos_shape *cordon_createos_shape_find(const struct cordon_settings *settings, const char *id);
/* Of its own files, which count as its memory. */
uint32_t cordon_createos_shape_disk_mib(const struct cordon_settings *settings,
                                        const struct cordon_createos_shape *shape);

#endif
