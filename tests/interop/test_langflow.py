# SPDX-License-Identifier: Apache-2.0
"""integrations/langflow under Langflow's own sandbox layer, unmodified (lfx, which the CreateOS package brings along). Cases:
python/langflow_cases.py."""

import os
import re

import clients
import pytest
from lib.daemon import ROOT

CASES = os.path.join(clients.HERE, "python", "langflow_cases.py")
PACKAGE = os.path.join(ROOT, "integrations", "langflow")


def case_names(machine):
    with open(CASES, encoding="utf-8") as text:
        return [name for name in re.findall(r"^def case_(\w+)", text.read(), re.M) if name.startswith("machine_") == machine]


def run_cases(daemon, *words):
    program = clients.python("createos")
    env = dict(clients.sdk_env(daemon), LANGFLOW_CORDON_URL=f"http://127.0.0.1:{daemon.port}", LANGFLOW_CORDON_KEY=daemon.key,
               CORDON_LANGFLOW_PROJECT=os.path.join(PACKAGE, "pyproject.toml"), PYTHONPATH=os.path.join(PACKAGE, "src"),
               PYTHONDONTWRITEBYTECODE="1")
    return clients.outcomes([program, "-s", CASES, *words], env, "/", 900)


@pytest.fixture(scope="session")
def outcomes(served):
    return run_cases(served)


@pytest.mark.limit(400)
@pytest.mark.parametrize("case", case_names(machine=False))
def test_langflow(outcomes, case):
    found, rest = outcomes
    assert case in found, f"the cases did not come to {case}: {rest}"
    assert found[case] is None, found[case]
