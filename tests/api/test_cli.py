# SPDX-License-Identifier: Apache-2.0
"""The command line: every option, every exit status, with a daemon and without one."""

import json
import os
import signal
import socket
import stat
import tempfile

import pytest
from lib.client import artifacts
from lib.daemon import PREFIX, cli


@pytest.fixture(params=["alone", "daemon"], scope="module")
def state(request, tmp_path_factory):
    """A state folder without a daemon (run then starts its own warden), or the one of a running daemon."""
    if request.param == "alone":
        yield str(tmp_path_factory.mktemp("cordon-test-cli"))
    else:
        yield request.getfixturevalue("daemon").state


@pytest.fixture
def crun(state):
    def call(*args, **options):
        return cli("run", *args, CORDON_STATE=state, **options)

    return call


class TestRun:
    @pytest.mark.parametrize(
        "language,code", [("python", "print('hi')"), ("javascript", "console.log('hi')"), ("bash", "echo hi")]
    )
    def test_code(self, crun, language, code):
        done = crun("-l", language, "-c", code)
        assert (done.status, done.text, done.errors) == (0, "hi\n", "")

    def test_python_is_the_default_language(self, crun):
        assert crun("-c", "print(1)").text == "1\n"

    @pytest.mark.parametrize(
        "name,code",
        [("a.py", "print('f')"), ("a.js", "console.log('f')"), ("a.sh", "echo f"), ("a.mjs", "console.log('f')")],
    )
    def test_file_by_its_ending(self, crun, tmp_path, name, code):
        (tmp_path / name).write_text(code)
        assert crun(tmp_path / name).text == "f\n"

    def test_file_with_language(self, crun, tmp_path):
        (tmp_path / "noending").write_text("echo x")
        assert crun("-l", "bash", tmp_path / "noending").text == "x\n"

    def test_from_stdin(self, crun):
        assert crun("-", stdin=b"print('piped')").text == "piped\n"

    def test_stdin_option(self, crun, tmp_path):
        (tmp_path / "in").write_bytes(b"a\0b")
        done = crun("-c", "import sys; sys.stdout.buffer.write(sys.stdin.buffer.read())", "--stdin", tmp_path / "in")
        assert done.out == b"a\0b"
        assert crun("-c", "print(input())", "--stdin", "-", stdin=b"typed\n").text == "typed\n"

    def test_stdin_is_empty_by_default(self, crun):
        assert crun("-c", "import sys; print(repr(sys.stdin.read()))", stdin=b"not for the guest").text in ("''\n",)

    def test_env(self, crun):
        assert (
            crun("-e", "A=1", "-e", "B=x=y", "-c", "import os; print(os.environ['A'], os.environ['B'])").text
            == "1 x=y\n"
        )
        done = crun("-e", "LD_PRELOAD=x", "-c", "1")
        assert done.status == 2 and "LD_PRELOAD" in done.errors
        assert crun("-e", "NOEQUALS", "-c", "1").status == 2

    def test_args_call_main(self, crun):
        done = crun("--args", '{"n": 4}', "--json", "-c", "def main(n): return n * 2")
        assert done.json()["result"] == 8
        assert crun("--args", "[1]", "-c", "def main(): pass").status == 2
        assert crun("--args", "{bad", "-c", "def main(): pass").status == 2

    def test_put(self, crun, tmp_path):
        (tmp_path / "local.bin").write_bytes(bytes(range(256)))
        done = crun("--put", f"{tmp_path}/local.bin:data/in.bin", "-c", "print(len(open('data/in.bin', 'rb').read()))")
        assert done.text == "256\n"
        elsewhere = crun("--put", f"{tmp_path}/local.bin:/etc/x", "-c", "1")
        assert elsewhere.status != 0 and "/home/user, /tmp, /var/tmp and /dev/shm" in elsewhere.errors, elsewhere
        missing = crun("--put", f"{tmp_path}/nope:x", "-c", "1")
        assert missing.status == 2 and "nope" in missing.errors

    def test_artifacts(self, crun, tmp_path):
        target = tmp_path / "out"
        done = crun(
            "--artifacts",
            target,
            "-c",
            (
                "import os\nos.makedirs('artifacts/s', exist_ok=True)\n"
                "open('artifacts/s/a', 'w').write('x')\nopen('b', 'w').write('y')"
            ),
        )
        assert done.status == 0, done
        assert (target / "s/a").read_text() == "x" and (target / "b").read_text() == "y"

    def test_artifacts_never_follow_links_in_the_folder(self, crun, tmp_path):
        victim, target = tmp_path / "victim", tmp_path / "out"
        victim.mkdir()
        (victim / "file").write_text("untouched")
        target.mkdir()
        (target / "a").symlink_to(victim / "file")
        (target / "d").symlink_to(victim)
        done = crun(
            "--artifacts",
            target,
            "-c",
            (
                "import os\nos.makedirs('artifacts/d')\nopen('artifacts/a', 'w').write('evil')\n"
                "open('artifacts/d/new', 'w').write('evil')\nopen('artifacts/ok', 'w').write('fine')"
            ),
        )
        assert (victim / "file").read_text() == "untouched" and sorted(os.listdir(victim)) == ["file"], done
        assert (target / "ok").read_text() == "fine"

    def test_artifacts_are_plain_files(self, crun, tmp_path):
        crun(
            "--artifacts",
            tmp_path / "o",
            "-c",
            "import os\nopen('artifacts/x', 'w').write('#!'); os.chmod('artifacts/x', 0o6777)",
        )
        mode = (tmp_path / "o/x").stat().st_mode
        assert not mode & (stat.S_ISUID | stat.S_ISGID | 0o002)

    def test_json_shape(self, crun):
        done = crun("--json", "-c", "import sys; print('o'); print('e', file=sys.stderr); sys.exit(4)")
        answer = done.json()
        assert done.status == 4 and done.out.count(b"\n") <= 1 or done.out.endswith(b"}\n")
        assert (answer["stdout"], answer["stderr"], answer["exit_code"], answer["backend"]) == (
            "o\n",
            "e\n",
            4,
            "local",
        )
        assert {"cause", "signal"} <= set(answer["outcome"]) and {"queue_ms", "start_ms", "run_ms", "total_ms"} <= set(
            answer["timing"]
        )

    def test_json_with_artifacts(self, crun):
        answer = crun("--json", "--artifacts", "/dev/null/x", "-c", "1")
        assert answer.status in (2, 125)

    def test_json_also_when_it_fails(self, crun):
        done = crun("--json", "-b", "nope", "-c", "print(1)")
        answer = done.json()
        assert done.status == 2 and "nope" in json.dumps(answer["error"]), done
        refused = crun("--json", "--network", "-c", "print(1)")
        assert refused.status == 126 and refused.json()["outcome"]["cause"] == "refused"

    @pytest.mark.parametrize(
        "args,status",
        [
            (("-c", "import sys; sys.exit(0)"), 0),
            (("-c", "import sys; sys.exit(7)"), 7),
            (("-c", "import sys; sys.exit(2)"), 2),
            (("-c", "raise ValueError"), 1),
            (("-t", "1", "-c", "import time; time.sleep(9)"), 124),
            (("-m", "64", "-c", "x = []\nwhile True: x.append(bytearray(1 << 20))"), 137),
            (("-c", "import os; os.kill(os.getpid(), 15)"), 143),
            (("-c", "import os; os.kill(os.getpid(), 9)"), 137),
            (("--network", "-c", "print(1)"), 126),
            (("-b", "nope", "-c", "print(1)"), 2),
            (("--no-such-option",), 2),
            ((), 2),
            (("-t", "x", "-c", "1"), 2),
            (("-t", "0", "-c", "1"), 2),
            (("-m", "1", "-c", "1"), 2),
            (("-l", "cobol", "-c", "1"), 2),
            (("/no/such/file.py",), 2),
            (("-c", "1", "extra"), 2),
            (("-c", ""), 0),
            (("--allow-domain", "a.com", "-c", "1"), 126),
        ],
    )
    def test_exit_status(self, crun, args, status):
        done = crun(*args)
        assert done.status == status, done
        if (
            status in (2, 124, 126, 137)
            and args
            and args[-1] not in ("import sys; sys.exit(2)",)
            and "kill" not in str(args)
        ):
            assert done.errors.strip(), done

    def test_messages_name_the_limit(self, crun):
        assert "1" in crun("-t", "1", "-c", "while True: pass").errors
        assert "64" in crun("-m", "64", "-c", "x = []\nwhile True: x.append(bytearray(1 << 20))").errors

    def test_output_is_streamed(self, state):
        import subprocess
        import time

        from lib.daemon import BIN, environment

        with subprocess.Popen(
            [BIN, "run", "-t", "20", "-c", "import time\nprint('first', flush=True)\ntime.sleep(6)\nprint('last')"],
            stdout=subprocess.PIPE,
            env=environment({"STATE": state}) | {"CORDON_STATE": state},
        ) as process:
            began = time.monotonic()
            assert process.stdout.readline() == b"first\n"
            first = time.monotonic() - began
            assert process.stdout.read() == b"last\n" and time.monotonic() - began - first > 0.5

    @pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
    def test_interrupt_ends_the_guest(self, state, number):
        import subprocess
        import time

        from lib import host
        from lib.daemon import BIN

        with subprocess.Popen(
            [BIN, "run", "-t", "200", "-c", "import time\nprint('up', flush=True)\ntime.sleep(200)"],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env={"PATH": "/usr/bin:/bin", "CORDON_STATE": state},
        ) as process:
            assert process.stdout.readline() == b"up\n"
            process.send_signal(number)
            began = time.monotonic()
            assert process.wait(60) == (130 if number == signal.SIGINT else 143)
            assert time.monotonic() - began < 60
            assert b"interrupted (SIG" in process.stderr.read()
        assert host.wait_for(
            lambda: not [p for p in host.descendants(os.getpid()) if "sleep(200)" in str(host.cmdline(p))]
        )

    def test_binary_output(self, crun):
        done = crun("-c", "import os\nos.write(1, bytes(range(256)))\nos.write(2, b'\\xff')")
        assert done.out == bytes(range(256)) and done.err == b"\xff"

    def test_closed_output(self, state):
        import subprocess

        from lib.daemon import BIN

        process = subprocess.Popen(
            [BIN, "run", "-c", "print('x' * 10000000)"],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env={"PATH": "/usr/bin:/bin", "CORDON_STATE": state},
        )
        process.stdout.read(10)
        process.stdout.close()
        process.stderr.close()
        assert process.wait(60) is not None

    def test_help(self):
        done = cli("run", "--help")
        for option in (
            "-l",
            "-b",
            "-t",
            "-m",
            "-e",
            "--args",
            "--stdin",
            "--network",
            "--allow-domain",
            "--put",
            "--artifacts",
            "--json",
        ):
            assert option in done.text, option
        assert done.status == 0


