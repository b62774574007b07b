# SPDX-License-Identifier: Apache-2.0
"""
The network of guests, beside the same without it, a direct connection, and slirp4netns: starts, connections, bytes, and
what many connections cost. Servers and resolver are on loopback, which CORDON_EGRESS_RANGES opens for this daemon.
"""
import contextlib
import json
import os
import select
import shutil
import socket
import socketserver
import struct
import subprocess
import threading
import time

import host

NAME = "bench.test"
CROWD = 500
UNPACED = b"reno"

# In a guest, in slirp4netns, and on the host: argv says where, and how much. Prints one JSON object.
CLIENT = """
import json, socket, sys, time
where, port, rounds, mib = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4])
clock = time.perf_counter
def echo(address):
    began = clock()
    with socket.create_connection((address, port), 20) as s:
        s.setsockopt(6, 1, 1)
        s.sendall(b"exxxxxx\\n")
        assert s.recv(8)
    return (clock() - began) * 1e6
began = clock()
address = socket.getaddrinfo(where, port, socket.AF_INET)[0][4][0]
resolved = (clock() - began) * 1e6
times = [echo(address) for _ in range(rounds)]
def receive(kind):
    with socket.create_connection((address, port), 20) as s:
        s.sendall(kind + mib.to_bytes(7, "big"))
        room, got, began = bytearray(1 << 20), 0, clock()
        while n := s.recv_into(room): got += n
        assert got == mib << 20, got
        return got / (1 << 20) / (clock() - began)
rates = [(receive(b"b"), receive(b"u")) for _ in range(3 if mib else 0)]
print(json.dumps({"resolved_us": resolved, "first_us": times[0], "us": times[1:],
                  "mib_per_s": max(r[0] for r in rates), "unpaced_mib_per_s": max(r[1] for r in rates)}))
"""

# Holds many connections, each of which has carried something, until its stdin ends.
HOLD = """
import socket, sys
where, port, count = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
held = [socket.create_connection((where, port), 20) for _ in range(count)]
for s in held: s.sendall(b"hxxxxxx\\n")
got = sum(s.recv(8) == b"xxxxxx\\nh" for s in held)
print(got, flush=True)
import time; time.sleep(4)
"""


class Handler(socketserver.BaseRequestHandler):
    """b: bytes, as the host's TCP sends them; u: bytes without pacing, where the host's way has it; else an echo."""
    block = bytes(1 << 20)

    def handle(self):
        self.request.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        asked = b""
        while len(asked) < 8:
            part = self.request.recv(8 - len(asked))
            if not part:
                return
            asked += part
        if asked[:1] in (b"b", b"u"):
            if asked[:1] == b"u":
                self.request.setsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, UNPACED)
            for _ in range(int.from_bytes(asked[1:], "big")):
                self.request.sendall(self.block)
            return
        self.request.sendall(asked[1:] + asked[:1])
        if asked[:1] == b"h":
            self.request.recv(1)


class Server(socketserver.ThreadingTCPServer):
    allow_reuse_address = daemon_threads = True
    request_queue_size = 1024


class Resolver(socketserver.BaseRequestHandler):
    """One A record, whatever is asked for."""

    def handle(self):
        data, sock = self.request
        end = data.index(b"\0", 12) + 5
        kind = struct.unpack_from(">H", data, end - 4)[0]
        head = data[:2] + struct.pack(">HHHHH", 0x8180, 1, kind == 1, 0, 0)
        record = b"\xc0\x0c" + struct.pack(">HHIH", 1, 1, 60, 4) + socket.inet_aton("127.0.0.1") if kind == 1 else b""
        sock.sendto(head + data[12:end] + record, self.client_address)


@contextlib.contextmanager
def servers():
    with Server(("127.0.0.1", 0), Handler) as tcp, socketserver.ThreadingUDPServer(("127.0.0.1", 0), Resolver) as dns:
        for server in (tcp, dns):
            threading.Thread(target=server.serve_forever, args=(0.1,), daemon=True).start()
        yield tcp.server_address[1], dns.server_address[1]
        tcp.shutdown()
        dns.shutdown()


