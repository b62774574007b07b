# SPDX-License-Identifier: Apache-2.0
"""The PyPI package `e2b`, unmodified. Cases: python/e2b_cases.py."""

import os
import re

import clients
import pytest

CASES = os.path.join(clients.HERE, "python", "e2b_cases.py")


def case_names():
    with open(CASES, encoding="utf-8") as text:
        return re.findall(r"^def case_(\w+)", text.read(), re.M)


@pytest.fixture(scope="session")
def outcomes(served):
    program = clients.python("e2b")
    return clients.outcomes([program, "-I", CASES], clients.sdk_env(served), "/", 600)


@pytest.mark.limit(400)
@pytest.mark.parametrize("case", case_names())
def test_e2b(outcomes, case):
    found, rest = outcomes
    assert case in found, f"the cases did not come to {case}: {rest}"
    assert found[case] is None, found[case]
