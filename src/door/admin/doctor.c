/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What `cordon doctor` tells, over HTTP. The gateway has no privilege and hardly any file: it can't try what isolation
 * needs. So it asks the supervisor, by one byte and a pipe, and the supervisor runs the same probes in a process of its
 * own, which writes to that pipe. Nothing of the request goes there. Where no answer comes the host is told as not
 * visible, with the reason; what the daemon itself can see is told in any case.
 */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/fd.h"
#include "door/admin/admin.h"
#include "door/status.h"

#define ANSWER_MAX (256u << 10)
#define PATIENCE_US 60000000u
#define FRESH_US 3000000u /* who asks again within that gets the same answer */

static struct {
    pthread_mutex_t lock; /* held while the host is asked: one at a time */
    struct cordon_buf text;
    uint64_t at_us; /* 0: none yet */
} last = {.lock = PTHREAD_MUTEX_INITIALIZER, .text = CORDON_BUF_INIT(ANSWER_MAX)};

/* To the end of what the pipe gives. */
static int read_all(int fd, struct cordon_buf *to, struct cordon_error *err)
{
    uint64_t until_us = cordon_now_us() + PATIENCE_US;
    for (;;) {
        uint64_t now = cordon_now_us();
        struct pollfd one = {.fd = fd, .events = POLLIN};
        if (now >= until_us || poll(&one, 1, (int)((until_us - now) / 1000) + 1) == 0)
            return cordon_fail(err, -ETIMEDOUT, CORDON_ERROR_UNAVAILABLE,
                               "the supervisor's look at the host did not end within %u s", PATIENCE_US / 1000000u);
        char *room = cordon_buf_reserve(to, 4096);
        if (!room)
            return cordon_fail(err, -EMSGSIZE, CORDON_ERROR_INFRASTRUCTURE, "the supervisor told too much of the host");
        ssize_t n = read(fd, room, 4096);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return cordon_fail_errno(err, -errno, "reading what the supervisor tells of the host");
        if (n == 0)
            return 0;
        to->size += (size_t)n;
    }
}

static int ask(const struct cordon_doors *doors, struct cordon_buf *to, struct cordon_error *err)
{
    struct cordon_value object, probes;
    int ends[2];
    if (!doors->look_at_host)
        return cordon_fail(err, -EOPNOTSUPP, CORDON_ERROR_UNSUPPORTED, "there is no supervisor to ask");
    if (pipe2(ends, O_CLOEXEC) < 0)
        return cordon_fail_errno(err, -errno, "asking the supervisor");
    cordon_autoclose int from = ends[0];
    int r = doors->look_at_host(ends[1]);
    cordon_close(&ends[1]);
    if (r < 0)
        return cordon_fail_errno(err, r, "asking the supervisor");
    r = read_all(from, to, err);
    if (r == 0 && (!to->size || cordon_value_parse(to->data, to->size, &object, NULL) < 0 ||
                   object.kind != CORDON_VALUE_OBJECT || !cordon_admin_member(&object, "probes", &probes)))
        r = cordon_fail(err, -EPROTO, CORDON_ERROR_UNAVAILABLE,
                        "the supervisor could not look at the host: its log says why");
    return r;
}

/* With the lock held. */
static int look(const struct cordon_doors *doors, struct cordon_error *err)
{
    if (last.at_us && cordon_now_us() - last.at_us < FRESH_US)
        return 0;
    last.at_us = 0;
    cordon_buf_done(&last.text);
    last.text = CORDON_BUF_INIT(ANSWER_MAX);
    int r = ask(doors, &last.text, err);
    if (r == 0)
        last.at_us = cordon_now_us();
    return r;
}

static void write_host(struct cordon_json *json)
{
    static const char *const members[] = {"ok", "probes"};
    struct cordon_value object, value;
    if (cordon_value_parse(last.text.data, last.text.size, &object, NULL) < 0)
        return; /* it was read before */
    for (size_t i = 0; i < 2; i++) {
        cordon_json_key(json, members[i]);
        if (cordon_admin_member(&object, members[i], &value))
            cordon_json_raw(json, value.data, value.size);
        else
            cordon_json_null(json);
    }
}

static void write_not_visible(struct cordon_json *json, const struct cordon_error *why)
{
    cordon_json_key(json, "ok");
    cordon_json_null(json);
    cordon_json_key(json, "probes");
    cordon_json_null(json);
    cordon_json_key(json, "reason");
    cordon_json_text(json, why->message);
}

int cordon_admin_doctor_get(struct cordon_http_request *request, struct cordon_error *err)
{
    const struct cordon_doors *doors = request->context;
    struct cordon_buf body = CORDON_BUF_INIT(1u << 20);
    struct cordon_json json = {.buf = &body};
    struct cordon_error why = {0};
    cordon_json_object_begin(&json);
    pthread_mutex_lock(&last.lock);
    if (look(doors, &why) == 0)
        write_host(&json);
    else
        write_not_visible(&json, &why);
    pthread_mutex_unlock(&last.lock);
    cordon_json_key(&json, "daemon");
    (void)cordon_door_ready_write(doors, &json); /* it says itself whether it is ready */
    cordon_json_object_end(&json);
    return cordon_admin_reply(request, &body, err);
}
