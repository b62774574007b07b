/* SPDX-License-Identifier: Apache-2.0 */
#include "fake_warden.h"

#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>

#include "base/fd.h"

const struct cordon_guest_backend backend = {.name = "local", .isolation = CORDON_ISOLATION_NAMESPACE};

struct cordon_request request_of(const char *code)
{
    return (struct cordon_request){
        .struct_size = sizeof(struct cordon_request),
        .language = "python",
        .code = {code, strlen(code)},
        .limits = {.timeout_ms = 60000,
                   .memory_bytes = 256u << 20,
                   .stdout_bytes = 1u << 20,
                   .stderr_bytes = 1u << 20,
                   .artifact_bytes = 1u << 20,
                   .artifacts_bytes = 4u << 20,
                   .artifacts = 16,
                   .pids = 64,
                   .open_files = 256,
                   .cpu_percent = 100},
        .cancel_fd = -1,
    };
}

/* --- the warden --- */

int text_file(const char *text)
{
    int fd = memfd_create("stat", MFD_CLOEXEC);
    assert_true(fd >= 0);
    assert_int_equal(cordon_write_full(fd, text, strlen(text)), 0);
    return fd;
}

void *fake_warden_serve_one(void *data)
{
    struct fake_warden *fake = data;
    struct cordon_warden_grant grant = {.version = CORDON_WARDEN_VERSION, .status = fake->status, .warm = 1};
    size_t nfds = 1, count = 0;
    int fds[4];
    if (cordon_recv_fds(fake->main[1], &fake->asked, sizeof fake->asked, &fake->lease, &nfds, 0) != sizeof fake->asked)
        return NULL;
    if (fake->why)
        (void)snprintf(grant.why, sizeof grant.why, "%s", fake->why);
    if (fake->status == 0) {
        fds[count++] = fake->channel;
        grant.fds = CORDON_GRANT_CHANNEL;
    }
    for (int i = 0; fake->status == 0 && i < 3; i++) {
        if (fake->files[i] < 0)
            continue;
        grant.fds |= (uint32_t)CORDON_GRANT_MEMORY_PEAK << i;
        fds[count++] = fake->files[i];
    }
    (void)cordon_send_fds(fake->lease, &grant, sizeof grant, fds, count, 0);
    return NULL;
}

void fake_warden_connect(struct fake_warden *fake)
{
    const struct cordon_warden_hello hello = {
        .version = CORDON_WARDEN_VERSION, .languages = 31, .start_ms = fake->start_ms ? fake->start_ms : 10000};
    assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, fake->main), 0);
    assert_int_equal(cordon_send_fds(fake->main[1], &hello, sizeof hello, NULL, 0, 0), sizeof hello);
    assert_int_equal(cordon_warden_set(fake->main[0], NULL), 0);
}

void fake_warden_start(struct fake_warden *fake, int channel)
{
    *fake = (struct fake_warden){.channel = channel, .lease = -1, .files = {-1, -1, -1}};
    fake_warden_connect(fake);
}

void fake_warden_serve(struct fake_warden *fake)
{
    assert_int_equal(pthread_create(&fake->thread, NULL, fake_warden_serve_one, fake), 0);
}

void fake_warden_stop(struct fake_warden *fake)
{
    (void)pthread_join(fake->thread, NULL);
    cordon_close(&fake->main[1]);
    cordon_close(&fake->lease);
    for (int i = 0; i < 3; i++)
        cordon_close(&fake->files[i]);
}

/* --- what a run gives --- */

static void see(struct seen *seen, const struct cordon_event *event)
{
    if (event->type == CORDON_EVENT_STARTED)
        seen->started++;
    if (event->type == CORDON_EVENT_STDOUT || event->type == CORDON_EVENT_STDERR)
        (void)cordon_buf_append(&seen->out[event->type == CORDON_EVENT_STDERR], event->data.data, event->data.size);
    if (event->type == CORDON_EVENT_RESULT)
        (void)cordon_buf_append(&seen->result, event->data.data, event->data.size);
    if (event->type == CORDON_EVENT_ARTIFACT)
        (void)cordon_buf_appendf(&seen->files, "%s=%.*s;", event->name, (int)event->data.size,
                                 event->data.size ? event->data.data : "");
    if (event->type == CORDON_EVENT_DROPPED)
        (void)cordon_buf_appendf(&seen->files, "%s!%s;", event->name, event->reason);
    if (event->type == CORDON_EVENT_OUTCOME) {
        seen->outcome = *event->outcome;
        seen->outcomes++;
    }
}

void run_all(struct cordon_run *run, struct seen *seen)
{
    struct cordon_event event;
    while (cordon_guest_run_next(run, &event) == 1)
        see(seen, &event);
    assert_int_equal(seen->outcomes, 1);
    assert_int_equal(cordon_guest_run_next(run, &event), 0); /* stays at its end */
}

void seen_init(struct seen *seen)
{
    *seen = (struct seen){.outcomes = 0};
    seen->out[0].max = seen->out[1].max = seen->result.max = seen->files.max = 64u << 20;
    (void)cordon_buf_append(&seen->files, "", 0);
    (void)cordon_buf_append(&seen->out[0], "", 0);
}

void seen_done(struct seen *seen)
{
    cordon_buf_done(&seen->out[0]);
    cordon_buf_done(&seen->out[1]);
    cordon_buf_done(&seen->result);
    cordon_buf_done(&seen->files);
}
