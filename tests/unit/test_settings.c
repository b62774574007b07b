/* SPDX-License-Identifier: Apache-2.0 */
/* The settings: precedence, forms, aliases, conflicts, and what stops a start. */
#include "core_helper.h"

#include <errno.h>
#include <stdio.h>
#include <unistd.h>

#include "base/secret.h"
#include "core/settings_table.h"

static char message[512];

/* The error's message of a load that must fail. */
static const char *refused_input(const struct cordon_settings_input *input)
{
    struct cordon_settings *settings = NULL;
    struct cordon_error err = {0};
    if (cordon_settings_load(input, &settings, &err) == 0)
        fail_msg("bad settings were accepted");
    assert_null(settings);
    assert_int_equal(err.kind, CORDON_ERROR_INVALID);
    (void)snprintf(message, sizeof message, "%s", err.message);
    return message;
}

static const char *refused(const char *a, const char *b)
{
    const char *pairs[] = {a, b, NULL};
    return refused_input(&(struct cordon_settings_input){.environ = pairs});
}

static void assert_has(const char *text, const char *part)
{
    if (!strstr(text, part))
        fail_msg("\"%s\" is not in \"%s\"", part, text);
}

static int64_t number(const struct cordon_settings *settings, enum cordon_door door, enum cordon_setting id)
{
    return cordon_settings_int(settings, door, id);
}

/* Writes a configuration file and returns its path (one at a time). */
static const char *file_with(const char *text)
{
    static char path[] = "/tmp/cordon-test-settings-XXXXXX";
    memcpy(path + sizeof path - 7, "XXXXXX", 6);
    int fd = mkstemp(path);
    assert_true(fd >= 0);
    assert_int_equal(write(fd, text, strlen(text)), strlen(text));
    close(fd);
    return path;
}

static void every_default_is_valid_and_names_differ(void **state)
{
    struct cordon_settings *s = NO_SETTINGS;
    assert_int_equal(number(s, CORDON_DOOR_NATIVE, CORDON_SET_TIMEOUT_S), 30);
    assert_string_equal(cordon_settings_string(s, CORDON_DOOR_NATIVE, CORDON_SET_BACKEND), "local");
    assert_false(cordon_settings_bool(s, CORDON_DOOR_NATIVE, CORDON_SET_ALLOW_NONE));
    assert_null(cordon_settings_item(s, CORDON_DOOR_NATIVE, CORDON_SET_ALLOWED_DOMAINS, 0));
    assert_null(cordon_settings_warning(s, 0));
    for (size_t a = 0; a < CORDON_SET__COUNT; a++) {
        assert_int_equal(strncmp(cordon_slot_name(a), "CORDON_", 7), 0);
        assert_int_equal(cordon_slot_find(cordon_slot_name(a), 0, false), a);
    }
    for (size_t i = 0; i < CORDON_ALIAS_COUNT; i++) /* one alias a row and door, or the door's name would not be one */
        for (size_t j = 0; j < i; j++)
            assert_false(cordon_alias_rows[i].id == cordon_alias_rows[j].id &&
                         (cordon_alias_rows[i].door != CORDON_DOOR_NATIVE
                              ? cordon_alias_rows[i].door == cordon_alias_rows[j].door
                              : strcmp(cordon_alias_rows[i].name, cordon_alias_rows[j].name) == 0));
    cordon_settings_free(s);
}

static void an_alias_has_its_own_default_and_steers_its_door(void **state)
{
    struct cordon_settings *s = NO_SETTINGS;
    assert_int_equal(number(s, CORDON_DOOR_EXECUTOR_MANAGER, CORDON_SET_TIMEOUT_S), 10);
    assert_int_equal(number(s, CORDON_DOOR_LANGFLOW, CORDON_SET_MEMORY_MB), 192);
    assert_int_equal(number(s, CORDON_DOOR_E2B, CORDON_SET_MEMORY_MB), 256);
    assert_string_equal(cordon_settings_string(s, CORDON_DOOR_LANGFLOW, CORDON_SET_BACKEND), "none");
    cordon_settings_free(s);
    s = load_settings("LANGFLOW_SANDBOX_MEMORY_MB=512", "SANDBOX_TIMEOUT=1m5s", NULL);
    assert_int_equal(number(s, CORDON_DOOR_LANGFLOW, CORDON_SET_MEMORY_MB), 512);
    assert_int_equal(number(s, CORDON_DOOR_NATIVE, CORDON_SET_MEMORY_MB), 256);
    assert_int_equal(number(s, CORDON_DOOR_EXECUTOR_MANAGER, CORDON_SET_TIMEOUT_S), 65);
    assert_int_equal(number(s, CORDON_DOOR_NATIVE, CORDON_SET_TIMEOUT_S), 30);
    cordon_settings_free(s);
    s = load_settings("CORDON_MEMORY_MB=100", NULL); /* set natively: comes before the alias's default */
    assert_int_equal(number(s, CORDON_DOOR_LANGFLOW, CORDON_SET_MEMORY_MB), 100);
    cordon_settings_free(s);
}

