/* SPDX-License-Identifier: Apache-2.0 */
/* core/egress_rule and core/egress: the grammar, the decisions, and what stands for what. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "core/egress.h"
#include "core_helper.h"

static struct cordon_egress_rule rule(const char *text)
{
    struct cordon_egress_rule made;
    struct cordon_error err = {0};
    if (cordon_egress_rule_parse(text, strlen(text), &made, &err) < 0)
        fail_msg("%s", err.message);
    return made;
}

static void every_form_reads_and_writes_back(void **state)
{
    static const struct {
        const char *text, *written;
    } rows[] = {
        {"pypi.org", "pypi.org"},
        {"PyPI.org.", "pypi.org"},
        {"pypi.org:443", "pypi.org:443"},
        {"*.example.com", "*.example.com"},
        {"*.example.com:8443", "*.example.com:8443"},
        {"intranet", "intranet"},
        {"a_b.xn--bcher-kva.example", "a_b.xn--bcher-kva.example"},
        {"192.0.2.7", "192.0.2.7"},
        {"192.0.2.0/24", "192.0.2.0/24"},
        {"192.0.2.0/24:80", "192.0.2.0/24:80"},
        {"0.0.0.0/0", "0.0.0.0/0"},
        {"2001:db8::7", "2001:db8::7"},
        {"2001:db8::/32", "2001:db8::/32"},
        {"::/0", "::/0"},
        {"[2001:db8::7]:443", "[2001:db8::7]:443"},
        {"[2001:db8::/32]:443", "[2001:db8::/32]:443"},
        {"[2001:db8::7]", "2001:db8::7"},
        {"::ffff:192.0.2.7", "192.0.2.7"},
        {"[::ffff:192.0.2.7]:80", "192.0.2.7:80"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        char text[CORDON_EGRESS_RULE_TEXT];
        struct cordon_egress_rule made = rule(rows[i].text);
        cordon_egress_rule_format(&made, text);
        assert_string_equal(text, rows[i].written);
    }
}

static void what_is_no_rule_is_refused(void **state)
{
    static const char *const texts[] = {
        "",
        ".",
        "a..b",
        "-a.b",
        "a-.b",
        "*",
        "*.",
        "*.*.a.com",
        "a.*.com",
        "*a.com",
        "a b.com",
        "a.com:",
        "a.com:0",
        "a.com:65536",
        "a.com:https",
        "a.com:080",
        "a.com:443:1",
        "2130706433",
        "0x7f000001",
        "0x7f.1",
        "127.1",
        "127.0.0.01",
        "1.2.3.4.5",
        "1.2.3",
        "10.0.0.1/8",
        "10.0.0.0/33",
        "10.0.0.0/",
        "10.0.0.0/08",
        "2001:db8::/129",
        "2001:db8::1/32",
        "[1.2.3.4]",
        "[a.com]:80",
        "[::1",
        "::1]",
        "[::1]80",
        "fe80::1%eth0",
        "http://a.b",
        "a.com/x",
        "a.com/24",
        ("b\xc3\xbc"
         "cher.example"),
        "a.0x1f",
        "a@b.com",
    };
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        struct cordon_egress_rule made;
        struct cordon_error err = {0};
        if (cordon_egress_rule_parse(texts[i], strlen(texts[i]), &made, &err) == 0)
            fail_msg("\"%s\" was taken", texts[i]);
        assert_int_equal(err.kind, CORDON_ERROR_INVALID);
    }
    char label[80] = "", name[300] = "";
    memset(label, 'a', 64);
    assert_int_equal(cordon_egress_name_read(label, 64, name), -22);
    assert_int_equal(cordon_egress_name_read(label, 63, name), 0);
    assert_int_equal(cordon_egress_name_read("a.com\0.evil.com", 15, name), -22);
}

static bool has(const char *text, const char *name, uint16_t port)
{
    struct cordon_egress_rule made = rule(text);
    return cordon_egress_rule_has_name(&made, name, port);
}

static struct cordon_egress_address address(const char *text)
{
    struct cordon_egress_address made;
    assert_int_equal(cordon_egress_address_read(text, strlen(text), &made), 0);
    return made;
}

static bool in(const char *text, const char *at, uint16_t port)
{
    struct cordon_egress_rule made = rule(text);
    struct cordon_egress_address there = address(at);
    return cordon_egress_rule_has_address(&made, &there, port);
}

static void names_match_whole_labels(void **state)
{
    assert_true(has("a.com", "a.com", 80));
    assert_false(has("a.com", "www.a.com", 80));
    assert_false(has("a.com", "xa.com", 80));
    assert_false(has("a.com:443", "a.com", 80));
    assert_true(has("*.a.com", "www.a.com", 80));
    assert_true(has("*.a.com", "x.y.a.com", 80));
    assert_false(has("*.a.com", "a.com", 80));
    assert_false(has("*.a.com", "xa.com", 80));
    assert_false(has("*.a.com", ".a.com", 80));
}

static void ranges_match_their_bits(void **state)
{
    assert_true(in("192.0.2.0/25", "192.0.2.127", 80));
    assert_false(in("192.0.2.0/25", "192.0.2.128", 80));
    assert_true(in("192.0.2.0/25", "::ffff:192.0.2.1", 80));
    assert_true(in("0.0.0.0/0", "8.8.8.8", 80));
    assert_false(in("0.0.0.0/0", "2001:db8::1", 80));
    assert_false(in("::/0", "8.8.8.8", 80));
    assert_true(in("::/0", "2001:db8::1", 80));
    assert_true(in("[2001:db8::/33]:443", "2001:db8:7fff::1", 443));
    assert_false(in("[2001:db8::/33]:443", "2001:db8:8000::1", 443));
    assert_false(in("[2001:db8::/33]:443", "2001:db8::1", 80));
}

static void special_ranges_are_known(void **state)
{
    static const char *const special[] = {
        "127.0.0.1",
        "127.255.0.9",
        "0.0.0.0",
        "10.1.2.3",
        "172.16.0.1",
        "172.31.255.255",
        "192.168.1.1",
        "169.254.169.254",
        "100.64.0.1",
        "100.127.255.255",
        "224.0.0.1",
        "255.255.255.255",
        "240.0.0.1",
        "198.18.1.1",
        "192.0.2.1",
        "::1",
        "::",
        "fe80::1",
        "fc00::1",
        "fd00:ec2::254",
        "ff02::1",
        "64:ff9b::7f00:1",
        "2002:7f00:1::",
        "2001:0:1::1",
        "::ffff:127.0.0.1",
        "::ffff:169.254.169.254",
        "::127.0.0.1",
        "2001:db8::1",
        "100::1",
        "fec0::1",
        "64:ff9b:1::a00:1",
        "::ffff:0:10.0.0.1",
        "2a00:1450::5efe:a00:1",
        "2a00:1450::200:5efe:a00:1",
        "192.0.0.8",
        "192.88.99.1",
        "5f00::1",
    };
    static const char *const global[] = {"1.1.1.1",      "8.8.8.8",      "172.32.0.1", "100.128.0.1", "169.253.0.1",
                                         "2606:4700::1", "2a00:1450::1", "193.0.0.1",  "11.0.0.1"};
    for (size_t i = 0; i < sizeof special / sizeof *special; i++) {
        struct cordon_egress_address there = address(special[i]);
        if (!cordon_egress_address_special(&there))
            fail_msg("%s is not special", special[i]);
    }
    for (size_t i = 0; i < sizeof global / sizeof *global; i++) {
        struct cordon_egress_address there = address(global[i]);
        if (cordon_egress_address_special(&there))
            fail_msg("%s is special", global[i]);
    }
}

static void within_is_a_subset(void **state)
{
    static const struct {
        const char *inner, *outer;
        bool within;
    } rows[] = {
        {"a.com", "a.com", true},
        {"a.com:443", "a.com", true},
        {"a.com", "a.com:443", false},
        {"x.a.com", "a.com", false},
        {"x.a.com", "*.a.com", true},
        {"*.x.a.com", "*.a.com", true},
        {"*.a.com", "*.a.com", true},
        {"*.a.com", "a.com", false},
        {"a.com", "*.a.com", false},
        {"1.2.3.4", "1.2.3.0/24", true},
        {"1.2.3.0/24", "1.2.3.4", false},
        {"1.2.3.4", "::/0", false},
        {"1.2.3.4:80", "1.2.3.4:81", false},
        {"a.com", "0.0.0.0/0", false},
        {"2001:db8::1", "2001:db8::/32", true},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct cordon_egress_rule inner = rule(rows[i].inner), outer = rule(rows[i].outer);
        if (cordon_egress_rule_within(&inner, &outer) != rows[i].within)
            fail_msg("%s in %s", rows[i].inner, rows[i].outer);
    }
}

/* --- policies --- */

