/* SPDX-License-Identifier: Apache-2.0 */
/* The native door's part for kept guests: /v1/guests, /v1/reuse. {guest} in a path is an id or a name. */
#include "door/guests/guests.h"

#define RUN CORDON_HTTP_RUN
#define NONE CORDON_HTTP_BODY_NONE
#define SOME CORDON_HTTP_BODY_SETTING
#define G "/v1/guests/{guest}"
#define C G "/contexts/{context}"

static const struct cordon_http_route routes[] = {
    {"POST", "/v1/guests", cordon_guest_create_post, RUN, SOME, "Makes a guest that is kept.", "NewGuest", "Guest",
     NULL},
    {"GET", "/v1/guests", cordon_guest_list_get, RUN, NONE,
     "Guests, newest first. Query: name (with * and ?), template, state (list of running, paused, gone), idle_s, "
     "limit, "
     "after.",
     NULL, "Guests", NULL},
    {"GET", G, cordon_guest_get, RUN, NONE, "One guest; one that is gone tells for a while what ended it.", NULL,
     "Guest", NULL},
    {"DELETE", G, cordon_guest_delete, RUN, NONE,
     "Ends a guest, whatever it does. Answers when it is gone. Query: forget=true: one that can't be ended is given "
     "up, "
     "and the answer is the guest, whose remote_id is what to end at its service.",
     NULL, NULL, NULL},
    {"POST", G "/pause", cordon_guest_pause_post, RUN, SOME, "Freezes it: nothing in it runs until it is resumed.",
     NULL, "Guest", NULL},
    {"POST", G "/resume", cordon_guest_resume_post, RUN, SOME, "Lets it go on; ttl_s: its life from now on.", "Resume",
     "Guest", NULL},
    {"POST", G "/extend", cordon_guest_extend_post, RUN, SOME,
     "Sets how long it lives from now on, and when it pauses.", "Extend", "Guest", NULL},
    {"PUT", G "/egress", cordon_guest_network_put, RUN, SOME,
     "Replaces what it may reach, at once: connections that no longer fit are cut.", "Network", "Guest", NULL},
    {"PUT", G "/network", cordon_guest_network_put, RUN, SOME, "The same as /egress.", "Network", "Guest", NULL},
    {"GET", G "/egress", cordon_guest_egress_get, RUN, NONE, "What it may reach, and what its connections came to.",
     NULL, "Egress", NULL},
    {"GET", G "/egress/log", cordon_guest_egress_log_get, RUN, NONE,
     "The same with its egress log: the newest connections and refusals, oldest first.", NULL, "Egress", NULL},
    {"GET", G "/metrics", cordon_guest_metrics_get, RUN, NONE, "What it uses now.", NULL, "GuestMetrics", NULL},
    {"GET", G "/notes", cordon_guest_notes_get, RUN, NONE, "What happened to it, oldest first.", NULL, "GuestNotes",
     NULL},
    {"POST", G "/runs", cordon_guest_run_post, RUN, SOME,
     "Runs a program in it, in a new interpreter. What it leaves in artifacts/ is returned (256 files at most), and "
     "taken "
     "away there.",
     "Run", "Answer", "Event"},
    {"POST", "/v1/reuse", cordon_guest_reuse_post, RUN, SOME,
     "Finds the guest of a flow's component and network policy again, or makes it.", "Reuse", "Reused", NULL},
    {"POST", G "/exec", cordon_guest_exec_post, RUN, SOME,
     "Runs a command in it. With background it goes on by itself, and its pid is the answer.", "Exec", "Answer",
     "Event"},
    {"GET", G "/exec", cordon_guest_execs_get, RUN, NONE, "The programs that were started in it.", NULL, "Programs",
     NULL},
    {"POST", G "/exec/{pid}/signal", cordon_guest_signal_post, RUN, SOME, "Sends a signal to one.", "Signal", NULL,
     NULL},
    {"POST", G "/exec/{pid}/input", cordon_guest_input_post, RUN, 256u << 10,
     "Types into one's terminal: at most 64 KiB at once.", "Input", NULL, NULL},
    {"POST", G "/exec/{pid}/resize", cordon_guest_resize_post, RUN, 4096, "Sets the size of one's terminal.",
     "TerminalSize", NULL, NULL},
    {"POST", G "/terminal", cordon_guest_terminal_post, RUN, SOME,
     "Opens a terminal (PTY) in it with a login shell, and streams what it shows; it ends with the connection.",
     "Terminal", NULL, "TerminalEvent"},
    {"GET", G "/files", cordon_guest_file_get, RUN, NONE, "A file's bytes. Query: path, user.", NULL, NULL, NULL},
    {"PUT", G "/files", cordon_guest_file_put, RUN, CORDON_HTTP_BODY_INTAKE,
     "Writes a file: the body's bytes, any number of them. Query: path, mode (octal), user.", NULL, "Entry", NULL},
    {"DELETE", G "/files", cordon_guest_file_delete, RUN, NONE, "Removes a file or a directory. Query: path, user.",
     NULL, NULL, NULL},
    {"GET", G "/entries", cordon_guest_entries_get, RUN, NONE, "A directory's entries. Query: path, depth, user.", NULL,
     "Entries", NULL},
    {"POST", G "/files/move", cordon_guest_move_post, RUN, SOME, "Moves. Query: path, target, user.", NULL, "Entry",
     NULL},
    {"POST", G "/files/directory", cordon_guest_mkdir_post, RUN, SOME, "Makes a directory. Query: path, user.", NULL,
     "Entry", NULL},
    {"POST", G "/cells", cordon_guest_cell_post, RUN, SOME,
     "Runs a cell in a context (or in the default one of a language), whose state the next cell finds.", "Cell",
     "CellAnswer", "CellEvent"},
    {"GET", G "/contexts", cordon_guest_contexts_get, RUN, NONE, "Its contexts.", NULL, "Contexts", NULL},
    {"POST", G "/contexts", cordon_guest_context_post, RUN, SOME, "Makes a context.", "NewContext", "Context", NULL},
    {"GET", C, cordon_guest_context_get, RUN, NONE, "One context.", NULL, "Context", NULL},
    {"DELETE", C, cordon_guest_context_delete, RUN, NONE, "Ends a context and forgets it.", NULL, NULL, NULL},
    {"POST", C "/restart", cordon_guest_context_restart, RUN, SOME, "Gives it a new interpreter: its state is gone.",
     NULL, NULL, NULL},
    {"POST", C "/interrupt", cordon_guest_context_interrupt, RUN, SOME, "Interrupts the cell that runs in it.", NULL,
     NULL, NULL},
};

const struct cordon_http_door cordon_door_guests = {
    .name = "guests",
    .routes = routes,
    .route_count = sizeof routes / sizeof *routes,
    .schemas = cordon_guest_schemas,
    .schema_count = CORDON_GUEST_SCHEMAS,
    .intake = &cordon_guest_file_intake,
};