class TestDaemonOrNot:
    def test_none_needs_no_permission_without_a_daemon(self, tmp_path):
        done = cli("run", "-b", "none", "-c", "print(1)", CORDON_STATE=str(tmp_path / "none"))
        assert (done.status, done.text) == (0, "1\n") and "nothing isolates" in done.errors, done
        unnamed = cli("run", "-c", "print(1)", CORDON_STATE=str(tmp_path / "none"), CORDON_BACKEND="none")
        assert unnamed.status == 126 and unnamed.text == "", unnamed

    def test_none_with_a_daemon_is_its_decision(self, daemon):
        done = cli("run", "-b", "none", "-c", "print(1)", CORDON_STATE=daemon.state)
        assert done.status == 126 and "CORDON_ALLOW_NONE" in done.errors and done.text == ""

    def test_settings_beside_a_daemon_are_told_to_be_without_effect(self, daemon):
        done = cli("run", "-c", "print(1)", CORDON_STATE=daemon.state, timeout_s=5, pids=20, CORDON_LOG_LEVEL="warn")
        assert done.status == 0 and done.text == "1\n", done
        assert done.errors.count("\n") == 1 and "CORDON_TIMEOUT_S, CORDON_PIDS" in done.errors, done
        assert "STATE" not in done.errors and "LOG" not in done.errors

    @pytest.mark.parametrize(
        "name, value",
        [("MIN_ISOLATION", "hardware-virtualized"), ("REQUIRE_LIMITS", "memory"), ("BACKEND", "local")],
    )
    def test_demands_that_a_daemon_would_not_hear_refuse_the_run(self, daemon, name, value):
        settings = {"CORDON_STATE": daemon.state, "CORDON_" + name: value}
        done = cli("run", "-c", "print(1)", **settings)
        assert done.status == 126 and "CORDON_" + name in done.errors and done.text == "", done
        if name == "BACKEND":
            assert cli("run", "-b", "local", "-c", "print(1)", **settings).text == "1\n"

    def test_a_dead_daemons_socket_is_no_reason_to_run_without_it(self, tmp_path):
        with socket.socket(socket.AF_UNIX) as left:
            left.bind(str(tmp_path / "cordon.sock"))
        done = cli("run", "--state", tmp_path, "-c", "print(1)")
        assert done.status == 125 and str(tmp_path) in done.errors and done.text == "", done

    def test_output_limit(self, tmp_path):
        done = cli("run", "-c", "while True: print('x' * 9999)", CORDON_STATE=str(tmp_path / "s"), output_kill_mb=2)
        assert done.status == 124 and "2 MiB" in done.errors and "output_kill_mb" in done.errors, done

    def test_an_error_is_told_once(self, tmp_path):
        done = cli("run", "--args", "{}", "-c", "print(1)", CORDON_STATE=str(tmp_path / "s"))
        assert done.status == 1 and done.errors.count("main()") == 1, done
        silent = cli("run", "--args", "{}", "-c", "raise SystemExit(3)", CORDON_STATE=str(tmp_path / "s"))
        assert silent.status == 3 and "no result" in silent.errors, silent