static void an_alias_of_the_whole_daemon_sets_its_rows(void **state)
{
    struct cordon_settings *s = load_settings("SANDBOX_EXECUTOR_MANAGER_POOL_SIZE=7", NULL);
    assert_int_equal(number(s, CORDON_DOOR_NATIVE, CORDON_SET_POOL_PYTHON), 7);
    assert_int_equal(number(s, CORDON_DOOR_NATIVE, CORDON_SET_POOL_JAVASCRIPT), 7);
    assert_int_equal(number(s, CORDON_DOOR_NATIVE, CORDON_SET_POOL_BASH), 1);
    assert_int_equal(cordon_settings_source(s, CORDON_SET_POOL_PYTHON), CORDON_SOURCE_ENVIRONMENT);
    cordon_settings_free(s);
}

static void two_names_that_differ_stop_the_start(void **state)
{
    const char *text = refused("CORDON_TIMEOUT_S=20", "LANGFLOW_SANDBOX_TIMEOUT_SECONDS=30");
    assert_has(text, "CORDON_TIMEOUT_S is \"20\"");
    assert_has(text, "LANGFLOW_SANDBOX_TIMEOUT_SECONDS is \"30\"");
    (void)refused("LANGFLOW_SANDBOX_TIMEOUT_SECONDS=30", "SANDBOX_TIMEOUT=10s");
    (void)refused("CORDON_ALLOW_NETWORK=true", "LANGFLOW_SANDBOX_ALLOW_NETWORK=0");
    (void)refused("CORDON_ALLOWED_DOMAINS=a.com", "LANGFLOW_SANDBOX_ALLOWED_DOMAINS=a.com,b.com");
    struct cordon_settings *s = load_settings("CORDON_MEMORY_MB=256", "SANDBOX_MAX_MEMORY=256m",
                                              "CORDON_ALLOW_NETWORK=1", "LANGFLOW_SANDBOX_ALLOW_NETWORK=Yes",
                                              "CORDON_BACKEND=Local", "LANGFLOW_SANDBOX_BACKEND= local ", NULL);
    cordon_settings_free(s); /* the same in another spelling is no conflict */
}

static void durations_and_sizes_read_as_documented(void **state)
{
    static const struct {
        const char *text;
        int64_t number;
        bool warned;
    } cases[] = {
        {"SANDBOX_TIMEOUT=90s", 90, false},
        {"SANDBOX_TIMEOUT=2m", 120, false},
        {"SANDBOX_TIMEOUT=1M30S", 90, false},
        {"SANDBOX_TIMEOUT=60", 60, false},
        {"SANDBOX_TIMEOUT=", 10, true},
        {"SANDBOX_TIMEOUT=0", 10, true},
        {"SANDBOX_TIMEOUT=30s2m", 10, true},
        {"SANDBOX_TIMEOUT=2m30", 10, true},
        {"SANDBOX_TIMEOUT=-5s", 10, true},
        {"SANDBOX_TIMEOUT=1.5s", 10, true},
        {"SANDBOX_TIMEOUT=99999999999999999999s", 10, true},
        {"SANDBOX_MAX_MEMORY=1g", 1024, false},
        {"SANDBOX_MAX_MEMORY=512M", 512, false},
        {"SANDBOX_MAX_MEMORY=20480k", 20, false},
        {"SANDBOX_MAX_MEMORY=33554432b", 32, false},
        {"SANDBOX_MAX_MEMORY=512", 256, true},
        {"SANDBOX_MAX_MEMORY=0m", 256, true},
        {"SANDBOX_MAX_MEMORY=1.5g", 256, true},
        {"SANDBOX_MAX_MEMORY=99999999999999g", 256, true},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct cordon_settings *s = load_settings(cases[i].text, NULL);
        enum cordon_setting id = strstr(cases[i].text, "MEMORY") ? CORDON_SET_MEMORY_MB : CORDON_SET_TIMEOUT_S;
        if (number(s, CORDON_DOOR_EXECUTOR_MANAGER, id) != cases[i].number)
            fail_msg("%s gave %lld", cases[i].text, (long long)number(s, CORDON_DOOR_EXECUTOR_MANAGER, id));
        if (!cordon_settings_warning(s, 0) == cases[i].warned)
            fail_msg("%s: warned is wrong", cases[i].text);
        cordon_settings_free(s);
    }
    assert_has(refused("SANDBOX_MAX_MEMORY=1m", NULL), "16 to 1048576"); /* of its form, but nothing runs in it */
}

static void bad_values_name_what_is_needed(void **state)
{
    assert_has(refused("CORDON_TIMEOUT_S=abc", NULL),
               "CORDON_TIMEOUT_S is \"abc\" (the environment): a whole number from 1");
    assert_has(refused("CORDON_TIMEOUT_S=0", NULL), "from 1 to 86400 s");
    assert_has(refused("CORDON_TIMEOUT_S=30s", NULL), "CORDON_TIMEOUT_S");
    assert_has(refused("CORDON_TIMEOUT_S=", NULL), "CORDON_TIMEOUT_S");
    assert_has(refused("CORDON_TIMEOUT_S=99999999999999999999", NULL), "CORDON_TIMEOUT_S");
    assert_has(refused("LANGFLOW_SANDBOX_TIMEOUT_SECONDS=301", NULL), "from 1 to 300");
    assert_has(refused("LANGFLOW_SANDBOX_MEMORY_MB=127", NULL), "from 128");
    assert_has(refused("CORDON_ALLOW_NONE=maybe", NULL), "true or false");
    assert_has(refused("CORDON_ALLOW_NONE=", NULL), "true or false");
    assert_has(refused("CORDON_MIN_ISOLATION=strong", NULL), "hardware-virtualized");
    assert_has(refused("CORDON_LOG_LEVEL=loud", NULL), "debug");
    assert_has(refused("CORDON_REQUIRE_LIMITS=memory,disk", NULL), "pids");
    assert_has(refused("CORDON_BACKEND=", NULL), "a name is needed");
}

