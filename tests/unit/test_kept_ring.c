/* SPDX-License-Identifier: Apache-2.0 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "agent/kept_ring.h"

static void gives_back_what_was_pushed(void **state)
{
    struct cordon_ring ring = {0};
    struct cordon_ring_place place = {0};
    char out[64];
    uint8_t which;
    (void)state;
    assert_int_equal(cordon_ring_take(&ring, &place, &which, out, sizeof out), 0);
    assert_int_equal(cordon_ring_push(&ring, 1, "hello", 5), 0);
    assert_int_equal(cordon_ring_push(&ring, 2, "x", 1), 0);
    assert_int_equal(cordon_ring_take(&ring, &place, &which, out, 4), 4);
    assert_int_equal(which, 1);
    assert_memory_equal(out, "hell", 4);
    assert_int_equal(cordon_ring_take(&ring, &place, &which, out, sizeof out), 1);
    assert_memory_equal(out, "o", 1);
    assert_int_equal(cordon_ring_take(&ring, &place, &which, out, sizeof out), 1);
    assert_int_equal(which, 2);
    assert_int_equal(cordon_ring_take(&ring, &place, &which, out, sizeof out), 0);
    cordon_ring_done(&ring);
}

/* Against a model: a reader that keeps up sees every byte, one that does not goes on at whole records. */
static void keeps_the_newest(void **state)
{
    static char chunk[CORDON_RING_CHUNK];
    struct cordon_ring ring = {0};
    struct cordon_ring_place near = {0}, far = {0};
    char out[CORDON_RING_CHUNK];
    uint8_t which;
    uint64_t pushed = 0, read = 0, late = 0, last;
    (void)state;
    for (unsigned i = 0; i < 5000; i++) {
        size_t size = 1 + (i * 7919u) % sizeof chunk, n;
        for (size_t j = 0; j < size; j++)
            chunk[j] = (char)(pushed + j);
        assert_true(cordon_ring_room(&ring, near.at) >= 1);
        assert_int_equal(cordon_ring_push(&ring, 1, chunk, size), 0);
        pushed += size;
        while ((n = cordon_ring_take(&ring, &near, &which, out, 1 + i % 4096))) {
            for (size_t j = 0; j < n; j++)
                assert_int_equal(out[j], (char)(read + j));
            read += n;
        }
        assert_int_equal(read, pushed);
        assert_true(ring.capacity <= CORDON_RING_MOST);
    }
    while ((last = cordon_ring_take(&ring, &far, &which, out, sizeof out)))
        late += last;
    assert_true(late > CORDON_RING_MOST / 2 && late < CORDON_RING_MOST);
    cordon_ring_done(&ring);
}

static void replays_the_last_bytes(void **state)
{
    struct cordon_ring ring = {0};
    char out[16];
    uint8_t which;
    (void)state;
    assert_int_equal(cordon_ring_push(&ring, 1, "abcdef", 6), 0);
    assert_int_equal(cordon_ring_push(&ring, 1, "ghi", 3), 0);
    struct cordon_ring_place place = cordon_ring_last(&ring, 5);
    assert_int_equal(cordon_ring_take(&ring, &place, &which, out, sizeof out), 2);
    assert_memory_equal(out, "ef", 2);
    place = cordon_ring_last(&ring, 0);
    assert_int_equal(cordon_ring_take(&ring, &place, &which, out, sizeof out), 0);
    place = cordon_ring_last(&ring, 100);
    assert_int_equal(cordon_ring_take(&ring, &place, &which, out, sizeof out), 6);
    cordon_ring_done(&ring);
}

static void room_never_loses_what_is_kept(void **state)
{
    static char chunk[CORDON_RING_CHUNK];
    struct cordon_ring ring = {0};
    struct cordon_ring_place place = {0};
    size_t room, pushed = 0;
    uint8_t which;
    char out[CORDON_RING_CHUNK];
    (void)state;
    while ((room = cordon_ring_room(&ring, 0)) > 0) {
        assert_int_equal(cordon_ring_push(&ring, 1, chunk, room), 0);
        pushed += room;
    }
    assert_int_equal(ring.start, 0);
    for (size_t n; (n = cordon_ring_take(&ring, &place, &which, out, sizeof out));)
        pushed -= n;
    assert_int_equal(pushed, 0);
    cordon_ring_done(&ring);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(gives_back_what_was_pushed),
        cmocka_unit_test(keeps_the_newest),
        cmocka_unit_test(replays_the_last_bytes),
        cmocka_unit_test(room_never_loses_what_is_kept),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
