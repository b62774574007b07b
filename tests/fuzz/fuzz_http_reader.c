/* SPDX-License-Identifier: Apache-2.0 */
/* The client's HTTP reader: whole and in pieces it must come to the same end. The first byte is the pieces' size. */
#include <stdlib.h>
#include <string.h>

#include "fuzz.h"
#include "http/reader.h"

static int read_all(struct cordon_http_reader *reader, const char *data, size_t size, size_t piece)
{
    *reader = CORDON_HTTP_READER_INIT(1u << 20);
    for (size_t at = 0; at < size; at += piece) {
        int r = cordon_http_reader_feed(reader, data + at, size - at < piece ? size - at : piece);
        if (r < 0)
            return r;
    }
    return cordon_http_reader_end(reader);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct cordon_http_reader whole, pieces;
    if (!size)
        return 0;
    const char *text = (const char *)data + 1;
    int first = read_all(&whole, text, size - 1, size);
    int second = read_all(&pieces, text, size - 1, data[0] % 32u + 1u);
    if (first != second || (first == 0 && (whole.status != pieces.status || whole.body.size != pieces.body.size)))
        abort();
    if (first == 0 && whole.body.size && memcmp(whole.body.data, pieces.body.data, whole.body.size) != 0)
        abort();
    cordon_http_reader_done(&whole);
    cordon_http_reader_done(&pieces);
    return 0;
}
