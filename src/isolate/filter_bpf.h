/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A small assembler for seccomp programs. BPF jumps only forwards, so the program is written from its end: whatever an
 * instruction jumps to is there already, and every function returns the label of what it wrote. Equal returns are
 * shared, and jumps further than a conditional one reaches get a long one in between.
 */
#ifndef CORDON_ISOLATE_FILTER_BPF_H
#define CORDON_ISOLATE_FILTER_BPF_H

#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define CORDON_BPF_MAX 1024
#define CORDON_BPF_SYSCALLS 512 /* numbers from here on have the action of the default */

typedef unsigned cordon_bpf_label; /* distance from the end */

struct cordon_bpf {
    struct sock_filter instructions[CORDON_BPF_MAX]; /* the last `used` of them */
    unsigned used;
    bool failed; /* sticky: too long */
};

cordon_bpf_label cordon_bpf_return(struct cordon_bpf *bpf, uint32_t action);
/* test: BPF_JEQ, BPF_JGE or BPF_JSET of the accumulator and value. */
cordon_bpf_label cordon_bpf_branch(struct cordon_bpf *bpf, uint16_t test, uint32_t value, cordon_bpf_label yes,
                                   cordon_bpf_label no);
/* Loads 32 bits of struct seccomp_data. The kernel cuts most arguments to 32 bits, so only those may be compared. */
cordon_bpf_label cordon_bpf_load(struct cordon_bpf *bpf, size_t offset, cordon_bpf_label next);
cordon_bpf_label cordon_bpf_load_argument(struct cordon_bpf *bpf, unsigned argument, cordon_bpf_label next);
cordon_bpf_label cordon_bpf_and(struct cordon_bpf *bpf, uint32_t mask, cordon_bpf_label next);
/* yes if the accumulator is one of the values, else no. */
cordon_bpf_label cordon_bpf_one_of(struct cordon_bpf *bpf, const uint32_t *values, size_t count, cordon_bpf_label yes,
                                   cordon_bpf_label no);
/* A decision tree over the number in the accumulator: neighbours with the same target are one leaf. */
cordon_bpf_label cordon_bpf_tree(struct cordon_bpf *bpf, const cordon_bpf_label targets[CORDON_BPF_SYSCALLS],
                                 cordon_bpf_label beyond);
const struct sock_filter *cordon_bpf_program(const struct cordon_bpf *bpf);

#endif
