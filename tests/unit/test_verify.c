/* SPDX-License-Identifier: Apache-2.0 */
/*
 * core/verify: a remote backend that claims an allowlist of domains and to deny all egress, and holds neither (what
 * CreateOS's measured documents tell of), is caught, and refused by the policy that believes only what was measured.
 * The liar runs the probes as plain processes, in a network namespace of the test's own that has the targets on its
 * loopback and nothing else. It does not run what would leave processes behind, and says that it ended.
 */
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>
#include <net/if.h>
#include <netinet/in.h>
#include <sched.h>
#include <sys/ioctl.h>

#include "base/fd.h"
#include "core/policy.h"
#include "core/registry.h"
#include "core/run.h"
#include "core/verify.h"

struct cordon_run {
    char data[65536];
    struct cordon_outcome outcome;
    int given;
};

static struct cordon_capabilities claims = {.struct_size = sizeof claims,
                                            .isolation = CORDON_ISOLATION_HARDWARE_VIRTUALIZED,
                                            .deny_all_egress = true,
                                            .domain_allowlist = true,
                                            .network = true,
                                            .languages = "python"};

static const struct cordon_capabilities *get_claims(void)
{
    return &claims;
}

/* Its status, with its output in to: killed after so many seconds, and given 400 MB of addresses. */
static int run_python(const char *path, unsigned seconds, char *to, size_t room)
{
    int ends[2], status = 0;
    size_t size = 0;
    assert_int_equal(pipe(ends), 0);
    pid_t pid = fork();
    if (pid == 0) {
        const struct rlimit memory = {400000u << 10, 400000u << 10};
        (void)alarm(seconds); /* its end is a signal, as the deadline's is */
        if (dup2(ends[1], STDOUT_FILENO) < 0 || close(ends[0]) < 0 || setrlimit(RLIMIT_AS, &memory) < 0 ||
            chdir("/tmp") < 0)
            _exit(127);
        (void)execl("/usr/bin/python3", "python3", "-I", path, (char *)NULL);
        _exit(127);
    }
    (void)close(ends[1]);
    for (ssize_t n; size < room - 1 && (n = read(ends[0], to + size, room - 1 - size)) > 0;)
        size += (size_t)n;
    to[size] = '\0';
    (void)close(ends[0]);
    assert_int_equal(waitpid(pid, &status, 0), pid);
    return status;
}

/* Whatever it is asked, it runs the program, with everything. */
static int lie_open(const struct cordon_request *request, struct cordon_run **ret, struct cordon_error *err)
{
    char path[] = "/tmp/cordon-verify-XXXXXX";
    struct cordon_run *run = calloc(1, sizeof *run);
    int fd = mkstemp(path);
    assert_true(run && fd >= 0);
    *ret = run;
    run->outcome = (struct cordon_outcome){.struct_size = sizeof run->outcome};
    if (strstr(request->code.data, "MODE, TARGETS = 'deadline'") || strstr(request->code.data, "= 'orphan'")) {
        (void)close(fd);
        (void)unlink(path);
        return 0;
    }
    assert_int_equal(cordon_write_full(fd, request->code.data, request->code.size), 0);
    (void)close(fd);
    int status = run_python(path, (unsigned)(request->limits.timeout_ms / 1000), run->data, sizeof run->data);
    run->outcome = (struct cordon_outcome){.struct_size = sizeof run->outcome,
                                           .cause = WIFEXITED(status) ? CORDON_CAUSE_EXITED : CORDON_CAUSE_SIGNALLED,
                                           .exit_code = WEXITSTATUS(status)};
    (void)unlink(path);
    return 0;
}

static int lie_next(struct cordon_run *run, struct cordon_event *event)
{
    *event = (struct cordon_event){.type = run->given ? CORDON_EVENT_OUTCOME : CORDON_EVENT_STDOUT,
                                   .data = {run->data, strlen(run->data)},
                                   .outcome = &run->outcome};
    return run->given++ < 2;
}

static void lie_close(struct cordon_run *run)
{
    free(run);
}

static const struct cordon_backend liar = {.abi_version = CORDON_ABI_VERSION,
                                           .struct_size = sizeof liar,
                                           .name = "liar",
                                           .capabilities = get_claims,
                                           .run_open = lie_open,
                                           .run_next = lie_next,
                                           .run_close = lie_close};
static const struct cordon_backend *const backends[] = {&liar, NULL};

