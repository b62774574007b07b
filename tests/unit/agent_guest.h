/* SPDX-License-Identifier: Apache-2.0 */
/* Launches cordon-agent by hand, as a warden would, and speaks the guest protocol with it. */
#ifndef CORDON_TESTS_AGENT_GUEST_H
#define CORDON_TESTS_AGENT_GUEST_H

#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>
#include <sys/types.h>

#include "proto/frame.h"

struct agent_guest {
    pid_t pid; /* the agent, or what waits for it */
    int channel;
    char dir[64]; /* the private directory */
    struct cordon_buf in;
    size_t at; /* of the next frame in `in` */
};

/* What a run gave, gathered up to EXIT. */
struct agent_run {
    struct cordon_buf out[2];
    struct cordon_buf result, error; /* error: reasons of ERROR and RESULT_ERROR frames */
    struct cordon_exit exit;
    int exited; /* EXIT came */
    int started;
    uint64_t took_us;
};

struct agent_options {
    const char *language; /* python (a small driver of the tests'), bash */
    int isolated;
    uint64_t stdout_bytes, output_kill_bytes; /* 0: plenty */
    uint32_t flags;
    const char *arguments;
    int withhold_credit; /* do not grant any */
    int no_exec;         /* only start the guest */
    const char *driver;  /* python: other driver code */
    const char *suffixes;
};

void agent_guest_start(struct agent_guest *guest, const struct agent_options *options);
/* Ends it and checks that nothing of it is left. */
void agent_guest_stop(struct agent_guest *guest);
void agent_guest_exec(struct agent_guest *guest, const struct agent_options *options, const char *code);
void agent_guest_send(struct agent_guest *guest, uint8_t type, const void *payload, uint32_t length);
void agent_guest_put(struct agent_guest *guest, const char *path, const char *data, size_t size, uint32_t mode);
/* The next frame, or 0 when none comes within timeout_ms, -1 at the channel's end. */
int agent_guest_next(struct agent_guest *guest, struct cordon_frame *frame, int timeout_ms);
/* Reads up to EXIT or an ERROR, granting credit as it comes. */
void agent_guest_finish(struct agent_guest *guest, const struct agent_options *options, struct agent_run *run);
/* Reads until the program has printed `text`, which is then in no run. */
void agent_guest_hear(struct agent_guest *guest, const char *text);
/* start, exec, finish; the guest still has to be stopped. */
void agent_guest_run(struct agent_guest *guest, const struct agent_options *options, const char *code,
                     struct agent_run *run);
void agent_run_done(struct agent_run *run);
void agent_guest_kill(struct agent_guest *guest, uint32_t signal);

#endif
