/* SPDX-License-Identifier: Apache-2.0 */
/* TLS hellos: more bytes never change a decision that was made. */
#include <stdlib.h>
#include <string.h>

#include "egress/hello.h"
#include "fuzz.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char name[CORDON_EGRESS_NAME_SIZE], before[CORDON_EGRESS_NAME_SIZE];
    enum cordon_hello whole = cordon_hello_read(data, size, name);
    if (whole == CORDON_HELLO_NAMED && !*name)
        abort();
    for (size_t part = 1; part < size; part = part * 2 + 1) {
        enum cordon_hello early = cordon_hello_read(data, part, before);
        if (early != CORDON_HELLO_MORE && (early != whole || strcmp(name, before) != 0))
            abort();
    }
    return 0;
}