def test_without_a_daemon_nothing_stays(tmp_path):
    from lib import host

    done = cli("run", "-c", "print(1)", CORDON_STATE=str(tmp_path / "none"))
    assert done.status == 0 and done.text == "1\n"
    assert host.wait_for(
        lambda: (
            not [
                p
                for p in host.descendants(os.getpid())
                if "cordon" in host.comm(p) and str(tmp_path) in host.read(f"/proc/{p}/environ")
            ]
        ),
    )


class TestOthers:
    def test_usage(self):
        assert cli().status == 2 and cli("nonsense").status == 2 and "nonsense" in cli("nonsense").errors
        assert 'option "--bogus" is not known' in cli("run", "--bogus").errors
        assert cli("--help").status == 0 and cli("--version").status == 0 and "0." in cli("--version").text

    def test_backends(self):
        done = cli("backends")
        assert done.status == 0 and "local" in done.text and "none" in done.text and "namespace" in done.text
        assert "no cap" in done.text
        listed = cli("backends", "--json").json()
        entries = listed["backends"] if isinstance(listed, dict) else listed
        local = next(entry for entry in entries if entry["name"] == "local")
        capabilities = local.get("capabilities", local)
        assert (
            capabilities["isolation"] == "namespace"
            and capabilities["memory_limit"] is True
            and capabilities["deny_all_egress"] is True
        )

    def test_doctor(self):
        done = cli("doctor")
        assert done.status == 0, done
        for word in ("user namespace", "cgroup", "python", "node"):
            assert word in done.text.lower(), word
        assert cli("doctor", "--json").json()

    def test_doctor_tells_of_machines_and_needs_them_where_they_are_chosen(self):
        rows = {probe["name"]: probe for probe in cli("doctor", "--json").json()["probes"]}
        machines = {name: rows[f"machines: {name}"] for name in ("kvm", "qemu", "image", "network")}
        assert all(probe["weight"] == "info" for probe in machines.values())
        image = {"CORDON_VM_IMAGE": "/nonexistent/vm", "CORDON_BACKEND": "exec-sandbox"}
        done = cli("doctor", "--json", CORDON_ALLOW_SOFTWARE_EMULATION="true", **image)
        rows = {probe["name"]: probe for probe in done.json()["probes"]}
        assert done.status == 1 and rows["machines: image"]["weight"] == "needed" and not rows["machines: image"]["ok"]
        assert rows["machines: kvm"]["weight"] == "lessens" and rows["machines: image"]["fix"] == "cordon image build"

    @pytest.mark.limit(60)
    def test_doctor_does_not_wait_for_a_daemon_that_hangs(self):
        """Something listens on the socket, and says nothing."""
        with tempfile.TemporaryDirectory(prefix=PREFIX) as state, socket.socket(socket.AF_UNIX) as silent:
            silent.bind(os.path.join(state, "cordon.sock"))
            silent.listen()
            done = cli("doctor", CORDON_STATE=state, timeout=50)
        assert "did not answer GET /readyz within 10 s" in done.text, done

    def test_bench_of_machines_needs_an_image_and_sane_numbers(self):
        assert "exec-sandbox" in cli("bench", "--help").text
        for words in (("bench",), ("bench", "local"), ("bench", "exec-sandbox", "--rounds", "0"), ("bench", "--what")):
            assert cli(*words).status == 2, words
        done = cli("bench", "exec-sandbox", CORDON_VM_IMAGE="/nonexistent/vm")
        assert done.status == 1 and "/nonexistent/vm" in done.errors and "cordon image build" in done.errors

    def test_doctor_tells_what_is_missing_and_what_mends_it(self):
        done = cli("doctor", node="/nonexistent/node")
        assert "/nonexistent/node" in done.text and ("apt" in done.text or "CORDON_NODE" in done.text)

    @pytest.mark.parametrize(
        "path,words",
        [
            ("python3", "CORDON_PYTHON must be the absolute path"),
            ("/proc/self/exe", "guests can't see the interpreter /proc/self/exe"),
            ("/bin/false", "the interpreter /bin/false ended before it was ready; is it new enough? `cordon doctor` tells"),
            ("/usr/share", "the interpreter /usr/share ended before it was ready"),
        ],
    )
    def test_interpreter_that_is_of_no_use_is_named(self, tmp_path, path, words):
        done = cli("run", "-c", "print(1)", CORDON_STATE=str(tmp_path), python=path)
        assert (done.status, done.text) == (125, "") and words in done.errors, done
        assert "python" in cli("doctor", python=path).text

    def test_interpreter_of_another_language_does_not_matter(self, tmp_path):
        done = cli("run", "-l", "bash", "-c", "echo 1", CORDON_STATE=str(tmp_path), python="/proc/self/exe")
        assert (done.status, done.text, done.errors) == (0, "1\n", "")

    def test_config_show(self):
        done = cli("config", "show", max_runs=7)
        assert done.status == 0 and "CORDON_MAX_RUNS" in done.text and "7" in done.text
        assert "/var/lib/cordon" in done.text or os.geteuid() != 0
        shown = cli("config", "show", "--json", max_runs=7).json()
        assert "CORDON_MAX_RUNS" in json.dumps(shown)

    def test_config_explain(self):
        done = cli("config", "explain", "CORDON_TIMEOUT_S")
        assert done.status == 0 and "30" in done.text and "86400" in done.text
        alias = cli("config", "explain", "LANGFLOW_SANDBOX_TIMEOUT_SECONDS")
        assert alias.status == 0 and "300" in alias.text
        assert cli("config", "explain", "CORDON_NOPE").status == 2

    def test_keys(self, tmp_path):
        state = str(tmp_path / "state")
        made = cli("key", "create", "--scope", "run", "--state", state)
        admin = cli("key", "create", "--scope", "admin", "--state", state)
        assert made.status == admin.status == 0
        assert stat.S_IMODE(os.stat(state).st_mode) == 0o700
        listed = cli("key", "list", "--state", state)
        secret = made.text.split("e2b_")[1].split()[0]
        assert listed.status == 0 and secret not in listed.text and "run" in listed.text and "admin" in listed.text
        for folder, _, names in os.walk(state):
            for name in names:
                path = os.path.join(folder, name)
                assert stat.S_IMODE(os.stat(path).st_mode) & 0o077 == 0, path
                with open(path, "rb") as file:
                    content = file.read()
                assert secret.encode() not in content and bytes.fromhex(secret) not in content, path
        assert cli("key", "revoke", "0" * 16, "--state", state).status == 2
        assert cli("key", "create", "--scope", "root", "--state", state).status == 2
        assert cli("key", "nonsense", "--state", state).status == 2

    def test_run_through_the_socket_needs_no_key(self, daemon):
        answer = cli("run", "--json", "-c", "print(5)", CORDON_STATE=daemon.state).json()
        assert answer["stdout"] == "5\n" and answer["outcome"]["warm"] in (True, False)

    def test_artifacts_in_json(self, daemon, tmp_path):
        done = cli(
            "run",
            "--json",
            "--artifacts",
            tmp_path / "o",
            "-c",
            "open('artifacts/a', 'w').write('z')",
            CORDON_STATE=daemon.state,
        )
        answer = done.json()
        assert (tmp_path / "o/a").read_text() == "z"
        assert [entry["name"] for entry in answer["artifacts"]] == ["a"] and artifacts(answer) in ({}, {"a": b"z"})
