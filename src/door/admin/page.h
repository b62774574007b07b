/* SPDX-License-Identifier: Apache-2.0 */
/* The files of web/, as the build put them into the program (tools/embed). */
#ifndef CORDON_DOOR_ADMIN_PAGE_H
#define CORDON_DOOR_ADMIN_PAGE_H

#include <stddef.h>

struct cordon_page_file {
    const char *name, *type; /* "app.js", "text/javascript; charset=utf-8" */
    const char *etag;        /* in quotes */
    const unsigned char *data, *gzip;
    size_t size, gzip_size;
};

extern const struct cordon_page_file cordon_page_files[]; /* ends with a name of NULL; the first is the page itself */

#endif
