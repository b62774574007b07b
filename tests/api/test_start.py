# SPDX-License-Identifier: Apache-2.0
"""Starting and stopping: settings, state folder, keys, TLS, signals."""

import os
import socket
import ssl
import stat
import subprocess
import time

import pytest
from lib import host
from lib.daemon import BIN, KEY_FORM, Daemon, cli, environment, start_fails


class TestSettings:
    @pytest.mark.parametrize(
        "name,value,words",
        [
            ("CORDON_TIMEOUT_S", "0", ["CORDON_TIMEOUT_S", "0"]),
            ("CORDON_TIMEOUT_S", "ten", ["CORDON_TIMEOUT_S", "ten"]),
            ("CORDON_TIMEOUT_S", "30s", ["CORDON_TIMEOUT_S"]),
            ("CORDON_TIMEOUT_S", "600", ["CORDON_TIMEOUT_S is 600", "CORDON_MAX_TIMEOUT_S"]),
            ("CORDON_MAX_RUNS", "-1", ["CORDON_MAX_RUNS"]),
            ("CORDON_ALLOW_NONE", "maybe", ["CORDON_ALLOW_NONE", "maybe"]),
            ("CORDON_BACKEND", "locl", ["locl", "local", "none"]),
            ("CORDON_MIN_ISOLATION", "strong", ["CORDON_MIN_ISOLATION", "strong"]),
            ("CORDON_LISTEN", "nonsense", ["nonsense"]),
            ("CORDON_LISTEN", "127.0.0.1:99999", ["99999"]),
            ("CORDON_LOG_LEVEL", "loud", ["CORDON_LOG_LEVEL", "loud"]),
            ("LANGFLOW_SANDBOX_TIMEOUT_SECONDS", "301", ["LANGFLOW_SANDBOX_TIMEOUT_SECONDS", "300"]),
            ("LANGFLOW_SANDBOX_MEMORY_MB", "64", ["LANGFLOW_SANDBOX_MEMORY_MB", "128"]),
            ("CORDON_MEMORY_MB", "99999999999999999999", ["CORDON_MEMORY_MB"]),
            ("CORDON_TIMEOUT_S", "", ["CORDON_TIMEOUT_S"]),
        ],
    )
    def test_bad_values_stop_the_start(self, name, value, words):
        port = host.free_port()
        flags = () if name == "CORDON_LISTEN" else ("--listen", f"127.0.0.1:{port}")
        done = start_fails(*flags, **{name: value})
        assert done.status == 2, done
        assert all(word in done.errors for word in words), done

    def test_alias_and_native_name_that_differ(self):
        done = start_fails(
            "--listen", f"127.0.0.1:{host.free_port()}", CORDON_TIMEOUT_S="20", LANGFLOW_SANDBOX_TIMEOUT_SECONDS="25"
        )
        assert (
            done.status == 2 and "CORDON_TIMEOUT_S" in done.errors and "LANGFLOW_SANDBOX_TIMEOUT_SECONDS" in done.errors
        )

    def test_alias_and_native_name_that_agree(self, own):
        assert own(CORDON_TIMEOUT_S="20", LANGFLOW_SANDBOX_TIMEOUT_SECONDS="20").run("print(1)")["stdout"] == "1\n"

    def test_an_alias_steers_its_own_door_only(self, own):
        made = own(LANGFLOW_SANDBOX_TIMEOUT_SECONDS="1")
        assert made.run("import time; time.sleep(1.6); print(1)")["stdout"] == "1\n"

    def test_file(self, own, tmp_path):
        (tmp_path / "cordon.conf").write_text("# a comment\nCORDON_TIMEOUT_S = 1\n")
        made = own(flags=["--config", str(tmp_path / "cordon.conf")])
        assert made.run("import time; time.sleep(9)")["outcome"]["cause"] == "timeout"

    def test_environment_beats_file_and_flag_beats_environment(self, tmp_path):
        (tmp_path / "cordon.conf").write_text("CORDON_MAX_RUNS=3\nCORDON_QUEUE=5\n")
        text = cli("config", "show", "--config", tmp_path / "cordon.conf", max_runs=4).text
        line = next(line for line in text.splitlines() if "CORDON_MAX_RUNS" in line)
        assert "4" in line and "environment" in line.lower()
        line = next(
            line for line in text.splitlines() if line.lstrip().startswith("CORDON_QUEUE") and "TIMEOUT" not in line
        )
        assert "5" in line

    @pytest.mark.parametrize(
        "text,words",
        [("CORDON_TIMEOUT_S=x\n", ["CORDON_TIMEOUT_S"]), ("CORDON_NOPE=1\n", ["CORDON_NOPE"]), ("no equals\n", ["1"])],
    )
    def test_bad_files_stop_the_start(self, tmp_path, text, words):
        (tmp_path / "c").write_text(text)
        done = start_fails("--config", str(tmp_path / "c"), "--listen", f"127.0.0.1:{host.free_port()}")
        assert done.status == 2 and all(word in done.errors for word in words), done

    def test_a_missing_file_stops_the_start(self, tmp_path):
        done = start_fails("--config", str(tmp_path / "nope"))
        assert done.status == 2 and "nope" in done.errors

    def test_defaults_apply_to_the_request(self, own):
        made = own(timeout_s=1)
        assert made.run("while True: pass")["outcome"]["cause"] == "timeout"
        assert made.run("import time; time.sleep(1.4); print(1)", timeout_s=30)["stdout"] == "1\n"


