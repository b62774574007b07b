/* SPDX-License-Identifier: Apache-2.0 */
/* `cordon verify`: what a backend enforces, measured. By the daemon where there is one, which keeps the result. */
#include <errno.h>
#include <getopt.h>
#include <stdio.h>
#include <string.h>

#include "backend/builtin.h"
#include "base/fd.h"
#include "cli/cli.h"
#include "cli/daemon.h"
#include "cli/oneshot.h"
#include "cli/run_events.h"
#include "core/registry.h"
#include "core/value.h"
#include "core/verify.h"

#define DIFFERENT 1 /* the exit status when something declared was measured not to hold */

static const char help[] =
    "usage: cordon verify [--json] [BACKEND]\n"
    "\n"
    "Measures what a backend enforces, by probe programs in fresh guests, and shows it beside what it declares. Set\n"
    "CORDON_VERIFY_LISTED and CORDON_VERIFY_UNLISTED to two probe servers (cordon probe-server): without them, what "
    "can\n"
    "be reached over the network stays unknown. Exit status 1: something declared does not hold.\n";

static int ask_daemon(int fd, const char *backend, struct cordon_buf *to, struct cordon_error *err)
{
    struct cordon_http_reader http = CORDON_HTTP_READER_INIT(1u << 20);
    struct cordon_buf body = CORDON_BUF_INIT(4096);
    struct cordon_json json = {.buf = &body};
    cordon_json_object_begin(&json);
    if (*backend) {
        cordon_json_key(&json, "backend");
        cordon_json_text(&json, backend);
    }
    cordon_json_object_end(&json);
    int r = cordon_daemon_send(fd, "POST", "/v1/verify", "application/json", &body, err);
    int more = r < 0 ? r : 1;
    while (more > 0)
        more = cordon_daemon_read(fd, &http, err);
    r = more;
    if (r == 0 && http.status != 200)
        r = cordon_error_read(http.body.data ? http.body.data : "", http.body.size, err);
    if (r == 0)
        r = cordon_buf_append(to, http.body.data, http.body.size);
    cordon_http_reader_done(&http);
    cordon_buf_done(&body);
    return r;
}

static int ask_ourselves(const struct cordon_settings *settings, const char *name, struct cordon_buf *to,
                         struct cordon_error *err)
{
    const struct cordon_oneshot_options options = {.template_fd = -1};
    struct cordon_oneshot oneshot = {.peer = -1, .egress = -1};
    const struct cordon_backend *backend;
    struct cordon_verification found;
    struct cordon_json json = {.buf = to};
    cordon_registry_setup(cordon_backend_builtin);
    int r =
        cordon_registry_find(*name ? name : cordon_settings_string(settings, CORDON_DOOR_NATIVE, CORDON_SET_BACKEND),
                             "the argument", &backend, err);
    if (r == 0)
        r = cordon_oneshot_start(&options, &oneshot, err);
    if (r == 0)
        r = cordon_oneshot_egress(&options, &oneshot, err);
    if (r == 0)
        r = cordon_verify(settings, backend, CORDON_VERSION, &found, err);
    cordon_oneshot_stop(&oneshot);
    if (r == 0)
        cordon_verification_write(&found, &json);
    return r;
}

static const char *word(const struct cordon_value *item, const char *name, const char *absent)
{
    struct cordon_value value;
    if (!cordon_value_member(item, name, &value) || value.kind != CORDON_VALUE_BOOL)
        return absent;
    return cordon_value_true(&value) ? "yes" : "no";
}

static void show_head(const struct cordon_value *root)
{
    struct cordon_value value;
    char backend[64] = "", version[64] = "";
    if (cordon_value_member(root, "backend", &value))
        cordon_value_copy(&value, backend, sizeof backend);
    if (cordon_value_member(root, "version", &value))
        cordon_value_copy(&value, version, sizeof version);
    (void)printf(
        "The backend %s, measured by cordon %s. Declared: what it says of itself (-: nothing). Verified: what was\n"
        "found in it.\n\n%-18s %-9s %-13s %s\n",
        backend, version, "", "declared", "verified", "evidence");
}

