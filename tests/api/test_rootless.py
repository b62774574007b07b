# SPDX-License-Identifier: Apache-2.0
"""The command line as an ordinary user: works with what can be held, and says what can't."""

import json
import os
import shutil
import tempfile

import pytest
from lib import host
from lib.daemon import BIN, PREFIX, cli

pytestmark = pytest.mark.root


@pytest.fixture(scope="module")
def nobody():
    """Runs the command line as uid 65534, with a home of its own and a copy of the binary that it may read."""
    home = tempfile.mkdtemp(prefix=PREFIX)
    os.chmod(home, 0o755)
    binary = os.path.join(home, "cordon")
    shutil.copy2(BIN, binary)
    agent = os.path.join(os.path.dirname(BIN), "cordon-agent")
    if os.path.exists(agent):
        shutil.copy2(agent, home)
    os.chown(home, 65534, 65534)

    def call(*args, **options):
        prefix = [
            "setpriv",
            "--reuid=65534",
            "--regid=65534",
            "--clear-groups",
            "--inh-caps=-all",
            "--bounding-set=-all",
            "env",
            "-C",
            home,
            f"HOME={home}",
        ]
        from lib import daemon

        real, daemon.BIN = daemon.BIN, binary
        try:
            return cli(*args, prefix=prefix, env={"HOME": home}, **options)
        finally:
            daemon.BIN = real

    yield call
    shutil.rmtree(home, ignore_errors=True)


@pytest.fixture(scope="module")
def local(nobody):
    done = nobody("backends", "--json")
    assert done.status == 0, done
    listed = done.json()
    entries = listed["backends"] if isinstance(listed, dict) else listed
    entry = next(entry for entry in entries if entry["name"] == "local")
    return entry.get("capabilities", entry)


@pytest.mark.parametrize(
    "language,code", [("python", "print('hi')"), ("javascript", "console.log('hi')"), ("bash", "echo hi")]
)
def test_run(nobody, language, code):
    done = nobody("run", "-l", language, "-c", code)
    assert (done.status, done.text) == (0, "hi\n"), done


def test_a_daemon_that_can_not_be_reached_is_told(nobody):
    """Else the program would run elsewhere than was asked for."""
    closed = tempfile.mkdtemp(prefix=PREFIX)  # root's, mode 0700
    try:
        done = nobody("run", "--state", os.path.join(closed, "state"), "-c", "print(1)")
        assert done.status == 125 and closed in done.errors and "Permission denied" in done.errors, done
        done = nobody("run", "-c", "print(1)", CORDON_STATE=closed)
        assert done.status == 125 and closed in done.errors, done
    finally:
        os.rmdir(closed)


def test_the_state_folder_follows_xdg(nobody):
    done = nobody("config", "show", XDG_STATE_HOME="/some/where")
    assert "/some/where/cordon" in done.text, done
    assert ".local/state/cordon" in nobody("config", "show", XDG_STATE_HOME="relative").text


def test_the_ports_that_names_are_reached_on_are_told(nobody, local):
    """Every port needs a BPF program that root alone may load; what is left is declared, and more is refused."""
    assert local["domain_allowlist"] is True and local["egress_ports"] == ["80", "443"], local
    done = nobody("run", "--allow-domain", "db.test:5432", "-c", "print(1)", CORDON_ALLOW_NETWORK="true")
    assert done.status == 126 and "db.test:5432" in done.errors and "80,443" in done.errors, done
    done = nobody("run", "--allow-domain", "db.test:443", "-c", "print(1)", CORDON_ALLOW_NETWORK="true")
    assert (done.status, done.text) == (0, "1\n"), done
    probes = {probe["name"]: probe for probe in nobody("doctor", "--json").json()["probes"]}
    assert "80 and 443 only" in probes["network ports"]["found"], probes["network ports"]


