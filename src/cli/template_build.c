/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Building: what is installed comes out of a guest of its own as a tar on its stdout, and goes into the file as it is;
 * nothing here looks at it. Its network is the egress process's, to the package registries and the sources that the
 * operator names, or by --host-network the host's own. Trying: a warden that is given the file starts a guest from it,
 * as a daemon would.
 */
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "backend/builtin.h"
#include "base/buf.h"
#include "base/clock.h"
#include "base/fd.h"
#include "cli/oneshot.h"
#include "cli/template.h"
#include "core/registry.h"
#include "core/run.h"

#define LOAD_US UINT64_C(300000000)

/* Installed below a folder that is later laid over the root: pip's --root and npm's prefix put everything where the
 * interpreters look anyway. */
static const char script[] =
    "set -eu\n"
    "exec 3>&1 1>&2\n"
    "layer=$PWD/layer\n"
    "certificates=/etc/ssl/certs/ca-certificates.crt\n" /* what this host trusts, its own authorities too */
    "[ ! -r $certificates ] || export PIP_CERT=$certificates NODE_EXTRA_CA_CERTS=$certificates\n"
    "mkdir -p \"$layer/usr/local/bin\" \"$layer/usr/local/lib\"\n"
    "if [ -s pip.txt ]; then\n"
    "  \"$CORDON_PYTHON_PATH\" -m pip install --no-input --no-cache-dir --disable-pip-version-check --progress-bar off "
    "\\\n"
    "    --no-warn-script-location --root \"$layer\" -r pip.txt\n"
    "fi\n"
    "if [ -s npm.txt ]; then\n"
    "  mapfile -t packages <npm.txt\n"
    "  npm install --global --prefix \"$layer/usr/local\" --cache /tmp/npm --no-audit --no-fund \\\n"
    "    --no-update-notifier -- \"${packages[@]}\"\n"
    "fi\n"
    "tar --create --file - --format pax --sort name --owner 0 --group 0 --numeric-owner -C \"$layer\" . >&3\n";

/* Of the environment of the command: where packages come from. */
static const char *const passed[] = {"PIP_INDEX_URL",    "PIP_EXTRA_INDEX_URL",
                                     "PIP_TRUSTED_HOST", "NPM_CONFIG_REGISTRY",
                                     "HTTPS_PROXY",      "HTTP_PROXY",
                                     "NO_PROXY",         "https_proxy",
                                     "http_proxy",       "no_proxy"};

#define FLAGS 22
#define FLAG_SIZE 128

/* The settings of a build are its own: what limits users' runs would be too little for it. */
struct build_settings {
    char text[FLAGS][FLAG_SIZE];
    char *flags[FLAGS + 1];
    size_t count;
    char *state;
    struct cordon_settings *settings;
};

static void add(struct build_settings *to, const char *name, unsigned long long value)
{
    (void)snprintf(to->text[to->count], FLAG_SIZE, "%s=%llu", name, value); /* fits */
    to->flags[to->count] = to->text[to->count];
    to->count++;
}

static unsigned long long at_most(unsigned long long value, unsigned long long most)
{
    return value < most ? value : most;
}

