/* SPDX-License-Identifier: Apache-2.0 */
/* A sealed text is: nonce (12 random bytes), ciphertext, tag (16). */
#include "store/secret.h"

#include <errno.h>
#include <fcntl.h>
#include <openssl/evp.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/fd.h"

#define FILE_NAME "secret.key"
#define NONCE_SIZE 12
#define TAG_SIZE 16

static int make_key(int folder, unsigned char key[CORDON_SECRET_KEY_SIZE], struct cordon_error *err)
{
    if (getrandom(key, CORDON_SECRET_KEY_SIZE, 0) != CORDON_SECRET_KEY_SIZE)
        return cordon_fail_errno(err, -EIO, "get random bytes for " FILE_NAME);
    /* Whole or not at all: half a key would lose every secret. */
    cordon_autoclose int fd = openat(folder, ".", O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
    char path[64];
    if (fd < 0)
        return cordon_fail_errno(err, -errno, "make " FILE_NAME " in the state folder");
    int r = cordon_write_full(fd, key, CORDON_SECRET_KEY_SIZE);
    if (r < 0 || fsync(fd) < 0)
        return cordon_fail_errno(err, r < 0 ? r : -errno, "write " FILE_NAME);
    (void)snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    if (linkat(fd, "", folder, FILE_NAME, AT_EMPTY_PATH) == 0 ||
        (errno == ENOENT && linkat(AT_FDCWD, path, folder, FILE_NAME, AT_SYMLINK_FOLLOW) == 0))
        return fsync(folder) < 0 ? cordon_fail_errno(err, -errno, "write the state folder") : 0;
    return errno == EEXIST ? -EEXIST : cordon_fail_errno(err, -errno, "name " FILE_NAME);
}

static int read_key(int folder, unsigned char key[CORDON_SECRET_KEY_SIZE], struct cordon_error *err)
{
    struct stat st;
    cordon_autoclose int fd = openat(folder, FILE_NAME, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    if (fd < 0 && errno == ENOENT)
        return -ENOENT;
    if (fd < 0 || fstat(fd, &st) < 0)
        return cordon_fail_errno(err, -errno, "open " FILE_NAME " of the state folder");
    if (!S_ISREG(st.st_mode) || st.st_size != CORDON_SECRET_KEY_SIZE || (st.st_mode & 077))
        return cordon_fail(err, -EBADMSG, CORDON_ERROR_INFRASTRUCTURE,
                           "STATE/" FILE_NAME " must be a file of 32 bytes that only its owner may read (mode 0600): "
                           "put back the one that belongs to this store");
    int r = cordon_read_full(fd, key, CORDON_SECRET_KEY_SIZE);
    return r < 0 ? cordon_fail_errno(err, r, "read " FILE_NAME) : 0;
}

int cordon_secret_key_load(int folder, bool make, struct cordon_secret_key *ret, struct cordon_error *err)
{
    ret->given = false;
    int r = read_key(folder, ret->bytes, err);
    if (r == -ENOENT && !make)
        return cordon_fail(err, r, CORDON_ERROR_INFRASTRUCTURE,
                           "STATE/" FILE_NAME " is missing, with which the stored secrets were sealed: put it back, or "
                           "give the key as " CORDON_SECRET_KEY_NAME);
    if (r == -ENOENT)
        r = make_key(folder, ret->bytes, err);
    return r == -EEXIST ? read_key(folder, ret->bytes, err) : r; /* another process was first */
}

static void free_cipher(EVP_CIPHER_CTX **cipher)
{
    EVP_CIPHER_CTX_free(*cipher);
}

int cordon_secret_seal(const struct cordon_secret_key *key, const char *name, const char *text, size_t size,
                       struct cordon_buf *to, struct cordon_error *err)
{
    __attribute__((cleanup(free_cipher))) EVP_CIPHER_CTX *cipher = EVP_CIPHER_CTX_new();
    unsigned char *out = (unsigned char *)cordon_buf_reserve(to, NONCE_SIZE + size + TAG_SIZE);
    int n;
    if (!cipher || !out)
        return cordon_fail_errno(err, -ENOMEM, "seal a secret");
    if (getrandom(out, NONCE_SIZE, 0) != NONCE_SIZE)
        return cordon_fail_errno(err, -EIO, "get random bytes to seal a secret");
    if (!EVP_EncryptInit_ex(cipher, EVP_aes_256_gcm(), NULL, key->bytes, out) ||
        !EVP_EncryptUpdate(cipher, NULL, &n, (const unsigned char *)name, (int)strlen(name)) ||
        !EVP_EncryptUpdate(cipher, out + NONCE_SIZE, &n, (const unsigned char *)text, (int)size) ||
        !EVP_EncryptFinal_ex(cipher, out + NONCE_SIZE + n, &n) ||
        !EVP_CIPHER_CTX_ctrl(cipher, EVP_CTRL_GCM_GET_TAG, TAG_SIZE, out + NONCE_SIZE + size))
        return cordon_fail(err, -EIO, CORDON_ERROR_INFRASTRUCTURE, "seal a secret: libcrypto refused");
    to->size += NONCE_SIZE + size + TAG_SIZE;
    return 0;
}

/* Another key, or other bytes: the tag is wrong for both. */
static int fail_to_open(const struct cordon_secret_key *key, const char *name, struct cordon_error *err)
{
    return cordon_fail(
        err, -EBADMSG, CORDON_ERROR_INFRASTRUCTURE,
        "the stored secret of %.80s does not open with %s: it was sealed with another key; give that one "
        "(%s)",
        name, key->given ? CORDON_SECRET_KEY_NAME : "STATE/" FILE_NAME,
        key->given ? "where " CORDON_SECRET_KEY_NAME " was not set before, it is in STATE/" FILE_NAME
                   : "put back that file, or set " CORDON_SECRET_KEY_NAME " as it was");
}

int cordon_secret_open(const struct cordon_secret_key *key, const char *name, const void *sealed, size_t size,
                       struct cordon_buf *to, struct cordon_error *err)
{
    __attribute__((cleanup(free_cipher))) EVP_CIPHER_CTX *cipher = EVP_CIPHER_CTX_new();
    const unsigned char *in = sealed;
    unsigned char tag[TAG_SIZE];
    int n;
    if (size < NONCE_SIZE + TAG_SIZE)
        return cordon_fail(err, -EBADMSG, CORDON_ERROR_INFRASTRUCTURE, "the stored secret of %.80s is cut off", name);
    size_t text_size = size - NONCE_SIZE - TAG_SIZE;
    unsigned char *out = (unsigned char *)cordon_buf_reserve(to, text_size + 1);
    if (!cipher || !out)
        return cordon_fail_errno(err, -ENOMEM, "open a secret");
    memcpy(tag, in + size - TAG_SIZE, TAG_SIZE);
    if (!EVP_DecryptInit_ex(cipher, EVP_aes_256_gcm(), NULL, key->bytes, in) ||
        !EVP_DecryptUpdate(cipher, NULL, &n, (const unsigned char *)name, (int)strlen(name)) ||
        !EVP_DecryptUpdate(cipher, out, &n, in + NONCE_SIZE, (int)text_size) ||
        !EVP_CIPHER_CTX_ctrl(cipher, EVP_CTRL_GCM_SET_TAG, TAG_SIZE, tag) ||
        EVP_DecryptFinal_ex(cipher, out + n, &n) <= 0)
        return fail_to_open(key, name, err);
    to->size += text_size;
    to->data[to->size] = '\0';
    return 0;
}
