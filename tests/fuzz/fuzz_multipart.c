/* SPDX-License-Identifier: Apache-2.0 */
/* multipart/form-data: whole and in pieces the same parts come of it. The first byte is the pieces' size. */
#include <stdlib.h>
#include <string.h>

#include "fuzz.h"
#include "http/multipart.h"

static int open_part(void *context, const char *name, const char *filename)
{
    return cordon_buf_appendf(context, "<%s|%s>", name, filename ? filename : "");
}

static int part_data(void *context, const char *data, size_t size)
{
    return cordon_buf_append(context, data, size);
}

static int close_part(void *context)
{
    return cordon_buf_append(context, "</>", 3);
}

static int read_all(const char *data, size_t size, size_t piece, struct cordon_buf *to)
{
    static const struct cordon_multipart_taker taker = {open_part, part_data, close_part};
    struct cordon_multipart reader;
    int r = cordon_multipart_init(&reader, "multipart/form-data; boundary=X", &taker, to);
    for (size_t at = 0; r == 0 && at < size; at += piece)
        r = cordon_multipart_feed(&reader, data + at, size - at < piece ? size - at : piece);
    if (r == 0)
        r = cordon_multipart_end(&reader);
    cordon_multipart_done(&reader);
    return r;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct cordon_buf whole = CORDON_BUF_INIT(1u << 24), pieces = CORDON_BUF_INIT(1u << 24);
    char parameter[4096];
    if (!size)
        return 0;
    const char *text = (const char *)data + 1;
    int first = read_all(text, size - 1, size, &whole), second = read_all(text, size - 1, data[0] % 32u + 1u, &pieces);
    if (first != second || whole.size != pieces.size ||
        (whole.size && memcmp(whole.data, pieces.data, whole.size) != 0))
        abort();
    if (size < sizeof parameter) {
        char value[4096];
        memcpy(value, text, size - 1);
        value[size - 1] = '\0';
        (void)cordon_multipart_parameter(value, "name", parameter); /* whatever it is, it fits */
    }
    cordon_buf_done(&whole);
    cordon_buf_done(&pieces);
    return 0;
}
