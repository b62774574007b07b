/* SPDX-License-Identifier: Apache-2.0 */
/* --header "HOST NAME: @FILE" or "HOST NAME: $VARIABLE": what is put into a guest's requests. Values come from a file
 * or from our environment: whoever is on this host sees command lines. */
#ifndef CORDON_CLI_HEADERS_H
#define CORDON_CLI_HEADERS_H

#include "base/json.h"
#include "cli/run_options.h"

/* Has the word that form? */
bool cordon_cli_header_ok(const char *word);
/* Writes the members network, allowed_domains and egress_headers. network: as --network asks; headers alone ask for
 * their own hosts and no more. */
int cordon_cli_network_write(bool network, const struct cordon_words *domains, const struct cordon_words *headers,
                             struct cordon_json *json, struct cordon_error *err);

#endif
