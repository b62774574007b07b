/* SPDX-License-Identifier: Apache-2.0 */
/* The command lines of `cordon run` and `cordon serve`, and the request that the first makes. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "cli/run_options.h"
#include "supervisor/listen.h"
#include "supervisor/role_args.h"

#define WORDS(...) ((char *[]){(char[]){"x"}, __VA_ARGS__, NULL})
#define W(text) ((char[]){text})

static struct cordon_run_options options;
static struct cordon_error err;

static int parse(char **argv)
{
    int argc = 0;
    while (argv[argc])
        argc++;
    err = (struct cordon_error){0};
    return cordon_run_options_parse(argc, argv, &options, &err);
}

static void expect_wrong(char **argv, const char *word)
{
    assert_int_equal(parse(argv), -EINVAL);
    assert_int_equal(err.kind, CORDON_ERROR_INVALID);
    if (!strstr(err.message, word))
        fail_msg("\"%s\" does not name %s", err.message, word);
}

static void wrong_command_lines_name_the_word(void **state)
{
    expect_wrong(WORDS(NULL), "no program");
    expect_wrong(WORDS(W("--nope")), "--nope");
    expect_wrong(WORDS(W("-t")), "-t");
    expect_wrong(WORDS(W("-c"), W("1"), W("extra")), "extra");
    expect_wrong(WORDS(W("a.py"), W("b.py")), "b.py");
    expect_wrong(WORDS(W("-t"), W("x"), W("-c"), W("1")), "x");
    expect_wrong(WORDS(W("-t"), W("0"), W("-c"), W("1")), "-t");
    expect_wrong(WORDS(W("-t"), W("-1"), W("-c"), W("1")), "-1");
    expect_wrong(WORDS(W("-t"), W("nan"), W("-c"), W("1")), "nan");
    expect_wrong(WORDS(W("-m"), W("1e400"), W("-c"), W("1")), "1e400");
    expect_wrong(WORDS(W("-e"), W("NOEQUALS"), W("-c"), W("1")), "NOEQUALS");
    expect_wrong(WORDS(W("-e"), W("=x"), W("-c"), W("1")), "=x");
    expect_wrong(WORDS(W("--put"), W("nocolon"), W("-c"), W("1")), "nocolon");
    expect_wrong(WORDS(W("-"), W("--stdin"), W("-")), "stdin");
}

static void too_many_of_one_are_refused(void **state)
{
    static char pairs[CORDON_RUN_OPTIONS_MAX + 1][16];
    static char *argv[2 * CORDON_RUN_OPTIONS_MAX + 8], option[] = "-e", file[] = "file.py";
    size_t n = 0;
    argv[n++] = option;
    for (size_t i = 0; i <= CORDON_RUN_OPTIONS_MAX; i++) {
        (void)snprintf(pairs[i], sizeof pairs[i], "A%zu=1", i);
        argv[n++] = option;
        argv[n++] = pairs[i];
    }
    argv[n++] = file;
    argv[n] = NULL;
    expect_wrong(argv, "-e");
}

/* The body of that command line; "" with err when it fails. */
static const char *body(char **argv)
{
    static struct cordon_buf text = CORDON_BUF_INIT(1u << 20);
    cordon_buf_done(&text);
    assert_int_equal(parse(argv), 0);
    return cordon_run_options_body(&options, &text, &err) < 0 ? "" : text.data;
}

static void the_body_has_what_was_asked(void **state)
{
    assert_string_equal(body(WORDS(W("-c"), W("print(\"x\")"))),
                        "{\"language\":\"python\",\"code\":\"print(\\\"x\\\")\"}");
    assert_string_equal(body(WORDS(W("-l"), W("bash"), W("-c"), W("\xff"))),
                        "{\"language\":\"bash\",\"code_b64\":\"/w==\"}");
    assert_string_equal(body(WORDS(W("-c"), W("1"), W("-t"), W("007.50"), W("-m"), W("64"), W("-b"), W("local"),
                                   W("--template"), W("x1"), W("--policy"), W("langflow"), W("--fresh"), W("--json"))),
                        "{\"language\":\"python\",\"code\":\"1\",\"backend\":\"local\",\"template\":\"x1\","
                        "\"policy\":\"langflow\",\"timeout_s\":7.5,\"memory_mb\":64,"
                        "\"fresh_interpreter\":true}");
    assert_string_equal(body(WORDS(W("-c"), W("1"), W("--args"), W(" {\"a\": 1.50} "))),
                        "{\"language\":\"python\",\"code\":\"1\",\"arguments\":{\"a\": 1.50}}");
    assert_string_equal(body(WORDS(W("-c"), W("1"), W("-e"), W("A=1"), W("-e"), W("B=x=y"), W("-e"), W("A=2"))),
                        "{\"language\":\"python\",\"code\":\"1\",\"env\":{\"A\":\"2\",\"B\":\"x=y\"}}");
    assert_string_equal(body(WORDS(W("-c"), W("1"), W("--allow-domain"), W("a.b"))),
                        "{\"language\":\"python\",\"code\":\"1\",\"network\":true,\"allowed_domains\":[\"a.b\"]}");
}