static void bools_are_pydantics(void **state)
{
    static const char *const yes[] = {"1", "true", "T", "YES", "y", "On"}, *const no[] = {"0",  "False", "f",
                                                                                          "no", "N",     "off"};
    char pair[64];
    for (size_t i = 0; i < 6; i++) {
        (void)snprintf(pair, sizeof pair, "CORDON_LOG_JSON=%s", yes[i]);
        struct cordon_settings *s = load_settings(pair, NULL);
        assert_true(cordon_settings_bool(s, CORDON_DOOR_NATIVE, CORDON_SET_LOG_JSON));
        cordon_settings_free(s);
        (void)snprintf(pair, sizeof pair, "CORDON_LOG_JSON=%s", no[i]);
        s = load_settings(pair, NULL);
        assert_false(cordon_settings_bool(s, CORDON_DOOR_NATIVE, CORDON_SET_LOG_JSON));
        cordon_settings_free(s);
    }
}

static void unknown_names_stop_or_warn(void **state)
{
    assert_has(refused("CORDON_TIMEOUT=5", NULL), "CORDON_TIMEOUT_S meant?");
    assert_has(refused("CORDON_XYZZY_PLUGH=5", NULL), "config show");
    struct cordon_settings *s = load_settings("CORDON_LISTEN_FDS=2", "CORDON_TEST_X=1", "HOME=/", "SANDBOX_TIMEOUTS=3",
                                              "LANGFLOW_SANDBOX_BAKCEND=x", "SANDBOX_EXECUTOR_MANAGER_PORT=1", NULL);
    assert_has(cordon_settings_warning(s, 0), "SANDBOX_TIMEOUT meant?");
    assert_has(cordon_settings_warning(s, 1), "LANGFLOW_SANDBOX_BACKEND meant?");
    assert_null(cordon_settings_warning(s, 2));
    cordon_settings_free(s);
}

static void lists_are_trimmed_and_blanks_dropped(void **state)
{
    struct cordon_settings *s = load_settings("CORDON_ALLOWED_DOMAINS= A.com, ,b.com ,,", NULL);
    assert_string_equal(cordon_settings_item(s, CORDON_DOOR_NATIVE, CORDON_SET_ALLOWED_DOMAINS, 0), "a.com");
    assert_string_equal(cordon_settings_item(s, CORDON_DOOR_NATIVE, CORDON_SET_ALLOWED_DOMAINS, 1), "b.com");
    assert_null(cordon_settings_item(s, CORDON_DOOR_NATIVE, CORDON_SET_ALLOWED_DOMAINS, 2));
    assert_null(cordon_settings_item(s, CORDON_DOOR_NATIVE, CORDON_SET_ALLOWED_DOMAINS, 99));
    cordon_settings_free(s);
}

static void flags_beat_environment_beats_file(void **state)
{
    const char *pairs[] = {"CORDON_PIDS=20", "CORDON_MEMORY_MB=64", NULL}, *flags[] = {"pids=10", NULL};
    const char *path = file_with("# a comment\r\n; another\n\n  timeout_s =  7 \nCORDON_PIDS=30\nmemory_mb = 32\n"
                                 "sandbox_max_memory = 64m\nstate = \" /x y \"\n");
    struct cordon_settings_input input = {.environ = pairs, .file = path, .flags = flags};
    struct cordon_settings *s = NULL;
    struct cordon_error err = {0};
    if (cordon_settings_load(&input, &s, &err) < 0)
        fail_msg("%s", err.message);
    unlink(path);
    assert_int_equal(number(s, CORDON_DOOR_NATIVE, CORDON_SET_PIDS), 10);
    assert_int_equal(cordon_settings_source(s, CORDON_SET_PIDS), CORDON_SOURCE_FLAG);
    assert_int_equal(number(s, CORDON_DOOR_NATIVE, CORDON_SET_MEMORY_MB), 64);
    assert_int_equal(cordon_settings_source(s, CORDON_SET_MEMORY_MB), CORDON_SOURCE_ENVIRONMENT);
    assert_int_equal(number(s, CORDON_DOOR_NATIVE, CORDON_SET_TIMEOUT_S), 7);
    assert_int_equal(cordon_settings_source(s, CORDON_SET_TIMEOUT_S), CORDON_SOURCE_FILE);
    assert_string_equal(cordon_settings_string(s, CORDON_DOOR_NATIVE, CORDON_SET_STATE), "/x y");
    cordon_settings_free(s);
}

