/* SPDX-License-Identifier: Apache-2.0 */
/* Reading JSON: what is JSON and what not, against json-c's strict parser; strings, numbers, walking. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <json-c/json.h>

#include "core/value.h"

static bool parses(const char *text, size_t size, struct cordon_value *ret)
{
    struct cordon_error err = {0};
    struct cordon_value value;
    int r = cordon_value_parse(text, size, ret ? ret : &value, &err);
    assert_true(r == 0 || (r == -EINVAL && err.kind == CORDON_ERROR_INVALID && *err.message));
    return r == 0;
}

static void json_is_accepted(void **state)
{
    static const char *const good[] = {
        "{}",
        "[]",
        " [ ] ",
        "{\"a\":1}",
        "[1,2,[3,{\"b\":[]}]]",
        "\"\"",
        "0",
        "-0",
        "-0.5e+10",
        "1E3",
        "true",
        "false",
        "null",
        "\"\\u0000\\ud83d\\ude00\\n\\/\"",
        "\"\xC3\xA4\x7F\"",
        "123456789012345678901234567890",
        "\n\t[\r\n1 , 2 ]\n",
        "{\"a\":{},\"a\":{}}",
        "\"\\ud800\"",
    };
    for (size_t i = 0; i < sizeof good / sizeof *good; i++)
        if (!parses(good[i], strlen(good[i]), NULL))
            fail_msg("refused %s", good[i]);
}

static void what_is_not_json_is_refused(void **state)
{
    static const char *const bad[] = {
        "",
        " ",
        "{",
        "}",
        "[",
        "]",
        "[1",
        "[1,",
        "[1,]",
        "[,1]",
        "{\"a\"}",
        "{\"a\":}",
        "{\"a\":1,}",
        "{a:1}",
        "{'a':1}",
        "{\"a\":1 \"b\":2}",
        "[1 2]",
        "[1}",
        "{\"a\":1]",
        "1 2",
        "01",
        "1.",
        ".5",
        "-",
        "+1",
        "1e",
        "1e+",
        "0x10",
        "NaN",
        "Infinity",
        "-Infinity",
        "tru",
        "truex",
        "nul",
        "\"",
        "\"\\",
        "\"\\x\"",
        "\"\\u12\"",
        "\"\\u123g\"",
        "\"a\nb\"",
        "\"\t\"",
        "// x\n1",
        "/* */1",
        "\xEF\xBB\xBF{}",
        "\"\xFF\"",
        "\"\xC0\x80\"",
        "\"\xED\xA0\x80\"",
        "[1]x",
        "{\"a\":1}{",
        "{1:2}",
        "{\"a\"::1}",
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        if (parses(bad[i], strlen(bad[i]), NULL))
            fail_msg("accepted %s", bad[i]);
    assert_false(parses("1\0", 2, NULL));
    assert_false(parses("\"a\0b\"", 5, NULL));
}

static void depth_is_bounded(void **state)
{
    char text[4 * CORDON_VALUE_DEPTH + 8];
    for (int depth = CORDON_VALUE_DEPTH; depth <= CORDON_VALUE_DEPTH + 1; depth++) {
        memset(text, '[', (size_t)depth);
        memset(text + depth, ']', (size_t)depth);
        assert_int_equal(parses(text, 2 * (size_t)depth, NULL), depth == CORDON_VALUE_DEPTH);
    }
    size_t size = 1u << 20;
    char *deep = malloc(size);
    assert_non_null(deep);
    memset(deep, '[', size);
    assert_false(parses(deep, size, NULL));
    free(deep);
    assert_true(parses("[[[[[[{\"a\":[{}]},[]]]]]]]", 25, NULL));
}

/* Mutations of a document: json-c (strict) and we must agree. Known differences are its own: it takes some control
 * characters in strings and numbers like 01, and knows no NUL. */
static void we_agree_with_json_c(void **state)
{
    static const char seed[] = "{\"a\":[1,-2.5e3,true,null,{\"b\":\"x\\u0041\\n\"}],\"c\":\"\xC3\xA4\"}";
    static const char bytes[] = "{}[],:\"\\ut0123e.- nfx";
    struct json_tokener *tokener = json_tokener_new_ex(CORDON_VALUE_DEPTH + 1);
    unsigned random = 12345;
    size_t agreed = 0;
    for (int i = 0; i < 20000; i++) {
        char text[sizeof seed];
        memcpy(text, seed, sizeof seed);
        for (int n = 0; n < 2; n++) {
            random = random * 1103515245u + 12345u;
            text[(random >> 8) % (sizeof seed - 1)] = bytes[(random >> 20) % (sizeof bytes - 1)];
        }
        json_tokener_reset(tokener);
        json_tokener_set_flags(tokener, JSON_TOKENER_STRICT | JSON_TOKENER_VALIDATE_UTF8);
        struct json_object *object = json_tokener_parse_ex(tokener, text, (int)strlen(text) + 1);
        bool theirs = json_tokener_get_error(tokener) == json_tokener_success;
        json_object_put(object);
        bool ours = parses(text, strlen(text), NULL);
        if (ours && !theirs)
            fail_msg("json-c refuses %s (%s)", text, json_tokener_error_desc(json_tokener_get_error(tokener)));
        agreed += ours == theirs;
    }
    json_tokener_free(tokener);
    assert_true(agreed > 19000);
}

