/* SPDX-License-Identifier: Apache-2.0 */
/* Run requests: every field, every bound, and what hostile bodies are told. */
#include "core_helper.h"

#include <stdio.h>

#include "base/buf.h"
#include "core/request.h"

static struct cordon_settings *settings;

static int setup(void **state)
{
    settings = load_settings("CORDON_CODE_KB=4", NULL);
    return 0;
}

static int teardown(void **state)
{
    cordon_settings_free(settings);
    return 0;
}

static struct cordon_run_request read_body(const char *body)
{
    struct cordon_run_request run;
    struct cordon_error err = {0};
    if (cordon_run_request_parse(settings, body, strlen(body), &run, &err) < 0)
        fail_msg("%s: %s", body, err.message);
    return run;
}

static void refuses_as(enum cordon_error_kind kind, const char *body, const char *part)
{
    struct cordon_run_request run;
    struct cordon_error err = {0};
    if (cordon_run_request_parse(settings, body, strlen(body), &run, &err) == 0)
        fail_msg("accepted %s", body);
    if (err.kind != kind || !strstr(err.message, part))
        fail_msg("%s: kind %s, \"%s\"; expected \"%s\"", body, cordon_error_name(err.kind), err.message, part);
    assert_null(run.arena);
}

static void refuses(const char *body, const char *part)
{
    refuses_as(CORDON_ERROR_INVALID, body, part);
}

static void assert_bytes(struct cordon_bytes bytes, const char *text, size_t size)
{
    assert_int_equal(bytes.size, size);
    assert_memory_equal(bytes.data, text, size);
}

#define P "{\"language\":\"python\",\"code\":\"x\","

static void the_least_request_gets_the_settings_limits(void **state)
{
    struct cordon_run_request run = read_body("{\"language\":\"python\",\"code\":\"print(1)\"}");
    assert_string_equal(run.request.language, "python");
    assert_bytes(run.request.code, "print(1)", 8);
    assert_null(run.request.arguments.data);
    assert_int_equal(run.request.stdin_data.size, 0);
    assert_int_equal(run.request.limits.timeout_ms, 30000);
    assert_int_equal(run.request.limits.memory_bytes, 256u << 20);
    assert_int_equal(run.request.limits.stdout_bytes, 1u << 20);
    assert_int_equal(run.request.limits.pids, 128);
    assert_int_equal(run.request.cancel_fd, -1);
    assert_false(run.request.network || run.request.artifacts || run.memory_asked || run.by_operator);
    assert_string_equal(run.backend, "");
    cordon_run_request_done(&run);
}

static void every_field_is_read(void **state)
{
    struct cordon_run_request run = read_body(
        "{\"language\":\"NodeJS\",\"code_b64\":\"/wBh\",\"arguments\":{\"n\":12345678901234567890, \"s\":\"\\ud800\"},"
        "\"stdin\":{\"b64\":\"AAE=\"},\"env\":{\"A\":\"1\",\"_b2\":\"x=\\ny\"},\"files\":[{\"path\":\"a/"
        "b\",\"content\":\"hi\"},"
        "{\"path\":\"/tmp/c\",\"content_b64\":\"/"
        "w==\",\"mode\":\"0755\"},{\"mode\":384,\"content\":\"\",\"path\":\"d\"}],"
        "\"timeout_s\":1.0005,\"memory_mb\":64,\"cpu_s\":0.5,\"disk_mb\":8,\"network\":true,\"allowed_domains\":[\"a."
        "com\"],"
        "\"artifacts\":true,\"backend\":\"local\",\"template\":\"my-data.2\",\"fresh_interpreter\":true}");
    const struct cordon_request *r = &run.request;
    assert_string_equal(r->language, "javascript");
    assert_bytes(r->code, "\xFF\0a", 3);
    static const char arguments[] = "{\"n\":12345678901234567890, \"s\":\"\\ud800\"}"; /* as it was written */
    assert_bytes(r->arguments, arguments, sizeof arguments - 1);
    assert_bytes(r->stdin_data, "\0\1", 2);
    assert_int_equal(r->env_count, 2);
    assert_string_equal(r->env[0], "A=1");
    assert_string_equal(r->env[1], "_b2=x=\ny");
    assert_int_equal(r->file_count, 3);
    assert_string_equal(r->files[0].path, "a/b");
    assert_bytes(r->files[0].content, "hi", 2);
    assert_int_equal(r->files[0].mode, 0);
    assert_bytes(r->files[1].content, "\xFF", 1);
    assert_int_equal(r->files[1].mode, 0755);
    assert_int_equal(r->files[2].mode, 0600);
    assert_int_equal(r->limits.timeout_ms, 1001);
    assert_int_equal(r->limits.memory_bytes, 64u << 20);
    assert_int_equal(r->limits.cpu_ms, 500);
    assert_int_equal(r->limits.disk_bytes, 8u << 20);
    assert_true(r->network && r->artifacts && r->fresh_interpreter && run.memory_asked);
    assert_int_equal(r->allowed_domain_count, 1);
    assert_string_equal(r->allowed_domains[0], "a.com");
    assert_string_equal(run.backend, "local");
    assert_string_equal(r->template_name, "my-data.2");
    cordon_run_request_done(&run);
}

