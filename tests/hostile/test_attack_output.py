# SPDX-License-Identifier: Apache-2.0
"""Floods and poisons on the output streams."""

import contextlib
import time

import pytest
from lib import host
from lib.client import collect, stdout_bytes
from lib.pace import limit, stretched

pytestmark = pytest.mark.each_backend

MB = 1 << 20


@pytest.mark.weaken("output_cap")
@pytest.mark.parametrize("fds", [(1,), (2,), (1, 2)], ids=["stdout", "stderr", "both"])
def test_flood(backend, fds):
    writes = "\n".join(f"    os.write({fd}, block)" for fd in fds)
    answer, _ = backend.attack(f"block = b'flood ' * 10000\nfor _ in range(600):\n{writes}\nos._exit(3)")
    outcome = answer["outcome"]
    assert outcome["cause"] == "exited" and answer["exit_code"] == 3
    for fd, stream in ((1, "stdout"), (2, "stderr")):
        wrote = 36000000 if fd in fds else 0
        assert outcome[stream]["bytes"] == wrote and outcome[stream]["truncated"] == (wrote > 0)
        assert len(answer[stream]) == min(wrote, MB)


def test_endless_flood_ends_at_the_deadline(backend):
    began = time.monotonic()
    answer, _ = backend.attack("while True: os.write(1, b'x' * 65536)", timeout_s=limit(1))
    assert answer["outcome"]["cause"] in ("timeout", "output_limit") and time.monotonic() - began < stretched(20)
    assert answer["outcome"]["stdout"]["truncated"] and len(answer["stdout"]) == MB


@pytest.mark.parametrize(
    "unit",
    ["b'\\0'", "b'\\xff\\xfe'", "b'\\x1b[2J\\x1b]0;t\\x07'", "b'no newline '", "b'\\n'", "b'\\r'", "b'\\xe2\\x82'"],
    ids=["nul", "invalid utf-8", "ansi", "no newline", "newlines", "returns", "cut characters"],
)
def test_poison(backend, unit):
    answer = backend.run(f"import os\nfor _ in range(64): os.write(1, ({unit} * 10000)[:8192])")
    expected = b"".join(((eval(unit) * 10000)[:8192]) for _ in range(64))  # noqa: S307  (our own literal)
    assert stdout_bytes(answer) == expected and answer["outcome"]["stdout"]["bytes"] == len(expected)


def test_single_bytes(backend):
    answer = backend.run("import os\nfor i in range(30000): os.write(1, b'%d' % (i % 10))", timeout_s=limit(20))
    assert answer["stdout"] == "0123456789" * 3000


def test_flood_does_not_delay_others(backend):
    with contextlib.ExitStack() as floods:
        for _ in range(2):
            floods.enter_context(backend.held("for _ in range(2):\n    if os.fork() == 0:\n        while True: os.write(2, b'x' * 65536)"))
        assert backend.run("print(1)")["stdout"] == "1\n"


def test_flood_does_not_fill_the_daemon(backend):
    gateway = backend.daemon.role("gateway")
    before = host.status_kb(gateway, "VmHWM")
    for _ in backend.daemon.stream(
        "import os\nfor _ in range(3000): os.write(1, b'x' * 65536)", backend=backend.name, timeout_s=20
    ):
        pass
    assert host.status_kb(gateway, "VmHWM") - before < 32 * 1024


def test_a_client_that_reads_nothing(backend):
    """Backpressure reaches the program; the deadline still ends it, and no other run waits."""
    import json
    import socket

    body = json.dumps(
        {"language": "python", "code": "while True: print('x' * 1000)", "timeout_s": 3, "backend": backend.name}
    ).encode()
    with socket.create_connection(("127.0.0.1", backend.daemon.port)) as sock:
        sock.sendall(
            b"POST /v1/runs HTTP/1.1\r\nHost: x\r\nAccept: application/x-ndjson\r\nAuthorization: Bearer "
            + backend.daemon.key.encode()
            + b"\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n" % len(body)
            + body
        )
        time.sleep(1)
        assert backend.run("print(1)")["stdout"] == "1\n"
        time.sleep(3)
    assert backend.run("print(1)")["stdout"] == "1\n"


def test_interleaved_streams_with_one_closed(backend):
    out, err, others = collect(
        backend.daemon.stream(
            "import os\nos.close(2)\nfor i in range(1000): os.write(1, b'x' * 1000)", backend=backend.name
        )
    )
    assert len(out) == 1000000 and err == b"" and others["outcome"][0]["outcome"]["cause"] == "exited"


def test_reopening_the_stdout_pipe(backend):
    answer, said = backend.attack("""
for name in ('/proc/self/fd/1', '/dev/stdout'):
    said(**{name: attempt(lambda: open(name, 'wb', 0).write(b'reopened\\n'))})
    said(**{name + ' read': attempt(lambda: os.read(os.open(name, os.O_RDONLY | os.O_NONBLOCK), 10))})
""")
    assert answer["outcome"]["cause"] == "exited"


def test_shrinking_and_growing_the_pipe(backend):
    answer, said = backend.attack(
        (
            "import fcntl\n"
            "said(small=attempt(fcntl.fcntl, 1, 1031, 4096), big=attempt(fcntl.fcntl, 1, 1031, 1 << 30))\n"
            "os.set_blocking(1, False)\ntry:\n    while True: os.write(1, b'x' * 4096)\n"
            "except BlockingIOError: pass\nos._exit(0)"
        ),
        timeout_s=5,
    )
    assert said["big"] != "ok" and answer["outcome"]["cause"] in ("exited", "timeout")


def test_terminal_controls_on_the_streams(backend):
    answer, said = backend.attack("""
import fcntl, termios
for fd in (0, 1, 2):
    said(
        **{
            f'sti{fd}': attempt(fcntl.ioctl, fd, termios.TIOCSTI, b'x'),
            f'linux{fd}': attempt(fcntl.ioctl, fd, 0x541C, b'\\x03x'),
            f'sctty{fd}': attempt(fcntl.ioctl, fd, termios.TIOCSCTTY, 1),
        }
    )
said(tty=attempt(os.open, '/dev/tty', os.O_RDWR), console=attempt(os.open, '/dev/console', os.O_RDWR))
""")
    assert answer["outcome"]["cause"] == "exited" and "ok" not in said.values()
