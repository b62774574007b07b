/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Starts a command again and again, without a shell, and measures from before posix_spawn until its output has come
 * and it has been waited for.
 *
 *     bench_spawn [-n COUNT | -t SECONDS] [-w WORKERS] [-p PAUSE_MS] [-s FIRST] -- COMMAND [ARG...]
 *
 * "{N}" in an argument is the number of the start, from FIRST. Each program must print something and exit with 0.
 * Prints {"us":[…],"errors":N,"seconds":S}.
 */
#include <fcntl.h>
#include <pthread.h>
#include <spawn.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/fd.h"
#include "sample.h"

extern char **environ;

struct plan {
    unsigned long count, seconds, workers, pause_ms, first;
    char **command;
    int argc;
};

static struct plan plan = {.count = 20, .workers = 1};
static atomic_ulong started, errors;
static uint64_t until_us;
static struct bench_samples samples;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static pid_t spawn(char **argv, int out)
{
    posix_spawn_file_actions_t actions;
    pid_t pid = -1;
    if (posix_spawn_file_actions_init(&actions))
        bench_die("spawn actions");
    if (posix_spawn_file_actions_addopen(&actions, 0, "/dev/null", O_RDONLY, 0) ||
        posix_spawn_file_actions_adddup2(&actions, out, 1) ||
        posix_spawnp(&pid, argv[0], &actions, NULL, argv, environ))
        bench_die(argv[0]);
    (void)posix_spawn_file_actions_destroy(&actions); /* never fails */
    return pid;
}

/* True when the program printed something and ended well. */
static int start_once(char **argv)
{
    int out[2], status;
    char text[4096];
    size_t got = 0;
    if (pipe2(out, O_CLOEXEC) < 0)
        bench_die("pipe");
    pid_t pid = spawn(argv, out[1]);
    cordon_close(&out[1]);
    ssize_t n;
    while ((n = read(out[0], text, sizeof text)) > 0)
        got += (size_t)n;
    cordon_close(&out[0]);
    if (waitpid(pid, &status, 0) < 0)
        bench_die("waitpid");
    return got > 0 && WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

static void measure(unsigned long number)
{
    char **argv = calloc((size_t)plan.argc + 1, sizeof *argv);
    if (!argv)
        bench_die("arguments");
    for (int i = 0; i < plan.argc; i++)
        argv[i] = bench_numbered(plan.command[i], number);
    uint64_t begin = cordon_now_us();
    int good = start_once(argv);
    uint64_t took = cordon_now_us() - begin;
    pthread_mutex_lock(&lock);
    if (good)
        bench_add(&samples, took);
    else
        errors++;
    pthread_mutex_unlock(&lock);
    for (int i = 0; i < plan.argc; i++)
        free(argv[i]);
    free(argv);
}

static void *work(void *unused)
{
    for (;;) {
        unsigned long number = atomic_fetch_add(&started, 1);
        if (until_us ? cordon_now_us() >= until_us : number >= plan.count)
            return NULL;
        measure(plan.first + number);
        if (plan.pause_ms)
            bench_sleep_ms((unsigned)plan.pause_ms);
    }
}

static void read_options(int argc, char **argv)
{
    int option;
    while ((option = getopt(argc, argv, "+n:t:w:p:s:")) != -1) {
        unsigned long *to = option == 'n'   ? &plan.count
                            : option == 't' ? &plan.seconds
                            : option == 'w' ? &plan.workers
                            : option == 'p' ? &plan.pause_ms
                            : option == 's' ? &plan.first
                                            : NULL;
        if (!to)
            exit(2);
        *to = bench_number(optarg);
    }
    plan.command = argv + optind;
    plan.argc = argc - optind;
    if (plan.argc < 1 || plan.workers < 1 || plan.workers > 256)
        exit(2);
}

int main(int argc, char **argv)
{
    pthread_t threads[256];
    read_options(argc, argv);
    uint64_t begin = cordon_now_us();
    until_us = plan.seconds ? begin + plan.seconds * 1000000 : 0;
    for (unsigned long i = 0; i < plan.workers; i++)
        if (pthread_create(&threads[i], NULL, work, NULL))
            bench_die("thread");
    for (unsigned long i = 0; i < plan.workers; i++)
        (void)pthread_join(threads[i], NULL); /* only fails for a thread that is not there */
    double seconds = (double)(cordon_now_us() - begin) / 1e6;
    (void)printf("{");
    bench_print("us", &samples);
    (void)printf(",\"errors\":%lu,\"seconds\":%.6f}\n", (unsigned long)errors, seconds);
    return 0;
}
