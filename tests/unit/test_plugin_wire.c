/* SPDX-License-Identifier: Apache-2.0 */
/* What a plugin's process says of a run is bytes: nothing in them makes the gateway read beyond, or read what is none.
 */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "plugin/wire.h"

/* Every text of an outcome. */
#define TEXTS(X)                                                                                                       \
    X(limit_hit)                                                                                                       \
    X(message)                                                                                                         \
    X(blocked_syscall)                                                                                                 \
    X(backend)                                                                                                         \
    X(result_error)                                                                                                    \
    X(egress.first_refused)                                                                                            \
    X(accelerator)                                                                                                     \
    X(start)

/* Sends it, as a plugin's process would, and reads it, as the gateway does. */
static int pass(const struct cordon_outcome *outcome, struct cordon_wire_event *ret)
{
    const struct cordon_event event = {.type = CORDON_EVENT_OUTCOME, .outcome = outcome};
    struct cordon_buf buf = CORDON_BUF_INIT(65536);
    struct cordon_wire_frame frame;
    size_t used;
    cordon_wire_put_event(&buf, &event);
    assert_int_equal(cordon_wire_next(&buf, 65536, &frame, &used), 1);
    int r = cordon_wire_get_event(&frame, ret);
    cordon_buf_done(&buf);
    return r;
}

static void texts_end(void **state)
{
    struct cordon_outcome outcome = {.struct_size = sizeof outcome};
    struct cordon_wire_event got;
    (void)state;
#define FILL(text) memset(outcome.text, 'x', sizeof outcome.text);
    TEXTS(FILL)
    assert_int_equal(pass(&outcome, &got), 0);
#define CHECK(text) assert_int_equal(strnlen(got.outcome.text, sizeof got.outcome.text), sizeof got.outcome.text - 1);
    TEXTS(CHECK)
}

static void what_is_no_bool_or_enum_is_refused(void **state)
{
    const struct cordon_outcome good = {.struct_size = sizeof good};
    const size_t places[] = {offsetof(struct cordon_outcome, warm), offsetof(struct cordon_outcome, network),
                             offsetof(struct cordon_outcome, cause), offsetof(struct cordon_outcome, isolation)};
    struct cordon_wire_event got;
    (void)state;
    assert_int_equal(pass(&good, &got), 0);
    for (size_t i = 0; i < sizeof places / sizeof *places; i++) {
        struct cordon_outcome bad = good;
        memset((char *)&bad + places[i], 77, 1);
        assert_int_equal(pass(&bad, &got), -EBADMSG);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(texts_end),
        cmocka_unit_test(what_is_no_bool_or_enum_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
