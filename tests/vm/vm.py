#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""
vm.py --cache DIR DEB [FILTER]: installs the package DEB in a stock Debian, booted under QEMU's software emulation with
Debian's own kernel, systemd and cgroup v2 alone, and runs tests/vm/guest/ there. The last line is the sum of the tests.

The image is made from Debian's packages by mmdebstrap and kept in DIR under the hash of all that it is made from. What
is tested comes on a second disk, a tar: so a new build needs no new image. The guest's results come on its second
serial port (`result.log`), its console is `console.log`. The guest has no network.

While the file /tmp/quiet exists (somebody measures on this machine) the guest stands still.
"""
import argparse
import hashlib
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import tarfile
import tempfile
import time

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parent.parent
SUITE = "bookworm"
PACKAGES = [
    # The machine: what a server installation has.
    "linux-image-cloud-amd64", "initramfs-tools", "systemd-sysv", "dbus", "dbus-user-session", "libpam-systemd", "udev",
    "kmod", "procps", "util-linux-extra",
    # The package's recommendations that the tests need, and the tests' own.
    "python3", "python3-pytest", "nodejs", "curl",
]
SIZE = "2G"
# Under emulation nothing is quick; the whole is bounded.
DEADLINE_S = 2400
END = re.compile(rb"^VM-TEST-END (\d+)\r?$", re.M)
QUIET = pathlib.Path("/tmp/quiet")


def run(*command, **options):
    return subprocess.run([str(word) for word in command], check=True, **options)


def dependencies(deb):
    """The names of the packages that DEB needs, without versions; of alternatives the first."""
    field = run("dpkg-deb", "-f", deb, "Depends", capture_output=True, text=True).stdout
    names = [part.split("|")[0].split("(")[0].strip() for part in field.split(",")]
    return sorted(name for name in names if name and not name.startswith("systemd"))


def image_key(packages):
    hashed = hashlib.sha256()
    for text in (SUITE, SIZE, " ".join(packages), (HERE / "customize").read_text(), (HERE / "cordon-vm-test.service").read_text()):
        hashed.update(text.encode() + b"\0")
    return hashed.hexdigest()[:16]


def make_image(cache, deb):
    """(kernel, initrd, disk) of the image for DEB's needs."""
    packages = sorted(set(PACKAGES + dependencies(deb)))
    folder = cache / f"image-{image_key(packages)}"
    if not folder.exists():
        print(f"vm: making the image {folder} (mmdebstrap, once)", file=sys.stderr)
        work = pathlib.Path(tempfile.mkdtemp(prefix="making-", dir=cache))
        try:
            build_image(work, packages)
            work.rename(folder)
        except BaseException:
            shutil.rmtree(work, ignore_errors=True)
            raise
    return folder / "vmlinuz", folder / "initrd.img", folder / "disk.ext4"


def build_image(work, packages):
    tree = work / "tree"
    # In a mount namespace of its own: what it mounts in the tree is gone with it, however it ends.
    run("unshare", "--mount", "mmdebstrap", "--variant=minbase", "--quiet", f"--include={','.join(packages)}",
        # A small initramfs: only what the virtual disk needs.
        "--essential-hook=mkdir -p $1/etc/initramfs-tools/conf.d",
        "--essential-hook=printf 'MODULES=list\\nCOMPRESS=gzip\\n' >$1/etc/initramfs-tools/conf.d/cordon",
        "--essential-hook=printf 'virtio_pci\\nvirtio_blk\\next4\\ncrc32c_generic\\n' >$1/etc/initramfs-tools/modules",
        f"--customize-hook={HERE}/customize $1 {HERE}",
        "--dpkgopt=path-exclude=/usr/share/doc/*", "--dpkgopt=path-exclude=/usr/share/locale/*",
        SUITE, tree, stdout=sys.stderr)
    for name in ("vmlinuz", "initrd.img"):
        shutil.copy((tree / "boot").glob(name + "-*").__next__(), work / name)
    run("mke2fs", "-q", "-t", "ext4", "-O", "^metadata_csum,^has_journal", "-d", tree, work / "disk.ext4", SIZE,
        stdout=sys.stderr)
    shutil.rmtree(tree)


