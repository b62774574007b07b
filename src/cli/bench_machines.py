#!/usr/bin/python3 -I
# SPDX-License-Identifier: Apache-2.0
"""
cordon bench exec-sandbox: how fast virtual machines start here, beside a reference that does as little as can be done.

The reference is a machine of the image's own kernel that starts the image's own Python as its process 1, out of an
initramfs with what that interpreter needs to print, and nothing else: no init, no disk, no devices but a serial line. Its
time is from QEMU's start to the printed line. Ours are from a request over HTTP to its answer, on daemons of its own. They
take turns, so that what else the host does meets both. Ratios are of medians.
"""
import argparse
import http.client
import json
import mmap
import os
import pathlib
import re
import shutil
import signal
import socket
import stat
import subprocess
import sys
import tempfile
import time

PAGES = 1000  # of the floor
WAIT_S = 300  # for a machine, however slow the host is
# What Python 3.11 reads before it prints; the rest is frozen into it.
MODULES = ["abc.py", "codecs.py", "io.py", "os.py", "encodings/__init__.py", "encodings/aliases.py", "encodings/utf_8.py",
           "encodings/ascii.py", "encodings/latin_1.py"]
KERNEL_WORDS = "console=ttyS0 quiet loglevel=1 reboot=t panic=-1 mitigations=off"


class Failed(Exception):
    pass


