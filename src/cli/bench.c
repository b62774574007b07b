/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cordon bench: how fast a backend's guests start on this host. For exec-sandbox, whose speed is the host's
 * accelerator's: what an operator with hardware virtualization runs. The work is a Python program's
 * (bench_machines.py), which is part of this one and is given to the interpreter as a sealed file in memory.
 */
#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/fd.h"
#include "cli/cli.h"
#include "cli/machines.h"
#include "vmm/accel.h"

#define PYTHON "/usr/bin/python3"
#define WORDS_MAX 32

extern const char cordon_asset_bench_machines_py[];
extern const uint64_t cordon_asset_bench_machines_py_size;

static const char help[] = "usage: cordon bench exec-sandbox [OPTIONS]\n"
                           "\n"
                           "Measures how fast virtual machines start here, on daemons of its own, beside a machine "
                           "that does as little as can\n"
                           "be done: cold, as copies of a template, out of the pool; their memory; how many a second. "
                           "As root, on a host that\n"
                           "does nothing else. Needs the image (cordon image build), QEMU, erofs-utils and python3.\n"
                           "\n"
                           "  --rounds N     copies and machines of the pool that are measured (10)\n"
                           "  --boots N      cold boots (3)\n"
                           "  --seconds N    how long machines are started one after the other (20)\n"
                           "  --json         one JSON object\n";

struct words {
    char *items[WORDS_MAX];
    size_t count;
};

static void add(struct words *words, const char *name, const char *value)
{
    char *word = NULL;
    if (words->count < WORDS_MAX - 1 && asprintf(&word, value ? "--%s=%s" : "--%s", name, value) >= 0)
        words->items[words->count++] = word;
}

static int choose_accelerator(struct words *words, struct cordon_error *err)
{
    struct cordon_accel accel;
    int r = cordon_accel_probe_anew(&accel, err);
    if (r < 0)
        return r;
    (void)fprintf(stderr, "bench: %s%s\n", accel.reason,
                  accel.usable ? "" : "; software emulation is measured instead");
    add(words, "accel", accel.usable ? accel.name : "tcg");
    return 0;
}

static int find_program(struct words *words, struct cordon_error *err)
{
    char path[4096];
    ssize_t size = readlink("/proc/self/exe", path, sizeof path - 1);
    if (size < 0)
        return cordon_fail_errno(err, -errno, "finding this program");
    path[size] = '\0';
    add(words, "cordon", path);
    return 0;
}

static int prepare(struct words *words, struct cordon_error *err)
{
    struct cordon_settings *settings = NULL;
    struct cordon_cli_machines machines;
    int r = cordon_cli_settings(NULL, NULL, &settings, err);
    if (r == 0)
        r = cordon_cli_machines(settings, &machines, err);
    if (r == 0) {
        add(words, "image", machines.image);
        add(words, "qemu", machines.qemu);
        r = find_program(words, err);
    }
    cordon_settings_free(settings);
    return r < 0 ? r : choose_accelerator(words, err);
}

/* Its exit status. */
static int run_script(struct words *words, struct cordon_error *err)
{
    static char python[] = PYTHON, isolated[] = "-I";
    char script[40], *argv[WORDS_MAX + 4] = {python, isolated, script};
    int status = 0;
    cordon_autoclose int fd = cordon_sealed_memfd("bench_machines.py", cordon_asset_bench_machines_py,
                                                  (size_t)cordon_asset_bench_machines_py_size);
    if (fd < 0)
        return cordon_fail_errno(err, fd, "keeping the program of the benchmark");
    (void)snprintf(script, sizeof script, "/proc/self/fd/%d", fd); /* fits */
    memcpy(argv + 3, words->items, words->count * sizeof *argv);
    pid_t pid = fork();
    if (pid == 0) {
        (void)prctl(PR_SET_PDEATHSIG, SIGTERM);
        if (fcntl(fd, F_SETFD, 0) == 0)
            (void)execv(python, argv); /* returns only on failure */
        _exit(127);
    }
    while (pid > 0 && waitpid(pid, &status, 0) < 0 && errno == EINTR)
        continue;
    if (pid < 0 || (WIFEXITED(status) && WEXITSTATUS(status) == 127))
        return cordon_fail(err, -ENOENT, CORDON_ERROR_UNAVAILABLE,
                           PYTHON " can't be started, which measures; on Debian: apt-get install python3");
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

enum { ROUNDS = 1, BOOTS, SECONDS, JSON };
static const struct option options[] = {
    {"rounds", required_argument, NULL, ROUNDS},
    {"boots", required_argument, NULL, BOOTS},
    {"seconds", required_argument, NULL, SECONDS},
    {"json", no_argument, NULL, JSON},
    {"help", no_argument, NULL, 'h'},
    {NULL, 0, NULL, 0},
};

static bool is_count(const char *text)
{
    size_t digits = strspn(text, "0123456789");
    return digits && digits < 6 && !text[digits] && *text != '0';
}

/* -1 to go on, else the exit status. */
static int take_options(int argc, char **argv, struct words *words)
{
    optind = 0;
    opterr = 0;
    for (int option, index = 0; (option = getopt_long(argc, argv, ":h", options, &index)) != -1;) {
        if (option == 'h')
            return fputs(help, stdout) < 0 ? CORDON_EXIT_FAILURE : 0;
        if (option == '?' || option == ':')
            return cordon_cli_bad_option("bench", argv, option);
        if (option == JSON)
            add(words, "json", NULL);
        else if (!is_count(optarg))
            return cordon_cli_usage("bench", "\"%.40s\" is no number from 1 to 99999", optarg);
        else
            add(words, options[index].name, optarg);
    }
    if (optind != argc - 1 || strcmp(argv[optind], "exec-sandbox") != 0)
        return cordon_cli_usage("bench", "say exec-sandbox");
    return -1;
}

int cordon_cli_bench(int argc, char **argv)
{
    struct words words = {.count = 0};
    struct cordon_error err = {0};
    int status = take_options(argc, argv, &words);
    if (status < 0) {
        int r = prepare(&words, &err);
        if (r == 0)
            r = run_script(&words, &err);
        status = r < 0 ? cordon_cli_fail(&err) : r;
    }
    for (size_t i = 0; i < words.count; i++)
        free(words.items[i]);
    return status;
}
