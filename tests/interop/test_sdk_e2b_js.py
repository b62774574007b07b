# SPDX-License-Identifier: Apache-2.0
"""The npm packages `e2b` (three versions) and `@e2b/code-interpreter`, unmodified. Cases: js/*.mjs."""

import functools
import os
import re
import shutil

import clients
import pytest

PACKAGES = ("e2b-2-31", "e2b-2-45", "e2b")


def case_names(file):
    with open(os.path.join(clients.HERE, "js", file), encoding="utf-8") as text:
        return re.findall(r"^  (\w+): (?:async|withSandbox)", text.read(), re.M)


@pytest.fixture(scope="session")
def outcomes(served):
    @functools.lru_cache(maxsize=None)
    def run(file, package):
        folder = clients.npm()
        for name in ("lib.mjs", file):  # node looks modules up from where a file lies
            shutil.copy(os.path.join(clients.HERE, "js", name), folder)
        return clients.outcomes(["/usr/bin/node", file, package], clients.sdk_env(served), folder, 1000)

    return run


@pytest.mark.limit(1900)
@pytest.mark.parametrize("case", case_names("e2b.mjs"))
@pytest.mark.parametrize("package", PACKAGES)
def test_e2b(outcomes, package, case):
    found, rest = outcomes("e2b.mjs", package)
    assert case in found, f"{package} did not come to {case}: {rest}"
    assert found[case] is None, found[case]
