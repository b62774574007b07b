/* SPDX-License-Identifier: Apache-2.0 */
/* Policy: each rule refuses, in its order, in words that name what is needed; and none falls back. */
#include "core_helper.h"

#include "core/policy.h"

struct ask {
    struct cordon_settings *settings;
    struct cordon_run_request run;
    const struct cordon_backend *backend;
};

static struct ask ask_with(struct cordon_settings *settings, enum cordon_door door)
{
    struct ask ask = {.settings = settings};
    fake_reset();
    cordon_run_request_init(settings, door, &ask.run);
    ask.run.request.language = "python";
    assert_int_equal(cordon_registry_find("local", "X", &ask.backend, NULL), 0);
    return ask;
}

static void done(struct ask *ask)
{
    cordon_run_request_done(&ask->run);
    cordon_settings_free(ask->settings);
}

static int check(const struct ask *ask, bool named, struct cordon_error *err)
{
    int r = cordon_policy_check_declared(ask->settings, &ask->run, ask->backend, named, err);
    return r < 0 ? r : cordon_policy_check_held(ask->settings, &ask->run, ask->backend, named, err);
}

static void accepts(const struct ask *ask, bool named)
{
    struct cordon_error err = {0};
    if (check(ask, named, &err) < 0)
        fail_msg("%s", err.message);
}

/* Every refusal names the setting, the backend, what was found, what would be accepted, and begins alike. */
static void refuses(const struct ask *ask, bool named, const char *const parts[])
{
    struct cordon_error err = {0};
    if (check(ask, named, &err) == 0)
        fail_msg("accepted; expected %s", parts[0]);
    assert_int_equal(err.kind, CORDON_ERROR_REFUSED);
    for (; *parts; parts++)
        if (!strstr(err.message, *parts))
            fail_msg("\"%s\" is not in \"%s\"", *parts, err.message);
    const char *beginning = "the code was refused and not run: ";
    assert_int_equal(strncmp(err.message, beginning, strlen(beginning)), 0);
    assert_non_null(strstr(err.message, ask->backend->name));
    assert_non_null(strstr(err.message, "accepted"));
}
#define PARTS(...) ((const char *const[]){__VA_ARGS__, NULL})

static void the_usual_run_is_accepted(void **state)
{
    struct ask ask = ask_with(NO_SETTINGS, CORDON_DOOR_NATIVE);
    accepts(&ask, false);
    done(&ask);
}

static void weak_isolation_is_refused(void **state)
{
    struct ask ask = ask_with(load_settings("CORDON_MIN_ISOLATION=userspace-kernel", NULL), CORDON_DOOR_NATIVE);
    refuses(&ask, true, PARTS("CORDON_MIN_ISOLATION", "\"namespace\"", "userspace-kernel or stronger"));
    fake.caps.isolation = CORDON_ISOLATION_USERSPACE_KERNEL;
    accepts(&ask, true);
    fake.caps.isolation = CORDON_ISOLATION_HARDWARE_VIRTUALIZED;
    accepts(&ask, true);
    done(&ask);
}

static void langflow_demands_hardware(void **state)
{
    struct ask ask = ask_with(load_settings("LANGFLOW_SANDBOX_BACKEND=local", NULL), CORDON_DOOR_LANGFLOW);
    for (int i = 0; i < CORDON_ISOLATION_HARDWARE_VIRTUALIZED; i++) {
        fake.caps.isolation = (enum cordon_isolation)i;
        refuses(&ask, true,
                PARTS("LANGFLOW_SANDBOX_BACKEND", "not a hardware-virtualized boundary",
                      cordon_isolation_name((enum cordon_isolation)i)));
    }
    fake.caps.isolation = CORDON_ISOLATION_HARDWARE_VIRTUALIZED;
    accepts(&ask, false);
    done(&ask);
}

/* exec-sandbox is one whose machines may be emulated in software; another backend of that isolation is not. */
static struct cordon_backend machines, pretender;

