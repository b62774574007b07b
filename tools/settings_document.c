/* SPDX-License-Identifier: Apache-2.0 */
/* Prints the settings table as scdoc text, for docs/man/cordon.conf.5.scd. */
#include <stdio.h>

#include "core/settings.h"

int main(void)
{
    cordon_settings_document(stdout);
    return fflush(stdout) == 0 ? 0 : 1;
}
