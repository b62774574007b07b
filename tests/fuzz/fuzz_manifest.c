/* SPDX-License-Identifier: Apache-2.0 */
#include <assert.h>
#include <stdint.h>
#include <string.h>

#include "fuzz.h"
#include "plugin/manifest.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct cordon_manifest manifest;
    char fault[160];
    if (cordon_manifest_parse((const char *)data, size, &manifest, fault) == 0)
        assert(*manifest.name && strlen(manifest.library) < sizeof manifest.library && manifest.abi);
    return 0;
}
