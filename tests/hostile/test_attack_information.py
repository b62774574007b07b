# SPDX-License-Identifier: Apache-2.0
"""What a guest may learn of the host and of other guests: nothing that it has no use for."""

import contextlib
import os
import socket

import pytest
from lib import host
from lib.attack import exited
from lib.daemon import ROOT, SECRET

pytestmark = pytest.mark.each_backend


def test_environment_of_the_daemon(backend):
    assert SECRET in host.read(f"/proc/{backend.daemon.process.pid}/environ")
    answer, said = backend.attack("""
found = []
for pid in [p for p in os.listdir('/proc') if p.isdigit()] + ['1', '2', 'self', 'thread-self']:
    for name in ('environ', 'cmdline'):
        try: found.append(open(f'/proc/{pid}/{name}', 'rb').read().decode('latin-1'))
        except OSError: pass
said(found=found, env=dict(os.environ))
""")
    exited(answer)
    text = str(said)
    assert SECRET not in text and backend.daemon.key not in text and backend.daemon.state not in text
    assert not [name for name in said["env"] if name.startswith(("CORDON_", "AWS_", "LANGFLOW_"))]


def test_memory_of_the_zygote_has_no_secret(backend):
    answer, said = backend.attack(
        f"""
needles = [{SECRET[:8]!r} + {SECRET[8:]!r}, {backend.daemon.key[:12]!r} + {backend.daemon.key[12:]!r}]
import re
found = []
mem = open('/proc/self/mem', 'rb', 0) if attempt(open, '/proc/self/mem', 'rb') == 'ok' else None
for line in open('/proc/self/maps'):
    match = re.match(r'([0-9a-f]+)-([0-9a-f]+) r(w|-)', line)
    if not match or mem is None or 'vvar' in line or 'vsyscall' in line: continue
    begin, end = int(match[1], 16), int(match[2], 16)
    try:
        mem.seek(begin); data = mem.read(min(end - begin, 64 << 20))
    except (OSError, ValueError, OverflowError): continue
    if b'CORDON_STATE=' in data or b'AWS_SECRET_ACCESS' + b'_KEY=' in data: found.append(line.strip())
said(found=[line for line in found if 'heap' not in line and '[stack]' not in line][:5])
""",
        memory_mb=512,
    )
    exited(answer)


@pytest.mark.weaken("hidepid")
def test_processes_of_the_host(backend):
    answer, said = backend.attack(
        "said(pids=sorted(int(p) for p in os.listdir('/proc') if p.isdigit()), own=os.getpid(), ppid=os.getppid())"
    )
    exited(answer)
    # An ordinary user's daemon has no range of uids: its guests' agents have the code's, and so can't be hidden from it.
    agent = [] if os.geteuid() == 0 else [1]
    assert said["pids"] == [*agent, said["own"]] and said["own"] < 100


def test_names_of_the_host(backend):
    answer, said = backend.attack(
        """
said(
    host=socket.gethostname(),
    uname=os.uname().nodename,
    domain=open('/proc/sys/kernel/domainname').read().strip()
    if os.path.exists('/proc/sys/kernel/domainname')
    else '',
)
"""
    )
    exited(answer)
    assert said["host"] == said["uname"] == "cordon"
    assert socket.gethostname() not in said["domain"] or socket.gethostname() == "(none)"


@pytest.mark.parametrize(
    "path",
    [
        "/proc/cmdline",
        "/proc/mounts",
        "/proc/self/mountinfo",
        "/proc/self/cgroup",
        "/proc/version_signature",
        "/proc/partitions",
        "/proc/diskstats",
        "/proc/swaps",
        "/proc/net/arp",
        "/proc/net/tcp",
        "/proc/self/mountstats",
        "/proc/locks",
        "/proc/keys",
        "/etc/hostname",
        "/etc/hosts",
        "/etc/machine-id",
        "/etc/resolv.conf",
        "/etc/fstab",
        "/etc/mtab",
    ],
)
def test_files_tell_nothing_of_the_host(backend, path):
    answer, said = backend.attack(
        f"said(text=open({path!r}).read() if attempt(lambda: open({path!r}).read(1)) == 'ok' else '')"
    )
    exited(answer)
    words = [backend.daemon.state, ROOT, backend.daemon.key]
    name = socket.gethostname()
    if len(name) > 5 and name not in ("localhost", "sandbox"):  # a short one is in other words
        words.append(name)
    if path == "/proc/cmdline":
        words.append(host.read("/proc/cmdline").strip())
    if path == "/etc/machine-id" and os.path.exists(path):
        words.append(host.read(path).strip())
    for word in words:
        assert not word or word not in said["text"], (path, said["text"][:500])


@pytest.mark.parametrize(
    "path", ["/etc/shadow", "/root", "/root/.ssh", "/etc/sudoers", "/var/lib/cordon", "/proc/kcore", "/etc/ssh"]
)
def test_secrets_of_the_host(backend, path):
    answer, said = backend.attack(
        f"said(file=attempt(lambda: open({path!r}).read()[0]), folder=attempt(lambda: os.listdir({path!r})[0]))"
    )
    exited(answer)
    assert said["file"] != "ok" and said["folder"] != "ok"