def median(values):
    ordered = sorted(values)
    return ordered[len(ordered) // 2] if ordered else float("nan")


def run(*words):
    try:
        done = subprocess.run([str(word) for word in words], capture_output=True, text=True, check=False)
    except FileNotFoundError:
        raise Failed(f"{words[0]} is not there; on Debian: apt-get install erofs-utils") from None
    if done.returncode != 0:
        raise Failed(f"{words[0]}: status {done.returncode}: {(done.stderr or done.stdout)[-600:]}")
    return done.stdout


# --- the reference ---

class Cpio:
    def __init__(self):
        self.data, self.count = bytearray(), 0

    def add(self, name, mode, data=b"", device=(0, 0)):
        self.count += 1
        fields = (self.count, mode, 0, 0, 1, 0, len(data), 0, 0, *device, len(name) + 1, 0)
        self.data += b"070701" + b"".join(b"%08X" % field for field in fields) + name.encode() + b"\0"
        self.data += b"\0" * (-len(self.data) % 4) + data
        self.data += b"\0" * (-len(self.data) % 4)


def inside(tree, path):
    """What an absolute path or a link of the tree's root stands for, in the tree."""
    for _ in range(16):
        name = tree / path.lstrip("/")
        real = pathlib.Path(os.path.realpath(name.parent)) / name.name
        if not real.is_symlink():
            return real
        target = os.readlink(real)
        path = target if target.startswith("/") else str(real.parent.relative_to(tree) / target)
    raise Failed(f"{path} of the image is a ring of links")


def libraries(tree, program):
    """The loader and the libraries that a program names, by its own loader."""
    loader = inside(tree, "/lib64/ld-linux-x86-64.so.2")
    folders = f"{tree}/usr/lib/x86_64-linux-gnu:{tree}/lib/x86_64-linux-gnu"
    listed = run(loader, "--library-path", folders, "--list", program)
    found = {"lib64/ld-linux-x86-64.so.2": loader}
    for name, path in re.findall(r"^\s*(\S+) => (\S+)", listed, re.M):
        if "ld-linux" not in name:
            found["lib/x86_64-linux-gnu/" + name] = pathlib.Path(path)
    return found


def reference_initrd(image, work):
    """(initrd, the interpreter's path in it)"""
    tree = work / "tree"
    run("fsck.erofs", f"--extract={tree}", image / "root.erofs")
    program = inside(tree, "/usr/bin/python3")
    library = pathlib.Path("usr/lib") / program.name
    archive = Cpio()
    made = set()

    def folder(path):
        if str(path) != "." and path not in made:
            folder(path.parent)
            made.add(path)
            archive.add(str(path), stat.S_IFDIR | 0o755)

    def put(name, data, mode=0o755):
        folder(pathlib.PurePosixPath(name).parent)
        archive.add(name, stat.S_IFREG | mode, data)

    put(f"usr/bin/{program.name}", program.read_bytes())
    for name, path in libraries(tree, program).items():
        put(name, path.read_bytes())
    version = re.sub(r"\D", "", program.name.partition("python")[2].replace(".", ""))
    for name in MODULES:
        source = tree / library / name
        if not source.exists():
            continue
        put(f"{library}/{name}", source.read_bytes(), 0o644)
        beside = pathlib.PurePosixPath(name).parent / "__pycache__" / f"{source.stem}.cpython-{version}.pyc"
        compiled = tree / library / beside
        if compiled.exists():
            put(f"{library}/{beside}", compiled.read_bytes(), 0o644)
    folder(library / "lib-dynload")
    folder(pathlib.PurePosixPath("dev"))
    archive.add("dev/console", stat.S_IFCHR | 0o600, device=(5, 1))
    archive.add("dev/urandom", stat.S_IFCHR | 0o666, device=(1, 9))
    archive.add("TRAILER!!!", 0)
    shutil.rmtree(tree)
    made_file = work / "reference.cpio"
    made_file.write_bytes(archive.data)
    return made_file, f"/usr/bin/{program.name}"


class Reference:
    def __init__(self, arguments, work):
        self.arguments = arguments
        try:
            manifest = json.loads((arguments.image / "manifest.json").read_text())
        except (OSError, ValueError) as error:
            raise Failed(f"there is no image in {arguments.image} (CORDON_VM_IMAGE): {error}; make one: cordon image build") from None
        self.kernel = arguments.image / manifest["kernel"]["file"]
        self.initrd, self.python = reference_initrd(arguments.image, work)

    def command(self):
        machine = "microvm,acpi=off,pit=on,rtc=on,isa-serial=on"
        cpu = "host" if self.arguments.accel == "kvm" else "qemu64"
        words = f"{KERNEL_WORDS} rdinit={self.python} -- -I -S -B -c print(6*7*1000003)"
        return [self.arguments.qemu, "-nodefaults", "-no-user-config", "-display", "none", "-no-reboot", "-M", machine,
                "-accel", self.arguments.accel, "-cpu", cpu, "-smp", "1", "-m", "256M", "-kernel", str(self.kernel),
                "-initrd", str(self.initrd), "-serial", "stdio", "-append", words]

    def measure(self):
        """(seconds until the line, CPU seconds that it took)"""
        begin = time.monotonic()
        process = subprocess.Popen(self.command(), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        text = b""
        try:
            while b"42000126" not in text:
                piece = os.read(process.stdout.fileno(), 4096)
                text += piece
                if not piece or time.monotonic() - begin > WAIT_S:
                    raise Failed("the reference machine printed no result: " + text.decode("utf-8", "replace")[-800:])
            took = time.monotonic() - begin
        finally:
            process.kill()
            usage = os.wait4(process.pid, 0)[2] if process.returncode is None else None
            process.returncode = -9
            process.stdout.close()
        return took, usage.ru_utime + usage.ru_stime if usage else float("nan")


# --- the host ---

class Pages:
    """What memory costs that was not used for a while. Where this host is itself a guest, of a hypervisor that shadows its
    page tables, that can be a hundred times what it costs at once, and nothing that has waited can be faster."""

    def __init__(self):
        self.memory = mmap.mmap(-1, PAGES * mmap.PAGESIZE, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        self.memory.madvise(mmap.MADV_NOHUGEPAGE)
        self.touch()

    def touch(self):
        """Milliseconds to write to each."""
        begin = time.perf_counter()
        for at in range(0, PAGES * mmap.PAGESIZE, mmap.PAGESIZE):
            self.memory[at] = 1
        return (time.perf_counter() - begin) * 1000


# --- ours ---

class Daemon:
    def __init__(self, arguments, pool):
        self.state, self.accelerator = tempfile.mkdtemp(prefix="cordon-bench-"), arguments.accel
        with socket.socket() as sock:
            sock.bind(("127.0.0.1", 0))
            self.port = sock.getsockname()[1]
        # Of the host's environment only what names programs and the image counts.
        self.environment = {
            "PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "HOME": "/", "LC_ALL": "C.UTF-8", "CORDON_BACKEND": "exec-sandbox",
            "CORDON_VM_IMAGE": str(arguments.image), "CORDON_VM_QEMU": arguments.qemu, "CORDON_VM_POOL": str(pool),
            "CORDON_ALLOW_SOFTWARE_EMULATION": "true" if arguments.accel == "tcg" else "false",
            "CORDON_MAX_TIMEOUT_S": "600", "CORDON_POOL_PYTHON": "0", "CORDON_POOL_PYTHON_DATA": "0", "CORDON_POOL_MAX": "0",
            "CORDON_POOL_JAVASCRIPT": "0", "CORDON_POOL_BASH": "0", "CORDON_POOL_GUEST": "0"}
        made = subprocess.run([arguments.cordon, "key", "create", "--state", self.state], env=self.environment,
                              capture_output=True, text=True, check=False)
        found = re.search(r"\be2b_[0-9a-f]{40}\b", made.stdout)
        if not found:
            raise Failed(f"no key was made: {made.stdout}{made.stderr}")
        self.key = found.group()
        self.log = open(os.path.join(self.state, "log"), "wb")
        self.process = subprocess.Popen(
            [arguments.cordon, "serve", "--listen", f"127.0.0.1:{self.port}", "--state", self.state], env=self.environment,
            stdin=subprocess.DEVNULL, stdout=self.log, stderr=self.log, cwd="/")

    def __enter__(self):
        try:
            deadline = time.monotonic() + WAIT_S
            while self.get("/readyz") != 200:
                if self.process.poll() is not None or time.monotonic() > deadline:
                    raise Failed("the daemon did not become ready:\n" + self.words())
                time.sleep(0.05)
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_):
        self.process.send_signal(signal.SIGTERM)
        try:
            self.process.wait(60)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        self.log.close()
        shutil.rmtree(self.state, ignore_errors=True)

    def words(self):
        return pathlib.Path(self.log.name).read_text(errors="replace")[-2000:]

    def get(self, path):
        try:
            connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=30)
            connection.request("GET", path)
            return connection.getresponse().status
        except OSError:
            return 0

    def run(self, code):
        """The answer's object, with the client's own wall_ms."""
        body = json.dumps({"language": "python", "code": code, "timeout_s": WAIT_S})
        begin = time.monotonic()
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=2 * WAIT_S)
        connection.request("POST", "/v1/runs", body, {"Authorization": "Bearer " + self.key})
        answer = connection.getresponse()
        found = json.loads(answer.read())
        found["wall_ms"] = (time.monotonic() - begin) * 1000
        connection.close()
        if answer.status != 200 or found["outcome"]["cause"] != "exited" or found["exit_code"] != 0:
            raise Failed(f"a run did not go well: {json.dumps(found)[:800]}\n{self.words()}")
        return found


