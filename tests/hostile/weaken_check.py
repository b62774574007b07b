#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Proves that the attacks can fail: builds Cordon with one protection left out, and expects that the tests which watch
that protection (those marked `weaken("NAME")`) fail, each of them at least once.

    tests/hostile/weaken_check.py             three protections, one after the other
    tests/hostile/weaken_check.py --long      all that any test names
    tests/hostile/weaken_check.py NAME...     these
"""

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
import xml.etree.ElementTree as xml

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
QUICK = ["seccomp", "agent_uid", "memory"]
PYTHON = "/usr/bin/python3"


def names_in(folder, pattern, endings):
    found = set()
    for top, _, files in os.walk(os.path.join(ROOT, folder)):
        for name in files:
            if name.endswith(endings):
                with open(os.path.join(top, name), encoding="utf-8") as file:
                    found.update(match.lower() for match in re.findall(pattern, file.read()))
    return found


def protections():
    """What src can leave out."""
    return names_in("src", r"CORDON_WEAKEN_([A-Z_]+)", (".c", ".h", ".py"))


def watched():
    """What a test names."""
    return names_in("tests/hostile", r'mark\.weaken\("([a-z_]+)"', (".py",))


def build(name):
    folder = os.path.join(ROOT, f"build-weak-{name}")
    options = ["meson", "setup", folder, ROOT, f"-Dweaken={name}", "-Dtests=disabled"]
    if os.path.isdir(folder):
        options.insert(2, "--reconfigure")
    for command in (options, ["ninja", "-C", folder, "-j2"]):
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            raise SystemExit(f"{' '.join(command)} failed:\n{(done.stdout + done.stderr)[-3000:]}")
    return folder


def results(name, folder):
    """{test function: [passed?, ...]} of the tests that watch this protection."""
    report = tempfile.mkstemp(prefix="cordon-weak-", suffix=".xml")[1]
    try:
        subprocess.run(
            [PYTHON, "-m", "pytest", "-q", "--weakened", name, f"--junitxml={report}", "tests/hostile"],
            cwd=ROOT,
            check=False,
            capture_output=True,
            timeout=1200,
            env={**os.environ, "CORDON_BIN": os.path.join(folder, "cordon")},
        )
        found = {}
        for case in xml.parse(report).getroot().iter("testcase"):
            if case.find("skipped") is None:
                failed = case.find("failure") is not None or case.find("error") is not None
                found.setdefault(re.sub(r"\[.*", "", case.get("name")), []).append(not failed)
        return found
    finally:
        os.unlink(report)


def check(name, keep):
    folder = build(name)
    try:
        found = results(name, folder)
    finally:
        if not keep:
            shutil.rmtree(folder, ignore_errors=True)
    blind = [test for test, passes in found.items() if all(passes)]
    for test, passes in sorted(found.items()):
        print(
            f"{'ok' if test not in blind else 'not ok'} - without {name}: {test} fails in {passes.count(False)} of {len(passes)}"
        )
    if not found:
        print(f"not ok - without {name}: no test ran")
    return bool(found) and not blind


def main():
    parser = argparse.ArgumentParser(description="Checks that the tests fail when a protection is left out.")
    parser.add_argument("names", nargs="*")
    parser.add_argument("--long", action="store_true", help="every protection that a test names")
    parser.add_argument("--keep", action="store_true", help="keep the build folders build-weak-NAME")
    args = parser.parse_args()
    known, named = protections(), watched()
    chosen = args.names or (sorted(named & known) if args.long else QUICK)
    good = True
    for name in sorted(set(args.names) - known):
        print(f"not ok - {name}: no such protection in src; there are {', '.join(sorted(known))}")
        good = False
    for name in sorted(named - known):
        print(f"not ok - {name}: tests name it and nothing in src leaves it out")
        good = False
    for name in sorted(known - named):
        print(f"not ok - {name}: src can leave it out and no test watches it")
        good = False
    for name in chosen:
        if name in known:
            good &= check(name, args.keep)
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
