# SPDX-License-Identifier: Apache-2.0
"""Attacks on the kernel's interfaces: calls that a program in a guest never needs."""

import os

import pytest
from lib.attack import NUMBERS, exited

pytestmark = pytest.mark.each_backend

X86 = os.uname().machine == "x86_64"
CLONES = {
    "CLONE_NEWUSER": 0x10000000,
    "CLONE_NEWNS": 0x20000,
    "CLONE_NEWPID": 0x20000000,
    "CLONE_NEWNET": 0x40000000,
    "CLONE_NEWIPC": 0x8000000,
    "CLONE_NEWUTS": 0x4000000,
    "CLONE_NEWCGROUP": 0x2000000,
    "CLONE_NEWTIME": 0x80,
}


@pytest.mark.weaken("seccomp")
@pytest.mark.parametrize("flag", CLONES)
def test_new_namespaces_by_unshare(backend, flag):
    answer, said = backend.attack(f"said(unshare=call(N['unshare'], {CLONES[flag]:#x}))")
    outcome = exited(answer)
    assert said["unshare"] == "EPERM", said
    assert outcome["syscalls_denied"] >= 1 and outcome["blocked_syscall"] == "unshare"


@pytest.mark.weaken("seccomp")
@pytest.mark.parametrize("flag", [name for name in CLONES if name != "CLONE_NEWTIME"])
def test_new_namespaces_by_clone(backend, flag):
    answer, said = backend.attack(f"""
result = call(N['clone'], {CLONES[flag]:#x} | 17, 0, 0, 0, 0)
if result == 'ok':
    if os.getppid() != 1 and os.getpid() in (1, 2): os._exit(0)
said(clone=result)
os._exit(0)
""")
    assert said["clone"] == "EPERM", said


def test_new_namespaces_by_clone3(backend):
    answer, said = backend.attack("""
args = struct.pack('8Q', 0x10000000, 0, 0, 0, 17, 0, 0, 0)
said(clone3=call(N['clone3'], args, 64))
""")
    exited(answer)
    assert said["clone3"] == "ENOSYS"


def test_flags_in_the_upper_half_of_a_register(backend):
    answer, said = backend.attack(
        "said(unshare=call(N['unshare'], 0x10000000 | 1 << 40), high=call(N['unshare'], 1 << 32))"
    )
    exited(answer)
    assert said["unshare"] != "ok"


def test_joining_namespaces(backend):
    answer, said = backend.attack("""
said(missing=[n for n in ('user', 'mnt', 'pid', 'net') if attempt(os.readlink, '/proc/1/ns/' + n) == 'ok'])
for n in ('user', 'mnt', 'pid', 'net', 'ipc', 'uts', 'cgroup'):
    fd = os.open(f'/proc/self/ns/{n}', os.O_RDONLY)
    said(**{n: call(N['setns'], fd, 0)})
said(pidfd=call(N['setns'], libc.syscall(ctypes.c_long(N['pidfd_open']), os.getpid(), 0), 0x20000))
""")
    exited(answer)
    assert said.pop("missing") == [] and set(said.values()) == {"EPERM"}, said


