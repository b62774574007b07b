/* SPDX-License-Identifier: Apache-2.0 */
/* The gateway's end of the warden's protocol: how a guest is asked for, waited for and refused. */
#include <errno.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/fd.h"
#include "fake_warden.h"

static void refusal_is_passed_on(void **state)
{
    static const struct {
        int status;
        enum cordon_error_kind kind;
    } rows[] = {{-EAGAIN, CORDON_ERROR_BUSY}, {-EPERM, CORDON_ERROR_UNAVAILABLE}};
    struct cordon_request request = request_of("x");
    for (size_t i = 0; i < 2; i++) {
        struct cordon_run *run;
        struct cordon_error err = {0};
        struct fake_warden fake;
        fake_warden_start(&fake, -1);
        fake.status = rows[i].status;
        fake.why = "no memory left on this host";
        fake_warden_serve(&fake);
        assert_true(cordon_guest_run_open(&backend, &request, &run, &err) < 0);
        assert_int_equal(err.kind, rows[i].kind);
        assert_non_null(strstr(err.message, "no memory left"));
        fake_warden_stop(&fake);
    }
}

static void kind_follows_the_request(void **state)
{
    static const struct {
        const char *language, *code;
        bool fresh;
        enum cordon_guest_kind kind;
    } rows[] = {
        {"python", "print(1)", false, CORDON_GUEST_PYTHON},
        {"python", "import numpy", false, CORDON_GUEST_PYTHON_DATA},
        {"python", "import numpy", true, CORDON_GUEST_PYTHON_FRESH},
        {"javascript", "import numpy", false, CORDON_GUEST_JAVASCRIPT},
        {"bash", "", true, CORDON_GUEST_BASH},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct cordon_request request = request_of(rows[i].code);
        struct cordon_run *run;
        struct fake_warden fake;
        request.language = rows[i].language;
        request.fresh_interpreter = rows[i].fresh;
        fake_warden_start(&fake, -1);
        fake.status = -EAGAIN;
        fake_warden_serve(&fake);
        assert_true(cordon_guest_run_open(&backend, &request, &run, NULL) < 0);
        fake_warden_stop(&fake);
        assert_int_equal(fake.asked.kind, rows[i].kind);
        assert_true(fake.asked.memory_bytes == 256u << 20 && fake.asked.pids == 64 &&
                    fake.asked.version == CORDON_WARDEN_VERSION);
    }
}

static void *connect_later(void *data)
{
    (void)usleep(200000);
    fake_warden_connect(data);
    fake_warden_serve_one(data);
    return NULL;
}

static void lost_warden_is_waited_for(void **state)
{
    struct cordon_request request = request_of("x");
    struct cordon_warden_hello hello;
    struct cordon_error err = {0};
    struct cordon_run *run;
    struct fake_warden fake;
    fake_warden_start(&fake, -1);
    cordon_close(&fake.main[1]); /* it dies */
    assert_int_equal(cordon_warden_hello(&hello, &err), -ENOTCONN);
    assert_int_equal(err.kind, CORDON_ERROR_UNAVAILABLE);
    fake.status = -EAGAIN;
    assert_int_equal(pthread_create(&fake.thread, NULL, connect_later, &fake), 0);
    uint64_t start = cordon_now_us();
    assert_true(cordon_guest_run_open(&backend, &request, &run, &err) < 0);
    assert_int_equal(err.kind, CORDON_ERROR_BUSY); /* the new one's word */
    assert_true(cordon_now_us() - start < 20000000);
    fake_warden_stop(&fake);
}

/* As a warden without descriptors: closes each lease, 40 times; then it refuses. */
static void *lose_leases(void *data)
{
    struct fake_warden *fake = data;
    for (int i = 0; i < 40; i++) {
        int lease = -1;
        size_t nfds = 1;
        (void)cordon_recv_fds(fake->main[1], &fake->asked, sizeof fake->asked, &lease, &nfds, 0);
        cordon_close(&lease);
    }
    return fake_warden_serve_one(fake);
}

static void a_warden_without_descriptors_is_not_stormed(void **state)
{
    struct cordon_request request = request_of("x");
    struct cordon_error err = {0};
    struct cordon_run *run;
    struct fake_warden fake;
    fake_warden_start(&fake, -1);
    fake.status = -EAGAIN;
    assert_int_equal(pthread_create(&fake.thread, NULL, lose_leases, &fake), 0);
    uint64_t start = cordon_now_us();
    assert_true(cordon_guest_run_open(&backend, &request, &run, &err) < 0);
    assert_int_equal(err.kind, CORDON_ERROR_BUSY);
    assert_true(cordon_now_us() - start >= 40 * 5000);
    fake_warden_stop(&fake);
}

static void a_guest_is_waited_for_as_long_as_its_warden_says(void **state)
{
    struct cordon_request request = request_of("x");
    struct cordon_error err = {0};
    struct cordon_run *run;
    struct fake_warden fake;
    fake_warden_start(&fake, -1); /* the usual, until there is another warden */
    cordon_close(&fake.main[1]);
    fake.start_ms = 1000;
    fake_warden_connect(&fake); /* and nobody answers */
    uint64_t start = cordon_now_us();
    assert_int_equal(cordon_guest_run_open(&backend, &request, &run, &err), -ETIMEDOUT);
    assert_true(cordon_now_us() - start >= 1000000);
    assert_int_equal(err.kind, CORDON_ERROR_UNAVAILABLE);
    assert_non_null(strstr(err.message, "within 1 s"));
    assert_non_null(strstr(err.message, "CORDON_GUEST_START_S"));
    fake_warden_serve(&fake);
    fake_warden_stop(&fake);
}

static void waiting_for_a_guest_can_be_cancelled(void **state)
{
    struct cordon_request request = request_of("x");
    struct cordon_error err = {0};
    struct cordon_run *run;
    struct fake_warden fake;
    int client[2];
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, client), 0);
    (void)close(client[1]);
    request.cancel_fd = client[0];
    fake_warden_start(&fake, -1); /* and nobody answers */
    assert_true(cordon_guest_run_open(&backend, &request, &run, &err) < 0);
    assert_int_equal(err.kind, CORDON_ERROR_CANCELLED);
    (void)close(client[0]);
    fake_warden_serve(&fake);
    fake_warden_stop(&fake);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(refusal_is_passed_on),
        cmocka_unit_test(kind_follows_the_request),
        cmocka_unit_test(lost_warden_is_waited_for),
        cmocka_unit_test(a_warden_without_descriptors_is_not_stormed),
        cmocka_unit_test(a_guest_is_waited_for_as_long_as_its_warden_says),
        cmocka_unit_test(waiting_for_a_guest_can_be_cancelled),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