class Numbered:
    """No two runs have the same program."""
    last = int(time.time()) % 1000000 * 1000

    @classmethod
    def code(cls):
        cls.last += 1
        return f'print("<{cls.last}>")'


def sample(daemon, start, into):
    """One run; counted where its machine came to be as wanted. True: it did."""
    answer = daemon.run(Numbered.code())
    if answer["outcome"]["accelerator"] != daemon.accelerator:
        raise Failed(f"the reference's accelerator is {daemon.accelerator}, a run's {answer['outcome']['accelerator']}")
    if answer["stdout"] != f"<{Numbered.last}>\n":
        raise Failed(f"a run printed {answer['stdout']!r}")
    good = answer["outcome"]["start"] == start
    if good:
        into.append(answer)
    return good


def until(daemon, start, what):
    """Runs until machines come to be as wanted."""
    deadline = time.monotonic() + WAIT_S
    while not sample(daemon, start, []):
        if time.monotonic() > deadline:
            raise Failed(f"{what} did not come within {WAIT_S} s:\n{daemon.words()}")
        time.sleep(0.5)


def machines(daemon):
    """Pids of the daemon's QEMUs."""
    parents, found, todo = {}, [], [daemon.process.pid]
    for entry in filter(str.isdigit, os.listdir("/proc")):
        try:
            text = pathlib.Path(f"/proc/{entry}/stat").read_text()
        except OSError:
            continue
        name, rest = text[text.index("(") + 1:text.rindex(")")], text.rpartition(")")[2].split()
        parents.setdefault(int(rest[1]), []).append((int(entry), name))
    while todo:
        for pid, name in parents.get(todo.pop(), []):
            todo.append(pid)
            if name.startswith("qemu-system"):
                found.append(pid)
    return found