static int open_settings(const struct cordon_settings *settings, const char *config, struct build_settings *ret,
                         struct cordon_error *err)
{
    unsigned long long size_mb =
        (unsigned long long)cordon_settings_int(settings, CORDON_DOOR_NATIVE, CORDON_SET_TEMPLATE_MB);
    unsigned long long seconds =
        (unsigned long long)cordon_settings_int(settings, CORDON_DOOR_NATIVE, CORDON_SET_TEMPLATE_BUILD_S);
    unsigned long long memory_mb = at_most(2 * size_mb + 1024, 1048576);
    long cpus = sysconf(_SC_NPROCESSORS_ONLN);
    *ret = (struct build_settings){0};
    add(ret, "CORDON_MAX_MEMORY_MB", memory_mb);
    add(ret, "CORDON_MEMORY_MB", memory_mb);
    add(ret, "CORDON_DISK_MB", at_most(2 * size_mb, 1048576));
    add(ret, "CORDON_DISK_INODES", at_most(512 * size_mb + 4096, 10000000));
    add(ret, "CORDON_MAX_TIMEOUT_S", seconds);
    add(ret, "CORDON_TIMEOUT_S", seconds);
    add(ret, "CORDON_PIDS", 1024);
    add(ret, "CORDON_OPEN_FILES", 4096);
    add(ret, "CORDON_CPU_PERCENT", at_most(cpus > 0 ? 100 * (unsigned long long)cpus : 100, 100000));
    add(ret, "CORDON_STDOUT_KB", at_most(1024 * size_mb, 1048576));
    add(ret, "CORDON_OUTPUT_KILL_MB", size_mb);
    add(ret, "CORDON_TEMPLATE_MB", size_mb);
    const char *state = cordon_settings_string(settings, CORDON_DOOR_NATIVE, CORDON_SET_STATE);
    if (asprintf(&ret->state, "CORDON_STATE=%s", state) < 0) {
        ret->state = NULL;
        return cordon_fail_errno(err, -ENOMEM, "prepare the build");
    }
    ret->flags[ret->count++] = ret->state;
    static char backend[] = "CORDON_BACKEND=local", isolation[] = "CORDON_MIN_ISOLATION=namespace";
    /* What runs may reach is no limit of what the operator builds. */
    static char network[] = "CORDON_ALLOW_NETWORK=true", domains[] = "CORDON_ALLOWED_DOMAINS=";
    ret->flags[ret->count++] = backend;
    ret->flags[ret->count++] = isolation;
    ret->flags[ret->count++] = network;
    ret->flags[ret->count++] = domains;
    const struct cordon_settings_input input = {.file = config, .flags = (const char *const *)ret->flags};
    return cordon_settings_load(&input, &ret->settings, err);
}

static void close_settings(struct build_settings *settings)
{
    cordon_settings_free(settings->settings);
    free(settings->state);
}

/* --- one run --- */

static volatile sig_atomic_t cancel_socket = -1;

static void on_interrupt(int number)
{
    int saved = errno;
    (void)number;
    if (cancel_socket >= 0)
        (void)shutdown(cancel_socket, SHUT_WR);
    errno = saved;
}

struct sink {
    int file; /* -1: stdout is not kept */
    uint64_t at, most;
    bool quiet;
    struct cordon_outcome outcome;
    bool ended;
};

/* What packages print while they are installed is nobody's: nothing of it may steer a terminal. */
static void show(const struct cordon_bytes *data)
{
    for (size_t i = 0; i < data->size; i++) {
        unsigned char c = (unsigned char)data->data[i];
        (void)fputc(c == '\n' || c == '\t' || (c >= ' ' && c < 127) ? c : '?', stderr); /* nobody to tell */
    }
}

static int keep(struct sink *sink, const struct cordon_bytes *data, struct cordon_error *err)
{
    if (sink->file < 0)
        return 0;
    if (data->size > sink->most - sink->at)
        return cordon_fail(err, -EFBIG, CORDON_ERROR_TOO_LARGE,
                           "what was installed is larger than CORDON_TEMPLATE_MB allows");
    for (size_t done = 0; done < data->size;) {
        ssize_t n = pwrite(sink->file, data->data + done, data->size - done,
                           (off_t)(CORDON_TEMPLATE_PAYLOAD + sink->at + done));
        if (n < 0 && errno != EINTR)
            return cordon_fail_errno(err, -errno, "write the template's file");
        done += n > 0 ? (size_t)n : 0;
    }
    sink->at += data->size;
    return 0;
}

static int take_event(struct sink *sink, const struct cordon_event *event, struct cordon_error *err)
{
    if (event->type == CORDON_EVENT_STDOUT)
        return keep(sink, &event->data, err);
    if (event->type == CORDON_EVENT_STDERR && !sink->quiet)
        show(&event->data);
    if (event->type == CORDON_EVENT_OUTCOME) {
        sink->outcome = *event->outcome;
        sink->ended = true;
    }
    return 0;
}

