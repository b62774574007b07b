/* SPDX-License-Identifier: Apache-2.0 */
#include "sample.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/buf.h"

void bench_die(const char *what)
{
    (void)fprintf(stderr, "bench: %s: %s\n", what, strerror(errno));
    exit(1);
}

void bench_sleep_ms(unsigned ms)
{
    struct timespec left = {ms / 1000, (long)(ms % 1000) * 1000000};
    while (nanosleep(&left, &left) < 0 && errno == EINTR)
        ;
}

unsigned long bench_number(const char *text)
{
    char *end;
    errno = 0;
    unsigned long number = strtoul(text, &end, 10);
    if (errno || end == text || *end)
        bench_die(text);
    return number;
}

char *bench_numbered(const char *text, unsigned long number)
{
    struct cordon_buf buf = CORDON_BUF_INIT(64u << 20);
    const char *mark;
    while ((mark = strstr(text, "{N}"))) {
        (void)cordon_buf_append(&buf, text, (size_t)(mark - text)); /* failures are sticky, seen below */
        (void)cordon_buf_appendf(&buf, "%lu", number);
        text = mark + 3;
    }
    if (cordon_buf_appends(&buf, text) < 0 || buf.failed)
        bench_die("numbered text");
    return buf.data;
}

void bench_add(struct bench_samples *samples, uint64_t us)
{
    if (samples->count == samples->room) {
        samples->room = samples->room ? 2 * samples->room : 256;
        samples->us = realloc(samples->us, samples->room * sizeof *samples->us);
        if (!samples->us)
            bench_die("samples");
    }
    samples->us[samples->count++] = us;
}

void bench_print(const char *name, const struct bench_samples *samples)
{
    (void)printf("\"%s\":[", name);
    for (size_t i = 0; i < samples->count; i++)
        (void)printf("%s%llu", i ? "," : "", (unsigned long long)samples->us[i]);
    (void)printf("]");
}
