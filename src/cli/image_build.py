#!/usr/bin/python3 -I
# SPDX-License-Identifier: Apache-2.0
"""
Makes what virtual machines of `exec-sandbox` start from: a kernel, an initramfs and a root file system, out of Debian's
packages alone. `cordon image build` runs it (image.c) with the files of the program itself in PARTS: the agent, the
interpreters' drivers, the code's filter.

The packages are resolved and fetched by apt, in folders of its own, so the host's selection of packages plays no part;
they are unpacked and never installed: no maintainer script runs, and what those would do is done here (the tables below).
Neither root nor a mount is needed.

The same packages give the same bytes: one order of names, one time, one owner, one UUID. What was made is kept and used
again while what it was made from is the same (`made_from` of the manifest); a changed agent makes only the initramfs anew.
"""
import argparse
import concurrent.futures
import gzip
import hashlib
import json
import lzma
import os
import pathlib
import re
import shutil
import stat
import struct
import subprocess
import sys
import tempfile
import time

FORMAT = 1
SUITE = "bookworm"
MIRROR = "http://deb.debian.org/debian"
SECURITY = "http://deb.debian.org/debian-security"
KEYRING = "/usr/share/keyrings/debian-archive-keyring.gpg"
KERNEL = "linux-image-cloud-amd64"
UUID = "636f7264-6f6e-4d00-8000-766d696d6167"

BASE = ["base-files", "bash", "ca-certificates", "coreutils", "dash", "debianutils", "diffutils", "findutils", "grep",
        "gzip", "hostname", "libc-bin", "mawk", "media-types", "netbase", "nodejs", "procps", "python3", "python3-pip",
        "python3-requests", "sed", "tar", "tzdata", "util-linux", "xz-utils"]
DATA = ["python3-numpy", "python3-pandas"]

# The drivers that a machine needs before its root is there, and what they depend on is added. (virtio_net: for machines
# that have a network device.)
MODULES = ["virtio_mmio", "virtio_blk", "virtio_console", "virtio_rng", "virtio_net", "erofs", "overlay"]

# What no program reads, and what only packages' scripts are written in. (Tests of packages are a third of numpy's and
# pandas's size.)
DROPPED = re.compile(
    r"boot/|dev/|run/|proc/|sys/|tmp/|var/|home/|root/|mnt/|media/|srv/|etc/(?!alternatives|ssl|fonts|python3|mime|services|protocols|"
    r"inputrc|debian_version|os-release|ld\.so)"
    r"|usr/share/(doc|man|info|locale|lintian|bug|bash-completion|zsh|fish|doc-base|pixmaps|icons|applications|menu|gcc|gdb|i18n)/"
    r"|usr/share/nodejs/@types/|usr/share/zoneinfo/(right|posix)/|usr/src/|.*/perl(-base)?/|usr/bin/perl|.*/libperl\.so"
    r"|usr/lib/(udev|modules|systemd|klibc|init)/|usr/lib/x86_64-linux-gnu/(gconv|systemd)/"
    r"|usr/lib/python3[.\d]*/(test|idlelib|ensurepip|turtledemo)/|usr/lib/python3[.\d]*/dist-packages/.*/tests/"
    r"|.*/__pycache__/")
MERGED = ["bin", "sbin", "lib", "lib64", "lib32", "libx32"]
# What is mounted, or made at the start of a machine.
FOLDERS = ["dev", "etc/alternatives", "etc/ssl/certs", "home", "mnt", "proc", "root", "run", "sys", "tmp", "usr/local/bin",
           "usr/local/lib", "var"]
# Of update-alternatives, and of packages' scripts: link, target, only where that is there.
LINKS = [
    ("usr/lib/x86_64-linux-gnu/libblas.so.3", "blas/libblas.so.3"),
    ("usr/lib/x86_64-linux-gnu/liblapack.so.3", "lapack/liblapack.so.3"),
    ("usr/bin/awk", "mawk"),
    ("usr/bin/which", "which.debianutils"),
    ("usr/bin/node", "nodejs"),
    ("usr/bin/sh", "dash"),
]


def say(text):
    print(f"image: {text}", file=sys.stderr, flush=True)


def fail(text):
    say(text)
    sys.exit(1)


