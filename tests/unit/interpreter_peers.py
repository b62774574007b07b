# SPDX-License-Identifier: Apache-2.0
"""Plays the agent, and for zygotes the warden, to the interpreters' drivers. For test_interpreter_*.py and test_zygotes.py.

A FreshDriver is the driver executed as the agent would (python3 -I driver.py, node driver.js), in the current
namespaces. A Zygote is zygote.py with a socket to it; a Guest is a set of namespaces made as the warden makes them
(user namespace created by the zygote's uid), with a process 1 that reaps and reports; it needs root.
"""
import array
import ctypes
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
PYTHON, NODE = "/usr/bin/python3", "/usr/bin/node"
ZYGOTE_UID = 1_879_048_192
UID_BASE = ZYGOTE_UID + 65_536
CODE_UID = 1000
JOB, RESULT, RESULT_ERROR, LISTENER, EXIT = 1, 64, 65, 66, 67
CODE, ARGUMENTS, ENV, CWD, LIMITS = 2, 3, 4, 5, 6
CLONE = {"user": 0x10000000, "net": 0x40000000, "pid": 0x20000000, "ipc": 0x08000000, "uts": 0x04000000,
         "cgroup": 0x02000000, "mnt": 0x00020000}
libc = ctypes.CDLL(None, use_errno=True)


def checked(value):
    if value < 0:
        error = ctypes.get_errno()
        raise OSError(error, os.strerror(error))
    return value


def field(tag, data):
    data = data if isinstance(data, bytes) else data.encode()
    return struct.pack("<BI", tag, len(data)) + data


def limits(memory=0, cpu_percent=0):
    return struct.pack("<8Q3I", 0, 0, memory, 0, 0, 0, 0, 0, 0, 0, cpu_percent)


def job(code, arguments=None, env=(), cwd=None, cpu_percent=0, memory=0):
    payload = field(CODE, code)
    if arguments is not None:
        payload += field(ARGUMENTS, arguments if isinstance(arguments, (str, bytes)) else json.dumps(arguments))
    payload += b"".join(field(ENV, item) for item in env)
    if cwd:
        payload += field(CWD, cwd)
    payload += field(LIMITS, limits(memory, cpu_percent))
    return struct.pack("<BBHI", JOB, 0, 0, len(payload)) + payload


class Outcome:
    """What came of one program."""

    def __init__(self):
        self.stdout, self.stderr, self.frames = b"", b"", b""
        self.exit, self.result_error, self.result_text, self.status = None, None, None, None
        self.others = []

    def parse(self):
        data, result = self.frames, []
        while data:
            kind, zero, _, length = struct.unpack("<BBHI", data[:8])
            assert zero == 0 and len(data) >= 8 + length, data[:80]
            payload, data = data[8:8 + length], data[8 + length:]
            if kind == RESULT:
                result.append(payload)
            elif kind == RESULT_ERROR:
                self.result_error = payload.decode()
            elif kind == EXIT:
                assert self.exit is None, "two EXIT frames"
                self.exit = struct.unpack("<i", payload)[0]
            else:
                self.others.append(kind)
        self.result_text = b"".join(result).decode() if result else None
        return self

    @property
    def result(self):
        return json.loads(self.result_text)

    @property
    def out(self):
        return self.stdout.decode()

    @property
    def err(self):
        return self.stderr.decode()


class Pipes:
    """The agent's ends of one interpreter, and the interpreter's ends until it has them."""

    def __init__(self):
        self.driver, self.theirs = socket.socketpair()
        self.ready, self.ready_w = os.pipe()
        self.stdin_r, self.stdin = os.pipe()
        self.stdout, self.stdout_w = os.pipe()
        self.stderr, self.stderr_w = os.pipe()

    def give(self):
        self.theirs.close()
        for fd in (self.ready_w, self.stdin_r, self.stdout_w, self.stderr_w):
            os.close(fd)

    def close(self):
        self.driver.close()
        for fd in (self.ready, self.stdout, self.stderr):
            os.close(fd)

    def wait_ready(self, timeout=40):
        for expected in (b"1", b""):  # one byte, then the end
            readable, _, _ = select.select([self.ready], [], [], timeout)
            assert readable and os.read(self.ready, 2) == expected, "the driver did not park"

    def run(self, message, stdin=b"", timeout=30):
        outcome, parts = Outcome(), {self.stdout: "stdout", self.stderr: "stderr", self.driver.fileno(): "frames"}
        if message:
            self.driver.sendall(message)
        if stdin:
            os.write(self.stdin, stdin)
        os.close(self.stdin)
        end = time.monotonic() + timeout
        while parts:
            readable, _, _ = select.select(list(parts), [], [], max(0, end - time.monotonic()))
            assert readable, ("timeout", outcome.stdout[-500:], outcome.stderr[-500:])
            for fd in readable:
                try:
                    data = os.read(fd, 1 << 20)
                except ConnectionResetError:
                    data = b""
                name = parts[fd]
                if not data:
                    del parts[fd]
                setattr(outcome, name, getattr(outcome, name) + data)
        return outcome.parse()


