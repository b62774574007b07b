/* SPDX-License-Identifier: Apache-2.0 */
/* CreateOS's shapes: a floor that is never rounded down. The catalogue is believed for ten minutes. */
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
    uint64_t good_until_us;
} shapes = {.lock = PTHREAD_MUTEX_INITIALIZER};

static void keep_shapes(const struct cordon_value *data)
{
    struct cordon_value list = *data, key, item, number;
    (void)cordon_value_member(data, "data", &list); /* newer servers have the list with its pages in one more object */
    pthread_mutex_lock(&shapes.lock);
    shapes.count = 0;
    struct cordon_value_walk walk = cordon_value_walk(&list);
    while (list.kind == CORDON_VALUE_ARRAY && shapes.count < SHAPES_MAX && cordon_value_next(&walk, &key, &item)) {
        struct shape *shape = &shapes.list[shapes.count];
        if (item.kind == CORDON_VALUE_OBJECT && cordon_value_text(&item, "id", shape->id, sizeof shape->id) &&
            cordon_value_member(&item, "mem_mib", &number) && cordon_value_integer(&number, &shape->mem_mib))
            shapes.count++; /* one that can't be read is skipped */
    }
    shapes.good_until_us = cordon_now_us() + SHAPES_US;
    pthread_mutex_unlock(&shapes.lock);
}

/* Without the lock: who comes meanwhile asks as well, and waits for no call but its own. */
static int load_shapes(uint64_t deadline_us, int cancel_fd, struct cordon_error *err)
{
    struct cordon_http_answer answer;
    struct cordon_value data;
    pthread_mutex_lock(&shapes.lock);
    bool known = shapes.good_until_us > cordon_now_us();
    pthread_mutex_unlock(&shapes.lock);
    if (known)
        return 0;
    struct cordon_http_call call = {
        .method = "GET", .deadline_us = deadline_us, .cancel_fd = cancel_fd, .retry = CORDON_HTTP_RETRY_SAFE};
    int r = cordon_createos_ask(&call, "/v1/shapes?limit=500&offset=0", /* else a server's own page may end too soon */
                                "asking for the shapes", &answer, &data, err);
    if (r == 0)
        keep_shapes(&data);
    cordon_buf_done(&answer.body);
    return r;
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

int cordon_createos_shape_choose(uint64_t memory_bytes, uint64_t deadline_us, int cancel_fd, char to[64],
                                 struct cordon_error *err)
{
    int r = load_shapes(deadline_us, cancel_fd, err);
    if (r < 0)
        return r;
    pthread_mutex_lock(&shapes.lock);
    r = pick_shape((int64_t)(memory_bytes >> 20), to, err);
    pthread_mutex_unlock(&shapes.lock);
    return r;
}
