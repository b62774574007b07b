/* SPDX-License-Identifier: Apache-2.0 */
/* What the E2B and CreateOS doors read of their clients: addresses, envelopes, signatures, filters, lists, fields. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <zlib.h>

#include <cmocka.h>

#include "door/createos/egress.h"
#include "door/e2b/address.h"
#include "door/e2b/envelope.h"
#include "door/e2b/inflate.h"
#include "door/e2b/metadata.h"
#include "door/e2b/signature.h"
#include "door/json_time.h"

#define ID "abcdefghij0123456789"

static void host_names(void **state)
{
    static const struct {
        const char *host;
        unsigned port; /* 0: no sandbox's */
    } rows[] = {
        {"3000-" ID ".localhost:9385", 3000},
        {"49983-" ID ".e2b.example.com", 49983},
        {"65535-" ID "-client.example.com", 65535},
        {"1-" ID ".a", 1},
        {"0-" ID ".a", 0},
        {"65536-" ID ".a", 0},
        {"99999999999-" ID ".a", 0},
        {"03000-" ID ".a", 0},
        {"-3000-" ID ".a", 0},
        {"3000-" ID, 0},
        {"3000-" ID ":9385", 0},
        {"3000-" ID "-client", 0},
        {"3000-" ID "/x.a", 0},
        {"3000-" ID "-x@y.a", 0},
        {"3000-ABCDEFGHIJ0123456789.a", 0},
        {"3000-short.a", 0},
        {"3000-" ID ID ".a", 0},
        {"localhost:9385", 0},
        {"127.0.0.1:9385", 0},
        {"[::1]:9385", 0},
        {"sandbox.example.com", 0},
        {"", 0},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct cordon_e2b_address found = {0};
        assert_int_equal(cordon_e2b_address_host(rows[i].host, &found), rows[i].port != 0);
        assert_int_equal(found.port, rows[i].port);
        assert_string_equal(found.id, rows[i].port ? ID : "");
    }
}

static void header_fields(void **state)
{
    struct cordon_e2b_address found;
    assert_false(cordon_e2b_address_headers(NULL, "3000", &found));
    assert_true(cordon_e2b_address_headers(ID, NULL, &found));
    assert_int_equal(found.port, CORDON_E2B_PORT_ENVD);
    assert_true(cordon_e2b_address_headers(ID "-client", "8080", &found));
    assert_int_equal(found.port, 8080);
    assert_string_equal(found.id, ID);
    static const char *const bad[][2] = {{"../../etc", "80"},
                                         {"", "80"},
                                         {ID " ", "80"},
                                         {ID, "0"},
                                         {ID, "x"},
                                         {ID, "80x"},
                                         {ID, ""},
                                         {ID, "65536"},
                                         {"a/b", NULL},
                                         {"aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa", "80"}};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        assert_true(cordon_e2b_address_headers(bad[i][0], bad[i][1], &found)); /* it is for a sandbox… */
        assert_string_equal(found.id, "");                                     /* …that can't be */
    }
}

static void envelopes(void **state)
{
    struct cordon_bytes message;
    struct cordon_error err = {0};
    assert_int_equal(cordon_e2b_envelope_read("\0\0\0\0\2{}", 7, &message, &err), 0);
    assert_int_equal(message.size, 2);
    static const struct {
        const char *body;
        size_t size;
        enum cordon_error_kind kind;
    } bad[] = {{"", 0, CORDON_ERROR_INVALID},
               {"\0\0\0\0", 4, CORDON_ERROR_INVALID},
               {"\0\0\0\0\2{", 6, CORDON_ERROR_INVALID},
               {"\0\0\0\0\2{}}", 8, CORDON_ERROR_INVALID},
               {"\2\0\0\0\2{}", 7, CORDON_ERROR_INVALID},
               {"\1\0\0\0\2{}", 7, CORDON_ERROR_UNSUPPORTED},
               {"\0\xff\xff\xff\xff{}", 7, CORDON_ERROR_INVALID},
               {"{\"process\":{}}", 14, CORDON_ERROR_INVALID}};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        err = (struct cordon_error){0};
        assert_true(cordon_e2b_envelope_read(bad[i].body, bad[i].size, &message, &err) < 0);
        assert_int_equal(err.kind, bad[i].kind);
    }
}