static struct ask ask_machines(struct cordon_settings *settings, enum cordon_door door)
{
    static const struct cordon_backend *const builtin[] = {&fake_backend, &machines, &pretender, NULL};
    struct ask ask = ask_with(settings, door);
    machines = pretender = fake_backend;
    machines.name = "exec-sandbox";
    pretender.name = "sandbox-exec";
    cordon_registry_setup(builtin);
    ask.backend = &machines;
    fake.caps.isolation = CORDON_ISOLATION_SOFTWARE_EMULATED;
    return ask;
}

static void langflow_takes_emulation_only_where_told_and_of_exec_sandbox(void **state)
{
    struct ask ask = ask_machines(load_settings("LANGFLOW_SANDBOX_BACKEND=local", NULL), CORDON_DOOR_LANGFLOW);
    refuses(&ask, false,
            PARTS("LANGFLOW_SANDBOX_BACKEND", "\"software-emulated\"", "not a hardware-virtualized boundary",
                  "cordon doctor", "LANGFLOW_SANDBOX_ALLOW_SOFTWARE_EMULATION=true"));
    ask.backend = &pretender;
    refuses(&ask, false, PARTS("only hardware-virtualized would be accepted"));
    done(&ask);
    ask = ask_machines(load_settings("LANGFLOW_SANDBOX_ALLOW_SOFTWARE_EMULATION=yes", NULL), CORDON_DOOR_LANGFLOW);
    accepts(&ask, false);
    ask.backend = &pretender;
    refuses(&ask, false, PARTS("not a hardware-virtualized boundary"));
    ask.backend = &machines;
    fake.caps.isolation = CORDON_ISOLATION_USERSPACE_KERNEL;
    refuses(&ask, false, PARTS("userspace-kernel", "only hardware-virtualized would be accepted"));
    done(&ask);
}

static void emulation_must_be_allowed_at_every_door(void **state)
{
    struct ask ask =
        ask_machines(load_settings("LANGFLOW_SANDBOX_ALLOW_SOFTWARE_EMULATION=1", NULL), CORDON_DOOR_NATIVE);
    refuses(&ask, true, PARTS("CORDON_ALLOW_SOFTWARE_EMULATION is false", "exec-sandbox", "cordon doctor"));
    fake.caps.isolation = CORDON_ISOLATION_HARDWARE_VIRTUALIZED;
    accepts(&ask, true);
    done(&ask);
    ask = ask_machines(load_settings("CORDON_ALLOW_SOFTWARE_EMULATION=1", NULL), CORDON_DOOR_NATIVE);
    accepts(&ask, true);
    done(&ask);
    ask = ask_machines(
        load_settings("CORDON_ALLOW_SOFTWARE_EMULATION=1", "CORDON_MIN_ISOLATION=hardware-virtualized", NULL),
        CORDON_DOOR_NATIVE);
    refuses(&ask, true, PARTS("CORDON_MIN_ISOLATION", "software-emulated"));
    done(&ask);
}

/* Each refusal that Langflow documents, in its order: what is mended uncovers the next. */
static void langflows_refusals_come_in_its_order(void **state)
{
    struct ask ask =
        ask_machines(load_settings("LANGFLOW_SANDBOX_ALLOWED_DOMAINS=example.com", NULL), CORDON_DOOR_LANGFLOW);
    fake.caps = (struct cordon_capabilities){.struct_size = sizeof fake.caps, .max_timeout_s = 29};
    ask.run.request.limits.timeout_ms = 30000; /* the default */
    refuses(&ask, false, PARTS("exec-sandbox", "\"none\"", "not a hardware-virtualized boundary"));
    fake.caps.isolation = CORDON_ISOLATION_HARDWARE_VIRTUALIZED;
    refuses(&ask, false, PARTS("exec-sandbox", "LANGFLOW_SANDBOX_ALLOW_NETWORK is false", "cannot block all egress"));
    fake.caps.deny_all_egress = true;
    refuses(&ask, false, PARTS("exec-sandbox", "LANGFLOW_SANDBOX_ALLOWED_DOMAINS", "cannot restrict egress by domain"));
    fake.caps.domain_allowlist = true;
    refuses(&ask, false, PARTS("exec-sandbox", "LANGFLOW_SANDBOX_TIMEOUT_SECONDS", "is 30 s", "29 s at most"));
    fake.caps.max_timeout_s = 30; /* equal passes */
    fake.caps.egress_exceptions = "169.254.0.0/16";
    refuses(&ask, false, PARTS("exec-sandbox", "169.254.0.0/16", "CORDON_ACCEPT_EGRESS_EXCEPTIONS"));
    fake.caps.egress_exceptions = NULL;
    fake.caps.languages = "python";
    accepts(&ask, false);
    done(&ask);
}

