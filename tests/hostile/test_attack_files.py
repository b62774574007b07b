# SPDX-License-Identifier: Apache-2.0
"""Attacks by way of files: the root tree, the private tree, descriptors."""

import os

import pytest
from lib.attack import exited
from lib.client import artifacts

pytestmark = pytest.mark.each_backend

STOPPED = (
    "EPERM",
    "EACCES",
    "EROFS",
    "ENOENT",
    "ENOSYS",
    "ENOTDIR",
    "EINVAL",
    "EXDEV",
    "ELOOP",
    "EBUSY",
    "ENODEV",
    "ENXIO",
)


@pytest.mark.parametrize(
    "path",
    [
        "/usr/bin/evil",
        "/etc/evil",
        "/etc/passwd",
        "/usr/bin/python3",
        "/usr/lib/evil",
        "/bin/evil",
        "/lib/evil",
        "/var/evil",
        "/root/evil",
        "/evil",
        "/boot/evil",
        "/opt/evil",
        "/dev/evil",
        "/run/evil",
        "/srv/evil",
        "/mnt/evil",
        "/proc/sys/kernel/hostname",
        "/proc/sys/kernel/core_pattern",
        "/proc/sys/vm/drop_caches",
        "/proc/sysrq-trigger",
        "/proc/sys/kernel/modprobe",
        "/proc/sys/fs/binfmt_misc/register",
        "/proc/irq/default_smp_affinity",
        "/sys/kernel/uevent_helper",
        "/sys/fs/cgroup/release_agent",
        "/proc/kcore",
        "/dev/mem",
        "/dev/kmsg",
        "/dev/sda",
        "/dev/vda",
        "/dev/loop0",
        "/dev/kvm",
        "/dev/fuse",
        "/dev/net/tun",
    ],
)
def test_writing_where_nobody_may(backend, path):
    answer, said = backend.attack(
        f"said(append=attempt(open, {path!r}, 'ab'), create=attempt(os.open, {path!r}, os.O_WRONLY | os.O_CREAT), "
        f"remove=attempt(os.unlink, {path!r}), link=attempt(os.symlink, '/tmp', {path!r}), chmod=attempt(os.chmod, {path!r}, 0o777))"
    )
    exited(answer)
    assert set(said.values()) <= set(STOPPED) | {"EEXIST", "EISDIR"}, said


@pytest.mark.parametrize(
    "path",
    [
        "/sys",
        "/sys/fs/cgroup",
        "/proc/kcore",
        "/proc/kallsyms",
        "/proc/sysrq-trigger",
        "/dev/mem",
        "/dev/sda",
        "/dev/vda",
        "/dev/kmsg",
        "/boot",
        "/proc/config.gz",
        "/proc/timer_list",
        "/proc/sched_debug",
        "/proc/keys",
        "/proc/key-users",
        "/proc/latency_stats",
        "/proc/scsi",
        "/proc/acpi",
        "/proc/vmallocinfo",
        "/proc/slabinfo",
        "/proc/modules",
        "/proc/kmsg",
    ],
)
def test_what_is_hidden_of_the_host(backend, path):
    answer, said = backend.attack(f"""
def look():
    if os.path.isdir({path!r}):
        if not os.listdir({path!r}): raise OSError(errno.ENOENT, 'empty')
    elif not open({path!r}, 'rb').read(64).strip(b'\\0\\n '): raise OSError(errno.ENOENT, 'empty')
said(read=attempt(look))
""")
    exited(answer)
    assert said["read"] != "ok", f"{path} tells something"


