#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes an assembler file that embeds files: assets.py OUTPUT NAME=PATH... gives cordon_asset_NAME and its _size."""
import os
import sys


def section(name, path):
    path = os.path.abspath(path).replace("\\", "\\\\").replace('"', '\\"')
    return f"""
    .global cordon_asset_{name}, cordon_asset_{name}_size
    .hidden cordon_asset_{name}, cordon_asset_{name}_size
    .balign 16
cordon_asset_{name}:
    .incbin "{path}"
1:
    .byte 0
    .balign 8
cordon_asset_{name}_size:
    .8byte 1b - cordon_asset_{name}
"""


def main():
    with open(sys.argv[1], "w", encoding="utf-8") as output:
        output.write("    .section .rodata\n")
        for argument in sys.argv[2:]:
            name, _, path = argument.partition("=")
            output.write(section(name, path))
        output.write('    .section .note.GNU-stack, "", %progbits\n')


main()