static void none_runs_only_where_named_and_allowed(void **state)
{
    struct ask ask =
        ask_with(load_settings("CORDON_MIN_ISOLATION=none", "CORDON_BACKEND=none", NULL), CORDON_DOOR_NATIVE);
    assert_int_equal(cordon_registry_find("none", "X", &ask.backend, NULL), 0);
    refuses(&ask, false, PARTS("CORDON_BACKEND", "isolates nothing"));
    refuses(&ask, true, PARTS("CORDON_ALLOW_NONE", "false"));
    ask.run.by_operator = true;
    accepts(&ask, true);
    refuses(&ask, false, PARTS("CORDON_BACKEND"));
    done(&ask);
    ask = ask_with(load_settings("CORDON_ALLOW_NONE=1", NULL), CORDON_DOOR_NATIVE);
    assert_int_equal(cordon_registry_find("none", "X", &ask.backend, NULL), 0);
    accepts(&ask, true);
    refuses(&ask, false, PARTS("CORDON_BACKEND"));
    ask.run.door = CORDON_DOOR_LANGFLOW;
    refuses(&ask, true, PARTS("hardware-virtualized"));
    done(&ask);
}

static void a_backend_of_isolation_none_by_another_name_is_not_none(void **state)
{
    struct ask ask =
        ask_with(load_settings("CORDON_ALLOW_NONE=1", "CORDON_MIN_ISOLATION=none", NULL), CORDON_DOOR_NATIVE);
    fake.caps.isolation = CORDON_ISOLATION_NONE;
    refuses(&ask, true, PARTS("CORDON_ALLOW_NONE"));
    done(&ask);
}

static void egress_must_be_blocked_or_allowed(void **state)
{
    struct ask ask = ask_with(NO_SETTINGS, CORDON_DOOR_NATIVE);
    fake.caps.deny_all_egress = false;
    refuses(&ask, false, PARTS("CORDON_ALLOW_NETWORK is false", "cannot block all egress"));
    fake.caps.deny_all_egress = true;
    ask.run.request.network = true;
    refuses(&ask, false, PARTS("asks for the network", "CORDON_ALLOW_NETWORK must be true"));
    done(&ask);
    ask = ask_with(load_settings("CORDON_ALLOW_NETWORK=1", NULL), CORDON_DOOR_NATIVE);
    ask.run.request.network = true;
    accepts(&ask, false);
    fake.caps.network = false;
    refuses(&ask, false, PARTS("can give none"));
    ask.run.request.network = false;
    fake.caps.deny_all_egress = false;
    refuses(&ask, false, PARTS("CORDON_ALLOW_NETWORK is true", "cannot block all egress"));
    done(&ask);
}

static void rules_and_headers_must_be_possible_there(void **state)
{
    struct ask ask = ask_with(load_settings("CORDON_ALLOW_NETWORK=1", NULL), CORDON_DOOR_NATIVE);
    const char *const header = "a.com:80 X-Key: s3cr3t";
    const char *rule = "a.com:5432";
    ask.run.request.network = true;
    ask.run.request.allowed_domains = &rule;
    ask.run.request.allowed_domain_count = 1;
    accepts(&ask, false);
    fake.caps.egress_ports = "80,443";
    refuses(&ask, false, PARTS("a.com:5432", "80,443"));
    static const char *const good[] = {"a.com", "a.com:443", "+a.com:80", "!a.com:5432"};
    for (size_t i = 0; i < sizeof good / sizeof *good; i++) {
        rule = good[i];
        accepts(&ask, false);
    }
    ask.run.headers = &header;
    ask.run.header_count = 1;
    refuses(&ask, false, PARTS("egress_headers"));
    fake.caps.egress_headers = true;
    accepts(&ask, false);
    done(&ask);
}