static void null_is_absent(void **state)
{
    struct cordon_run_request run =
        read_body("{\"language\":\"sh\",\"code\":\"\\u0000 "
                  "\",\"code_b64\":null,\"arguments\":null,\"stdin\":null,\"env\":null,\"files\":null,"
                  "\"timeout_s\":null,\"memory_mb\":null,\"network\":null,\"allowed_domains\":null,\"backend\":null,"
                  "\"guest\":null}");
    assert_string_equal(run.request.language, "bash");
    assert_bytes(run.request.code, "\0 ", 2);
    assert_null(run.request.arguments.data);
    assert_false(run.memory_asked);
    cordon_run_request_done(&run);
}

static void files_may_be_an_object(void **state)
{
    struct cordon_run_request run =
        read_body(P "\"files\":{\"a\":\"1\",\"b\":{\"content_b64\":\"Mg==\",\"mode\":\"600\"}}}");
    assert_int_equal(run.request.file_count, 2);
    assert_string_equal(run.request.files[1].path, "b");
    assert_bytes(run.request.files[1].content, "2", 1);
    cordon_run_request_done(&run);
}

static void malformed_bodies_are_refused(void **state)
{
    refuses("", "the body: the text is not JSON");
    refuses("[]", "the body must be an object, not an array");
    refuses("{\"language\":\"python\"", "the body");
    refuses("{\"code\":\"x\"}", "language is missing");
    refuses("{\"language\":\"python\"}", "one of code and code_b64");
    refuses("{\"language\":\"python\",\"code\":null}", "one of code and code_b64");
    refuses(P "\"code_b64\":\"eA==\"}", "one of code and code_b64");
    refuses(P "\"code\":\"y\"}", "code is given twice");
    refuses(P "\"timeout\":1}", "\"timeout\" is no field");
    refuses(P "\"Timeout_s\":1}", "no field");
    refuses("{\"language\":\"cobol\",\"code\":\"x\"}", "\"cobol\" is not known: python, javascript and bash");
    refuses("{\"language\":\"\",\"code\":\"x\"}", "not known");
    refuses("{\"language\":\"python\\u0000\",\"code\":\"x\"}", "NUL");
    refuses("{\"language\":1,\"code\":\"x\"}", "language must be a string, not a number");
    refuses("{\"language\":\"python\",\"code\":[]}", "code must be a string, not an array");
    refuses("{\"language\":\"python\",\"code\":\"\\ud800\"}", "half a surrogate");
    refuses("{\"language\":\"python\",\"code_b64\":\"e\"}", "code_b64 is not base64");
    refuses_as(CORDON_ERROR_UNSUPPORTED, P "\"guest\":\"abc\"}", "guest is not supported");
}

