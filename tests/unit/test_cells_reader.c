/* SPDX-License-Identifier: Apache-2.0 */
/* What interpreters write to their channel, read. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "cells/reader.h"

static void put(struct cordon_buf *to, int type, const char *payload, size_t size)
{
    char header[8] = {(char)type};
    for (int i = 0; i < 4; i++)
        header[4 + i] = (char)(size >> (8 * i));
    assert_int_equal(cordon_buf_append(to, header, sizeof header), 0);
    assert_int_equal(cordon_buf_append(to, payload, size), 0);
}

static void put_text(struct cordon_buf *to, int type, const char *payload)
{
    put(to, type, payload, strlen(payload));
}

/* All events of data in pieces of `step` bytes, as lines of text. */
static char *told(const struct cordon_buf *data, size_t step)
{
    static const char *const names[] = {"more", "ready", "out", "err", "shown", "done", "broken"};
    struct cordon_cell_reader reader = CORDON_CELL_READER_INIT;
    struct cordon_buf lines = CORDON_BUF_INIT(64u << 20);
    struct cordon_cell_reader_event event;
    for (size_t at = 0; at < data->size; at += step) {
        size_t n = data->size - at < step ? data->size - at : step;
        assert_int_equal(cordon_cell_reader_feed(&reader, data->data + at, n), 0);
        while ((event = cordon_cell_reader_next(&reader)).type != CORDON_CELL_READ_MORE) {
            (void)cordon_buf_appendf(&lines, "%s %u %.*s\n", names[event.type], event.number, (int)event.size,
                                     event.data ? event.data : "");
            if (event.type == CORDON_CELL_READ_BROKEN)
                break;
        }
    }
    cordon_cell_reader_done(&reader);
    assert_int_equal(cordon_buf_append(&lines, "", 1), 0);
    return lines.data;
}

static void expect(struct cordon_buf *data, size_t step, const char *lines)
{
    char *found = told(data, step);
    assert_string_equal(found, lines);
    free(found);
}

static void frames_in_any_pieces(void **state)
{
    struct cordon_buf data = CORDON_BUF_INIT(1u << 20);
    put_text(&data, CORDON_CELL_FRAME_READY, "{\"language\":\"python\"}");
    put_text(&data, CORDON_CELL_FRAME_PART, "{\"text\":");
    put_text(&data, CORDON_CELL_FRAME_SHOW, "\"2\",\n\"main\":true}");
    put_text(&data, CORDON_CELL_FRAME_DONE, "{\"number\":7}");
    put_text(&data, CORDON_CELL_FRAME_DONE, "{\"number\":8,\"error\":{\"name\":\"E\"}}");
    for (size_t step = 1; step <= data.size; step++)
        expect(&data, step, "ready 0 \nshown 0 {\"text\":\"2\", \"main\":true}\ndone 7 \ndone 8 {\"name\":\"E\"}\n");
    cordon_buf_done(&data);
}

static void output_of_one_stream_is_told_at_once(void **state)
{
    struct cordon_buf data = CORDON_BUF_INIT(1u << 20);
    put_text(&data, CORDON_CELL_FRAME_OUT, "\001a");
    put_text(&data, CORDON_CELL_FRAME_OUT, "\001");
    put_text(&data, CORDON_CELL_FRAME_OUT, "\001b");
    put_text(&data, CORDON_CELL_FRAME_OUT, "\002c");
    put_text(&data, CORDON_CELL_FRAME_OUT, "\001d");
    expect(&data, data.size, "out 0 ab\nerr 0 c\nout 0 d\n");
    expect(&data, 11, "out 0 a\nout 0 b\nerr 0 c\nout 0 d\n");
    cordon_buf_done(&data);
}

