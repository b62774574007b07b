/* SPDX-License-Identifier: Apache-2.0 */
/* Private to core: what reading and checking a request share. */
#ifndef CORDON_CORE_REQUEST_H
#define CORDON_CORE_REQUEST_H

#include "core/run.h"

#define CORDON_ENV_MAX 100
#define CORDON_ENV_NAME_MAX 256
#define CORDON_ENV_VALUE_MAX 4096
#define CORDON_FILES_MAX 1024
#define CORDON_PATH_LENGTH_MAX 4096
#define CORDON_DOMAINS_MAX 100

/* "python" for any of its spellings; NULL: not a language of ours. */
const char *cordon_language_find(const char *name);

#endif
