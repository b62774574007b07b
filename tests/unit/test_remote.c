/* SPDX-License-Identifier: Apache-2.0 */
/* What the remote backends are made of, without a network: the signature, archives, secrets, addresses. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "backend/remote/e2b_entry.h"
#include "backend/remote/remote.h"
#include "backend/remote/signature.h"
#include "backend/remote/tar.h"
#include "base/secret.h"
#include "http/client.h"

/* Made with Python's hmac and hashlib from the documented steps (tests/lib/protocols.py does the same). */
static void the_signature_is_the_documented_one(void **state)
{
    char got[CORDON_SIGNATURE_TEXT];
    struct cordon_signature_input in = {.key_id = "LTAIexample",
                                        .secret = "secretexample",
                                        .region = "cn-hangzhou",
                                        .method = "POST",
                                        .host = "123-ram.agentrun-data.cn-hangzhou.aliyuncs.com",
                                        .path = "/sandboxes",
                                        .query = "",
                                        .time = "2026-01-02T03:04:05Z"};
    assert_int_equal(cordon_signature(&in, got), 0);
    assert_string_equal(got, "AGENTRUN4-HMAC-SHA256 "
                             "Credential=LTAIexample/20260102/cn-hangzhou/agentrun/"
                             "aliyun_v4_request,SignedHeaders=host;x-acs-content-sha256;x-acs-date,Signature="
                             "33038c02e5fdc158d40200fbddbc191580e53846f69999350608db098d61d89a");
    in.token = "token-of-a-role";
    in.method = "GET";
    in.path = "/sandboxes/s/filesystem/download";
    in.query = "path=%2Fhome%2Fuser%2Fa~b";
    assert_int_equal(cordon_signature(&in, got), 0);
    assert_string_equal(got, "AGENTRUN4-HMAC-SHA256 "
                             "Credential=LTAIexample/20260102/cn-hangzhou/agentrun/"
                             "aliyun_v4_request,SignedHeaders=host;x-acs-content-sha256;x-acs-date;x-acs-security-"
                             "token,Signature=c56f143426c3caebfbf6106dd1e09797fc529cd849347089d67139071f85e937");
    in.time = "now";
    assert_true(cordon_signature(&in, got) < 0);
}

static void an_archive_is_read_as_it_was_written(void **state)
{
    char name[300];
    struct cordon_buf archive = CORDON_BUF_INIT(1u << 20);
    struct cordon_tar_reader reader = {.name = ""};
    size_t at = 0, used, entries = 0, bytes = 0;
    memset(name, 'n', sizeof name - 1);
    name[sizeof name - 1] = '\0';
    cordon_tar_folder(&archive, "work", 0755);
    cordon_tar_file(&archive, name, "content", 7, 0644);
    cordon_tar_file(&archive, "/absolute", NULL, 0, 0600);
    cordon_tar_end(&archive);
    for (enum cordon_tar_type type = CORDON_TAR_MORE; type != CORDON_TAR_END; at += used) {
        type = cordon_tar_next(&reader, archive.data + at, archive.size - at < 100 ? archive.size - at : 100, &used);
        assert_int_not_equal(type, CORDON_TAR_BROKEN);
        entries += type == CORDON_TAR_ENTRY;
        bytes += type == CORDON_TAR_DATA ? reader.size : 0;
        if (type == CORDON_TAR_ENTRY && entries == 2)
            assert_string_equal(reader.name, name);
    }
    assert_int_equal(entries, 3);
    assert_int_equal(bytes, 7);
    cordon_buf_done(&archive);
}

static void a_damaged_archive_is_told(void **state)
{
    char block[512] = "name";
    struct cordon_tar_reader reader = {.name = ""};
    size_t used;
    assert_int_equal(cordon_tar_next(&reader, block, sizeof block, &used), CORDON_TAR_BROKEN);
    assert_int_equal(cordon_tar_next(&reader, block, sizeof block, &used), CORDON_TAR_BROKEN);
}

static void secrets_are_masked_whoever_speaks(void **state)
{
    struct cordon_error err = {0};
    char cut[] = "key=tk_very_sec";
    assert_int_equal(cordon_secret_add("tk_very_secret_key"), 0);
    assert_true(cordon_secret_add("abc") < 0); /* too short to be one */
    (void)cordon_fail(&err, -5, CORDON_ERROR_UNAVAILABLE, "the service said \"%s\" twice: %s", "tk_very_secret_key",
                      "tk_very_secret_key");
    assert_string_equal(err.message, "the service said \"***\" twice: ***");
    cordon_error_detail(&err, "sent tk_very_secret_key");
    assert_string_equal(err.detail, "sent ***");
    cordon_secret_mask(cut);
    assert_string_equal(cut, "key=***");
    cordon_secret_forget();
}

static void addresses_of_this_machine_are_known(void **state)
{
    assert_true(cordon_url_is_loopback("http://127.0.0.1:80/x"));
    assert_true(cordon_url_is_loopback("http://[::1]:80"));
    assert_true(cordon_url_is_loopback("https://LOCALHOST"));
    assert_false(cordon_url_is_loopback("http://127.0.0.1.example.com"));
    assert_false(cordon_url_is_loopback("http://localhost.example.com/127.0.0.1"));
    assert_false(cordon_url_is_loopback("127.0.0.1"));
}

