# SPDX-License-Identifier: Apache-2.0
"""Attacks by way of the network: with it off there is nothing but a loopback of one's own."""

import socket

import pytest
from lib.attack import exited
from lib.pace import stretched

pytestmark = pytest.mark.each_backend

CUT_OFF = {
    "ENETUNREACH",
    "EHOSTUNREACH",
    "ECONNREFUSED",
    "EPERM",
    "EACCES",
    "ENETDOWN",
    "EADDRNOTAVAIL",
    "ETIMEDOUT",
    "EAFNOSUPPORT",
    "gaierror",
    "TimeoutError",
}


@pytest.mark.smoke
def test_interfaces(backend):
    answer, said = backend.attack(
        """
said(
    names=[n for _, n in socket.if_nameindex()],
    dev=[l.split(':')[0].strip() for l in open('/proc/net/dev') if ':' in l],
    routes=open('/proc/net/route').read().count('\\n') - 1,
)
"""
    )
    exited(answer)
    assert said["names"] == ["lo"] and said["dev"] == ["lo"] and said["routes"] <= 0


@pytest.mark.parametrize(
    "address",
    [
        "1.1.1.1",
        "8.8.8.8",
        "169.254.169.254",
        "169.254.1.1",
        "10.0.0.1",
        "192.168.0.1",
        "172.17.0.1",
        "100.100.100.200",
        "255.255.255.255",
        "224.0.0.1",
        "fd00:ec2::254",
        "fe80::1%lo",
        "2606:4700:4700::1111",
    ],
)
@pytest.mark.parametrize("kind", ["SOCK_STREAM", "SOCK_DGRAM"])
def test_reaching_out(backend, address, kind):
    family = "AF_INET6" if ":" in address else "AF_INET"
    answer, said = backend.attack(f"""
def reach():
    s = socket.socket(socket.{family}, socket.{kind}); s.settimeout(2)
    if {kind == "SOCK_DGRAM"}: s.setsockopt(socket.SOL_SOCKET, socket.SO_BROADCAST, 1)
    s.connect(socket.getaddrinfo({address!r}, 80, socket.{family}, socket.{kind})[0][4]); s.send(b'x')
said(reach=attempt(reach))
""")
    exited(answer)
    assert said["reach"] in CUT_OFF, said


def test_names(backend):
    answer, said = backend.attack("""
began = time.monotonic()
said(
    name=attempt(socket.getaddrinfo, 'example.com', 80),
    seconds=time.monotonic() - began,
    localhost=attempt(socket.getaddrinfo, 'localhost', 80),
)
""")
    exited(answer)
    assert said["name"] != "ok" and said["seconds"] < stretched(15)


@pytest.fixture
def listener():
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        sock.listen()
        sock.settimeout(0.2)
        yield sock


def test_loopback_of_the_host(backend, listener):
    port = listener.getsockname()[1]
    answer, said = backend.attack(f"""
for p in ({port}, {backend.daemon.port}, 22, 53, 631):
    said(**{{str(p): attempt(lambda: socket.create_connection(('127.0.0.1', p), 2))}})
said(v6=attempt(lambda: socket.create_connection(('::1', {port}), 2)))
""")
    exited(answer)
    assert set(said.values()) <= CUT_OFF, said
    with pytest.raises(TimeoutError):
        listener.accept()


def test_abstract_sockets_of_the_host(backend):
    with socket.socket(socket.AF_UNIX) as sock:
        sock.bind("\0cordon-host-8812")
        sock.listen()
        answer, said = backend.attack("""
s = socket.socket(socket.AF_UNIX)
said(connect=attempt(s.connect, '\\0cordon-host-8812'), listed='cordon-host-8812' in open('/proc/net/unix').read())
""")
        exited(answer)
        assert said["connect"] == "ECONNREFUSED" and not said["listed"]


def two_guests(backend, first, second):
    """Runs the first; the second while that one is waiting."""
    with backend.held(first):
        answer, said = backend.attack(second)
        exited(answer)
        return said


