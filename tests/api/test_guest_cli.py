# SPDX-License-Identifier: Apache-2.0
"""cordon guest, cordon run --guest."""

import json
import os

import pytest
from lib.daemon import cli


@pytest.fixture(scope="module")
def guest(daemon):
    def call(*args, **options):
        return cli("guest", *args, "--state", daemon.state, **options) if args[0] != "exec" else \
            cli("guest", "exec", "--state", daemon.state, *args[1:], **options)

    yield call
    cli("guest", "rm", "--state", daemon.state, "--name", "cli-*")


def test_life(guest):
    made = guest("create", "cli-life", "--idle", "15m", "--ttl", "1h", "--meta", "a=b", "-e", "X=y")
    assert made.status == 0 and len(made.text.strip()) == 20, made
    shown = guest("show", "cli-life").json()
    assert (shown["id"], shown["state"], shown["idle_pause_s"], shown["metadata"]) == (made.text.strip(), "running", 900, {"a": "b"})
    assert guest("create", "cli-life").status == 125
    assert "cli-life" in guest("list").text and made.text.strip() in guest("list", "--name", "cli-l*", "--json").text
    assert guest("exec", "cli-life", "sh", "-c", "echo $X; exit 4").status == 4
    assert guest("pause", "cli-life").status == 0 and guest("show", "cli-life").json()["state"] == "paused"
    refused = guest("exec", "cli-life", "true")
    assert refused.status == 125 and "paused" in refused.errors
    assert guest("resume", "cli-life").status == 0
    assert guest("extend", "cli-life", "--ttl", "2h").status == 0
    assert "created" in guest("log", "cli-life").text
    assert guest("rm", "cli-life").status == 0
    assert "cli-life" not in guest("list").text and guest("rm", "cli-life").status == 2
    guest("create", "cli-forget")
    done = guest("rm", "--forget", "cli-forget")
    assert (done.status, done.text) == (0, "cli-forget: it was destroyed on request\n"), "it could be, so nothing is left"


def test_exec(guest):
    guest("create", "cli-exec")
    done = guest("exec", "-e", "A=b", "-w", "/tmp", "--stdin", "-", "cli-exec", "sh", "-c", "pwd; echo $A; cat; echo err >&2", stdin=b"in\n")
    assert (done.text, done.errors, done.status) == ("/tmp\nb\nin\n", "err\n", 0)
    assert guest("exec", "-t", "1", "cli-exec", "sleep", "60").status == 124
    assert guest("exec", "cli-exec", "sh", "-c", "kill -9 $$").status == 137
    assert guest("exec", "--json", "cli-exec", "echo", "-n", "x").json()["stdout"] == "x"
    assert guest("exec", "-u", "root", "cli-exec", "id", "-u").text == "0\n"
    assert guest("exec", "cli-exec", "no-such-program").status in (2, 125)
    started = guest("exec", "--background", "cli-exec", "sleep", "60").json()
    assert any(p["pid"] == started["pid"] and p["running"] for p in guest("ps", "cli-exec").json()["programs"])


def test_files(guest, tmp_path):
    guest("create", "cli-files")
    data = os.urandom(3_000_000)
    (tmp_path / "in").write_bytes(data)
    assert guest("put", "cli-files", tmp_path / "in", "some/where é").status == 0
    assert guest("get", "cli-files", "some/where é", tmp_path / "out").status == 0 and (tmp_path / "out").read_bytes() == data
    assert guest("put", "cli-files", "-", "x", "--mode", "0600", stdin=b"text").status == 0
    assert guest("get", "cli-files", "x").out == b"text"
    assert '"0600"' in guest("ls", "cli-files").text
    assert guest("get", "cli-files", "nosuch", tmp_path / "none").status == 2 and not (tmp_path / "none").exists()
    assert guest("get", "cli-files", "/etc/shadow").status != 0


def test_cells(guest):
    guest("create", "cli-cells")
    assert guest("cell", "cli-cells", "-c", "print('p')\nx = 41\nx + 1").text == "p\n42\n"
    assert guest("cell", "cli-cells", "-c", "x").text == "41\n"
    failed = guest("cell", "cli-cells", "-c", "1/0")
    assert failed.status == 1 and "ZeroDivisionError" in failed.errors
    assert guest("cell", "cli-cells", "-t", "1", "-c", "while True: pass").status == 124
    assert guest("cell", "cli-cells", "-c", "import os; os._exit(1)").status == 125
    assert guest("cell", "cli-cells", "-c", "1", "--json").json()["results"][0]["text"] == "1"


