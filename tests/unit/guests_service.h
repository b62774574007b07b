/* SPDX-License-Identifier: Apache-2.0 */
/* The service of kept guests over a real warden with real agents, and short forms of what its tests do with it. */
#ifndef CORDON_TESTS_GUESTS_SERVICE_H
#define CORDON_TESTS_GUESTS_SERVICE_H

#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include <cmocka.h>

#include "base/buf.h"
#include "core/guests.h"

extern const char tenant[]; /* who owns all guests, where nobody else is named */
extern struct cordon_error err;
extern pid_t warden;

void ok(int r); /* fails the test with err's message where r is negative */

int start_service(void **state); /* set up and torn down once a group: a warden, a store, the service */
int stop_service(void **state);
void restart_service(void); /* as a gateway that comes anew, and adopts what lives */
int start_warden(void);     /* another one, after */
void kill_warden(void);     /* and reaps it */
/* Whether this host can't make guests, which has been printed; the test is to be skipped. */
bool unavailable(void);

char *create_as(const char *who, const char *name, uint64_t ttl_ms, uint64_t idle_ms); /* its id, to be destroyed */
char *create(void);
void destroy(char *id_taken);
enum cordon_guest_condition condition(const char *id, char cause[16]);
/* Whether it becomes so, in a time that is long for any host. */
bool is_within(const char *id, enum cordon_guest_condition wanted, char cause[16]);

/* What a program gave: output that is longer is cut. */
struct result {
    char out[70000], error[4096], channel[4096];
    size_t out_size;
    uint32_t pid;
    struct cordon_exec_exit exit;
};

struct cordon_operation shell(const char *const argv[4], const char *command); /* argv is filled, and borrowed */
struct result run_operation(const char *id, const struct cordon_operation *operation);
struct result run(const char *id, const char *command);
void drain(struct cordon_live_stream *stream, struct result *result); /* to the program's end */

void put(const char *id, const char *path, const char *data, size_t size);
int get(const char *id, const char *path, struct cordon_buf *to);
int file(const char *id, enum cordon_operation_kind kind, const char *path, const char *target,
         struct cordon_file_entry *entry);

#endif