static void files_fail_with_their_line(void **state)
{
    static const struct {
        const char *text, *part;
    } cases[] = {
        {"timeout_s = 1\ntimout_s = 1\n", "CORDON_TIMEOUT_S meant?"},
        {"\n\nbogus_name_here = 1\n", "line 3"},
        {"timeout_s = 1\nCORDON_TIMEOUT_S = 2\n", "already set in line 1"},
        {"timeout_s\n", "is not `name = value`"},
        {"[serve]\n", "no sections"},
        {"timeout_s = x", "line 1 of"},
        {"\xFF\n", "UTF-8"},
    };
    const char *pairs[] = {NULL};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const char *path = file_with(cases[i].text);
        assert_has(refused_input(&(struct cordon_settings_input){.environ = pairs, .file = path}), cases[i].part);
        unlink(path);
    }
    assert_has(refused_input(&(struct cordon_settings_input){.environ = pairs, .file = "/nowhere/x"}), "/nowhere/x");
    assert_has(refused_input(&(struct cordon_settings_input){.environ = pairs, .file = "/dev/null"}), "regular");
    assert_has(refused_input(&(struct cordon_settings_input){.environ = pairs, .flags = (const char *[]){"x", NULL}}),
               "NAME=VALUE");
}

static void rows_must_agree(void **state)
{
    assert_has(refused("CORDON_TIMEOUT_S=100", "CORDON_MAX_TIMEOUT_S=50"), "CORDON_MAX_TIMEOUT_S");
    assert_has(refused("SANDBOX_MAX_MEMORY=8g", NULL), "CORDON_MAX_MEMORY_MB");
    assert_has(refused("CORDON_TLS_CERT=/x", NULL), "CORDON_TLS_KEY is not");
    assert_has(refused("CORDON_TIMEOUT_S=600", NULL), "CORDON_TIMEOUT_S is 600 s, more than CORDON_MAX_TIMEOUT_S");
    cordon_settings_free(load_settings("SANDBOX_TIMEOUT=600", NULL)); /* raises what that door's requests may ask for */
    assert_has(refused("SANDBOX_TIMEOUT=600", "CORDON_MAX_TIMEOUT_S=300"), "CORDON_MAX_TIMEOUT_S");
    cordon_settings_free(load_settings("CORDON_MAX_TIMEOUT_S=5", NULL));
}

static void the_doors_name_is_the_aliass(void **state)
{
    assert_string_equal(cordon_settings_name(CORDON_DOOR_LANGFLOW, CORDON_SET_TIMEOUT_S),
                        "LANGFLOW_SANDBOX_TIMEOUT_SECONDS");
    assert_string_equal(cordon_settings_name(CORDON_DOOR_E2B, CORDON_SET_TIMEOUT_S), "CORDON_TIMEOUT_S");
    assert_string_equal(cordon_settings_name(CORDON_DOOR_NATIVE, CORDON_SET_POOL_PYTHON), "CORDON_POOL_PYTHON");
}

static char *printed(const struct cordon_settings *s, int what)
{
    char *text = NULL;
    size_t size = 0;
    struct cordon_error err = {0};
    FILE *to = open_memstream(&text, &size);
    assert_non_null(to);
    if (what == 0)
        cordon_settings_show(s, "/the/state", false, to);
    else if (what == 1)
        cordon_settings_show(s, NULL, true, to);
    else if (what == 2)
        cordon_settings_document(to);
    else
        assert_int_equal(
            cordon_settings_explain(s, what == 3 ? "sandbox_timeout" : "SANDBOX_EXECUTOR_MANAGER_POOL_SIZE", to, &err),
            0);
    (void)fclose(to);
    return text;
}

static void all_texts_name_all_settings(void **state)
{
    struct cordon_settings *s = load_settings("CORDON_PIDS=77", NULL);
    for (int what = 0; what < 3; what++) {
        char *text = printed(s, what);
        for (size_t id = 0; id < CORDON_SET__COUNT; id++)
            if (what != 2)
                assert_has(text, cordon_slot_name(id));
        if (what == 2)
            assert_has(text, "*CORDON\\_LISTEN*");
        free(text);
    }
    char *text = printed(s, 0);
    assert_has(text, "executor-manager=10");
    free(text);
    text = printed(s, 1);
    assert_has(
        text,
        "\"name\":\"CORDON_PIDS\",\"value\":77,\"type\":\"int\",\"unit\":\"processes\",\"source\":\"environment\"");
    free(text);
    text = printed(s, 3);
    assert_has(text, "also SANDBOX_TIMEOUT (the door executor-manager)");
    free(text);
    text = printed(s, 4);
    assert_has(text, "CORDON_POOL_PYTHON");
    assert_has(text, "CORDON_POOL_JAVASCRIPT");
    free(text);
    struct cordon_error err = {0};
    assert_true(cordon_settings_explain(s, "timeot_s", stderr, &err) < 0);
    assert_has(err.message, "CORDON_TIMEOUT_S meant?");
    cordon_settings_free(s);
}

