# SPDX-License-Identifier: Apache-2.0
"""The disk of the virtual machine: a stock Debian, made from its packages by mmdebstrap, kept under the hash of all that
it is made from."""
import hashlib
import pathlib
import shutil
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
SUITE = "bookworm"
PACKAGES = [
    # The machine: what a server installation has.
    "linux-image-cloud-amd64", "initramfs-tools", "systemd-sysv", "dbus", "dbus-user-session", "libpam-systemd", "udev",
    "kmod", "procps", "util-linux-extra",
    # The package's recommendations that the tests need, and the tests' own.
    "python3", "python3-pytest", "nodejs", "curl",
]
SIZE = "2G"
FILES = ("customize", "vm-test.service", "vm-test")


def run(*command, **options):
    return subprocess.run([str(word) for word in command], check=True, **options)


def dependencies(deb):
    """The names of the packages that DEB needs, without versions; of alternatives the first."""
    field = run("dpkg-deb", "-f", deb, "Depends", capture_output=True, text=True).stdout
    names = [part.split("|")[0].split("(")[0].strip() for part in field.split(",")]
    return sorted(name for name in names if name and not name.startswith("systemd"))


def key(packages):
    hashed = hashlib.sha256()
    for text in (SUITE, SIZE, " ".join(packages), *((HERE / name).read_text() for name in FILES)):
        hashed.update(text.encode() + b"\0")
    return hashed.hexdigest()[:16]


def make(cache, deb):
    """The folder with vmlinuz, initrd.img and disk.ext4 of the image for DEB's needs."""
    packages = sorted(set(PACKAGES + dependencies(deb)))
    folder = cache / f"image-{key(packages)}"
    if not folder.exists():
        print(f"vm: making the image {folder} (mmdebstrap, once)", file=sys.stderr)
        work = pathlib.Path(tempfile.mkdtemp(prefix="making-", dir=cache))
        try:
            build(work, packages)
            work.rename(folder)
        except BaseException:
            shutil.rmtree(work, ignore_errors=True)
            raise
    return folder


def build(work, packages):
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
