#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""text_header INPUT OUTPUT NAME: the file as a C array of that name, with a NUL behind it."""
import sys

data = open(sys.argv[1], "rb").read()
with open(sys.argv[2], "w", encoding="ascii") as out:
    out.write(f"static const char {sys.argv[3]}[] = {{\n")
    for at in range(0, len(data), 24):
        out.write("    " + " ".join(f"{byte}," for byte in data[at : at + 24]) + "\n")
    out.write("    0};\n")
