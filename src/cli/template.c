/* SPDX-License-Identifier: Apache-2.0 */
/* cordon template: what guests can start from, besides the host's own programs. */
#include "cli/template.h"

#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/fd.h"
#include "base/json.h"
#include "cli/cli.h"
#include "core/state_path.h"
#include "core/template_list.h"

static const char help[] =
    "usage: cordon template create NAME --from LANGUAGE [--pip PACKAGE]... [--npm PACKAGE]... [OPTIONS]\n"
    "       cordon template create NAME --import ROOTFS.tar [OPTIONS]\n"
    "       cordon template rebuild NAME | list [--json] | show NAME [--json] | rm NAME\n"
    "\n"
    "A template is what guests start from: `cordon run --template NAME`, \"template\" of POST /v1/runs.\n"
    "\n"
    "  --from LANGUAGE     python, javascript or bash: the host's programs, with packages beside them\n"
    "  --pip PACKAGE       as pip install takes it, like pymysql or \"pandas==2.2.*\"; may come several times\n"
    "  --npm PACKAGE       as npm install takes it; may come several times\n"
    "  --import FILE       a file tree of its own: a tar, as `docker export` writes it; plain, gzip, bzip2, xz or "
    "zstd\n"
    "  --index-url URL     where pip looks (PIP_INDEX_URL)\n"
    "  --registry URL      where npm looks (NPM_CONFIG_REGISTRY)\n"
    "  --host-network      lets the build use this host's network, loopback too, instead of these alone\n"
    "  --replace           makes a template of that name anew\n"
    "  --json              one object, or a list of them\n"
    "  --state DIR         the daemon's state folder (CORDON_STATE)\n"
    "  --config FILE       settings\n";

enum { FROM = 1, PIP, NPM, IMPORT, INDEX, REGISTRY, NETWORK, REPLACE, JSON, STATE, CONFIG };

static const struct option options[] = {
    {"from", required_argument, NULL, FROM},
    {"pip", required_argument, NULL, PIP},
    {"npm", required_argument, NULL, NPM},
    {"import", required_argument, NULL, IMPORT},
    {"index-url", required_argument, NULL, INDEX},
    {"registry", required_argument, NULL, REGISTRY},
    {"host-network", no_argument, NULL, NETWORK},
    {"replace", no_argument, NULL, REPLACE},
    {"json", no_argument, NULL, JSON},
    {"state", required_argument, NULL, STATE},
    {"config", required_argument, NULL, CONFIG},
    {"help", no_argument, NULL, 'h'},
    {NULL, 0, NULL, 0},
};

struct arguments {
    struct cordon_template_plan plan;
    bool json;
    char *state; /* "CORDON_STATE=DIR" */
};

/* One word, and no option of pip's or npm's. */
static int add_package(struct cordon_packages *to, const char *option, const char *name)
{
    size_t size = strlen(name);
    bool good = size > 0 && size <= 214 && *name != '-';
    for (const char *p = name; good && *p; p++)
        good = *p > ' ' && *p < 127;
    if (!good)
        return cordon_cli_usage("template", "%s \"%.60s\" is no package: one word of up to 214 characters", option,
                                name);
    if (to->count == CORDON_PACKAGES_MAX)
        return cordon_cli_usage("template", "more than %d packages by %s", CORDON_PACKAGES_MAX, option);
    to->items[to->count++] = name;
    return -1;
}

static int take_from(struct arguments *to, const char *language)
{
    static const char *const languages[] = {"python", "javascript", "bash"};
    for (size_t i = 0; i < sizeof languages / sizeof *languages; i++) {
        if (strcmp(languages[i], language) == 0) {
            to->plan.from = languages[i];
            return -1;
        }
    }
    return cordon_cli_usage("template", "--from is python, javascript or bash, not \"%.40s\"", language);
}

/* -1: go on. */
static int take(struct arguments *to, int option)
{
    struct cordon_template_plan *plan = &to->plan;
    switch (option) {
    case FROM:
        return take_from(to, optarg);
    case PIP:
        return add_package(&plan->pip, "--pip", optarg);
    case NPM:
        return add_package(&plan->npm, "--npm", optarg);
    case IMPORT:
        plan->import = optarg;
        return -1;
    case INDEX:
        plan->index_url = optarg;
        return -1;
    case REGISTRY:
        plan->registry = optarg;
        return -1;
    case NETWORK:
        plan->host_network = true;
        return -1;
    case REPLACE:
        plan->replace = true;
        return -1;
    case JSON:
        to->json = true;
        return -1;
    case CONFIG:
        plan->config = optarg;
        return -1;
    default:
        free(to->state);
        if (asprintf(&to->state, "CORDON_STATE=%s", optarg) < 0)
            to->state = NULL;
        return to->state ? -1 : CORDON_EXIT_FAILURE;
    }
}