static void the_executor_managers_forms(void **state)
{
    const enum cordon_door DOOR = CORDON_DOOR_EXECUTOR_MANAGER;
    static const struct {
        const char *text;
        bool truth, warned;
    } flags[] = {{"1", true, false},   {" TRUE ", true, false}, {"Yes", true, false},
                 {"on", true, false},  {"", false, false},      {"off", false, false},
                 {"No", false, false}, {"t", false, true},      {"unexpected", false, true}};
    char pair[128];
    for (size_t i = 0; i < sizeof flags / sizeof *flags; i++) {
        (void)snprintf(pair, sizeof pair, "SANDBOX_EXECUTOR_MANAGER_ALLOW_UNAUTHENTICATED=%s", flags[i].text);
        struct cordon_settings *s = load_settings(pair, NULL);
        assert_int_equal(cordon_settings_bool(s, DOOR, CORDON_SET_EXECUTOR_OPEN), flags[i].truth);
        assert_false(cordon_settings_bool(s, CORDON_DOOR_NATIVE, CORDON_SET_EXECUTOR_OPEN));
        assert_int_equal(!!cordon_settings_warning(s, 0), flags[i].warned);
        cordon_settings_free(s);
    }
    struct cordon_settings *s = load_settings("SANDBOX_BASE_PYTHON_IMAGE=reg.local:5000/a/Py-extra:1.2",
                                              "SANDBOX_BASE_NODEJS_IMAGE=infiniflow/sandbox-base-nodejs:latest",
                                              "SANDBOX_EXECUTOR_MANAGER_PORT= 9400 ", "SANDBOX_CONTAINER_NETWORK= NONE",
                                              "SANDBOX_RUN_RATE_LIMIT=5 Per Minute", NULL);
    assert_string_equal(cordon_settings_string(s, DOOR, CORDON_SET_TEMPLATE_PYTHON), "py-extra");
    assert_string_equal(cordon_settings_string(s, DOOR, CORDON_SET_TEMPLATE_JAVASCRIPT), "");
    assert_string_equal(cordon_settings_item(s, CORDON_DOOR_NATIVE, CORDON_SET_LISTEN, 0), "127.0.0.1:9400");
    assert_false(cordon_settings_bool(s, DOOR, CORDON_SET_EXECUTOR_NETWORK));
    cordon_settings_free(s);
    s = load_settings("CORDON_LISTEN=0.0.0.0:1", "SANDBOX_EXECUTOR_MANAGER_PORT=9400",
                      NULL); /* no conflict: gives way */
    assert_string_equal(cordon_settings_item(s, CORDON_DOOR_NATIVE, CORDON_SET_LISTEN, 0), "0.0.0.0:1");
    assert_null(cordon_settings_item(s, CORDON_DOOR_NATIVE, CORDON_SET_LISTEN, 1));
    cordon_settings_free(s);
    s = load_settings("SANDBOX_CONTAINER_NETWORK=Bridge", NULL);
    assert_true(cordon_settings_bool(s, DOOR, CORDON_SET_EXECUTOR_NETWORK));
    assert_false(cordon_settings_bool(s, DOOR, CORDON_SET_ALLOW_NETWORK)); /* nobody else is let */
    cordon_settings_free(s);
    assert_has(refused("SANDBOX_CONTAINER_NETWORK=host", NULL), "none or bridge is needed");
    assert_has(refused("SANDBOX_RUN_RATE_LIMIT=5", NULL), "one rate, such as 120/minute");
    assert_has(refused("SANDBOX_BASE_PYTHON_IMAGE=a b", NULL), "a template's name");
    assert_has(refused("SANDBOX_EXECUTOR_MANAGER_PORT=0", NULL), "a port from 1 to 65535");
}

/* --- stored values --- */

static void stored_values_lie_between_file_and_environment(void **state)
{
    const char *path = file_with("timeout_s = 11\nmemory_mb = 300\n");
    const char *pairs[] = {"CORDON_MEMORY_MB=400", NULL};
    const char *stored[] = {"CORDON_TIMEOUT_S=12", "CORDON_MEMORY_MB=500", "CORDON_PIDS=77", NULL};
    struct cordon_settings *s = NULL;
    assert_int_equal(cordon_settings_load(&(struct cordon_settings_input){.environ = pairs, .file = path}, &s, NULL),
                     0);
    unlink(path);
    assert_int_equal(cordon_settings_store(s, stored, NULL), 0);
    assert_int_equal(number(s, CORDON_DOOR_NATIVE, CORDON_SET_TIMEOUT_S), 12);
    assert_int_equal(number(s, CORDON_DOOR_NATIVE, CORDON_SET_MEMORY_MB), 400);
    assert_int_equal(number(s, CORDON_DOOR_NATIVE, CORDON_SET_PIDS), 77);
    assert_int_equal(cordon_settings_source(s, CORDON_SET_TIMEOUT_S), CORDON_SOURCE_STORED);
    assert_int_equal(cordon_settings_source(s, CORDON_SET_MEMORY_MB), CORDON_SOURCE_ENVIRONMENT);
    const char *none[] = {NULL};
    assert_int_equal(cordon_settings_store(s, none, NULL), 0);
    assert_int_equal(number(s, CORDON_DOOR_NATIVE, CORDON_SET_TIMEOUT_S), 11);
    assert_int_equal(number(s, CORDON_DOOR_NATIVE, CORDON_SET_PIDS), 128);
    cordon_settings_free(s);
}

static void a_bad_stored_value_changes_nothing(void **state)
{
    static const struct {
        const char *pair, *says;
    } rows[] = {
        {"CORDON_TIMEOUT_S=0", "CORDON_TIMEOUT_S"},       {"CORDON_NO_SUCH=1", "is no setting"},
        {"CORDON_LISTEN=0.0.0.0:1", "not here"},          {"CORDON_TIMEOUT_S=86400", "more than"},
        {"CORDON_MIN_ISOLATION=strong", "MIN_ISOLATION"}, {"no pair", "NAME=VALUE"},
    };
    struct cordon_settings *s = NO_SETTINGS;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        const char *stored[] = {"CORDON_PIDS=99", rows[i].pair, NULL};
        struct cordon_error err = {0};
        assert_true(cordon_settings_trial_begin(s, stored, &err) < 0);
        assert_true(cordon_settings_store(s, stored, &err) < 0);
        assert_int_equal(err.kind, CORDON_ERROR_INVALID);
        assert_has(err.message, rows[i].says);
        assert_int_equal(number(s, CORDON_DOOR_NATIVE, CORDON_SET_PIDS), 128);
    }
    cordon_settings_free(s);
}

