/* SPDX-License-Identifier: Apache-2.0 */
#include "core/template_file.h"

#include <errno.h>
#include <fcntl.h>
#include <openssl/evp.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/fd.h"

#define PIECE (256u << 10)

_Static_assert(sizeof(struct cordon_template_header) <= CORDON_TEMPLATE_PAYLOAD, "the archive begins behind it");

static bool ends(const char *text, size_t size)
{
    return memchr(text, '\0', size) != NULL;
}

int cordon_template_header_check(const struct cordon_template_header *header, uint64_t file_bytes,
                                 struct cordon_error *err)
{
    if (memcmp(header->magic, CORDON_TEMPLATE_MAGIC, sizeof CORDON_TEMPLATE_MAGIC) != 0)
        return cordon_fail(err, -EBADMSG, CORDON_ERROR_UNAVAILABLE, "it is no template's file");
    if (header->version != CORDON_TEMPLATE_VERSION)
        return cordon_fail(err, -EBADMSG, CORDON_ERROR_UNAVAILABLE,
                           "it has version %u, this cordon reads version %u: make it again", header->version,
                           CORDON_TEMPLATE_VERSION);
    bool whole = header->kind == CORDON_TEMPLATE_LAYER || header->kind == CORDON_TEMPLATE_ROOTFS;
    whole = whole && ends(header->from, sizeof header->from) && ends(header->base, sizeof header->base) &&
            ends(header->recipe, sizeof header->recipe);
    if (!whole || file_bytes < CORDON_TEMPLATE_PAYLOAD || header->payload_bytes != file_bytes - CORDON_TEMPLATE_PAYLOAD)
        return cordon_fail(err, -EBADMSG, CORDON_ERROR_UNAVAILABLE,
                           "its file was cut or changed: make it again (cordon template create --replace)");
    return 0;
}

int cordon_template_file_header(int fd, struct cordon_template_header *ret, struct cordon_error *err)
{
    struct stat found;
    if (fstat(fd, &found) < 0)
        return cordon_fail_errno(err, -errno, "read the template's file");
    ssize_t n = pread(fd, ret, sizeof *ret, 0);
    if (n < 0)
        return cordon_fail_errno(err, -errno, "read the template's file");
    if (n < (ssize_t)sizeof *ret)
        return cordon_fail(err, -EBADMSG, CORDON_ERROR_UNAVAILABLE, "it is no template's file");
    return cordon_template_header_check(ret, (uint64_t)found.st_size, err);
}

/* Of the header's page with its digest zero, and of the rest as it stands in the file. */
static int digest_file(int fd, const struct cordon_template_header *header, unsigned char ret[CORDON_TEMPLATE_DIGEST])
{
    static const struct cordon_template_header none;
    struct cordon_template_header zeroed = *header;
    EVP_MD_CTX *context = EVP_MD_CTX_new();
    cordon_autofree char *piece = malloc(PIECE);
    int r = context && piece ? 0 : -ENOMEM;
    memcpy(zeroed.digest, none.digest, sizeof zeroed.digest);
    if (r == 0 &&
        (EVP_DigestInit_ex(context, EVP_sha256(), NULL) != 1 || EVP_DigestUpdate(context, &zeroed, sizeof zeroed) != 1))
        r = -EIO;
    for (off_t at = sizeof zeroed; r == 0;) {
        ssize_t n = pread(fd, piece, PIECE, at);
        if (n <= 0) {
            r = n < 0 ? -errno : 0;
            break;
        }
        if (EVP_DigestUpdate(context, piece, (size_t)n) != 1)
            r = -EIO;
        at += n;
    }
    if (r == 0 && EVP_DigestFinal_ex(context, ret, NULL) != 1)
        r = -EIO;
    EVP_MD_CTX_free(context);
    return r;
}