def test_mounting(backend):
    answer, said = backend.attack("""
said(
    tmpfs=call(N['mount'], b'x', b'/tmp', b'tmpfs', 0, None),
    bind=call(N['mount'], b'/usr', b'/tmp', None, 4096, None),
    remount=call(N['mount'], None, b'/', None, 32 | 4096, None),
    proc=call(N['mount'], b'proc', b'/tmp', b'proc', 0, None),
    move=call(N['mount'], b'/proc', b'/tmp', None, 8192, None),
    shared=call(N['mount'], None, b'/', None, 1 << 20 | 16384, None),
    overlay=call(N['mount'], b'o', b'/tmp', b'overlay', 0, b'lowerdir=/usr,upperdir=/tmp,workdir=/tmp'),
    umount=call(N['umount2'], b'/proc', 2),
    umount_root=call(N['umount2'], b'/', 2),
    umount_tmp=call(N['umount2'], b'/tmp', 2),
    umount_home=call(N['umount2'], b'/home/user', 2),
    open_tree=call(N['open_tree'], -100, b'/', 1),
    fsopen=call(N['fsopen'], b'tmpfs', 0),
    move_mount=call(N['move_mount'], -100, b'/proc', -100, b'/tmp', 0),
    setattr=call(N['mount_setattr'], -100, b'/', 0, bytes(32), 32),
    fuse=call(N['mount'], b'f', b'/tmp', b'fuse', 0, b'fd=0'),
)
""")
    outcome = exited(answer)
    assert set(said.values()) <= {"EPERM", "ENOSYS"}, said
    assert outcome["syscalls_denied"] >= 10


def test_changing_the_root(backend):
    answer, said = backend.attack("""
os.mkdir('/tmp/r')
said(
    chroot=call(N['chroot'], b'/tmp/r'),
    pivot=call(N['pivot_root'], b'/tmp', b'/tmp/r'),
    libc_chroot=attempt(os.chroot, '/'),
)
for _ in range(300):
    os.chdir('..')
said(top=sorted(os.listdir('.')), same=os.stat('.').st_ino == os.stat('/').st_ino)
""")
    exited(answer)
    assert (
        said["chroot"] in ("EPERM", "ENOSYS")
        and said["pivot"] in ("EPERM", "ENOSYS")
        and said["libc_chroot"] in ("EPERM", "ENOSYS")
        and said["same"]
    )


def test_device_nodes(backend):
    answer, said = backend.attack("""
for name, mode, dev in (
    ('mem', 0o020666, (1, 1)),
    ('disk', 0o060666, (8, 0)),
    ('vda', 0o060666, (254, 0)),
    ('null', 0o020666, (1, 3)),
    ('kvm', 0o020666, (10, 232)),
):
    said(**{name: attempt(os.mknod, '/tmp/' + name, mode, os.makedev(*dev))})
""")
    exited(answer)
    assert set(said.values()) <= {"EPERM"}, said


def test_only_harmless_devices_are_there(backend):
    answer, said = backend.attack("""
import stat
found = {}
for folder, _, names in os.walk('/dev'):
    for n in names:
        s = os.lstat(os.path.join(folder, n))
        if stat.S_ISCHR(s.st_mode) or stat.S_ISBLK(s.st_mode):
            found[n] = [os.major(s.st_rdev), os.minor(s.st_rdev)]
said(devices=found)
""")
    exited(answer)
    assert set(said["devices"]) <= {"null", "zero", "full", "random", "urandom", "tty", "ptmx"}, said
    assert all(numbers[0] in (1, 5) for numbers in said["devices"].values())


def test_setuid_programs(backend):
    answer, said = backend.attack("""
import shutil, subprocess
shutil.copy('/usr/bin/id', '/tmp/id'); said(chmod=attempt(os.chmod, '/tmp/id', 0o6755))
said(id=subprocess.run(['/tmp/id', '-u'], capture_output=True, text=True).stdout.strip())
setuid = []
for folder in ('/usr/bin', '/usr/sbin', '/usr/libexec', '/usr/lib/openssh', '/usr/lib/dbus-1.0'):
    for n in (os.listdir(folder) if os.path.isdir(folder) else []):
        s = os.stat(os.path.join(folder, n), follow_symlinks=False)
        if s.st_mode & 0o6000: setuid.append(os.path.join(folder, n))
euid = set()
for path in setuid[:10]:
    p = subprocess.Popen([path], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try: euid.add(open(f'/proc/{p.pid}/status').read().split('Uid:')[1].split()[1])
    except (OSError, IndexError): pass
    p.kill(); p.wait()
said(euid=sorted(euid), nnp='NoNewPrivs:\\t1' in open('/proc/self/status').read())
""")
    exited(answer)
    assert said["id"] == "1000" and set(said["euid"]) <= {"1000"} and said["nnp"]


