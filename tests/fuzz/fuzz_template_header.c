/* SPDX-License-Identifier: Apache-2.0 */
/* The header of a template's file: whatever passes has its texts ended and its size right. */
#include <stdlib.h>
#include <string.h>

#include "core/template_file.h"
#include "fuzz.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static struct cordon_template_header header;
    struct cordon_error err = {0};
    uint64_t file_bytes = 0;
    if (size < sizeof file_bytes)
        return 0;
    memcpy(&file_bytes, data, sizeof file_bytes);
    memset(&header, 0, sizeof header);
    size -= sizeof file_bytes;
    memcpy(&header, data + sizeof file_bytes, size < sizeof header ? size : sizeof header);
    int r = cordon_template_header_check(&header, file_bytes, &err);
    if (r < 0 ? !err.message[0] : header.payload_bytes + CORDON_TEMPLATE_PAYLOAD != file_bytes)
        abort();
    if (r == 0 && (strlen(header.recipe) >= sizeof header.recipe || strlen(header.base) >= sizeof header.base ||
                   strlen(header.from) >= sizeof header.from))
        abort();
    return 0;
}