static void envelopes_are_written(void **state)
{
    struct cordon_buf buf = CORDON_BUF_INIT(4096);
    struct cordon_error err = {.kind = CORDON_ERROR_NOT_FOUND, .message = "no"};
    cordon_e2b_envelope_last(&buf, NULL);
    assert_int_equal(buf.size, 7);
    assert_memory_equal(buf.data, "\2\0\0\0\2{}", 7);
    buf.size = 0;
    cordon_e2b_envelope_last(&buf, &err);
    static const char wanted[] = "\2\0\0\0\x2b{\"error\":{\"code\":\"not_found\",\"message\":\"no\"}}";
    assert_int_equal(buf.size, sizeof wanted - 1);
    assert_memory_equal(buf.data + 5, wanted + 5, buf.size - 5);
    assert_int_equal((unsigned char)buf.data[4], buf.size - 5);
    cordon_buf_done(&buf);
}

/* The first one was recorded from a client. */
static void signatures(void **state)
{
    static const char recorded[] = "v1_apOcOC+GLbcXq/OiTAKSxkVtowZL14w6z9eEadU4tfc";
    struct cordon_e2b_signed what = {"a.txt", "read", "", NULL};
    char text[CORDON_E2B_SIGNATURE_TEXT];
    assert_true(cordon_e2b_sign(&what, "tok_abc", text));
    assert_string_equal(text, recorded);
    assert_true(cordon_e2b_signature_ok(&what, "tok_abc", recorded));
    assert_true(cordon_e2b_signature_ok(&what, "tok_abc", "v1_apOcOC+GLbcXq/OiTAKSxkVtowZL14w6z9eEadU4tfc="));
    assert_false(cordon_e2b_signature_ok(&what, "tok_abd", recorded));
    assert_false(cordon_e2b_signature_ok(&what, "", recorded));
    assert_false(cordon_e2b_signature_ok(&what, "tok_abc", ""));
    assert_false(cordon_e2b_signature_ok(&what, "tok_abc", "v1_"));
    assert_false(cordon_e2b_signature_ok(&what, "tok_abc", "v1_apOcOC+GLbcXq/OiTAKSxkVtowZL14w6z9eEadU4tfd"));
    struct cordon_e2b_signed others[] = {{"b.txt", "read", "", NULL},
                                         {"a.txt", "write", "", NULL},
                                         {"a.txt", "read", "root", NULL},
                                         {"a.txt", "read", "", "1"}};
    for (size_t i = 0; i < sizeof others / sizeof *others; i++)
        assert_false(cordon_e2b_signature_ok(&others[i], "tok_abc", recorded));
}

static void expirations(void **state)
{
    assert_false(cordon_e2b_signature_expired("1000", 1000));
    assert_true(cordon_e2b_signature_expired("1000", 1001));
    static const char *const bad[] = {"", "x", "-1", "1e9", "99999999999999999999", " 5", "5 "};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        assert_true(cordon_e2b_signature_expired(bad[i], 0));
}

static void metadata_filters(void **state)
{
    static const struct {
        const char *text, *key, *value;
        size_t count;
    } rows[] = {
        {"a%3Db%252520c", "a", "b c", 1}, /* recorded: three layers */
        {"a%3Db%2520c", "a", "b c", 1},
        {"a=b", "a", "b", 1},
        {"a%3Db%26c%3Dd", "c", "d", 2},
        {"a%3D", "a", "", 1},
        {"a%3D100%2525", "a", "100%", 1},
        {"user%252540x%3D1", "user@x", "1", 1},
        {"", NULL, NULL, 0},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct cordon_door_memory memory = {0};
        struct cordon_pairs pairs = {0};
        assert_int_equal(cordon_e2b_metadata_read(rows[i].text, &memory, &pairs, NULL), 0);
        assert_int_equal(pairs.count, rows[i].count);
        if (pairs.count) {
            assert_string_equal(pairs.items[pairs.count - 1].key, rows[i].key);
            assert_string_equal(pairs.items[pairs.count - 1].value, rows[i].value);
        }
        cordon_door_forget(&memory);
    }
    static const char *const bad[] = {"a", "%3Db", "a%3D%25zz", "%", "a%3D%00", "a%3D%2500", "a%3D%252500"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        struct cordon_door_memory memory = {0};
        struct cordon_pairs pairs;
        struct cordon_error err = {0};
        assert_true(cordon_e2b_metadata_read(bad[i], &memory, &pairs, &err) < 0);
        assert_int_equal(err.kind, CORDON_ERROR_INVALID);
        cordon_door_forget(&memory);
    }
}

