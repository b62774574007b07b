# SPDX-License-Identifier: Apache-2.0
"""
How much slower than an ordinary machine this one is: one factor, by which all is stretched that bounds a wait. 1, and 20
in the emulated machine of ./dev test-vm. What a test itself is about (a limit that must end a program) is not stretched.
"""

import os

SLOW = float(os.environ.get("CORDON_TEST_SLOW", "1"))


def stretched(seconds):
    return seconds * SLOW
