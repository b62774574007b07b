/* SPDX-License-Identifier: Apache-2.0 */
/*
 * "Test connection", told while it happens. The settings that are tried count for one thread alone, so the test has a
 * thread of its own, from their beginning to their end; the connection's takes from it whole lines, as they come.
 */
#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <sys/socket.h>

#include "core/run.h"
#include "door/admin/admin.h"

#define OUTPUT_MAX 65536     /* bytes of the program's that are told as they come; the outcome has the first ones */
#define LINES_MAX (1u << 20) /* has room for these, each byte escaped, and for the outcome */

struct trial_stream {
    struct cordon_admin_trial_order order;
    struct cordon_event_writer writer; /* this, and the next one, are the test's thread's alone */
    size_t output;
    pthread_t thread;
    pthread_mutex_t lock; /* of what follows */
    pthread_cond_t changed;
    struct cordon_buf lines;
    bool ended;
};

static void write_step(struct trial_stream *self, const char *step)
{
    (void)cordon_buf_appendf(&self->lines, "{\"type\":\"%s\"}\n", step); /* sticky, seen by take_lines */
}

static void write_event(struct trial_stream *self, const struct cordon_event *event)
{
    struct cordon_event told = *event;
    bool output = event->type == CORDON_EVENT_STDOUT || event->type == CORDON_EVENT_STDERR;
    if (!output && event->type != CORDON_EVENT_STARTED)
        return; /* the outcome comes in the test's own words */
    if (output && told.data.size > OUTPUT_MAX - self->output)
        told.data.size = OUTPUT_MAX - self->output;
    self->output += output ? told.data.size : 0;
    cordon_event_write(&self->writer, &told, &self->lines);
}

static void tell(void *context, const char *step, const struct cordon_event *event)
{
    struct trial_stream *self = context;
    pthread_mutex_lock(&self->lock);
    if (step)
        write_step(self, step);
    else
        write_event(self, event);
    pthread_cond_signal(&self->changed);
    pthread_mutex_unlock(&self->lock);
}

static void tell_end(struct trial_stream *self, const struct cordon_admin_trial *trial)
{
    struct cordon_json json = {.buf = &self->lines};
    pthread_mutex_lock(&self->lock);
    cordon_json_object_begin(&json);
    cordon_json_key(&json, "type");
    cordon_json_text(&json, "outcome");
    cordon_admin_trial_write(trial, &json);
    cordon_json_object_end(&json);
    (void)cordon_buf_append(&self->lines, "\n", 1); /* sticky, seen by take_lines */
    self->ended = true;
    pthread_cond_signal(&self->changed);
    pthread_mutex_unlock(&self->lock);
}

static void *run_test(void *context)
{
    struct trial_stream *self = context;
    const struct cordon_admin_trial_watch watch = {.tell = tell, .context = self};
    struct cordon_admin_trial trial;
    cordon_admin_trial_run(&self->order, &watch, &trial);
    tell_end(self, &trial);
    cordon_admin_trial_done(&trial);
    return NULL;
}

static int take_lines(void *context, struct cordon_buf *out)
{
    struct trial_stream *self = context;
    pthread_mutex_lock(&self->lock);
    while (!self->lines.size && !self->lines.failed && !self->ended)
        pthread_cond_wait(&self->changed, &self->lock);
    bool failed = self->lines.failed || cordon_buf_append(out, self->lines.data, self->lines.size) < 0;
    int more = !self->ended;
    cordon_buf_done(&self->lines);
    pthread_mutex_unlock(&self->lock);
    return failed ? -ENOMEM : more;
}

/* A client that is gone cancels a test that still runs. */
static void close_stream(void *context)
{
    struct trial_stream *self = context;
    pthread_mutex_lock(&self->lock);
    if (!self->ended)
        (void)shutdown(self->order.cancel_fd, SHUT_RD); /* the client may have done so already */
    pthread_mutex_unlock(&self->lock);
    (void)pthread_join(self->thread, NULL); /* is joinable, and not this one */
    pthread_mutex_destroy(&self->lock);
    pthread_cond_destroy(&self->changed);
    cordon_buf_done(&self->lines);
    cordon_admin_trial_order_done(&self->order);
    free(self);
}

static const struct cordon_http_stream ndjson = {.next = take_lines, .close = close_stream};

int cordon_admin_trial_stream(struct cordon_http_request *request, struct cordon_admin_trial_order *order,
                              struct cordon_error *err)
{
    struct trial_stream *self = calloc(1, sizeof *self);
    if (!self) {
        cordon_admin_trial_order_done(order);
        return cordon_fail_errno(err, -ENOMEM, "starting the test");
    }
    self->order = *order;
    self->lines = CORDON_BUF_INIT(LINES_MAX);
    pthread_mutex_init(&self->lock, NULL); /* default attributes: can't fail */
    pthread_cond_init(&self->changed, NULL);
    int r = pthread_create(&self->thread, NULL, run_test, self);
    if (r == 0)
        return cordon_http_reply_stream(request, "application/x-ndjson", &ndjson, self);
    pthread_mutex_destroy(&self->lock);
    pthread_cond_destroy(&self->changed);
    cordon_admin_trial_order_done(order);
    free(self);
    return cordon_fail_errno(err, -r, "starting the test: no thread for it");
}
