# SPDX-License-Identifier: Apache-2.0
"""
A virtual machine without a daemon: boots the image under QEMU's emulation, plays its host through the handshake
(proto/vm.h) and then speaks the guest protocol (docs/protocol/guest.md). Nothing waits for a time; everything for a
frame, with a bound that an emulated machine on a busy host keeps.
"""
import contextlib
import itertools
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

from lib.daemon import PREFIX

QEMU = shutil.which("qemu-system-x86_64")
PATIENCE_S = 240

EXEC, STDIN, STDIN_EOF, CREDIT, KILL, FILE_OPEN, FILE_DATA, FILE_CLOSE, COLLECT = range(1, 10)
SETUP, OPEN, WRITE, WINDOW, CONTROL, CLOSE = range(16, 22)
VM_LEASE, VM_READY, VM_LEASED = 32, 120, 121
VERSION, FRESH, REHEARSAL = 2, 1, 2  # of proto/vm.h; flags of a lease
PAST_NS = 10**18  # the clock before the lease
HELLO, STARTED, STDOUT, STDERR, RESULT, RESULT_ERROR, EXIT, ARTIFACT_OPEN, ARTIFACT_DATA, ARTIFACT_CLOSE, \
    ARTIFACT_DROPPED, COLLECTED, ERROR, STDIN_CREDIT = range(64, 78)
READY, RUNNING, BEGAN, OUTPUT, ENDED, ENTRY, CHANGE, INFO, DISK, DONE, FAILED, CLOSED, TAKEN, PORT = range(96, 110)
F_LANGUAGE, F_CODE, F_ARGUMENTS, F_ENV, F_CWD, F_LIMITS, F_FLAGS, F_PATH, F_MODE, F_SIZE, F_REASON = range(1, 12)
F_OPERATION, F_USER, F_ARGUMENT = 32, 33, 34
F_PORT = 43
EXEC_STDIN, EXEC_ARTIFACTS = 1, 2
CONTROL_END = 3
SIGNALLED = 1


def tsc_khz():
    """The speed of this host's counter, which an emulated kernel without a PIT must be told."""
    with contextlib.suppress(OSError, IndexError, ValueError):
        import ctypes
        import mmap

        # rdtsc; shl rdx, 32; or rax, rdx; ret
        code = mmap.mmap(-1, mmap.PAGESIZE, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC)
        code.write(bytes.fromhex("0f3148c1e2204809d0c3"))
        rdtsc = ctypes.CFUNCTYPE(ctypes.c_uint64)(ctypes.addressof(ctypes.c_char.from_buffer(code)))
        best = None
        for _ in range(5):  # the reading that was disturbed least
            start, first = time.clock_gettime_ns(time.CLOCK_MONOTONIC_RAW), rdtsc()
            while time.clock_gettime_ns(time.CLOCK_MONOTONIC_RAW) - start < 20_000_000:
                pass
            before = time.clock_gettime_ns(time.CLOCK_MONOTONIC_RAW)
            last = rdtsc()
            after = time.clock_gettime_ns(time.CLOCK_MONOTONIC_RAW)
            if best is None or after - before < best[0]:
                best = after - before, (last - first) * 1_000_000 // (before - start)
        return best[1]
    raise RuntimeError("the speed of this host's time stamp counter can not be measured")


def field(tag, data):
    data = data if isinstance(data, bytes) else struct.pack("<I", data) if isinstance(data, int) else data.encode()
    return struct.pack("<BI", tag, len(data)) + data


def fields(payload):
    at, found = 0, []
    while at < len(payload):
        tag, length = struct.unpack_from("<BI", payload, at)
        found.append((tag, payload[at + 5:at + 5 + length]))
        at += 5 + length
    return found


def limits(disk=64 << 20, inodes=4096, memory=0, output=1 << 20, artifact=1 << 20, cpu=100, files=256):
    return field(F_LIMITS, struct.pack("<8Q3I", disk, inodes, memory, output, output, 0, artifact, 8 * artifact, 64, files, cpu))


