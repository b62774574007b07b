/* SPDX-License-Identifier: Apache-2.0 */
/* --header "HOST NAME: @FILE" or "HOST NAME: $VARIABLE": what is put into a guest's requests. Values come from a file
 * or from our environment: whoever is on this host sees command lines. */
#ifndef CORDON_CLI_HEADERS_H
#define CORDON_CLI_HEADERS_H

#include "base/json.h"
#include "cli/run_options.h"

/* Has the word that form? */
bool cordon_cli_header_ok(const char *word);
/* Writes the member egress_headers, where there are any. */
int cordon_cli_headers_write(const struct cordon_words *words, struct cordon_json *json, struct cordon_error *err);

#endif
