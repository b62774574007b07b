/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Runs in guests that are kept: the same guest is found again by what it is for, files and installed packages are still
 * there, each run is a new interpreter. What the program leaves in artifacts/ (below its home) is returned.
 *
 * Which guest. Its name is derived from flow, component *and* network policy, so two flows, two components, or a
 * changed policy never share one. Workers that race for it get one and the same. One that is paused is resumed; one
 * whose network policy is not (any more) what is asked for is refused, not changed. It has no end of its own; it pauses
 * when it is idle.
 *
 * Returned files: regular files only, found by walking inside the guest (links are not followed), at most `files` of
 * them and `bytes` together, which binds while they are read. What was in artifacts/ before the run and is unchanged is
 * not returned; what is returned is removed there. They are collected also after a timeout.
 */
#ifndef CORDON_REUSE_H
#define CORDON_REUSE_H

#include <cordon/backend.h>

#define CORDON_REUSE_NAME 23 /* "lf-c-" and 17 hex digits, NUL: 22 characters, which other systems allow */
#define CORDON_REUSE_FILES 256u
#define CORDON_REUSE_BYTES (5u << 20)

struct cordon_reuse {
    uint32_t struct_size;
    const char *tenant; /* whose guests; "" without keys */
    const char *flow;   /* NULL or "": "noflow" */
    const char *component;
    bool network;               /* false: nothing is reachable */
    const char *const *domains; /* with network: the only ones; none: no restriction of its own */
    size_t domain_count;
    const char *backend, *template_name; /* NULL: the settings' */
    uint64_t memory_bytes;               /* 0: the settings' */
    int cancel_fd;                       /* as in struct cordon_request; -1: none */
};

/* The name of its guest. -ENOMEM, or INVALID without a component. */
int cordon_reuse_name(const struct cordon_reuse *reuse, char name[CORDON_REUSE_NAME], struct cordon_error *err);
/* Finds the guest or makes it: its id (21 bytes with the NUL), and whether it was there. REFUSED when its network
 * policy is another one; else as making a guest fails. */
int cordon_reuse_acquire(const struct cordon_reuse *reuse, char id[21], bool *reused, struct cordon_error *err);

/* A program in a kept guest. Pointers are borrowed until open returns, but for stdin_data: until close. */
struct cordon_program_request {
    uint32_t struct_size;
    const char *tenant, *guest;
    const char *const *argv; /* this … */
    size_t argc;
    const char *language; /* … or a program's text: "python", "javascript", "bash" */
    struct cordon_bytes code;
    struct cordon_bytes arguments; /* with language: JSON object for main(), whose value is the result */
    const char *const *env;
    size_t env_count;
    const char *cwd, *user; /* NULL: /home/user, "user" */
    struct cordon_bytes stdin_data;
    const struct cordon_file *files; /* put first; relative to the home */
    size_t file_count;
    uint64_t timeout_ms;                 /* 0: none */
    uint64_t stdout_bytes, stderr_bytes; /* kept of each; the rest is counted */
    uint64_t output_kill_bytes;
    bool artifacts;
    uint32_t artifact_files; /* 0: CORDON_REUSE_FILES */
    uint64_t artifact_bytes; /* 0: CORDON_REUSE_BYTES */
    int cancel_fd;
};

struct cordon_program;
int cordon_program_open(const struct cordon_program_request *program, struct cordon_program **ret,
                        struct cordon_error *err);
/* 1 and an event, as a backend's run gives them, 0 after CORDON_EVENT_OUTCOME. Pointers hold until the next call. */
int cordon_program_next(struct cordon_program *run, struct cordon_event *event);
/* Ends what still runs. NULL is allowed. */
void cordon_program_close(struct cordon_program *run);

#endif
