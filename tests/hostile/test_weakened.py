# SPDX-License-Identifier: Apache-2.0
"""Attacks must be able to fail: each protection is left out in a build of its own, and the tests that watch it must notice."""

import os
import shutil

import pytest
import weaken_check

LONG = os.environ.get("CORDON_TEST_LONG") == "1"
PROTECTIONS = sorted(weaken_check.protections() & weaken_check.watched()) if LONG else weaken_check.QUICK


def test_every_protection_is_watched():
    assert weaken_check.protections() == weaken_check.watched()


@pytest.mark.limit(900)
@pytest.mark.parametrize("name", PROTECTIONS)
def test_attacks_fail_without(name, capsys):
    if not shutil.which("meson") or not shutil.which("ninja"):
        pytest.skip("meson and ninja are needed to build a weakened Cordon")
    good = weaken_check.check(name, keep=False)
    assert good, capsys.readouterr().out