static struct cordon_egress_policy policy(const char *const *entries)
{
    struct cordon_egress_policy made = CORDON_EGRESS_POLICY_OFF;
    struct cordon_error err = {0};
    for (; *entries; entries++)
        if (cordon_egress_policy_add(&made, *entries, &err) < 0)
            fail_msg("%s", err.message);
    return made;
}
#define POLICY(...) policy((const char *const[]){__VA_ARGS__, NULL})

static bool allows_name(const struct cordon_egress_policy *made, const char *name, uint16_t port)
{
    const struct cordon_egress_rule *found;
    return cordon_egress_decide_name(made, name, port, &found) == CORDON_EGRESS_ALLOW;
}

static bool allows_address(const struct cordon_egress_policy *made, const char *at, uint16_t port)
{
    const struct cordon_egress_rule *found;
    struct cordon_egress_address there = address(at);
    return cordon_egress_decide_address(made, &there, port, &found) == CORDON_EGRESS_ALLOW;
}

static void modes_follow_the_entries(void **state)
{
    struct cordon_egress_policy off = CORDON_EGRESS_POLICY_OFF;
    assert_false(allows_name(&off, "a.com", 80) || allows_address(&off, "1.1.1.1", 80));
    struct cordon_egress_policy names = POLICY("a.com:443", "1.2.3.0/24");
    assert_int_equal(names.mode, CORDON_EGRESS_NAMES);
    assert_true(allows_name(&names, "a.com", 443) && allows_name(&names, "a.com", 0));
    assert_false(allows_name(&names, "a.com", 80) || allows_name(&names, "b.com", 443));
    assert_true(allows_address(&names, "1.2.3.4", 9));
    assert_false(allows_address(&names, "1.2.4.4", 9));
    struct cordon_egress_policy open = POLICY("*", "!1.2.3.0/24", "+1.2.3.4");
    assert_int_equal(open.mode, CORDON_EGRESS_OPEN);
    assert_true(allows_address(&open, "9.9.9.9", 25) && allows_address(&open, "1.2.3.4", 25));
    assert_false(allows_address(&open, "1.2.3.5", 25));
    cordon_egress_policy_done(&names);
    cordon_egress_policy_done(&open);
}

