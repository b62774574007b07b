/* SPDX-License-Identifier: Apache-2.0 */
/* Files that are part of the program: the agent, the interpreters' drivers and the zygote (see assets.py). */
#ifndef CORDON_WARDEN_ASSETS_H
#define CORDON_WARDEN_ASSETS_H

#include <stddef.h>
#include <stdint.h>

#define CORDON_ASSETS(X) X(agent) X(zygote_py) X(zygote_so) X(driver_py) X(driver_js)

#define CORDON_X(name)                                                                                                 \
    extern const char cordon_asset_##name[];                                                                           \
    extern const uint64_t cordon_asset_##name##_size;
CORDON_ASSETS(CORDON_X)
#undef CORDON_X

#define CORDON_ASSET_SIZE(name) ((size_t)cordon_asset_##name##_size)

#endif