def run(*command, **options):
    words = [str(word) for word in command]
    try:
        done = subprocess.run(words, capture_output=True, text=True, stdin=subprocess.DEVNULL, check=False, **options)
    except FileNotFoundError:
        fail(f"{words[0]} is not there; on Debian: apt-get install --no-install-recommends apt erofs-utils lz4 zstd")
    if done.returncode != 0:
        fail(f"{' '.join(words[:6])} … failed with status {done.returncode}:\n{(done.stderr or done.stdout)[-2000:]}")
    return done.stdout


def digest(data):
    return hashlib.sha256(data).hexdigest()


def file_digest(path):
    hashed = hashlib.sha256()
    with open(path, "rb") as file:
        while piece := file.read(1 << 20):
            hashed.update(piece)
    return hashed.hexdigest()


# --- packages ---

class Apt:
    """apt with folders of its own. The host's proxies hold, its sources and its installed packages don't."""

    def __init__(self, folder, arguments):
        self.folder = folder
        for name in ("state/lists/partial", "cache/archives/partial", "etc"):
            (folder / name).mkdir(parents=True)
        (folder / "status").touch()
        sources = [(arguments.mirror, SUITE), (arguments.mirror, SUITE + "-updates"), (arguments.security, SUITE + "-security")]
        signed = "" if not os.path.exists(KEYRING) else f"[signed-by={KEYRING}] "
        (folder / "etc/sources.list").write_text("".join(f"deb {signed}{url} {suite} main\n" for url, suite in sources))
        (folder / "apt.conf").write_text(
            f'Dir::State "{folder}/state";\nDir::State::status "{folder}/status";\nDir::Cache "{folder}/cache";\n'
            f'Dir::Etc::sourcelist "{folder}/etc/sources.list";\nDir::Etc::sourceparts "/dev/null";\n'
            'Dir::Etc::preferences "/dev/null";\nDir::Etc::preferencesparts "/dev/null";\nDir::Log "/dev/null";\n'
            'Dir::Cache::pkgcache "";\nDir::Cache::srcpkgcache "";\nAPT::Architecture "amd64";\nAPT::Architectures "amd64";\n'
            'APT::Install-Recommends "false";\nAcquire::Languages "none";\nAcquire::Retries "3";\nAPT::Sandbox::User "root";\n')
        self.environment = {**os.environ, "APT_CONFIG": str(folder / "apt.conf"), "LC_ALL": "C.UTF-8"}

    def get(self, *words, **options):
        return run(*words, env=self.environment, **options)

    def fetch(self, packages):
        """The packages with all they need, and the kernel alone: two lists of files, in one order."""
        self.get("apt-get", "-q", "update")
        self.get("apt-get", "-q", "-y", "--download-only", "install", *packages)
        kernel = re.search(r"Depends: (linux-image-[^\s]+)", self.get("apt-cache", "depends", KERNEL))
        if not kernel:
            fail(f"{KERNEL} names no kernel; is {SUITE} still served by the mirror?")
        (self.folder / "kernel").mkdir()
        self.get("apt-get", "-q", "download", kernel[1], cwd=self.folder / "kernel")
        return sorted((self.folder / "cache/archives").glob("*.deb")), sorted((self.folder / "kernel").glob("*.deb"))


def versions(debs):
    found = {}
    for deb in debs:
        name, version, _ = deb.stem.split("_")
        found[name] = version.replace("%3a", ":")
    return found


def members(deb):
    """(name, header, data) of a package's files, names without "./" and with all programs below usr/."""
    import tarfile

    process = subprocess.Popen(["dpkg-deb", "--fsys-tarfile", str(deb)], stdout=subprocess.PIPE)
    with tarfile.open(fileobj=process.stdout, mode="r|") as tar:
        for info in tar:
            name = re.sub(r"^\.?/+", "", info.name).rstrip("/")
            top = name.split("/")[0]
            if top in MERGED:
                name = "usr/" + name
            yield name, info, tar.extractfile(info).read() if info.isreg() else None
            if info.islnk() and info.linkname.lstrip("./").split("/")[0] in MERGED:
                info.linkname = "usr/" + info.linkname.lstrip("./")
    process.stdout.close()
    if process.wait() != 0:
        fail(f"dpkg-deb can not read {deb}")


# --- the root ---

def unpack(debs, tree):
    for deb in debs:
        for name, info, data in members(deb):
            if name and not DROPPED.match(name + "/" if info.isdir() else name):
                place(tree, name, info, data)


