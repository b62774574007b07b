/* SPDX-License-Identifier: Apache-2.0 */
/* The built-in backends: what they declare of what the warden said, and in which words they can't work. */
#include "core_helper.h"

#include <errno.h>
#include <stdio.h>

#include "backend/builtin.h"
#include "base/error.h"
#include "guest/guest.h"

/* The guest library's place is taken by these. */
static struct cordon_warden_hello hello;
static int hello_result;
static struct cordon_guest_backend opened;

int cordon_warden_hello(struct cordon_warden_hello *ret, struct cordon_error *err)
{
    if (hello_result < 0)
        return cordon_fail(err, hello_result, CORDON_ERROR_UNAVAILABLE, "there is no warden");
    *ret = hello;
    return 0;
}

int cordon_guest_run_open(const struct cordon_guest_backend *backend, const struct cordon_request *request,
                          struct cordon_run **ret, struct cordon_error *err)
{
    opened = *backend;
    return -EIO;
}

int cordon_guest_run_next(struct cordon_run *run, struct cordon_event *event)
{
    return 0;
}

void cordon_guest_run_close(struct cordon_run *run)
{
}

int cordon_warden_look(struct cordon_error *err)
{
    return cordon_fail(err, -ENOENT, CORDON_ERROR_UNAVAILABLE, "there is no image");
}

static int setup(void **state)
{
    cordon_registry_setup(cordon_backend_builtin);
    hello = (struct cordon_warden_hello){.version = CORDON_WARDEN_VERSION};
    hello_result = 0;
    return 0;
}

static void before_a_warden_spoke_nothing_of_the_host_is_granted(void **state)
{
    struct cordon_error err = {0};
    hello_result = -ENOTCONN;
    const struct cordon_capabilities *caps = cordon_backend_local.capabilities();
    assert_int_equal(caps->isolation, CORDON_ISOLATION_NAMESPACE);
    assert_true(caps->deny_all_egress);
    assert_false(caps->memory_limit || caps->pids_limit || caps->cpu_limit || caps->agent_protected || caps->network);
    assert_int_equal(cordon_backend_local.probe(&err), -ENOTCONN);
    assert_int_equal(err.kind, CORDON_ERROR_UNAVAILABLE);
    assert_int_equal(cordon_backend_none.probe(&err), -ENOTCONN);
}

static void abilities_become_capabilities(void **state)
{
    hello.abilities = CORDON_ABLE_MEMORY | CORDON_ABLE_AGENT_PROTECTED | CORDON_ABLE_NONE_BACKEND;
    hello.languages = 1u << CORDON_GUEST_PYTHON_FRESH | 1u << CORDON_GUEST_BASH;
    const struct cordon_capabilities *first = cordon_backend_local.capabilities();
    assert_true(first->memory_limit && first->agent_protected);
    assert_false(first->pids_limit || first->cpu_limit);
    assert_string_equal(first->languages, "python,bash");
    hello.abilities = ~0u; /* a newer warden may say more */
    hello.languages = ~0u;
    const struct cordon_capabilities *second = cordon_backend_local.capabilities();
    assert_true(second->pids_limit && second->cpu_limit);
    assert_string_equal(second->languages, "python,javascript,bash");
    assert_false(first->pids_limit); /* what was returned stays what it was */
    hello_result = -ENOTCONN;        /* while a lost warden is replaced */
    assert_ptr_equal(cordon_backend_local.capabilities(), second);
    hello_result = 0;
    hello.languages = 0;
    assert_string_equal(cordon_backend_local.capabilities()->languages, "");
}

static void a_host_that_lacks_something_is_told_in_its_words(void **state)
{
    struct cordon_error err = {0};
    assert_int_equal(cordon_backend_local.probe(&err), 0);
    hello.status = -ENOSYS;
    (void)snprintf(hello.why, sizeof hello.why, "user namespaces are off: sysctl user.max_user_namespaces=1000");
    assert_int_equal(cordon_backend_local.probe(&err), -ENOSYS);
    assert_int_equal(err.kind, CORDON_ERROR_UNAVAILABLE);
    assert_non_null(strstr(err.message, hello.why));
}

static void none_needs_its_warden_to_allow_it(void **state)
{
    struct cordon_error err = {0};
    assert_int_equal(cordon_backend_none.probe(&err), -EPERM);
    assert_non_null(strstr(err.message, "CORDON_ALLOW_NONE"));
    hello.abilities = CORDON_ABLE_NONE_BACKEND;
    assert_int_equal(cordon_backend_none.probe(&err), 0);
    const struct cordon_capabilities *caps = cordon_backend_none.capabilities();
    assert_int_equal(caps->isolation, CORDON_ISOLATION_NONE);
    assert_false(caps->deny_all_egress || caps->memory_limit || caps->pids_limit || caps->agent_protected);
}