# name, arguments as Python text
FORBIDDEN = {
    "bpf": "0, bytes(128), 128",
    "perf_event_open": "struct.pack('II', 1, 128) + bytes(120), 0, -1, -1, 0",
    "userfaultfd": "0",
    "keyctl": "0, -3, 1",
    "add_key": "b'user', b'k', b'v', 1, -3",
    "request_key": "b'user', b'k', None, -3",
    "kexec_load": "0, 0, 0, 0",
    "kexec_file_load": "-1, -1, 0, None, 0",
    "init_module": "b'x', 1, b''",
    "finit_module": "0, b'', 0",
    "delete_module": "b'x', 0",
    "process_vm_readv": "1, None, 0, None, 0, 0",
    "process_vm_writev": "1, None, 0, None, 0, 0",
    "ptrace": "0, 0, 0, 0",
    "kcmp": "1, 1, 0, 0, 0",
    "reboot": "0, 0, 0, None",
    "swapon": "b'/x', 0",
    "acct": "b'/tmp/x'",
    "settimeofday": "bytes(16), None",
    "clock_settime": "0, bytes(16)",
    "adjtimex": "bytes(208)",
    "sethostname": "b'x', 1",
    "setdomainname": "b'x', 1",
    "syslog": "3, bytes(100), 100",
    "quotactl": "0, None, 0, None",
    "fanotify_init": "0, 0",
    "chroot": "b'/'",
    "pivot_root": "b'/', b'/'",
    "setns": "0, 0",
    "open_by_handle_at": "0, bytes(16), 0",
    "move_pages": "1, 0, None, None, None, 0",
    "migrate_pages": "1, 0, None, None",
    "process_madvise": "0, None, 0, 0, 0",
    "pidfd_getfd": "0, 0, 0",
    "vhangup": "",
    "open_tree": "-100, b'/', 1",
    "fsopen": "b'ext4', 0",
    "mount_setattr": "-100, b'/', 0, bytes(32), 32",
    "iopl": "3",
    "ioperm": "0, 1024, 1",
    "uselib": "b'/x'",
    "nfsservctl": "0",
    "ustat": "0, bytes(64)",
    "sysfs": "3",
    "lookup_dcookie": "0, bytes(64), 64",
}
QUIET = {
    "io_uring_setup": "1, bytes(120)",
    "modify_ldt": "0, bytes(16), 16",
    "statmount": "bytes(32), bytes(128), 128, 0",
    "listmount": "bytes(32), bytes(128), 16, 0",
    "memfd_secret": "0",
}


@pytest.mark.weaken("seccomp")
@pytest.mark.parametrize("name", [name for name in FORBIDDEN if name in NUMBERS])
def test_forbidden_call(backend, name):
    answer, said = backend.attack(f"said(result=call(N[{name!r}], *[{FORBIDDEN[name]}]))")
    outcome = exited(answer)
    assert said["result"] in ("EPERM", "ENOSYS"), said
    assert outcome["syscalls_denied"] >= 1 and outcome["blocked_syscall"] == name, outcome


@pytest.mark.parametrize("name", [name for name in QUIET if name in NUMBERS])
def test_call_that_is_not_there(backend, name):
    answer, said = backend.attack(f"said(result=call(N[{name!r}], *[{QUIET[name]}]))")
    exited(answer)
    assert said["result"] in ("EPERM", "ENOSYS"), said


def test_every_number_there_is(backend):
    """Calls all numbers with no arguments that could do harm if allowed, in children; "
    "the guest and the host live on."""
    answer, said = backend.attack(
        """
skip = (
    {
        15,
        34,
        35,
        57,
        56,
        58,
        60,
        61,
        62,
        231,
        13,
        14,
        127,
        128,
        130,
        23,
        7,
        232,
        271,
        270,
        281,
        0,
        202,
        230,
        219,
        247,
        449,
    }
    if X86
    else {93, 94, 139, 129, 220, 98, 73, 72, 22, 95, 260, 63, 133, 134, 135, 137, 101, 115}
)
got = {}
for number in range(600):
    if number in skip:
        continue
    pid = os.fork()
    if pid == 0:
        signal.alarm(1)
        libc.syscall(ctypes.c_long(number), *[ctypes.c_long(-1)] * 6)
        os._exit(0)
    os.waitpid(pid, 0)
said(done=True)
""",
        timeout_s=60,
    )
    assert said.get("done") and answer["outcome"]["cause"] == "exited", answer["outcome"]


@pytest.mark.skipif(not X86, reason="x32 is an x86-64 matter")
def test_x32_calls(backend):
    answer, said = backend.attack(
        """
said(
    getpid=call(0x40000000 + 39),
    unshare=call(0x40000000 + 272, 0x10000000),
    ptrace=call(0x40000000 + 521, 0, 0, 0, 0),
)
"""
    )
    assert answer["outcome"]["cause"] in ("exited", "signalled")
    assert "ok" not in said.values(), said