class TestState:
    def test_modes(self, daemon):
        assert stat.S_IMODE(os.stat(daemon.state).st_mode) == 0o700
        database = os.path.join(daemon.state, "cordon.db")
        assert stat.S_IMODE(os.stat(database).st_mode) == 0o600

    def test_the_key_is_nowhere_in_clear(self, daemon):
        for folder, _, names in os.walk(daemon.state):
            for name in names:
                path = os.path.join(folder, name)
                if stat.S_ISREG(os.lstat(path).st_mode):
                    with open(path, "rb") as file:
                        content = file.read()
                    assert daemon.key.encode() not in content and daemon.key[4:].encode() not in content, path
                    assert bytes.fromhex(daemon.key[4:]) not in content, path
        assert daemon.key not in daemon.log()

    def test_two_daemons_on_one_state_folder(self, daemon):
        done = cli("serve", "--state", daemon.state, "--listen", f"127.0.0.1:{host.free_port()}", timeout=20)
        assert done.status not in (0, None) and daemon.state in done.errors
        assert daemon.run("print(1)")["stdout"] == "1\n"

    def test_a_taken_port(self, daemon):
        done = start_fails("--listen", f"127.0.0.1:{daemon.port}")
        assert done.status not in (0, None) and str(daemon.port) in done.errors

    def test_keys_outlive_a_restart(self, own):
        made = own()
        made.restart()
        assert made.run("print(1)")["stdout"] == "1\n"

    def test_a_folder_that_cannot_be_written(self):
        done = start_fails("--listen", f"127.0.0.1:{host.free_port()}", state="/proc/nope")
        assert done.status not in (0, None) and "/proc/nope" in done.errors

    def test_a_damaged_database(self, tmp_path):
        state = tmp_path / "s"
        state.mkdir(mode=0o700)
        (state / "cordon.db").write_bytes(b"garbage" * 1000)
        done = start_fails("--listen", f"127.0.0.1:{host.free_port()}", state=str(state))
        assert done.status not in (0, None) and "cordon.db" in done.errors


class TestFirstKey:
    def test_without_a_key_one_is_made_and_shown_once(self, own):
        made = own(key=False)
        shown = host.wait_for(lambda: KEY_FORM.findall(made.log()))
        assert len(shown) == 1
        assert made.post({"language": "python", "code": "print(1)"}).status == 401
        made.key = shown[0]
        assert made.run("print(1)")["stdout"] == "1\n"
        made.restart()
        assert len(KEY_FORM.findall(made.log())) == 1
        assert made.run("print(1)")["stdout"] == "1\n"

    @pytest.mark.parametrize("address", ["0.0.0.0", "[::]"])
    def test_beyond_loopback_without_a_key_the_start_stops(self, address):
        done = start_fails("--listen", f"{address}:{host.free_port()}")
        assert done.status not in (0, None) and "key" in done.errors, done

    def test_beyond_loopback_with_a_key(self, own):
        port = host.free_port()
        made = Daemon.__new__(Daemon)
        made.__init__(listen=f"0.0.0.0:{port}", ready=False)
        try:
            made.port = port
            assert made.wait_ready()
            assert made.run("print(1)")["stdout"] == "1\n"
        finally:
            made.close()


@pytest.fixture(scope="module")
def certificate(tmp_path_factory):
    folder = tmp_path_factory.mktemp("tls")
    subprocess.run(
        [
            "openssl",
            "req",
            "-x509",
            "-newkey",
            "ec",
            "-pkeyopt",
            "ec_paramgen_curve:prime256v1",
            "-nodes",
            "-days",
            "2",
            "-subj",
            "/CN=localhost",
            "-addext",
            "subjectAltName=IP:127.0.0.1,DNS:localhost",
            "-keyout",
            folder / "key.pem",
            "-out",
            folder / "cert.pem",
        ],
        check=True,
        capture_output=True,
    )
    return folder


