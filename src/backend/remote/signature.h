/* SPDX-License-Identifier: Apache-2.0 */
/* The signature of AgentRun's data plane, AGENTRUN4-HMAC-SHA256. Pure. */
#ifndef CORDON_BACKEND_REMOTE_SIGNATURE_H
#define CORDON_BACKEND_REMOTE_SIGNATURE_H

#include <stddef.h>

#define CORDON_SIGNATURE_TEXT 1024

struct cordon_signature_input {
    const char *key_id, *secret, *token; /* token: of a temporary key; "" or NULL: none */
    const char *region;
    const char *method;
    const char *host;  /* as in the URL, with its port */
    const char *path;  /* as it is sent; "" means / */
    const char *query; /* sorted by name and encoded; "": none */
    const char *time;  /* YYYY-MM-DDTHH:MM:SSZ */
};

/* The value of the header Agentrun-Authorization: 0, or -EINVAL (a part is too long), -ENOMEM. The headers x-acs-date
 * and x-acs-content-sha256: UNSIGNED-PAYLOAD, and with a token x-acs-security-token, must be sent along. */
int cordon_signature(const struct cordon_signature_input *input, char to[CORDON_SIGNATURE_TEXT]);

#endif
