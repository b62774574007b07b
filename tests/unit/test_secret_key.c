/* SPDX-License-Identifier: Apache-2.0 */
/* The key of stored secrets: its forms, where it may come from, and that it leaves the environment. */
#include "core_helper.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/secret_key.h"

#define HEX_KEY "000102030405060708090a0b0c0d0e0fF0F1F2F3F4F5F6F7F8F9FAFBFCFDFEFF"
#define BASE64_KEY "AAECAwQFBgcICQoLDA0OD/Dx8vP09fb3+Pn6+/z9/v8="

static void a_secret_key_has_one_of_two_forms(void **state)
{
    static const char *const bad[] = {
        "CORDON_SECRET_KEY=x",
        "CORDON_SECRET_KEY=" HEX_KEY "0",
        "CORDON_SECRET_KEY=g00102030405060708090a0b0c0d0e0ff0f1f2f3f4f5f6f7f8f9fafbfcfdfeff",
        "CORDON_SECRET_KEY=AAECAwQFBgcICQoLDA0OD/Dx8vP09fb3+Pn6+/z9/v8",  /* no padding */
        "CORDON_SECRET_KEY=AAECAwQFBgcICQoLDA0OD/Dx8vP09fb3+Pn6+/z9/v==", /* 31 bytes, or other bits than it says */
        "CORDON_SECRET_KEY=AAECAwQFBgcICQoLDA0OD/Dx8vP09fb3+Pn6+/z9/v8A", /* 33 bytes */
    };
    unsigned char hex[CORDON_SECRET_KEY_SIZE], base64[CORDON_SECRET_KEY_SIZE];
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        const char *pairs[] = {bad[i], NULL};
        struct cordon_settings *none = NULL;
        struct cordon_error err = {0};
        assert_int_equal(cordon_settings_load(&(struct cordon_settings_input){.environ = pairs}, &none, &err), -EINVAL);
        assert_non_null(strstr(err.message, "CORDON_SECRET_KEY is \"(hidden)\" (the environment): a key of 64 hex"));
    }
    struct cordon_settings *s = load_settings("CORDON_SECRET_KEY=" HEX_KEY, NULL);
    assert_true(cordon_secret_key_read(cordon_settings_string(s, CORDON_DOOR_NATIVE, CORDON_SET_SECRET_KEY), hex));
    cordon_settings_free(s);
    s = load_settings("CORDON_SECRET_KEY=" BASE64_KEY, NULL);
    assert_true(cordon_secret_key_read(cordon_settings_string(s, CORDON_DOOR_NATIVE, CORDON_SET_SECRET_KEY), base64));
    cordon_settings_free(s);
    assert_memory_equal(hex, base64, sizeof hex);
    assert_true(hex[1] == 1 && hex[31] == 0xff);
    s = load_settings("CORDON_SECRET_KEY=", NULL);
    assert_string_equal(cordon_settings_string(s, CORDON_DOOR_NATIVE, CORDON_SET_SECRET_KEY), "");
    cordon_settings_free(s);
}

/* It is one of deployment: no page stores it. */
static void a_secret_key_is_not_stored(void **state)
{
    const char *const stored[] = {"CORDON_SECRET_KEY=" HEX_KEY, NULL};
    struct cordon_settings *s = NO_SETTINGS;
    struct cordon_error err = {0};
    assert_int_equal(cordon_settings_store(s, stored, &err), -EPERM);
    assert_null(strstr(err.message, HEX_KEY));
    cordon_settings_free(s);
}

/* In a process of its own, since what is looked at is how it was executed. */
static void a_secret_key_leaves_the_environment(void **state)
{
    char *const argv[] = {(char[]){"test_secret_key"}, (char[]){"--hidden"}, NULL};
    char *const env[] = {(char[]){"A=1"}, (char[]){"CORDON_SECRET_KEY=" HEX_KEY}, (char[]){"Z=2"},
                         (char[]){"CORDON_SECRET_KEY=" BASE64_KEY}, NULL};
    int status = 1;
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        (void)execve("/proc/self/exe", argv, env);
        _exit(99);
    }
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_int_equal(status, 0);
}

/* What that process does; its exit status says which step went wrong. */
static int look_for_hidden(void)
{
    static char found[65536];
    struct cordon_settings *s = NULL;
    if (cordon_settings_load(&(struct cordon_settings_input){0}, &s, NULL) < 0)
        return 1;
    if (strcmp(cordon_settings_string(s, CORDON_DOOR_NATIVE, CORDON_SET_SECRET_KEY), BASE64_KEY) != 0)
        return 2;
    cordon_settings_free(s);
    FILE *file = fopen("/proc/self/environ", "r");
    size_t size = file ? fread(found, 1, sizeof found, file) : 0;
    if (!memmem(found, size, "A=1", 4) || !memmem(found, size, "Z=2", 4) || !getenv("Z"))
        return 3;
    if (memmem(found, size, HEX_KEY, 16) || memmem(found, size, BASE64_KEY, 16) || getenv("CORDON_SECRET_KEY"))
        return 4;
    return fclose(file);
}

int main(int argc, char **argv)
{
    if (argc == 2 && strcmp(argv[1], "--hidden") == 0)
        return look_for_hidden();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_secret_key_has_one_of_two_forms),
        cmocka_unit_test(a_secret_key_is_not_stored),
        cmocka_unit_test(a_secret_key_leaves_the_environment),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
