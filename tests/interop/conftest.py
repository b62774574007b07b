# SPDX-License-Identifier: Apache-2.0
"""Public clients against the real daemon."""

import os
import sys

import pytest

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))

from lib.daemon import Daemon  # noqa: E402


@pytest.fixture(scope="session")
def served(nothing_left):
    """A daemon for the SDKs: its CreateOS door gives guests of the local backend, by name."""
    with Daemon(createos_min_isolation="namespace", max_timeout_s=600, guest_memory_mb=1024, guest_start_s=60) as made:
        yield made
        made.note_cgroups()