def place(tree, name, info, data):
    path = tree / name
    path.parent.mkdir(parents=True, exist_ok=True)
    if info.isdir():
        path.mkdir(exist_ok=True)
        return
    if path.is_symlink() or path.is_file():
        path.unlink()
    if info.issym():
        path.symlink_to(info.linkname)
    elif info.islnk():
        target = re.sub(r"^\.?/+", "", info.linkname)
        os.link(tree / (target if not target.split("/")[0] in MERGED else "usr/" + target), path)
    elif info.isreg():
        path.write_bytes(data)
        path.chmod(info.mode & 0o755 | 0o444)  # no program gains an id in a guest


def finish(tree):
    """What the packages' scripts would have done."""
    for name in FOLDERS:
        (tree / name).mkdir(parents=True, exist_ok=True)
    for name in MERGED:
        if (tree / "usr" / name).is_dir():
            (tree / name).symlink_to("usr/" + name)
    for link, target in LINKS:
        path = tree / link
        if (path.parent / target).exists() and not path.exists() and not path.is_symlink():
            path.symlink_to(target)
    certificates = sorted((tree / "usr/share/ca-certificates/mozilla").glob("*.crt"))
    (tree / "etc/ssl/certs/ca-certificates.crt").write_bytes(b"".join(file.read_bytes() for file in certificates))
    for folder, _, names in os.walk(tree):
        os.chmod(folder, 0o755)
        for name in names:
            path = os.path.join(folder, name)
            if not os.path.islink(path) and not stat.S_ISREG(os.lstat(path).st_mode):
                os.unlink(path)


def compile_python(tree):
    """Byte code beside the sources, by the tree's own interpreter: under emulation compiling at each start costs seconds.
    It is never checked against the source, which can't change here."""
    library = tree / "usr/lib/x86_64-linux-gnu"
    loader = tree / "usr/lib64/ld-linux-x86-64.so.2"
    python = sorted((tree / "usr/bin").glob("python3.[0-9]*"))[0]
    version = python.name
    code = (f"import compileall, sys\n"
            f"sys.exit(not all([compileall.compile_dir(d, quiet=2, force=True, stripdir={str(tree)!r}, prependdir='/', maxlevels=30, workers=1,\n"
            f"  invalidation_mode=__import__('py_compile').PycInvalidationMode.UNCHECKED_HASH) or True for d in sys.argv[1:]]))")
    folders = [tree / "usr/lib" / version, tree / "usr/lib/python3/dist-packages"]
    environment = {"PYTHONHOME": str(tree / "usr"), "PYTHONHASHSEED": "0", "LC_ALL": "C.UTF-8", "PATH": "/usr/bin:/bin"}

    def compile_one(folder):
        run(os.path.realpath(loader), "--library-path", f"{library}:{tree}/usr/lib", python, "-S", "-c", code, folder, env=environment)

    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        list(pool.map(compile_one, [folder for folder in folders if folder.is_dir()]))


def make_root(debs, to, work):
    tree = work / "tree"
    tree.mkdir()
    unpack(debs, tree)
    finish(tree)
    compile_python(tree)
    run("mkfs.erofs", "-T", "0", "-U", UUID, "--all-root", "-x-1", to, tree)
    shutil.rmtree(tree)


# --- the kernel ---

def decompress(payload):
    if payload[:4] == b"\x02\x21\x4c\x18":
        return pipe(["lz4", "-d", "-c"], payload)
    if payload[:4] == b"\x28\xb5\x2f\xfd":
        return pipe(["zstd", "-d", "-c"], payload)
    if payload[:6] == b"\xfd7zXZ\0":
        return lzma.LZMADecompressor(format=lzma.FORMAT_XZ).decompress(payload)
    if payload[:2] == b"\x1f\x8b":
        return gzip.GzipFile(fileobj=__import__("io").BytesIO(payload)).read()
    return b""


def pipe(command, data):
    """What follows the stream (the kernel puts its size there) makes the tools complain, behind all that is wanted."""
    try:
        return subprocess.run(command, input=data, capture_output=True, check=False).stdout
    except FileNotFoundError:
        fail(f"{command[0]} is not there, which the kernel is packed with; on Debian: apt-get install {command[0]}")


def unpack_kernel(image):
    """The ELF file in a bzImage: it starts faster, through its PVH entry. Anything else is given back as it is."""
    if image[0x202:0x206] != b"HdrS":
        return image
    offset, length = struct.unpack_from("<II", image, 0x248)
    start = ((image[0x1f1] or 4) + 1) * 512 + offset
    elf = decompress(image[start:start + length])
    return elf if elf[:4] == b"\x7fELF" else image


