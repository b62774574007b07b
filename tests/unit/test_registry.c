/* SPDX-License-Identifier: Apache-2.0 */
/* The registry: spelling, sealed and reserved names, and what an unknown name is told. */
#include "core_helper.h"

static int setup(void **state)
{
    fake_reset();
    return 0;
}

static struct cordon_backend named(const char *name)
{
    struct cordon_backend backend = fake_backend;
    backend.name = name;
    return backend;
}

static void any_spelling_finds(void **state)
{
    const struct cordon_backend *found = NULL;
    assert_int_equal(cordon_registry_find("  LoCaL\n", "X", &found, NULL), 0);
    assert_ptr_equal(found, &fake_backend);
}

static void unknown_names_are_told_the_known_ones(void **state)
{
    const struct cordon_backend *found = NULL;
    struct cordon_error err = {0};
    static const char *const bad[] = {"docker", "", "  ", "local2",
                                      "a-name-that-is-much-longer-than-any-backend-may-have-because-nobody-needs-such"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        assert_true(cordon_registry_find(bad[i], "CORDON_BACKEND", &found, &err) < 0);
        assert_int_equal(err.kind, CORDON_ERROR_INVALID);
        assert_non_null(strstr(err.message, "CORDON_BACKEND must name one of these backends: none, local"));
        assert_null(found);
    }
}

static void built_in_and_reserved_names_can_not_be_taken(void **state)
{
    struct cordon_error err = {0};
    struct cordon_backend taken = named(" LOCAL "), none = named("None"), empty = named(" "), nameless = named(NULL);
    struct cordon_backend old = named("old"), fine = named("zeta"), again = named("ZETA"), first = named("alpha");
    old.abi_version = 99;
    assert_true(cordon_registry_add(&taken, &err) < 0);
    assert_non_null(strstr(err.message, "built in"));
    assert_true(cordon_registry_add(&none, &err) < 0);
    assert_non_null(strstr(err.message, "reserved"));
    assert_true(cordon_registry_add(&empty, &err) < 0);
    assert_true(cordon_registry_add(&nameless, &err) < 0);
    assert_true(cordon_registry_add(&old, &err) < 0);
    assert_int_equal(err.kind, CORDON_ERROR_INVALID);
    assert_int_equal(cordon_registry_add(&fine, &err), 0);
    assert_true(cordon_registry_add(&again, &err) < 0);
    assert_int_equal(err.kind, CORDON_ERROR_CONFLICT);
    assert_int_equal(cordon_registry_add(&first, &err), 0);
    static const char *const order[] = {"none", "alpha", "local", "zeta"};
    for (size_t i = 0; i < 4; i++)
        assert_string_equal(cordon_registry_at(i)->name, order[i]);
    assert_null(cordon_registry_at(4));
    fake_reset();
}

static void it_does_not_grow_without_bound(void **state)
{
    static struct cordon_backend many[64];
    static char names[64][8];
    int r = 0, i = 0;
    for (; i < 64 && r == 0; i++) {
        (void)snprintf(names[i], sizeof names[i], "b%d", i);
        many[i] = named(names[i]);
        r = cordon_registry_add(&many[i], NULL);
    }
    assert_true(r < 0 && i > 20);
    fake_reset();
}

static void settings_with_an_unknown_backend_stop_the_start(void **state)
{
    struct cordon_error err = {0};
    struct cordon_settings *s = load_settings("LANGFLOW_SANDBOX_BACKEND=locla", NULL);
    assert_true(cordon_registry_check(s, &err) < 0);
    assert_non_null(strstr(err.message, "LANGFLOW_SANDBOX_BACKEND must name"));
    cordon_settings_free(s);
    s = NO_SETTINGS;
    assert_int_equal(cordon_registry_check(s, &err), 0);
    cordon_settings_free(s);
}

static void what_an_older_backend_does_not_know_grants_nothing(void **state)
{
    fake.caps.struct_size = offsetof(struct cordon_capabilities, domain_allowlist);
    struct cordon_capabilities caps = cordon_registry_capabilities(&fake_backend);
    assert_true(caps.deny_all_egress);
    assert_false(caps.domain_allowlist || caps.network || caps.memory_limit);
    assert_null(caps.languages);
    fake_reset();
}

static void all_are_shut_down(void **state)
{
    cordon_registry_shutdown(); /* none of the fakes has one: nothing happens */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(any_spelling_finds),
        cmocka_unit_test(unknown_names_are_told_the_known_ones),
        cmocka_unit_test(built_in_and_reserved_names_can_not_be_taken),
        cmocka_unit_test(it_does_not_grow_without_bound),
        cmocka_unit_test(settings_with_an_unknown_backend_stop_the_start),
        cmocka_unit_test(what_an_older_backend_does_not_know_grants_nothing),
        cmocka_unit_test(all_are_shut_down),
    };
    return cmocka_run_group_tests(tests, setup, NULL);
}
