/* SPDX-License-Identifier: Apache-2.0 */
/* Prints the settings table as scdoc text, for docs/man/cordon.conf.5.scd; with --sample as a commented file. */
#include <stdio.h>
#include <string.h>

#include "core/settings.h"

int main(int argc, char **argv)
{
    if (argc > 1 && strcmp(argv[1], "--sample") == 0)
        cordon_settings_sample(stdout);
    else
        cordon_settings_document(stdout);
    return fflush(stdout) == 0 ? 0 : 1;
}