def test_abstract_sockets_of_another_guest(backend):
    said = two_guests(
        backend,
        "s = socket.socket(socket.AF_UNIX); s.bind('\\0guest-7723'); s.listen()",
        """
s = socket.socket(socket.AF_UNIX)
said(connect=attempt(s.connect, '\\0guest-7723'), listed='guest-7723' in open('/proc/net/unix').read())
""",
    )
    assert said["connect"] == "ECONNREFUSED" and not said["listed"]


def test_ports_of_another_guest(backend):
    said = two_guests(
        backend,
        "s = socket.socket(); s.bind(('127.0.0.1', 18080)); s.listen()",
        """
said(
    connect=attempt(socket.create_connection, ('127.0.0.1', 18080), 1),
    bind=attempt(socket.socket().bind, ('127.0.0.1', 18080)),
    tcp=open('/proc/net/tcp').read().count(':46A0'),
)
""",
    )
    assert said["connect"] == "ECONNREFUSED" and said["bind"] == "ok" and said["tcp"] <= 1


def test_ports_of_a_guest_from_the_host(backend):
    with backend.held("s = socket.socket(); s.bind(('0.0.0.0', 18081)); s.listen()"):
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection(("127.0.0.1", 18081), 1)


def test_own_loopback_works(backend):
    answer, said = backend.attack("""
for family, address in ((socket.AF_INET, '127.0.0.1'), (socket.AF_INET6, '::1')):
    def both():
        s = socket.socket(family); s.bind((address, 0)); s.listen()
        socket.create_connection(s.getsockname()[:2], 2)
    said(**{address: attempt(both)})
""")
    exited(answer)
    assert said["127.0.0.1"] == "ok", said


@pytest.mark.weaken("seccomp")
@pytest.mark.parametrize(
    "name,code",
    [
        ("raw", "socket.socket(socket.AF_INET, socket.SOCK_RAW, 1)"),
        ("packet", "socket.socket(17, socket.SOCK_RAW, 768)"),
        ("packet dgram", "socket.socket(17, socket.SOCK_DGRAM, 768)"),
        ("vsock", "socket.socket(40, socket.SOCK_STREAM)"),
        ("bluetooth", "socket.socket(31, socket.SOCK_RAW, 1)"),
        ("alg", "socket.socket(38, socket.SOCK_SEQPACKET)"),
        ("can", "socket.socket(29, socket.SOCK_RAW, 1)"),
        ("tipc", "socket.socket(30, socket.SOCK_RDM)"),
        ("xdp", "socket.socket(44, socket.SOCK_RAW)"),
        ("qipcrtr", "socket.socket(42, socket.SOCK_DGRAM)"),
        ("key", "socket.socket(15, socket.SOCK_RAW, 2)"),
        ("netlink xfrm", "socket.socket(16, socket.SOCK_RAW, 6)"),
        ("netlink netfilter", "socket.socket(16, socket.SOCK_RAW, 12)"),
        ("netlink audit", "socket.socket(16, socket.SOCK_RAW, 9)"),
        ("netlink uevent", "socket.socket(16, socket.SOCK_DGRAM, 15)"),
        ("smc", "socket.socket(43, socket.SOCK_STREAM)"),
        ("rds", "socket.socket(21, socket.SOCK_SEQPACKET)"),
    ],
)
def test_sockets_of_other_families(backend, name, code):
    answer, said = backend.attack(f"said(made=attempt(lambda: {code}))")
    exited(answer)
    assert said["made"] != "ok", (name, said)