static int parse(int argc, char **argv, struct arguments *ret)
{
    optind = 0;
    opterr = 0;
    for (int option; (option = getopt_long(argc, argv, ":h", options, NULL)) != -1;) {
        if (option == 'h')
            return fputs(help, stdout) < 0 ? CORDON_EXIT_FAILURE : 0;
        int status =
            option == '?' || option == ':' ? cordon_cli_bad_option("template", argv, option) : take(ret, option);
        if (status >= 0)
            return status;
    }
    return -1;
}

/* --- the folder --- */

static int open_folder(const struct cordon_settings *settings, struct cordon_error *err)
{
    char path[4096 + sizeof CORDON_TEMPLATES_FOLDER];
    int r = cordon_state_path(settings, path, sizeof path - sizeof CORDON_TEMPLATES_FOLDER, err);
    if (r < 0)
        return r;
    memcpy(path + strlen(path), CORDON_TEMPLATES_FOLDER, sizeof CORDON_TEMPLATES_FOLDER);
    return cordon_template_folder_open(AT_FDCWD, path, err);
}

static int not_there(const char *name, struct cordon_error *err)
{
    return cordon_fail(err, -ENOENT, CORDON_ERROR_NOT_FOUND, "there is no template %s (see cordon template list)",
                       name);
}

/* --- list, show --- */

static void describe(const char *name, const struct cordon_template_header *header, struct cordon_buf *to)
{
    char hex[65], when[32] = "";
    struct tm at;
    time_t created = (time_t)header->created_s;
    if (gmtime_r(&created, &at))
        (void)strftime(when, sizeof when, "%Y-%m-%d %H:%M UTC", &at); /* fits */
    cordon_template_hex(header->digest, hex);
    (void)cordon_buf_appendf(to,
                             "name     %s\nfrom     %s\nbase     %s\nmade     %s\narchive  %llu bytes\ndigest   %s\n",
                             name, header->kind == CORDON_TEMPLATE_ROOTFS ? "a file tree of its own" : header->from,
                             *header->base ? header->base : "-", when, (unsigned long long)header->payload_bytes,
                             hex); /* sticky in failed */
    for (const char *line = header->recipe; *line;) {
        size_t length = strcspn(line, "\n");
        (void)cordon_buf_appendf(to, "%.*s\n", (int)length, line); /* sticky in failed */
        line += length + (line[length] == '\n');
    }
    if (to->size && to->data[to->size - 1] == '\n')
        to->size--; /* the printer adds one */
}

static int show(int folder, const char *name, bool json, struct cordon_error *err)
{
    static struct cordon_template_header header;
    struct cordon_buf text = CORDON_BUF_INIT(1u << 20);
    struct cordon_json writer = {.buf = &text};
    int r = cordon_template_read(folder, name, true, &header, err);
    if (r < 0)
        return r;
    if (json)
        cordon_template_write(name, &header, &writer);
    else
        describe(name, &header, &text);
    return cordon_cli_print(&text) ? cordon_fail_errno(err, -EIO, "write to stdout") : 0;
}

struct listing {
    bool json;
    struct cordon_json writer;
};

static void list_one(void *context, const char *name, const struct cordon_template_header *header,
                     const struct cordon_error *why)
{
    struct listing *listing = context;
    struct cordon_buf *text = listing->writer.buf;
    if (!header)
        (void)fprintf(stderr, "cordon: %s\n", why->message); /* the others are listed all the same */
    else if (listing->json)
        cordon_template_write(name, header, &listing->writer);
    else
        (void)cordon_buf_appendf(text, "%s%-24s %-10s %6llu MiB", text->size ? "\n" : "", name,
                                 header->kind == CORDON_TEMPLATE_ROOTFS ? "rootfs" : header->from,
                                 (unsigned long long)(header->payload_bytes >> 20)); /* sticky in failed */
}

static int list(int folder, bool json, struct cordon_error *err)
{
    struct cordon_buf text = CORDON_BUF_INIT(16u << 20);
    struct listing listing = {.json = json, .writer = {.buf = &text}};
    if (json)
        cordon_json_array_begin(&listing.writer);
    int r = folder < 0 ? 0 : cordon_templates_each(folder, list_one, &listing, err);
    if (json)
        cordon_json_array_end(&listing.writer);
    if (r < 0 || (!json && !text.size)) {
        cordon_buf_done(&text);
        return r;
    }
    return cordon_cli_print(&text) ? cordon_fail_errno(err, -EIO, "write to stdout") : 0;
}

/* --- rm, create, rebuild --- */

static int remove_one(int folder, const char *name, struct cordon_error *err)
{
    char file[CORDON_TEMPLATE_NAME + sizeof CORDON_TEMPLATE_ENDING];
    (void)snprintf(file, sizeof file, "%s" CORDON_TEMPLATE_ENDING, name); /* fits: it is a valid one */
    if (unlinkat(folder, file, 0) == 0)
        return 0;
    return errno == ENOENT ? not_there(name, err) : cordon_fail_errno(err, -errno, "remove template %s", name);
}