static void domains_need_an_allowlist(void **state)
{
    struct ask ask =
        ask_with(load_settings("CORDON_ALLOWED_DOMAINS=example.com,*.b.example.com", "CORDON_ALLOW_NETWORK=1", NULL),
                 CORDON_DOOR_NATIVE);
    fake.caps.domain_allowlist = false;
    refuses(&ask, false, PARTS("CORDON_ALLOWED_DOMAINS", "cannot restrict egress by domain")); /* network off, too */
    fake.caps.domain_allowlist = true;
    ask.run.request.network = true;
    static const char *const good[] = {"EXAMPLE.com", "a.b.example.com"}, *const bad[] = {"badexample.com"},
                             *const below[] = {"a.example.com"};
    ask.run.request.allowed_domains = good;
    ask.run.request.allowed_domain_count = 2;
    accepts(&ask, false);
    ask.run.request.allowed_domains = bad;
    ask.run.request.allowed_domain_count = 1;
    refuses(&ask, false, PARTS("badexample.com", "CORDON_ALLOWED_DOMAINS"));
    ask.run.request.allowed_domains = below; /* only where it is written so */
    refuses(&ask, false, PARTS("a.example.com", "CORDON_ALLOWED_DOMAINS"));
    done(&ask);
    ask = ask_with(NO_SETTINGS, CORDON_DOOR_NATIVE);
    ask.run.request.allowed_domains = bad;
    ask.run.request.allowed_domain_count = 1;
    fake.caps.domain_allowlist = false;
    refuses(&ask, false, PARTS("allowed_domains", "badexample.com"));
    done(&ask);
}

static void the_backends_time_cap_holds(void **state)
{
    struct ask ask = ask_with(NO_SETTINGS, CORDON_DOOR_LANGFLOW);
    fake.caps.isolation = CORDON_ISOLATION_HARDWARE_VIRTUALIZED;
    fake.caps.max_timeout_s = 30;
    accepts(&ask, false);
    ask.run.request.limits.timeout_ms = 30001;
    refuses(&ask, false, PARTS("LANGFLOW_SANDBOX_TIMEOUT_SECONDS", "30.001", "up to 30 s"));
    done(&ask);
}

static void egress_exceptions_must_be_accepted_by_name(void **state)
{
    struct ask ask =
        ask_with(load_settings("CORDON_ACCEPT_EGRESS_EXCEPTIONS=169.254.0.0/16", NULL), CORDON_DOOR_NATIVE);
    fake.caps.egress_exceptions = "169.254.0.0/16";
    accepts(&ask, false);
    fake.caps.egress_exceptions = "169.254.0.0/16, fe80::/10";
    refuses(&ask, false, PARTS("CORDON_ACCEPT_EGRESS_EXCEPTIONS", "fe80::/10"));
    done(&ask);
}

static void languages_must_be_offered(void **state)
{
    struct ask ask = ask_with(NO_SETTINGS, CORDON_DOOR_NATIVE);
    fake.caps.languages = "python2, javascript";
    refuses(&ask, false, PARTS("python", "javascript"));
    fake.caps.languages = NULL;
    refuses(&ask, false, PARTS("no language"));
    done(&ask);
}

static void a_template_needs_a_backend_that_starts_from_one(void **state)
{
    struct ask ask = ask_with(NO_SETTINGS, CORDON_DOOR_NATIVE);
    ask.run.request.template_name = "mine";
    fake.caps.templates = false;
    refuses(&ask, false, PARTS("template mine", "CORDON_BACKEND"));
    ask.run.request.template_name = "python"; /* the built-in one, which is there anyway */
    accepts(&ask, false);
    ask.run.request.template_name = "mine";
    fake.caps.templates = true;
    accepts(&ask, false);
    done(&ask);
}