@pytest.mark.skipif(not X86, reason="int 0x80 is an x86-64 matter")
@pytest.mark.parametrize("number,name", [(310, "unshare"), (26, "ptrace"), (21, "mount"), (20, "getpid")])
def test_32_bit_calls(backend, number, name):
    """int 0x80 reaches the 32-bit table, whose numbers mean other things: a filter by number alone is passed."""
    answer, said = backend.attack(f"""
import mmap
code = b'\\xb8' + struct.pack('<I', {number}) + b'\\x53\\xbb' + struct.pack('<I', 0x10000000)
code += b'\\x31\\xc9\\x31\\xd2\\xcd\\x80\\x5b\\x48\\x98\\xc3'
m = mmap.mmap(-1, 4096, prot=7)
m.write(code)
f = ctypes.CFUNCTYPE(ctypes.c_long)(ctypes.addressof(ctypes.c_char.from_buffer(m)))
said(result=f())
""")
    assert answer["outcome"]["cause"] in ("exited", "signalled"), answer["outcome"]
    if answer["outcome"]["cause"] == "exited" and "result" in said:
        assert said["result"] < 0, said
    else:
        assert answer["outcome"]["signal"] in (11, 31, 9)


# ADDR_NO_RANDOMIZE and PER_LINUX32 are allowed: debuggers ask for the one, build tools for the other
@pytest.mark.parametrize(
    "persona",
    ["0x0400000", "0x0200000", "0x0100000", "0x4000000"],
    ids=["READ_IMPLIES_EXEC", "ADDR_COMPAT_LAYOUT", "MMAP_PAGE_ZERO", "STICKY_TIMEOUTS"],
)
def test_personality(backend, persona):
    answer, said = backend.attack(
        f"said(result=call(N['personality'], {persona}), query=call(N['personality'], 0xffffffff))"
    )
    exited(answer)
    assert said["result"] == "EPERM" and said["query"] == "ok", said


def test_listener_of_seccomp(backend):
    answer, said = backend.attack("""
prog = struct.pack('HBBI', 6, 0, 0, 0x7fff0000)
buf = ctypes.create_string_buffer(prog)
fprog = struct.pack('HxxxxxxP', 1, ctypes.addressof(buf))
said(listener=call(N['seccomp'], 1, 8, fprog), plain=call(N['seccomp'], 1, 0, fprog))
said(after=call(N['ptrace'], 16, 1, 0, 0))
""")
    exited(answer)
    assert said["listener"] != "ok" and said["after"] in ("EPERM", "ENOSYS"), said


def test_filter_that_traces_or_kills(backend):
    answer, said = backend.attack("""
for name, action in (('trace', 0x7ff00000), ('kill', 0x80000000)):
    pid = os.fork()
    if pid == 0:
        buf = ctypes.create_string_buffer(struct.pack('HBBI', 6, 0, 0, action))
        call(N['seccomp'], 1, 0, struct.pack('HxxxxxxP', 1, ctypes.addressof(buf)))
        os._exit(0)
    said(**{name: os.waitpid(pid, 0)[1]})
""")
    exited(answer)


@pytest.mark.smoke
def test_ptrace_of_a_child(backend):
    answer, said = backend.attack("""
done, doing = os.pipe()
pid = os.fork()
if pid == 0:
    said(traceme=call(N['ptrace'], 0, 0, 0, 0))
    os.write(doing, b'x')
    signal.pause()
os.read(done, 1)
said(
    attach=call(N['ptrace'], 16, pid, 0, 0),
    seize=call(N['ptrace'], 0x4206, pid, 0, 0),
    mem=attempt(open, f'/proc/{pid}/mem', 'r+b'),
)
os.kill(pid, 9)
""")
    exited(answer)
    assert (said["traceme"], said["attach"], said["seize"]) == ("EPERM",) * 3


def test_terminal_injection(backend):
    answer, said = backend.attack("""
import fcntl, pty, termios
def own():
    a, b = pty.openpty()
    fcntl.ioctl(b, termios.TIOCSTI, b'x')
said(sti=attempt(own))
""")
    exited(answer)
    assert said["sti"] != "ok", said