def test_netlink_writes(backend):
    answer, said = backend.attack("""
def change(kind, body):
    s = socket.socket(16, socket.SOCK_RAW, 0)
    s.bind((0, 0))
    s.settimeout(2)
    s.send(struct.pack('IHHII', 16 + len(body), kind, 5, 1, 0) + body)
    reply = s.recv(4096)
    code = struct.unpack_from('i', reply, 16)[0] if struct.unpack_from('H', reply, 4)[0] == 2 else 0
    if code:
        raise OSError(-code, 'netlink')
said(
    link=attempt(change, 16, struct.pack('BxHiII', 0, 0, 1, 0, 1)),
    address=attempt(
        change, 20, struct.pack('BBBBI', 2, 24, 0, 0, 1) + struct.pack('HH4s', 8, 2, bytes([10, 1, 1, 1]))
    ),
    route=attempt(change, 24, struct.pack('8BI', 2, 0, 0, 0, 254, 3, 0, 1, 0)),
)
""")
    exited(answer)
    assert "ok" not in said.values(), said


def test_a_port_scan_finds_nothing(backend):
    answer, said = backend.attack("""
found = []
for port in list(range(1, 10000)) + [9385, 11211, 27017]:
    s = socket.socket(); s.setblocking(False)
    if s.connect_ex(('127.0.0.1', port)) == 0: found.append(port)
    s.close()
said(found=found)
""")
    exited(answer)
    assert said["found"] == []


def of_one_slot_after_another(backend, program):
    """What the program said in each guest, until one came whose ids an earlier one had: it got the earlier one's slot."""
    seen = set()
    for _ in range(200):  # many more than a daemon has slots for runs that come one by one
        answer, said = backend.attack("said(slot=open('/proc/self/uid_map').read())\n" + program)
        exited(answer)
        slot = said.pop("slot")
        yield said
        if slot in seen:
            return
        seen.add(slot)
    pytest.fail(f"no slot came again in {len(seen)} runs")


def test_sockets_left_behind_do_not_reach_the_next_guest(backend):
    program = """
def port():
    s = socket.socket(); s.bind(('127.0.0.1', 18090)); s.listen(); return s
said(listed=open('/proc/net/tcp').read().count('\\n') - 1, unix=open('/proc/net/unix').read().count('left-3391'))
keep = port(); u = socket.socket(socket.AF_UNIX); u.bind('\\0left-3391'); u.listen()
if os.fork() == 0: os.setsid(); time.sleep(100)
os._exit(0)
"""
    for said in of_one_slot_after_another(backend, program):
        assert said == {"listed": 0, "unix": 0}


@pytest.mark.weaken("netns")
def test_the_counters_of_the_loopback_tell_nothing(backend):
    program = """
said(lo=next(l for l in open('/proc/net/dev') if 'lo:' in l).split()[1:3])
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
for _ in range(100): s.sendto(b'x' * 100, ('127.0.0.1', 9))
"""
    for said in of_one_slot_after_another(backend, program):
        assert said == {"lo": ["0", "0"]}


@pytest.mark.weaken("netns")
def test_closed_connections_do_not_reach_the_next_guest(backend):
    """What was closed stays in TIME_WAIT for a minute, in the network namespace and not in a process."""
    program = """
said(before=open('/proc/net/tcp').read().count('\\n') - 1)
s = socket.socket(); s.bind(('127.0.0.1', 0)); s.listen()
c = socket.create_connection(s.getsockname()); a, _ = s.accept(); c.close(); a.close()
"""
    for said in of_one_slot_after_another(backend, program):
        assert said == {"before": 0}


def test_unix_sockets_of_the_host(backend):
    path = backend.daemon.state + "/cordon.sock"
    answer, said = backend.attack(f"""
for p in ({path!r}, '/run/docker.sock', '/run/dbus/system_bus_socket', '/run/systemd/journal/socket', '/dev/log'):
    said(**{{p: attempt(lambda: socket.socket(socket.AF_UNIX).connect(p))}})
""")
    exited(answer)
    assert "ok" not in said.values()


def test_many_connections_on_the_own_loopback(backend):
    answer, _ = backend.attack("""
s = socket.socket(); s.bind(('127.0.0.1', 0)); s.listen(1000)
held = []
try:
    for _ in range(5000): held.append(socket.create_connection(s.getsockname(), 1)); held.append(s.accept()[0])
except OSError as e: said(error=_name(e.errno) if e.errno else 'timeout')
""")
    exited(answer)
