# SPDX-License-Identifier: Apache-2.0
"""What tests of virtual machines share. Under software emulation all is slow: bounds are generous, nothing is timed."""

import time

from . import host
from .daemon import Daemon

PATIENCE_S = 400


def daemon(image, **settings):
    """A daemon whose backend is exec-sandbox, on whatever accelerator there is."""
    usual = {
        "backend": "exec-sandbox",
        "vm_image": image,
        "allow_software_emulation": True,
        "max_timeout_s": 600,
        "timeout_s": 300,
        "queue_timeout_s": 600,
        "pool_python": 0,
        "pool_python_data": 0,
        "pool_javascript": 0,
        "pool_bash": 0,
        "pool_guest": 0,
        "pool_max": 0,
    }
    return Daemon(**{**usual, **settings})


def run(made, code, language="python", **fields):
    return made.run(code, language, timeout=PATIENCE_S, **fields)


def until(made, *starts, language="python", code="print(1)", **fields):
    """Runs until one of them had a machine that came to be as wanted; its answer."""
    deadline = time.monotonic() + PATIENCE_S
    while True:
        found = run(made, code, language, **fields)
        if found["outcome"]["start"] in starts:
            return found
        assert time.monotonic() < deadline, f"no machine was {' or '.join(starts)}; the last one: {found['outcome']}"
        time.sleep(0.5)


def qemus(made):
    """Pids of the daemon's QEMUs."""
    return [pid for pid in host.descendants(made.process.pid) if host.comm(pid).startswith("qemu-system")]