def test_isolation_holds(nobody):
    done = nobody(
        "run",
        "--json",
        "-c",
        (
            "import os, socket, json\n"
            """
print(
    json.dumps(
        [
            sorted(n for _, n in socket.if_nameindex()),
            len([p for p in os.listdir('/proc') if p.isdigit()]) < 4,
            os.path.exists('/etc/shadow'),
            os.getcwd(),
        ]
    )
)
"""
        ),
    )
    assert json.loads(done.json()["stdout"]) == [["lo"], True, False, "/home/user"], done
    assert done.json()["outcome"]["isolation"] == "namespace"


def test_what_cannot_be_held_is_said(nobody, local):
    for name in ("memory_limit", "pids_limit", "cpu_limit", "agent_protected"):
        assert isinstance(local[name], bool)
    doctor = nobody("doctor")
    if not local["memory_limit"]:
        assert "cgroup" in doctor.text.lower() and ("Delegate" in doctor.text or "delegat" in doctor.text), doctor
    if not local["agent_protected"]:
        assert "subuid" in doctor.text.lower() or "uid" in doctor.text.lower()


def test_a_memory_limit_that_cannot_be_held_is_refused(nobody, local):
    done = nobody("run", "--json", "-m", "64", "-c", "print(1)")
    if local["memory_limit"]:
        assert done.status == 0
    else:
        assert done.status == 126 and done.json()["outcome"]["cause"] == "refused", done
        assert "memory" in json.dumps(done.json()) and "local" in json.dumps(done.json())


def test_timeout_ends_everything(nobody):
    done = nobody(
        "run",
        "-t",
        "1",
        "-c",
        "import os, time\nfor _ in range(3):\n    if os.fork() == 0: os.setsid(); time.sleep(77)\ntime.sleep(77)",
    )
    assert done.status == 124 and done.seconds < 5
    assert host.wait_for(
        lambda: not [p for p in host.descendants(os.getpid()) if "sleep(77)" in str(host.cmdline(p))]
    )


def test_forks_are_bounded(nobody):
    """By a control group, or else by a limit of the kernel's for each guest: never by what the user may have at most."""
    done = nobody(
        "run",
        "--json",
        "-t",
        "10",
        "-c",
        (
            "import os, time\nn = 0\ntry:\n    while n < 600:\n"
            "        if os.fork() == 0: time.sleep(30); os._exit(0)\n        n += 1\n"
            "except OSError: pass\nprint(n, flush=True)\nos._exit(0)"
        ),
    )
    count = int(done.json()["stdout"])
    assert 0 < count < 128


@pytest.mark.parametrize(
    "language, code",
    [
        ("bash", "n=0; for i in {1..300}; do sleep 20 & n=$i; echo $n; done 2>/dev/null"),
        (
            "javascript",
            "const {spawn} = require('child_process'); let n = 0;"
            "for (let i = 0; i < 300; i++) { const c = spawn('/bin/sleep', ['20']); c.on('error', () => {});"
            " if (c.pid) console.log(++n); } setTimeout(() => process.exit(0), 200);",
        ),
    ],
)
def test_forks_of_other_languages_are_bounded(nobody, language, code):
    done = nobody("run", "--json", "-t", "4", "-l", language, "-c", code)
    numbers = done.json()["stdout"].split()
    assert numbers and int(numbers[-1]) < 128, done


def test_output_artifacts_and_result(nobody, tmp_path):
    done = nobody("run", "--json", "--args", '{"a": 1}', "-c", "def main(a):\n    print('x')\n    return a + 1")
    assert done.json()["result"] == 2 and done.json()["stdout"] == "x\n"


def test_second_run_and_no_leftovers(nobody):
    assert nobody("run", "-c", "print(1)").text == nobody("run", "-c", "print(1)").text == "1\n"


def test_the_hosts_files_stay_closed(nobody):
    done = nobody(
        "run",
        "-c",
        (
            "import os\nfor p in ('/usr/x', '/etc/x', '/x', '/proc/sys/kernel/hostname'):\n"
            "    try: open(p, 'w'); print('wrote', p)\n    except OSError: pass"
        ),
    )
    assert done.text == ""
