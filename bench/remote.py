# SPDX-License-Identifier: Apache-2.0
"""
Remote runs: what the way through `self_managed` to another daemon on loopback costs over going there at once, and what
200 runs at once need of the gateway's memory while a slow service has them.
"""
import http.server
import json
import os
import subprocess
import threading
import time

import host

CROWD = 200
SLOW_S = 8
PROGRAM = 'print("<{N}>")'


class Slow:
    """An executor manager that answers each run after SLOW_S, all at once; and tells how many it has now."""

    def __init__(self):
        outer, self.now, self.most, self.lock = self, 0, 0, threading.Lock()

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self):
                self.say({"status": "ok"})

            def do_POST(self):
                self.rfile.read(int(self.headers["Content-Length"]))
                outer.count(1)
                time.sleep(SLOW_S)
                outer.count(-1)
                self.say({"status": "success", "stdout": "", "stderr": "", "exit_code": 0, "time_used_ms": 1, "memory_used_kb": 1,
                          "artifacts": []})

            def say(self, value):
                data = json.dumps(value).encode()
                self.send_response(200)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)

            def log_message(self, *_):
                pass

        class Server(http.server.ThreadingHTTPServer):
            request_queue_size = 2 * CROWD

        self.server = Server(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_address[1]}"
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def count(self, by):
        with self.lock:
            self.now += by
            self.most = max(self.most, self.now)

    def close(self):
        self.server.shutdown()
        self.server.server_close()


def overhead(bench):
    direct = json.dumps({"language": "python", "code": PROGRAM})
    remote = json.dumps({"language": "python", "code": PROGRAM, "backend": "self_managed"})
    with host.Daemon(bench.build, pool_python=8, executor_rate="1000000/second") as there, \
            host.Daemon(bench.build, pool_python=0, pool_max=0, self_managed_endpoint=f"http://127.0.0.1:{there.port}",
                        self_managed_token=there.key) as here:
        bench.warm(there, [direct])
        bench.warm(here, [remote])
        count = bench.pick(60, 20)
        rows = bench.alternate({"direct": lambda: bench.load(there, [direct], count=count, pause=10),
                                "through self_managed": lambda: bench.load(here, [remote], count=count, pause=10)},
                               bench.pick(20, 6))
    bench.latency_table("print in a fresh Python on another daemon of this machine (ms)", rows, "direct")
    bench.target("self_managed p50 - direct p50 (ms)", rows["through self_managed"]["p50_ms"] - rows["direct"]["p50_ms"], 1.5)
    bench.target("errors through self_managed", rows["through self_managed"]["errors"], 0)
    return rows


def used_kb(daemon):
    return sum(map(host.private_kb, [daemon.process.pid, *host.descendants(daemon.process.pid)]))


def crowd(bench):
    """The daemon's own processes, all of them, before and while the slow service has all runs."""
    slow = Slow()
    body = json.dumps({"language": "python", "code": PROGRAM, "backend": "self_managed", "timeout_s": 60})
    settings = {"pool_python": 0, "pool_max": 0, "max_runs": CROWD, "max_timeout_s": 60}
    try:
        with host.Daemon(bench.build, self_managed_endpoint=slow.url, self_managed_timeout_s=60, **settings) as daemon:
            bench.load(daemon, [body], count=1, options=["-x"])
            before = used_kb(daemon)
            load = subprocess.Popen(bench.load_command(daemon, [body], count=CROWD, clients=CROWD, options=["-x"]), env=host.ENVIRONMENT,
                                    stdout=subprocess.PIPE, text=True)
            most = 0
            while load.poll() is None:
                if slow.now == CROWD:
                    most = max(most, used_kb(daemon))
                time.sleep(0.2)
            errors = json.loads(load.stdout.read())["errors"]
    finally:
        slow.close()
    if slow.most < CROWD:
        raise host.Failed(f"the slow service had {slow.most} of {CROWD} runs at once")
    grown = (most - before) / 1024
    print(f"\n{CROWD} remote runs at once: {grown:.1f} MiB more than {before / 1024:.1f} MiB ({os.getloadavg()[0]:.1f} load)")
    bench.target(f"MiB for {CROWD} remote runs at once", grown, 40)
    bench.target("errors of them", errors, 0)
    return {"grown_mib": grown, "before_mib": before / 1024, "errors": errors}


def measure(bench):
    bench.results["remote"] = {"overhead": overhead(bench), "crowd": crowd(bench)}