static void denials_beat_what_is_allowed(void **state)
{
    struct cordon_egress_policy made = POLICY("*.a.com", "!evil.a.com", "!!worse.a.com", "+worse.a.com", "+good.a.com");
    assert_true(allows_name(&made, "x.a.com", 80));
    assert_false(allows_name(&made, "evil.a.com", 80) || allows_name(&made, "evil.a.com", 0));
    assert_false(allows_name(&made, "worse.a.com", 80));
    cordon_egress_policy_done(&made);
    struct cordon_egress_policy open = CORDON_EGRESS_POLICY_OFF;
    assert_int_equal(cordon_egress_policy_add(&open, "!evil.com", NULL), 0);
    assert_true(cordon_egress_policy_add(&open, "*", NULL) < 0); /* a name can't be held beside every address */
    cordon_egress_policy_done(&open);
}

static void a_policy_is_the_same_after_its_text(void **state)
{
    struct cordon_egress_policy made = POLICY("a.com", "*.b.com:443", "!1.2.3.0/24", "+[2001:db8::1]:22", "!!c.com"),
                                again;
    struct cordon_buf text = CORDON_BUF_INIT(4096), second = CORDON_BUF_INIT(4096);
    assert_int_equal(cordon_egress_policy_add_header(&made, "api.a.com", "Authorization", "Bearer: x y", NULL), 0);
    assert_int_equal(cordon_egress_policy_write(&made, true, &text), 0);
    assert_int_equal(cordon_egress_policy_read(text.data, text.size, &again, NULL), 0);
    assert_int_equal(cordon_egress_policy_write(&again, true, &second), 0);
    assert_string_equal(text.data, second.data);
    assert_non_null(strstr(text.data, "=api.a.com Authorization: Bearer: x y\n"));
    second.size = 0;
    assert_int_equal(cordon_egress_policy_write(&again, false, &second), 0);
    assert_null(strstr(second.data, "Bearer"));
    for (const char *const *bad = (const char *const[]){"", "x\n", "names", "off\na.com\n", "names\n=a\n", "names\n*\n",
                                                        "names\n=1.2.3.4 A: b\n", NULL};
         *bad; bad++) {
        struct cordon_egress_policy none;
        assert_true(cordon_egress_policy_read(*bad, strlen(*bad), &none, NULL) < 0);
    }
    cordon_buf_done(&text);
    cordon_buf_done(&second);
    cordon_egress_policy_done(&made);
    cordon_egress_policy_done(&again);
}