static void wrong_types_and_bounds_name_the_field(void **state)
{
    refuses(P "\"timeout_s\":\"5\"}", "timeout_s must be a number, not a string");
    refuses(P "\"timeout_s\":0}", "timeout_s is 0: ");
    refuses(P "\"timeout_s\":-1}", "timeout_s is -1");
    refuses(P "\"timeout_s\":1e999}", "timeout_s is 1e999");
    refuses(P "\"timeout_s\":500}", "timeout_s is 500: ");
    refuses(P "\"timeout_s\":300.001}", "at most 300 (CORDON_MAX_TIMEOUT_S)");
    refuses(P "\"memory_mb\":15}", "16 to 4096 (CORDON_MAX_MEMORY_MB)");
    refuses(P "\"memory_mb\":4097}", "CORDON_MAX_MEMORY_MB");
    refuses(P "\"memory_mb\":64.5}", "no whole number of MiB");
    refuses(P "\"memory_mb\":99999999999999999999}", "no whole number of MiB");
    refuses(P "\"cpu_s\":86401}", "cpu_s");
    refuses(P "\"disk_mb\":0}", "disk_mb is 0");
    refuses(P "\"disk_mb\":4097}", "disk_mb is 4097: 1 to 4096 (the larger of CORDON_DISK_MB");
    refuses(P "\"network\":1}", "network must be a boolean");
    refuses(P "\"network\":\"true\"}", "network must be a boolean");
    refuses(P "\"arguments\":[1]}", "arguments must be an object, not an array");
    refuses(P "\"stdin\":{\"base64\":\"\"}}", "stdin must be a string or");
    refuses(P "\"stdin\":{\"b64\":\"\",\"x\":1}}", "stdin must be a string or");
    refuses(P "\"stdin\":{}}", "stdin must be a string or");
    refuses(P "\"stdin\":[]}", "stdin must be a string or");
    refuses(P "\"backend\":\"\"}", "backend must be a name");
    refuses(P "\"template\":\"\"}", "is no name");
    refuses(P "\"template\":\"../x\"}", "is no name");
    refuses(P "\"template\":\"Data\"}", "is no name");
    refuses(P "\"template\":\".x\"}", "is no name");
    refuses(P "\"template\":\"a123456789012345678901234567890123456789\"}", "is no name");
    refuses(P "\"template\":7}", "template");
    refuses(P "\"backend\":\"aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa\"}",
            "backend must be a name");
    refuses(P "\"allowed_domains\":\"a.com\"}", "allowed_domains must be an array");
    refuses(P "\"allowed_domains\":[\"http://a.com\"]}", "allowed_domains: egress rule");
    refuses(P "\"allowed_domains\":[\"a..com\"]}", "neither a name nor an address");
    refuses(P "\"allowed_domains\":[\"2130706433\"]}", "neither a name nor an address");
    refuses(P "\"allowed_domains\":[\"a.com:0\"]}", "the port is no number");
    refuses(P "\"allowed_domains\":[\"-a.com\"]}", "neither a name nor an address");
    refuses(P "\"allowed_domains\":[1]}", "allowed_domains must be a string");
}

static void environment_rules(void **state)
{
    refuses(P "\"env\":[]}", "env must be an object");
    refuses(P "\"env\":{\"A\":1}}", "env: A must be a string, not a number");
    refuses(P "\"env\":{\"\":\"x\"}}", "is no name");
    refuses(P "\"env\":{\"1A\":\"x\"}}", "is no name");
    refuses(P "\"env\":{\"A-B\":\"x\"}}", "is no name");
    refuses(P "\"env\":{\"A=B\":\"x\"}}", "is no name");
    refuses(P "\"env\":{\"A\\u0000B\":\"x\"}}", "NUL");
    refuses(P "\"env\":{\"A\":\"x\\u0000\"}}", "NUL");
    refuses(P "\"env\":{\"A\":\"x\",\"A\":\"y\"}}", "A is given twice");
    refuses(P "\"env\":{\"ld_Preload\":\"x\",\"OK\":\"1\",\"Bash_Env\":\"\",\"PATH\":\"/\"}}",
            "ld_Preload, Bash_Env, PATH may not be set");
    struct cordon_run_request run = read_body(P "\"env\":{\"PATHS\":\"x\",\"HOME\":\"y\",\"A\":\"\"}}");
    assert_int_equal(run.request.env_count, 3);
    cordon_run_request_done(&run);
}

