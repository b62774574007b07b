/* SPDX-License-Identifier: Apache-2.0 */
/* The interpreters that guests are given: are they there, can guests see them, are they new enough. */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "isolate/probe_row.h"
#include "isolate/root.h"

/* The version that a program told: major and minor. */
static bool parse_version(const char *text, int version[2])
{
    version[0] = version[1] = 0;
    return sscanf(text, "%d.%d", &version[0], &version[1]) >= 1;
}

static void judge_version(struct cordon_probe *probe, const char *path, int status, const char *text,
                          const int least[2], const char *package)
{
    int version[2];
    if (cordon_root_sees(path, probe->found, sizeof probe->found) < 0) {
        cordon_probe_fix(probe, "set it to an interpreter that guests see (Debian: apt install %s, and leave it unset)",
                         package);
        return;
    }
    if (status == 127)
        cordon_probe_found(probe, false, "%.160s is not there", path);
    else if (status == -ETIME)
        cordon_probe_found(probe, false, "%.160s did not tell its version within 20 s (a version manager's shim?)",
                           path);
    else if (status == -EINTR)
        cordon_probe_found(probe, false, "%.160s was killed when asked for its version", path);
    else if (status < 0)
        cordon_probe_found(probe, false, "running %.160s: %s", path, strerror(-status));
    else if (status != 0)
        cordon_probe_found(probe, false, "%.160s: exit status %d when asked for its version", path, status);
    else if (!parse_version(text, version))
        cordon_probe_found(probe, false, "%.160s did not tell its version", path);
    else
        cordon_probe_found(probe, version[0] > least[0] || (version[0] == least[0] && version[1] >= least[1]),
                           "%.160s is %d.%d", path, version[0], version[1]);
    if (!probe->ok)
        cordon_probe_fix(
            probe, "install %s %d.%d or newer (apt install %s, where the release has it as new), or give its path",
            package, least[0], least[1], package);
}

/* What guests can't see is not executed either: as root it could be anybody's program. judge_version says so. */
static int ask(const char *const argv[], char *text, size_t size)
{
    char why[sizeof((struct cordon_probe *)NULL)->found];
    text[0] = '\0';
    if (cordon_root_sees(argv[0], why, sizeof why) < 0)
        return -EPERM;
    return cordon_try_program(argv, text, size);
}

void cordon_probe_python(const struct cordon_probe_host *host, struct cordon_probe *probe)
{
    static const int least[2] = {3, 9};
    judge_version(probe, host->paths->python, host->python_status, host->python, least, "python3");
}

void cordon_probe_modules(const struct cordon_probe_host *host, struct cordon_probe *probe)
{
    static const char *const modules[] = {"numpy", "pandas", "matplotlib"};
    char missing[128] = "", packages[128] = "";
    const char *list = strchr(host->python, '\n');
    if (host->python_status != 0 || !list) {
        cordon_probe_skipped(probe);
        return;
    }
    for (size_t i = 0; i < sizeof modules / sizeof modules[0]; i++) {
        if (strstr(list, modules[i]))
            continue;
        size_t used = strlen(missing), also = strlen(packages);
        (void)snprintf(missing + used, sizeof missing - used, " %s", modules[i]);           /* three short names fit */
        (void)snprintf(packages + also, sizeof packages - also, " python3-%s", modules[i]); /* as well */
    }
    cordon_probe_found(probe, !*missing, "%s%s", *missing ? "missing:" : "numpy, pandas, matplotlib", missing);
    if (*missing)
        cordon_probe_fix(probe, "apt install%s", packages);
}

void cordon_probe_node(const struct cordon_probe_host *host, struct cordon_probe *probe)
{
    static const int least[2] = {18, 0};
    const char *path = host->paths->node;
    const char *const argv[] = {path, "--version", NULL};
    char text[128];
    int status = ask(argv, text, sizeof text);
    judge_version(probe, path, status, text[0] == 'v' ? text + 1 : text, least, "nodejs");
}

void cordon_probe_bash(const struct cordon_probe_host *host, struct cordon_probe *probe)
{
    static const int least[2] = {4, 0};
    const char *path = host->paths->bash;
    const char *const argv[] = {path, "--norc", "-c", "echo $BASH_VERSION", NULL};
    char text[128];
    judge_version(probe, path, ask(argv, text, sizeof text), text, least, "bash");
}

/* One start of the interpreter answers for its version and its modules, which are looked for, not loaded. */
void cordon_probe_ask_python(struct cordon_probe_host *host)
{
    static const char question[] = "import sys\n"
                                   "from importlib.util import find_spec\n"
                                   "print('%d.%d' % sys.version_info[:2])\n"
                                   "print(*[m for m in ('numpy', 'pandas', 'matplotlib') if find_spec(m)])\n";
    const char *const argv[] = {host->paths->python, "-I", "-c", question, NULL};
    host->python_status = ask(argv, host->python, sizeof host->python);
}