static int create(const struct cordon_settings *settings, const struct cordon_template_plan *plan,
                  struct cordon_error *err)
{
    int r = cordon_template_create(settings, plan, err);
    if (r < 0)
        return r;
    (void)fprintf(stderr, r ? "cordon: template %s is there, made of just this\n" : "cordon: template %s is made\n",
                  plan->name); /* nobody to tell */
    return 0;
}

/* The recipe's lines become words again, in place. */
static int read_recipe(struct cordon_template_header *header, struct cordon_template_plan *plan,
                       struct cordon_error *err)
{
    char *rest = header->recipe;
    for (char *line; (line = strsep(&rest, "\n")) && *line;) {
        struct cordon_packages *to = strncmp(line, "pip ", 4) == 0   ? &plan->pip
                                     : strncmp(line, "npm ", 4) == 0 ? &plan->npm
                                                                     : NULL;
        if (!to || to->count == CORDON_PACKAGES_MAX)
            return cordon_fail(err, -EINVAL, CORDON_ERROR_INVALID,
                               "template %s was not built of packages: import its file tree again", plan->name);
        to->items[to->count++] = line + 4;
    }
    plan->from = header->from;
    plan->replace = true;
    return 0;
}

static int rebuild(const struct cordon_settings *settings, int folder, struct cordon_template_plan *plan,
                   struct cordon_error *err)
{
    static struct cordon_template_header header;
    int r = cordon_template_read(folder, plan->name, false, &header, err);
    if (r == 0)
        r = read_recipe(&header, plan, err);
    return r < 0 ? r : create(settings, plan, err);
}

static int check_plan(const struct cordon_template_plan *plan)
{
    if (!plan->from == !plan->import)
        return cordon_cli_usage("template", "give --from LANGUAGE or --import FILE, one of both");
    if (plan->import && (plan->pip.count || plan->npm.count))
        return cordon_cli_usage("template", "packages go with --from, not with --import");
    if (plan->from && !plan->pip.count && !plan->npm.count)
        return cordon_cli_usage("template", "no packages: give some by --pip or --npm");
    return -1;
}

static int check_name(const char *action, const char *name)
{
    if (!cordon_template_name_valid(name))
        return cordon_cli_usage(
            "template",
            "\"%.60s\" is no name: 1 to %d of a-z, 0-9, \".\", \"_\", \"-\", beginning with a letter "
            "or digit",
            name, CORDON_TEMPLATE_NAME - 1);
    if (cordon_template_is_default(name))
        return cordon_cli_usage("template", "%s is the built-in template, which %s does not know", name, action);
    return -1;
}

static int act(struct arguments *arguments, const struct cordon_settings *settings, const char *action,
               struct cordon_error *err)
{
    struct cordon_template_plan *plan = &arguments->plan;
    if (strcmp(action, "create") == 0)
        return create(settings, plan, err);
    cordon_autoclose int folder = open_folder(settings, err);
    bool listing = strcmp(action, "list") == 0;
    if (folder == -ENOENT && !listing)
        return not_there(plan->name, err);
    if (folder < 0 && folder != -ENOENT)
        return folder;
    if (listing)
        return list(folder, arguments->json, err);
    if (strcmp(action, "show") == 0)
        return show(folder, plan->name, arguments->json, err);
    return strcmp(action, "rm") == 0 ? remove_one(folder, plan->name, err) : rebuild(settings, folder, plan, err);
}

static int run_command(struct arguments *arguments, int argc, char **argv)
{
    static const char *const actions[] = {"create", "rebuild", "show", "rm", "list"};
    struct cordon_settings *settings = NULL;
    struct cordon_error err = {0};
    const char *action = argc ? argv[0] : "";
    size_t known = 0;
    while (known < 5 && strcmp(actions[known], action) != 0)
        known++;
    if (known == 5 || argc != (known == 4 ? 1 : 2))
        return cordon_cli_usage("template", "give create, rebuild, show or rm and one name, or list");
    int status = known == 4 ? -1 : check_name(action, argv[1]);
    if (status < 0 && known == 0)
        status = check_plan(&arguments->plan);
    if (status >= 0)
        return status;
    arguments->plan.name = argv[1];
    const char *flags[] = {arguments->state, NULL};
    int r = cordon_cli_settings(arguments->plan.config, flags, &settings, &err);
    if (r == 0)
        r = act(arguments, settings, action, &err);
    cordon_settings_free(settings);
    return r < 0 ? cordon_cli_fail(&err) : 0;
}

int cordon_cli_template(int argc, char **argv)
{
    struct arguments arguments = {.json = false};
    int status = parse(argc, argv, &arguments);
    if (status < 0)
        status = run_command(&arguments, argc - optind, argv + optind);
    free(arguments.state);
    return status;
}
