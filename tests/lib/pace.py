# SPDX-License-Identifier: Apache-2.0
"""
How much slower than an ordinary machine the place is where code runs: one factor, by which all is stretched that bounds
a wait. It has two parts: what this whole machine is (CORDON_TEST_SLOW: 1, and 20 in the emulated machine of ./dev test-vm),
and what the backend is on which the test of the moment runs (lib/backends.py; conftest.py sets it for each test).
What a test itself is about (a limit that must end a program) is not stretched, but for `limit`.
"""

import os

SLOW = float(os.environ.get("CORDON_TEST_SLOW", "1"))
LONGEST_S = 300  # what the daemon allows by default
PATIENCE = 3  # machines that run tests are often busy with other things

_backend = 1.0


def of_backend(factor):
    """From here on the backend in use is this much slower."""
    global _backend
    _backend = factor


def stretched(seconds):
    return seconds * SLOW * _backend


def patient(seconds):
    """A bound that only ends what would hang for ever. Generous: it costs nothing where all is well."""
    return seconds * SLOW * max(PATIENCE, _backend)


def limit(seconds):
    """A run's time limit, stretched as far as the daemon allows: for a program that is to come to its own end, or must have
    come as far as it says when the limit ends it."""
    return min(LONGEST_S, int(stretched(seconds)))