def memory_of(pid):
    """Of one machine in MiB: what it has written, its share, and all that is mapped in. Pages of its template are dirty
    pages of a memfd, and count as private while no other machine maps them: only anonymous ones are its own copies."""
    try:
        text = pathlib.Path(f"/proc/{pid}/smaps_rollup").read_text()
    except OSError:
        return None
    field = lambda name: int(re.search(rf"^{name}:\s+(\d+)", text, re.M)[1]) / 1024
    return {"private": field("Anonymous") + field("Swap"), "pss": field("Pss"), "rss": field("Rss")}


def parked(daemon, count):
    """Memory of the machines in the pool, once all are there and at rest."""
    before, rest, deadline = None, 0, time.monotonic() + WAIT_S
    while time.monotonic() < deadline:
        rows = [row for row in map(memory_of, machines(daemon)) if row]
        now = sum(row["private"] for row in rows)
        rest = rest + 1 if len(rows) == count and before is not None and abs(now - before) < 0.5 else 0
        if rest >= 4:
            return rows
        before = now
        time.sleep(0.5)
    raise Failed(f"{len(machines(daemon))} of {count} parked machines were found")


def rate(daemon, seconds, clients):
    """Machines started and used a second, with several clients."""
    import threading

    counts, errors, end = [0] * clients, [], time.monotonic() + seconds

    def client(index):
        try:
            while time.monotonic() < end:
                daemon.run(f'print("{index} {counts[index]}")')
                counts[index] += 1
        except Failed as error:
            errors.append(str(error))

    begin = time.monotonic()
    threads = [threading.Thread(target=client, args=(index,)) for index in range(clients)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if errors:
        raise Failed(errors[0])
    return sum(counts) / (time.monotonic() - begin)


def say(text):
    print(f"bench: {text}", file=sys.stderr, flush=True)


def measure(arguments, work):
    say("making the reference machine")
    reference, rounds = Reference(arguments, work), arguments.rounds
    times = {"reference": [], "booted": [], "copied": [], "pooled": [], "rested": [], "at once": []}
    cpu = []

    def once_reference():
        took, used = reference.measure()
        times["reference"].append(took * 1000)
        cpu.append(used * 1000)

    reference.measure()  # QEMU, kernel and initramfs are in the page cache from now on
    for index in range(arguments.boots):
        say(f"cold boots, {index + 1} of {arguments.boots}")
        once_reference()
        with Daemon(arguments, 0) as daemon:
            if not sample(daemon, "booted", times["booted"]):
                raise Failed("the first run of a daemon had a machine that was not booted for it")
    say("copies of a template")
    with Daemon(arguments, 0) as daemon:
        until(daemon, "copied", "a template")
        for _ in range(rounds):
            once_reference()
            sample(daemon, "copied", times["copied"])
        starts = rate(daemon, arguments.seconds, 2)
    say("the pool")
    with Daemon(arguments, 2) as daemon:
        until(daemon, "pooled", "a pool")
        memory, pages = parked(daemon, 2), Pages()
        tries = 0
        while len(times["pooled"]) < rounds and tries < 4 * rounds:
            pages.touch()
            once_reference()  # meanwhile the pool is filled
            parked(daemon, 2)
            times["rested"].append(pages.touch())
            times["at once"].append(pages.touch())
            sample(daemon, "pooled", times["pooled"])
            tries += 1
    return times, cpu, memory, starts


def rows_of(times, cpu, memory, starts, arguments):
    wall = lambda name: median([answer["wall_ms"] for answer in times[name]])
    own = lambda name: median([answer["timing"]["start_ms"] for answer in times[name]])
    base = median(times["reference"])
    rows = {
        "reference: cold boot to Python's output": {"ms": base, "n": len(times["reference"]), "cpu_ms": median(cpu)},
        "cold boot to an agent that waits": {"ms": own("booted"), "n": len(times["booted"])},
        "cold boot to Python's output": {"ms": wall("booted"), "n": len(times["booted"])},
        "copy of a template to Python's output": {"ms": wall("copied"), "n": len(times["copied"])},
        "copy of a template, until it is leased": {"ms": own("copied"), "n": len(times["copied"])},
        "pool to Python's output": {"ms": wall("pooled"), "n": len(times["pooled"])},
        "pool, until it is leased": {"ms": own("pooled"), "n": len(times["pooled"])},
        f"floor: {PAGES} pages used after that rest": {"ms": median(times["rested"]), "n": len(times["rested"])},
        f"floor: {PAGES} pages used at once": {"ms": median(times["at once"]), "n": len(times["at once"])},
    }
    for row in rows.values():
        row["ratio"] = row["ms"] / base
    private = median([row["private"] for row in memory])
    found = {"accelerator": arguments.accel, "rows": rows, "memory_mib": {
        name: median([row[name] for row in memory]) for name in ("private", "pss", "rss")}, "starts_per_s": starts}
    found["targets"] = [
        target("copy of a template / reference", rows["copy of a template to Python's output"]["ratio"], 0.10),
        target("pool / reference", rows["pool to Python's output"]["ratio"], 0.06),
        target("ms of ours, pool until it is leased", rows["pool, until it is leased"]["ms"], 10),
        target("MiB of a parked machine, private", private, 20)]
    return found


def target(name, value, limit):
    return {"name": name, "value": value, "limit": limit, "at_most": True, "reached": value <= limit}


def show(found):
    print(f"\nvirtual machines, accelerator {found['accelerator']}, load {os.getloadavg()[0]:.1f} (ms, medians)")
    for name, row in found["rows"].items():
        print(f"  {name:42} {row['ms']:9.1f}   x {row['ratio']:6.3f}   n {row['n']}")
    memory = found["memory_mib"]
    print(f"  a parked machine has {memory['private']:.1f} MiB of its own (PSS {memory['pss']:.1f}, RSS {memory['rss']:.1f})")
    print(f"  {found['starts_per_s']:.2f} machines a second, started, used and ended, two clients")
    for row in found["targets"]:
        print(f"  {row['name']:42} {row['value']:9.3f} <= {row['limit']:<6} {'reached' if row['reached'] else 'NOT reached'}")


def parse(words):
    parser = argparse.ArgumentParser(prog="cordon bench exec-sandbox", description="Measures virtual machines.")
    parser.add_argument("--cordon", required=True, help=argparse.SUPPRESS)
    parser.add_argument("--image", type=pathlib.Path, required=True)
    parser.add_argument("--qemu", required=True)
    parser.add_argument("--accel", choices=["kvm", "tcg"], required=True)
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--boots", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=20)
    parser.add_argument("--json", action="store_true")
    return parser.parse_args(words)


def main():
    arguments = parse(sys.argv[1:])
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that the daemon and the reference end with us
    try:
        with tempfile.TemporaryDirectory(prefix="cordon-bench-") as work:
            found = rows_of(*measure(arguments, pathlib.Path(work)), arguments)
    except Failed as error:
        say(str(error))
        return 1
    if arguments.json:
        print(json.dumps(found))
    else:
        show(found)
    return 0


if __name__ == "__main__":
    sys.exit(main())
