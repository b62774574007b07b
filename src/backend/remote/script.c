/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What goes along with a program: in the run's folder, `work` (its working directory: the program, its files,
 * artifacts/) and `meta` (arguments, stdin, what calls main, the shell lines that start it all). The environment is set
 * in those lines, so that it stands on no command line.
 */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "backend/remote/assets.h"
#include "backend/remote/remote.h"

#define ARCHIVE_MAX (1u << 30)
#define LINES_MAX (1u << 20)

struct language {
    const char *name, *file, *caller;
    const char *asset;
    const uint64_t *size;
    const char *(*(*program)(const struct cordon_remote_service *))(void);
};

static const char *bash(void)
{
    return "bash";
}

static const char *(*python_of(const struct cordon_remote_service *service))(void)
{
    return service->python;
}

static const char *(*node_of(const struct cordon_remote_service *service))(void)
{
    return service->node;
}

static const char *(*bash_of(const struct cordon_remote_service *service))(void)
{
    return bash;
}

static const struct language languages[] = {
    {"python", "main.py", "call.py", cordon_asset_call_py, &cordon_asset_call_py_size, python_of},
    {"javascript", "main.js", "call.js", cordon_asset_call_js, &cordon_asset_call_js_size, node_of},
    {"bash", "main.sh", "call.sh", cordon_asset_call_sh, &cordon_asset_call_sh_size, bash_of},
};

void cordon_remote_quote(struct cordon_buf *to, const char *text)
{
    (void)cordon_buf_append(to, "'", 1); /* all of these are sticky */
    for (; *text; text++) {
        if (*text == '\'')
            (void)cordon_buf_appends(to, "'\\''");
        else
            (void)cordon_buf_append(to, text, 1);
    }
    (void)cordon_buf_append(to, "'", 1);
}

/* Does it have lines that only an ES module may have? Node takes the file's name for its word. */
static bool is_es_module(struct cordon_bytes code)
{
    const char *at = code.data, *end = code.data + code.size;
    while (at && at < end) {
        size_t left = (size_t)(end - at);
        if ((left > 7 && (memcmp(at, "import ", 7) == 0 || memcmp(at, "export ", 7) == 0 ||
                          memcmp(at, "import{", 7) == 0 || memcmp(at, "export{", 7) == 0)))
            return true;
        at = memchr(at, '\n', left);
        at = at ? at + 1 : NULL;
    }
    return false;
}

/* As an environment line of sh. The name was checked by core. */
static void put_variable(struct cordon_buf *to, const char *pair)
{
    size_t name = strcspn(pair, "=");
    (void)cordon_buf_appends(to, "export ");
    (void)cordon_buf_append(to, pair, name + 1);
    cordon_remote_quote(to, pair + name + 1);
    (void)cordon_buf_append(to, "\n", 1);
}

static void put_lines(const struct cordon_run *run, const struct language *language, const char *file,
                      struct cordon_buf *to)
{
    const struct cordon_request *request = run->request;
    uint64_t ms = request->limits.timeout_ms;
    (void)cordon_buf_appends(to, "cd ");
    cordon_remote_quote(to, run->folder);
    (void)cordon_buf_appends(to, "/work || exit 125\nexport PYTHONUNBUFFERED=1 PYTHONIOENCODING=utf-8:surrogateescape "
                                 "MPLBACKEND=Agg CORDON_RUN=");
    (void)cordon_buf_appendf(to, "%s\n", run->id);
    for (size_t i = 0; i < request->env_count; i++)
        put_variable(to, request->env[i]);
    (void)cordon_buf_appends(to, "exec ");
    if (ms)
        (void)cordon_buf_appendf(to, "timeout -s KILL %llu.%03u ", (unsigned long long)(ms / 1000),
                                 (unsigned)(ms % 1000));
    cordon_remote_quote(to, language->program(run->service)());
    if (request->arguments.data)
        (void)cordon_buf_appendf(to, " ../meta/%s ../meta/arguments ../meta/result", language->caller);
    else
        (void)cordon_buf_appendf(to, " %s", file);
    (void)cordon_buf_appends(to, " <../meta/stdin\n");
}

static void put_all(const struct cordon_run *run, const struct language *language, const char *file,
                    const struct cordon_buf *lines, struct cordon_buf *to)
{
    const struct cordon_request *request = run->request;
    char name[CORDON_TAR_NAME + 8];
    cordon_tar_folder(to, "meta", 0755);
    cordon_tar_folder(to, "work", 0755);
    cordon_tar_folder(to, "work/artifacts", 0755);
    cordon_tar_file(to, "meta/run.sh", lines->data, lines->size, 0644);
    cordon_tar_file(to, "meta/stdin", request->stdin_data.data, request->stdin_data.size, 0644);
    if (request->arguments.data) {
        (void)snprintf(name, sizeof name, "meta/%s", language->caller);
        cordon_tar_file(to, name, language->asset, *language->size, 0644);
        cordon_tar_file(to, "meta/arguments", request->arguments.data, request->arguments.size, 0644);
    }
    (void)snprintf(name, sizeof name, "work/%s", file);
    cordon_tar_file(to, name, request->code.data, request->code.size, 0644);
    for (size_t i = 0; i < request->file_count; i++) {
        const struct cordon_file *put = &request->files[i];
        (void)snprintf(name, sizeof name, "%s%.4095s", *put->path == '/' ? "" : "work/",
                       put->path); /* core checked it */
        cordon_tar_file(to, name, put->content.data, put->content.size, put->mode ? put->mode : 0644);
    }
    cordon_tar_end(to);
}

int cordon_remote_pack(const struct cordon_run *run, struct cordon_buf *to, struct cordon_error *err)
{
    struct cordon_buf lines = CORDON_BUF_INIT(LINES_MAX);
    const struct language *language = NULL;
    for (size_t i = 0; i < sizeof languages / sizeof *languages; i++)
        if (strcmp(languages[i].name, run->request->language) == 0)
            language = &languages[i];
    if (!language)
        return cordon_fail(err, -EINVAL, CORDON_ERROR_UNSUPPORTED, "the backend %s does not run %s", run->service->name,
                           run->request->language);
    const char *file = language->file;
    if (language == &languages[1] && is_es_module(run->request->code))
        file = "main.mjs";
    to->max = ARCHIVE_MAX;
    put_lines(run, language, file, &lines);
    put_all(run, language, file, &lines, to);
    bool failed = lines.failed || to->failed;
    cordon_buf_done(&lines);
    return failed ? cordon_fail(err, -ENOMEM, CORDON_ERROR_TOO_LARGE,
                                "the program, its files and its environment are too large for the backend %s",
                                run->service->name)
                  : 0;
}
