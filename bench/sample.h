/* SPDX-License-Identifier: Apache-2.0 */
/* What the measuring programs share: the clock, the numbered texts and the output of samples as JSON. */
#ifndef CORDON_BENCH_SAMPLE_H
#define CORDON_BENCH_SAMPLE_H

#include <stddef.h>
#include <stdint.h>

/* Prints what went wrong with errno's text and exits: these are programs for one measurement. */
void bench_die(const char *what) __attribute__((noreturn));

void bench_sleep_ms(unsigned ms);
/* A whole number of argv, or bench_die. */
unsigned long bench_number(const char *text);

/* A copy of text with each "{N}" replaced by number, so that no two programs are alike; free() it. */
char *bench_numbered(const char *text, unsigned long number);

struct bench_samples {
    uint64_t *us;
    size_t count, room;
};
void bench_add(struct bench_samples *samples, uint64_t us);
/* "NAME":[1,2,3] */
void bench_print(const char *name, const struct bench_samples *samples);

#endif