static void file_rules(void **state)
{
    refuses(P "\"files\":\"x\"}", "files must be an array");
    refuses(P "\"files\":[1]}", "files must be an object");
    refuses(P "\"files\":[{\"path\":\"a\"}]}", "a needs path and one of content");
    refuses(P "\"files\":[{\"content\":\"a\"}]}", "a file needs path");
    refuses(P "\"files\":[{\"path\":\"a\",\"content\":\"\",\"content_b64\":\"\"}]}", "each once");
    refuses(P "\"files\":[{\"path\":\"a\",\"content\":\"\",\"owner\":1}]}", "\"owner\"");
    refuses(P "\"files\":{\"a\":{\"path\":\"b\",\"content\":\"\"}}}", "each once");
    refuses(P "\"files\":[{\"path\":\"a\",\"content\":\"\",\"mode\":\"8\"}]}", "mode");
    refuses(P "\"files\":[{\"path\":\"a\",\"content\":\"\",\"mode\":\"4755\"}]}", "mode");
    refuses(P "\"files\":[{\"path\":\"a\",\"content\":\"\",\"mode\":512}]}", "mode");
    refuses(P "\"files\":[{\"path\":\"a\",\"content\":\"\",\"mode\":\" 7\"}]}", "mode");
    refuses(P "\"files\":{\"\":\"x\"}}", "a path has 0 bytes");
    refuses(P "\"files\":{\"../x\":\"x\"}}", "`..`");
    refuses(P "\"files\":{\"a/../x\":\"x\"}}", "`..`");
    refuses(P "\"files\":{\"a/..\":\"x\"}}", "`..`");
    refuses(P "\"files\":{\"a/\":\"x\"}}", "names a folder");
    refuses(P "\"files\":{\"/\":\"x\"}}", "names a folder");
    refuses(P "\"files\":{\".\":\"x\"}}", "names a folder");
    refuses(P "\"files\":{\"a\\u0000b\":\"x\"}}", "NUL");
    refuses(P "\"files\":{\"a\":\"x\",\"b\":\"\",\"a\":\"y\"}}", "\"a\" is given twice");
    char body[8192], name[301];
    memset(name, 'n', 300);
    name[300] = '\0';
    (void)snprintf(body, sizeof body, P "\"files\":{\"x/%s\":\"\"}}", name);
    refuses(body, "more than 255");
    struct cordon_run_request run = read_body(P "\"files\":{\"..a/...\":\"\",\"/etc/passwd\":\"\",\"a//b/./c\":\"\"}}");
    assert_int_equal(run.request.file_count, 3); /* the guest's own /etc: its matter */
    cordon_run_request_done(&run);
}

static void repeated(struct cordon_buf *body, const char *before, const char *each, size_t count, const char *after)
{
    *body = CORDON_BUF_INIT(64u << 20);
    (void)cordon_buf_appends(body, before);
    for (size_t i = 0; i < count; i++)
        (void)cordon_buf_appendf(body, "%s\"n%zu\":%s", i ? "," : "", i, each);
    (void)cordon_buf_appends(body, after);
    assert_false(body->failed);
}

