/* SPDX-License-Identifier: Apache-2.0 */
/* What is held here of files until they are sent whole: one budget for all streams of all guests elsewhere. */
#include <errno.h>
#include <stdatomic.h>

#include "backend/remote/remote.h"

static atomic_size_t all;

int cordon_remote_hold(size_t *held, size_t size, struct cordon_error *err)
{
    int64_t most = cordon_remote_number(CORDON_SET_REMOTE_UPLOADS_MB);
    size_t limit = (size_t)most << 20, before = atomic_load(&all);
    do {
        if (size > limit || before > limit - size)
            return cordon_fail(
                err, -EAGAIN, CORDON_ERROR_BUSY,
                "files on their way to guests elsewhere hold %zu bytes here, and %zu more bytes would be "
                "beyond %lld MiB (CORDON_REMOTE_UPLOADS_MB): try again when others have been sent",
                before, size, (long long)most);
    } while (!atomic_compare_exchange_weak(&all, &before, before + size));
    *held += size;
    return 0;
}

void cordon_remote_let_go(size_t *held)
{
    (void)atomic_fetch_sub(&all, *held); /* what it was is of no interest */
    *held = 0;
}

int cordon_remote_upload_add(struct cordon_buf *buf, size_t *held, const void *data, size_t size,
                             struct cordon_error *err)
{
    if (size > buf->max || buf->size > buf->max - size)
        return cordon_fail(err, -EFBIG, CORDON_ERROR_TOO_LARGE, "the file is larger than the %zu bytes that may come",
                           buf->max);
    int r = cordon_remote_hold(held, size, err);
    if (r == 0 && (r = cordon_buf_append(buf, data, size)) < 0)
        (void)cordon_fail_errno(err, r, "holding a file"); /* fills it; the stream lets go of what it held */
    return r;
}