static void strings_decode(void **state)
{
    static const struct {
        const char *raw, *text;
        ssize_t size;
    } cases[] = {
        {"\"\"", "", 0},
        {"\"a\\u0000b\"", "a\0b", 3},
        {"\"\\\"\\\\\\/\\b\\f\\n\\r\\t\"", "\"\\/\b\f\n\r\t", 8},
        {"\"\\u00e4\\u20AC\\uD83D\\uDE00\"", "\xC3\xA4\xE2\x82\xAC\xF0\x9F\x98\x80", 9},
        {"\"\\ud800\"", NULL, -EILSEQ},
        {"\"\\udc00\"", NULL, -EILSEQ},
        {"\"\\ud800\\u0041\"", NULL, -EILSEQ},
        {"\"\\ud800x\\udc00\"", NULL, -EILSEQ},
        {"\"\\ud800\\ud800\"", NULL, -EILSEQ},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct cordon_value value;
        char *to = malloc(strlen(cases[i].raw)); /* exactly the room that is promised to suffice */
        assert_non_null(to);
        assert_true(parses(cases[i].raw, strlen(cases[i].raw), &value));
        assert_int_equal(cordon_value_string(&value, to), cases[i].size);
        if (cases[i].size > 0)
            assert_memory_equal(to, cases[i].text, (size_t)cases[i].size);
        free(to);
    }
}

static void names_are_compared_decoded(void **state)
{
    struct cordon_value value;
    assert_true(parses("\"co\\u0064e\"", 11, &value));
    assert_true(cordon_value_equals(&value, "code"));
    assert_false(cordon_value_equals(&value, "cod"));
    assert_true(parses("\"code\\u0000\"", 12, &value));
    assert_false(cordon_value_equals(&value, "code"));
}

static void numbers_are_taken_exactly_or_not(void **state)
{
    static const struct {
        const char *text;
        bool whole;
        int64_t number;
    } cases[] = {
        {"0", true, 0},
        {"-7", true, -7},
        {"3e2", true, 300},
        {"30.0", true, 30},
        {"1.5", false, 0},
        {"1e999", false, 0},
        {"\"1\"", false, 0},
        {"9007199254740992", true, 9007199254740992},
        {"9007199254740994", false, 0},
        {"true", false, 0},
        {"1000000000000000000000000000000000000000000000000000000000000000000000", false, 0},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct cordon_value value;
        int64_t number = 0;
        assert_true(parses(cases[i].text, strlen(cases[i].text), &value));
        if (cordon_value_integer(&value, &number) != cases[i].whole || number != cases[i].number)
            fail_msg("%s", cases[i].text);
    }
}

static void containers_are_walked(void **state)
{
    static const char text[] = " { \"a\" : [ 1 , [ 2 , 3 ] ] , \"b\" : { } , \"a\":\"}\" } ";
    static const char *const expected[] = {"\"a\"=[ 1 , [ 2 , 3 ] ]", "\"b\"={ }", "\"a\"=\"}\""};
    struct cordon_value root, key, value;
    char got[64];
    size_t i = 0;
    assert_true(parses(text, sizeof text - 1, &root));
    struct cordon_value_walk walk = cordon_value_walk(&root);
    for (; cordon_value_next(&walk, &key, &value); i++) {
        (void)snprintf(got, sizeof got, "%.*s=%.*s", (int)key.size, key.data, (int)value.size, value.data);
        assert_string_equal(got, expected[i]);
    }
    assert_int_equal(i, 3);
    assert_true(parses("[]", 2, &root));
    walk = cordon_value_walk(&root);
    assert_false(cordon_value_next(&walk, &key, &value));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(json_is_accepted),
        cmocka_unit_test(what_is_not_json_is_refused),
        cmocka_unit_test(depth_is_bounded),
        cmocka_unit_test(we_agree_with_json_c),
        cmocka_unit_test(strings_decode),
        cmocka_unit_test(names_are_compared_decoded),
        cmocka_unit_test(numbers_are_taken_exactly_or_not),
        cmocka_unit_test(containers_are_walked),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
