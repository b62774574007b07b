/* SPDX-License-Identifier: Apache-2.0 */
#include "base/secret_key.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/buf.h"

static int hex_value(char c)
{
    static const char digits[] = "0123456789abcdef";
    const char *found = c ? strchr(digits, c >= 'A' && c <= 'F' ? c - 'A' + 'a' : c) : NULL;
    return found ? (int)(found - digits) : -1;
}

static bool read_hex(const char *text, unsigned char key[CORDON_SECRET_KEY_SIZE])
{
    for (size_t i = 0; i < CORDON_SECRET_KEY_SIZE; i++) {
        int high = hex_value(text[2 * i]), low = hex_value(text[2 * i + 1]);
        if (high < 0 || low < 0)
            return false;
        key[i] = (unsigned char)(high << 4 | low);
    }
    return true;
}

static bool read_base64(const char *text, size_t size, unsigned char key[CORDON_SECRET_KEY_SIZE])
{
    struct cordon_buf bytes = CORDON_BUF_INIT(CORDON_SECRET_KEY_TEXT);
    bool good = cordon_buf_unbase64(&bytes, text, size) == 0 && bytes.size == CORDON_SECRET_KEY_SIZE;
    if (good)
        memcpy(key, bytes.data, CORDON_SECRET_KEY_SIZE);
    cordon_buf_wipe(&bytes);
    return good;
}

bool cordon_secret_key_read(const char *text, unsigned char key[CORDON_SECRET_KEY_SIZE])
{
    unsigned char found[CORDON_SECRET_KEY_SIZE];
    size_t size = strlen(text);
    bool good = size == 2 * CORDON_SECRET_KEY_SIZE ? read_hex(text, found)
                                                   : size < CORDON_SECRET_KEY_TEXT && read_base64(text, size, found);
    if (good)
        memcpy(key, found, sizeof found);
    explicit_bzero(found, sizeof found);
    return good;
}

void cordon_secret_key_hide(void)
{
    size_t size = strlen(CORDON_SECRET_KEY_NAME);
    for (char **pair = environ; pair && *pair; pair++) /* all: a name may stand in an environment twice */
        if (strncmp(*pair, CORDON_SECRET_KEY_NAME, size) == 0 && (*pair)[size] == '=')
            explicit_bzero(*pair + size + 1, strlen(*pair + size + 1));
    (void)unsetenv(CORDON_SECRET_KEY_NAME); /* a valid name: can't fail */
}
