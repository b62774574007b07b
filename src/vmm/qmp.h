/* SPDX-License-Identifier: Apache-2.0 */
/*
 * QEMU's control protocol, as far as a VM needs it: JSON objects, one a line. Pure, fuzzed. Whatever QEMU says is
 * hostile: the guest may have taken it over.
 */
#ifndef CORDON_VMM_QMP_H
#define CORDON_VMM_QMP_H

#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"

#define CORDON_QMP_LINE_MAX (64u << 10)

enum cordon_qmp_kind {
    CORDON_QMP_MORE = 0, /* the line is not whole yet */
    CORDON_QMP_GREETING, /* text: QEMU's version, "7.2.22" */
    CORDON_QMP_RETURN,   /* id; status: the member of that name of what was returned */
    CORDON_QMP_ERROR,    /* id, text */
    CORDON_QMP_EVENT,    /* name; status: data's member of that name, or its guest's reason */
    CORDON_QMP_OTHER,    /* well-formed, and nothing that is waited for */
    CORDON_QMP_VIOLATION /* text says which */
};

struct cordon_qmp_message {
    enum cordon_qmp_kind kind;
    int64_t id; /* -1: it has none */
    char name[48], status[48], text[200];
    bool halted; /* of a RETURN with the registers (for people) of the only CPU: it waits for an interrupt */
};

/* Takes the line at the front of data; *used is its size, 0 with MORE and VIOLATION. */
void cordon_qmp_next(const char *data, size_t size, size_t *used, struct cordon_qmp_message *ret);
/* Appends a command; arguments is a JSON object of our own making, or NULL. */
int cordon_qmp_put(struct cordon_buf *to, uint32_t id, const char *command, const char *arguments);

#endif
