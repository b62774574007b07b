/* SPDX-License-Identifier: Apache-2.0 */
/* Which port of which sandbox a request is for. Pure; fuzzed (tests/fuzz/fuzz_e2b.c). */
#ifndef CORDON_E2B_ADDRESS_H
#define CORDON_E2B_ADDRESS_H

#include <stdbool.h>
#include <stdint.h>

#define CORDON_E2B_PORT_ENVD 49983u
#define CORDON_E2B_PORT_CODE 49999u
#define CORDON_E2B_ID_TEXT 33

struct cordon_e2b_address {
    uint16_t port;
    char id[CORDON_E2B_ID_TEXT]; /* a-z0-9; "": one that no sandbox can have */
};

/* From a Host header's value, "PORT-ID.domain[:port]" or "PORT-ID-client.domain": false when it is of no such form. */
bool cordon_e2b_address_host(const char *host, struct cordon_e2b_address *ret);
/* From E2b-Sandbox-Id and E2b-Sandbox-Port; NULL: the header is not there. False without an id. A port that is none
 * makes an address that no sandbox has. */
bool cordon_e2b_address_headers(const char *id, const char *port, struct cordon_e2b_address *ret);

#endif
