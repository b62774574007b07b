/* SPDX-License-Identifier: Apache-2.0 */
/* CreateOS's shapes: a floor that is never rounded down. The catalogue is believed for ten minutes,
 * with the settings that it was asked for with: another account may have another. */
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>

#include "backend/remote/createos.h"
#include "base/clock.h"

#define SHAPE_LEAST_MIB 4096
#define SHAPE_UNKNOWN "s-2vcpu-4gb"
#define SHAPES_US (600u * 1000000u)
#define SHAPES_MAX 64

struct shape {
    char id[64];
    int64_t mem_mib;
};
static struct {
    pthread_mutex_t lock;
    struct shape list[SHAPES_MAX];
    size_t count;
    struct cordon_remote_belief good;
} shapes = {.lock = PTHREAD_MUTEX_INITIALIZER};

/* The lock is held. */
static void keep_shapes(const struct cordon_value *data, uint64_t with)
{
    struct cordon_value list = *data, key, item, number;
    (void)cordon_value_member(data, "data", &list); /* newer servers have the list with its pages in one more object */
    shapes.count = 0;
    struct cordon_value_walk walk = cordon_value_walk(&list);
    while (list.kind == CORDON_VALUE_ARRAY && shapes.count < SHAPES_MAX && cordon_value_next(&walk, &key, &item)) {
        struct shape *shape = &shapes.list[shapes.count];
        if (item.kind == CORDON_VALUE_OBJECT && cordon_value_text(&item, "id", shape->id, sizeof shape->id) &&
            cordon_value_member(&item, "mem_mib", &number) && cordon_value_integer(&number, &shape->mem_mib))
            shapes.count++; /* one that can't be read is skipped */
    }
    cordon_remote_believe(&shapes.good, with, SHAPES_US);
}

/* The lock is held. */
static int pick_shape(int64_t needed, char to[64], struct cordon_error *err)
{
    const char *pinned = cordon_remote_text(CORDON_SET_CREATEOS_SHAPE);
    const struct shape *best = NULL;
    int64_t least = !*pinned && needed < SHAPE_LEAST_MIB ? SHAPE_LEAST_MIB : needed;
    for (size_t i = 0; i < shapes.count; i++) {
        const struct shape *shape = &shapes.list[i];
        if (*pinned ? strcmp(shape->id, pinned) != 0 : shape->mem_mib < least)
            continue;
        if (!best || shape->mem_mib < best->mem_mib ||
            (shape->mem_mib == best->mem_mib && strcmp(shape->id, best->id) < 0))
            best = shape;
    }
    if (!best && !*pinned && !shapes.count) {
        (void)snprintf(to, 64, SHAPE_UNKNOWN);
        return 0;
    }
    if (!best)
        return cordon_fail(err, -ENOENT, CORDON_ERROR_UNAVAILABLE,
                           *pinned ? "CreateOS has no shape \"%s\" (CORDON_CREATEOS_SHAPE), of %lld MiB or more"
                                   : "CreateOS has no shape%s with %lld MiB or more",
                           pinned, (long long)least);
    if (best->mem_mib < least)
        return cordon_fail(err, -ERANGE, CORDON_ERROR_UNAVAILABLE,
                           "CreateOS's shape \"%s\" (CORDON_CREATEOS_SHAPE) has %lld MiB and the run needs %lld MiB "
                           "(LANGFLOW_SANDBOX_MEMORY_MB, CORDON_MEMORY_MB)",
                           pinned, (long long)best->mem_mib, (long long)least);
    (void)snprintf(to, 64, "%s", best->id);
    return 0;
}

/* Asked for without the lock: who comes meanwhile asks as well, and waits for no call but its own. */
int cordon_createos_shape_choose(uint64_t memory_bytes, uint64_t deadline_us, int cancel_fd, char to[64],
                                 struct cordon_error *err)
{
    struct cordon_http_answer answer;
    struct cordon_value data;
    int64_t needed = (int64_t)(memory_bytes >> 20);
    uint64_t with = cordon_remote_with();
    pthread_mutex_lock(&shapes.lock);
    bool known = cordon_remote_believed(&shapes.good, with);
    int r = known ? pick_shape(needed, to, err) : 0;
    pthread_mutex_unlock(&shapes.lock);
    if (known)
        return r;
    struct cordon_http_call call = {
        .method = "GET", .deadline_us = deadline_us, .cancel_fd = cancel_fd, .retry = CORDON_HTTP_RETRY_SAFE};
    r = cordon_createos_ask(&call, "/v1/shapes?limit=500&offset=0", /* else a server's own page may end too soon */
                            "asking for the shapes", &answer, &data, err);
    if (r == 0) {
        pthread_mutex_lock(&shapes.lock);
        keep_shapes(&data, with);
        r = pick_shape(needed, to, err); /* before another's are kept */
        pthread_mutex_unlock(&shapes.lock);
    }
    cordon_buf_done(&answer.body);
    return r;
}
