/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The newest output of a program, for readers that come late, and the way to all readers: what the program wrote lies
 * here once, and each reader has a place in it. Pure.
 *
 * Records `u8 which · u16 length · bytes`, in a circle of bytes that grows to its most and then loses whole records
 * from its start. Places are counted from the program's start, so a lost one is smaller than `start`.
 */
#ifndef CORDON_AGENT_KEPT_RING_H
#define CORDON_AGENT_KEPT_RING_H

#include <stddef.h>
#include <stdint.h>

#define CORDON_RING_MOST (96u << 10) /* CORDON_KEPT_REPLAY_MAX of payload, and records' heads */
#define CORDON_RING_CHUNK 8192u      /* most payload of a record */

struct cordon_ring {
    char *data;
    size_t capacity;
    uint64_t start, end;
};

struct cordon_ring_place {
    uint64_t at;   /* of a record */
    uint16_t part; /* of its payload that was read */
};

void cordon_ring_done(struct cordon_ring *ring);
/* 0 or -ENOMEM; size is 1 … CORDON_RING_CHUNK. The oldest records make room. */
int cordon_ring_push(struct cordon_ring *ring, uint8_t which, const void *data, size_t size);
/* How much payload a push may have without losing what is at or behind `keep`. */
size_t cordon_ring_room(const struct cordon_ring *ring, uint64_t keep);
/* The place from which about `bytes` of payload are left. */
struct cordon_ring_place cordon_ring_last(const struct cordon_ring *ring, size_t bytes);
/* Takes at most `most` bytes of one record: how many; 0 at the end. A lost place goes on at the start. */
size_t cordon_ring_take(const struct cordon_ring *ring, struct cordon_ring_place *place, uint8_t *which, char *to,
                        size_t most);

#endif