class TestTls:
    def test_serves(self, own, certificate):
        made = own(
            tls=str(certificate / "cert.pem"),
            flags=["--tls-cert", certificate / "cert.pem", "--tls-key", certificate / "key.pem"],
        )
        assert made.run("print('over tls')")["stdout"] == "over tls\n"
        assert [e["type"] for _, e in made.stream("print(1)")][-1] == "outcome"
        assert b"200" not in made.raw(b"GET /readyz HTTP/1.1\r\nHost: x\r\n\r\n", timeout=3)

    def test_old_versions_are_refused(self, own, certificate):
        made = own(
            tls=str(certificate / "cert.pem"),
            flags=["--tls-cert", certificate / "cert.pem", "--tls-key", certificate / "key.pem"],
        )
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        context.set_ciphers("ALL:@SECLEVEL=0")
        context.minimum_version = context.maximum_version = ssl.TLSVersion.TLSv1_1
        with (
            pytest.raises((ssl.SSLError, ConnectionError)),
            socket.create_connection(("127.0.0.1", made.port), timeout=5) as sock,
        ):
            context.wrap_socket(sock)

    def test_half_given(self, certificate):
        done = start_fails("--listen", f"127.0.0.1:{host.free_port()}", "--tls-cert", str(certificate / "cert.pem"))
        assert done.status == 2 and "tls" in done.errors.lower() and "key" in done.errors.lower()

    def test_files_that_are_missing(self, certificate):
        missing = str(certificate / "missing.pem")
        port = host.free_port()
        done = start_fails("--listen", f"127.0.0.1:{port}", "--tls-cert", missing, "--tls-key", missing)
        assert done.status == 2 and "CORDON_TLS_CERT" in done.errors and "missing.pem" in done.errors

    def test_unreadable(self, certificate):
        done = start_fails(
            "--listen",
            f"127.0.0.1:{host.free_port()}",
            "--tls-cert",
            "/nope/cert.pem",
            "--tls-key",
            str(certificate / "key.pem"),
        )
        assert done.status not in (0, None) and "/nope/cert.pem" in done.errors

    def test_key_of_another_certificate(self, certificate, tmp_path):
        subprocess.run(
            ["openssl", "ecparam", "-name", "prime256v1", "-genkey", "-noout", "-out", tmp_path / "other.pem"],
            check=True,
            capture_output=True,
        )
        done = start_fails(
            "--listen",
            f"127.0.0.1:{host.free_port()}",
            "--tls-cert",
            str(certificate / "cert.pem"),
            "--tls-key",
            str(tmp_path / "other.pem"),
        )
        assert done.status not in (0, None), done


class TestStop:
    def test_sigterm_is_clean(self, own):
        made = own()
        made.run("print(1)")
        roots = set(made.note_cgroups())
        pids = made.pids()
        began = time.monotonic()
        assert made.stop() == 0
        assert time.monotonic() - began < 60
        assert not [pid for pid in pids if host.alive(pid)]
        assert not [root for root in roots if os.path.exists(root)]
        assert not os.path.exists(os.path.join(made.state, "cordon.sock"))

    def test_sigint_too(self, own):
        import signal

        made = own()
        made.process.send_signal(signal.SIGINT)
        assert made.process.wait(60) == 0

    def test_during_runs_they_get_a_defined_answer(self, own):
        from concurrent.futures import ThreadPoolExecutor

        made = own()

        def one():
            try:
                return made.post({"language": "python", "code": "import time; time.sleep(20)"})
            except OSError as err:
                return err

        with ThreadPoolExecutor(3) as pool:
            futures = [pool.submit(one) for _ in range(3)]
            made.wait_for_load(3)
            pids = made.pids()
            assert made.stop() == 0
            for future in futures:
                answer = future.result()
                if not isinstance(answer, OSError):
                    cause = answer.json()["outcome"]["cause"] if answer.status == 200 else answer.error()[0]
                    assert cause in ("cancelled", "infrastructure", "unavailable", "busy"), answer
        assert not [pid for pid in pids if host.alive(pid)]

    def test_port_is_free_again_at_once(self, own):
        made = own()
        made.restart()
        made.restart()
        assert made.run("print(1)")["stdout"] == "1\n"


def test_serve_help():
    done = cli("serve", "--help")
    assert done.status == 0 and all(
        word in done.text for word in ("--listen", "--state", "--config", "--tls-cert", "--tls-key")
    )


def test_what_the_start_says(own):
    made = own()
    assert host.wait_for(lambda: str(made.port) in made.log())


def test_no_stdin_no_tty_needed():
    with subprocess.Popen(
        [BIN, "config", "show"],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        env=environment({}),
        start_new_session=True,
    ) as process:
        assert b"CORDON_LISTEN" in process.stdout.read()
