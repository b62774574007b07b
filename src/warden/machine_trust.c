/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What guests with network may trust besides their image's authorities (base/trust.h), on a daemon that has an
 * authority of its own: it lies behind the image's initramfs, as one more archive of the form that kernels read (cpio,
 * "newc"), and from there the agent takes it as what else came in the initramfs. A copy in memory, sealed: nothing of
 * it is a client's.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/sendfile.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/trust.h"
#include "warden/machine.h"

#define ALIGNMENT 4
#define MODE_FILE 0100444u
#define HEADER "070701%08x%08x%08x%08x%08x%08x%08x%08x%08x%08x%08x%08x%08x" /* cpio(5) */

static void pad(struct cordon_buf *archive)
{
    while (archive->size % ALIGNMENT)
        (void)cordon_buf_append(archive, "", 1); /* failures stick, here and below */
}

static void add(struct cordon_buf *archive, const char *name, const struct cordon_buf *data, unsigned mode)
{
    char header[128];
    size_t size = data ? data->size : 0;
    (void)snprintf(header, sizeof header, HEADER, 0u, mode, 0u, 0u, 1u, 0u, (unsigned)size, 0u, 0u, 0u, 0u,
                   (unsigned)strlen(name) + 1, 0u); /* fits */
    (void)cordon_buf_appends(archive, header);
    (void)cordon_buf_append(archive, name, strlen(name) + 1);
    pad(archive);
    if (size)
        (void)cordon_buf_append(archive, data->data, size);
    pad(archive);
}

/* Behind the whole of the image's initramfs, at an address that the kernel looks at. */
static int copy(int initrd, int to)
{
    struct stat st;
    off_t at = 0;
    if (fstat(initrd, &st) < 0)
        return -errno;
    while (at < st.st_size) {
        ssize_t n = sendfile(to, initrd, &at, (size_t)(st.st_size - at));
        if (n <= 0)
            return n < 0 ? -errno : -EIO;
    }
    off_t begin = (st.st_size + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
    return ftruncate(to, begin) < 0 || lseek(to, begin, SEEK_SET) < 0 ? -errno : 0;
}

int cordon_machine_add_trust(const struct cordon_warden_config *config, int initrd)
{
    struct cordon_buf archive = CORDON_BUF_INIT(config->authority.size + config->trust_bundle.size + 4096);
    cordon_autoclose int to = memfd_create("cordon-vm-initrd", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    int r = to < 0 ? -errno : copy(initrd, to);
    add(&archive, "cordon/" CORDON_TRUST_AUTHORITY, &config->authority, MODE_FILE);
    add(&archive, "cordon/" CORDON_TRUST_BUNDLE, &config->trust_bundle, MODE_FILE);
    add(&archive, "TRAILER!!!", NULL, 0);
    if (r == 0)
        r = archive.failed ? -ENOMEM : cordon_write_full(to, archive.data, archive.size);
    cordon_buf_done(&archive);
    if (r == 0 && fcntl(to, F_ADD_SEALS, F_SEAL_WRITE | F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) < 0)
        r = -errno;
    return r < 0 ? r : CORDON_TAKE_FD(to);
}
