/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cordon image: what the virtual machines of exec-sandbox start from. Making it is a matter of files, archives and
 * other programs, so a Python program does it (image_build.py); it is part of this one, as is all of ours that goes
 * into the image. Both are written to a folder of their own for it.
 */
#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/sendfile.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/fd.h"
#include "cli/cli.h"
#include "cli/machines.h"
#include "core/value.h"
#include "isolate/filter.h"
#include "warden/assets.h"

#define PYTHON "/usr/bin/python3"
#define MANIFEST_MAX (1u << 20)
#define WORDS_MAX 64

extern const char cordon_asset_image_build_py[];
extern const uint64_t cordon_asset_image_build_py_size;

static const char help[] =
    "usage: cordon image build [OPTIONS]\n"
    "       cordon image show [--json] [OPTIONS]\n"
    "\n"
    "The image that virtual machines (exec-sandbox) start from: a kernel, an initramfs and a root file system, made "
    "of\n"
    "Debian's packages. Needs apt, mkfs.erofs (erofs-utils), lz4 and python3, no privilege; fetches about 110 MB.\n"
    "What is there and made from the same is kept.\n"
    "\n"
    "  --out DIR           the image's folder; default: CORDON_VM_IMAGE, or images/vm in\n"
    "                      the state folder\n"
    "  --kernel FILE       a kernel of your own, bzImage or vmlinux, with its drivers built in (docs/exec-sandbox.md)\n"
    "  --add PACKAGE       one more Debian package, like python3-matplotlib; may come several times\n"
    "  --minimal           without numpy and pandas\n"
    "  --mirror URL        where Debian's packages are\n"
    "  --security URL      where Debian's security updates are\n"
    "  --refresh           makes it anew, with the newest packages\n"
    "  --json              shows the manifest\n"
    "  --state DIR         the daemon's state folder (CORDON_STATE)\n"
    "  --config FILE       settings\n";

enum { OUT = 1, KERNEL, ADD, MINIMAL, MIRROR, SECURITY, REFRESH, JSON, STATE, CONFIG };

static const struct option options[] = {
    {"out", required_argument, NULL, OUT},
    {"kernel", required_argument, NULL, KERNEL},
    {"add", required_argument, NULL, ADD},
    {"minimal", no_argument, NULL, MINIMAL},
    {"mirror", required_argument, NULL, MIRROR},
    {"security", required_argument, NULL, SECURITY},
    {"refresh", no_argument, NULL, REFRESH},
    {"json", no_argument, NULL, JSON},
    {"state", required_argument, NULL, STATE},
    {"config", required_argument, NULL, CONFIG},
    {"help", no_argument, NULL, 'h'},
    {NULL, 0, NULL, 0},
};

struct arguments {
    char *out; /* the image's folder */
    bool json;
    const char *file;       /* of settings */
    char *state;            /* "CORDON_STATE=DIR" */
    char *words[WORDS_MAX]; /* passed on to the builder */
    size_t count;
    char *made[WORDS_MAX]; /* those that are ours to free */
};

static int pass_on(struct arguments *to, const char *name, const char *value)
{
    char *word = NULL;
    if (to->count + 8 > WORDS_MAX)
        return cordon_cli_usage("image", "more than %d options", WORDS_MAX - 8);
    if (asprintf(&word, value ? "--%s=%s" : "--%s", name, value) < 0)
        return CORDON_EXIT_FAILURE;
    to->made[to->count] = word;
    to->words[to->count++] = word;
    return -1;
}

static int take_option(int option, const char *name, struct arguments *to)
{
    if (option == JSON)
        to->json = true;
    else if (option == CONFIG)
        to->file = optarg;
    else if (option == OUT || option == STATE) {
        char **text = option == OUT ? &to->out : &to->state;
        free(*text);
        *text = NULL;
        if (asprintf(text, option == OUT ? "%s" : "CORDON_STATE=%s", optarg) < 0)
            return CORDON_EXIT_FAILURE;
    } else {
        return pass_on(to, name, optarg);
    }
    return -1;
}

/* -1 to go on, else the exit status. */
static int parse(int argc, char **argv, struct arguments *to)
{
    int index = 0;
    optind = 0;
    opterr = 0;
    for (int option, r; (option = getopt_long(argc, argv, ":h", options, &index)) != -1;) {
        if (option == 'h')
            return fputs(help, stdout) < 0 ? CORDON_EXIT_FAILURE : 0;
        if (option == '?' || option == ':')
            return cordon_cli_bad_option("image", argv, option);
        if ((r = take_option(option, options[index].name, to)) >= 0)
            return r;
    }
    return -1;
}

