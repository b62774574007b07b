# SPDX-License-Identifier: Apache-2.0
"""Many runs of mixed kinds; then nothing is left, and the daemon has not grown."""

import os
import random
import time
from concurrent.futures import ThreadPoolExecutor

import pytest
from lib import host

RUNS = 10000 if os.environ.get("CORDON_TEST_LONG") == "1" else 1000

# kind: (share in per cent, language, code, fields, accepted causes)
KINDS = {
    "good": (55, "python", "print(sum(range(100)))", {}, {"exited"}),
    "bash": (8, "bash", "echo x | cat", {}, {"exited"}),
    "javascript": (2, "javascript", "console.log(1)", {}, {"exited"}),
    "artifacts": (8, "python", "open('artifacts/a', 'w').write('x')", {"artifacts": True}, {"exited"}),
    "crash": (9, "python", "import ctypes; ctypes.string_at(0)", {}, {"signalled"}),
    "exception": (8, "python", "raise ValueError", {}, {"exited"}),
    "timeout": (2, "python", "while True: pass", {"timeout_s": 0.2}, {"timeout"}),
    "orphans": (
        3,
        "python",
        "import os, time\nif os.fork() == 0: os.setsid(); time.sleep(99)\nos._exit(0)",
        {},
        {"exited"},
    ),
    "memory": (3, "python", "x = bytearray(b'x' * (90 << 20))", {"memory_mb": 48}, {"memory"}),
    "fork bomb": (
        2,
        "python",
        (
            "import os\ntry:\n    for _ in range(400):\n"
            "        if os.fork() == 0: os.execv('/bin/sleep', ['sleep', '99'])\nexcept OSError: pass\n"
            "os._exit(0)"
        ),
        {"timeout_s": 30},
        {"exited"},
    ),
}


def schedule(count, seed=20240607):
    names = [name for name, kind in KINDS.items() for _ in range(kind[0])]
    chosen = (names * (count // len(names) + 1))[:count]
    random.Random(seed).shuffle(chosen)
    return chosen


def resident(daemon):
    """KiB of each lasting process of the daemon."""
    return {role: host.status_kb(daemon.role(role)) for role in ("warden", "gateway")} | {
        "supervisor": host.status_kb(daemon.process.pid)
    }


def slots_of(daemon):
    roots = daemon.note_cgroups()
    return max((len(host.slot_cgroups([root])) for root in roots), default=0)


def settle(daemon):
    """Waits until the pool is as it was: the number of processes does not change for a second."""
    last, since = -1, time.monotonic()
    end = time.monotonic() + 20
    while time.monotonic() < end and time.monotonic() - since < 1:
        count = len(daemon.pids())
        if count != last:
            last, since = count, time.monotonic()
        time.sleep(0.1)
    return last


@pytest.mark.limit(3600 if RUNS > 1000 else 400)
def test_nothing_is_left_after_many_runs(own):
    made = own(log_level="warn", pool_max=8)  # so that the pool has found its size within the first tenth
    mounts, wrong = host.mounts(), []

    def one(name):
        if len(wrong) > 5:
            return  # enough to know; a daemon that hangs must not make the test hang
        _, language, code, fields, causes = KINDS[name]
        try:
            answer = made.run(code, language, **fields, timeout=60)
        except (OSError, AssertionError) as err:
            wrong.append((name, repr(err)))
            return
        if answer["outcome"]["cause"] not in causes:
            wrong.append((name, answer["outcome"], answer["stderr"][-300:]))

    def work(names):
        with ThreadPoolExecutor(4) as pool:
            list(pool.map(one, names))

    names = schedule(RUNS)
    work(names[: RUNS // 10])
    assert not wrong, (wrong[:3], made.log()[-2000:])
    settle(made)
    before, processes = resident(made), settle(made)
    pids = {role: made.role(role) for role in ("warden", "gateway")}

    work(names[RUNS // 10 :])
    after_processes = settle(made)
    after = resident(made)
    assert not wrong, (len(wrong), wrong[:3], made.log()[-2000:])
    assert pids == {role: made.role(role) for role in pids}, "a part was restarted under way"
    for role, kb in after.items():
        assert kb <= before[role] * 1.05 + 256, (role, before, after)
    # the pool finds its size by demand, so descriptors are counted against the slots that there are
    assert after_processes <= processes * 1.5 + 20, (processes, after_processes)
    slots, namespaces = slots_of(made), len(host.network_namespaces(made.pids()))
    fds = {role: len(host.descriptors(made.role(role))) for role in ("warden", "gateway")}
    assert slots <= 100 and namespaces <= 220, (slots, namespaces)
    assert fds["warden"] <= 12 * slots + 6 * namespaces + 100, (fds, slots, namespaces)
    assert fds["gateway"] <= 60, fds
    assert not [line for line in host.mounts() - mounts if made.state in line]

    roots, everyone = set(made.note_cgroups()), made.pids()
    assert made.stop() == 0
    assert host.wait_for(lambda: not [pid for pid in everyone if host.alive(pid)])
    assert not [root for root in roots if os.path.exists(root)]
