/* SPDX-License-Identifier: Apache-2.0 */
/* A request's memory, its limits from the settings, and the bounds that hold for every request, however it came. */
#include "core/request.h"

#include <ctype.h>
#include <errno.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "core/egress.h"
#include "core/template.h"
#include "core/value.h"

#define MIB (1024ull * 1024)
#define BLOCK_SIZE 16384

/* The arena: a list of blocks; what is larger than a block gets one of its own. */
struct block {
    struct block *next;
    size_t used, size;
    char data[] __attribute__((aligned(16)));
};

static struct block *block_new(size_t size, struct block *next)
{
    struct block *block = calloc(1, sizeof *block + size);
    if (block) {
        block->size = size;
        block->next = next;
    }
    return block;
}

void *cordon_run_request_alloc(struct cordon_run_request *request, size_t size)
{
    if (size > SIZE_MAX / 2)
        return NULL;
    size = (size + 15) & ~(size_t)15;
    struct block *top = request->arena;
    if (!top || top->size - top->used < size) {
        struct block *block = block_new(size > BLOCK_SIZE / 4 ? size : BLOCK_SIZE, top);
        if (!block)
            return NULL;
        if (block->size == size && top) { /* full at once: keep filling the old one */
            block->next = top->next;
            top->next = block;
            block->used = size;
            return block->data;
        }
        request->arena = top = block;
    }
    top->used += size;
    return top->data + top->used - size;
}

void cordon_run_request_done(struct cordon_run_request *request)
{
    struct block *block = request->arena;
    for (size_t i = 0; block && i < request->header_count; i++)
        explicit_bzero((void *)(uintptr_t)request->headers[i], strlen(request->headers[i]));
    request->header_count = 0;
    while (block) {
        struct block *next = block->next;
        free(block);
        block = next;
    }
    request->arena = NULL;
}

static uint64_t number(const struct cordon_settings *settings, enum cordon_door door, enum cordon_setting id)
{
    return (uint64_t)cordon_settings_int(settings, door, id);
}

/* The largest time limit of a request. The executor manager's own longer default raises it for that door, unless the
 * largest is set too (loading has made sure that all else agrees). */
static uint64_t max_timeout_s(const struct cordon_settings *settings, enum cordon_door door)
{
    uint64_t most = number(settings, door, CORDON_SET_MAX_TIMEOUT_S),
             usual = number(settings, door, CORDON_SET_TIMEOUT_S);
    bool set = cordon_settings_source(settings, CORDON_SET_MAX_TIMEOUT_S) != CORDON_SOURCE_DEFAULT;
    return set || usual < most ? most : usual;
}

