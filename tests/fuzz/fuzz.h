/* SPDX-License-Identifier: Apache-2.0 */
/* What each fuzz_NAME.c defines: libFuzzer's entry. Inputs are at most 64 KiB; the return value is always 0. */
#ifndef CORDON_TESTS_FUZZ_H
#define CORDON_TESTS_FUZZ_H

#include <stddef.h>
#include <stdint.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#endif
