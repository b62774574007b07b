#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""
vm.py --cache DIR [--shell] DEB [WORD...]: installs the package DEB in a stock Debian, under QEMU's software emulation with
Debian's own kernel, systemd and cgroup v2 alone, and runs tests/vm/guest/ there. A WORD is a suite (install, root, user),
or part of the names of the tests to run. The last line is the sum of the tests. --shell: a shell there instead, in which
/opt/test/tests/vm/guest/run runs the tests.

Kept in DIR: the image, the state of the booted machine, and of the last run `last/console.log` and `last/result.log`.
What is tested comes on a second disk, a tar: so a new build needs neither a new image nor a boot. The machine has no
network.
"""
import argparse
import fcntl
import io
import os
import pathlib
import re
import select
import shutil
import signal
import sys
import tarfile
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
import image  # noqa: E402
import machine  # noqa: E402

ROOT = image.HERE.parent.parent
TESTED = ("tests/api", "tests/hostile", "tests/lib", "tests/vm/guest", "tests/conftest.py", "tests/pytest.ini", "tools/summary",
          "examples")
# Under emulation nothing is quick; the whole is bounded. Its suites have limits of their own, so that it comes to an end.
DEADLINE_S = 5400
END = re.compile(rb"^VM-TEST-END (\d+)\r?$", re.M)


def make_payload(path, deb, words):
    """The second disk: the package, the tests, and the words. Written in place: a running machine has it open."""
    with open(path, "wb") as file, tarfile.open(fileobj=file, mode="w") as tar:
        tar.add(deb, "cordon.deb")
        for name in TESTED:
            tar.add(ROOT / name, name, filter=lambda info: None if "__pycache__" in info.name else info)
        text = "\n".join([*words, ""]).encode()
        info = tarfile.TarInfo("words")
        info.size = len(text)
        tar.addfile(info, io.BytesIO(text))
    os.truncate(path, machine.PAYLOAD_BYTES)


def show(data):
    sys.stderr.write(data.decode("utf-8", "replace").replace("\r", ""))
    sys.stderr.flush()


def watch(running, result):
    """Shows the results as they come, and keeps them, until the machine is off or the time is over."""
    with open(result, "ab", buffering=0) as log:
        while (data := running.read()) is not None:
            log.write(data)
            show(data)
            if running.spent > DEADLINE_S:
                raise machine.Failure(f"the tests took longer than {DEADLINE_S} s")


def talk(running):
    """This terminal, or what is on stdin, and the shell, until one of them ends."""
    while True:
        ready, _, _ = select.select([0, running.line], [], [])
        if 0 in ready:
            typed = os.read(0, 4096)
            running.write(typed or b"exit\n")
            if not typed:
                return watch(running, "/dev/null")
        if running.line in ready:
            data = running.read(0)
            if data is None:
                return None
            os.write(1, data)


def told(log):
    """The names of what failed or was skipped, the sum, and the exit status."""
    end = END.search(log)
    if not end:
        return ["FAILED  the machine did not come to its end", "0 passed, 1 failed"], 1
    lines = log[:end.start()].decode("utf-8", "replace").replace("\r", "").rstrip().splitlines()
    notes = [line for line in lines[lines.index("== the sum"):] if line.startswith(("FAILED ", "SKIPPED "))]
    return [*notes, lines[-1]], int(end.group(1))


def run(wanted, cache):
    work = cache / "last"
    shutil.rmtree(work, ignore_errors=True)
    work.mkdir()
    make_payload(work / "payload.tar", wanted.deb, ["shell"] if wanted.shell else wanted.words)
    result = work / "result.log"
    result.touch()
    try:
        with machine.start(image.make(cache, wanted.deb), cache, work, wanted.cpus) as running:
            running.write(f"{time.time():.0f}\n".encode())
            talk(running) if wanted.shell else watch(running, result)
            print(f"vm: {running.spent:.0f} s; load {os.getloadavg()[1]:.1f} on {os.cpu_count()} CPUs; results in "
                  f"{result}, console in {work}/console.log", file=sys.stderr)
    except machine.Failure as failure:
        print(f"vm: {failure}; see {work}/console.log", file=sys.stderr)
    finally:
        (work / "disk.qcow2").unlink(missing_ok=True)
    if wanted.shell:
        return 0
    lines, status = told(result.read_bytes())
    print("\n".join(lines))
    return status


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--cache", type=pathlib.Path, required=True)
    parser.add_argument("--cpus", type=int, default=2)
    parser.add_argument("--shell", action="store_true")
    parser.add_argument("deb", type=pathlib.Path)
    parser.add_argument("words", nargs="*")
    wanted = parser.parse_args()
    cache = wanted.cache.resolve()
    cache.mkdir(parents=True, exist_ok=True)
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    with open(cache / "lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # one at a time
        return run(wanted, cache)


if __name__ == "__main__":
    sys.exit(main())
