# SPDX-License-Identifier: Apache-2.0
"""What goes wrong with real machines is told, costs that machine alone, and leaves nothing. (Other faults, with fakes:
test_machines.py.)"""

import os
import signal

import pytest
from lib import host, vms

pytestmark = [pytest.mark.root, pytest.mark.long, pytest.mark.limit(1200)]


@pytest.fixture(scope="module")
def made(vm_image):
    with vms.daemon(vm_image, vm_pool=1) as found:
        vms.until(found, "copied", "pooled")
        yield found
        found.note_cgroups()


def kill(pids):
    for pid in pids:
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            pass


def works(daemon):
    found = vms.run(daemon, "print(6 * 7)")
    assert found["stdout"] == "42\n" and found["outcome"]["cause"] == "exited", found


def test_a_machine_killed_while_code_runs_is_an_outcome_of_its_own(made):
    events = made.stream("import time\nprint('so far', flush=True)\ntime.sleep(200)", timeout_s=300, timeout=vms.PATIENCE_S)
    seen = []
    for _, event in events:
        seen.append(event)
        if event["type"] == "stdout":
            kill(vms.qemus(made))
    outcome = seen[-1]["outcome"] if "outcome" in seen[-1] else seen[-1]
    assert outcome["cause"] == "infrastructure" and outcome["message"], seen[-1]
    assert [event["data"] for event in seen if event["type"] == "stdout"] == ["so far\n"], seen
    works(made)


def test_machines_killed_in_the_pool_are_replaced(made):
    vms.until(made, "pooled")
    for _ in range(3):
        assert host.wait_for(lambda: vms.qemus(made), vms.PATIENCE_S), "no machine came to the pool"
        kill(vms.qemus(made))
        works(made)