static void an_overridden_stored_value_is_checked_all_the_same(void **state)
{
    const char *pairs[] = {"CORDON_PIDS=50", NULL};
    const char *stored[] = {"CORDON_PIDS=1", NULL};
    struct cordon_settings *s = NULL;
    struct cordon_error err = {0};
    assert_int_equal(cordon_settings_load(&(struct cordon_settings_input){.environ = pairs}, &s, NULL), 0);
    assert_true(cordon_settings_store(s, stored, &err) < 0);
    assert_has(err.message, "CORDON_PIDS");
    cordon_settings_free(s);
}

static void what_an_alias_became_stays_what_it_is(void **state)
{
    const char *stored[] = {"CORDON_PIDS=51", NULL};
    struct cordon_settings *s =
        load_settings("SANDBOX_EXECUTOR_MANAGER_PORT=9400", "CORDON_ALLOWED_DOMAINS=a.test,b.test", NULL);
    assert_int_equal(cordon_settings_store(s, stored, NULL), 0);
    assert_string_equal(cordon_settings_item(s, CORDON_DOOR_NATIVE, CORDON_SET_LISTEN, 0), "127.0.0.1:9400");
    assert_string_equal(cordon_settings_item(s, CORDON_DOOR_NATIVE, CORDON_SET_ALLOWED_DOMAINS, 1), "b.test");
    assert_int_equal(number(s, CORDON_DOOR_NATIVE, CORDON_SET_PIDS), 51);
    cordon_settings_free(s);
}

