# SPDX-License-Identifier: Apache-2.0
"""
bench.py --build DIR [--quick] [--only SECTION]...: Cordon beside its peers and floors, in one run, taking turns.

Every figure is taken warm, over HTTP keep-alive, on a daemon of its own. Program texts differ from run to run. Prints
tables and the targets with "reached" or "not reached", and writes all of it to bench/results/. Latencies are in
milliseconds; a ratio is against the plain interpreter in the same run.
"""
import argparse
import base64
import datetime
import json
import os
import pathlib
import platform
import subprocess
import sys
import time

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))

import egress  # noqa: E402
import host  # noqa: E402
import remote  # noqa: E402

PLAIN_IMPORTS = ["", "import json, re\n", "import math, random\n", "import collections, itertools\n", "import datetime\n"]


def quantile(values, q):
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(q * len(ordered)))] if ordered else float("nan")


def summary(us):
    return {"n": len(us), "p50_ms": quantile(us, 0.5) / 1000, "p99_ms": quantile(us, 0.99) / 1000,
            "min_ms": min(us, default=0) / 1000}


def body(code, language="python", **fields):
    return json.dumps({"language": language, "code": code, **fields})


class Bench:
    def __init__(self, build, quick):
        self.build, self.quick = build, quick
        self.number = int(time.time()) % 100000 * 1000  # no two benchmarks run the same texts
        self.results, self.targets, self.bundles = {}, [], []

    def pick(self, full, quick):
        return quick if self.quick else full

    def numbers(self, count):
        self.number += count
        return str(self.number - count)

    def tool(self, argv, **environment):
        done = subprocess.run(argv, env=dict(host.ENVIRONMENT, **environment), capture_output=True, text=True, check=False)
        if done.returncode != 0:
            raise host.Failed(f"{' '.join(argv[:6])}…: status {done.returncode}: {done.stderr[-500:]}")
        if done.stderr:
            print(done.stderr, file=sys.stderr, end="")
        return json.loads(done.stdout)

    def spawn(self, command, count=0, pause=0, workers=1, seconds=0, before=()):
        limit = ["-t", str(seconds)] if seconds else ["-n", str(count)]
        return self.tool([*before, str(self.build / "bench/bench_spawn"), *limit, "-p", str(pause), "-w", str(workers),
                          "-s", self.numbers(count or 100000), "--", *command])

    def load_command(self, daemon, bodies, count=0, pause=0, clients=1, seconds=0, options=()):
        limit = ["-t", str(seconds)] if seconds else ["-n", str(count)]
        return [str(self.build / "bench/bench_load"), "-P", str(daemon.port), "-k", daemon.key, *limit, "-p", str(pause),
                "-c", str(clients), "-s", self.numbers(count or 100000), *options, *bodies]

    def load(self, daemon, bodies, **options):
        return self.tool(self.load_command(daemon, bodies, **options))

    def warm(self, daemon, bodies):
        """What is measured is a daemon at work: zygotes loaded, pool full."""
        self.load(daemon, bodies, count=10, pause=20)
        time.sleep(1)

    def floor(self, count, pause):
        return self.tool([host.PYTHON, "-I", str(HERE / "floor.py"), str(count), str(pause), self.numbers(count)])

    def target(self, name, value, limit, at_most=True):
        good = value <= limit if at_most else value >= limit
        self.targets.append({"name": name, "value": value, "limit": limit, "at_most": at_most, "reached": bool(good)})

    # -- latency ----------------------------------------------------------------------------------------------------

    def alternate(self, peers, rounds):
        """peers: {name: function that measures some and returns a tool's answer}. They take turns, round by round."""
        us, errors = {name: [] for name in peers}, dict.fromkeys(peers, 0)
        for _ in range(rounds):
            for name, measure in peers.items():
                answer = measure()
                us[name] += answer["us"]
                errors[name] += answer["errors"]
        return {name: dict(summary(us[name]), errors=errors[name]) for name in peers}

    def latency_table(self, title, rows, base):
        print(f"\n{title}")
        print(f"  {'':34} {'p50':>9} {'p99':>9} {'p50 ratio':>10} {'p99 ratio':>10} {'n':>6} {'errors':>6}")
        for name, row in rows.items():
            row["p50_ratio"] = row["p50_ms"] / rows[base]["p50_ms"]
            row["p99_ratio"] = row["p99_ms"] / rows[base]["p99_ms"]
            print(f"  {name:34} {row['p50_ms']:9.2f} {row['p99_ms']:9.2f} {row['p50_ratio']:10.3f} "
                  f"{row['p99_ratio']:10.3f} {row['n']:6} {row['errors']:6}")

    def peers(self, argv, pause, scale):
        """The peers of one interpreter; argv starts it with a numbered print."""
        count = max(4, self.pick(20, 5) * scale // 100)
        peers = {"plain " + " ".join(argv[:-1]): lambda: self.spawn(argv, count, pause)}
        if os.path.exists(host.BWRAP[0]):
            peers["bwrap --unshare-all"] = lambda: self.spawn(host.BWRAP + argv, count, pause)
        if os.path.exists("/usr/bin/crun") and os.geteuid() == 0:
            bundle = host.Bundle([word.replace("{N}", "1") for word in argv])
            self.bundles.append(bundle)
            peers["crun container"] = lambda: self.spawn(bundle.command(), count, pause, before=host.WITHOUT_CGROUPS)
        return peers

    def latency_python(self):
        argv = [host.PYTHON, "-I", "-c", 'print("<{N}>")']
        with host.Daemon(self.build, pool_python=8) as daemon:
            for pause in (0, 100):
                cordon = lambda: self.load(daemon, [body(argv[-1])], count=self.pick(100, 25) if not pause else self.pick(30, 10),
                                           pause=pause)
                self.warm(daemon, [body(argv[-1])])
                peers = {"cordon, POST /v1/runs": cordon, **self.peers(argv, pause, 100 if not pause else 40)}
                if os.geteuid() == 0:
                    peers["floor: fork + namespaces + wait"] = lambda: self.floor(self.pick(50, 20), pause)
                rows = self.alternate(peers, self.pick(12, 3))
                how = f"{pause} ms pauses" if pause else "tight loop"
                base = "plain " + " ".join(argv[:-1])
                self.latency_table(f"print in a fresh Python, one client, {how} (ms)", rows, base)
                self.results[f"latency_python_{pause}"] = rows
                row = rows["cordon, POST /v1/runs"]
                self.target(f"Python p50 / plain, {how}", row["p50_ratio"], 0.12)
                self.target(f"Python p99 / plain, {how}", row["p99_ratio"], 0.6)

    def latency_node(self):
        argv = [host.NODE, "-e", 'console.log("<{N}>")']
        plain = "plain " + " ".join(argv[:-1])
        request = [body(argv[-1], "javascript")]
        with host.Daemon(self.build, pool_javascript=8) as warm, \
                host.Daemon(self.build, pool_javascript=0, pool_max=0) as cold:
            self.warm(warm, request)
            self.load(cold, request, count=2)
            # A parked guest is used up by each run and costs a whole start to replace: pauses let the pool refill.
            peers = {"cordon, parked guests": lambda: self.load(warm, request, count=self.pick(15, 5), pause=300),
                     "cordon, none parked": lambda: self.load(cold, request, count=self.pick(10, 3)),
                     **self.peers(argv, 0, 40),
                     "cordon, tight loop": lambda: self.load(warm, request, count=self.pick(20, 6))}
            rows = self.alternate(peers, self.pick(8, 2))
        self.latency_table("console.log in a fresh Node, one client (ms)", rows, plain)
        self.results["latency_node"] = rows
        self.target("JavaScript p50 / plain, parked", rows["cordon, parked guests"]["p50_ratio"], 0.05)
        self.target("JavaScript p50 / plain, none parked", rows["cordon, none parked"]["p50_ratio"], 1.15)

    def executor_manager(self):
        """RAGFlow's door beside the native one: the same program, called with the same argument."""
        code = "def main(n):\n    return n"
        native = json.dumps({"language": "python", "code": code, "arguments": {"n": "<{N}>"}, "artifacts": True})
        door = json.dumps({"language": "python", "code_b64": base64.b64encode(code.encode()).decode(), "arguments": {"n": "<{N}>"}})
        with host.Daemon(self.build, pool_python=8, executor_rate="1000000/second") as daemon:
            self.warm(daemon, [native])
            count = self.pick(60, 20)
            rows = self.alternate({"POST /v1/runs": lambda: self.load(daemon, [native], count=count, pause=10),
                                   "POST /run": lambda: self.load(daemon, [door], count=count, pause=10, options=["-u", "/run"])},
                                  self.pick(20, 6))
        self.latency_table("main called through the native door and through the executor manager's (ms)", rows, "POST /v1/runs")
        self.results["executor_manager"] = rows
        self.target("/run p50 - /v1/runs p50 (ms)", rows["POST /run"]["p50_ms"] - rows["POST /v1/runs"]["p50_ms"], 0.3)
        self.target("errors of /run", rows["POST /run"]["errors"], 0)

    # -- throughput -------------------------------------------------------------------------------------------------

    def plain_rate(self):
        """The best that the cores reach starting plain interpreters, two or four at a time."""
        seconds = self.pick(4, 2)
        argv = [host.PYTHON, "-I", "-c", 'print("<{N}>")']
        answers = [self.spawn(argv, workers=workers, seconds=seconds) for workers in (2, 4)]
        return max(len(answer["us"]) / answer["seconds"] for answer in answers)

    def rates(self, daemon, bodies, clients, rounds):
        """{clients: best of the rounds}, plain rate: taking turns."""
        rows, plain = {}, 0
        for _ in range(rounds):
            plain = max(plain, self.plain_rate())
            for count in clients:
                answer = self.load(daemon, bodies, clients=count, seconds=self.pick(5, 2))
                row = {"rate": len(answer["us"]) / answer["seconds"], "errors": answer["errors"], **summary(answer["us"])}
                row["errors"] += rows.get(count, row)["errors"] if count in rows else 0
                if count not in rows or row["rate"] > rows[count]["rate"]:
                    rows[count] = row
                else:
                    rows[count]["errors"] = row["errors"]
        return rows, plain

    def rate_table(self, title, rows, plain):
        print(f"\n{title}")
        print(f"  {'clients':>10} {'runs/s':>9} {'ratio':>7} {'p50 ms':>9} {'p99 ms':>9} {'errors':>6}")
        print(f"  {'plain':>10} {plain:9.0f} {1:7.2f}")
        for clients, row in rows.items():
            row["ratio"] = row["rate"] / plain
            print(f"  {clients:>10} {row['rate']:9.0f} {row['ratio']:7.2f} {row['p50_ms']:9.2f} {row['p99_ms']:9.2f} "
                  f"{row['errors']:6}")

    def throughput(self):
        bodies = [body(imports + 'print("<{N}>")') for imports in PLAIN_IMPORTS]
        with host.Daemon(self.build) as daemon:
            self.warm(daemon, bodies)
            rows, plain = self.rates(daemon, bodies, (1, 2, 4, 16, 64), self.pick(3, 1))
        self.rate_table("isolated Python runs a second, nothing heavy imported; plain python3 -I -c on the same cores",
                        rows, plain)
        self.results["throughput"] = {"plain": plain, "clients": rows}
        best = max(row["rate"] for row in rows.values())
        self.target("runs/s with 16 clients / plain", rows[16]["ratio"], 2.5, at_most=False)
        self.target("runs/s with 64 clients / best", rows[64]["rate"] / best, 0.9, at_most=False)
        self.target("errors with 64 clients", rows[64]["errors"], 0)

    def data_modules(self):
        kinds = {
            "numpy": ["import numpy\nprint('<{N}>', numpy.arange({N} % 50).sum())",
                      "import numpy as np\nprint('<{N}>', np.ones(3) * {N})"],
            "pandas + matplotlib": [
                "import pandas\nimport matplotlib.pyplot\nprint('<{N}>', len(pandas.DataFrame({'a': [{N}]})))",
                "import matplotlib.pyplot as plt\nimport pandas as pd\nprint('<{N}>', pd.Series([{N}]).sum())"],
        }
        with host.Daemon(self.build) as daemon:
            for kind, codes in kinds.items():
                bodies = [body(code) for code in codes]
                self.warm(daemon, bodies)
                rows, plain = self.rates(daemon, bodies, (1, 16), self.pick(2, 1))
                self.rate_table(f"runs a second importing {kind}; plain imports nothing", rows, plain)
                self.results["throughput " + kind] = {"plain": plain, "clients": rows}
                if kind != "numpy":
                    self.target("pandas + matplotlib runs/s, 16 clients / plain", rows[16]["ratio"], 1.4, at_most=False)

    # -- templates --------------------------------------------------------------------------------------------------

    def templates(self):
        """The same programs in the default template and in one with two packages of pip and two of npm."""
        if os.geteuid() != 0:
            print("\ntemplates: skipped, building one needs root here")
            return
        python, javascript = 'print("<{N}>")', 'console.log("<{N}>")'
        with host.Daemon(self.build, pool_python=8, pool_javascript=8) as daemon:
            self.build_template(daemon)
            kinds = {"Python, tight loop": (body(python), body(python, template="made"), 100, 0),
                     "Python, 100 ms pauses": (body(python), body(python, template="made"), 30, 100),
                     "JavaScript, 300 ms pauses": (body(javascript, "javascript"),
                                                   body(javascript, "javascript", template="made"), 15, 300)}
            for kind, (default, made, count, pause) in kinds.items():
                for request in (default, made):
                    self.load(daemon, [request], count=3)  # the made one is loaded by this
                    self.warm(daemon, [request])
                count = self.pick(count, max(5, count // 4))
                rows = self.alternate({"default": lambda: self.load(daemon, [default], count=count, pause=pause),
                                       "made": lambda: self.load(daemon, [made], count=count, pause=pause)},
                                      self.pick(12, 4))
                self.latency_table(f"default and made template, {kind} (ms)", rows, "default")
                self.results["templates " + kind] = rows
                self.target(f"made template p50 / default, {kind}", rows["made"]["p50_ratio"], 1.1)

    def build_template(self, daemon):
        sys.path.insert(0, str(HERE.parent / "tests"))
        from lib import template

        with template.package_server() as (index, registry):
            done = subprocess.run(
                [daemon.binary, "template", "create", "made", "--from", "python", "--pip", "cordon-first", "--pip",
                 "cordon-second", "--npm", "cordon-left", "--npm", "cordon-right", "--host-network", "--index-url", index,
                 "--registry", registry, "--state", daemon.state], env=host.ENVIRONMENT, capture_output=True, text=True,
                check=False)
        if done.returncode != 0:
            raise host.Failed(f"the template was not built: {done.stderr[-2000:]}")

    # -- streams, deadlines, bytes ----------------------------------------------------------------------------------

    def stream(self):
        code = 'import time\nprint("<{N}>", flush=True)\ntime.sleep(0.03)\nprint("end")'
        with host.Daemon(self.build, pool_python=8) as daemon:
            self.warm(daemon, [body(code)])
            answer = self.load(daemon, [body(code)], count=self.pick(300, 40), options=["-a", "application/x-ndjson"])
        row = dict(summary(answer["seen_us"]), errors=answer["errors"])
        print(f"\nfirst byte of a streaming run (ms): p50 {row['p50_ms']:.2f}, p99 {row['p99_ms']:.2f}, "
              f"n {row['n']}, errors {row['errors']}")
        self.results["first_byte"] = row

    def deadline(self):
        """Runs that pass their limit of 1 s, beside 64 busy programs that are themselves isolated runs."""
        busy = body('while True:\n    pass  # {N}', timeout_s=self.pick(120, 60))
        late = body('import time\nprint("<{N}>", flush=True)\nwhile True:\n    pass', timeout_s=1)
        with host.Daemon(self.build, max_runs=96) as daemon:
            self.warm(daemon, [body('print("<{N}>")')])
            load = subprocess.Popen(self.load_command(daemon, [busy], count=64, clients=64, options=["-x"]),
                                    env=host.ENVIRONMENT, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
            try:
                time.sleep(self.pick(5, 4))
                answer = self.load(daemon, [late], count=self.pick(160, 16), clients=4, options=["-v"])
            finally:
                load.kill()
                load.wait()
        over, causes = [], set()
        for took, result in zip(answer["us"], answer["answers"]):
            timing = result["timing"]
            over.append(took - 1000 * (timing["queue_ms"] + timing["start_ms"] + 1000))
            causes.add(result["outcome"]["cause"])
        row = dict(summary(over), errors=answer["errors"], causes=sorted(causes),
                   whole=summary([took - 1000000 for took in answer["us"]]))
        print(f"\ndeadline of 1 s, 64 busy runs beside it: answered p50 {row['p50_ms']:.2f} ms, p99 {row['p99_ms']:.2f} ms "
              f"after it (n {row['n']}, errors {row['errors']}, causes {', '.join(causes)};\n  with the wait for a guest: "
              f"p50 {row['whole']['p50_ms']:.2f}, p99 {row['whole']['p99_ms']:.2f})")
        self.results["deadline"] = row
        self.target("deadline overshoot p99 (ms)", row["p99_ms"], 20)

    def transfer(self):
        mib = 1 << 20
        kinds = {
            "10 MiB of stdout": body('import sys\nprint("<{N}>")\nsys.stdout.write("0123456789abcdef" * (10 << 16))'),
            "one 10 MiB artifact": body('import os\nprint("<{N}>")\nopen("artifacts/a", "wb").write(os.urandom((10 << 20) - 1))',
                                        artifacts=True),
            "50 artifacts of 200 KiB": body('import os\nprint("<{N}>")\nfor i in range(50):\n'
                                            '    open(f"artifacts/{i}", "wb").write(os.urandom(200 << 10))', artifacts=True),
        }
        rows = {}
        with host.Daemon(self.build, stdout_kb=20480, artifacts_mb=64) as daemon:
            for kind, request in kinds.items():
                self.warm(daemon, [request])
                answer = self.load(daemon, [request], count=self.pick(20, 4), options=["-v"])
                row = dict(summary(answer["us"]), errors=answer["errors"])
                answers = answer["answers"]
                moved = [len(a["stdout"]) + sum(artifact_size(f) for f in a.get("artifacts", [])) for a in answers]
                row["mib"] = quantile(moved, 0.5) / mib
                row["mib_per_s"] = row["mib"] / (row["p50_ms"] / 1000)
                rows[kind] = row
        print("\nbytes out, one client")
        for kind, row in rows.items():
            print(f"  {kind:26} {row['mib']:6.1f} MiB in {row['p50_ms']:8.1f} ms: {row['mib_per_s']:6.0f} MiB/s, errors "
                  f"{row['errors']}")
        self.results["transfer"] = rows

    # -- memory -----------------------------------------------------------------------------------------------------

    def memory(self):
        none = {"pool_python": 0, "pool_python_data": 0, "pool_javascript": 0, "pool_bash": 0, "pool_guest": 0, "pool_max": 8}
        kinds = {"python": ("pool_python", 4.0), "python with data modules": ("pool_python_data", None),
                 "javascript": ("pool_javascript", 32.0)}
        print("\nmemory of a parked guest, agent included, at a pool of 8 (MiB)")
        print(f"  {'':26} {'private':>8} {'tables':>8} {'kernel':>8} {'sum':>8}   {'group':>8}  guests")
        for kind, (setting, limit) in kinds.items():
            with host.Daemon(self.build, **dict(none, **{setting: 8})) as daemon:
                row = self.parked(daemon)
            self.results["memory " + kind] = row
            if row is None:
                print(f"  {kind:26} no parked guest was found")
                continue
            shown = {key: f"{value:8.2f}" if value is not None else "       -" for key, value in row.items()}
            print(f"  {kind:26} {shown['private']} {shown['tables']} {shown['kernel']} {shown['sum']}   {shown['group']}  "
                  f"{row['guests']}")
            if limit:
                self.target(f"MiB of a parked {kind} guest", row["sum"], limit)

    def parked(self, daemon):
        # Parked is a guest whose memory has come to rest: interpreters start and rehearse long after their agents are there.
        count = before = settled = 0
        for _ in range(200):
            guests = host.guest_processes(daemon.process.pid)
            count = sum(1 for status in guests.values() if host.is_init(status))
            now = sum(map(host.private_kb, guests))
            settled = settled + 1 if count >= 8 and abs(now - before) <= now / 200 else 0
            before = now
            if settled >= 8:
                break
            time.sleep(0.25)
        if not count:
            return None
        mib = 1024 * count
        private = sum(host.private_kb(pid) for pid in guests) / mib
        tables = sum(host.kilobytes(status["VmPTE"]) for status in guests.values()) / mib
        # An agent may stand in the daemon's own group: only those of guests are theirs alone.
        folders = {folder for pid in guests if (folder := host.memory_cgroup(pid)) and "/cordon-" in str(folder)}
        sums = [host.group_bytes(folder) for folder in folders]
        kernel = sum(k for _, k in sums) / count / (1 << 20) if sums and all(k is not None for _, k in sums) else None
        group = sum(u for u, _ in sums) / count / (1 << 20) if sums and all(u is not None for u, _ in sums) else None
        # The kernel's count has the page tables of those processes in it.
        return {"private": private, "tables": tables, "kernel": kernel, "sum": private + max(tables, kernel or 0),
                "group": group, "guests": count}

    # -- kept guests ------------------------------------------------------------------------------------------------

    def kept(self):
        count, crowd = self.pick(60, 15), self.pick(1000, 100)
        found = self.tool([str(self.build / "bench/bench_kept"), "-n", str(count), "-g", str(crowd)])
        plain = quantile(found["plain"], 0.5)
        limits = {"create": 5, "exec": 3, "cell": 2, "pause": 5, "resume": 5}
        print("\nkept guests, below the doors (milliseconds; times a plain posix_spawn of `true` beside it)")
        for row in ("plain", "create", "exec", "context", "cell", "write", "read", "pause", "resume", "destroy"):
            p50, p90 = quantile(found[row], 0.5), quantile(found[row], 0.9)
            print(f"  {row:10} p50 {p50 / 1000:8.2f}  p90 {p90 / 1000:8.2f}  x {p50 / plain:5.1f}")
            if row in limits:
                self.target(f"ms of {row}, kept guest, p50", p50 / 1000, limits[row])
        each = found["crowd"]
        print(f"  {each['guests']} idle guests: {each['pss_kib_each']} KiB PSS and {each['cgroup_kib_each']} KiB in its group "
              f"each; made in {each['made_ms']} ms, ended in {each['ended_ms']} ms")
        self.target("MiB of an idle kept guest", (each["pss_kib_each"] + each["cgroup_kib_each"]) / 1024, 6)
        self.results["kept"] = found

    # -- virtual machines -------------------------------------------------------------------------------------------

    def machines(self):
        """The command that operators run, too, with the image of ./dev image."""
        image = HERE.parent / "build/image"
        cordon = str(self.build / "cordon")
        made = subprocess.run([cordon, "image", "build", "--out", str(image)], env=host.ENVIRONMENT, check=False)
        if made.returncode != 0:
            raise host.Failed(f"no image was made: status {made.returncode}")
        found = self.tool([cordon, "bench", "exec-sandbox", "--json", "--rounds", str(self.pick(20, 4)), "--boots",
                           str(self.pick(5, 1)), "--seconds", str(self.pick(30, 8))], CORDON_VM_IMAGE=str(image))
        print(f"\nvirtual machines, accelerator {found['accelerator']}, load {os.getloadavg()[0]:.1f} (ms, medians; times the "
              "reference's)")
        for name, row in found["rows"].items():
            print(f"  {name:42} {row['ms']:9.1f} x {row['ratio']:6.3f}  n {row['n']}")
        memory = found["memory_mib"]
        print(f"  a parked one has {memory['private']:.1f} MiB of its own (PSS {memory['pss']:.1f}, RSS {memory['rss']:.1f}); "
              f"{found['starts_per_s']:.2f} a second, two clients")
        self.results["machines"] = found
        self.targets += found["targets"]

    def egress(self):
        egress.run(self)

    def remote(self):
        remote.measure(self)

    # -- the end ----------------------------------------------------------------------------------------------------

    def close(self):
        for bundle in self.bundles:
            bundle.close()

    def verdict(self):
        print("\ntargets")
        for row in self.targets:
            sign = "<=" if row["at_most"] else ">="
            print(f"  {row['name']:48} {row['value']:9.3f} {sign} {row['limit']:<6} "
                  f"{'reached' if row['reached'] else 'NOT reached'}")


def artifact_size(artifact):
    if "content_b64" in artifact:
        return len(base64.b64decode(artifact["content_b64"]))
    return len(artifact.get("content", ""))


SECTIONS = ["latency_python", "latency_node", "executor_manager", "throughput", "data_modules", "templates", "stream", "deadline", "transfer", "memory",
            "kept", "egress", "remote", "machines"]


def about():
    def first_line(*argv):
        try:
            return subprocess.run(argv, capture_output=True, text=True, check=False).stdout.split("\n")[0]
        except OSError:
            return None
    return {"time": datetime.datetime.now().isoformat(timespec="seconds"), "kernel": platform.release(),
            "cpus": len(os.sched_getaffinity(0)), "load": f"{os.getloadavg()[0]:.2f} in the minute before", "python": f"{host.PYTHON} {first_line(host.PYTHON, '-V')}",
            "node": f"{host.NODE} {first_line(host.NODE, '-v')}", "crun": first_line("crun", "--version"),
            "bwrap": first_line("bwrap", "--version"),
            "commit": first_line("git", "-C", str(HERE), "describe", "--always", "--dirty")}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--build", type=pathlib.Path, required=True)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--only", action="append", choices=SECTIONS)
    options = parser.parse_args()
    bench, facts = Bench(options.build.resolve(), options.quick), about()
    print("\n".join(f"{key:8} {value}" for key, value in facts.items()))
    failed = []
    try:
        for section in options.only or SECTIONS:
            try:
                getattr(bench, section)()
            except (host.Failed, KeyError) as error:
                failed.append(section)
                print(f"\n{section}: FAILED: {error}")
    finally:
        bench.close()
    bench.verdict()
    results = HERE / "results"
    results.mkdir(exist_ok=True)
    path = results / (datetime.datetime.now().strftime("%Y%m%d-%H%M%S") + ("-quick" if options.quick else "") + ".json")
    path.write_text(json.dumps({"about": facts, "quick": options.quick, "failed": failed, "results": bench.results,
                                "targets": bench.targets}, indent=1))
    print(f"\n{path}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