def test_control_groups(backend):
    answer, said = backend.attack("""
found = []
for folder in ('/sys/fs/cgroup', '/sys', '/proc/self/root/sys'):
    for top, folders, names in os.walk(folder):
        found += [os.path.join(top, n) for n in names if os.access(os.path.join(top, n), os.W_OK)][:5]
said(
    writable=found,
    own=open('/proc/self/cgroup').read() if os.path.exists('/proc/self/cgroup') else '',
    release=[
        p
        for p in (
            '/sys/fs/cgroup/release_agent',
            '/sys/fs/cgroup/memory/release_agent',
            '/sys/fs/cgroup/rdma/release_agent',
        )
        if os.path.exists(p)
    ],
)
""")
    exited(answer)
    assert said["writable"] == [] and said["release"] == [] and "cordon-" not in said["own"], said


def test_core_pattern_and_binfmt(backend):
    answer, said = backend.attack("""
for path in (
    '/proc/sys/kernel/core_pattern',
    '/proc/sys/kernel/modprobe',
    '/proc/sys/kernel/hotplug',
    '/proc/sys/vm/overcommit_memory',
    '/proc/sys/net/ipv4/ip_forward',
    '/proc/sys/user/max_user_namespaces',
    '/proc/self/uid_map',
    '/proc/self/setgroups',
    '/proc/self/loginuid',
    '/proc/self/timens_offsets',
):
    said(**{path: attempt(put, path, '|/tmp/x')})
""")
    exited(answer)
    assert "ok" not in said.values(), said


def test_users_of_the_host(backend):
    answer, said = backend.attack(

            "import pwd, grp\n"
            """
said(
    users=[p.pw_name for p in pwd.getpwall()],
    groups=[g.gr_name for g in grp.getgrall()],
    gecos=[p.pw_dir for p in pwd.getpwall()],
)
"""

    )
    exited(answer)
    assert set(said["users"]) <= {"root", "user", "nobody", "agent", "cordon", "daemon"}, said


def test_guests_have_uids_of_their_own_on_the_host(backend):
    with contextlib.ExitStack() as runs:
        for _ in range(3):
            runs.enter_context(backend.held("open('/tmp/x', 'w')"))
        uids = {}
        for pid in backend.guest_pids():
            match = [
                line.split()[1] for line in host.read(f"/proc/{pid}/status").splitlines() if line.startswith("Uid:")
            ]
            namespace = os.readlink(f"/proc/{pid}/ns/pid") if os.path.exists(f"/proc/{pid}/ns/pid") else None
            if match and namespace:
                uids.setdefault(namespace, set()).add(int(match[0]))
    seen = [uid for group in uids.values() for uid in group]
    assert len(uids) >= 3 and len(seen) == len(set(seen)), uids
    assert all(uid >= 65536 for uid in seen), seen


def test_inode_and_device_numbers_of_the_private_tree(backend):
    answer, said = backend.attack(
        "said(dev=os.stat('/tmp').st_dev, root=os.stat('/').st_dev, statvfs=os.statvfs('/').f_bfree)"
    )
    exited(answer)
    assert said["dev"] != said["root"]


def test_uptime_load_and_memory_of_the_host(backend):
    answer, said = backend.attack("""
import re
mem = dict(re.findall(r'(\\w+):\\s+(\\d+) kB', open('/proc/meminfo').read()))
said(
    total=int(mem['MemTotal']),
    cpus=os.cpu_count(),
    info=open('/proc/cpuinfo').read().count('processor\\t'),
    stat=len(re.findall(r'^cpu\\d', open('/proc/stat').read(), re.M))
    if attempt(open, '/proc/stat') == 'ok'
    else 0,
)
""")
    exited(answer)
    assert said["total"] <= 256 * 1024 and said["cpus"] == said["info"] == 1


@pytest.mark.weaken("reseed")
def test_random_numbers_of_two_guests(backend):
    """Forks of one zygote start with one state of every generator; what they draw must differ all the same."""
    program = """
import numpy, random, secrets, ssl, tempfile, uuid
ssl.create_default_context()
said(random=random.random(), more=random.getrandbits(64), numpy=float(numpy.random.rand()), ssl=ssl.RAND_bytes(16).hex(),
     rng=float(numpy.random.default_rng().random()), uuid1=str(uuid.uuid1()), uuid4=str(uuid.uuid4()),
     secrets=secrets.token_hex(8), name=tempfile.mktemp(), urandom=os.urandom(8).hex())
"""
    drawn = []
    for _ in range(8):
        answer, said = backend.attack(program)
        exited(answer)
        drawn.append(said)
    for name in drawn[0]:
        assert len({said[name] for said in drawn}) == len(drawn), (name, [said[name] for said in drawn])


def test_hash_seed_and_layout_are_noted(backend):
    """Shared by the runs of one zygote, by nature; "
    "the outcome of a run must not depend on it, and SECURITY.md says so."""
    answer, said = backend.attack("said(seed=hash('x'), layout=id(object()))")
    exited(answer)


def test_time_of_day_of_other_runs(backend):
    answer, said = backend.attack(
        "said(times=[os.stat(p).st_mtime for p in ('/tmp', '/home/user') if os.path.exists(p)], now=time.time())"
    )
    exited(answer)


def test_warm_guests_hold_nothing_of_the_last_run(backend):
    marker = "leak-marker-60251"
    for _ in range(4):
        backend.run(f"secret = '{marker}' * 1000; print(len(secret))", env={"SECRET": marker}, stdin=marker)
    answer = backend.run("""
import gc
found = [
    type(o).__name__
    for o in gc.get_objects()
    if isinstance(o, dict)
    and any(isinstance(v, str) and 'leak-marker-60251' in v for v in list(o.values()) if isinstance(v, str))
]
print(found)
""")
    assert answer["stdout"] == "[]\n"
