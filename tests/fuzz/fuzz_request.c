/* SPDX-License-Identifier: Apache-2.0 */
/* The native request's reader. What it accepts must hold its own bounds, and its arguments must be JSON again. */
#include "fuzz.h"

#include <stdlib.h>
#include <string.h>

#include "core/request.h"
#include "core/value.h"

static struct cordon_settings *settings;

static void need(int truth)
{
    if (!truth)
        abort();
}

static void load(void)
{
    static const char *const pairs[] = {"CORDON_CODE_KB=16", NULL};
    struct cordon_settings_input input = {.environ = pairs};
    need(cordon_settings_load(&input, &settings, NULL) == 0);
}

static void touch(struct cordon_bytes bytes)
{
    volatile char sum = 0;
    for (size_t i = 0; i < bytes.size; i++)
        sum = (char)(sum + bytes.data[i]);
}

static void look_at(const struct cordon_run_request *run)
{
    const struct cordon_request *request = &run->request;
    struct cordon_value value;
    need(cordon_language_find(request->language) != NULL && request->code.size <= 16384);
    need(cordon_run_request_check(settings, run, NULL) == 0);
    if (request->arguments.data)
        need(cordon_value_parse(request->arguments.data, request->arguments.size, &value, NULL) == 0);
    touch(request->code);
    touch(request->stdin_data);
    for (size_t i = 0; i < request->env_count; i++)
        need(strchr(request->env[i], '=') != NULL);
    for (size_t i = 0; i < request->file_count; i++) {
        need(strlen(request->files[i].path) > 0);
        touch(request->files[i].content);
    }
    for (size_t i = 0; i < request->allowed_domain_count; i++)
        need(strlen(request->allowed_domains[i]) > 0);
    (void)cordon_request_blank(request);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct cordon_run_request run;
    struct cordon_error err = {0};
    if (!settings)
        load();
    int r = cordon_run_request_parse(settings, (const char *)data, size, &run, &err);
    if (r < 0) {
        need(err.code == r && err.kind != CORDON_ERROR_NONE && *err.message && !run.arena);
        return 0;
    }
    look_at(&run);
    cordon_run_request_done(&run);
    return 0;
}