class FreshDriver:
    def __init__(self, language="python", options=(), cwd=None, environment=None):
        self.cwd = cwd or tempfile.mkdtemp(prefix="cordon-test-")
        self.own_cwd = not cwd
        self.pipes = Pipes()
        pipes = self.pipes
        argv = [PYTHON, "-I", os.path.join(AGENT, "python", "driver.py")]
        if language == "javascript":
            argv = [NODE, *options, os.path.join(AGENT, "javascript", "driver.js")]
        sources = (pipes.stdin_r, pipes.stdout_w, pipes.stderr_w, pipes.theirs.fileno(), pipes.ready_w)

        def place():
            moved = [os.dup2(fd, 100 + i) for i, fd in enumerate(sources)]
            for i, fd in enumerate(moved):
                os.dup2(fd, i)
            os.closerange(5, 4096)

        self.child = subprocess.Popen(argv, preexec_fn=place, close_fds=False, cwd=self.cwd,
                                      env=environment or {"LANG": "C.UTF-8", "PATH": "/usr/bin:/bin"})
        pipes.give()

    def run(self, code, stdin=b"", timeout=30, **options):
        self.pipes.wait_ready()
        outcome = self.pipes.run(job(code, **options), stdin, timeout)
        outcome.status = self.child.wait(timeout=30)
        self.close()
        return outcome

    def close(self):
        if self.child.poll() is None:
            self.child.kill()
            self.child.wait()
        self.pipes.close()
        if self.own_cwd:
            shutil.rmtree(self.cwd, ignore_errors=True)


def guest_main(control):
    """Becomes process 1 of a new guest; runs in a child of the test."""
    if control.fileno() != 3:
        os.dup2(control.fileno(), 3)
    control.detach()
    control = socket.socket(fileno=3)
    os.closerange(4, 4096)
    os.setgroups([])
    os.setresgid(ZYGOTE_UID, ZYGOTE_UID, ZYGOTE_UID)
    os.setresuid(ZYGOTE_UID, ZYGOTE_UID, ZYGOTE_UID)
    libc.prctl(4, 1)
    checked(libc.unshare(CLONE["user"]))
    control.send(b"u")
    control.recv(1)
    os.setresgid(0, 0, 0)
    os.setresuid(0, 0, 0)
    checked(libc.unshare(sum(bits for name, bits in CLONE.items() if name != "user")))
    if os.fork():
        os._exit(0)
    mount = libc.mount
    checked(mount(b"none", b"/", None, 0x44000, None))
    checked(mount(b"proc", b"/proc", b"proc", 0, None))
    checked(mount(b"tmpfs", b"/tmp", b"tmpfs", 0, b"mode=1777"))
    checked(mount(b"tmpfs", b"/home", b"tmpfs", 0, b"mode=755"))
    os.mkdir("/home/user", 0o700)
    os.chown("/home/user", CODE_UID, CODE_UID)
    control.send(b"r")
    reap_for_ever(control)


def reap_for_ever(control):
    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGCHLD])
    while not select.select([control], [], [], 0)[0]:
        try:
            while (found := os.waitpid(-1, os.WNOHANG))[0]:
                control.send(struct.pack("<ii", *found))
        except ChildProcessError:
            pass
        signal.sigtimedwait([signal.SIGCHLD], 0.05)


