# SPDX-License-Identifier: Apache-2.0
"""`@e2b/code-interpreter` from npm and `e2b-code-interpreter` from PyPI, unmodified: code, charts, errors, contexts."""

import functools
import os
import re
import shutil

import clients
import pytest

PYTHON_CASES = os.path.join(clients.HERE, "python", "code_interpreter_cases.py")


def names(path, form):
    with open(path, encoding="utf-8") as text:
        return re.findall(form, text.read(), re.M)


@pytest.fixture(scope="session")
def outcomes(served):
    @functools.lru_cache(maxsize=None)
    def run(language):
        if language == "python":
            return clients.outcomes([clients.python("e2b"), "-I", PYTHON_CASES], clients.sdk_env(served), "/", 900)
        folder = clients.npm()
        for name in ("lib.mjs", "code_interpreter.mjs"):  # node looks modules up from where a file lies
            shutil.copy(os.path.join(clients.HERE, "js", name), folder)
        return clients.outcomes(["/usr/bin/node", "code_interpreter.mjs", "@e2b/code-interpreter"], clients.sdk_env(served), folder, 900)

    return run


def check(found, case):
    outcomes, rest = found
    assert case in outcomes, f"the cases did not come to {case}: {rest}"
    assert outcomes[case] is None, outcomes[case]


@pytest.mark.limit(1900)
@pytest.mark.parametrize("case", names(os.path.join(clients.HERE, "js", "code_interpreter.mjs"), r"^  (\w+): withSandbox"))
def test_javascript(outcomes, case):
    check(outcomes("javascript"), case)


@pytest.mark.limit(1900)
@pytest.mark.parametrize("case", names(PYTHON_CASES, r"^def case_(\w+)"))
def test_python(outcomes, case):
    check(outcomes("python"), case)
