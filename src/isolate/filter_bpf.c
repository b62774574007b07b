/* SPDX-License-Identifier: Apache-2.0 */
#include "isolate/filter_bpf.h"

#include <endian.h>

#define BPF_REACH 255 /* a conditional jump's offset has 8 bits */

static struct sock_filter *at(struct cordon_bpf *bpf, cordon_bpf_label label)
{
    return &bpf->instructions[CORDON_BPF_MAX - 1 - label];
}

static cordon_bpf_label emit(struct cordon_bpf *bpf, struct sock_filter instruction)
{
    if (bpf->used == CORDON_BPF_MAX) {
        bpf->failed = true;
        return 0;
    }
    *at(bpf, bpf->used) = instruction;
    return bpf->used++;
}

/* The offset by which the instruction that is emitted next reaches a label. */
static uint32_t offset_to(const struct cordon_bpf *bpf, cordon_bpf_label label)
{
    return bpf->used - 1 - label;
}

cordon_bpf_label cordon_bpf_return(struct cordon_bpf *bpf, uint32_t action)
{
    for (cordon_bpf_label label = 0; label < bpf->used; label++) {
        if (at(bpf, label)->code == (BPF_RET | BPF_K) && at(bpf, label)->k == action)
            return label;
    }
    return emit(bpf, (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, action));
}

static cordon_bpf_label jump(struct cordon_bpf *bpf, cordon_bpf_label label)
{
    return emit(bpf, (struct sock_filter)BPF_STMT(BPF_JMP | BPF_JA, offset_to(bpf, label)));
}

cordon_bpf_label cordon_bpf_branch(struct cordon_bpf *bpf, uint16_t test, uint32_t value, cordon_bpf_label yes,
                                   cordon_bpf_label no)
{
    if (yes == no)
        return yes;
    if (offset_to(bpf, no) + 1 > BPF_REACH) /* + 1: the other side may need a long jump, too */
        no = jump(bpf, no);
    if (offset_to(bpf, yes) > BPF_REACH)
        yes = jump(bpf, yes);
    uint8_t to_yes = (uint8_t)offset_to(bpf, yes), to_no = (uint8_t)offset_to(bpf, no);
    return emit(bpf, (struct sock_filter)BPF_JUMP(BPF_JMP | test | BPF_K, value, to_yes, to_no));
}

/* For instructions that can't jump: makes label the one that follows. */
static void continue_with(struct cordon_bpf *bpf, cordon_bpf_label label)
{
    if (label + 1 != bpf->used)
        (void)jump(bpf, label); /* it is the newest now, which is all that is asked */
}

cordon_bpf_label cordon_bpf_load(struct cordon_bpf *bpf, size_t offset, cordon_bpf_label next)
{
    continue_with(bpf, next);
    return emit(bpf, (struct sock_filter)BPF_STMT(BPF_LD | BPF_W | BPF_ABS, (uint32_t)offset));
}

cordon_bpf_label cordon_bpf_load_argument(struct cordon_bpf *bpf, unsigned argument, cordon_bpf_label next)
{
    size_t low = __BYTE_ORDER == __LITTLE_ENDIAN ? 0 : sizeof(uint32_t);
    return cordon_bpf_load(bpf, offsetof(struct seccomp_data, args) + argument * sizeof(uint64_t) + low, next);
}

cordon_bpf_label cordon_bpf_and(struct cordon_bpf *bpf, uint32_t mask, cordon_bpf_label next)
{
    continue_with(bpf, next);
    return emit(bpf, (struct sock_filter)BPF_STMT(BPF_ALU | BPF_AND | BPF_K, mask));
}

cordon_bpf_label cordon_bpf_one_of(struct cordon_bpf *bpf, const uint32_t *values, size_t count, cordon_bpf_label yes,
                                   cordon_bpf_label no)
{
    cordon_bpf_label label = no;
    for (size_t i = count; i-- > 0;)
        label = cordon_bpf_branch(bpf, BPF_JEQ, values[i], yes, label);
    return label;
}

struct interval {
    uint32_t first;
    cordon_bpf_label target;
};

static cordon_bpf_label tree(struct cordon_bpf *bpf, const struct interval *intervals, size_t count)
{
    if (count == 1)
        return intervals[0].target;
    size_t middle = count / 2;
    cordon_bpf_label above = tree(bpf, intervals + middle, count - middle);
    cordon_bpf_label below = tree(bpf, intervals, middle);
    return cordon_bpf_branch(bpf, BPF_JGE, intervals[middle].first, above, below);
}

cordon_bpf_label cordon_bpf_tree(struct cordon_bpf *bpf, const cordon_bpf_label targets[CORDON_BPF_SYSCALLS],
                                 cordon_bpf_label beyond)
{
    struct interval intervals[CORDON_BPF_SYSCALLS + 1];
    size_t count = 0;
    for (uint32_t number = 0; number <= CORDON_BPF_SYSCALLS; number++) {
        cordon_bpf_label target = number < CORDON_BPF_SYSCALLS ? targets[number] : beyond;
        if (count == 0 || intervals[count - 1].target != target)
            intervals[count++] = (struct interval){number, target};
    }
    return tree(bpf, intervals, count);
}

const struct sock_filter *cordon_bpf_program(const struct cordon_bpf *bpf)
{
    return &bpf->instructions[CORDON_BPF_MAX - bpf->used];
}