def lease(flags=0, entropy=None, realtime_ns=None, guest="g_test", hostname="cordon-test", machine_id="0" * 31 + "1",
          memory=0, disk=0, inodes=0, pids=64, files=256, cpu=100):
    def text(value):
        return value.encode().ljust(64, b"\0")

    return struct.pack("<II64sQ64s64s64sQQQIIII", VERSION, flags, entropy or os.urandom(64), realtime_ns or time.time_ns(), text(guest),
                       text(hostname), text(machine_id), memory, disk, inodes, pids, files, cpu, 0)


class Exited(Exception):
    """The machine is gone."""


class Outcome:
    def __init__(self):
        self.stdout = self.stderr = self.result_text = b""
        self.errors, self.artifacts, self.dropped = [], {}, []
        self.how = self.status = self.blocked = self.left = self.oom_kills = self.cpu_us = self.peak = None

    @property
    def result(self):
        return json.loads(self.result_text)

    def __repr__(self):
        return f"Outcome({vars(self)})"


class Machine:
    """One QEMU process. template: what it is a copy of; save: what it is to become. Each is {"ram": memfd, "state": path}; in a
    file on a disk the memory would wait for the disk, whose other writers may hold it up for minutes."""

    def __init__(self, image, mode="run", language="python", memory=256, template=None, save=None):
        self.folder = tempfile.mkdtemp(prefix=PREFIX + "vm-")
        self.buffer, self.leased, self.process, self.qmp_buffer = b"", False, None, b""
        manifest = json.loads((image / "manifest.json").read_text())
        ours, theirs = socket.socketpair()
        control, qmp = socket.socketpair()
        self.channel, self.qmp = ours, control
        words = ["mitigations=off quiet loglevel=1 reboot=t panic=-1", manifest["boot"]["append"], f"cordon.mode={mode} cordon.language={language}",
                 os.environ.get("CORDON_TEST_VM_APPEND", "")]
        if manifest["boot"]["acpi"]:
            words.append(f"tsc_early_khz={tsc_khz()}")
        acpi = "on" if manifest["boot"]["acpi"] else "off"
        console = os.environ.get("CORDON_TEST_VM_CONSOLE")
        ram = template["ram"] if template else save["ram"] if save else None
        memory_backend = f"memory-backend-file,id=ram,size={memory}M,mem-path=/proc/self/fd/{ram},share={'off' if template else 'on'}" if ram is not None \
            else f"memory-backend-memfd,id=ram,size={memory}M,share=off"
        command = [
            QEMU, "-nodefaults", "-no-user-config", "-display", "none", "-no-reboot", "-L", "/usr/share/qemu",
            "-M", f"microvm,acpi={acpi},ioapic2=off,pit=on,rtc=on,isa-serial={'on' if console else 'off'},memory-backend=ram", "-accel", "tcg",
            "-cpu", "qemu64", "-smp", "1", "-m", f"{memory}M", "-object", memory_backend,
            "-kernel", str(image / manifest["kernel"]["file"]), "-initrd", str(image / manifest["initrd"]["file"]),
            "-append", " ".join(words) + (" console=ttyS0" if console else ""),
            "-drive", f"id=root,file={image / manifest['root']['file']},format=raw,if=none,readonly=on",
            "-device", "virtio-blk-device,drive=root", "-device", "virtio-serial-device",
            "-chardev", f"socket,id=agent,fd={theirs.fileno()}", "-device", "virtserialport,chardev=agent,name=org.cordon.agent,nr=1",
            "-device", "virtio-rng-device", "-chardev", f"socket,id=qmp,fd={qmp.fileno()}", "-mon", "chardev=qmp,mode=control",
            "-sandbox", "on,obsolete=deny,elevateprivileges=deny,resourcecontrol=deny",
        ]
        if console:
            command += ["-serial", f"file:{console}"]
        if template:
            command += ["-incoming", "defer", "-S"]
        self.log = open(os.path.join(self.folder, "log"), "wb+")
        self.process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=self.log, stderr=self.log,
                                        pass_fds=[theirs.fileno(), qmp.fileno()] + ([] if ram is None else [ram]),
                                        close_fds=True)
        theirs.close()
        qmp.close()
        if template:
            self.restore(template)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def close(self):
        if self.process:
            with contextlib.suppress(ProcessLookupError):
                self.process.send_signal(signal.SIGKILL)
            self.process.wait()
            self.process = None
        for end in (self.channel, self.qmp, self.log):
            end.close()
        shutil.rmtree(self.folder, ignore_errors=True)

    def why(self):
        self.log.seek(0)
        return self.log.read()[-2000:].decode("utf-8", "replace")

    # --- QEMU's own protocol, for templates ---

    def command(self, name, fd=None, **arguments):
        self.qmp.settimeout(PATIENCE_S)
        data = json.dumps({"execute": name, **({"arguments": arguments} if arguments else {})}).encode() + b"\n"
        if fd is None:
            self.qmp.sendall(data)
        else:
            socket.send_fds(self.qmp, [data], [fd])
        while True:
            while b"\n" not in self.qmp_buffer:
                piece = self.qmp.recv(65536)
                if not piece:
                    raise Exited(self.why())
                self.qmp_buffer += piece
            line, _, self.qmp_buffer = self.qmp_buffer.partition(b"\n")
            answer = json.loads(line)
            if "error" in answer:
                raise RuntimeError(f"QEMU refuses {name}: {answer['error']}")
            if "return" in answer:
                return answer["return"]

    def wait_status(self, query, key, wanted, bad=()):
        end = time.monotonic() + PATIENCE_S
        while (found := self.command(query).get(key)) != wanted:
            assert found not in bad and time.monotonic() < end, f"{query}: {key} is {found}"
            time.sleep(0.005)

    def shared_memory(self):
        self.command("qmp_capabilities")
        self.command("migrate-set-capabilities", capabilities=[{"capability": "x-ignore-shared", "state": True}])

    def save(self, template):
        """Stops the machine as it waits and keeps it."""
        self.shared_memory()
        self.command("stop")
        with open(template["state"], "wb") as file:
            self.command("getfd", fd=file.fileno(), fdname="state")
            self.command("migrate", uri="fd:state")
            self.wait_status("query-migrate", "status", "completed", bad=("failed",))

    def restore(self, template):
        self.shared_memory()
        with open(template["state"], "rb") as file:
            self.command("getfd", fd=file.fileno(), fdname="state")
            self.command("migrate-incoming", uri="fd:state")
            end = time.monotonic() + PATIENCE_S
            while self.command("query-status")["status"] == "inmigrate":
                assert time.monotonic() < end, "the copy does not come up"
                time.sleep(0.002)
        self.command("cont")

    # --- frames ---

    def send(self, kind, payload=b"", number=0):
        self.channel.settimeout(PATIENCE_S)
        self.channel.sendall(struct.pack("<BBHI", kind, 0, number, len(payload)) + payload)

    def frame(self, patience=PATIENCE_S):
        """(type, number, payload) of the next one."""
        end = time.monotonic() + patience
        while True:
            if len(self.buffer) >= 8:
                kind, zero, number, length = struct.unpack_from("<BBHI", self.buffer)
                assert zero == 0
                if len(self.buffer) >= 8 + length:
                    payload, self.buffer = self.buffer[8:8 + length], self.buffer[8 + length:]
                    return kind, number, payload
            left = end - time.monotonic()
            assert left > 0, f"the machine said nothing for {patience} s; {self.why()}"
            if not select.select([self.channel], [], [], left)[0]:
                continue
            piece = self.channel.recv(1 << 20)
            if not piece:
                raise Exited(f"the machine ended; {self.why()}")
            self.buffer += piece

    def quiet(self, seconds):
        """Says whether nothing comes for a while: only where the absence itself is claimed."""
        return not self.buffer and not select.select([self.channel], [], [], seconds)[0]

    def ready(self):
        kind, number, payload = self.frame()
        if kind == ERROR:
            raise Exited(dict(fields(payload))[F_REASON].decode())
        assert (kind, number) == (VM_READY, 0), (kind, payload)
        version, language, kept, available, boot_ms = struct.unpack("<IIIQI", payload)
        assert version == VERSION
        return {"language": language, "kept": kept, "available": available, "boot_ms": boot_ms}

    def rehearse(self, **what):
        """As a lease, of which nothing is to last."""
        self.send(VM_LEASE, lease(flags=REHEARSAL, realtime_ns=PAST_NS, **what))
        return self.ready()

    def lease(self, **what):
        self.send(VM_LEASE, lease(**what))
        kind, _, payload = self.frame()
        assert (kind, payload) == (VM_LEASED, struct.pack("<I", VERSION)), (kind, payload)
        self.leased = True

    # --- a run ---

    def run(self, code, stdin=None, arguments=None, files=None, env=(), artifacts=False, ready=True, language="python", **leased):
        if ready:
            self.ready()
        if not self.leased:
            self.lease(**leased)
        kind, _, payload = self.frame()
        assert (kind, payload) == (HELLO, struct.pack("<I", 1)), (kind, payload)
        for path, data in (files or {}).items():
            self.send(FILE_OPEN, field(F_PATH, path) + field(F_MODE, 0o644))
            self.send(FILE_DATA, data)
            self.send(FILE_CLOSE)
        flags = (EXEC_STDIN if stdin is not None else 0) | (EXEC_ARTIFACTS if artifacts else 0)
        job = field(F_LANGUAGE, language) + limits(memory=leased.get("memory", 0)) + field(F_FLAGS, flags)
        job += b"".join(field(F_ENV, entry) for entry in env)
        if arguments is not None:
            job += field(F_ARGUMENTS, json.dumps(arguments))
        self.send(EXEC, job + field(F_CODE, code), 1)
        if stdin is not None:
            self.send(STDIN, stdin, 1)
            self.send(STDIN_EOF, b"", 1)
        return self.outcome(artifacts)

    def outcome(self, artifacts=False):
        out, name = Outcome(), None
        while True:
            kind, number, payload = self.frame()
            if kind in (STDOUT, STDERR):
                stream = "stdout" if kind == STDOUT else "stderr"
                setattr(out, stream, getattr(out, stream) + payload)
                self.send(CREDIT, struct.pack("<BI", 1 if kind == STDOUT else 2, len(payload)), number)
            elif kind == RESULT:
                out.result_text += payload
            elif kind in (ERROR, RESULT_ERROR):
                out.errors.append(payload)
            elif kind == EXIT:
                self.take_exit(out, payload)
                if not artifacts:
                    return out
                self.send(COLLECT, limits(), number)
            elif kind == ARTIFACT_OPEN:
                name = dict(fields(payload))[F_PATH].decode()
                out.artifacts[name] = b""
            elif kind == ARTIFACT_DATA:
                out.artifacts[name] += payload
            elif kind == ARTIFACT_DROPPED:
                out.dropped.append(fields(payload))
            elif kind == COLLECTED:
                return out

    @staticmethod
    def take_exit(out, payload):
        out.how, out.status, _, _, out.left, _, blocked, _, out.oom_kills, out.cpu_us, out.peak = struct.unpack("<IiQQII32sIIQQ", payload)
        out.blocked = blocked.rstrip(b"\0").decode()


