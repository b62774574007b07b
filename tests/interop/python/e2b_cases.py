# SPDX-License-Identifier: Apache-2.0
"""Cases for the PyPI package `e2b`, unmodified, against a daemon. Prints a JSON line a case."""

import asyncio
import hashlib
import json
import os
import sys
import time
import traceback
import urllib.error
import urllib.request

import e2b
from e2b import AsyncSandbox, CommandExitException, NotFoundException, Sandbox, SandboxException, SandboxQuery, TimeoutException

ONLY = os.environ.get("ONLY", "").split(",") if os.environ.get("ONLY") else None


def until(condition, seconds=60):
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        found = condition()
        if found:
            return found
        time.sleep(0.05)
    raise AssertionError("it did not come about")


def make(**options):
    return Sandbox.create(timeout=600, **options)  # as long as all cases may take


def raises(kind, call, *args, **options):
    try:
        call(*args, **options)
    except kind as error:
        return error
    raise AssertionError(f"{kind} was not raised")


def case_create_and_info(box):
    assert box.is_running()
    info = box.get_info()
    assert info.sandbox_id == box.sandbox_id and info.template_id == "base"


def case_command(box):
    result = box.commands.run("echo out; echo err >&2; pwd", envs={"X": "1"})
    assert (result.exit_code, result.stdout, result.stderr) == (0, "out\n/home/user\n", "err\n"), result
    error = raises(CommandExitException, box.commands.run, "exit 3")
    assert error.exit_code == 3
    assert box.commands.run("echo $X; whoami", envs={"X": "ä"}, user="root").stdout == "ä\nroot\n"


def case_background_and_kill(box):
    handle = box.commands.run("sleep 100", background=True)
    assert handle.pid in [process.pid for process in box.commands.list()]
    assert box.commands.kill(handle.pid) is True
    raises(CommandExitException, handle.wait)
    assert box.commands.kill(handle.pid) is False


def case_stdin(box):
    handle = box.commands.run("read a; echo got $a", background=True, stdin=True)
    box.commands.send_stdin(handle.pid, "hello\n")
    assert handle.wait().stdout == "got hello\n"


def case_command_timeout(box):
    raises(TimeoutException, box.commands.run, "sleep 50", timeout=1)
    until(lambda: not box.commands.list())


def case_pty(box):
    out = []
    handle = box.pty.create(e2b.PtySize(rows=24, cols=80))
    box.pty.send_stdin(handle.pid, b"stty size\n")
    box.pty.resize(handle.pid, e2b.PtySize(rows=30, cols=100))
    box.pty.send_stdin(handle.pid, b"stty size; exit\n")
    handle.wait(on_pty=lambda data: out.append(data))
    assert b"30 100" in b"".join(out), out


def case_files(box):
    info = box.files.write("dir/a.txt", "hällo")
    assert info.path == "/home/user/dir/a.txt"
    assert box.files.read("dir/a.txt") == "hällo"
    assert bytes(box.files.read("dir/a.txt", format="bytes")) == "hällo".encode()
    assert box.files.exists("dir/a.txt") and not box.files.exists("none")
    assert [entry.name for entry in box.files.list("dir")] == ["a.txt"]
    assert box.files.make_dir("dir/x") is True and box.files.make_dir("dir/x") is False
    box.files.rename("dir/a.txt", "dir/x/b")
    assert box.files.read("dir/x/b") == "hällo"
    box.files.remove("dir")
    assert not box.files.exists("dir")
    raises(NotFoundException, box.files.read, "none")
    box.files.write_files([{"path": "m1", "data": "1"}, {"path": "/tmp/m2", "data": b"2"}])
    assert box.files.read("m1") + box.files.read("/tmp/m2") == "12"


def case_files_big(box):
    data = os.urandom(1 << 20) * 100
    box.files.write("/tmp/big", data, request_timeout=120)
    back = box.files.read("/tmp/big", format="bytes", request_timeout=120)
    assert hashlib.sha256(bytes(back)).digest() == hashlib.sha256(data).digest()


def case_watch(box):
    box.files.make_dir("w")
    handle = box.files.watch_dir("w")
    box.files.write("w/a", "x")
    seen = []
    until(lambda: seen.extend(handle.get_new_events()) or [e for e in seen if e.name == "a" and "CREATE" in str(e.type).upper()])
    box.files.remove("w/a")
    until(lambda: seen.extend(handle.get_new_events()) or [e for e in seen if "REMOVE" in str(e.type).upper()])
    handle.stop()


def case_metadata(box):
    mark = f"py {os.getpid()} & %"
    other = make(metadata={"mark": mark})
    try:
        found = Sandbox.list(query=SandboxQuery(metadata={"mark": mark})).next_items()
        assert [info.sandbox_id for info in found] == [other.sandbox_id]
    finally:
        other.kill()


def case_pause_and_resume(box):
    box.files.write("kept", "yes")
    (getattr(box, "pause", None) or box.beta_pause)()
    assert not box.is_running()
    again = Sandbox.connect(box.sandbox_id, timeout=60)
    assert again.files.read("kept") == "yes"


def case_signed_urls(box):
    box.files.write("s.txt", "signed")
    with urllib.request.urlopen(box.download_url("s.txt", use_signature_expiration=60), timeout=20) as answer:
        assert answer.read() == b"signed"
    error = raises(urllib.error.HTTPError, urllib.request.urlopen, box.download_url("s.txt").replace("s.txt", "t.txt"))
    assert error.code == 401


def case_kill(box):
    other = make()
    assert other.kill() is True
    assert other.is_running() is False
    assert Sandbox.kill(other.sandbox_id) is False
    raises(SandboxException, other.commands.run, "true")


def case_not_implemented(box):
    if hasattr(box, "create_snapshot"):
        error = raises(Exception, box.create_snapshot)
        assert "not implemented" in str(error), error


async def asynchronous():
    box = await AsyncSandbox.create(timeout=600)
    try:
        seen = asyncio.Event()
        running = await box.commands.run("echo 1; until [ -e seen ]; do sleep 0.05; done; echo 2", background=True,
                                         on_stdout=lambda _: seen.set())
        await asyncio.wait_for(seen.wait(), 60)  # it comes as it is written
        await box.files.write("seen", "")
        assert (await running.wait()).stdout == "1\n2\n"
        await box.files.make_dir("w")
        event = asyncio.Event()
        handle = await box.files.watch_dir("w", on_event=lambda _: event.set())
        await box.files.write("w/a", "x")
        await asyncio.wait_for(event.wait(), 60)
        await handle.stop()
        assert await box.files.read("w/a") == "x"
    finally:
        await box.kill()


def case_asynchronous(box):
    asyncio.run(asynchronous())


def main():
    cases = {name[5:]: body for name, body in globals().items() if name.startswith("case_")}
    box = make()
    for name, body in cases.items():
        if ONLY and name not in ONLY:
            continue
        error = None
        try:
            if name == "pause_and_resume":
                own = make()
                try:
                    body(own)
                finally:
                    own.kill()
            else:
                body(box)
        except BaseException:  # the test tells it
            error = traceback.format_exc()
        print(json.dumps({"case": name, "error": error}).replace('{"case": ', '{"case":'), flush=True)
    box.kill()


if __name__ == "__main__":
    sys.exit(main())