@pytest.mark.weaken("caps")
def test_no_capabilities(backend):
    answer, said = backend.attack("""
status = dict(l.split(':\\t') for l in open('/proc/self/status').read().splitlines() if ':\\t' in l)
said(**{k: status[k] for k in ('CapInh', 'CapPrm', 'CapEff', 'CapBnd', 'CapAmb', 'NoNewPrivs', 'Seccomp')})
""")
    exited(answer)
    assert all(int(said[name], 16) == 0 for name in ("CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb")), said
    assert said["NoNewPrivs"] == "1" and said["Seccomp"] == "2"


@pytest.mark.smoke
@pytest.mark.weaken("caps")
def test_becoming_root_of_the_guest(backend):
    answer, said = backend.attack("""
for name, f in (
    ('setuid', lambda: os.setuid(0)),
    ('setresuid', lambda: os.setresuid(0, 0, 0)),
    ('setgid', lambda: os.setgid(0)),
    ('setgroups', lambda: os.setgroups([0])),
    ('other', lambda: os.setuid(1001)),
    ('agent', lambda: os.setresuid(999, 999, 999)),
    ('chown', lambda: os.chown('/tmp', 0, 0)),
):
    said(**{name: attempt(f)})
said(uid=os.getresuid(), map=attempt(put, '/proc/self/uid_map', '0 0 1'))
""")
    exited(answer)
    assert said.pop("uid") == [1000, 1000, 1000] and "ok" not in said.values(), said


def test_dirty_pipe_shapes(backend):
    """splice and vmsplice are allowed for programs; they must not write into page-cache pages of read-only files."""
    answer, said = backend.attack("""
before = open('/etc/passwd', 'rb').read()
fd = os.open('/etc/passwd', os.O_RDONLY)
r, w = os.pipe()
for _ in range(16): os.write(w, b'x' * 4096)
for _ in range(16): os.read(r, 4096)
said(splice=attempt(os.splice, fd, w, 1, offset_src=0))
os.write(w, b'DIRTY')
said(same=open('/etc/passwd', 'rb').read() == before)
""")
    exited(answer)
    assert said["same"]


def test_ioctls_on_sockets(backend):
    answer, said = backend.attack("""
import fcntl
s = socket.socket()
for name, number in (
    ('SIOCSIFFLAGS', 0x8914),
    ('SIOCSIFADDR', 0x8916),
    ('SIOCADDRT', 0x890B),
    ('SIOCBRADDBR', 0x89A0),
    ('SIOCETHTOOL', 0x8946),
):
    said(**{name: attempt(fcntl.ioctl, s, number, b'lo' + bytes(62))})
""")
    exited(answer)
    assert "ok" not in said.values(), said


def test_kernel_addresses(backend):
    answer, said = backend.attack("""
def addresses():
    text = open('/proc/kallsyms').read(4000)
    if not any(line.split()[0].strip('0') for line in text.splitlines()):
        raise OSError(errno.EPERM, 'hidden')
said(
    kallsyms=attempt(addresses),
    kcore=attempt(lambda: open('/proc/kcore', 'rb').read(1)[0]),
    pagemap=attempt(
        lambda: [1 for i in range(0, 4096, 8) if open('/proc/self/pagemap', 'rb').read(8)[:4].strip(b'\\0')][0]
    ),
    stack=attempt(lambda: open('/proc/self/stack').read()),
    msr=attempt(open, '/dev/cpu/0/msr'),
)
""")
    exited(answer)
    assert "ok" not in (said["kallsyms"], said["kcore"], said["msr"]), said


def test_the_clock_of_the_host(backend):
    answer, said = backend.attack(
        "said(set=attempt(time.clock_settime, time.CLOCK_REALTIME, 0), adj=call(N['adjtimex'], bytes(208)))"
    )
    exited(answer)
    assert set(said.values()) == {"EPERM"}