/* "name" and "path" within text stand for what there is. */
static int read_entry(const char *text, struct cordon_e2b_entry *to)
{
    struct cordon_value value;
    assert_int_equal(cordon_value_parse(text, strlen(text), &value, NULL), 0);
    return cordon_e2b_entry_read(to, &value);
}

static void a_file_is_read_as_envd_tells_it(void **state)
{
    struct cordon_e2b_entry got;
    assert_int_equal(read_entry("{\"name\":\"a\",\"path\":\"/home/user/a\",\"type\":\"FILE_TYPE_FILE\",\"size\":\"5\","
                                "\"mode\":33188,\"owner\":\"user\",\"group\":\"g\","
                                "\"modifiedTime\":\"1970-01-02T00:00:01.25Z\"}",
                                &got),
                     0);
    assert_string_equal(got.entry.path, "/home/user/a");
    assert_int_equal(got.entry.type, CORDON_FILE_REGULAR);
    assert_int_equal(got.entry.size, 5);
    assert_int_equal(got.entry.mode, 0644);
    assert_int_equal(got.entry.modified_ns, 86401250000000);
    assert_null(got.entry.target);
    assert_int_equal(read_entry("{\"name\":\"l\",\"path\":\"/l\",\"type\":\"FILE_TYPE_SYMLINK\",\"size\":7,"
                                "\"symlinkTarget\":\"/etc\"}",
                                &got),
                     0);
    assert_int_equal(got.entry.type, CORDON_FILE_LINK);
    assert_int_equal(got.entry.size, 7);
    assert_string_equal(got.entry.target, "/etc");
}

static void what_is_no_file_or_lies_is_harmless(void **state)
{
    struct cordon_e2b_entry got;
    static const char *const none[] = {"1", "[]", "{}", "{\"name\":\"a\"}", "{\"name\":1,\"path\":2}"};
    for (size_t i = 0; i < sizeof none / sizeof *none; i++)
        assert_true(read_entry(none[i], &got) < 0);
    assert_int_equal(read_entry("{\"name\":\"a\",\"path\":\"/a\",\"type\":\"FIFO\",\"size\":\"-9\",\"mode\":\"x\","
                                "\"modifiedTime\":\"yesterday\",\"owner\":[]}",
                                &got),
                     0);
    assert_int_equal(got.entry.type, CORDON_FILE_OTHER);
    assert_int_equal(got.entry.size, 0);
    assert_int_equal(got.entry.modified_ns, 0);
    assert_string_equal(got.entry.owner, "");
}

static void a_belief_is_for_the_settings_it_was_found_with(void **state)
{
    (void)state;
    struct cordon_remote_belief belief = {0};
    assert_true(cordon_remote_with() > 0);
    assert_false(cordon_remote_believed(&belief, 1));
    cordon_remote_believe(&belief, 1, 3600u * 1000000ull);
    assert_true(cordon_remote_believed(&belief, 1));
    assert_false(cordon_remote_believed(&belief, 2));
    cordon_remote_believe(&belief, 2, 3600u * 1000000ull);
    assert_true(cordon_remote_believed(&belief, 2));
    assert_false(cordon_remote_believed(&belief, 1));
    cordon_remote_believe(&belief, 2, 0);
    assert_false(cordon_remote_believed(&belief, 2));
}

static void capabilities_that_were_told_never_change(void **state)
{
    (void)state;
    struct cordon_capabilities now;
    cordon_remote_capable(&now, CORDON_ISOLATION_NAMESPACE);
    const struct cordon_capabilities *first = cordon_remote_capabilities(&now);
    now.isolation = CORDON_ISOLATION_HARDWARE_VIRTUALIZED; /* as a trial's settings may say */
    const struct cordon_capabilities *second = cordon_remote_capabilities(&now);
    assert_ptr_not_equal(first, second);
    assert_int_equal(first->isolation, CORDON_ISOLATION_NAMESPACE);
    assert_int_equal(second->isolation, CORDON_ISOLATION_HARDWARE_VIRTUALIZED);
    now.isolation = CORDON_ISOLATION_NAMESPACE;
    assert_ptr_equal(cordon_remote_capabilities(&now), first);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(the_signature_is_the_documented_one),
                                       cmocka_unit_test(an_archive_is_read_as_it_was_written),
                                       cmocka_unit_test(a_damaged_archive_is_told),
                                       cmocka_unit_test(secrets_are_masked_whoever_speaks),
                                       cmocka_unit_test(addresses_of_this_machine_are_known),
                                       cmocka_unit_test(a_file_is_read_as_envd_tells_it),
                                       cmocka_unit_test(what_is_no_file_or_lies_is_harmless),
                                       cmocka_unit_test(a_belief_is_for_the_settings_it_was_found_with),
                                       cmocka_unit_test(capabilities_that_were_told_never_change)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
