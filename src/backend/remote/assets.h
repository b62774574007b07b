/* SPDX-License-Identifier: Apache-2.0 */
/* What is sent to guests elsewhere, embedded by src/warden/assets.py. */
#ifndef CORDON_BACKEND_REMOTE_ASSETS_H
#define CORDON_BACKEND_REMOTE_ASSETS_H

#include <stdint.h>

extern const char cordon_asset_call_py[], cordon_asset_call_js[], cordon_asset_call_sh[], cordon_asset_supervise_py[];
extern const uint64_t cordon_asset_call_py_size, cordon_asset_call_js_size, cordon_asset_call_sh_size,
    cordon_asset_supervise_py_size;

#endif