def module_name(path):
    return pathlib.PurePath(path).name.partition(".ko")[0].replace("-", "_")


def needs_of(module):
    found = re.search(rb"(?:^|\0)depends=([^\0]*)\0", module)
    return [name for name in found[1].decode().replace("-", "_").split(",") if name] if found else []


def ordered_modules(found):
    """Names in the order in which they can be loaded. What isn't found is built in."""
    order = []

    def add(name):
        if name in order or name not in found:
            return
        for need in needs_of(found[name]):
            add(need)
        order.append(name)

    for name in MODULES:
        add(name)
    return order


def read_kernel(deb):
    image, found = None, {}
    for name, _, data in members(deb):
        if data is not None and name.startswith("boot/vmlinuz-"):
            image = data
        elif data is not None and "/kernel/" in name and ".ko" in name:
            found[module_name(name)] = data
    if not image:
        fail(f"{deb.name} has no kernel")
    return image, [(name, found[name]) for name in ordered_modules(found)]


# --- the initramfs ---

BEHIND_ROOT = "# --- the " + "initramfs ---"


class Cpio:
    def __init__(self):
        self.data, self.count = bytearray(), 0

    def add(self, name, mode, data=b""):
        self.count += 1
        fields = (self.count, mode, 0, 0, 1, 0, len(data), 0, 0, 0, 0, len(name) + 1, 0)
        self.data += b"070701" + b"".join(b"%08X" % field for field in fields) + name.encode() + b"\0"
        self.data += b"\0" * (-len(self.data) % 4) + data
        self.data += b"\0" * (-len(self.data) % 4)

    def end(self):
        self.add("TRAILER!!!", 0)
        return bytes(self.data) + b"\0" * (-len(self.data) % 512)


def make_modules(modules):
    archive = Cpio()
    archive.add("modules", 0o040755)
    for index, (name, data) in enumerate(modules):
        archive.add(f"modules/{index:02d}-{name}.ko", 0o100644, data)
    return archive.end()


PARTS = ["_cordon_zygote.so", "driver.js", "driver.py", "filter", "zygote.py"]


def make_boot(parts):
    """The agent is what the kernel starts; the rest it puts where guests look for it."""
    archive = Cpio()
    archive.add("init", 0o100755, (parts / "agent").read_bytes())
    for folder in ("cordon", "dev", "proc", "root", "sys"):
        archive.add(folder, 0o040755)
    archive.add("dev/console", 0o020600)
    for name in PARTS:
        archive.add(f"cordon/{name}", 0o100644, (parts / name).read_bytes())
    return archive.end()


# --- the whole ---

def wanted_packages(arguments):
    return sorted(set(BASE + ([] if arguments.minimal else DATA) + arguments.add))


def keys(arguments):
    """What each half is made from."""
    script = pathlib.Path(__file__).read_text().partition(BEHIND_ROOT)[0]  # what the root is made by
    root = digest(json.dumps([script, wanted_packages(arguments), arguments.mirror, arguments.security]).encode())
    boot = digest("".join(file_digest(arguments.parts / name) for name in ["agent", *PARTS]).encode())
    kernel = file_digest(arguments.kernel) if arguments.kernel else KERNEL
    return {"root": root, "boot": boot, "kernel": kernel}


def read_manifest(folder):
    """The manifest of what is there, when all files are what it says."""
    try:
        manifest = json.loads((folder / "manifest.json").read_text())
        rows = [manifest[name] for name in ("kernel", "initrd", "root", "modules")]
        if manifest["format"] == FORMAT and all(file_digest(folder / row["file"]) == row["sha256"] for row in rows):
            return manifest
    except (OSError, ValueError, KeyError, TypeError):
        pass
    return None


def row(folder, name, **more):
    return {"file": name, "size": (folder / name).stat().st_size, "sha256": file_digest(folder / name), **more}


def build_root(arguments, work, to):
    """Root, kernel and modules, and the parts of a manifest that tell of them."""
    say(f"fetching packages of Debian {SUITE}")
    debs, kernel_debs = Apt(work / "apt", arguments).fetch(wanted_packages(arguments))
    say(f"unpacking {len(debs)} packages")
    make_root(debs, to / "root.erofs", work)
    image, modules = read_kernel(kernel_debs[0])
    (to / "debian-kernel").write_bytes(unpack_kernel(image))
    (to / "modules.cpio").write_bytes(make_modules(modules))
    return {"packages": versions(debs), "debian_kernel": versions(kernel_debs)}


