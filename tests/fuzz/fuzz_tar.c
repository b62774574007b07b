/* SPDX-License-Identifier: Apache-2.0 */
/* An archive that a guest elsewhere packed, cut into pieces at any place. */
#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "backend/remote/tar.h"
#include "fuzz.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct cordon_tar_reader *reader = calloc(1, sizeof *reader);
    size_t piece = size ? data[0] * 7u + 1 : 1;
    enum cordon_tar_type type = CORDON_TAR_MORE;
    for (size_t at = 1; reader && at < size && type != CORDON_TAR_BROKEN && type != CORDON_TAR_END;) {
        size_t used, part = size - at < piece ? size - at : piece;
        type = cordon_tar_next(reader, (const char *)data + at, part, &used);
        assert(used <= part && (used || type != CORDON_TAR_MORE));
        assert(type != CORDON_TAR_ENTRY || memchr(reader->name, '\0', sizeof reader->name));
        at += used;
    }
    free(reader);
    return 0;
}