/* --out, or the default by the settings. */
static int find_folder(struct arguments *arguments, struct cordon_error *err)
{
    const char *const flags[] = {arguments->state, NULL};
    struct cordon_settings *settings = NULL;
    struct cordon_cli_machines machines;
    if (arguments->out)
        return 0;
    int r = cordon_cli_settings(arguments->file, flags, &settings, err);
    if (r == 0)
        r = cordon_cli_machines(settings, &machines, err);
    cordon_settings_free(settings);
    if (r < 0)
        return r;
    arguments->out = strdup(machines.image);
    return arguments->out ? 0 : cordon_fail_errno(err, -ENOMEM, "naming the image");
}

/* --- build --- */

static const struct part {
    const char *name, *data;
    const uint64_t *size;
} parts[] = {
    {"image_build.py", cordon_asset_image_build_py, &cordon_asset_image_build_py_size},
    {"agent", cordon_asset_agent, &cordon_asset_agent_size},
    {"driver.py", cordon_asset_driver_py, &cordon_asset_driver_py_size},
    {"driver.js", cordon_asset_driver_js, &cordon_asset_driver_js_size},
    {"zygote.py", cordon_asset_zygote_py, &cordon_asset_zygote_py_size},
    {"_cordon_zygote.so", cordon_asset_zygote_so, &cordon_asset_zygote_so_size},
};
enum { PARTS = sizeof parts / sizeof *parts };
#define FILTER "filter" /* of the code's system calls, compiled here as the warden does for its guests */