static void counts_and_sizes_are_bounded(void **state)
{
    struct cordon_buf body;
    repeated(&body, P "\"env\":{", "\"\"", CORDON_ENV_MAX + 1, "}}");
    refuses(body.data, "env has more entries than the 100");
    cordon_buf_done(&body);
    repeated(&body, P "\"files\":{", "\"\"", CORDON_FILES_MAX + 1, "}}");
    refuses(body.data, "files has more entries than the 1024");
    cordon_buf_done(&body);
    repeated(&body, P "\"files\":{", "\"\"", CORDON_FILES_MAX, "}}");
    struct cordon_run_request run = read_body(body.data);
    assert_int_equal(run.request.file_count, CORDON_FILES_MAX);
    cordon_run_request_done(&run);
    cordon_buf_done(&body);
    char *big = malloc(3u << 20), *text = malloc(4u << 20);
    assert_true(big && text);
    memset(big, 'x', 3u << 20);
    (void)snprintf(text, 4u << 20, "{\"language\":\"python\",\"code\":\"%.*s\"}", 4097, big);
    refuses_as(CORDON_ERROR_TOO_LARGE, text, "CORDON_CODE_KB");
    (void)snprintf(text, 4u << 20, P "\"env\":{\"A\":\"%.*s\"}}", 4097, big);
    refuses(text, "more than 4096");
    (void)snprintf(text, 4u << 20, P "\"disk_mb\":2,\"files\":{\"a\":\"%.*s\"}}", (2 << 20) + 1, big);
    refuses_as(CORDON_ERROR_TOO_LARGE, text, "disk_mb");
    free(big);
    free(text);
}

/* A legal body that would be gigabytes as a tree stays what it is. */
static void arguments_build_no_tree(void **state)
{
    struct cordon_buf body = CORDON_BUF_INIT(64u << 20);
    (void)cordon_buf_appends(&body, P "\"arguments\":{\"a\":[");
    for (size_t i = 0; i < 1u << 20; i++)
        (void)cordon_buf_appends(&body, i ? ",{}" : "{}");
    (void)cordon_buf_appends(&body, "]}}");
    struct cordon_run_request run;
    assert_int_equal(cordon_run_request_parse(settings, body.data, body.size, &run, NULL), 0);
    assert_true(run.request.arguments.size > 3u << 20);
    cordon_run_request_done(&run);
    cordon_buf_done(&body);
}

static void hand_filled_requests_are_checked(void **state)
{
    static const char *const env[] = {"NOPE"}, *const twice[] = {"A=1", "A=2"};
    struct cordon_error err = {0};
    struct cordon_run_request run;
    cordon_run_request_init(settings, CORDON_DOOR_NATIVE, &run);
    assert_true(cordon_run_request_check(settings, &run, &err) < 0); /* no language */
    run.request.language = "py";                                     /* not the canonical name */
    assert_true(cordon_run_request_check(settings, &run, &err) < 0);
    run.request.language = "python";
    assert_int_equal(cordon_run_request_check(settings, &run, &err), 0);
    run.request.arguments = (struct cordon_bytes){"{,}", 3};
    assert_true(cordon_run_request_check(settings, &run, &err) < 0);
    assert_non_null(strstr(err.message, "arguments: the text is not JSON"));
    run.request.arguments = (struct cordon_bytes){"[]", 2};
    assert_true(cordon_run_request_check(settings, &run, &err) < 0);
    run.request.arguments = (struct cordon_bytes){"{}", 2};
    run.request.env = env;
    run.request.env_count = 1;
    assert_true(cordon_run_request_check(settings, &run, &err) < 0);
    run.request.env = twice;
    run.request.env_count = 2;
    assert_true(cordon_run_request_check(settings, &run, &err) < 0);
    run.request.env_count = 1;
    assert_int_equal(cordon_run_request_check(settings, &run, &err), 0);
    run.request.limits.timeout_ms = 0;
    assert_true(cordon_run_request_check(settings, &run, &err) < 0);
    cordon_run_request_done(&run);
}

