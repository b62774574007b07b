/* SPDX-License-Identifier: Apache-2.0 */
#include "core/template.h"

#include <string.h>

#define LETTERS "abcdefghijklmnopqrstuvwxyz"
#define DIGITS "0123456789"

bool cordon_template_name_valid(const char *name)
{
    size_t size = strnlen(name, CORDON_TEMPLATE_NAME);
    return size > 0 && size < CORDON_TEMPLATE_NAME && strchr(LETTERS DIGITS, *name) &&
           strspn(name, LETTERS DIGITS "._-") == size;
}

bool cordon_template_is_default(const char *name)
{
    static const char *const names[] = {CORDON_TEMPLATE_DEFAULT, "python", "javascript", "bash"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (strcmp(names[i], name) == 0)
            return true;
    return false;
}
