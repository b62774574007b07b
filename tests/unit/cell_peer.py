# SPDX-License-Identifier: Apache-2.0
"""Holds the other end of a context's channel, as Cordon does. For test_cells_*.py."""
import json
import os
import select
import shutil
import signal
import socket
import struct
import subprocess
import tempfile
import time

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
AGENT = os.path.join(ROOT, "src", "agent")
CELL, INTERRUPT, SYNC, SOURCE = 2, 3, 4, 5
READY, OUT, PART, SHOW, DONE, SYNCED = 68, 69, 70, 71, 72, 73
FIELD_NUMBER, FIELD_CODE, FIELD_ENV = 1, 2, 4
FRAME_MAX = 16384


def source(language, name):
    path = os.path.join(AGENT, language, name)
    with open(path, "rb") as file:
        return file.read()


LANGUAGES = {
    "python": dict(argv=["/usr/bin/python3", "-c", source("python", "cell_boot.py").decode()], first="cell.py",
                   parts={"show": "cell_show.py", "plot": "cell_plot.py", "magic": "cell_magic.py"}),
    "javascript": dict(argv=["/usr/bin/node", "--no-force-async-hooks-checks", "-e",
                             source("javascript", "cell_boot.js").decode()], first="cell.js",
                       parts={"show": "cell_show.js", "control": "cell_control.js"}),
}


def frame(kind, payload=b""):
    return struct.pack("<BBHI", kind, 0, 0, len(payload)) + payload


def field(tag, data):
    return struct.pack("<BI", tag, len(data)) + data


class Ran:
    """What came of one cell, in the order in which it came."""

    def __init__(self):
        self.events, self.done = [], None

    @property
    def output(self):
        """[("out" or "err", text)…] with neighbours joined, and "show" where something was shown."""
        joined = []
        for name, value in self.events:
            if name != "show" and joined and joined[-1][0] == name:
                joined[-1][1] += value
            else:
                joined.append([name, b"" if name == "show" else value])
        return [(name, value.decode("utf-8", "replace")) for name, value in joined]

    def text(self, which):
        return b"".join(value for name, value in self.events if name == which).decode("utf-8", "replace")

    out = property(lambda self: self.text("out"))
    err = property(lambda self: self.text("err"))
    shown = property(lambda self: [value for name, value in self.events if name == "show"])
    error = property(lambda self: self.done.get("error"))

    @property
    def value(self):
        main = [item for item in self.shown if item["main"]]
        assert len(main) <= 1
        return main[0] if main else None


class Died(Exception):
    pass


class Context:
    def __init__(self, language="python", environment=None, read=True):
        known = LANGUAGES[language]
        self.cwd = tempfile.mkdtemp(prefix="cordon-cell-")
        self.channel, theirs = socket.socketpair()
        self.raw = [os.pipe(), os.pipe()]
        self.buffer, self.number = b"", 0

        def place():
            os.setpgid(0, 0)
            moved = [os.dup2(fd, 100 + i) for i, fd in enumerate(
                (os.open(os.devnull, os.O_RDONLY), self.raw[0][1], self.raw[1][1], theirs.fileno()))]
            for at, fd in enumerate(moved):
                os.dup2(fd, at)
            os.closerange(4, 4096)

        self.child = subprocess.Popen(known["argv"], preexec_fn=place, close_fds=False, cwd=self.cwd,
                                      env={"PATH": "/usr/local/bin:/usr/bin:/bin", "HOME": self.cwd, "LANG": "C.UTF-8",
                                           "MPLCONFIGDIR": "/tmp/cordon-cell-matplotlib", **(environment or {})})
        theirs.close()
        for pipe in self.raw:
            os.close(pipe[1])
        boot = frame(SOURCE, source(language, known["first"]))
        for name, file in known["parts"].items():
            boot += frame(SOURCE, name.encode() + b"\0" + source(language, file))
        self.channel.sendall(boot)
        kind, payload = self.read_frame()
        assert kind == READY, (kind, payload)
        self.ready = json.loads(payload)

    def read_frame(self, timeout=40):
        end = time.monotonic() + timeout
        while True:
            if len(self.buffer) >= 8:
                kind, zero, exec_id, length = struct.unpack("<BBHI", self.buffer[:8])
                assert (zero, exec_id) == (0, 0) and length + 8 <= FRAME_MAX, self.buffer[:80]
                if len(self.buffer) >= 8 + length:
                    payload, self.buffer = self.buffer[8:8 + length], self.buffer[8 + length:]
                    return kind, payload
            watched = [self.channel, self.raw[1][0]] if self.raw[1][0] >= 0 else [self.channel]
            readable, _, _ = select.select(watched, [], [], max(0, end - time.monotonic()))
            assert readable, ("timeout", self.buffer[:200])
            if self.channel in readable:
                data = self.channel.recv(1 << 18)
                if not data:
                    raise Died(self.child.wait(timeout=30))
                self.buffer += data
            elif not os.read(self.raw[1][0], 65536):
                os.close(self.raw[1][0])
                self.raw[1] = (-1, -1)

    def send(self, code, environment=()):
        self.number += 1
        payload = field(FIELD_NUMBER, struct.pack("<I", self.number))
        payload += field(FIELD_CODE, code.encode("utf-8", "surrogateescape") if isinstance(code, str) else code)
        payload += b"".join(field(FIELD_ENV, item.encode()) for item in environment)
        self.channel.sendall(frame(CELL, payload))

    def collect(self, timeout=40):
        ran, parts, end = Ran(), b"", time.monotonic() + timeout
        while ran.done is None:
            kind, payload = self.read_frame(max(0, end - time.monotonic()))
            if kind == OUT:
                assert payload[0] in (1, 2)
                ran.events.append((("out", "err")[payload[0] - 1], payload[1:]))
            elif kind == PART:
                parts += payload
            elif kind == SHOW:
                ran.events.append(("show", json.loads(parts + payload)))
                parts = b""
            elif kind == DONE:
                ran.done, parts = json.loads(parts + payload), b""
            else:
                raise AssertionError(kind)
        return ran

    def run(self, code, timeout=40, environment=()):
        self.send(code, environment)
        return self.collect(timeout)

    def interrupt(self):
        """As Cordon does: a frame for who reads it, and the signal to the whole process group."""
        if self.ready["language"] == "javascript":
            self.channel.sendall(frame(INTERRUPT, struct.pack("<I", self.number)))
        os.killpg(self.child.pid, signal.SIGINT)

    def settle(self, timeout=40):
        """Until every signal was taken and it waits again: one that it takes when a cell is there already is that cell's."""
        end = time.monotonic() + timeout
        while True:
            with open(f"/proc/{self.child.pid}/status", encoding="ascii") as file:
                status = dict(line.split(":", 1) for line in file)
            pending = int(status["SigPnd"], 16) | int(status["ShdPnd"], 16)
            if not pending and status["State"].split()[0] == "S":
                return
            assert time.monotonic() < end, status
            time.sleep(.002)

    def close(self):
        if self.child.poll() is None:
            os.killpg(self.child.pid, signal.SIGKILL)
            self.child.wait()
        self.channel.close()
        for pipe in self.raw:
            if pipe[0] >= 0:
                os.close(pipe[0])
        shutil.rmtree(self.cwd, ignore_errors=True)
