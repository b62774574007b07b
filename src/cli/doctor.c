/* SPDX-License-Identifier: Apache-2.0 */
/* cordon doctor: what this host lacks, each thing found by trying it, with what mends it; and what a running daemon
 * says. As a role of the daemon the first part alone, for GET /v1/admin/doctor. */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/fd.h"
#include "cli/cli.h"
#include "cli/daemon.h"
#include "cli/machines.h"
#include "isolate/probe.h"
#include "supervisor/role_args.h"
#include "supervisor/roles.h"
#include "vmm/host.h"

#define PROBES_MAX 64
#define DAEMON_S 10 /* one that hangs must not hang us */

static const char help[] =
    "usage: cordon doctor [--json]\n"
    "\n"
    "Tries each thing that isolation needs on this host; tells what is missing and what mends it. Asks a\n"
    "running daemon whether it is ready. Exit status 1: something that is needed is missing.\n";

static const char *const weights[] = {
    [CORDON_PROBE_NEEDED] = "needed", [CORDON_PROBE_LESSENS] = "lessens", [CORDON_PROBE_INFO] = "info"};

struct findings {
    struct cordon_probe probes[PROBES_MAX];
    size_t count;
    bool ok;                         /* all that is needed is there */
    struct cordon_http_reader ready; /* status 0: no daemon */
    struct cordon_error why;         /* it can not be asked */
};

static void ask_daemon(const struct cordon_settings *settings, struct findings *to)
{
    cordon_autoclose int fd = cordon_daemon_connect_within(settings, DAEMON_S, &to->why);
    int r = fd < 0 ? 0 : cordon_daemon_get(fd, "/readyz", &to->ready, NULL);
    if (r < 0)
        to->ready.status = 0; /* it went away: as if there were none */
    if (r == -EAGAIN)
        (void)cordon_fail(&to->why, r, CORDON_ERROR_UNAVAILABLE,
                          "it takes connections, and did not answer GET /readyz within %d s", DAEMON_S); /* only told */
    while (to->ready.body.size && to->ready.body.data[to->ready.body.size - 1] == '\n')
        to->ready.body.size--;
}

static size_t examine_machines(const struct cordon_settings *settings, struct cordon_probe *probes)
{
    struct cordon_cli_machines machines;
    if (cordon_cli_machines(settings, &machines, NULL) < 0)
        machines.image[0] = '\0'; /* which is then told as missing */
    cordon_vmm_host_probe(&(struct cordon_vmm_host){.qemu = machines.qemu,
                                                    .image = machines.image,
                                                    .wanted = machines.wanted,
                                                    .emulation = machines.emulation,
                                                    .forced = machines.forced},
                          probes);
    return CORDON_VMM_HOST_PROBES;
}

static void examine(const struct cordon_settings *settings, struct findings *ret)
{
    const struct cordon_probe_paths paths = {
        .python = cordon_settings_string(settings, CORDON_DOOR_NATIVE, CORDON_SET_PYTHON),
        .node = cordon_settings_string(settings, CORDON_DOOR_NATIVE, CORDON_SET_NODE),
        .bash = "/bin/bash",
    };
    *ret = (struct findings){.ok = true, .ready = CORDON_HTTP_READER_INIT(1u << 20)};
    ret->count = cordon_probe_host(&paths, ret->probes, PROBES_MAX - CORDON_VMM_HOST_PROBES);
    ret->count += examine_machines(settings, ret->probes + ret->count);
    for (size_t i = 0; i < ret->count; i++)
        ret->ok = ret->ok && (ret->probes[i].ok || ret->probes[i].weight != CORDON_PROBE_NEEDED);
}

static void print_text(const struct findings *findings)
{
    for (size_t i = 0; i < findings->count; i++) {
        const struct cordon_probe *probe = &findings->probes[i];
        const char *mark = probe->ok ? "ok" : probe->weight == CORDON_PROBE_NEEDED ? "MISSING" : "lacks";
        (void)printf("%-8s %-28s %s\n", mark, probe->name, probe->found);
        if (!probe->ok && probe->fix[0])
            (void)printf("%-8s %-28s mend: %s\n", "", "", probe->fix);
    }
    if (!findings->ready.status)
        (void)printf("%-8s %-28s %s\n", "-", "daemon",
                     findings->why.kind ? findings->why.message : "none answers on the state folder's socket");
    else
        (void)printf("%-8s %-28s %.*s\n", findings->ready.status == 200 ? "ok" : "MISSING", "daemon",
                     (int)findings->ready.body.size, findings->ready.body.data);
}

static void write_host(const struct findings *findings, struct cordon_json *json)
{
    cordon_json_key(json, "ok");
    cordon_json_bool(json, findings->ok);
    cordon_json_key(json, "probes");
    cordon_json_array_begin(json);
    for (size_t i = 0; i < findings->count; i++) {
        const struct cordon_probe *probe = &findings->probes[i];
        const struct {
            const char *key, *text;
        } texts[] = {
            {"name", probe->name}, {"weight", weights[probe->weight]}, {"found", probe->found}, {"fix", probe->fix}};
        cordon_json_object_begin(json);
        cordon_json_key(json, "ok");
        cordon_json_bool(json, probe->ok);
        for (size_t k = 0; k < sizeof texts / sizeof *texts; k++) {
            cordon_json_key(json, texts[k].key);
            cordon_json_text(json, texts[k].text);
        }
        cordon_json_object_end(json);
    }
    cordon_json_array_end(json);
}

static int print_json(const struct findings *findings, bool with_daemon)
{
    struct cordon_buf text = CORDON_BUF_INIT(2u << 20);
    struct cordon_json json = {.buf = &text};
    cordon_json_object_begin(&json);
    write_host(findings, &json);
    if (with_daemon) {
        cordon_json_key(&json, "daemon");
        if (findings->ready.status)
            cordon_json_raw(&json, findings->ready.body.data, findings->ready.body.size);
        else
            cordon_json_null(&json);
    }
    cordon_json_object_end(&json);
    return cordon_cli_print(&text);
}

int cordon_doctor_main(int argc, char **argv)
{
    static struct findings findings; /* 40 KB */
    struct cordon_settings_input input;
    struct cordon_settings *settings = NULL;
    struct cordon_error err = {0};
    (void)argc; /* argv ends with NULL */
    int r = cordon_role_args_read(argv, &input, &err);
    if (r == 0)
        r = cordon_settings_load(&input, &settings, &err);
    if (r < 0)
        return cordon_cli_fail(&err);
    examine(settings, &findings);
    cordon_settings_free(settings);
    return print_json(&findings, false);
}

int cordon_cli_doctor(int argc, char **argv)
{
    static struct findings findings; /* 40 KB */
    struct cordon_settings *settings = NULL;
    struct cordon_error err = {0};
    bool json = false;
    int status = cordon_cli_json_option(argc, argv, help, &json);
    if (status >= 0)
        return status;
    if (cordon_cli_settings(NULL, NULL, &settings, &err) < 0)
        return cordon_cli_fail(&err);
    examine(settings, &findings);
    ask_daemon(settings, &findings);
    cordon_settings_free(settings);
    status = findings.ok ? 0 : 1;
    if (json && print_json(&findings, true) != 0)
        status = CORDON_EXIT_FAILURE;
    if (!json)
        print_text(&findings);
    cordon_http_reader_done(&findings.ready);
    return fflush(stdout) == 0 ? status : CORDON_EXIT_FAILURE;
}
