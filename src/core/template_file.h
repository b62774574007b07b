/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A made template is one file, STATE/templates/NAME.template: a header of fixed size, then a tar archive. It belongs to
 * who runs the daemon; the gateway may read it and not write it. Its digest covers all of it but the digest itself, so
 * one file that is published by one rename is all that there is: no table beside it can disagree with it.
 *
 * The archive is what a guest made or an operator brought, so only a jailed process reads it
 * (warden/template_unpack.c).
 */
#ifndef CORDON_CORE_TEMPLATE_FILE_H
#define CORDON_CORE_TEMPLATE_FILE_H

#include <stdint.h>

#include "base/error.h"
#include "core/template.h"

#define CORDON_TEMPLATES_FOLDER "/templates" /* in the state folder */
#define CORDON_TEMPLATE_ENDING ".template"
#define CORDON_TEMPLATE_PAYLOAD 16384 /* where the archive begins */
#define CORDON_TEMPLATE_DIGEST 32
#define CORDON_TEMPLATE_BASE 128
#define CORDON_TEMPLATE_RECIPE 8192

enum cordon_template_kind {
    CORDON_TEMPLATE_LAYER = 1, /* packages, laid over the host's /usr/local */
    CORDON_TEMPLATE_ROOTFS     /* a whole file tree */
};

struct cordon_template_header {
    char magic[8];
    uint32_t version;
    uint32_t kind; /* enum cordon_template_kind */
    uint64_t payload_bytes;
    int64_t created_s;                            /* Unix seconds */
    unsigned char digest[CORDON_TEMPLATE_DIGEST]; /* SHA-256 of the file with this field zero */
    unsigned char key[CORDON_TEMPLATE_DIGEST];    /* SHA-256 of what it was made from: kind, base, recipe */
    char from[16];                                /* the language whose default it is made from; "" for a file tree */
    char base[CORDON_TEMPLATE_BASE];     /* what it needs of the host, see isolate/base.h; "" for a file tree */
    char recipe[CORDON_TEMPLATE_RECIPE]; /* lines "pip NAME" and "npm NAME", or "import FILE" */
};

#define CORDON_TEMPLATE_MAGIC "CORDONT"
#define CORDON_TEMPLATE_VERSION 1u

/* Is this, of a file of file_bytes bytes, a header that this version reads? Pure. */
int cordon_template_header_check(const struct cordon_template_header *header, uint64_t file_bytes,
                                 struct cordon_error *err);
/* Reads and checks the header. -EBADMSG when it is none. */
int cordon_template_file_header(int fd, struct cordon_template_header *ret, struct cordon_error *err);
/* Reads the whole file and compares its digest: -EBADMSG with a sentence when a byte of it was changed. */
int cordon_template_file_verify(int fd, const struct cordon_template_header *header, struct cordon_error *err);
/* Fills header->digest for the file whose archive is in place, and writes the header. */
int cordon_template_file_seal(int fd, struct cordon_template_header *header, struct cordon_error *err);
/* header->key from kind, base and recipe. */
int cordon_template_header_key(struct cordon_template_header *header, struct cordon_error *err);
/* 64 hex digits. */
void cordon_template_hex(const unsigned char digest[CORDON_TEMPLATE_DIGEST], char text[65]);

/* Opens the folder of an open state folder (or by path with AT_FDCWD): -ENOENT when there is none; -EPERM when others
 * than we, or than root, could have written to it. */
int cordon_template_folder_open(int at, const char *path, struct cordon_error *err);
/* Opens NAME's file in it, in the same way. The name must be a valid one. */
int cordon_template_file_open(int folder, const char *name, struct cordon_error *err);

#endif
