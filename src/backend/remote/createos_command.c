/* SPDX-License-Identifier: Apache-2.0 */
/* Commands of ours in a sandbox of CreateOS, and what their words for failures mean. */
#include <errno.h>
#include <string.h>

#include "backend/remote/createos_guest.h"
#include "base/clock.h"

#define SAID 512

int cordon_createos_command_open(struct cordon_guest_handle *guest, struct cordon_createos_exec *exec,
                                 const char *command, uint64_t deadline_us, int cancel_fd, struct cordon_error *err)
{
    unsigned status;
    struct cordon_error own = {0};
    int r = cordon_createos_exec_open(exec, guest->id, command, deadline_us, cancel_fd, &status, &own);
    if (r < 0 && cordon_createos_guest_woke(guest, status)) /* it was refused, so nothing ran */
        r = cordon_createos_exec_open(exec, guest->id, command, deadline_us, cancel_fd, &status, &own);
    if (r < 0 && (status == 404 || cordon_remote_kept_condition(&guest->kept) == CORDON_GUEST_IS_GONE))
        return cordon_fail(err, -ENOENT, CORDON_ERROR_GONE, "CreateOS: the sandbox is no more");
    if (r < 0 && err)
        *err = own;
    return r;
}

bool cordon_createos_words(const char *said, struct cordon_error *err)
{
    static const struct {
        const char *words;
        int number;
        enum cordon_error_kind kind;
    } rows[] = {{"No such file or directory", -ENOENT, CORDON_ERROR_NOT_FOUND},
                {"No such process", -ESRCH, CORDON_ERROR_NOT_FOUND},
                {"File exists", -EEXIST, CORDON_ERROR_CONFLICT},
                {"Directory not empty", -ENOTEMPTY, CORDON_ERROR_CONFLICT},
                {"Permission denied", -EACCES, CORDON_ERROR_FORBIDDEN},
                {"Operation not permitted", -EPERM, CORDON_ERROR_FORBIDDEN},
                {"Read-only file system", -EROFS, CORDON_ERROR_FORBIDDEN},
                {"No space left on device", -ENOSPC, CORDON_ERROR_TOO_LARGE},
                {"Disk quota exceeded", -EDQUOT, CORDON_ERROR_TOO_LARGE},
                {"Not a directory", -ENOTDIR, CORDON_ERROR_INVALID},
                {"Is a directory", -EISDIR, CORDON_ERROR_INVALID},
                {"Too many levels of symbolic links", -ELOOP, CORDON_ERROR_INVALID}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        if (!strstr(said, rows[i].words))
            continue;
        err->code = rows[i].number;
        err->kind = rows[i].kind;
        return true;
    }
    return false;
}

static int judge(const char *said, struct cordon_error *err)
{
    struct cordon_error own = {0};
    (void)cordon_fail(&own, -EIO, CORDON_ERROR_INVALID, "CreateOS: the sandbox's own tools: %.400s", said);
    (void)cordon_createos_words(said, &own); /* else it stays so */
    if (err)
        *err = own;
    return own.code;
}

/* Keeps as much of a line of stderr as an error shows. */
static void hear(char said[SAID], const struct cordon_bytes *data)
{
    size_t at = strlen(said);
    for (size_t i = 0; i < data->size && at < SAID - 1; i++)
        said[at++] = data->data[i] == '\n' ? ' ' : data->data[i] ? data->data[i] : '?';
    said[at] = '\0';
}

int cordon_createos_command(struct cordon_guest_handle *guest, const struct cordon_buf *command, int cancel_fd,
                            struct cordon_buf *out, struct cordon_error *err)
{
    char said[SAID] = "";
    struct cordon_createos_exec exec = {0};
    struct cordon_remote_output output = {0};
    uint64_t until = cordon_now_us() + CORDON_CREATEOS_CALL_US;
    if (command->failed)
        return cordon_fail_errno(err, -ENOMEM, "CreateOS: a command");
    int r = cordon_createos_command_open(guest, &exec, command->data, until, cancel_fd, err);
    while (r == 0 && (r = cordon_createos_exec_next(&exec, until, &output, err)) > 0 &&
           output.type != CORDON_REMOTE_EXIT) {
        r = 0;
        if (output.type == CORDON_REMOTE_STDERR)
            hear(said, &output.data);
        else if (cordon_buf_append(out, output.data.data, output.data.size) < 0)
            r = cordon_fail(err, -E2BIG, CORDON_ERROR_TOO_LARGE, "CreateOS: the sandbox told too much");
    }
    if (r == 0)
        r = cordon_fail(err, -EPIPE, CORDON_ERROR_INFRASTRUCTURE, "CreateOS: a command ended without its status");
    if (r > 0)
        r = output.exit_code ? judge(said, err) : 0;
    cordon_createos_exec_close(&exec);
    return r;
}