@contextlib.contextmanager
def relay(bench, port, way):
    """The port of a bare relay to that port: what any process in between costs on this host now."""
    process = subprocess.Popen([str(bench.build / "bench/bench_relay"), str(port), way], env=host.ENVIRONMENT, text=True,
                               stdin=subprocess.DEVNULL, stdout=subprocess.PIPE)
    try:
        yield int(process.stdout.readline())
    finally:
        process.kill()
        process.wait()


@contextlib.contextmanager
def slirp():
    """A command prefix that runs in a network namespace whose way out is slirp4netns, or None."""
    if not shutil.which("slirp4netns", path=host.ENVIRONMENT["PATH"]) or not os.path.exists("/dev/net/tun"):
        yield None
        return
    quiet = {"env": host.ENVIRONMENT, "stdin": subprocess.DEVNULL, "stdout": subprocess.DEVNULL}
    holder = subprocess.Popen(["unshare", "--net", "sleep", "infinity"], **quiet)
    ours = os.readlink("/proc/self/ns/net")
    while os.readlink(f"/proc/{holder.pid}/ns/net") == ours:
        time.sleep(0.01)
    ready, told = os.pipe()
    way = subprocess.Popen(["slirp4netns", "--configure", "--mtu=65520", f"--ready-fd={told}", str(holder.pid), "tap0"],
                           pass_fds=[told], stderr=subprocess.DEVNULL, **quiet)
    os.close(told)
    try:
        came = select.select([ready], [], [], 10)[0] and os.read(ready, 1)
        yield ["nsenter", "-t", str(holder.pid), "-n"] if came else None
    finally:
        os.close(ready)
        for process in (way, holder):
            process.kill()
            process.wait()


def starts(bench, daemon):
    """The same program without and with network, out of the pool, taking turns."""
    code = 'print("<{N}>")'
    off = json.dumps({"language": "python", "code": code})
    on = json.dumps({"language": "python", "code": code, "network": True, "allowed_domains": [NAME]})
    for request in (off, on):
        bench.warm(daemon, [request])
    count = bench.pick(25, 8)
    rows = bench.alternate({"without network": lambda: bench.load(daemon, [off], count=count, pause=100),
                            "with network": lambda: bench.load(daemon, [on], count=count, pause=100)}, bench.pick(12, 5))
    bench.latency_table("a run without and with network, 100 ms pauses (ms)", rows, "without network")
    bench.target("run with network p50 / without", rows["with network"]["p50_ratio"], 1.2)
    bench.results["egress starts"] = rows


def program(text, *words):
    """text with its argv, and the mark by which the load tool knows its answer."""
    return f'print("<{{N}}>", flush=True)\nimport sys\nsys.argv = {["x", *map(str, words)]!r}\n' + text


def in_guest(bench, daemon, port, rounds, mib):
    code = program(CLIENT, NAME, port, rounds, mib)
    answer = bench.load(daemon, [json.dumps({"language": "python", "code": code, "network": True, "memory_mb": 512,
                                             "allowed_domains": [NAME], "timeout_s": 60})], count=1, options=["-v"])
    return json.loads(answer["answers"][0]["stdout"].splitlines()[-1])


def outside(port, rounds, mib, where, before=()):
    done = subprocess.run([*before, host.PYTHON, "-I", "-c", CLIENT, where, str(port), str(rounds), str(mib)],
                          env=host.ENVIRONMENT, capture_output=True, text=True, timeout=120, check=False)
    if done.returncode != 0:
        raise host.Failed(f"the client on {where}: {done.stderr[-500:]}")
    return json.loads(done.stdout)


# The server sends as this host does by default, and without pacing (BBR's timers dominate on loopback).
RATES = {"mib_per_s": "", "unpaced_mib_per_s": ", without pacing"}


