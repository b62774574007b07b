# SPDX-License-Identifier: Apache-2.0
"""Runs a file of pytest tests as one of meson's unit tests."""
import os
import signal
import sys
import tempfile

import pytest


class Tap:
    """Prints the results as TAP, for meson and ./dev, and gives each test a time limit."""

    def __init__(self):
        self.count = 0

    def pytest_configure(self, config):
        config.option.verbose = 0  # the terminal's plugin, which is off, would have set it

    @pytest.hookimpl(hookwrapper=True)
    def pytest_runtest_call(self, item):
        def expired(*_):
            raise TimeoutError("the test took longer than 120 s")

        signal.signal(signal.SIGALRM, expired)
        signal.alarm(120)
        yield
        signal.alarm(0)

    def pytest_runtest_logreport(self, report):
        if report.when != "call" and report.passed:
            return
        self.count += 1
        name = report.nodeid.rpartition("::")[2].replace("#", "")
        if report.skipped:
            print(f"ok {self.count} - {name} # SKIP {report.longrepr[2]}", flush=True)
        elif report.passed:
            print(f"ok {self.count} - {name}", flush=True)
        else:
            print(f"not ok {self.count} - {name}", *(f"# {line}" for line in report.longreprtext.splitlines()), sep="\n",
                  flush=True)


def main(file):
    tap, here = Tap(), os.path.abspath(file)
    with tempfile.TemporaryDirectory(prefix="cordon-test-") as temporary:
        code = pytest.main(["-p", "no:cacheprovider", "-p", "no:terminal", "--noconftest", "-c", os.devnull, "--rootdir",
                            os.path.dirname(here), "--basetemp", temporary + "/pytest", here, *sys.argv[1:]], plugins=[tap])
    print(f"1..{tap.count}")
    return code if code > 1 else 0