static void bad_contents_are_told(void **state)
{
    assert_string_equal(body(WORDS(W("-c"), W("1"), W("--args"), W("[1]"))), "");
    assert_non_null(strstr(err.message, "--args"));
    assert_string_equal(body(WORDS(W("-c"), W("1"), W("--args"), W("{bad"))), "");
    assert_non_null(strstr(err.message, "--args"));
    assert_string_equal(body(WORDS(W("-c"), W("1"), W("-e"), W("A=\xff"))), "");
    assert_string_equal(body(WORDS(W("/no/such/file.py"))), "");
    assert_non_null(strstr(err.message, "/no/such/file.py"));
    assert_string_equal(body(WORDS(W("-c"), W("1"), W("--put"), W("/no/such:x"))), "");
    assert_non_null(strstr(err.message, "/no/such"));
    assert_string_equal(body(WORDS(W("/"))), ""); /* a folder */
    assert_int_equal(err.kind, CORDON_ERROR_INVALID);
}

static void languages_are_guessed(void **state)
{
    assert_string_equal(cordon_language_guess("/a.b/x.py", "", 0), "python");
    assert_string_equal(cordon_language_guess("x.mjs", "", 0), "javascript");
    assert_string_equal(cordon_language_guess("x.sh", "", 0), "bash");
    assert_string_equal(cordon_language_guess("x.py", "#!/bin/bash\n", 12), "python");
    assert_string_equal(cordon_language_guess("x", "#!/usr/bin/env node\nbash", 24), "javascript");
    assert_string_equal(cordon_language_guess(NULL, "#!/usr/bin/python3 -I", 21), "python");
    assert_string_equal(cordon_language_guess("x.txt", "#!/bin/sh\n", 10), "bash");
    assert_null(cordon_language_guess("x.txt", "#!/bin/perl\npython", 18));
    assert_null(cordon_language_guess("x", "", 0));
    assert_null(cordon_language_guess(NULL, "#", 1));
}

static int parse_serve(char **argv, struct cordon_serve_options *ret)
{
    int argc = 0;
    while (argv[argc])
        argc++;
    err = (struct cordon_error){0};
    return cordon_serve_options_parse(argc, argv, ret, &err);
}

static void serve_options_become_settings(void **state)
{
    struct cordon_serve_options serve;
    assert_int_equal(parse_serve(WORDS(W("--listen"), W("a:1"), W("--state"), W("/s"), W("--listen"), W("b:2"),
                                       W("--config"), W("c"), W("--state"), W("/t")),
                                 &serve),
                     0);
    assert_int_equal(serve.flag_count, 2);
    assert_string_equal(serve.flags[0], "CORDON_LISTEN=a:1,b:2");
    assert_string_equal(serve.flags[1], "CORDON_STATE=/t");
    assert_null(serve.flags[2]);
    assert_string_equal(serve.config, "c");
    cordon_serve_options_done(&serve);
    assert_int_equal(parse_serve(WORDS(W("--nope")), &serve), -EINVAL);
    cordon_serve_options_done(&serve);
    assert_int_equal(parse_serve(WORDS(W("word")), &serve), -EINVAL);
    cordon_serve_options_done(&serve);
}

static void role_arguments_are_read(void **state)
{
    struct cordon_settings_input input;
    char **argv = WORDS(W("--config"), W("f"), W("A=1"), W("B=2"));
    assert_int_equal(cordon_role_args_read(argv, &input, &err), 0);
    assert_string_equal(input.file, "f");
    assert_string_equal(input.flags[0], "A=1");
    assert_string_equal(input.flags[1], "B=2");
    assert_null(input.flags[2]);
    assert_int_equal(cordon_role_args_read(WORDS(W("--oneshot")), &input, &err), 0);
    assert_null(input.file);
    assert_null(input.flags[0]);
    assert_int_equal(cordon_role_args_read(WORDS(W("word")), &input, &err), -EINVAL);
}

static void addresses(void **state)
{
    static const struct {
        const char *text;
        int family; /* 0: refused */
        bool loopback;
    } rows[] = {
        {"127.0.0.1:9385", AF_INET, true},
        {"127.9.9.9:1", AF_INET, true},
        {"localhost:9385", AF_INET, true},
        {"0.0.0.0:80", AF_INET, false},
        {":80", AF_INET, false},
        {"192.168.1.2:65535", AF_INET, false},
        {"[::1]:9385", AF_INET6, true},
        {"[::]:0", AF_INET6, false},
        {"[::ffff:127.0.0.1]:1", AF_INET6, false},
        {"nonsense", 0, false},
        {"", 0, false},
        {"127.0.0.1", 0, false},
        {"127.0.0.1:", 0, false},
        {"127.0.0.1:99999", 0, false},
        {"127.0.0.1:-1", 0, false},
        {"127.0.0.1:1x", 0, false},
        {"::1:9385", 0, false},
        {"[::1:9385", 0, false},
        {"example.com:80", 0, false},
        {"127.1:80", 0, false},
        {"[]:80", 0, false},
        {"1111111111111111111111111111111111111111111111111111111111111111111:80", 0, false},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct cordon_listen_address address;
        int r = cordon_listen_parse(rows[i].text, &address, &err);
        if (r != (rows[i].family ? 0 : -EINVAL))
            fail_msg("%s: %d", rows[i].text, r);
        if (r < 0)
            continue;
        assert_int_equal(address.address.ss_family, rows[i].family);
        assert_int_equal(address.loopback, rows[i].loopback);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(wrong_command_lines_name_the_word),
        cmocka_unit_test(too_many_of_one_are_refused),
        cmocka_unit_test(the_body_has_what_was_asked),
        cmocka_unit_test(bad_contents_are_told),
        cmocka_unit_test(languages_are_guessed),
        cmocka_unit_test(serve_options_become_settings),
        cmocka_unit_test(role_arguments_are_read),
        cmocka_unit_test(addresses),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