static int follow(const struct cordon_settings *settings, struct cordon_run_request *request, struct sink *sink,
                  struct cordon_error *err)
{
    struct cordon_event event;
    struct cordon_live *live = NULL;
    int cancel[2];
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, cancel) < 0)
        return cordon_fail_errno(err, -errno, "prepare the run");
    struct sigaction action = {.sa_handler = on_interrupt, .sa_flags = SA_RESTART};
    cancel_socket = cancel[1];
    (void)sigaction(SIGINT, &action, NULL); /* can't fail for these */
    (void)sigaction(SIGTERM, &action, NULL);
    request->request.cancel_fd = cancel[0];
    int r = cordon_live_open(settings, request, &live, err), got = 1;
    while (r == 0 && (got = cordon_live_next(live, &event, err)) > 0)
        r = take_event(sink, &event, err);
    cordon_live_close(live);
    cancel_socket = -1;
    cordon_close(&cancel[0]);
    cordon_close(&cancel[1]);
    return r < 0 ? r : got;
}

static int judge(const struct sink *sink, const char *what, struct cordon_error *err)
{
    const struct cordon_outcome *outcome = &sink->outcome;
    if (sink->ended && outcome->cause == CORDON_CAUSE_EXITED && outcome->exit_code == 0)
        return 0;
    if (outcome->cause == CORDON_CAUSE_CANCELLED)
        return cordon_fail(err, -ECANCELED, CORDON_ERROR_CANCELLED, "%s: interrupted", what);
    return cordon_fail(err, -EIO, CORDON_ERROR_INFRASTRUCTURE, "%s: %s%s (exit status %d); nothing was made", what,
                       outcome->cause == CORDON_CAUSE_EXITED ? "it failed" : cordon_cause_name(outcome->cause),
                       outcome->limit_hit[0] ? " by a limit" : "", outcome->exit_code);
}

static void fill(struct cordon_run_request *request, const char *language, const char *code)
{
    request->request.language = language;
    request->request.code = (struct cordon_bytes){code, strlen(code)};
    request->by_operator = true;
    (void)snprintf(request->backend, sizeof request->backend, "local"); /* fits */
}

/* --- building --- */

static char *lines(const struct cordon_packages *packages)
{
    struct cordon_buf text = CORDON_BUF_INIT(CORDON_TEMPLATE_RECIPE);
    for (size_t i = 0; i < packages->count; i++)
        (void)cordon_buf_appendf(&text, "%s\n", packages->items[i]); /* sticky in failed */
    if (text.failed || !text.size) {
        bool failed = text.failed;
        cordon_buf_done(&text);
        return failed ? NULL : strdup("");
    }
    return text.data; /* malloced, NUL-terminated */
}

struct sources {
    char *text[16];
    size_t count;
};

static int add_source(struct sources *to, const char *name, const char *value)
{
    if (!value || !*value || to->count == 16)
        return 0;
    for (size_t i = 0; i < to->count; i++)
        if (strncmp(to->text[i], name, strlen(name)) == 0 && to->text[i][strlen(name)] == '=')
            return 0; /* given already */
    if (asprintf(&to->text[to->count], "%s=%s", name, value) < 0)
        return -ENOMEM;
    to->count++;
    return 0;
}

static int collect_sources(const struct cordon_settings *settings, const struct cordon_template_plan *plan,
                           struct sources *ret)
{
    int r = add_source(ret, "PIP_INDEX_URL", plan->index_url);
    if (r == 0)
        r = add_source(ret, "NPM_CONFIG_REGISTRY", plan->registry);
    if (r == 0)
        r = add_source(ret, "CORDON_PYTHON_PATH",
                       cordon_settings_string(settings, CORDON_DOOR_NATIVE, CORDON_SET_PYTHON));
    for (size_t i = 0; r == 0 && i < sizeof passed / sizeof *passed; i++)
        r = add_source(ret, passed[i], getenv(passed[i]));
    return r;
}

/* --- what it may reach --- */

#define RULES_MAX 64

struct reach {
    char *rules[RULES_MAX];
    size_t count;
};

