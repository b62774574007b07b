/* SPDX-License-Identifier: Apache-2.0 */
#include "agent/kept_ring.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define HEAD 3u
#define FIRST_CAPACITY 4096u

static void copy_in(struct cordon_ring *ring, uint64_t at, const char *from, size_t size)
{
    size_t place = (size_t)(at % ring->capacity), first = ring->capacity - place;
    if (first > size)
        first = size;
    memcpy(ring->data + place, from, first);
    memcpy(ring->data, from + first, size - first);
}

static void copy_out(const struct cordon_ring *ring, uint64_t at, char *to, size_t size)
{
    size_t place = (size_t)(at % ring->capacity), first = ring->capacity - place;
    if (first > size)
        first = size;
    memcpy(to, ring->data + place, first);
    memcpy(to + first, ring->data, size - first);
}

static size_t length_at(const struct cordon_ring *ring, uint64_t at)
{
    char head[HEAD];
    copy_out(ring, at, head, sizeof head);
    return (uint8_t)head[1] | (size_t)(uint8_t)head[2] << 8;
}

void cordon_ring_done(struct cordon_ring *ring)
{
    free(ring->data);
    *ring = (struct cordon_ring){.start = ring->end, .end = ring->end};
}

static int grow(struct cordon_ring *ring, size_t needed)
{
    size_t used = (size_t)(ring->end - ring->start), capacity = ring->capacity ? ring->capacity : FIRST_CAPACITY;
    while (capacity < used + needed && capacity < CORDON_RING_MOST)
        capacity *= 2;
    if (capacity > CORDON_RING_MOST)
        capacity = CORDON_RING_MOST;
    if (capacity == ring->capacity)
        return 0;
    struct cordon_ring bigger = {
        .data = malloc(capacity), .capacity = capacity, .start = ring->start, .end = ring->end};
    if (!bigger.data)
        return -ENOMEM;
    for (uint64_t at = ring->start; at < ring->end;) {
        char piece[512];
        size_t n = ring->end - at < sizeof piece ? (size_t)(ring->end - at) : sizeof piece;
        copy_out(ring, at, piece, n);
        copy_in(&bigger, at, piece, n);
        at += n;
    }
    free(ring->data);
    *ring = bigger;
    return 0;
}

int cordon_ring_push(struct cordon_ring *ring, uint8_t which, const void *data, size_t size)
{
    int r = grow(ring, HEAD + size);
    if (r < 0 && !ring->data)
        return r; /* without more memory the old circle does */
    if (HEAD + size > ring->capacity)
        return -ENOMEM;
    while (ring->end - ring->start + HEAD + size > ring->capacity)
        ring->start += HEAD + length_at(ring, ring->start);
    const char head[HEAD] = {(char)which, (char)size, (char)(size >> 8)};
    copy_in(ring, ring->end, head, sizeof head);
    copy_in(ring, ring->end + HEAD, data, size);
    ring->end += HEAD + size;
    return 0;
}

size_t cordon_ring_room(const struct cordon_ring *ring, uint64_t keep)
{
    uint64_t used = ring->end - (keep > ring->start ? keep : ring->start);
    size_t left = used < CORDON_RING_MOST ? CORDON_RING_MOST - (size_t)used : 0;
    left = left > HEAD ? left - HEAD : 0;
    return left < CORDON_RING_CHUNK ? left : CORDON_RING_CHUNK;
}

struct cordon_ring_place cordon_ring_last(const struct cordon_ring *ring, size_t bytes)
{
    size_t payload = 0;
    for (uint64_t at = ring->start; at < ring->end; at += HEAD + length_at(ring, at))
        payload += length_at(ring, at);
    struct cordon_ring_place place = {.at = ring->start};
    while (place.at < ring->end && payload > bytes) {
        size_t length = length_at(ring, place.at);
        if (payload - length < bytes) { /* it is cut */
            place.part = (uint16_t)(payload - bytes);
            break;
        }
        payload -= length;
        place.at += HEAD + length;
    }
    return place;
}

size_t cordon_ring_take(const struct cordon_ring *ring, struct cordon_ring_place *place, uint8_t *which, char *to,
                        size_t most)
{
    if (place->at < ring->start)
        *place = (struct cordon_ring_place){.at = ring->start};
    if (place->at >= ring->end || most == 0)
        return 0;
    char head[HEAD];
    copy_out(ring, place->at, head, sizeof head);
    size_t length = (uint8_t)head[1] | (size_t)(uint8_t)head[2] << 8, n = length - place->part;
    if (n > most)
        n = most;
    copy_out(ring, place->at + HEAD + place->part, to, n);
    *which = (uint8_t)head[0];
    place->part = (uint16_t)(place->part + n);
    if (place->part == length)
        *place = (struct cordon_ring_place){.at = place->at + HEAD + length};
    return n;
}