static void what_is_no_frame_breaks_it(void **state)
{
    static const struct {
        int type;
        const char *payload;
    } rows[] = {
        {2, "x"},
        {CORDON_CELL_FRAME_SYNCED + 1, ""},
        {CORDON_CELL_FRAME_OUT, ""},
        {CORDON_CELL_FRAME_OUT, "\003x"},
        {CORDON_CELL_FRAME_SHOW, "{"},
        {CORDON_CELL_FRAME_SHOW, "[]"},
        {CORDON_CELL_FRAME_SHOW, ""},
        {CORDON_CELL_FRAME_SHOW, "{\"a\":\"\xff\"}"},
        {CORDON_CELL_FRAME_DONE, "{}"},
        {CORDON_CELL_FRAME_DONE, "{\"number\":-1}"},
        {CORDON_CELL_FRAME_DONE, "{\"number\":1,\"error\":3}"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct cordon_buf data = CORDON_BUF_INIT(1u << 20);
        put_text(&data, rows[i].type, rows[i].payload);
        put_text(&data, CORDON_CELL_FRAME_DONE, "{\"number\":1}");
        expect(&data, data.size, "broken 0 \n");
        cordon_buf_done(&data);
    }
}

static void limits(void **state)
{
    static char large[CORDON_CELL_FRAME_MAX];
    struct cordon_buf data = CORDON_BUF_INIT(64u << 20);
    memset(large, ' ', sizeof large);
    put(&data, CORDON_CELL_FRAME_PART, large, CORDON_CELL_FRAME_MAX - CORDON_CELL_HEADER + 1);
    expect(&data, data.size, "broken 0 \n");
    data.size = 0;
    for (size_t size = 0; size <= CORDON_CELL_OBJECT_MAX; size += 16000)
        put(&data, CORDON_CELL_FRAME_PART, large, 16000);
    expect(&data, 60000, "broken 0 \n");
    cordon_buf_done(&data);
}

static void many_empty_frames(void **state)
{
    struct cordon_buf data = CORDON_BUF_INIT(64u << 20);
    for (int i = 0; i < 100000; i++)
        put_text(&data, i % 2 ? CORDON_CELL_FRAME_OUT : CORDON_CELL_FRAME_PART, i % 2 ? "\001" : "");
    put_text(&data, CORDON_CELL_FRAME_DONE, "{\"number\":1}");
    expect(&data, 1000000, "done 1 \n");
    cordon_buf_done(&data);
}

static void sync_finds_the_first_whole_frame(void **state)
{
    static const unsigned char nonce[] = "0123456789abcdef";
    struct cordon_buf data = CORDON_BUF_INIT(1u << 20);
    put_text(&data, CORDON_CELL_FRAME_OUT, "\001half");
    put(&data, CORDON_CELL_FRAME_SYNCED, "0123456789abcdef\005\000\000\000", 20);
    put_text(&data, CORDON_CELL_FRAME_DONE, "{\"number\":9}");
    for (size_t cut = 1; cut < 12; cut++) {
        struct cordon_cell_reader reader = CORDON_CELL_READER_INIT;
        uint32_t number = 0;
        int found = 0;
        for (size_t at = cut; at < data.size; at += 3) {
            size_t n = data.size - at < 3 ? data.size - at : 3;
            assert_int_equal(cordon_cell_reader_feed(&reader, data.data + at, n), 0);
            if (!found)
                found = cordon_cell_reader_sync(&reader, nonce, &number);
        }
        assert_int_equal(found, 1);
        assert_int_equal(number, 5);
        struct cordon_cell_reader_event event = cordon_cell_reader_next(&reader);
        assert_int_equal(event.type, CORDON_CELL_READ_DONE);
        assert_int_equal(event.number, 9);
        cordon_cell_reader_done(&reader);
    }
    cordon_buf_done(&data);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(frames_in_any_pieces),       cmocka_unit_test(output_of_one_stream_is_told_at_once),
        cmocka_unit_test(what_is_no_frame_breaks_it), cmocka_unit_test(limits),
        cmocka_unit_test(many_empty_frames),          cmocka_unit_test(sync_finds_the_first_whole_frame),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
