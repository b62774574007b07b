# SPDX-License-Identifier: Apache-2.0
"""
The virtual machine. It is booted once for an image, by systemd as on any server, and saved when it is up: memory, devices
and disk in one file. Each use starts from a copy of that, so that it needs seconds and finds the same machine; what is
tested was not there when it was saved. The saved state is kept under the hash of the command line and QEMU's version.

Two serial ports: the console, a file, and the tests' own line, a socket.
"""
import contextlib
import hashlib
import json
import os
import pathlib
import select
import shutil
import signal
import socket
import subprocess
import sys
import time

QEMU = "qemu-system-x86_64"
READY = b"VM-READY"
BOOT_S = 600
# A sector count that never changes: the restored machine has read it already.
PAYLOAD_BYTES = 64 << 20
# While this file exists somebody measures on this machine: the virtual one stands still.
QUIET = pathlib.Path("/tmp/quiet")


class Failure(Exception):
    """Told as a sentence; the machine's own words are in its console's log."""


def options(image, cpus):
    """What the saved state depends on. Without SVM, so without /dev/kvm: now and then the emulated CPUs lock up for good
    (spinning, interrupts off, EFER.SVME set) while the guest's KVM makes or ends a machine, as doctor's trial of it has it do."""
    return [
        "-nodefaults", "-no-user-config", "-display", "none", "-no-reboot",
        "-M", "q35", "-accel", "tcg,thread=multi", "-cpu", "qemu64,-svm,+ssse3,+sse4.1,+sse4.2,+popcnt", "-smp", str(cpus),
        "-m", "2G", "-kernel", f"{image}/vmlinuz", "-initrd", f"{image}/initrd.img",
        "-append", "root=/dev/vda rw console=ttyS0 systemd.unified_cgroup_hierarchy=1 panic=-1 mitigations=off "
                   "fsck.mode=skip loglevel=4 systemd.mask=e2scrub_reap.service systemd.mask=serial-getty@ttyS0.service",
        "-device", "virtio-rng-pci",
    ]


class Machine:
    """A QEMU process with its files in WORK; use as a context manager."""

    def __init__(self, image, work, disk, cpus, *more):
        self.work, self.pending, self.stopped, self.spent = work, b"", False, 0
        payload = work / "payload.tar"
        if not payload.exists():
            payload.touch()
        os.truncate(payload, PAYLOAD_BYTES)
        self.line = socket.socket(socket.AF_UNIX)
        self.monitor = socket.socket(socket.AF_UNIX)
        # Relative names: a socket's whole path may be too long for the kernel.
        self.process = subprocess.Popen(
            [QEMU, *options(image, cpus), *more, "-drive", f"file={disk},format=qcow2,if=virtio",
             "-drive", f"file={payload},format=raw,if=virtio,readonly=on", "-qmp", "unix:qmp.sock,server=on,wait=off",
             "-serial", "file:console.log", "-serial", "unix:line.sock,server=on,wait=off"],
            stdin=subprocess.DEVNULL, cwd=work)

    def __enter__(self):
        try:
            for sock, name in ((self.line, "line.sock"), (self.monitor, "qmp.sock")):
                self.connect(sock, self.work / name)
            self.replies = self.monitor.makefile("rb")
            self.command("qmp_capabilities")
        except BaseException:
            self.end()
            raise
        return self

    def __exit__(self, *_):
        self.end()

    def connect(self, sock, path):
        folder = os.open(path.parent, os.O_PATH)
        try:
            for _ in range(600):
                if self.process.poll() is not None:
                    raise Failure(f"QEMU ended with status {self.process.returncode} before it began")
                with contextlib.suppress(FileNotFoundError, ConnectionRefusedError):
                    sock.connect(f"/proc/self/fd/{folder}/{path.name}")
                    return
                time.sleep(0.1)
        finally:
            os.close(folder)
        raise Failure(f"QEMU did not open {path}")

    def command(self, name, **arguments):
        """A command of QEMU's control protocol; its answer. Events are passed over."""
        self.monitor.sendall(json.dumps({"execute": name, "arguments": arguments}).encode())
        for text in self.replies:
            answer = json.loads(text)
            if "error" in answer:
                raise Failure(f"QEMU's {name}: {answer['error']['desc']}")
            if "return" in answer:
                return answer["return"]
        raise Failure(f"QEMU ended at the command {name}")

    def save(self, name):
        told = self.command("human-monitor-command", **{"command-line": f"savevm {name}"})
        if told.strip():
            raise Failure(f"QEMU could not save the machine: {told.strip()}")
        self.command("quit")
        self.process.wait(60)

    def keep_quiet(self):
        if QUIET.exists() != self.stopped:
            self.stopped = not self.stopped
            self.process.send_signal(signal.SIGSTOP if self.stopped else signal.SIGCONT)

    def read(self, seconds=1.0):
        """What came on the line within the time, or b"" (nothing yet), or None (the machine is off)."""
        self.keep_quiet()
        began = time.monotonic()
        ready, _, _ = select.select([self.line], [], [], seconds)
        data = self.line.recv(65536) if ready else b""
        if not self.stopped:
            self.spent += time.monotonic() - began
        return None if ready and not data else data

    def wait_for(self, word, seconds):
        """Reads until the word came, or tells that it did not."""
        end = self.spent + seconds
        seen = b""
        while word not in seen:
            data = self.read()
            if data is None:
                raise Failure("the machine went off while it booted")
            seen += data
            if self.spent > end:
                raise Failure(f"the machine did not say {word.decode()} within {seconds} s")

    def write(self, data):
        self.line.sendall(data)

    def end(self):
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGCONT)
            self.process.kill()
        self.process.wait()
        self.line.close()
        self.monitor.close()


def saved_state(image, cache, cpus):
    """The file with the booted machine; boots it where there is none yet."""
    version = subprocess.run([QEMU, "--version"], check=True, capture_output=True, text=True).stdout
    told = "\0".join([version, *options(image, cpus)])
    path = image / f"booted-{hashlib.sha256(told.encode()).hexdigest()[:16]}.qcow2"
    if path.exists():
        return path
    print(f"vm: booting the image (once; its console: {cache}/boot/console.log)", file=sys.stderr)
    work = cache / "boot"
    shutil.rmtree(work, ignore_errors=True)
    work.mkdir()
    disk = work / "disk.qcow2"
    subprocess.run(["qemu-img", "create", "-q", "-f", "qcow2", "-b", image / "disk.ext4", "-F", "raw", disk], check=True)
    with Machine(image, work, disk, cpus) as machine:
        machine.wait_for(READY, BOOT_S)
        machine.save("booted")
        print(f"vm: booted after {machine.spent:.0f} s", file=sys.stderr)
    disk.rename(path)
    return path


def start(image, cache, work, cpus):
    """A machine that is up, from the saved state."""
    disk = work / "disk.qcow2"
    shutil.copyfile(saved_state(image, cache, cpus), disk)
    return Machine(image, work, disk, cpus, "-loadvm", "booted")
