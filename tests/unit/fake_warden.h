/* SPDX-License-Identifier: Apache-2.0 */
/* A warden of the test's own, which grants one guest or refuses it, and what comes of a run in that guest. */
#ifndef CORDON_TESTS_FAKE_WARDEN_H
#define CORDON_TESTS_FAKE_WARDEN_H

#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "guest/internal.h"

extern const struct cordon_guest_backend backend;

struct cordon_request request_of(const char *code); /* Python, with small limits; borrows code */
int text_file(const char *text);                    /* a descriptor of a file that holds it */

/* What the fake warden does with the next request. */
struct fake_warden {
    int main[2], lease;
    uint32_t start_ms; /* what its hello says; 0: the usual */
    int channel;       /* of the guest that it grants; -1: refuses with status and why */
    int status;
    const char *why;
    int files[3]; /* peak, events, usage; -1: none */
    struct cordon_warden_acquire asked;
    pthread_t thread;
};

void fake_warden_start(struct fake_warden *fake, int channel);
void fake_warden_connect(struct fake_warden *fake); /* as a new one, after the last was lost */
void fake_warden_serve(struct fake_warden *fake);   /* one request, in a thread */
void *fake_warden_serve_one(void *fake);            /* that thread's function */
void fake_warden_stop(struct fake_warden *fake);    /* closes files and lease; the channel is the test's */

struct seen {
    struct cordon_buf out[2], result, files; /* files: "name=content;" and "name!reason;" */
    struct cordon_outcome outcome;
    int started, outcomes;
    uint64_t took_us;
};

void seen_init(struct seen *seen);
void seen_done(struct seen *seen);
void run_all(struct cordon_run *run, struct seen *seen); /* to its end, which stays so */

#endif