def test_file_capabilities(backend):
    answer, said = backend.attack("""
import shutil
shutil.copy('/usr/bin/id', '/tmp/id')
caps = struct.pack('<IIIII', 0x02000001, 0xFFFFFFFF, 0, 0x1FF, 0)
said(
    set=attempt(os.setxattr, '/tmp/id', 'security.capability', caps),
    trusted=attempt(os.setxattr, '/tmp/id', 'trusted.overlay.opaque', b'y'),
)
""")
    exited(answer)
    assert "ok" not in said.values()


def test_overwriting_the_running_program(backend):
    """CVE-2019-5736: /proc/self/exe of what the runtime executes must not be writable."""
    answer, said = backend.attack("""
import subprocess
said(own=attempt(os.open, '/proc/self/exe', os.O_RDWR), path=os.readlink('/proc/self/exe'))
said(agent=attempt(os.open, '/proc/1/exe', os.O_RDWR))
fd = os.open('/proc/self/exe', os.O_PATH)
said(again=attempt(os.open, f'/proc/self/fd/{fd}', os.O_WRONLY | os.O_TRUNC))
""")
    exited(answer)
    assert said["own"] != "ok" and said["agent"] != "ok" and said["again"] != "ok"


def test_library_overwrite(backend):
    answer, said = backend.attack("""
paths = {line.split()[-1] for line in open('/proc/self/maps') if line.split()[-1].startswith('/')}
said(
    writable=[p for p in paths if attempt(open, p, 'r+b') == 'ok'],
    parents=[p for p in paths if os.access(os.path.dirname(p), os.W_OK)],
)
""")
    exited(answer)
    assert said["writable"] == [] and said["parents"] == []


def test_reopening_descriptors_for_more(backend):
    answer, said = backend.attack("""
fd = os.open('/etc/passwd', os.O_RDONLY)
said(
    write=attempt(os.open, f'/proc/self/fd/{fd}', os.O_RDWR),
    folder=attempt(os.open, '/proc/self/fd/0/..', os.O_RDONLY),
)
root = os.open('/', os.O_RDONLY)
said(
    up=attempt(os.open, '../../../../etc/shadow', os.O_RDONLY, dir_fd=root),
    root=os.stat('..', dir_fd=root).st_ino == os.stat('/').st_ino,
)
""")
    exited(answer)
    assert said["write"] in STOPPED and said["up"] in STOPPED and said["root"]


def test_leaked_folder_descriptors(backend):
    """CVE-2024-21626: a descriptor of the host's file system left open leads out."""
    answer, said = backend.attack("""
import stat
found = []
for fd in range(0, 1024):
    try:
        s = os.fstat(fd)
    except OSError:
        continue
    if stat.S_ISDIR(s.st_mode):
        found.append([fd, os.readlink(f'/proc/self/fd/{fd}')])
    for path in (f'/proc/self/fd/{fd}/../../../../etc/shadow', f'/proc/self/fd/{fd}/etc/shadow'):
        if attempt(open, path) == 'ok':
            found.append(path)
said(
    found=found,
    fchdir=[fd for fd in range(3, 1024) if attempt(os.fchdir, fd) == 'ok'],
    cwd=attempt(os.stat, '/proc/self/cwd/../../../etc/shadow'),
)
""")
    exited(answer)
    assert said["found"] == [] and said["fchdir"] == []


def test_opening_by_handle(backend):
    """The 'shocker' escape: files by inode number."""
    answer, said = backend.attack("""
handle = struct.pack('<Ii', 8, 1) + struct.pack('<II', 2, 0)
root = os.open('/', os.O_RDONLY)
said(
    open=call(N['open_by_handle_at'], root, handle, 0),
    name=call(
        N['name_to_handle_at'],
        -100,
        b'/etc/passwd',
        ctypes.create_string_buffer(struct.pack('<Ii', 128, 0), 200),
        ctypes.byref(ctypes.c_int()),
        0,
    ),
)
""")
    exited(answer)
    assert said["open"] == "EPERM", said


def test_hard_links_to_what_belongs_to_others(backend):
    answer, said = backend.attack(
        """
said(
    passwd=attempt(os.link, '/etc/passwd', '/tmp/l'),
    python=attempt(os.link, '/usr/bin/python3', '/home/user/artifacts/l'),
    fd=attempt(os.link, '/proc/self/exe', '/tmp/m', follow_symlinks=True),
)
""",
        artifacts=True,
    )
    exited(answer)
    assert "ok" not in said.values() and artifacts(answer) == {}


