/* SPDX-License-Identifier: Apache-2.0 */
#include "door/e2b/address.h"

#include <stddef.h>
#include <string.h>

#define OWN_ID 20 /* characters of the ids that sandboxes have here */

/* 1 to 65535 in decimal, without leading zeros; its length, or 0. */
static size_t read_port(const char *text, uint16_t *ret)
{
    uint32_t port = 0;
    size_t size = 0;
    for (; text[size] >= '0' && text[size] <= '9' && size < 6; size++)
        port = port * 10 + (uint32_t)(text[size] - '0');
    if (!size || text[0] == '0' || port > UINT16_MAX)
        return 0;
    *ret = (uint16_t)port;
    return size;
}

/* The leading characters that an id may have; 0: there are none, or too many. */
static size_t read_id(const char *text, char to[CORDON_E2B_ID_TEXT])
{
    size_t size = strspn(text, "abcdefghijklmnopqrstuvwxyz0123456789");
    if (size >= CORDON_E2B_ID_TEXT)
        size = 0;
    memcpy(to, text, size);
    to[size] = '\0';
    return size;
}

bool cordon_e2b_address_host(const char *host, struct cordon_e2b_address *ret)
{
    struct cordon_e2b_address found;
    size_t port = read_port(host, &found.port);
    if (!port || host[port] != '-')
        return false;
    const char *id = host + port + 1;
    size_t size = read_id(id, found.id);
    if (size != OWN_ID || (id[size] != '.' && id[size] != '-'))
        return false; /* 2024-archive.example.com is somebody's name for this daemon */
    /* Older ids had a client's id behind them; a host name's label ends before any of these. */
    const char *end = id + size + strcspn(id + size, ".:/@ ");
    if (*end != '.')
        return false;
    *ret = found;
    return true;
}

bool cordon_e2b_address_headers(const char *id, const char *port, struct cordon_e2b_address *ret)
{
    if (!id)
        return false;
    *ret = (struct cordon_e2b_address){.port = CORDON_E2B_PORT_ENVD};
    size_t size = read_id(id, ret->id);
    size_t digits = port ? read_port(port, &ret->port) : 0;
    bool good = (!id[size] || id[size] == '-') && (!port || (digits && !port[digits]));
    if (!good)
        ret->id[0] = '\0';
    return true;
}