static int add_rule(struct reach *to, const char *rule, size_t size)
{
    if (to->count == RULES_MAX)
        return -E2BIG;
    to->rules[to->count] = strndup(rule, size);
    return to->rules[to->count] ? (int)++to->count : -ENOMEM;
}

/* "https://user:secret@host:8080/simple" is reached by the rule "host:8080". */
static int add_url(struct reach *to, const char *url, size_t size)
{
    static const char mark[] = "://";
    const char *scheme = memmem(url, size, mark, 3), *end = url + size;
    if (!scheme)
        return 0;
    const char *host = scheme + 3;
    const char *stop = host + strcspn(host, "/?#");
    stop = stop > end ? end : stop;
    const char *user = memrchr(host, '@', (size_t)(stop - host));
    host = user ? user + 1 : host;
    const char *bracket = memrchr(host, ']', (size_t)(stop - host));
    bool has_port = memrchr(bracket ? bracket : host, ':', (size_t)(stop - (bracket ? bracket : host)));
    cordon_autofree char *rule = NULL;
    if (asprintf(&rule, "%.*s%s", (int)(stop - host), host,
                 has_port                                           ? ""
                 : scheme - url == 4 && memcmp(url, "http", 4) == 0 ? ":80"
                                                                    : ":443") < 0) {
        rule = NULL;
        return -ENOMEM;
    }
    return add_rule(to, rule, strlen(rule));
}

/* The registries of the settings, and whatever the sources name. */
static int collect_reach(const struct cordon_settings *settings, const struct sources *sources, struct reach *ret)
{
    const char *item;
    int r = 0;
    for (size_t i = 0;
         r >= 0 && (item = cordon_settings_item(settings, CORDON_DOOR_NATIVE, CORDON_SET_EGRESS_REGISTRIES, i)); i++)
        r = add_rule(ret, item, strlen(item));
    for (size_t i = 0; r >= 0 && i < sources->count; i++) {
        const char *word = strchr(sources->text[i], '=') + 1; /* one or more URLs, by spaces */
        for (size_t size; r >= 0 && *word; word += size + (word[size] == ' ')) {
            size = strcspn(word, " ");
            r = add_url(ret, word, size);
        }
    }
    return r < 0 ? r : 0;
}

/* The sources that were given first: the registries, which are the same for all, are what may be cut. */
static void tell_reach(const struct reach *reach, struct cordon_error *err)
{
    struct cordon_buf text = CORDON_BUF_INIT(400);
    for (size_t i = reach->count; i-- > 0;)
        (void)cordon_buf_appendf(&text, "%s%s", text.size ? ", " : "", reach->rules[i]); /* cut on purpose */
    cordon_error_context(err,
                         "with the network to %.75s alone (--index-url, --registry, "
                         "CORDON_EGRESS_REGISTRIES; private addresses: CORDON_EGRESS_RANGES)",
                         text.data ? text.data : "nothing");
    cordon_buf_done(&text);
}

static int run_build(const struct build_settings *own, const struct cordon_template_plan *plan, struct sink *sink,
                     struct cordon_error *err)
{
    struct cordon_run_request request;
    struct sources sources = {.count = 0};
    struct reach reach = {.count = 0};
    cordon_autofree char *pip = lines(&plan->pip), *npm = lines(&plan->npm);
    int r = pip && npm ? collect_sources(own->settings, plan, &sources) : -ENOMEM;
    if (r == 0 && !plan->host_network)
        r = collect_reach(own->settings, &sources, &reach);
    if (r < 0) {
        (void)cordon_fail_errno(err, r, "prepare the build"); /* the code is r */
    } else {
        const struct cordon_file files[] = {{.path = "pip.txt", .content = {pip, strlen(pip)}},
                                            {.path = "npm.txt", .content = {npm, strlen(npm)}}};
        cordon_run_request_init(own->settings, CORDON_DOOR_NATIVE, &request);
        fill(&request, "bash", script);
        request.request.env = (const char *const *)sources.text;
        request.request.env_count = sources.count;
        request.request.files = files;
        request.request.file_count = 2;
        request.request.network = !plan->host_network;
        request.request.allowed_domains = (const char *const *)reach.rules;
        request.request.allowed_domain_count = reach.count;
        request.request.limits.stdout_bytes = sink->most + 1;
        r = follow(own->settings, &request, sink, err);
        cordon_run_request_done(&request);
        if (r == 0)
            r = judge(sink, "installing the packages", err);
        if (r < 0 && !plan->host_network)
            tell_reach(&reach, err);
    }
    for (size_t i = 0; i < reach.count; i++)
        free(reach.rules[i]);
    for (size_t i = 0; i < sources.count; i++)
        free(sources.text[i]);
    return r;
}

