# SPDX-License-Identifier: Apache-2.0
"""Mixed traffic by the PyPI clients, unmodified, while the test kills parts of the daemon. Prints one JSON object at its
end: what was right, what was refused, and each wrong answer. An exception of the client's or of the connection is a
refusal; an answer must be what was asked for."""

import json
import random
import sys
import threading
import time
import traceback

import e2b
import httpx
from connectrpc.errors import ConnectError
from e2b import CommandExitException, Sandbox, SandboxException, SandboxQuery
from e2b_code_interpreter import Sandbox as Interpreter

KILLED = (-1, 137)  # what a program's end may say when its guest's agent was killed under it
BUSY = getattr(e2b.exceptions, "ServiceBusyException", SandboxException)  # a 503, in newer versions
ENOUGH = 10
REFUSALS = (SandboxException, BUSY, ConnectError, httpx.HTTPError, OSError)


class Wrong(Exception):
    pass


def check(holds, *what):
    if not holds:
        raise Wrong(repr(what))


def commands(box, mark):
    for i in range(3):
        got = box.commands.run(f"echo {mark} >> f; tail -n 1 f; wc -l < f; echo e >&2", timeout=20)
        check((got.stdout, got.stderr) == (f"{mark}\n{i + 1}\n", "e\n"), got)


def files(box, mark):
    text = f"{mark}ä" * random.choice([1, 1000, 100000])
    box.files.write("/home/user/there/x", text)
    check(box.files.read("/home/user/there/x") == text, "another text was read", len(text))
    check([entry.name for entry in box.files.list("/home/user/there")] == ["x"], "the list")
    box.files.rename("/home/user/there/x", "/home/user/there/y")
    check(not box.files.exists("/home/user/there/x") and box.files.exists("/home/user/there/y"), "after the move")


def cells(box, mark):
    for i in range(3):
        got = box.run_code(f"n = {mark} if {i} == 0 else n + 1\nn", timeout=30)
        if got.error and got.error.name != "NameError":  # a context that was ended is told as such
            return
        check(got.error is None and got.text == str(mark + i), got)


def background(box, mark):
    handle = box.commands.run("cat", background=True, stdin=True, timeout=20)
    box.commands.send_stdin(handle.pid, f"{mark}\n")
    for out, _, _ in handle:
        check(out is None or out == f"{mark}\n", out)
        break
    handle.kill()


def paused(box, mark):
    box.files.write("m", str(mark))
    box.pause()
    box.connect(timeout=60)
    check(box.files.read("m") == str(mark), "after the pause")


def listed(box, mark):
    until = time.monotonic() + 20  # one that is not listed is gone, or on its way back
    while True:
        found = Sandbox.list(query=SandboxQuery(metadata={"mark": str(mark)})).next_items()
        if found:
            check([one.sandbox_id for one in found] == [box.sandbox_id], found)
            return
        if not box.is_running(request_timeout=20):
            return
        check(time.monotonic() < until, "it is not listed, and runs")
        time.sleep(0.2)


WORK = (commands, files, background, paused, listed)


def one(counts):
    mark = random.randrange(1 << 40)
    kind = Interpreter if random.random() < 0.3 else Sandbox
    box = kind.create(timeout=60, metadata={"mark": str(mark)}, request_timeout=20)
    try:
        for work in [cells] if kind is Interpreter else random.sample(WORK, 3):
            work(box, mark)
            counts["right"] += 1
    except CommandExitException as error:
        check(error.exit_code in KILLED, error.exit_code, error.stderr)
        counts["refused"] += 1
    finally:
        box.kill(request_timeout=20)


def client(until, counts, wrong):
    """Until then; where all is slow, until enough was right, when nothing is killed any more."""
    while time.monotonic() < until or counts["right"] <= ENOUGH and time.monotonic() < until + 200:
        try:
            one(counts)
        except REFUSALS as error:
            counts["refused"] += 1
            kinds = counts.setdefault("kinds", {})
            kinds[type(error).__name__] = kinds.get(type(error).__name__, 0) + 1
            time.sleep(0.05)
        except Exception:  # told at the end
            wrong.append(traceback.format_exc()[-1500:])


def main():
    until, wrong, counts = time.monotonic() + float(sys.argv[1]), [], {"right": 0, "refused": 0}
    threads = [threading.Thread(target=client, args=(until, counts, wrong)) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    print(json.dumps({**counts, "wrong": wrong}))


if __name__ == "__main__":
    main()