def test_run_in_a_guest(guest, daemon, tmp_path):
    guest("create", "cli-run")

    def run(*args, **options):
        return cli("run", "--state", daemon.state, "--guest", "cli-run", *args, **options)

    assert run("-c", "open('kept', 'w').write('k')").status == 0
    assert run("-c", "print(open('kept').read())").text == "k\n"
    assert run("-c", "import os; os.makedirs('artifacts', exist_ok=True); open('artifacts/a', 'w').write('A')", "--artifacts",
               tmp_path / "art").status == 0 and (tmp_path / "art" / "a").read_text() == "A"
    assert json.loads(run("-c", "def main(a): return a", "--args", '{"a": [1]}').text) == [1]
    assert run("-c", "exit(3)").status == 3 and run("-t", "1", "-c", "while True: pass").status == 124
    assert run("-m", "64", "-c", "1").status == 2


def test_reaping(guest):
    for name in ("cli-reap-1", "cli-reap-2", "cli-stay"):
        guest("create", name)
    assert guest("rm", "--name", "cli-reap-*", "--idle", "7d").text == ""
    assert len(guest("rm", "--name", "cli-reap-*").text.split()) == 2
    assert "cli-stay" in guest("list").text
    assert guest("rm").status == 2 and guest("rm", "x", "--name", "y").status == 2


def test_reaping_takes_guests_without_a_name(guest):
    nameless = guest("create", "--meta", "for=reaping").text.strip()
    assert nameless in guest("list", "--name", "*").text
    assert nameless in guest("rm", "--name", "*").text.split() and guest("list").text.count("\n") == 1


def test_options_without_effect_are_refused(guest, daemon):
    for args, word in ((("create", "--name", "zed"), "create zed"), (("create", "-t", "5", "m5"), "--timeout"), (("create", "-u", "root"), "--user"),
                       (("list", "--ttl", "5"), "--ttl"), (("rm", "--all"), "--all"), (("show", "-c", "1", "x"), "--code"), (("ps", "--mode", "1", "x"), "--mode")):
        done = guest(*args)
        assert done.status == 2 and word in done.errors, (args, done)
    assert "cli-" not in guest("list").text
    guest("create", "cli-sole")
    done = cli("run", "--state", daemon.state, "--guest", "cli-sole", "--template", "x", "-c", "1")
    assert done.status == 2 and "template" in done.errors, done
    for mode in ("999", "rwx", "0x1ff", "01777", ""):
        done = guest("put", "cli-sole", "-", "x", "--mode", mode, stdin=b"y")
        assert done.status == 2 and "octal" in done.errors, (mode, done)
    done = guest("put", "cli-sole", "-", "/etc/x", stdin=b"y")
    assert done.status == 2 and "/home/user" in done.errors, done
    done = guest("cell", "cli-sole", "-l", "cobol", "-c", "x")
    assert done.status == 2 and "python" in done.errors, done
    done = guest("cell", "cli-sole", "-l", "bash", "-c", "exit 4")
    assert done.status == 1 and "status 4" in done.errors, done
    done = guest("egress", "cli-sole")
    assert done.status == 0 and "network          false" in done.text, done
    gone = guest("list", "--all", "--name", "cli-sole").text
    assert guest("rm", "cli-sole").status == 0 and "destroyed on request" not in gone
    assert "it was destroyed on request" in guest("list", "--all", "--name", "cli-sole").text
    assert guest("show", "cli-sole").json()["state"] == "gone" and "created" in guest("log", "cli-sole").text
    assert guest("show", "cli-never").status == 2


def test_wrong_usage(guest):
    for args in (("nosuch",), ("show",), ("exec", "cli-x"), ("create", "a", "b"), ("list", "--nosuch"), ("create", "-e", "x"),
                 ("create", "--ttl", "soon"), ("show", "a/b"), ("cell", "cli-x")):
        assert guest(*args).status == 2, args
    assert "GUEST COMMAND..." in guest("exec", "cli-x").errors and "--ttl" in guest("extend", "cli-x").errors
    assert "usage: cordon guest" in cli("guest", "--help").text


def test_without_a_daemon(tmp_path):
    done = cli("guest", "list", "--state", tmp_path)
    assert done.status == 125 and "no daemon answers" in done.errors
    assert "no daemon answers" in cli("run", "--guest", "x", "-c", "1", "--state", tmp_path).errors