static void limits_files_and_artifacts_must_be_held(void **state)
{
    struct ask ask = ask_with(load_settings("CORDON_REQUIRE_LIMITS=memory,agent", NULL), CORDON_DOOR_NATIVE);
    accepts(&ask, false);
    fake.caps.agent_protected = false;
    refuses(&ask, false, PARTS("CORDON_REQUIRE_LIMITS", "agent", "cordon doctor"));
    fake.caps.agent_protected = true;
    fake.caps.memory_limit = false;
    refuses(&ask, false, PARTS("CORDON_REQUIRE_LIMITS names memory"));
    done(&ask);
    ask = ask_with(NO_SETTINGS, CORDON_DOOR_NATIVE);
    fake.caps.memory_limit = false;
    accepts(&ask, false);
    ask.run.memory_asked = true;
    refuses(&ask, false, PARTS("memory_mb", "CORDON_MEMORY_MB"));
    ask.run.memory_asked = false;
    fake.caps.files = fake.caps.artifacts = false;
    accepts(&ask, false);
    ask.run.request.file_count = 1;
    refuses(&ask, false, PARTS("files"));
    ask.run.request.file_count = 0;
    ask.run.request.artifacts = true;
    refuses(&ask, false, PARTS("artifacts"));
    done(&ask);
}

static void the_first_failing_rule_wins(void **state)
{
    struct ask ask = ask_with(load_settings("CORDON_ALLOWED_DOMAINS=a.com", NULL), CORDON_DOOR_NATIVE);
    fake.caps =
        (struct cordon_capabilities){.struct_size = sizeof fake.caps, .max_timeout_s = 1, .egress_exceptions = "x"};
    refuses(&ask, true, PARTS("CORDON_ALLOW_NONE"));
    fake.caps.isolation = CORDON_ISOLATION_NAMESPACE;
    refuses(&ask, true, PARTS("CORDON_ALLOW_NETWORK"));
    fake.caps.deny_all_egress = true;
    refuses(&ask, true, PARTS("CORDON_ALLOWED_DOMAINS"));
    fake.caps.domain_allowlist = true;
    refuses(&ask, true, PARTS("CORDON_TIMEOUT_S"));
    fake.caps.max_timeout_s = 0;
    refuses(&ask, true, PARTS("CORDON_ACCEPT_EGRESS_EXCEPTIONS"));
    fake.caps.egress_exceptions = "";
    refuses(&ask, true, PARTS("CORDON_BACKEND", "python"));
    fake.caps.languages = "python";
    accepts(&ask, true);
    done(&ask);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_usual_run_is_accepted),
        cmocka_unit_test(weak_isolation_is_refused),
        cmocka_unit_test(langflow_demands_hardware),
        cmocka_unit_test(langflow_takes_emulation_only_where_told_and_of_exec_sandbox),
        cmocka_unit_test(emulation_must_be_allowed_at_every_door),
        cmocka_unit_test(langflows_refusals_come_in_its_order),
        cmocka_unit_test(none_runs_only_where_named_and_allowed),
        cmocka_unit_test(a_backend_of_isolation_none_by_another_name_is_not_none),
        cmocka_unit_test(egress_must_be_blocked_or_allowed),
        cmocka_unit_test(rules_and_headers_must_be_possible_there),
        cmocka_unit_test(domains_need_an_allowlist),
        cmocka_unit_test(the_backends_time_cap_holds),
        cmocka_unit_test(egress_exceptions_must_be_accepted_by_name),
        cmocka_unit_test(languages_must_be_offered),
        cmocka_unit_test(a_template_needs_a_backend_that_starts_from_one),
        cmocka_unit_test(limits_files_and_artifacts_must_be_held),
        cmocka_unit_test(the_first_failing_rule_wins),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