/* The names that RAGFlow, Langflow and the vendors document for the places elsewhere, from their pages. */
static void names_of_remote_backends_settings_act(void **state)
{
    static const struct {
        const char *pair;
        enum cordon_setting id;
        const char *text; /* NULL: a number */
        int64_t number;
    } rows[] = {{"SSH_HOST=box", CORDON_SET_SSH_HOST, "box", 0},
                {"SSH_USERNAME=me", CORDON_SET_SSH_USERNAME, "me", 0},
                {"SSH_PASSWORD=p4ssw0rd", CORDON_SET_SSH_PASSWORD, "p4ssw0rd", 0},
                {"SSH_PRIVATE_KEY=/k", CORDON_SET_SSH_PRIVATE_KEY, "/k", 0},
                {"SSH_PRIVATE_KEY_PATH=/k", CORDON_SET_SSH_PRIVATE_KEY_PATH, "/k", 0},
                {"SSH_PASSPHRASE=secret-words", CORDON_SET_SSH_PASSPHRASE, "secret-words", 0},
                {"SSH_KNOWN_HOSTS=/h", CORDON_SET_SSH_KNOWN_HOSTS, "/h", 0},
                {"RAGFLOW_SSH_KNOWN_HOSTS=/h", CORDON_SET_SSH_KNOWN_HOSTS, "/h", 0},
                {"SSH_PYTHON_BIN=py", CORDON_SET_SSH_PYTHON_BIN, "py", 0},
                {"SSH_NODE_BIN=nodejs", CORDON_SET_SSH_NODE_BIN, "nodejs", 0},
                {"SSH_WORK_DIR=/w", CORDON_SET_SSH_WORK_DIR, "/w", 0},
                {"SANDBOX_EXECUTOR_MANAGER_URL=http://m:1", CORDON_SET_SELF_MANAGED_ENDPOINT, "http://m:1", 0},
                {"E2B_API_KEY=e2b_1234567890", CORDON_SET_E2B_API_KEY, "e2b_1234567890", 0},
                {"E2B_ACCESS_TOKEN=sk_1234567890", CORDON_SET_E2B_API_KEY, "sk_1234567890", 0},
                {"E2B_DOMAIN=d.test", CORDON_SET_E2B_SERVICE_DOMAIN, "d.test", 0},
                {"E2B_API_URL=https://a.test", CORDON_SET_E2B_API_URL, "https://a.test", 0},
                {"E2B_SANDBOX_URL=https://s.test", CORDON_SET_E2B_SANDBOX_URL, "https://s.test", 0},
                {"E2B_TEMPLATE=t", CORDON_SET_E2B_TEMPLATE, "t", 0},
                {"TENKI_API_KEY=tk_1234567890", CORDON_SET_TENKI_API_KEY, "tk_1234567890", 0},
                {"TENKI_AUTH_TOKEN=tk_1234567890", CORDON_SET_TENKI_API_KEY, "tk_1234567890", 0},
                {"TENKI_API_URL=https://t.test", CORDON_SET_TENKI_API_URL, "https://t.test", 0},
                {"TENKI_API_ENDPOINT=https://t.test", CORDON_SET_TENKI_API_URL, "https://t.test", 0},
                {"TENKI_PROJECT_ID=p", CORDON_SET_TENKI_PROJECT_ID, "p", 0},
                {"TENKI_IMAGE=i", CORDON_SET_TENKI_IMAGE, "i", 0},
                {"UCLOUD_SANDBOX_API_KEY=uc_1234567890", CORDON_SET_UCLOUD_SANDBOX_API_KEY, "uc_1234567890", 0},
                {"UCLOUD_SANDBOX_REGION=cn-sh", CORDON_SET_UCLOUD_SANDBOX_REGION, "cn-sh", 0},
                {"UCLOUD_SANDBOX_DOMAIN=d.test", CORDON_SET_UCLOUD_SANDBOX_DOMAIN, "d.test", 0},
                {"UCLOUD_SANDBOX_API_URL=https://u.test", CORDON_SET_UCLOUD_SANDBOX_API_URL, "https://u.test", 0},
                {"UCLOUD_SANDBOX_URL=https://u.test", CORDON_SET_UCLOUD_SANDBOX_URL, "https://u.test", 0},
                {"UCLOUD_SANDBOX_TEMPLATE=t", CORDON_SET_UCLOUD_SANDBOX_TEMPLATE, "t", 0},
                {"AGENTRUN_ACCESS_KEY_ID=LTAIx", CORDON_SET_AGENTRUN_ACCESS_KEY_ID, "LTAIx", 0},
                {"AGENTRUN_ACCESS_KEY_SECRET=secret-of-it", CORDON_SET_AGENTRUN_ACCESS_KEY_SECRET, "secret-of-it", 0},
                {"AGENTRUN_SECURITY_TOKEN=token-of-it", CORDON_SET_AGENTRUN_SECURITY_TOKEN, "token-of-it", 0},
                {"AGENTRUN_ACCOUNT_ID=12", CORDON_SET_AGENTRUN_ACCOUNT_ID, "12", 0},
                {"AGENTRUN_REGION=cn-beijing", CORDON_SET_AGENTRUN_REGION, "cn-beijing", 0},
                {"AGENTRUN_DATA_ENDPOINT=https://d.test", CORDON_SET_AGENTRUN_DATA_ENDPOINT, "https://d.test", 0},
                {"CREATEOS_SANDBOX_API_KEY=cos_1234567890", CORDON_SET_CREATEOS_API_KEY, "cos_1234567890", 0},
                {"CREATEOS_API_KEY=cos_1234567890", CORDON_SET_CREATEOS_API_KEY, "cos_1234567890", 0},
                {"CREATEOS_SANDBOX_BASE_URL=https://c.test", CORDON_SET_CREATEOS_BASE_URL, "https://c.test", 0},
                {"CREATEOS_SANDBOX_ROOTFS=r", CORDON_SET_CREATEOS_ROOTFS, "r", 0},
                {"CREATEOS_SANDBOX_SHAPE=s", CORDON_SET_CREATEOS_SHAPE, "s", 0},
                {"SSH_PORT=2222", CORDON_SET_SSH_PORT, NULL, 2222},
                {"SSH_TIMEOUT=77", CORDON_SET_SSH_TIMEOUT_S, NULL, 77},
                {"SSH_MAX_OUTPUT_BYTES=2048", CORDON_SET_SSH_MAX_OUTPUT_BYTES, NULL, 2048},
                {"SSH_MAX_ARTIFACTS=0", CORDON_SET_SSH_MAX_ARTIFACTS, NULL, 0},
                {"SSH_MAX_ARTIFACT_BYTES=2048", CORDON_SET_SSH_MAX_ARTIFACT_BYTES, NULL, 2048},
                {"SANDBOX_EXECUTOR_MANAGER_TIMEOUT=1m5s", CORDON_SET_SELF_MANAGED_TIMEOUT_S, NULL, 65},
                {"E2B_TIMEOUT=77", CORDON_SET_E2B_TIMEOUT_S, NULL, 77},
                {"TENKI_TIMEOUT=77", CORDON_SET_TENKI_TIMEOUT_S, NULL, 77},
                {"TENKI_ALLOW_OUTBOUND=true", CORDON_SET_TENKI_ALLOW_OUTBOUND, NULL, 1},
                {"UCLOUD_SANDBOX_ALLOW_INTERNET_ACCESS=true", CORDON_SET_UCLOUD_SANDBOX_ALLOW_INTERNET_ACCESS, NULL, 1},
                {"UCLOUD_SANDBOX_INSECURE_HTTP=true", CORDON_SET_UCLOUD_SANDBOX_INSECURE_HTTP, NULL, 1},
                {"UCLOUD_SANDBOX_EXECUTION_TIMEOUT=77", CORDON_SET_UCLOUD_SANDBOX_EXECUTION_TIMEOUT_S, NULL, 77},
                {"UCLOUD_SANDBOX_TIMEOUT=77", CORDON_SET_UCLOUD_SANDBOX_TIMEOUT_S, NULL, 77},
                {"UCLOUD_SANDBOX_MAX_OUTPUT_BYTES=2048", CORDON_SET_UCLOUD_SANDBOX_MAX_OUTPUT_BYTES, NULL, 2048},
                {"UCLOUD_SANDBOX_MAX_ARTIFACTS=0", CORDON_SET_UCLOUD_SANDBOX_MAX_ARTIFACTS, NULL, 0},
                {"UCLOUD_SANDBOX_MAX_ARTIFACT_BYTES=2048", CORDON_SET_UCLOUD_SANDBOX_MAX_ARTIFACT_BYTES, NULL, 2048},
                {"LANGFLOW_SANDBOX_CREATEOS_ACCEPT_EGRESS_EXCEPTIONS=yes", CORDON_SET_CREATEOS_ACCEPT_EGRESS_EXCEPTIONS,
                 NULL, 1}};
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct cordon_settings *s = load_settings(rows[i].pair, NULL);
        bool flag = cordon_setting_rows[rows[i].id].type == CORDON_SETTING_BOOL;
        if (rows[i].text)
            assert_string_equal(cordon_settings_string(s, CORDON_DOOR_NATIVE, rows[i].id), rows[i].text);
        else if (flag)
            assert_true(cordon_settings_bool(s, CORDON_DOOR_NATIVE, rows[i].id));
        else
            assert_int_equal(number(s, CORDON_DOOR_NATIVE, rows[i].id), rows[i].number);
        cordon_settings_free(s);
    }
}

