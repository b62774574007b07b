/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The server name of a TLS ClientHello, out of the first bytes of a connection, in however many records and pieces they
 * come. Pure, fuzzed. What is not understood in whole is refused: two readers of one hello must not come to two names.
 */
#ifndef CORDON_EGRESS_HELLO_H
#define CORDON_EGRESS_HELLO_H

#include <stddef.h>
#include <stdint.h>

#include "core/egress_rule.h"

#define CORDON_HELLO_MAX (16u << 10) /* with the records around it */

enum cordon_hello {
    CORDON_HELLO_MORE = 0,  /* more bytes are needed */
    CORDON_HELLO_NAMED,     /* name is set */
    CORDON_HELLO_NAMELESS,  /* whole, but without a server name */
    CORDON_HELLO_ENCRYPTED, /* an encrypted client hello: whom it is for can't be known */
    CORDON_HELLO_BAD        /* no hello, a malformed one, or longer than CORDON_HELLO_MAX */
};

enum cordon_hello cordon_hello_read(const uint8_t *data, size_t size, char name[CORDON_EGRESS_NAME_SIZE]);

#endif