static void the_arena_is_zeroed_and_aligned(void **state)
{
    struct cordon_run_request run;
    cordon_run_request_init(settings, CORDON_DOOR_NATIVE, &run);
    assert_null(cordon_run_request_alloc(&run, SIZE_MAX));
    for (size_t size = 0; size < 40000; size = size * 2 + 1) {
        unsigned char *p = cordon_run_request_alloc(&run, size);
        assert_non_null(p);
        assert_int_equal((uintptr_t)p % 16, 0);
        for (size_t i = 0; i < size; i++)
            assert_int_equal(p[i], 0);
        memset(p, 0xAA, size);
    }
    cordon_run_request_done(&run);
    cordon_run_request_done(&run);
}

static void limits_follow_the_door(void **state)
{
    struct cordon_run_request run;
    struct cordon_settings *s = load_settings("CORDON_MAX_TIMEOUT_S=5", "CORDON_MAX_MEMORY_MB=100", NULL);
    cordon_run_request_init(s, CORDON_DOOR_NATIVE, &run);
    assert_int_equal(run.request.limits.timeout_ms, 5000);
    assert_int_equal(run.request.limits.memory_bytes, 100u << 20);
    cordon_settings_free(s);
    s = load_settings("SANDBOX_TIMEOUT=10m", NULL);
    cordon_run_request_init(s, CORDON_DOOR_EXECUTOR_MANAGER, &run);
    run.request.language = "python";
    assert_int_equal(run.request.limits.timeout_ms, 600000);
    assert_int_equal(cordon_run_request_check(s, &run, NULL), 0);
    cordon_run_request_init(s, CORDON_DOOR_NATIVE, &run);
    run.request.language = "python";
    run.request.limits.timeout_ms = 600000;
    assert_true(cordon_run_request_check(s, &run, NULL) < 0);
    cordon_settings_free(s);
}

/* Wherever in the body it stands: the others' defaults are its settings'. */
static void the_policy_says_whose_defaults_count(void **state)
{
    struct cordon_run_request run = read_body(P "\"policy\":\"native\"}");
    assert_int_equal(run.door, CORDON_DOOR_NATIVE);
    assert_int_equal(run.request.limits.memory_bytes, 256u << 20);
    cordon_run_request_done(&run);
    run = read_body(P "\"timeout_s\":7,\"env\":{\"A\":\"1\"},\"policy\":\"langflow\"}");
    assert_int_equal(run.door, CORDON_DOOR_LANGFLOW);
    assert_int_equal(run.request.limits.memory_bytes, 192u << 20);
    assert_int_equal(run.request.limits.timeout_ms, 7000);
    assert_int_equal(run.request.env_count, 1);
    assert_false(run.request.network);
    cordon_run_request_done(&run);
    struct cordon_settings *s = load_settings("LANGFLOW_SANDBOX_ALLOW_NETWORK=true", NULL), *usual = settings;
    settings = s;
    run = read_body(P "\"policy\":\"langflow\"}");
    assert_true(run.request.network);
    cordon_run_request_done(&run);
    run = read_body(P "\"policy\":\"langflow\",\"network\":false}");
    assert_false(run.request.network);
    cordon_run_request_done(&run);
    settings = usual;
    cordon_settings_free(s);
    refuses(P "\"policy\":\"createos\"}", "policy must be native or langflow");
    refuses(P "\"policy\":1}", "policy must be a string");
    refuses(P "\"policy\":\"native\",\"policy\":\"langflow\"}", "policy is given twice");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_least_request_gets_the_settings_limits),
        cmocka_unit_test(every_field_is_read),
        cmocka_unit_test(null_is_absent),
        cmocka_unit_test(files_may_be_an_object),
        cmocka_unit_test(malformed_bodies_are_refused),
        cmocka_unit_test(wrong_types_and_bounds_name_the_field),
        cmocka_unit_test(environment_rules),
        cmocka_unit_test(file_rules),
        cmocka_unit_test(counts_and_sizes_are_bounded),
        cmocka_unit_test(arguments_build_no_tree),
        cmocka_unit_test(hand_filled_requests_are_checked),
        cmocka_unit_test(the_arena_is_zeroed_and_aligned),
        cmocka_unit_test(limits_follow_the_door),
        cmocka_unit_test(the_policy_says_whose_defaults_count),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