class Guest:
    """Namespaces to join. Its process 1 is not the agent, but reaps, and tells (pid, status) of each that ended."""

    def __init__(self):
        self.control, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        helper = os.fork()
        if helper == 0:
            try:
                guest_main(theirs)
            finally:
                os._exit(1)
        theirs.close()
        assert self.control.recv(1) == b"u"
        self.user = os.open(f"/proc/{helper}/ns/user", os.O_RDONLY | os.O_CLOEXEC)
        for name in ("uid_map", "gid_map"):
            with open(f"/proc/{helper}/{name}", "w") as file:
                file.write(f"0 {UID_BASE} 65536")
        self.control.send(b"m")
        assert self.control.recv(1) == b"r"
        os.waitpid(helper, 0)
        self.init = self.find_init()
        self.fds = [self.user] + [os.open(f"/proc/{self.init}/ns/{name}", os.O_RDONLY | os.O_CLOEXEC)
                                  for name in ("net", "pid", "mnt", "ipc", "uts", "cgroup")]

    def find_init(self):
        identity = os.fstat(self.user).st_ino
        for pid in sorted((int(p) for p in os.listdir("/proc") if p.isdigit()), reverse=True):
            try:
                if os.stat(f"/proc/{pid}/ns/user").st_ino == identity:
                    return pid
            except OSError:
                continue
        raise AssertionError("the guest's process 1 is not there")

    def status(self, timeout=30):
        self.control.settimeout(timeout)
        return struct.unpack("<ii", self.control.recv(8))[1]

    def clear(self):
        """Takes away what a run's driver left, as only the end of the guest would: these tests use one for many runs."""
        try:
            os.unlink(f"/proc/{self.init}/root/home/user/main.py")
        except FileNotFoundError:
            pass

    def close(self):
        os.kill(self.init, signal.SIGKILL)
        for fd in self.fds:
            os.close(fd)
        self.control.close()


class Zygote:
    def __init__(self, name="python", extension=None, before_fork="", environment=None):
        self.dir = tempfile.mkdtemp(prefix="cordon-zygote-")
        os.chmod(self.dir, 0o755)
        for file in ("zygote.py", "driver.py"):
            shutil.copy(os.path.join(AGENT, "python", file), self.dir)
        shutil.copy(extension, os.path.join(self.dir, "_cordon_zygote.so"))
        if before_fork:
            self.patch(before_fork)
        self.control, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)

        def place():
            libc.prctl(1, signal.SIGKILL)
            os.dup2(theirs.fileno(), 3)
            os.set_inheritable(3, True)
            os.closerange(4, 4096)
            os.setgroups([])
            os.setresgid(ZYGOTE_UID, ZYGOTE_UID, ZYGOTE_UID)
            os.setresuid(ZYGOTE_UID, ZYGOTE_UID, ZYGOTE_UID)

        self.child = subprocess.Popen([PYTHON, "-I", os.path.join(self.dir, "zygote.py"), name], preexec_fn=place,
                                      close_fds=False, stdin=subprocess.DEVNULL,
                                      env=environment or {"SECRET_OF_THE_HOST": "x"})
        theirs.close()
        self.filter = os.memfd_create("filter")
        self.seq = 0
        assert self.reply(60) == (0, 0, "")

    def patch(self, text):
        """Runs text in the zygote as a module that it loads would: for tests of what must not leak into forks."""
        path = os.path.join(self.dir, "zygote.py")
        with open(path) as file:
            source = file.read()
        with open(path, "w") as file:
            file.write(source.replace("    settle()\n", text + "\n    settle()\n"))

    def reply(self, timeout=30):
        self.control.settimeout(timeout)
        version, seq, status, _, stage = struct.unpack("<IIiI32s", self.control.recv(64))
        assert version == 1
        return seq, status, stage.rstrip(b"\0").decode()

    def send(self, guest_fds, pipes, cgroups=(), open_files=256, version=1):
        self.seq += 1
        order = {"user": 0, "net": 1, "pid": 2, "mnt": 3, "ipc": 4, "uts": 5, "cgroup": 6}
        assert list(order.values()) == list(range(7))
        fds = [*guest_fds, self.filter, pipes.theirs.fileno(), pipes.ready_w, pipes.stdin_r, pipes.stdout_w,
               pipes.stderr_w, *cgroups]
        data = struct.pack("<7I", version, self.seq, len(cgroups), CODE_UID, CODE_UID, open_files, 0)
        self.control.sendmsg([data], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", fds))])

    def fork(self, guest, cgroups=()):
        pipes = Pipes()
        self.send(guest.fds, pipes, cgroups)
        found = self.reply()
        pipes.give()
        assert found == (self.seq, 0, ""), found
        return pipes

    def run(self, guest, code, stdin=b"", timeout=30, **options):
        pipes = self.fork(guest)
        pipes.wait_ready()
        outcome = pipes.run(job(code, **options), stdin, timeout)
        outcome.status = guest.status()
        pipes.close()
        guest.clear()
        return outcome

    def close(self):
        self.control.close()
        self.child.wait(timeout=30)
        os.close(self.filter)
        shutil.rmtree(self.dir, ignore_errors=True)
