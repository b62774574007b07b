/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the agent is told, in order: the files, EXEC, then stdin within its window. One frame is on its way at a time;
 * small frames of other kinds (credit, kill, collect) go between. Data goes out from where it lies in the request.
 */
#include <errno.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/uio.h>

#include "guest/internal.h"

enum phase { PHASE_FILE_OPEN, PHASE_FILE_DATA, PHASE_EXEC, PHASE_STDIN, PHASE_DONE };

#define CONTROL_MAX (1u << 20)

void cordon_guest_sender_init(struct cordon_guest_sender *sender, const struct cordon_request *request)
{
    *sender = (struct cordon_guest_sender){.request = request, .stdin_window = CORDON_STDIN_WINDOW};
    sender->control.max = CONTROL_MAX;
    sender->fields.max = CORDON_FRAME_MAX;
}

void cordon_guest_sender_done(struct cordon_guest_sender *sender)
{
    cordon_buf_done(&sender->control);
    cordon_buf_wipe(&sender->fields); /* code, arguments and environment */
}

static void start_frame(struct cordon_guest_sender *sender, uint8_t type, uint16_t exec, const char *body, size_t size)
{
    cordon_frame_header(sender->head, type, exec, (uint32_t)size);
    sender->body = body;
    sender->body_size = size;
    sender->at = 0;
    sender->busy = true;
}

static int start_file(struct cordon_guest_sender *sender)
{
    const struct cordon_file *file = &sender->request->files[sender->file];
    sender->fields.size = 0;
    int r = cordon_field_put(&sender->fields, CORDON_FIELD_PATH, file->path, (uint32_t)strlen(file->path));
    if (r == 0)
        r = cordon_field_put_u32(&sender->fields, CORDON_FIELD_MODE, file->mode ? file->mode : 0644);
    if (r < 0)
        return r;
    start_frame(sender, CORDON_FRAME_FILE_OPEN, 0, sender->fields.data, sender->fields.size);
    sender->offset = 0;
    sender->phase = PHASE_FILE_DATA;
    return 0;
}

static void start_file_data(struct cordon_guest_sender *sender)
{
    const struct cordon_bytes *content = &sender->request->files[sender->file].content;
    size_t left = content->size - sender->offset;
    if (!left) {
        start_frame(sender, CORDON_FRAME_FILE_CLOSE, 0, NULL, 0);
        sender->file++;
        sender->phase = sender->file < sender->request->file_count ? PHASE_FILE_OPEN : PHASE_EXEC;
        return;
    }
    size_t n = left < CORDON_FRAME_DATA_MAX ? left : CORDON_FRAME_DATA_MAX;
    start_frame(sender, CORDON_FRAME_FILE_DATA, 0, content->data + sender->offset, n);
    sender->offset += n;
}

static void put_limits(struct cordon_buf *to, const struct cordon_limits *limits)
{
    const struct cordon_exec_limits exec = {
        .disk_bytes = limits->disk_bytes,
        .disk_inodes = limits->disk_inodes,
        .memory_bytes = limits->memory_bytes,
        .stdout_bytes = limits->stdout_bytes,
        .stderr_bytes = limits->stderr_bytes,
        .output_kill_bytes = limits->output_kill_bytes,
        .artifact_bytes = limits->artifact_bytes,
        .artifacts_bytes = limits->artifacts_bytes,
        .artifacts = limits->artifacts,
        .open_files = limits->open_files,
        .cpu_percent = limits->cpu_percent,
    };
    (void)cordon_exec_limits_put(to, &exec); /* failures stick in to->failed */
}

static int start_exec(struct cordon_guest_sender *sender)
{
    const struct cordon_request *request = sender->request;
    struct cordon_buf *to = &sender->fields;
    uint32_t flags = (request->stdin_data.size ? CORDON_EXEC_STDIN : 0) |
                     (request->artifacts ? CORDON_EXEC_ARTIFACTS : 0) |
                     (request->artifacts_flat ? CORDON_EXEC_FLAT : 0);
    const char *suffixes = request->artifact_suffixes;
    to->size = 0;
    /* Failures stick in to->failed. */
    (void)cordon_field_put(to, CORDON_FIELD_LANGUAGE, request->language, (uint32_t)strlen(request->language));
    put_limits(to, &request->limits);
    (void)cordon_field_put_u32(to, CORDON_FIELD_FLAGS, flags);
    if (request->limits.timeout_ms)
        (void)cordon_field_put_u64(to, CORDON_FIELD_TIMEOUT, request->limits.timeout_ms * 1000);
    if (suffixes)
        (void)cordon_field_put(to, CORDON_FIELD_SUFFIXES, suffixes, (uint32_t)strlen(suffixes));
    for (size_t i = 0; i < request->env_count; i++)
        (void)cordon_field_put(to, CORDON_FIELD_ENV, request->env[i], (uint32_t)strlen(request->env[i]));
    if (request->arguments.data)
        (void)cordon_field_put(to, CORDON_FIELD_ARGUMENTS, request->arguments.data, (uint32_t)request->arguments.size);
    (void)cordon_field_put(to, CORDON_FIELD_CODE, request->code.data, (uint32_t)request->code.size);
    if (to->failed)
        return -EMSGSIZE;
    start_frame(sender, CORDON_FRAME_EXEC, CORDON_GUEST_EXEC, to->data, to->size);
    sender->offset = 0;
    sender->phase = request->stdin_data.size ? PHASE_STDIN : PHASE_DONE;
    return 0;
}

