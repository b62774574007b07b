/* SPDX-License-Identifier: Apache-2.0 */
/* Writing files into a guest while they come. */
#ifndef CORDON_E2B_UPLOAD_H
#define CORDON_E2B_UPLOAD_H

#include "door/e2b/envd.h"

#define CORDON_E2B_PATH_ROOM 4200u

/* The query of /files: path into the operation (pointing into path, where it stands as given) and the user; without a
 * path, operation->path is NULL. */
int cordon_e2b_files_query(const struct cordon_http_request *request, char path[CORDON_E2B_PATH_ROOM],
                           struct cordon_operation *operation, struct cordon_error *err);

#endif