def test_disk_fill(backend):
    answer, said = backend.attack(
        """
for place in ('/tmp', '/home/user', '/dev/shm', '/var/tmp', '/run'):
    try:
        with open(place + '/fill', 'wb', 0) as f:
            while f.tell() < 1 << 30: f.write(b'x' * (1 << 20))
        said(**{place: 'full 1 GiB'})
    except OSError as e: said(**{place: _name(e.errno)})
""",
        memory_mb=512,
    )
    exited(answer)
    assert set(said.values()) <= set(STOPPED) | {"ENOSPC"}, said


def test_the_next_guest_has_all_its_disk(backend):
    for _ in range(3):
        backend.attack("f = open('/tmp/fill', 'wb', 0)\nwhile True: f.write(b'x' * (1 << 20))")
    answer, said = backend.attack(
        "open('/tmp/x', 'wb').write(b'x' * (30 << 20)); said(ok=True, files=os.listdir('/tmp'))"
    )
    exited(answer)
    assert said == {"ok": True, "files": ["x"]}


def test_files_of_other_guests(backend):
    with backend.held(
        "open('/tmp/mine-4471', 'w').write('secret-4471'); "
        "open('/dev/shm/mine-4471', 'w').write('x') if os.path.isdir('/dev/shm') else None"
    ):
        answer, said = backend.attack("""
seen = []
for folder in ('/tmp', '/dev/shm', '/home', '/home/user', '/var/tmp', '/run', '/'):
    if os.path.isdir(folder): seen += [n for n in os.listdir(folder) if '4471' in n]
said(seen=seen)
""")
        exited(answer)
        assert said["seen"] == []


def test_file_locks_and_quota_calls(backend):
    answer, said = backend.attack("""
import fcntl
said(
    lock=attempt(fcntl.flock, os.open('/etc/passwd', os.O_RDONLY), fcntl.LOCK_EX),
    quota=call(N['quotactl'], 0x800007 << 8, b'/dev/vda', 0, None),
    lease=attempt(fcntl.fcntl, os.open('/etc/passwd', os.O_RDONLY), 1024, 1),
)
""")
    exited(answer)
    assert said["quota"] != "ok" and said["lease"] != "ok"


def test_immutable_and_other_attributes(backend):
    answer, said = backend.attack("""
import fcntl
f = open('/tmp/x', 'w')
said(
    immutable=attempt(fcntl.ioctl, f, 0x40086602, struct.pack('l', 0x10)),
    freeze=attempt(fcntl.ioctl, os.open('/', os.O_RDONLY), 0xC0045877, 0),
    swap=call(N['swapon'], b'/tmp/x', 0),
)
""")
    exited(answer)
    assert "ok" not in said.values(), said


def test_watching_the_hosts_files(backend):
    answer, said = backend.attack("said(fanotify=call(N['fanotify_init'], 0, 0))")
    exited(answer)
    assert said["fanotify"] == "EPERM"


def test_the_root_tree_has_no_secrets(backend):
    secret = os.path.join(backend.daemon.state, "cordon.db")
    answer, said = backend.attack(f"""
found = [p for p in ('/etc/shadow', '/etc/gshadow', '/root/.ssh', '/root/.bash_history', '/etc/ssl/private', '/var/lib/cordon',
                     {secret!r}, {backend.daemon.state!r}, '/var/run/docker.sock', '/run/docker.sock', '/run/systemd', '/var/log', '/home', '/work', '/srv', '/mnt', '/media')
         if os.path.exists(p) and (attempt(open, p) == 'ok' or attempt(os.listdir, p) == 'ok')]
said(found=found, home=os.listdir('/home') if os.path.isdir('/home') else [], root=sorted(os.listdir('/')))
""")
    exited(answer)
    assert set(said["found"]) <= {"/home"} and set(said["home"]) <= {"user", "node_modules"}, said
    assert not {"work", "root", "boot", "srv", "mnt", "media", "sys"} & set(said["root"]) or all(
        name not in said["root"] for name in ("work", "boot")
    ), said["root"]