class Kept:
    """The operations of a kept guest that tests need, one at a time."""

    def __init__(self, machine):
        self.machine, self.numbers = machine, itertools.count(1)

    def begin(self, epoch=1):
        kind, _, payload = self.machine.frame()
        assert (kind, payload) == (READY, struct.pack("<II", 2, epoch)), (kind, payload)

    def set_up(self, **what):
        self.machine.send(SETUP, limits(**what) + field(F_ENV, "FROM_SETUP=1"))
        while (kind := self.machine.frame()[0]) == RUNNING:
            continue
        assert kind == DONE

    def operation(self, kind, payload=b"", writes=()):
        """(frames of it until CLOSED): each write is (to, bytes)."""
        number, found = next(self.numbers), []
        self.machine.send(OPEN, field(F_OPERATION, kind) + payload, number)
        for to, data in writes:
            self.machine.send(WRITE, bytes((to,)) + data, number)
        for to in {to for to, _ in writes}:
            self.machine.send(CONTROL, struct.pack("<II", CONTROL_END, to), number)
        while True:
            got, of, data = self.machine.frame()
            if of != number:
                continue
            if got == CLOSED:
                return found
            found.append((got, data))
            if got == OUTPUT:
                self.machine.send(WINDOW, struct.pack("<I", 8 + len(data)), number)
            if got in (ENDED, DONE, FAILED, DISK):
                self.machine.send(CLOSE, b"", number)
