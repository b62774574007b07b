/* SPDX-License-Identifier: Apache-2.0 */
/* CORDON_SANITIZED: compiled with the address sanitizer, by gcc or clang. */
#ifndef CORDON_BASE_SANITIZE_H
#define CORDON_BASE_SANITIZE_H

#ifdef __has_feature
#if __has_feature(address_sanitizer)
#define CORDON_SANITIZED 1
#endif
#endif
#ifdef __SANITIZE_ADDRESS__
#define CORDON_SANITIZED 1
#endif

#endif