static void guests_are_asked_for_by_their_backend(void **state)
{
    struct cordon_request request = {.struct_size = sizeof request};
    struct cordon_run *run;
    assert_int_equal(cordon_backend_local.run_open(&request, &run, NULL), -EIO);
    assert_string_equal(opened.name, "local");
    assert_false(opened.unisolated);
    assert_int_equal(opened.isolation, CORDON_ISOLATION_NAMESPACE);
    assert_int_equal(cordon_backend_none.run_open(&request, &run, NULL), -EIO);
    assert_string_equal(opened.name, "none");
    assert_true(opened.unisolated);
    assert_int_equal(opened.isolation, CORDON_ISOLATION_NONE);
}

/* Also while accelerator and image are still being looked at: a run that comes then waits, and is not refused. */
static void machines_have_a_network_where_a_device_can_be_made(void **state)
{
    static const struct {
        uint32_t abilities;
        bool network;
        const char *ports;
    } cases[] = {{CORDON_ABLE_NETWORK | CORDON_ABLE_EVERY_PORT, false, ""},
                 {CORDON_ABLE_MACHINE_NETWORK, true, "80,443"},
                 {CORDON_ABLE_MACHINE_NETWORK | CORDON_ABLE_EVERY_PORT, true, ""}};
    for (size_t i = 0; i < 2 * sizeof cases / sizeof *cases; i++) {
        hello.abilities = cases[i / 2].abilities;
        hello.machine_status = i % 2 ? -EAGAIN : 0;
        const struct cordon_capabilities *caps = cordon_backend_exec_sandbox.capabilities();
        assert_int_equal(caps->network, cases[i / 2].network);
        assert_int_equal(caps->domain_allowlist, cases[i / 2].network);
        assert_int_equal(caps->egress_headers, cases[i / 2].network);
        assert_string_equal(caps->egress_ports ? caps->egress_ports : "", cases[i / 2].ports);
        assert_true(caps->deny_all_egress);
    }
}

static void machines_are_what_their_accelerator_is(void **state)
{
    struct cordon_error err = {0};
    hello.machine_languages = 1u << CORDON_GUEST_BASH;
    hello.machine_accel = CORDON_MACHINE_KVM;
    const struct cordon_capabilities *caps = cordon_backend_exec_sandbox.capabilities();
    assert_int_equal(caps->isolation, CORDON_ISOLATION_HARDWARE_VIRTUALIZED);
    assert_string_equal(caps->languages, "bash");
    assert_true(caps->deny_all_egress && caps->memory_limit && caps->guests);
    assert_false(caps->network || caps->domain_allowlist);
    assert_int_equal(cordon_backend_exec_sandbox.probe(&err), 0);
    assert_string_equal(caps->accelerator, "kvm");
    hello.machine_accel = CORDON_MACHINE_TCG;
    assert_string_equal(cordon_backend_exec_sandbox.capabilities()->accelerator, "tcg");
    assert_int_equal(cordon_backend_exec_sandbox.capabilities()->isolation, CORDON_ISOLATION_SOFTWARE_EMULATED);
    hello.machine_accel = CORDON_MACHINE_KVM; /* it is there, but no machine can be made: nothing strong is promised */
    hello.machine_status = -ENOENT;
    assert_int_equal(cordon_backend_exec_sandbox.capabilities()->isolation, CORDON_ISOLATION_SOFTWARE_EMULATED);
    assert_int_equal(cordon_backend_exec_sandbox.probe(&err), -ENOENT);
    assert_string_equal(err.message, "there is no image");
}

static void they_are_registered_and_the_settings_name_them(void **state)
{
    struct cordon_settings *s = NO_SETTINGS;
    assert_int_equal(cordon_registry_check(s, NULL), 0);
    assert_string_equal(cordon_registry_at(0)->name, "none");
    static const char *const names[] = {
        "local", "exec-sandbox",         "self_managed",          "ssh", "e2b", "createos",
        "tenki", "ucloud_agent_sandbox", "aliyun_codeinterpreter"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        const struct cordon_backend *found;
        assert_int_equal(cordon_registry_find(names[i], "x", &found, NULL), 0);
        assert_int_equal(cordon_backend_needs_warden(found), i < 2);
    }
    cordon_settings_free(s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(before_a_warden_spoke_nothing_of_the_host_is_granted, setup),
        cmocka_unit_test_setup(abilities_become_capabilities, setup),
        cmocka_unit_test_setup(a_host_that_lacks_something_is_told_in_its_words, setup),
        cmocka_unit_test_setup(none_needs_its_warden_to_allow_it, setup),
        cmocka_unit_test_setup(guests_are_asked_for_by_their_backend, setup),
        cmocka_unit_test_setup(machines_have_a_network_where_a_device_can_be_made, setup),
        cmocka_unit_test_setup(machines_are_what_their_accelerator_is, setup),
        cmocka_unit_test_setup(they_are_registered_and_the_settings_name_them, setup),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