static void a_trial_is_seen_until_its_end(void **state)
{
    const char *stored[] = {"CORDON_PIDS=51", NULL}, *tried[] = {"CORDON_PIDS=52", NULL};
    struct cordon_settings *s = NO_SETTINGS, *other = NO_SETTINGS;
    assert_int_equal(cordon_settings_store(s, stored, NULL), 0);
    assert_int_equal(cordon_settings_trial_begin(s, tried, NULL), 0);
    assert_int_equal(number(s, CORDON_DOOR_NATIVE, CORDON_SET_PIDS), 52);
    assert_int_equal(number(other, CORDON_DOOR_NATIVE, CORDON_SET_PIDS), 128);
    cordon_settings_trial_end();
    assert_int_equal(number(s, CORDON_DOOR_NATIVE, CORDON_SET_PIDS), 51);
    cordon_settings_free(s);
    cordon_settings_free(other);
}

static void assert_masked(const char *secret)
{
    struct cordon_error err = {0};
    (void)cordon_fail(&err, -EIO, CORDON_ERROR_UNAVAILABLE, "the service said: no such key %s", secret);
    assert_string_equal(err.message, "the service said: no such key ***");
}

static void secrets_are_masked_wherever_they_were_set(void **state)
{
    const char *stored[] = {"CORDON_E2B_API_KEY=e2b_kept_in_the_store", NULL},
               *tried[] = {"CORDON_E2B_API_KEY=e2b_of_a_trial", NULL};
    struct cordon_settings *s = load_settings("CORDON_E2B_API_KEY=e2b_of_the_start", NULL);
    assert_masked("e2b_of_the_start");
    cordon_settings_free(s);
    s = NO_SETTINGS;
    assert_int_equal(cordon_settings_store(s, stored, NULL), 0);
    assert_masked("e2b_kept_in_the_store");
    assert_int_equal(cordon_settings_trial_begin(s, tried, NULL), 0);
    assert_masked("e2b_of_a_trial");
    cordon_settings_trial_end();
    cordon_settings_free(s);
    cordon_secret_forget();
}

static void texts_of_a_replaced_version_stay_valid(void **state)
{
    const char *first[] = {"CORDON_BACKEND=one", NULL}, *second[] = {"CORDON_BACKEND=two", NULL};
    struct cordon_settings *s = NO_SETTINGS;
    assert_int_equal(cordon_settings_store(s, first, NULL), 0);
    const char *kept = cordon_settings_string(s, CORDON_DOOR_NATIVE, CORDON_SET_BACKEND);
    assert_int_equal(cordon_settings_store(s, second, NULL), 0);
    assert_string_equal(kept, "one");
    assert_string_equal(cordon_settings_string(s, CORDON_DOOR_NATIVE, CORDON_SET_BACKEND), "two");
    cordon_settings_free(s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_default_is_valid_and_names_differ),
        cmocka_unit_test(an_alias_has_its_own_default_and_steers_its_door),
        cmocka_unit_test(an_alias_of_the_whole_daemon_sets_its_rows),
        cmocka_unit_test(two_names_that_differ_stop_the_start),
        cmocka_unit_test(durations_and_sizes_read_as_documented),
        cmocka_unit_test(bad_values_name_what_is_needed),
        cmocka_unit_test(bools_are_pydantics),
        cmocka_unit_test(unknown_names_stop_or_warn),
        cmocka_unit_test(lists_are_trimmed_and_blanks_dropped),
        cmocka_unit_test(flags_beat_environment_beats_file),
        cmocka_unit_test(files_fail_with_their_line),
        cmocka_unit_test(rows_must_agree),
        cmocka_unit_test(the_doors_name_is_the_aliass),
        cmocka_unit_test(all_texts_name_all_settings),
        cmocka_unit_test(the_executor_managers_forms),
        cmocka_unit_test(stored_values_lie_between_file_and_environment),
        cmocka_unit_test(a_bad_stored_value_changes_nothing),
        cmocka_unit_test(an_overridden_stored_value_is_checked_all_the_same),
        cmocka_unit_test(what_an_alias_became_stays_what_it_is),
        cmocka_unit_test(names_of_remote_backends_settings_act),
        cmocka_unit_test(a_trial_is_seen_until_its_end),
        cmocka_unit_test(secrets_are_masked_wherever_they_were_set),
        cmocka_unit_test(texts_of_a_replaced_version_stay_valid),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
