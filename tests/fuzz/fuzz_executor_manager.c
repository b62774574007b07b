/* SPDX-License-Identifier: Apache-2.0 */
/* The executor manager's readers: a body and its 422, base64, UTF-8's faults, lines of stdout, rates. */
#include "fuzz.h"

#include <stdlib.h>
#include <string.h>

#include "core/rate.h"
#include "door/executor_manager.h"

static void need(bool good)
{
    if (!good)
        abort();
}

static void try_body(const char *text, size_t size)
{
    struct cordon_buf errors = CORDON_BUF_INIT(1u << 24);
    struct cordon_value value;
    struct cordon_em_fields fields;
    bool good = cordon_em_parse(text, size, &value, &errors) && cordon_em_read(&value, &fields, &errors);
    /* Every 422 is JSON itself, and there is one exactly when something is wrong. */
    need(good == !errors.size);
    need(good || cordon_value_parse(errors.data, errors.size, &value, NULL) == 0);
    cordon_buf_done(&errors);
}

static void try_base64(const char *text, size_t size)
{
    char fault[160] = "";
    char *to = malloc(size / 4 * 3 + 3);
    struct cordon_buf strict = CORDON_BUF_INIT(size + 4);
    need(to);
    ssize_t n = cordon_em_unbase64(text, size, to, fault);
    need(n >= 0 || *fault);
    /* Whatever the stricter decoder takes, this one takes to the same end. */
    if (cordon_buf_unbase64(&strict, text, size) == 0)
        need(n == (ssize_t)strict.size && (!n || memcmp(to, strict.data, (size_t)n) == 0));
    cordon_buf_done(&strict);
    free(to);
}

static void try_lines(const char *text, size_t size)
{
    struct cordon_buf once = CORDON_BUF_INIT(size + 1), twice = CORDON_BUF_INIT(size + 1);
    cordon_em_stdout(text, size, &once);
    need(once.size <= size && !once.failed);
    cordon_em_stdout(once.data, once.size, &twice);
    need(twice.size <= once.size);
    cordon_buf_done(&once);
    cordon_buf_done(&twice);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct cordon_rate rate;
    char fault[160] = "", name[128];
    const char *text = (const char *)data;
    if (size > 16384)
        return 0;
    try_body(text, size);
    try_base64(text, size);
    try_lines(text, size);
    need(cordon_em_utf8(text, size, fault) == !*fault);
    (void)snprintf(name, sizeof name, "%.*s", (int)(size < 127 ? size : 127), text);
    need(!cordon_rate_parse(name, &rate) || (rate.count && rate.period_us));
    (void)cordon_em_is_json(name);
    return 0;
}