def make_payload(path, deb, words):
    """The second disk: the package, the tests, and the filter."""
    with tarfile.open(path, "w") as tar:
        tar.add(deb, "cordon.deb")
        for folder in ("tests/api", "tests/hostile", "tests/lib", "tests/vm/guest", "tests/conftest.py", "tests/pytest.ini",
                       "tools/summary", "examples"):
            tar.add(ROOT / folder, folder, filter=lambda info: None if "__pycache__" in info.name else info)
        filters = tempfile.NamedTemporaryFile("w", suffix=".filter")  # noqa: SIM115 - closed with the function
        filters.write(" or ".join(words))
        filters.flush()
        tar.add(filters.name, "filter")
    # virtio-blk wants whole sectors.
    os.truncate(path, (path.stat().st_size + 4095) // 4096 * 4096)


def command_line(kernel, initrd, disk, work, cpus):
    return [
        "qemu-system-x86_64", "-nodefaults", "-no-user-config", "-display", "none", "-no-reboot",
        "-M", "q35", "-accel", "tcg,thread=multi", "-cpu", "qemu64,+ssse3,+sse4.1,+sse4.2,+popcnt", "-smp", str(cpus),
        "-m", "2G", "-kernel", str(kernel), "-initrd", str(initrd),
        "-append", "root=/dev/vda rw console=ttyS0 systemd.unified_cgroup_hierarchy=1 panic=-1 mitigations=off "
                   "fsck.mode=skip loglevel=4 systemd.mask=e2scrub_reap.service systemd.mask=serial-getty@ttyS0.service",
        "-drive", f"file={disk},format=raw,if=virtio,snapshot=on",
        "-drive", f"file={work}/payload.tar,format=raw,if=virtio,readonly=on",
        "-device", "virtio-rng-pci",
        "-serial", f"file:{work}/console.log", "-serial", f"file:{work}/result.log",
    ]


def tail(path, seen):
    """Prints what was added to path since `seen` bytes; returns the new count."""
    with open(path, "rb") as file:
        file.seek(seen)
        data = file.read()
    sys.stderr.write(data.decode("utf-8", "replace").replace("\r", ""))
    sys.stderr.flush()
    return seen + len(data)


def watch(process, result):
    """Shows the results as they come, until the guest is off or the time is over."""
    seen, spent, stopped = 0, 0, False
    while process.poll() is None:
        time.sleep(1)
        if QUIET.exists() != stopped:
            stopped = not stopped
            process.send_signal(signal.SIGSTOP if stopped else signal.SIGCONT)
        spent += not stopped
        seen = tail(result, seen)
        if spent > DEADLINE_S:
            print(f"vm: the guest took longer than {DEADLINE_S} s and is ended", file=sys.stderr)
            process.kill()
            break
    process.wait()
    tail(result, seen)
    return spent


def boot(command, work):
    result = work / "result.log"
    result.touch()
    # snapshot=on writes there, and removes it.
    process = subprocess.Popen(command, stdin=subprocess.DEVNULL, env={**os.environ, "TMPDIR": str(work)})
    try:
        return watch(process, result)
    finally:
        if process.poll() is None:
            process.send_signal(signal.SIGCONT)
            process.kill()
            process.wait()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--cache", type=pathlib.Path, required=True)
    parser.add_argument("--cpus", type=int, default=2)
    parser.add_argument("deb", type=pathlib.Path)
    parser.add_argument("filter", nargs="*")
    wanted = parser.parse_args()
    cache = wanted.cache.resolve()
    cache.mkdir(parents=True, exist_ok=True)
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    image = make_image(cache, wanted.deb)
    work = cache / "last"
    shutil.rmtree(work, ignore_errors=True)
    work.mkdir()
    make_payload(work / "payload.tar", wanted.deb, wanted.filter)
    spent = boot(command_line(*image, work, wanted.cpus), work)
    log = (work / "result.log").read_bytes()
    end = END.search(log)
    print(f"vm: {spent} s; results in {work}/result.log, console in {work}/console.log", file=sys.stderr)
    if not end:
        sys.stderr.write((work / "console.log").read_text(errors="replace")[-3000:])
        print("FAILED  the guest did not come to its end\n0 passed, 1 failed")
        return 1
    lines = log[:end.start()].decode("utf-8", "replace").replace("\r", "").rstrip().splitlines()
    print("\n".join(line for line in lines if line.startswith(("FAILED ", "SKIPPED "))))
    print(lines[-1])
    return int(end.group(1))


if __name__ == "__main__":
    sys.exit(main())
