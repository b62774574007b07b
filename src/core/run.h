/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A run from core's side: request in, events out, one outcome. Doors build a cordon_run_request with their dialect's
 * reader, pull events and write them in their dialect. Core adds policy, admission (the queue) and the timings.
 */
#ifndef CORDON_CORE_RUN_H
#define CORDON_CORE_RUN_H

#include <cordon/backend.h>

#include "base/json.h"
#include "core/settings.h"

/* A request that owns all it points to (one arena). */
struct cordon_run_request {
    struct cordon_request request;
    char backend[64];      /* "" : the setting's */
    enum cordon_door door; /* whose settings and words apply */
    char subject[32];      /* whose key asks for it; "": nobody's in particular */
    bool by_operator;  /* the command line runs it itself, for the person at it: may name `none` without a setting */
    bool memory_asked; /* the memory limit is the request's own, so a backend that can't hold it is refused */
    const char *const
        *headers; /* put into requests of its programs, each "HOST NAME: VALUE": secrets (core/egress.h) */
    size_t header_count;
    void *arena;
};

/* Reads the native JSON body (POST /v1/runs): unknown fields, wrong types and values out of bounds are INVALID and
 * name the field; limits come from the settings where the body has none. On success free with _done. */
int cordon_run_request_parse(const struct cordon_settings *settings, const char *body, size_t size,
                             struct cordon_run_request *ret, struct cordon_error *err);
/* An empty request with the settings' limits, for callers that fill it by hand (the command line). */
void cordon_run_request_init(const struct cordon_settings *settings, enum cordon_door door,
                             struct cordon_run_request *ret);
void *cordon_run_request_alloc(struct cordon_run_request *request,
                               size_t size); /* zeroed, lives as long as the request; NULL: no memory */
/* Checks names and bounds of a hand-filled request as parse does (environment names, language, sizes). */
int cordon_run_request_check(const struct cordon_settings *settings, const struct cordon_run_request *request,
                             struct cordon_error *err);
void cordon_run_request_done(struct cordon_run_request *request);
/* The backend that the request, else the setting, names. */
int cordon_run_request_backend(const struct cordon_settings *settings, const struct cordon_run_request *request,
                               const struct cordon_backend **ret, struct cordon_error *err);
/* Whether the code is only white space: then nothing is started. */
bool cordon_request_blank(const struct cordon_request *request);

/* One live run through policy, queue and backend. */
struct cordon_live;
/* Check, lookup, policy and probe happen here (kinds INVALID, REFUSED, UNAVAILABLE; blank code gives a live run that
 * has ended). Waiting for a place happens in the first next(). The request is borrowed until close. */
int cordon_live_open(const struct cordon_settings *settings, const struct cordon_run_request *request,
                     struct cordon_live **ret, struct cordon_error *err);
/* 1 and an event, 0 after the outcome; negative with err only before the first event (queue full or timed out: BUSY,
 * client left: CANCELLED, guest could not be had: UNAVAILABLE or INFRASTRUCTURE). An event's pointers hold until the
 * next call. Guest and place are given back by the call that returns 0, or by close: to answer first and recycle
 * afterwards, stop at CORDON_EVENT_OUTCOME, send, then close. */
int cordon_live_next(struct cordon_live *live, struct cordon_event *event, struct cordon_error *err);
void cordon_live_close(struct cordon_live *live);
/* The daemon stops: what is cancelled from now on is told as cancelled by that, not by its client. */
void cordon_live_stopping(void);

/* Admission: how many run and wait now, for /metrics and /readyz. */
struct cordon_admission {
    uint64_t running, waiting, max_runs, max_waiting, admitted, refused;
};
void cordon_admission_setup(const struct cordon_settings *settings);
void cordon_admission_read(struct cordon_admission *ret);

/* JSON of the contracts. The answer object of a whole run is collected from its events; its memory is bounded by the
 * request's output and artifact limits, whatever the backend sends. */
struct cordon_answer;
int cordon_answer_new(const struct cordon_limits *limits, struct cordon_answer **ret); /* 0 or -ENOMEM */
int cordon_answer_add(struct cordon_answer *answer,
                      const struct cordon_event *event); /* copies what it needs; 0 or -ENOMEM */
/* Collects a whole live run: 0 at its outcome, with guest and place still held; negative as cordon_live_next. */
int cordon_answer_collect(struct cordon_answer *answer, struct cordon_live *live, struct cordon_error *err);
/* The run ended with an error instead of an outcome: the same object, with outcome.cause from the error's kind, and
 * "error". */
void cordon_answer_fail(struct cordon_answer *answer, const struct cordon_error *err);
/* {stdout, stderr, exit_code, outcome{…}, result, artifacts[], backend, timing{…}}. A stream that is not UTF-8 also
 * comes as stdout_b64 or stderr_b64 (the text form then has U+FFFD). */
void cordon_answer_write(const struct cordon_answer *answer, struct cordon_json *json);
const struct cordon_outcome *cordon_answer_outcome(const struct cordon_answer *answer); /* never NULL */
/* What was collected, for doors that write their own dialect; borrowed while the answer lives. */
struct cordon_bytes cordon_answer_stdout(const struct cordon_answer *answer);
struct cordon_bytes cordon_answer_stderr(const struct cordon_answer *answer);
struct cordon_bytes cordon_answer_result(const struct cordon_answer *answer); /* JSON; data NULL: none */
/* The i-th artifact, true; false at the end. One that was dropped has a reason and no content. */
struct cordon_artifact {
    const char *name, *reason;
    struct cordon_bytes content;
    uint64_t size;
};
bool cordon_answer_artifact(const struct cordon_answer *answer, size_t i, struct cordon_artifact *ret);
void cordon_answer_free(struct cordon_answer *answer);

/* Events as NDJSON. One writer a run, all zero at the start: it holds the bytes of a character that a chunk cut. */
struct cordon_event_writer {
    unsigned char carry[2][4];
    unsigned char carried[2];
};
/* Appends the event's lines (none, one or more, each with its newline): {"type":"stdout","data":…} with the data as
 * text where it is UTF-8, else "data_b64". The outcome's line comes last. */
void cordon_event_write(struct cordon_event_writer *writer, const struct cordon_event *event, struct cordon_buf *to);
/* The last line of a run that ended with an error after the headers went out: {"type":"error","error":{…}}. */
void cordon_event_write_error(const struct cordon_error *err, struct cordon_buf *to);
void cordon_outcome_write(const struct cordon_outcome *outcome, struct cordon_json *json);
void cordon_timing_write(const struct cordon_outcome *outcome,
                         struct cordon_json *json); /* {queue_ms,start_ms,run_ms,total_ms} */

const char *cordon_cause_name(enum cordon_cause cause);
const char *cordon_isolation_name(enum cordon_isolation isolation);
int cordon_isolation_parse(const char *name, enum cordon_isolation *ret);
int cordon_outcome_exit_status(
    const struct cordon_outcome *outcome); /* of the command line: 124, 125, 126, 137 or the program's own */

#endif