static void headers_that_frame_a_message_are_refused(void **state)
{
    struct cordon_egress_policy made = CORDON_EGRESS_POLICY_OFF;
    static const char *const names[] = {"Host", "content-length", "Transfer-Encoding", "Connection", "a b", "", "a:"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        assert_true(cordon_egress_policy_add_header(&made, "a.com", names[i], "x", NULL) < 0);
    assert_true(cordon_egress_policy_add_header(&made, "a.com", "X-Key", "a\r\nHost: b", NULL) < 0);
    assert_true(cordon_egress_policy_add_header(&made, "1.2.3.4", "X-Key", "a", NULL) < 0);
    assert_int_equal(made.header_count, 0);
    cordon_egress_policy_done(&made);
}

/* --- settings --- */

static struct cordon_settings *settings(const char *const *environ_)
{
    struct cordon_settings *made = NULL;
    struct cordon_error err = {0};
    struct cordon_settings_input input = {.environ = environ_};
    if (cordon_settings_load(&input, &made, &err) < 0)
        fail_msg("%s", err.message);
    return made;
}

static void the_door_decides_what_no_entry_means(void **state)
{
    struct cordon_settings *none = settings((const char *const[]){NULL});
    struct cordon_egress_policy made;
    assert_int_equal(cordon_egress_policy_for(none, CORDON_DOOR_NATIVE, false, NULL, 0, &made, NULL), 0);
    assert_int_equal(made.mode, CORDON_EGRESS_OFF);
    assert_int_equal(cordon_egress_policy_for(none, CORDON_DOOR_NATIVE, true, NULL, 0, &made, NULL), 0);
    assert_int_equal(made.mode, CORDON_EGRESS_OPEN);
    assert_int_equal(cordon_egress_policy_for(none, CORDON_DOOR_LANGFLOW, true, NULL, 0, &made, NULL), 0);
    assert_int_equal(made.mode, CORDON_EGRESS_NAMES);
    assert_true(allows_name(&made, "pypi.org", 443) && allows_name(&made, "registry.npmjs.org", 443));
    assert_false(allows_name(&made, "example.com", 443));
    cordon_egress_policy_done(&made);
    const char *const own[] = {"a.com"};
    assert_int_equal(cordon_egress_policy_for(none, CORDON_DOOR_LANGFLOW, true, own, 1, &made, NULL), 0);
    assert_true(allows_name(&made, "x.a.com", 443)); /* its own rule */
    cordon_egress_policy_done(&made);
    assert_int_equal(cordon_egress_policy_for(none, CORDON_DOOR_NATIVE, true, own, 1, &made, NULL), 0);
    assert_false(allows_name(&made, "x.a.com", 443));
    cordon_egress_policy_done(&made);
    cordon_settings_free(none);
}

static void the_settings_bound_what_a_request_names(void **state)
{
    struct cordon_settings *some =
        settings((const char *const[]){"CORDON_ALLOWED_DOMAINS=*.a.com,b.com:443,!evil.a.com", NULL});
    struct cordon_egress_policy most, made;
    assert_int_equal(cordon_egress_policy_for(some, CORDON_DOOR_NATIVE, true, NULL, 0, &most, NULL), 0);
    assert_true(cordon_egress_policy_covers(&most, "x.a.com") && cordon_egress_policy_covers(&most, "b.com:443"));
    assert_true(cordon_egress_policy_covers(&most, "!x.com"));
    assert_false(cordon_egress_policy_covers(&most, "b.com") || cordon_egress_policy_covers(&most, "*"));
    assert_false(cordon_egress_policy_covers(&most, "+c.com") || cordon_egress_policy_covers(&most, "1.2.3.4"));
    const char *const own[] = {"+evil.a.com", "x.a.com"};
    assert_int_equal(cordon_egress_policy_for(some, CORDON_DOOR_NATIVE, true, own, 2, &made, NULL), 0);
    assert_false(allows_name(&made, "evil.a.com", 80)); /* the operator's denial holds */
    assert_true(allows_name(&made, "x.a.com", 80));
    cordon_egress_policy_done(&most);
    cordon_egress_policy_done(&made);
    cordon_settings_free(some);
}

static void headers_need_their_host_and_what_tls_needs(void **state)
{
    struct cordon_settings *without = settings((const char *const[]){NULL});
    struct cordon_settings *with = settings((const char *const[]){"CORDON_EGRESS_CA=true", NULL});
    static const struct {
        const char *header;
        bool good_without, good_with;
    } cases[] = {
        {"a.com X-Key: s3cr3t", false, true},       {"a.com:443 X-Key: s3cr3t", false, true},
        {"a.com:80 X-Key: s3cr3t", true, true},     {"*.b.com X-Key: s3cr3t", false, true},
        {"x.b.com:8080 X-Key: s3cr3t", true, true}, {"b.com X-Key: s3cr3t", false, false},
        {"c.com:443 X-Key: s3cr3t", false, true},   {"c.com:80 X-Key: s3cr3t", false, false},
        {"1.2.3.4 X-Key: s3cr3t", false, false},    {"!a.com X-Key: s3cr3t", false, false},
        {"a.com X-Key s3cr3t", false, false},       {"X-Key: s3cr3t", false, false},
        {"a.com Host: s3cr3t", false, false},
    };
    const char *const rules[] = {"a.com", "*.b.com", "c.com:443"};
    for (size_t i = 0; i < 2 * (sizeof cases / sizeof *cases); i++) {
        struct cordon_settings *set = i % 2 ? with : without;
        struct cordon_egress_policy made;
        struct cordon_error err = {0};
        assert_int_equal(cordon_egress_policy_for(set, CORDON_DOOR_NATIVE, true, rules, 3, &made, NULL), 0);
        int r = cordon_egress_policy_add_headers(&made, set, CORDON_DOOR_NATIVE, &cases[i / 2].header, 1, &err);
        if ((r == 0) != (i % 2 ? cases[i / 2].good_with : cases[i / 2].good_without))
            fail_msg("%s: %d %s", cases[i / 2].header, r, err.message);
        assert_null(strstr(err.message, "s3cr3t"));
        cordon_egress_policy_done(&made);
    }
    static const char *const ports[] = {"a.com:8088 X-Key: s3cr3t", "a.com:80 X-Key: s3cr3t", "a.com:443 X-Key: s3cr3t",
                                        "a.com X-Key: s3cr3t"};
    for (size_t i = 0; i < sizeof ports / sizeof *ports; i++) {
        struct cordon_egress_policy open;
        struct cordon_error err = {0};
        assert_int_equal(cordon_egress_policy_for(with, CORDON_DOOR_NATIVE, true, NULL, 0, &open, NULL), 0);
        assert_int_equal(open.mode, CORDON_EGRESS_OPEN);
        int r = cordon_egress_policy_add_headers(&open, with, CORDON_DOOR_NATIVE, &ports[i], 1, &err);
        assert_int_equal(r == 0, i > 0); /* what no request of that port is read for can't be promised */
        assert_true(i > 0 || strstr(err.message, "ports 80 and 443"));
        cordon_egress_policy_done(&open);
    }
    struct cordon_egress_policy off = CORDON_EGRESS_POLICY_OFF;
    assert_true(cordon_egress_policy_add_headers(&off, with, CORDON_DOOR_NATIVE, &cases[0].header, 1, NULL) < 0);
    cordon_settings_free(without);
    cordon_settings_free(with);
}

static void trust_is_added_where_it_is_not_set(void **state)
{
    const char *const env[] = {"A=b", "SSL_CERT_FILE=/mine"};
    size_t count, own = 0;
    const char **both = cordon_egress_trust(env, 2, &count);
    for (size_t i = 0; i < count; i++)
        own += strncmp(both[i], "SSL_CERT_FILE=", 14) == 0;
    assert_true(count > 4 && own == 1);
    assert_string_equal(both[1], "SSL_CERT_FILE=/mine");
    free(both);
}

static void bad_settings_are_named(void **state)
{
    static const char *const bad[] = {"CORDON_EGRESS_RANGES=a.com", "CORDON_EGRESS_RESOLVER=10.0.0.0/8",
                                      "CORDON_ALLOWED_DOMAINS=a..b", "CORDON_EGRESS_REGISTRIES=http://pypi.org"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        struct cordon_settings *made = settings((const char *const[]){bad[i], NULL});
        struct cordon_error err = {0};
        assert_true(cordon_egress_check_settings(made, &err) < 0);
        assert_memory_equal(err.message, bad[i], strcspn(bad[i], "="));
        cordon_settings_free(made);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_form_reads_and_writes_back),
        cmocka_unit_test(what_is_no_rule_is_refused),
        cmocka_unit_test(names_match_whole_labels),
        cmocka_unit_test(ranges_match_their_bits),
        cmocka_unit_test(special_ranges_are_known),
        cmocka_unit_test(within_is_a_subset),
        cmocka_unit_test(modes_follow_the_entries),
        cmocka_unit_test(denials_beat_what_is_allowed),
        cmocka_unit_test(a_policy_is_the_same_after_its_text),
        cmocka_unit_test(headers_that_frame_a_message_are_refused),
        cmocka_unit_test(the_door_decides_what_no_entry_means),
        cmocka_unit_test(the_settings_bound_what_a_request_names),
        cmocka_unit_test(headers_need_their_host_and_what_tls_needs),
        cmocka_unit_test(trust_is_added_where_it_is_not_set),
        cmocka_unit_test(bad_settings_are_named),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