static void start_core(const struct cordon_settings *settings)
{
    cordon_registry_setup(cordon_backend_builtin);
    cordon_admission_setup(settings);
}

int cordon_template_build(const struct cordon_settings *settings, const struct cordon_template_plan *plan, int file,
                          uint64_t *bytes, struct cordon_error *err)
{
    struct build_settings own;
    struct cordon_oneshot oneshot = {.peer = -1, .egress = -1};
    struct sink sink = {.file = file};
    int r = open_settings(settings, plan->config, &own, err);
    if (r == 0) {
        start_core(own.settings);
        sink.most = (uint64_t)cordon_settings_int(own.settings, CORDON_DOOR_NATIVE, CORDON_SET_TEMPLATE_MB) << 20;
        const struct cordon_oneshot_options options = {
            .host_network = plan->host_network, .template_fd = -1, .config = plan->config, .flags = own.flags};
        r = cordon_oneshot_start(&options, &oneshot, err);
        if (r == 0 && !plan->host_network)
            r = cordon_oneshot_egress(&options, &oneshot, err);
    }
    if (r == 0)
        r = run_build(&own, plan, &sink, err);
    cordon_oneshot_stop(&oneshot);
    close_settings(&own);
    *bytes = sink.at;
    return r;
}

/* --- trying --- */

/* Loading may take longer than a guest is waited for; it goes on meanwhile. */
static int try_language(const struct build_settings *own, const char *language, struct cordon_error *err)
{
    uint64_t until = cordon_now_us() + LOAD_US;
    for (;;) {
        struct cordon_run_request request;
        struct sink sink = {.file = -1, .quiet = true};
        cordon_run_request_init(own->settings, CORDON_DOOR_NATIVE, &request);
        fill(&request, language, strcmp(language, "bash") == 0 ? ":" : "0");
        request.request.template_name = CORDON_TEMPLATE_TRIAL;
        int r = follow(own->settings, &request, &sink, err);
        cordon_run_request_done(&request);
        if (r == 0)
            return judge(&sink, "a first run in it", err);
        if (r != -ETIMEDOUT || cordon_now_us() > until)
            return r;
    }
}

static int try_all(const struct build_settings *own, const struct cordon_template_plan *plan, struct cordon_error *err)
{
    static const char *const languages[] = {"python", "javascript", "bash"};
    size_t good = 0;
    int r = 0;
    for (size_t i = 0; i < sizeof languages / sizeof *languages; i++) {
        bool wanted = plan->import || strcmp(languages[i], plan->from) == 0 || (i == 0 && plan->pip.count) ||
                      (i == 1 && plan->npm.count);
        if (!wanted)
            continue;
        r = try_language(own, languages[i], err);
        if (r == 0)
            good++;
        else if (!plan->import || r != -ENOENT) /* a file tree need not have every interpreter */
            return r;
    }
    return good ? 0 : r;
}

int cordon_template_try(const struct cordon_settings *settings, const struct cordon_template_plan *plan, int file,
                        struct cordon_error *err)
{
    struct build_settings own;
    struct cordon_oneshot oneshot = {.peer = -1, .egress = -1};
    int r = open_settings(settings, plan->config, &own, err);
    if (r == 0) {
        start_core(own.settings);
        const struct cordon_oneshot_options options = {.template_fd = file, .config = plan->config, .flags = own.flags};
        r = cordon_oneshot_start(&options, &oneshot, err);
    }
    if (r == 0)
        r = try_all(&own, plan, err);
    cordon_oneshot_stop(&oneshot);
    close_settings(&own);
    return r;
}