/* One line a capability, and their sum. The number that differ. */
static int64_t show(const struct cordon_value *root)
{
    struct cordon_value list, key, item, value;
    char name[64] = "", evidence[300] = "";
    int64_t differences = 0;
    unsigned held = 0, broken = 0, unknown = 0;
    if (cordon_value_member(root, "differences", &value))
        (void)cordon_value_integer(&value, &differences); /* 0 else */
    if (!cordon_value_member(root, "capabilities", &list) || list.kind != CORDON_VALUE_ARRAY)
        return differences;
    show_head(root);
    struct cordon_value_walk walk = cordon_value_walk(&list);
    while (cordon_value_next(&walk, &key, &item)) {
        if (cordon_value_member(&item, "name", &value))
            cordon_value_copy(&value, name, sizeof name);
        if (cordon_value_member(&item, "evidence", &value))
            cordon_value_copy(&value, evidence, sizeof evidence);
        const char *verified = word(&item, "verified", "not measured");
        held += strcmp(verified, "yes") == 0;
        broken += strcmp(verified, "no") == 0;
        unknown += strcmp(verified, "not measured") == 0;
        (void)printf("%-18s %-9s %-13s %s%s\n", name, word(&item, "declared", "-"), verified,
                     strcmp(word(&item, "differs", ""), "yes") == 0 ? "DIFFERS: " : "", evidence);
    }
    (void)printf("\n%u hold, %u do not, %u were not measured.\n", held, broken, unknown);
    return differences;
}

static int act(const struct cordon_settings *settings, const char *backend, bool as_json, int64_t *differences,
               struct cordon_error *err)
{
    struct cordon_buf text = CORDON_BUF_INIT(1u << 20);
    struct cordon_value root, value;
    cordon_autoclose int daemon = cordon_daemon_connect(settings, err);
    int r = daemon == -ENOENT ? ask_ourselves(settings, backend, &text, err)
            : daemon < 0      ? daemon
                              : ask_daemon(daemon, backend, &text, err);
    while (text.size && text.data[text.size - 1] == '\n')
        text.size--;
    if (r == 0)
        r = cordon_value_parse(text.data, text.size, &root, err);
    if (r == 0 && cordon_value_member(&root, "differences", &value))
        (void)cordon_value_integer(&value, differences); /* 0 else */
    if (r == 0 && as_json)
        return cordon_cli_print(&text) ? cordon_fail_errno(err, -EIO, "writing the result") : 0;
    if (r == 0)
        (void)show(&root);
    cordon_buf_done(&text);
    return r;
}

int cordon_cli_verify(int argc, char **argv)
{
    static const struct option options[] = {{"json", no_argument, NULL, 'j'}, {"help", no_argument, NULL, 'h'}, {0}};
    struct cordon_settings *settings = NULL;
    struct cordon_error err = {0};
    int64_t differences = 0;
    bool json = false;
    optind = 0;
    opterr = 0;
    for (int option; (option = getopt_long(argc, argv, ":h", options, NULL)) != -1;) {
        if (option == 'h')
            return fputs(help, stdout) < 0 ? CORDON_EXIT_FAILURE : 0;
        if (option != 'j')
            return cordon_cli_bad_option("verify", argv, option);
        json = true;
    }
    if (argc - optind > 1)
        return cordon_cli_usage("verify", "one backend at a time");
    int r = cordon_cli_settings(NULL, NULL, &settings, &err);
    if (r == 0)
        r = act(settings, optind < argc ? argv[optind] : "", json, &differences, &err);
    cordon_settings_free(settings);
    if (r < 0)
        return cordon_cli_fail(&err);
    if (differences)
        (void)fprintf(stderr, "cordon: declared, and does not hold: %lld (the lines with DIFFERS)\n",
                      (long long)differences);
    return differences ? DIFFERENT : 0;
}