static int read_egress(const char *const *items, size_t count, struct cordon_createos_egress *ret)
{
    struct cordon_error err = {0};
    const struct cordon_texts list = {(const char **)(uintptr_t)items, count};
    int r = cordon_createos_egress_read(&list, ret, &err);
    assert_true(r == 0 || err.kind == CORDON_ERROR_INVALID);
    return r;
}

static void egress_lists(void **state)
{
    struct cordon_createos_egress found;
    static const char *const all[] = {"*"}, *const none[] = {"240.0.0.0/4"}, *const within[] = {"240.1.2.3:80"},
                             *const some[] = {"pypi.org:443", "*.pypi.org", "1.2.3.4", "10.0.0.0/8:53"},
                             *const mixed[] = {"240.0.0.0/4", "pypi.org"};
    assert_int_equal(read_egress(NULL, 0, &found), 0);
    assert_true(!found.named && found.all && found.on);
    assert_int_equal(read_egress(all, 1, &found), 0);
    assert_true(found.named && found.all && found.on);
    assert_int_equal(read_egress(none, 1, &found), 0);
    assert_true(found.named && !found.all && !found.on);
    assert_int_equal(read_egress(within, 1, &found), 0);
    assert_false(found.on);
    assert_int_equal(read_egress(some, 4, &found), 0);
    assert_true(found.on && !found.all);
    assert_int_equal(read_egress(mixed, 2, &found), 0);
    assert_true(found.on && !found.all);
    static const char *const bad[] = {"",
                                      "pypi.org:https",
                                      "*:443",
                                      "pypi.org:0",
                                      "pypi.org:65536",
                                      "1.2.3",
                                      "1.2.3.4/33",
                                      "::1",
                                      "2001:db8::/32",
                                      "[::1]:80",
                                      "a b",
                                      "http://pypi.org",
                                      "!pypi.org",
                                      "+pypi.org",
                                      "**.pypi.org",
                                      "1.2.3.4:443:443"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        assert_true(read_egress(&bad[i], 1, &found) < 0);
}

static void fields_are_checked(void **state)
{
    static const char text[] =
        "{\"a\":1,\"t\":\"x\",\"n\":null,\"l\":[\"p\",\"q\"],\"m\":{\"K\":\"v\"},\"b\":true,\"big\":"
        "\"42\",\"z\":\"a\\u0000b\",\"u\":\"-_8\",\"a\":2}";
    struct cordon_door_memory memory = {0};
    struct cordon_value object;
    struct cordon_error err = {0};
    const char *string = NULL;
    struct cordon_texts list;
    int64_t number = 0;
    bool flag = false;
    struct cordon_buf bytes = CORDON_BUF_INIT(64);
    assert_int_equal(cordon_value_parse(text, sizeof text - 1, &object, &err), 0);
    assert_int_equal(cordon_field_int(&object, "a", 0, 5, &number, &err), 1);
    assert_int_equal(number, 2); /* the last one */
    assert_true(cordon_field_int(&object, "a", 3, 5, &number, &err) < 0);
    assert_int_equal(cordon_field_int(&object, "big", 0, 50, &number, &err), 1);
    assert_int_equal(number, 42);
    assert_int_equal(cordon_field_text(&object, "n", &memory, &string, &err), 0);
    assert_null(string);
    assert_true(cordon_field_text(&object, "a", &memory, &string, &err) < 0);
    assert_true(cordon_field_text(&object, "z", &memory, &string, &err) < 0);
    assert_int_equal(cordon_field_bool(&object, "b", &flag, &err), 1);
    assert_true(flag);
    assert_true(cordon_field_bool(&object, "t", &flag, &err) < 0);
    assert_int_equal(cordon_field_texts(&object, "l", &memory, &list, &err), 1);
    assert_int_equal(list.count, 2);
    assert_string_equal(list.items[1], "q");
    assert_int_equal(cordon_field_env(&object, "m", &memory, &list, &err), 1);
    assert_string_equal(list.items[0], "K=v");
    assert_int_equal(cordon_field_bytes(&object, "u", &bytes, &err), 1);
    assert_int_equal(bytes.size, 2);
    assert_memory_equal(bytes.data, "\xfb\xff", 2);
    assert_true(cordon_field_bytes(&object, "t", &bytes, &err) < 0);
    cordon_buf_done(&bytes);
    cordon_door_forget(&memory);
}

static void times(void **state)
{
    char text[CORDON_TIME_TEXT];
    int64_t us;
    cordon_time_format(1767323045123456, text);
    assert_string_equal(text, "2026-01-02T03:04:05.123Z");
    assert_true(cordon_time_parse("2026-01-02T03:04:05.123456Z", &us));
    assert_int_equal(us, 1767323045123456);
    assert_true(cordon_time_parse("2026-01-02T05:04:05+02:00", &us));
    assert_int_equal(us, 1767323045000000);
    static const char *const bad[] = {
        "", "yesterday", "2026-01-02", "2026-01-02T03:04:05", "2026-01-02T03:04:05+2", "2026-01-02T03:04:05Zx"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        assert_false(cordon_time_parse(bad[i], &us));
}

static struct cordon_buf unpacked = CORDON_BUF_INIT(1u << 20);

static int take(void *context, const char *data, size_t size)
{
    return cordon_buf_append(&unpacked, data, size);
}

static size_t pack(const char *data, size_t size, char *to, size_t room)
{
    z_stream stream = {0};
    assert_int_equal(deflateInit2(&stream, 9, Z_DEFLATED, 16 + MAX_WBITS, 8, Z_DEFAULT_STRATEGY), Z_OK);
    stream.next_in = (Bytef *)(uintptr_t)data;
    stream.avail_in = (uInt)size;
    stream.next_out = (Bytef *)to;
    stream.avail_out = (uInt)room;
    assert_int_equal(deflate(&stream, Z_FINISH), Z_STREAM_END);
    size_t made = room - stream.avail_out;
    assert_int_equal(deflateEnd(&stream), Z_OK);
    return made;
}

static void gzip_is_unpacked(void **state)
{
    static char data[300000], packed[4096];
    memset(data, 'x', sizeof data);
    size_t size = pack(data, sizeof data, packed, sizeof packed);
    for (size_t piece = 1; piece <= size; piece += 37) {
        struct cordon_e2b_inflate *inflate = cordon_e2b_inflate_new(take, NULL);
        unpacked.size = 0;
        for (size_t at = 0; at < size; at += piece) {
            assert_false(cordon_e2b_inflate_whole(inflate));
            assert_int_equal(cordon_e2b_inflate_feed(inflate, packed + at, size - at < piece ? size - at : piece), 0);
        }
        assert_true(cordon_e2b_inflate_whole(inflate));
        assert_int_equal(unpacked.size, sizeof data);
        assert_memory_equal(unpacked.data, data, sizeof data);
        cordon_e2b_inflate_free(inflate);
    }
    struct cordon_e2b_inflate *inflate = cordon_e2b_inflate_new(take, NULL);
    assert_int_equal(cordon_e2b_inflate_feed(inflate, "no gzip at all", 14), -EBADMSG);
    cordon_e2b_inflate_free(inflate);
    cordon_buf_done(&unpacked);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(host_names),         cmocka_unit_test(header_fields),
        cmocka_unit_test(envelopes),          cmocka_unit_test(envelopes_are_written),
        cmocka_unit_test(signatures),         cmocka_unit_test(expirations),
        cmocka_unit_test(metadata_filters),   cmocka_unit_test(egress_lists),
        cmocka_unit_test(fields_are_checked), cmocka_unit_test(times),
        cmocka_unit_test(gzip_is_unpacked),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