def choose_kernel(arguments, to, manifest):
    """The operator's kernel, or Debian's."""
    if arguments.kernel:
        (to / "vmlinux").write_bytes(unpack_kernel(arguments.kernel.read_bytes()))
        version = str(arguments.kernel.name)
    else:
        shutil.copyfile(to / "debian-kernel", to / "vmlinux")
        version = " ".join(f"{name} {version}" for name, version in manifest["debian_kernel"].items())
    data = (to / "vmlinux").read_bytes()
    # It finds its devices by the command line only if it can; else by ACPI, and then nothing but the host tells it the
    # speed of its clock under emulation.
    acpi = b"virtio_mmio.device" not in data
    manifest["boot"] = {"acpi": acpi, "append": "tsc=reliable" if acpi else ""}
    return row(to, "vmlinux", version=version)


def build(arguments):
    started, made_from, old = time.monotonic(), keys(arguments), read_manifest(arguments.out)
    if old and old["made_from"] == made_from and not arguments.refresh:
        say(f"{arguments.out} is up to date")
        return old
    arguments.out.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=".image-", dir=arguments.out.parent) as name:
        work = pathlib.Path(name)
        to = work / "image"
        to.mkdir()
        if old and old["made_from"]["root"] == made_from["root"] and not arguments.refresh:
            for kept in ("root.erofs", "modules.cpio", "debian-kernel"):
                os.link(arguments.out / kept, to / kept)
            manifest = {key: old[key] for key in ("packages", "debian_kernel")}
        else:
            manifest = build_root(arguments, work, to)
        manifest.update(format=FORMAT, architecture="x86_64", suite=SUITE, languages=["python", "javascript", "bash"],
                        made_from=made_from, kernel=choose_kernel(arguments, to, manifest))
        modules = b"" if arguments.kernel else (to / "modules.cpio").read_bytes()
        (to / "initrd").write_bytes(make_boot(arguments.parts) + modules)
        manifest.update(initrd=row(to, "initrd"), root=row(to, "root.erofs"), modules=row(to, "modules.cpio"))
        (to / "manifest.json").write_text(json.dumps(manifest, indent=1, sort_keys=True) + "\n")
        swap(to, arguments.out, work)
    say(f"made {arguments.out} in {time.monotonic() - started:.0f} s")
    return manifest


def swap(new, out, work):
    """Who has the old files open keeps them."""
    for file in new.iterdir():
        file.chmod(0o644)
    new.chmod(0o755)
    if out.exists():
        out.rename(work / "old")
    new.rename(out)


def parse(words):
    parser = argparse.ArgumentParser(prog="cordon image build", description="Makes the image that virtual machines start from.")
    parser.add_argument("--parts", type=pathlib.Path, required=True, help=argparse.SUPPRESS)
    parser.add_argument("--out", type=pathlib.Path, required=True, help="the image's folder")
    parser.add_argument("--kernel", type=pathlib.Path, help="a kernel of your own: a bzImage or vmlinux with all drivers built in")
    parser.add_argument("--add", action="append", default=[], help="one more Debian package; may come several times")
    parser.add_argument("--minimal", action="store_true", help="without numpy and pandas")
    parser.add_argument("--mirror", default=MIRROR, help="where Debian's packages are")
    parser.add_argument("--security", default=SECURITY, help="where Debian's security updates are")
    parser.add_argument("--refresh", action="store_true", help="even if what it is made from did not change: newer packages")
    arguments = parser.parse_args(words)
    for name in arguments.add:
        if not re.fullmatch(r"[a-z0-9][a-z0-9+.-]+", name):
            fail(f'"{name}" is no name of a Debian package')
    if arguments.kernel and not arguments.kernel.is_file():
        fail(f"there is no kernel {arguments.kernel}")
    arguments.out = pathlib.Path(os.path.abspath(arguments.out))
    return arguments


def main():
    os.umask(0o022)
    manifest = build(parse(sys.argv[1:]))
    for name in ("kernel", "initrd", "root"):
        say(f"  {manifest[name]['file']:<12} {manifest[name]['size'] / 1e6:8.1f} MB")


main()
