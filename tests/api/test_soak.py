# SPDX-License-Identifier: Apache-2.0
"""
Mixed traffic with random kills of agents, warden and gateway: no wrong answer, nothing left, memory flat. A minute; ten
with --long. An answer may be an error while something is being killed; it may never be a wrong one.
"""

import base64
import http.client
import os
import random
import signal
import threading
import time

import pytest
from lib import host
from lib.guest import Guest

LONG = os.environ.get("CORDON_TEST_LONG") == "1"
SECONDS = 600 if LONG else 60
WORKERS = 6


class Traffic:
    """One worker's: guests of its own, values that nobody else knows."""

    def __init__(self, daemon, number, until, seen):
        self.daemon, self.until, self.seen = daemon, until, seen
        self.random = random.Random(number * 1000003 + int(time.time()))

    def token(self):
        return f"{self.random.getrandbits(64):016x}"

    def one_run(self):
        token = self.token()
        answer = self.daemon.post({"language": "python", "code": f"print('{token}')", "timeout_s": 20}, timeout=60)
        if answer.status == 200 and answer.json()["outcome"]["cause"] == "exited":
            assert answer.json()["stdout"] == token + "\n" and answer.json()["exit_code"] == 0, answer
            return True
        return False

    def one_guest(self):
        with Guest(self.daemon, memory_mb=128, ttl_s=120) as guest:
            token = self.token()
            guest.put("token", token.encode())
            answer = guest.cell(f"x = '{token}'\nopen('token').read() == x", timeout=60)
            context, value = answer["context"], answer["results"]
            if answer["cause"] == "exited":
                assert answer["error"] is not None or value[0]["text"] == "True", answer
            again = guest.cell("x", timeout=60)
            if again["cause"] == "exited" and not again["fresh"] and not answer["context_ended"]:
                assert again["context"] == context and again["results"][0]["text"] == f"'{token}'", again
            done = guest.exec(["cat", "token"])
            if done["outcome"]["cause"] == "exited" and done["exit_code"] == 0:
                assert done["stdout"] == token, done
            returned = guest.run(f"import os\nos.makedirs('artifacts', exist_ok=True)\nopen('artifacts/t', 'w').write('{token}')", artifacts=True)
            for artifact in returned["artifacts"]:
                if "content_b64" in artifact:
                    assert base64.b64decode(artifact["content_b64"]).decode() == token, returned
        return True

    def loop(self):
        while time.monotonic() < self.until:
            act = self.random.choice([self.one_run, self.one_run, self.one_guest])
            try:
                self.seen["good" if act() else "told"] += 1
            except (OSError, http.client.HTTPException):
                self.seen["broken"] += 1
                time.sleep(.2)
            except AssertionError as error:
                text = str(error)
                if text.startswith("<"):  # an answer with an error's status, which is a true one
                    self.seen["refused"] += 1
                    time.sleep(.1)
                else:
                    self.seen["wrong"].append(text[:2000])
            except (KeyError, ValueError) as error:
                self.seen["wrong"].append(f"{type(error).__name__}: {error}")


def agents(daemon):
    return [pid for pid in daemon.pids() if host.comm(pid).strip() == "cordon-agent"]


def kill_something(daemon, rng):
    what = rng.choice(["agent"] * 6 + ["gateway", "warden"])
    pids = agents(daemon) if what == "agent" else [daemon.role(what)]
    pids = [pid for pid in pids if pid]
    if pids:
        try:
            os.kill(rng.choice(pids), signal.SIGKILL)
        except ProcessLookupError:
            pass
    return what


@pytest.mark.root
@pytest.mark.limit(SECONDS + 240)
def test_soak(own):
    daemon = own(max_guests=64)
    seen = {"good": 0, "told": 0, "broken": 0, "refused": 0, "wrong": []}
    until = time.monotonic() + SECONDS
    threads = [threading.Thread(target=Traffic(daemon, i, until, seen).loop) for i in range(WORKERS)]
    for thread in threads:
        thread.start()
    rng, kills = random.Random(), 0
    while time.monotonic() < until - 5:
        time.sleep(rng.uniform(1, 4))
        kill_something(daemon, rng)
        kills += 1
    for thread in threads:
        thread.join(120)
    print(f"soak: {kills} kills, {seen['good']} good, {seen['told']} told, {seen['refused']} refused, {seen['broken']} broken off")
    assert not seen["wrong"], seen["wrong"][:3]
    assert seen["good"] > 20, seen
    assert host.wait_for(lambda: daemon.wait_ready(5))
    for guest in daemon.get("/v1/guests?limit=500").json()["guests"]:
        daemon.request("DELETE", f"/v1/guests/{guest['id']}")
    assert daemon.run("print('after')")["stdout"] == "after\n"
    assert host.wait_for(lambda: daemon.get("/v1/guests").json()["total"] == 0)
    sizes = {name: host.status_kb(daemon.role(name)) for name in ("gateway", "warden")}
    assert all(size < 200_000 for size in sizes.values()), sizes  # each is some 20 MB when it has nothing to do
    assert host.wait_for(lambda: len(daemon.pids()) < 60), daemon.pids()  # those that end have gone, and idle ones by and by