/* A probe server, in a child: its port. */
static uint16_t serve(pid_t *pid)
{
    static const char text[] = "HTTP/1.1 200 OK\r\nConnection: close\r\n\r\ncordon-probe\n";
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t size = sizeof address;
    int sock = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_int_equal(bind(sock, (const struct sockaddr *)&address, size), 0);
    assert_int_equal(listen(sock, 16), 0);
    assert_int_equal(getsockname(sock, (struct sockaddr *)&address, &size), 0);
    *pid = fork();
    for (char asked[1024]; *pid == 0;) {
        int fd = accept(sock, NULL, NULL);
        (void)!read(fd, asked, sizeof asked);
        (void)!write(fd, text, sizeof text - 1);
        (void)close(fd);
    }
    (void)close(sock);
    return ntohs(address.sin_port);
}

static int judge(const struct cordon_settings *settings, bool network, struct cordon_error *err)
{
    static const char *const domains[] = {"localhost"};
    struct cordon_run_request run;
    cordon_run_request_init(settings, CORDON_DOOR_NATIVE, &run);
    run.request.language = "python";
    run.request.network = network;
    run.request.allowed_domains = domains;
    run.request.allowed_domain_count = network;
    int r = cordon_policy_check_declared(settings, &run, &liar, true, err);
    cordon_run_request_done(&run);
    return r;
}

static void a_liar_is_caught_and_refused(void **state)
{
    pid_t servers[2];
    char listed[64], unlisted[64];
    struct cordon_settings *settings = NULL;
    struct cordon_verification found;
    struct cordon_error err = {0};
    (void)snprintf(listed, sizeof listed, "CORDON_VERIFY_LISTED=localhost:%u/127.0.0.1", serve(&servers[0]));
    (void)snprintf(unlisted, sizeof unlisted, "CORDON_VERIFY_UNLISTED=localhost:%u/127.0.0.1", serve(&servers[1]));
    const char *const environ_[] = {listed, unlisted, "CORDON_REQUIRE_VERIFIED=1", "CORDON_ALLOW_NETWORK=1", NULL};
    const struct cordon_settings_input input = {.environ = environ_};
    assert_int_equal(cordon_settings_load(&input, &settings, &err), 0);
    cordon_registry_setup(backends);
    assert_true(judge(settings, false, &err) < 0); /* never measured */
    assert_non_null(strstr(err.message, "CORDON_REQUIRE_VERIFIED"));
    assert_int_equal(cordon_verify(settings, &liar, "test", &found, &err), 0);
    for (size_t i = 0; i < 2; i++) {
        (void)kill(servers[i], SIGKILL);
        (void)waitpid(servers[i], NULL, 0);
    }
    assert_int_equal(found.items[CORDON_VERIFY_DENY_ALL].verdict, CORDON_VERDICT_BROKEN);
    assert_int_equal(found.items[CORDON_VERIFY_DOMAINS].verdict, CORDON_VERDICT_BROKEN);
    assert_true(cordon_verification_differs(&found, CORDON_VERIFY_DENY_ALL));
    assert_true(cordon_verification_differs(&found, CORDON_VERIFY_DOMAINS));
    assert_non_null(strstr(found.items[CORDON_VERIFY_DOMAINS].evidence, "unlisted"));
    assert_int_equal(found.items[CORDON_VERIFY_DEADLINE].verdict, CORDON_VERDICT_BROKEN); /* not told as a timeout */
    cordon_verified_put(&found);
    assert_true(judge(settings, false, &err) < 0);
    assert_non_null(strstr(err.message, "block all egress"));
    assert_true(judge(settings, true, &err) < 0);
    assert_non_null(strstr(err.message, "restrict egress by domain"));
    for (size_t i = 0; i < CORDON_VERIFY__COUNT; i++) /* had it been honest, it would be believed, for a while */
        found.items[i].verdict = CORDON_VERDICT_HELD;
    cordon_verified_put(&found);
    assert_int_equal(judge(settings, true, &err), 0);
    found.at_s -= 8 * 86400;
    cordon_verified_put(&found);
    assert_true(judge(settings, true, &err) < 0);
    cordon_settings_free(settings);
}

/* Nothing of the probes gets to a real network. */
static bool enter_own_network(void)
{
    struct ifreq request = {.ifr_flags = IFF_UP | IFF_RUNNING};
    if (unshare(geteuid() == 0 ? CLONE_NEWNET : CLONE_NEWUSER | CLONE_NEWNET) < 0)
        return false;
    int sock = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    memcpy(request.ifr_name, "lo", sizeof "lo");
    bool up = ioctl(sock, SIOCSIFFLAGS, &request) == 0;
    (void)close(sock);
    return up;
}

int main(void)
{
    if (!enter_own_network()) {
        (void)puts("1..0 # SKIP no network namespace can be made here");
        return 77;
    }
    const struct CMUnitTest tests[] = {cmocka_unit_test(a_liar_is_caught_and_refused)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
