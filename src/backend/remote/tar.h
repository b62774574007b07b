/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Archives in the form of tar: written for a guest that unpacks them, and read from one that packed them. Reading is
 * pure and fuzzed: it takes what comes, piece by piece, holds no file in memory, and believes nothing.
 */
#ifndef CORDON_BACKEND_REMOTE_TAR_H
#define CORDON_BACKEND_REMOTE_TAR_H

#include <stdbool.h>
#include <stdint.h>

#include "base/buf.h"

/* Appends a regular file, with a name of any length. Sticky in to->failed. */
void cordon_tar_file(struct cordon_buf *to, const char *name, const char *data, size_t size, uint32_t mode);
/* Appends a directory. */
void cordon_tar_folder(struct cordon_buf *to, const char *name, uint32_t mode);
void cordon_tar_end(struct cordon_buf *to);

#define CORDON_TAR_NAME 4096

enum cordon_tar_type {
    CORDON_TAR_MORE,  /* all was taken in; more is needed */
    CORDON_TAR_ENTRY, /* name, kind, file_size */
    CORDON_TAR_DATA,  /* data, size: a piece of the file that the last ENTRY named */
    CORDON_TAR_END,
    CORDON_TAR_BROKEN /* no archive: nothing that comes after it counts */
};

struct cordon_tar_reader {
    char name[CORDON_TAR_NAME]; /* of the last entry */
    char kind;                  /* '0' a regular file, '5' a directory, '2' a symbolic link, … as tar has it */
    uint64_t file_size;
    const char *data; /* borrowed from what was given */
    size_t size;
    /* its own */
    char block[512];
    size_t block_size;
    char extra[CORDON_TAR_NAME + 512]; /* the data of a header about the next one */
    size_t extra_size;
    char extra_kind; /* 'L', 'x'; 0: none under way */
    char long_name[CORDON_TAR_NAME];
    uint64_t long_size;
    bool has_long_size, ended, broken;
    uint64_t left, padding; /* of the current member */
};

/* A reader is made of zeros. Takes from the front of data; *used is how much. */
enum cordon_tar_type cordon_tar_next(struct cordon_tar_reader *reader, const char *data, size_t size, size_t *used);

#endif
