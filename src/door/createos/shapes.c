/* SPDX-License-Identifier: Apache-2.0 */
#include "door/createos/shapes.h"

#include <string.h>

static const struct cordon_createos_shape shapes[] = {
    {"s-1vcpu-256mb", 1, 256}, {"s-1vcpu-1gb", 1, 1024}, {"s-2vcpu-2gb", 2, 2048},
    {"s-2vcpu-4gb", 2, 4096},  {"s-4vcpu-4gb", 4, 4096}, {"s-4vcpu-8gb", 4, 8192},
};

const struct cordon_createos_shape *cordon_createos_shape_at(const struct cordon_settings *settings, size_t i)
{
    int64_t most = cordon_settings_int(settings, CORDON_DOOR_CREATEOS, CORDON_SET_MAX_MEMORY_MB);
    for (size_t at = 0; at < sizeof shapes / sizeof *shapes; at++)
        if ((int64_t)shapes[at].memory_mib <= most && !i--)
            return &shapes[at];
    return NULL;
}

const struct cordon_createos_shape *cordon_createos_shape_find(const struct cordon_settings *settings, const char *id)
{
    const struct cordon_createos_shape *shape;
    for (size_t i = 0; (shape = cordon_createos_shape_at(settings, i)); i++)
        if (strcmp(shape->id, id) == 0)
            return shape;
    return NULL;
}

uint32_t cordon_createos_shape_disk_mib(const struct cordon_settings *settings,
                                        const struct cordon_createos_shape *shape)
{
    int64_t disk = cordon_settings_int(settings, CORDON_DOOR_CREATEOS, CORDON_SET_GUEST_DISK_MB);
    return disk < (int64_t)shape->memory_mib ? (uint32_t)disk : shape->memory_mib;
}