static void start_stdin(struct cordon_guest_sender *sender)
{
    const struct cordon_bytes *data = &sender->request->stdin_data;
    size_t n = data->size - sender->offset;
    if (!n) {
        start_frame(sender, CORDON_FRAME_STDIN_EOF, CORDON_GUEST_EXEC, NULL, 0);
        sender->phase = PHASE_DONE;
        return;
    }
    if (n > CORDON_FRAME_DATA_MAX)
        n = CORDON_FRAME_DATA_MAX;
    if (n > sender->stdin_window)
        n = (size_t)sender->stdin_window;
    if (!n)
        return;
    start_frame(sender, CORDON_FRAME_STDIN, CORDON_GUEST_EXEC, data->data + sender->offset, n);
    sender->offset += n;
    sender->stdin_window -= n;
}

static int start_next(struct cordon_guest_sender *sender)
{
    if (sender->phase == PHASE_FILE_OPEN && !sender->request->file_count)
        sender->phase = PHASE_EXEC;
    switch ((enum phase)sender->phase) {
    case PHASE_FILE_OPEN:
        return start_file(sender);
    case PHASE_FILE_DATA:
        start_file_data(sender);
        return 0;
    case PHASE_EXEC:
        return start_exec(sender);
    case PHASE_STDIN:
        start_stdin(sender);
        return 0;
    case PHASE_DONE:
        break;
    }
    return 0;
}

static ssize_t send_some(int channel, struct iovec *iov, size_t count)
{
    struct msghdr msg = {.msg_iov = iov, .msg_iovlen = count};
    ssize_t n;
    do
        n = sendmsg(channel, &msg, MSG_DONTWAIT | MSG_NOSIGNAL);
    while (n < 0 && errno == EINTR);
    return n < 0 ? -errno : n;
}

/* 1: the current frame is out, 0: the socket is full. */
static int send_frame(struct cordon_guest_sender *sender, int channel)
{
    while (sender->at < sizeof sender->head + sender->body_size) {
        size_t head = sender->at < sizeof sender->head ? sizeof sender->head - sender->at : 0;
        size_t body = sender->at - (sizeof sender->head - head);
        struct iovec iov[2] = {
            {.iov_base = sender->head + (sizeof sender->head - head), .iov_len = head},
            {.iov_len = sender->body_size - body},
        };
        if (iov[1].iov_len)
            iov[1].iov_base = (void *)(uintptr_t)(sender->body + body);
        ssize_t n = send_some(channel, iov, iov[1].iov_len ? 2 : 1);
        if (n < 0)
            return n == -EAGAIN ? 0 : (int)n;
        sender->at += (size_t)n;
    }
    sender->busy = false;
    if ((uint8_t)*sender->head == CORDON_FRAME_EXEC) {
        sender->exec_sent = true;
        cordon_buf_wipe(&sender->fields);
    }
    return 1;
}

static int send_control(struct cordon_guest_sender *sender, int channel)
{
    while (sender->control.size) {
        struct iovec iov = {.iov_base = sender->control.data, .iov_len = sender->control.size};
        ssize_t n = send_some(channel, &iov, 1);
        if (n < 0)
            return n == -EAGAIN ? 0 : (int)n;
        cordon_buf_consume(&sender->control, (size_t)n);
    }
    return 1;
}

int cordon_guest_sender_send(struct cordon_guest_sender *sender, int channel)
{
    for (;;) {
        /* What is left of a control frame comes first: `busy` frames wait for it as it waits for them. */
        int r = sender->busy && sender->at ? send_frame(sender, channel) : 1;
        if (r == 1)
            r = send_control(sender, channel);
        if (r == 1 && sender->busy)
            r = send_frame(sender, channel);
        if (r != 1)
            return r;
        r = start_next(sender);
        if (r < 0 || !sender->busy)
            return r;
    }
}

bool cordon_guest_sender_waits(const struct cordon_guest_sender *sender)
{
    bool stdin_waits =
        sender->phase == PHASE_STDIN && (sender->stdin_window || sender->offset == sender->request->stdin_data.size);
    return sender->busy || sender->control.size || sender->phase < PHASE_STDIN || stdin_waits;
}

int cordon_guest_sender_credit(struct cordon_guest_sender *sender, int stream, uint32_t bytes)
{
    char payload[5] = {(char)(stream + 1)};
    for (int i = 0; i < 4; i++)
        payload[i + 1] = (char)(bytes >> (8 * i));
    return cordon_frame_put(&sender->control, CORDON_FRAME_CREDIT, CORDON_GUEST_EXEC, payload, sizeof payload);
}

int cordon_guest_sender_kill(struct cordon_guest_sender *sender, uint32_t signal)
{
    char payload[4];
    for (int i = 0; i < 4; i++)
        payload[i] = (char)(signal >> (8 * i));
    sender->phase = PHASE_DONE; /* nothing that was still to come matters */
    return cordon_frame_put(&sender->control, CORDON_FRAME_KILL, CORDON_GUEST_EXEC, payload, sizeof payload);
}

int cordon_guest_sender_collect(struct cordon_guest_sender *sender)
{
    struct cordon_buf fields = CORDON_BUF_INIT(1024);
    put_limits(&fields, &sender->request->limits);
    sender->phase = PHASE_DONE;
    int r = fields.failed ? -ENOMEM
                          : cordon_frame_put(&sender->control, CORDON_FRAME_COLLECT, CORDON_GUEST_EXEC, fields.data,
                                             (uint32_t)fields.size);
    cordon_buf_done(&fields);
    return r;
}