static uint64_t least(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

static struct cordon_limits usual_limits(const struct cordon_settings *s, enum cordon_door door)
{
    return (struct cordon_limits){
        .timeout_ms = 1000 * least(number(s, door, CORDON_SET_TIMEOUT_S), max_timeout_s(s, door)),
        .cpu_ms = 1000 * number(s, door, CORDON_SET_CPU_S),
        .memory_bytes = MIB * least(number(s, door, CORDON_SET_MEMORY_MB), number(s, door, CORDON_SET_MAX_MEMORY_MB)),
        .disk_bytes = MIB * number(s, door, CORDON_SET_DISK_MB),
        .disk_inodes = number(s, door, CORDON_SET_DISK_INODES),
        .stdout_bytes = 1024 * number(s, door, CORDON_SET_STDOUT_KB),
        .stderr_bytes = 1024 * number(s, door, CORDON_SET_STDERR_KB),
        .output_kill_bytes = MIB * number(s, door, CORDON_SET_OUTPUT_KILL_MB),
        .artifact_bytes = MIB * number(s, door, CORDON_SET_ARTIFACT_MB),
        .artifacts_bytes = MIB * number(s, door, CORDON_SET_ARTIFACTS_MB),
        .artifacts = (uint32_t)number(s, door, CORDON_SET_ARTIFACTS),
        .pids = (uint32_t)number(s, door, CORDON_SET_PIDS),
        .open_files = (uint32_t)number(s, door, CORDON_SET_OPEN_FILES),
        .cpu_percent = (uint32_t)number(s, door, CORDON_SET_CPU_PERCENT),
    };
}

void cordon_run_request_init(const struct cordon_settings *settings, enum cordon_door door,
                             struct cordon_run_request *ret)
{
    *ret = (struct cordon_run_request){
        .door = door,
        .request = {.struct_size = sizeof ret->request, .limits = usual_limits(settings, door), .cancel_fd = -1},
    };
    if (door == CORDON_DOOR_LANGFLOW) /* whose setting gives the network, and does not only allow it */
        ret->request.network = cordon_settings_bool(settings, door, CORDON_SET_ALLOW_NETWORK);
}

const char *cordon_language_find(const char *name)
{
    static const struct {
        const char *name, *language;
    } names[] = {
        {"python", "python"},         {"py", "python"},     {"python3", "python"},
        {"javascript", "javascript"}, {"js", "javascript"}, {"node", "javascript"},
        {"nodejs", "javascript"},     {"bash", "bash"},     {"sh", "bash"},
    };
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (strcasecmp(names[i].name, name) == 0)
            return names[i].language;
    return NULL;
}

bool cordon_request_blank(const struct cordon_request *request)
{
    for (size_t i = 0; i < request->code.size; i++)
        if (!isspace((unsigned char)request->code.data[i]))
            return false;
    return true;
}

static int invalid(struct cordon_error *err, const char *fmt, ...) CORDON_PRINTF(2, 3);
static int invalid(struct cordon_error *err, const char *fmt, ...)
{
    char text[sizeof err->message];
    va_list ap;
    va_start(ap, fmt);
    (void)vsnprintf(text, sizeof text, fmt, ap); /* cut at the message's size on purpose */
    va_end(ap);
    return cordon_fail(err, -EINVAL, CORDON_ERROR_INVALID, "%s", text);
}

static int check_template(const struct cordon_request *request, struct cordon_error *err)
{
    if (!request->template_name || cordon_template_name_valid(request->template_name))
        return 0;
    return invalid(err,
                   "template \"%.60s\" is no name: 1 to %d of a-z, 0-9, \".\", \"_\" and \"-\" are, beginning with a "
                   "letter or digit",
                   request->template_name, CORDON_TEMPLATE_NAME - 1);
}

static int check_program(const struct cordon_settings *settings, const struct cordon_run_request *run,
                         struct cordon_error *err)
{
    const struct cordon_request *request = &run->request;
    uint64_t most = 1024 * number(settings, run->door, CORDON_SET_CODE_KB);
    const char *language = request->language ? cordon_language_find(request->language) : NULL;
    struct cordon_value arguments;
    if (!language || strcmp(language, request->language) != 0)
        return invalid(err, "language \"%.40s\" is not known: python, javascript and bash are",
                       request->language ? request->language : "");
    if (request->code.size > most)
        return cordon_fail(err, -EMSGSIZE, CORDON_ERROR_TOO_LARGE, "code has %zu bytes, more than %s allows (%llu KiB)",
                           request->code.size, cordon_settings_name(run->door, CORDON_SET_CODE_KB),
                           (unsigned long long)(most / 1024));
    if (!request->arguments.data)
        return 0;
    int r = cordon_value_parse(request->arguments.data, request->arguments.size, &arguments, err);
    if (r < 0) {
        cordon_error_context(err, "arguments");
        return r;
    }
    if (arguments.kind != CORDON_VALUE_OBJECT)
        return invalid(err, "arguments must be an object (main's arguments by name), not %s",
                       cordon_value_kind_name(arguments.kind));
    return 0;
}

/* Names that change how programs start, load code or resolve names (any case). */
static const char *const dangerous_names[] = {
    "LD_PRELOAD",
    "LD_LIBRARY_PATH",
    "LD_AUDIT",
    "LD_BIND_NOW",
    "LD_DEBUG",
    "LD_DEBUG_OUTPUT",
    "LD_USE_LOAD_BIAS",
    "LD_PROFILE",
    "LD_ORIGIN_PATH",
    "LD_AOUT_LIBRARY_PATH",
    "LD_AOUT_PRELOAD",
    "GLIBC_TUNABLES",
    "NODE_OPTIONS",
    "NODE_REPL_HISTORY",
    "PYTHONPATH",
    "PYTHONINSPECT",
    "PYTHONWARNINGS",
    "PYTHONSTARTUP",
    "PYTHONHOME",
    "BASH_ENV",
    "ENV",
    "PROMPT_COMMAND",
    "IFS",
    "CDPATH",
    "PS4",
    "PATH",
    "GCONV_PATH",
    "HOSTALIASES",
    "LOCPATH",
    "NLSPATH",
    "RESOLV_HOST_CONF",
    "RES_OPTIONS",
    "TMPDIR",
    "TZDIR",
    "MALLOC_CHECK_",
    "MALLOC_TRACE",
    "MALLOC_PERTURB_",
};

static bool dangerous(const char *pair, size_t name_size)
{
    for (size_t i = 0; i < sizeof dangerous_names / sizeof *dangerous_names; i++)
        if (strlen(dangerous_names[i]) == name_size && strncasecmp(dangerous_names[i], pair, name_size) == 0)
            return true;
    return false;
}

static bool env_name_valid(const char *name, size_t size)
{
    if (!size || size > CORDON_ENV_NAME_MAX || isdigit((unsigned char)*name))
        return false;
    for (size_t i = 0; i < size; i++)
        if (!isalnum((unsigned char)name[i]) && name[i] != '_')
            return false;
    return true;
}

static int check_env_pair(const char *pair, struct cordon_error *err)
{
    const char *equals = strchr(pair, '=');
    size_t size = equals ? (size_t)(equals - pair) : strlen(pair);
    if (!equals || !env_name_valid(pair, size))
        return invalid(err,
                       "env: \"%.*s\" is no name: letters, digits and _ are, not beginning with a digit, at most %d",
                       (int)least(size, 80), pair, CORDON_ENV_NAME_MAX);
    if (strlen(equals + 1) > CORDON_ENV_VALUE_MAX)
        return invalid(err, "env: the value of %.80s has more than %d bytes", pair, CORDON_ENV_VALUE_MAX);
    return 0;
}

static bool env_repeated(const struct cordon_request *request, size_t i)
{
    size_t size = strcspn(request->env[i], "=") + 1;
    for (size_t j = 0; j < i; j++)
        if (strncmp(request->env[i], request->env[j], size) == 0)
            return true;
    return false;
}

static int check_env(const struct cordon_request *request, struct cordon_error *err)
{
    char refused[256] = "";
    size_t used = 0;
    if (request->env_count > CORDON_ENV_MAX)
        return invalid(err, "env has %zu entries, at most %d are allowed", request->env_count, CORDON_ENV_MAX);
    for (size_t i = 0; i < request->env_count; i++) {
        size_t size = strcspn(request->env[i], "=");
        int r = check_env_pair(request->env[i], err);
        if (r < 0)
            return r;
        if (env_repeated(request, i))
            return invalid(err, "env: %.*s is given twice", (int)size, request->env[i]);
        if (dangerous(request->env[i], size) && used < sizeof refused)
            used += (size_t)snprintf(refused + used, sizeof refused - used, "%s%.*s", used ? ", " : "", (int)size,
                                     request->env[i]);
    }
    if (used)
        return invalid(err, "env: %s may not be set: it changes how programs start or find their parts", refused);
    return 0;
}

static int check_path(const char *path, struct cordon_error *err)
{
    size_t size = strlen(path);
    if (!size || size > CORDON_PATH_LENGTH_MAX)
        return invalid(err, "files: a path has %zu bytes; 1 to %d are allowed", size, CORDON_PATH_LENGTH_MAX);
    if (path[size - 1] == '/')
        return invalid(err, "files: \"%.100s\" names a folder, not a file", path);
    for (const char *p = path; *p;) {
        size_t part = strcspn(p, "/");
        if (part > 255)
            return invalid(err, "files: \"%.100s\" has a name of more than 255 bytes in it", path);
        if (part == 2 && p[0] == '.' && p[1] == '.')
            return invalid(err, "files: \"%.100s\" has a `..` in it", path);
        if (part == 1 && p[0] == '.' && !p[1])
            return invalid(err, "files: \"%.100s\" names a folder, not a file", path);
        p += part + (p[part] == '/');
    }
    return 0;
}

static int compare_paths(const void *a, const void *b)
{
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

static int check_paths_differ(const struct cordon_request *request, struct cordon_error *err)
{
    const char *paths[CORDON_FILES_MAX];
    for (size_t i = 0; i < request->file_count; i++)
        paths[i] = request->files[i].path;
    qsort(paths, request->file_count, sizeof *paths, compare_paths);
    for (size_t i = 1; i < request->file_count; i++)
        if (strcmp(paths[i - 1], paths[i]) == 0)
            return invalid(err, "files: \"%.100s\" is given twice", paths[i]);
    return 0;
}

static int check_files(const struct cordon_request *request, struct cordon_error *err)
{
    uint64_t total = 0;
    if (request->file_count > CORDON_FILES_MAX)
        return invalid(err, "files has %zu entries, at most %d are allowed", request->file_count, CORDON_FILES_MAX);
    for (size_t i = 0; i < request->file_count; i++) {
        int r = check_path(request->files[i].path, err);
        if (r < 0)
            return r;
        if (request->files[i].mode > 0777)
            return invalid(err, "files: the mode of \"%.100s\" is %o; permission bits up to 777 are allowed",
                           request->files[i].path, request->files[i].mode);
        total += request->files[i].content.size;
    }
    if (total > request->limits.disk_bytes)
        return cordon_fail(err, -EMSGSIZE, CORDON_ERROR_TOO_LARGE,
                           "files hold %llu bytes, more than the run's disk_mb allows (%llu MiB)",
                           (unsigned long long)total, (unsigned long long)(request->limits.disk_bytes / MIB));
    return check_paths_differ(request, err);
}

/* Each by the grammar of egress rules, and none against another. */
static int check_domains(const struct cordon_request *request, struct cordon_error *err)
{
    struct cordon_egress_policy policy = CORDON_EGRESS_POLICY_OFF;
    int r = 0;
    if (request->allowed_domain_count > CORDON_DOMAINS_MAX)
        return invalid(err, "allowed_domains has %zu entries, at most %d are allowed", request->allowed_domain_count,
                       CORDON_DOMAINS_MAX);
    for (size_t i = 0; r == 0 && i < request->allowed_domain_count; i++)
        r = cordon_egress_policy_add(&policy, request->allowed_domains[i], err);
    if (r < 0)
        cordon_error_context(err, "allowed_domains");
    cordon_egress_policy_done(&policy);
    return r;
}

/* Their form, and whether the rules allow their hosts. */
static int check_headers(const struct cordon_settings *settings, const struct cordon_run_request *run,
                         struct cordon_error *err)
{
    struct cordon_egress_policy policy = CORDON_EGRESS_POLICY_OFF;
    int r = run->header_count
                ? cordon_egress_policy_for(settings, run->door, run->request.network, run->request.allowed_domains,
                                           run->request.allowed_domain_count, &policy, err)
                : 0;
    if (r == 0)
        r = cordon_egress_policy_add_headers(&policy, settings, run->door, run->headers, run->header_count, err);
    if (r < 0)
        cordon_error_context(err, "egress_headers");
    cordon_egress_policy_done(&policy);
    return r;
}

static int check_limits(const struct cordon_settings *settings, const struct cordon_run_request *run,
                        struct cordon_error *err)
{
    const struct cordon_limits *limits = &run->request.limits;
    uint64_t timeout_s = max_timeout_s(settings, run->door);
    uint64_t memory_mb = number(settings, run->door, CORDON_SET_MAX_MEMORY_MB);
    uint64_t disk_mb = number(settings, run->door, CORDON_SET_DISK_MB);
    if (disk_mb < memory_mb)
        disk_mb = memory_mb; /* private files are memory, so that limit holds them */
    if (!limits->timeout_ms || limits->timeout_ms > 1000 * timeout_s)
        return invalid(err, "timeout_s is %.10g: more than 0 and at most %llu (%s) is allowed",
                       (double)limits->timeout_ms / 1000, (unsigned long long)timeout_s,
                       cordon_settings_name(CORDON_DOOR_NATIVE, CORDON_SET_MAX_TIMEOUT_S));
    if (limits->memory_bytes < 16 * MIB || limits->memory_bytes > memory_mb * MIB)
        return invalid(err, "memory_mb is %llu: 16 to %llu (%s) is allowed",
                       (unsigned long long)(limits->memory_bytes / MIB), (unsigned long long)memory_mb,
                       cordon_settings_name(CORDON_DOOR_NATIVE, CORDON_SET_MAX_MEMORY_MB));
    if (limits->cpu_ms > 86400000)
        return invalid(err, "cpu_s is %.10g: 0 (no limit) to 86400 is allowed", (double)limits->cpu_ms / 1000);
    if (limits->disk_bytes < MIB || limits->disk_bytes > disk_mb * MIB)
        return invalid(err, "disk_mb is %llu: 1 to %llu (the larger of %s and %s) is allowed",
                       (unsigned long long)(limits->disk_bytes / MIB), (unsigned long long)disk_mb,
                       cordon_settings_name(run->door, CORDON_SET_DISK_MB),
                       cordon_settings_name(CORDON_DOOR_NATIVE, CORDON_SET_MAX_MEMORY_MB));
    return 0;
}

int cordon_run_request_check(const struct cordon_settings *settings, const struct cordon_run_request *request,
                             struct cordon_error *err)
{
    int r = check_program(settings, request, err);
    if (r == 0)
        r = check_limits(settings, request, err);
    if (r == 0)
        r = check_template(&request->request, err);
    if (r == 0)
        r = check_env(&request->request, err);
    if (r == 0)
        r = check_files(&request->request, err);
    if (r == 0)
        r = check_domains(&request->request, err);
    return r < 0 ? r : check_headers(settings, request, err);
}