int cordon_template_file_verify(int fd, const struct cordon_template_header *header, struct cordon_error *err)
{
    unsigned char found[CORDON_TEMPLATE_DIGEST];
    int r = digest_file(fd, header, found);
    if (r < 0)
        return cordon_fail_errno(err, r, "read the template's file");
#ifndef CORDON_WEAKEN_TEMPLATE_DIGEST
    if (memcmp(found, header->digest, sizeof found) != 0)
        return cordon_fail(err, -EBADMSG, CORDON_ERROR_UNAVAILABLE,
                           "its file was changed: the digest is not what it was made with; make it again (cordon "
                           "template create --replace)");
#endif
    return 0;
}

int cordon_template_file_seal(int fd, struct cordon_template_header *header, struct cordon_error *err)
{
    int r = digest_file(fd, header, header->digest);
    if (r == 0 && pwrite(fd, header, sizeof *header, 0) != (ssize_t)sizeof *header)
        r = errno ? -errno : -EIO;
    if (r == 0 && fsync(fd) < 0)
        r = -errno;
    return r < 0 ? cordon_fail_errno(err, r, "write the template's file") : 0;
}

int cordon_template_header_key(struct cordon_template_header *header, struct cordon_error *err)
{
    struct {
        uint32_t kind;
        char from[sizeof header->from], base[sizeof header->base], recipe[sizeof header->recipe];
    } of;
    memset(&of, 0, sizeof of);
    of.kind = header->kind;
    memcpy(of.from, header->from, sizeof of.from);
    memcpy(of.base, header->base, sizeof of.base);
    memcpy(of.recipe, header->recipe, sizeof of.recipe);
    if (EVP_Digest(&of, sizeof of, header->key, NULL, EVP_sha256(), NULL) != 1)
        return cordon_fail_errno(err, -EIO, "hash the template's recipe");
    return 0;
}

void cordon_template_hex(const unsigned char digest[CORDON_TEMPLATE_DIGEST], char text[65])
{
    for (size_t i = 0; i < CORDON_TEMPLATE_DIGEST; i++)
        (void)snprintf(text + 2 * i, 3, "%02x", digest[i]); /* two digits and an end */
}

/* The gateway may have been taken over, and the state folder is its own: what it could have put here counts for
 * nothing. */
static int check_owner(int fd, mode_t type, const char *what, struct cordon_error *err)
{
    struct stat found;
    if (fstat(fd, &found) < 0)
        return cordon_fail_errno(err, -errno, "look at %s", what);
#ifdef CORDON_WEAKEN_TEMPLATE_OWNER
    return 0;
#endif
    bool ours = found.st_uid == 0 || found.st_uid == geteuid();
    if ((found.st_mode & S_IFMT) == type && ours && !(found.st_mode & 022))
        return 0;
    return cordon_fail(err, -EPERM, CORDON_ERROR_UNAVAILABLE,
                       "%s is not trusted: uid %u with mode %04o could have been put there by others than root or the "
                       "daemon's user",
                       what, (unsigned)found.st_uid, (unsigned)(found.st_mode & 07777));
}

int cordon_template_folder_open(int at, const char *path, struct cordon_error *err)
{
    cordon_autoclose int fd = openat(at, path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0)
        return cordon_fail_errno(err, -errno, "open the folder of templates");
    int r = check_owner(fd, S_IFDIR, "the folder of templates", err);
    return r < 0 ? r : CORDON_TAKE_FD(fd);
}

int cordon_template_file_open(int folder, const char *name, struct cordon_error *err)
{
    char file[CORDON_TEMPLATE_NAME + sizeof CORDON_TEMPLATE_ENDING];
    (void)snprintf(file, sizeof file, "%s" CORDON_TEMPLATE_ENDING, name); /* fits: it is a valid one */
    cordon_autoclose int fd = openat(folder, file, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    if (fd < 0)
        return cordon_fail_errno(err, -errno, "open the template's file");
    int r = check_owner(fd, S_IFREG, "the template's file", err);
    return r < 0 ? r : CORDON_TAKE_FD(fd);
}
