/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Cells: pieces of code that run one after the other in a *context* of a kept guest, an interpreter that keeps its
 * state. Any thread. Contexts live as long as their guest, or until they are removed; cells of one context wait for
 * each other, those of different contexts don't. docs/protocol/driver.md tells how the interpreter is spoken to, and
 * docs/cells.md what each kind of end does to a context.
 *
 * bash has no interpreter that stays: each cell is one `bash -c`, with the context's directory and nothing else kept.
 *
 * Errors: those of core/guests.h for the guest; NOT_FOUND for a context that there is not; UNSUPPORTED for a language
 * without contexts; QUOTA for one context too many; BUSY when too many cells wait for one context.
 */
#ifndef CORDON_CELLS_CELLS_H
#define CORDON_CELLS_CELLS_H

#include <cordon/backend.h>

#include "core/settings.h"

#define CORDON_CONTEXT_ID 25 /* 24 characters a-z0-9, NUL */
#define CORDON_CONTEXT_LANGUAGE 16
#define CORDON_CONTEXT_CWD 1024

enum cordon_context_state {
    CORDON_CONTEXT_IDLE, /* waits for a cell; one that was never used is not started yet */
    CORDON_CONTEXT_BUSY,
    CORDON_CONTEXT_ENDED /* its interpreter ended; the next cell starts a new one, and is told so */
};

struct cordon_context_info {
    char id[CORDON_CONTEXT_ID];
    char language[CORDON_CONTEXT_LANGUAGE]; /* "python", "javascript", "bash" */
    char cwd[CORDON_CONTEXT_CWD];
    enum cordon_context_state state;
    bool is_default; /* the one that cells get that name a language only */
    uint32_t cells;  /* run so far */
};

/* The limits (contexts in a guest, cells that wait) are read once, at the start. */
void cordon_cells_setup(const struct cordon_settings *settings);

/* language: NULL means python; aliases (py, js, node, sh …) are known. cwd: NULL means /home/user. The interpreter is
 * started, so that what is wrong with it is told here. */
int cordon_cells_create(const char *tenant, const char *guest, const char *language, const char *cwd,
                        struct cordon_context_info *ret, struct cordon_error *err);
int cordon_cells_info(const char *tenant, const char *guest, const char *id, struct cordon_context_info *ret,
                      struct cordon_error *err);
/* Calls each for every context, oldest first, with what holds during the call. */
int cordon_cells_list(const char *tenant, const char *guest,
                      void (*each)(void *context, const struct cordon_context_info *info), void *context,
                      struct cordon_error *err);
/* Ends its interpreter with all that it started, and starts a new one. A cell under way ends as cancelled. */
int cordon_cells_restart(const char *tenant, const char *guest, const char *id, struct cordon_error *err);
int cordon_cells_remove(const char *tenant, const char *guest, const char *id, struct cordon_error *err);
/* Interrupts the cell that runs in it (0 also when none does). One that does not heed it goes on. */
int cordon_cells_interrupt(const char *tenant, const char *guest, const char *id, struct cordon_error *err);

struct cordon_cell_request {
    const char *tenant, *guest;
    const char *context;  /* NULL: the default context of the language, made when there is none */
    const char *language; /* NULL: python. Not with context */
    struct cordon_bytes code;
    const char *const *env; /* "NAME=VALUE", for this cell only */
    size_t env_count;
    uint64_t timeout_ms; /* then it is interrupted, and 500 ms later ended with its context; 0: none */
    int cancel_fd;       /* a socket; its peer's shutdown ends the cell as a timeout does. -1: none */
};

enum cordon_cell_event_type {
    CORDON_CELL_STARTED = 1, /* number, fresh */
    CORDON_CELL_STDOUT,      /* data */
    CORDON_CELL_STDERR,      /* data */
    CORDON_CELL_SHOWN,       /* data: one JSON object in one line, keys as docs/protocol/driver.md has them */
    CORDON_CELL_ERROR,       /* data: {"name","value","traceback":[line…]}, in one line. At most once */
    CORDON_CELL_END          /* end. Last */
};

struct cordon_cell_end {
    enum cordon_cause cause; /* EXITED: it came to its end, with an error or without; TIMEOUT, CANCELLED; and, when the
                                context ended under it: SIGNALLED, MEMORY, EXITED, INFRASTRUCTURE */
    bool context_ended;      /* its state is lost */
    int exit_code;           /* of the interpreter when it ended by itself, or of bash; else -1 */
    uint64_t run_us;
    uint32_t shown_dropped; /* values beyond the limits */
    char message[256];      /* "" when it simply came to its end */
};

struct cordon_cell_event {
    enum cordon_cell_event_type type;
    struct cordon_bytes data; /* borrowed until the next call */
    uint32_t number;
    bool fresh; /* the context's interpreter was started for this cell: nothing of earlier cells is there */
    const struct cordon_cell_end *end;
};

struct cordon_cell;
/* Waits for the context's turn and hands the code over. */
int cordon_cell_open(const struct cordon_cell_request *request, struct cordon_cell **ret, struct cordon_error *err);
/* 1 and an event; 0 when timeout_ms (-1: for ever) passed without one, or after END. Never negative: what breaks under
 * way is told by END. */
int cordon_cell_next(struct cordon_cell *cell, int timeout_ms, struct cordon_cell_event *event);
/* The context it runs in. */
const char *cordon_cell_context(const struct cordon_cell *cell);
/* A cell under way is cancelled. NULL is allowed. */
void cordon_cell_close(struct cordon_cell *cell);

#endif