static int write_filter(int folder, struct cordon_error *err)
{
    cordon_autoclose int from = cordon_filter_code(err);
    if (from < 0)
        return from;
    cordon_autoclose int to = openat(folder, FILTER, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    struct stat st;
    off_t at = 0;
    if (to < 0 || fstat(from, &st) < 0 || sendfile(to, from, &at, (size_t)st.st_size) != st.st_size)
        return cordon_fail_errno(err, -errno, "writing the system call filter for the image");
    return 0;
}

static int write_parts(int folder, struct cordon_error *err)
{
    for (size_t i = 0; i < PARTS; i++) {
        cordon_autoclose int fd = openat(folder, parts[i].name, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
        int r = fd < 0 ? -errno : cordon_write_full(fd, parts[i].data, (size_t)*parts[i].size);
        if (r < 0)
            return cordon_fail_errno(err, r, "writing %s for the image", parts[i].name);
    }
    return write_filter(folder, err);
}

static void remove_parts(int folder, const char *path)
{
    for (size_t i = 0; i < PARTS; i++)
        (void)unlinkat(folder, parts[i].name, 0); /* what is left, is in the folder for temporary files */
    (void)unlinkat(folder, FILTER, 0);
    (void)rmdir(path);
}

/* The folders above the image's own, as `mkdir -p`. */
static int make_parents(const char *path, struct cordon_error *err)
{
    char part[4096];
    (void)snprintf(part, sizeof part, "%s", path);
    for (char *slash = strchr(part + 1, '/'); slash; slash = strchr(slash + 1, '/')) {
        *slash = '\0';
        if (mkdir(part, 0700) < 0 && errno != EEXIST)
            return cordon_fail_errno(err, -errno, "making the folder %s", part);
        *slash = '/';
    }
    return 0;
}

static int run_builder(struct arguments *arguments, const char *folder, struct cordon_error *err)
{
    char script[4096], from[4096], to[4200];
    static char python[] = PYTHON, isolated[] = "-I";
    char *argv[WORDS_MAX + 8] = {python, isolated, script, from, to};
    int status = 0;
    (void)snprintf(script, sizeof script, "%s/image_build.py", folder);
    (void)snprintf(from, sizeof from, "--parts=%s", folder);
    (void)snprintf(to, sizeof to, "--out=%s", arguments->out);
    memcpy(argv + 5, arguments->words, arguments->count * sizeof *argv);
    pid_t pid = fork();
    if (pid == 0) {
        (void)prctl(PR_SET_PDEATHSIG, SIGKILL); /* what it leaves then is in its own folder for temporary files */
        (void)execv(python, argv);              /* returns only on failure */
        _exit(127);
    }
    while (pid > 0 && waitpid(pid, &status, 0) < 0 && errno == EINTR)
        continue;
    if (pid < 0 || (WIFEXITED(status) && WEXITSTATUS(status) == 127))
        return cordon_fail(err, -ENOENT, CORDON_ERROR_UNAVAILABLE,
                           "the image is made by " PYTHON
                           ", which can't be started; on Debian: apt-get install python3");
    if (WIFEXITED(status) && WEXITSTATUS(status) == 0)
        return 0;
    return cordon_fail(err, -EIO, CORDON_ERROR_UNAVAILABLE, "the image %s was not made; the reason is above",
                       arguments->out);
}

static int build(struct arguments *arguments, struct cordon_error *err)
{
    const char *temporary = getenv("TMPDIR");
    char path[3000];
    (void)snprintf(path, sizeof path, "%s/cordon-image-XXXXXX", temporary && *temporary == '/' ? temporary : "/tmp");
    int r = make_parents(arguments->out, err);
    if (r < 0)
        return r;
    if (!mkdtemp(path))
        return cordon_fail_errno(err, -errno, "making the folder %s", path);
    cordon_autoclose int folder = open(path, O_PATH | O_DIRECTORY | O_CLOEXEC);
    r = folder < 0 ? cordon_fail_errno(err, -errno, "opening %s", path) : write_parts(folder, err);
    if (r == 0)
        r = run_builder(arguments, path, err);
    remove_parts(folder, path);
    return r;
}

/* --- show --- */

static void show_part(struct cordon_buf *text, const struct cordon_value *manifest, const char *name)
{
    struct cordon_value part, size;
    char file[64], version[200];
    int64_t bytes = 0;
    if (!cordon_value_member(manifest, name, &part) || !cordon_value_member(&part, "size", &size) ||
        !cordon_value_integer(&size, &bytes))
        return;
    (void)cordon_value_text(&part, "file", file, sizeof file);
    (void)cordon_value_text(&part, "version", version, sizeof version);
    (void)cordon_buf_appendf(text, "%-12s %8.1f MB%s%s\n", file, (double)bytes / 1e6, *version ? "  " : "",
                             version); /* sticks in failed */
}

static int show(const struct arguments *arguments, struct cordon_error *err)
{
    static const char *const shown[] = {"kernel", "initrd", "root"};
    char path[4200];
    cordon_autofree char *data = malloc(MANIFEST_MAX);
    struct cordon_value manifest;
    (void)snprintf(path, sizeof path, "%s/manifest.json", arguments->out);
    ssize_t n = data ? cordon_read_file(AT_FDCWD, path, data, MANIFEST_MAX) : -ENOMEM;
    if (n < 0)
        return cordon_fail(err, (int)n, CORDON_ERROR_UNAVAILABLE,
                           "there is no image %s (%s); make it: cordon image build", arguments->out, strerror((int)-n));
    if (cordon_value_parse(data, (size_t)n, &manifest, err) < 0)
        return cordon_fail(err, -EINVAL, CORDON_ERROR_UNAVAILABLE,
                           "%s is no manifest; make the image anew: cordon image build", path);
    struct cordon_buf text = CORDON_BUF_INIT(2 * MANIFEST_MAX);
    if (arguments->json)
        (void)cordon_buf_append(&text, manifest.data, manifest.size); /* sticks in failed */
    else
        (void)cordon_buf_appendf(&text, "%s\n", arguments->out);
    for (size_t i = 0; !arguments->json && i < sizeof shown / sizeof *shown; i++)
        show_part(&text, &manifest, shown[i]);
    if (!arguments->json && text.size)
        text.size--; /* print puts the newline */
    return cordon_cli_print(&text) ? cordon_fail_errno(err, -EIO, "writing what the image is") : 0;
}

int cordon_cli_image(int argc, char **argv)
{
    struct arguments arguments = {0};
    struct cordon_error err = {0};
    bool making = argc > 1 && strcmp(argv[1], "build") == 0, showing = argc > 1 && strcmp(argv[1], "show") == 0;
    int status = making || showing ? parse(argc - 1, argv + 1, &arguments) : parse(argc, argv, &arguments);
    if (status < 0 && !making && !showing)
        status = cordon_cli_usage("image", "say build or show");
    else if (status < 0 && optind < argc - 1)
        status = cordon_cli_usage("image", "no argument \"%.40s\" is known", argv[1 + optind]);
    else if (status < 0 && showing && arguments.count)
        status = cordon_cli_usage("image", "%.40s is an option of build", arguments.words[0]);
    else if (status < 0 && making && arguments.json)
        status = cordon_cli_usage("image", "--json is an option of show");
    if (status < 0) {
        int r = find_folder(&arguments, &err);
        if (r == 0)
            r = making ? build(&arguments, &err) : show(&arguments, &err);
        status = r < 0 ? cordon_cli_fail(&err) : 0;
    }
    for (size_t i = 0; i < arguments.count; i++)
        free(arguments.made[i]);
    free(arguments.out);
    free(arguments.state);
    return status;
}