def middle(numbers):
    return sorted(numbers)[len(numbers) // 2]


def summary(answers):
    rest = sorted(us for a in answers for us in a["us"])
    return {**{key: middle([a[key] for a in answers]) for key in ("resolved_us", "first_us", *RATES)},
            "p50_us": rest[len(rest) // 2], "p99_us": rest[int(len(rest) * 0.99)]}


def show(rows, direct):
    with open("/proc/sys/net/ipv4/tcp_congestion_control", encoding="ascii") as file:
        print(f"\nconnections (microseconds: connect, 8 bytes there and back) and bytes to the client (TCP: {file.read().strip()})")
    print(f"  {'':20} {'resolved':>9} {'first p50':>10} {'next p50':>9} {'p99':>8} {'MiB/s':>8} {'of direct':>9} "
          f"{'unpaced':>8} {'of direct':>9}")
    for name, row in rows.items():
        rates = " ".join(f"{row[kind]:8.0f} {row[kind] / direct[kind]:9.2f}" for kind in RATES)
        print(f"  {name:20} {row['resolved_us']:9.0f} {row['first_us']:10.0f} {row['p50_us']:9.0f} {row['p99_us']:8.0f} {rates}")


def ways(bench, daemon, port):
    """Connections and bytes: direct, by a guest, and by slirp4netns, taking turns."""
    rounds, mib = bench.pick(40, 15), bench.pick(512, 128)
    with slirp() as prefix, relay(bench, port, "splice") as spliced, relay(bench, port, "copy") as copied:
        ask = {"direct on loopback": lambda: outside(port, rounds, mib, "127.0.0.1"),
               "by a splicing relay": lambda: outside(spliced, rounds, mib, "127.0.0.1"),
               "by a copying relay": lambda: outside(copied, rounds, mib, "127.0.0.1"),
               "from a guest": lambda: in_guest(bench, daemon, port, rounds, mib)}
        if prefix:
            ask["by slirp4netns"] = lambda: outside(port, rounds, mib, "10.0.2.2", prefix)
        found = {name: [] for name in ask}
        for _ in range(bench.pick(7, 3)):
            for name, measure in ask.items():
                found[name].append(measure())
    rows = {name: summary(answers) for name, answers in found.items()}
    direct, guest = rows["direct on loopback"], rows["from a guest"]
    show(rows, direct)
    bench.target("first connection of a guest, ms above direct", (guest["first_us"] - direct["first_us"]) / 1000, 1)
    for kind in RATES:
        bench.target(f"bytes to a guest / direct{RATES[kind]}", guest[kind] / direct[kind], 0.6, at_most=False)
        print(f"  a guest / a splicing relay: bytes x {guest[kind] / rows['by a splicing relay'][kind]:.2f}")
    if "by slirp4netns" in rows:
        peer = rows["by slirp4netns"]
        print(f"  a guest / slirp4netns: connections x {guest['p50_us'] / peer['p50_us']:.2f} of its time, bytes x "
              f"{guest['mib_per_s'] / peer['mib_per_s']:.2f}")
    bench.results["egress ways"] = rows


def memory_kb(pid):
    with open(f"/proc/{pid}/smaps_rollup", encoding="ascii") as file:
        return int(next(line for line in file if line.startswith("Pss:")).split()[1])


def role(daemon, name):
    for pid in host.descendants(daemon.process.pid):
        with open(f"/proc/{pid}/cmdline", "rb") as file:
            words = file.read().split(b"\0")
        if b"--role" in words and words[words.index(b"--role") + 1] == name.encode():
            return pid
    raise host.Failed(f"no {name} process")


def crowd(bench, daemon, port):
    """The egress process's memory while one guest has many connections at once."""
    pid = role(daemon, "egress")
    before = memory_kb(pid)
    code = program(HOLD, NAME, port, CROWD)
    request = json.dumps({"language": "python", "code": code, "network": True, "allowed_domains": [NAME], "timeout_s": 60})
    load = subprocess.Popen(bench.load_command(daemon, [request], count=1, options=["-v"]), env=host.ENVIRONMENT,
                            stdout=subprocess.PIPE, text=True)
    most = before
    while load.poll() is None:
        most = max(most, memory_kb(pid))
        time.sleep(0.05)
    answer = json.loads(load.stdout.read())["answers"][0]
    each = (most - before) / CROWD
    got = answer["stdout"].splitlines()[-1]
    print(f"\n{CROWD} connections of one guest at once: {got} of them answered; the egress process "
          f"grew from {before} to {most} KiB, {each:.2f} KiB each")
    bench.target(f"KiB of the egress process a connection, {CROWD} at once", each, 8)
    bench.results["egress crowd"] = {"answered": got, "before_kb": before, "most_kb": most}


def run(bench):
    with servers() as (port, dns):
        with host.Daemon(bench.build, allow_network="true", egress_resolver=f"127.0.0.1:{dns}", egress_ranges="127.0.0.1",
                         open_files=2048, pool_python=8) as daemon:
            starts(bench, daemon)
            ways(bench, daemon, port)
            crowd(bench, daemon, port)
