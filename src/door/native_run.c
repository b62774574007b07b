/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A run over HTTP. The connection's own socket is the run's cancel_fd: a client that leaves, or only says that it will
 * send nothing more, cancels its run, also while it waits in the queue or is silent.
 *
 * With Accept: application/x-ndjson each event is a line that leaves as it happens. The answer leaves first; guest and
 * place are given back afterwards (finish, or the stream's close), except where the answer may have to wait for its
 * reader: then they are given back before.
 *
 * So that a stream's slow reader keeps neither longer than its program lives, a stream that stalls is read ahead: a
 * thread of its own takes all further events as they come, and the reader gets its lines from what that has collected.
 * What so waits for readers without holding a place has a bound, all together; beyond it readers slow their runs.
 */
#include "door/native_run.h"

#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>

#include "base/fd.h"
#include "base/log.h"
#include "core/guests.h"
#include "core/metrics.h"
#include "core/run.h"
#include "door/door.h"
#include "door/unread.h"

struct ahead {
    bool on; /* the run's events belong to the thread */
    pthread_t thread;
    pthread_mutex_t lock; /* of what follows */
    pthread_cond_t changed;
    struct cordon_buf lines;
    int more;    /* as a stream's next says it */
    bool closed; /* nobody takes lines any longer */
};

struct native_run {
    char tenant[32];
    bool counted; /* among the key's runs */
    struct cordon_run_request request;
    struct cordon_live *live;
    struct cordon_event_writer writer;
    struct cordon_event first; /* pulled before the status was chosen; type 0: none */
    bool say_queued, ended;
    struct ahead ahead;
    size_t charged; /* of what waits for its reader (door/unread.h) */
};

/* A client that is gone cancels what is still read ahead. */
static void end_ahead(struct native_run *run)
{
    struct ahead *ahead = &run->ahead;
    pthread_mutex_lock(&ahead->lock);
    if (ahead->more > 0)
        (void)shutdown(run->request.request.cancel_fd, SHUT_RD); /* the client may have done so already */
    ahead->closed = true;
    pthread_cond_broadcast(&ahead->changed);
    pthread_mutex_unlock(&ahead->lock);
    (void)pthread_join(ahead->thread, NULL); /* is joinable, and not this one */
    pthread_mutex_destroy(&ahead->lock);
    pthread_cond_destroy(&ahead->changed);
    cordon_buf_done(&ahead->lines);
}

static void close_run(void *context)
{
    struct native_run *run = context;
    if (run->ahead.on)
        end_ahead(run);
    cordon_unread_done(run->charged);
    cordon_live_close(run->live);
    if (run->counted)
        cordon_quota_run_leave(run->tenant, run->request.request.limits.memory_bytes);
    cordon_run_request_done(&run->request);
    free(run);
}

/* The next event: 1; or the end, whose line is written already: 0. */
static int next_event(struct native_run *run, struct cordon_event *event, struct cordon_buf *out)
{
    struct cordon_error err = {0};
    if (run->first.type) {
        *event = run->first;
        run->first.type = 0;
        return 1;
    }
    int got = cordon_live_next(run->live, event, &err);
    if (got < 0)
        cordon_event_write_error(&err, out);
    return got > 0;
}

static int pull_line(struct native_run *run, struct cordon_buf *out)
{
    static const char queued[] = "{\"type\":\"queued\"}\n";
    struct cordon_event event;
    if (run->ended)
        return 0;
    if (run->say_queued) {
        run->say_queued = false;
        return cordon_buf_append(out, queued, sizeof queued - 1) < 0 ? -ENOMEM : 1;
    }
    bool more = next_event(run, &event, out);
    if (more) {
        cordon_event_write(&run->writer, &event, out);
        more = event.type != CORDON_EVENT_OUTCOME;
    }
    run->ended = !more;
    return more;
}

static void *read_ahead(void *context)
{
    struct native_run *run = context;
    struct ahead *ahead = &run->ahead;
    struct cordon_buf out = CORDON_BUF_INIT(ahead->lines.max);
    int more;
    do {
        out.size = 0;
        more = pull_line(run, &out);
        bool fits = cordon_unread_charge(&run->charged, out.size);
        pthread_mutex_lock(&ahead->lock);
        while (!fits && ahead->lines.size && !ahead->closed)
            pthread_cond_wait(&ahead->changed, &ahead->lock);
        if (out.failed || cordon_buf_append(&ahead->lines, out.data, out.size) < 0)
            more = -ENOMEM;
        ahead->more = more;
        pthread_cond_broadcast(&ahead->changed);
        pthread_mutex_unlock(&ahead->lock);
    } while (more > 0);
    cordon_live_close(CORDON_TAKE(run->live));
    cordon_buf_done(&out);
    return NULL;
}

static int take_lines(struct ahead *ahead, struct cordon_buf *out)
{
    pthread_mutex_lock(&ahead->lock);
    while (!ahead->lines.size && ahead->more > 0)
        pthread_cond_wait(&ahead->changed, &ahead->lock);
    int more = ahead->more;
    if (cordon_buf_append(out, ahead->lines.data, ahead->lines.size) < 0)
        more = -ENOMEM;
    cordon_buf_done(&ahead->lines);
    pthread_cond_broadcast(&ahead->changed);
    pthread_mutex_unlock(&ahead->lock);
    return more;
}

static void begin_ahead(void *context)
{
    struct native_run *run = context;
    struct ahead *ahead = &run->ahead;
    if (ahead->on)
        return;
    if (run->ended) {
        cordon_live_close(CORDON_TAKE(run->live));
        return;
    }
    *ahead = (struct ahead){.lines = CORDON_BUF_INIT(SIZE_MAX / 2), .more = 1};
    pthread_mutex_init(&ahead->lock, NULL); /* default attributes: can't fail */
    pthread_cond_init(&ahead->changed, NULL);
    int r = pthread_create(&ahead->thread, NULL, read_ahead, run);
    ahead->on = r == 0;
    if (r)
        cordon_log(CORDON_LOG_WARN, "no thread for a stream with a slow reader: it may keep its place", NULL);
}

static int next_line(void *context, struct cordon_buf *out)
{
    struct native_run *run = context;
    return run->ahead.on ? take_lines(&run->ahead, out) : pull_line(run, out);
}

static const struct cordon_http_stream ndjson = {.next = next_line, .close = close_run, .stalled = begin_ahead};

static int reply_whole(struct cordon_http_request *request, struct native_run *run, struct cordon_error *err)
{
    struct cordon_answer *answer = NULL;
    if (cordon_answer_new(&run->request.request.limits, &answer) < 0)
        return cordon_fail_errno(err, -ENOMEM, "collecting the run's output");
    int r = cordon_answer_collect(answer, run->live, err);
    if (r == 0) {
        struct cordon_buf body = CORDON_BUF_INIT(SIZE_MAX / 2); /* bounded by the run's limits */
        struct cordon_json json = {.buf = &body};
        cordon_answer_write(answer, &json);
        (void)cordon_buf_append(&body, "\n", 1); /* sticky, seen by the reply */
        if (cordon_unread_gives_back(&run->charged, body.size))
            cordon_live_close(CORDON_TAKE(run->live)); /* a slow reader must not keep guest and place */
        r = cordon_http_reply(request, 200, "application/json", &body);
        if (r < 0)
            (void)cordon_fail_errno(err, r, "writing the run's answer");
    }
    cordon_answer_free(answer);
    return r;
}

/*
 * A run that must wait for its place says so at once, so that its client sees a stream; for one that need not, the
 * first event is awaited, so that what goes wrong until then is a plain error with its status.
 */
static int begin_stream(struct native_run *run, struct cordon_error *err)
{
    struct cordon_admission admission;
    cordon_admission_read(&admission);
    if (admission.running < admission.max_runs)
        return cordon_live_next(run->live, &run->first, err);
    if (admission.waiting >= admission.max_waiting)
        return cordon_fail(
            err, -EBUSY, CORDON_ERROR_BUSY,
            "all %llu places are taken and %llu runs wait (CORDON_MAX_RUNS, CORDON_QUEUE); try again later",
            (unsigned long long)admission.max_runs, (unsigned long long)admission.waiting);
    run->say_queued = true;
    return 0;
}

/* What the key may have at once and start in a minute. */
static int count_run(struct cordon_http_request *request, struct native_run *run, struct cordon_error *err)
{
    char seconds[16];
    (void)snprintf(run->tenant, sizeof run->tenant, "%s", request->subject); /* of one size */
    int r = cordon_quota_rate(run->tenant, err);
    if (r == 0)
        r = cordon_quota_run_enter(run->tenant, run->request.request.limits.memory_bytes, err);
    run->counted = r == 0;
    if (r < 0 && err->kind == CORDON_ERROR_QUOTA) {
        (void)snprintf(seconds, sizeof seconds, "%u", cordon_guests_retry_after_s(err)); /* fits */
        cordon_http_reply_header(request, "Retry-After", seconds);
    }
    if (r < 0)
        cordon_metrics_error(err->kind);
    return r;
}

static int open_run(struct cordon_http_request *request, struct native_run *run, struct cordon_error *err)
{
    const struct cordon_doors *doors = request->context;
    int r = cordon_run_request_parse(doors->settings, request->body.data ? request->body.data : "", request->body.size,
                                     &run->request, err);
    if (r < 0) {
        cordon_metrics_error(err->kind);
        return r;
    }
    cordon_buf_done(&request->body); /* the request has copies of all it needs */
    run->request.request.cancel_fd = request->fd;
    (void)snprintf(run->request.subject, sizeof run->request.subject, "%s", request->subject); /* the sizes agree */
    r = count_run(request, run, err);
    if (r < 0)
        return r;
    return cordon_live_open(doors->settings, &run->request, &run->live, err);
}

int cordon_native_run(struct cordon_http_request *request, struct cordon_error *err)
{
    struct native_run *run = calloc(1, sizeof *run);
    if (!run)
        return cordon_fail_errno(err, -ENOMEM, "starting a run");
    bool stream = cordon_http_accepts(request, "application/x-ndjson");
    int r = open_run(request, run, err);
    if (r == 0 && stream)
        r = begin_stream(run, err);
    if (r >= 0 && stream)
        return cordon_http_reply_stream(request, "application/x-ndjson", &ndjson, run);
    if (r == 0)
        r = reply_whole(request, run, err);
    if (r < 0) {
        close_run(run);
        return r;
    }
    request->finish = close_run;
    request->finish_context = run;
    return 0;
}
