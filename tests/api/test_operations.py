# SPDX-License-Identifier: Apache-2.0
"""What an operator looks at: /metrics, /openapi.json, /readyz, the log."""

import json
import re
import signal
import subprocess
import time

from lib import host
from lib.daemon import BIN, KEY_FORM, SECRET, cli

SAMPLE = re.compile(
    r'^([a-zA-Z_:][a-zA-Z0-9_:]*)(\{(?:[a-zA-Z_][a-zA-Z0-9_]*="(?:[^"\\\n]|\\["\\n])*",?)*\})? '
    r"(-?(?:\d+(?:\.\d+)?(?:[eE][-+]?\d+)?|Inf)|[+]Inf|NaN)(?: \d+)?$"
)


def samples(text):
    """{name with labels: value}; every line must be Prometheus text."""
    found, types = {}, {}
    assert text.endswith("\n")
    for line in text.splitlines():
        if line.startswith("# TYPE "):
            _, _, name, kind = line.split(" ")
            assert kind in ("counter", "gauge", "histogram", "summary", "untyped") and name not in types
            types[name] = kind
        elif line and not line.startswith("#"):
            match = SAMPLE.match(line)
            assert match, line
            assert match.group(1) + (match.group(2) or "") not in found, f"twice: {line}"
            found[match.group(1) + (match.group(2) or "")] = float(match.group(3))
    for name in found:
        base = re.sub(r"\{.*", "", name)
        assert base in types or re.sub(r"_(bucket|sum|count)$", "", base) in types, f"{base} has no TYPE"
    return found, types


def test_metrics_are_prometheus_text_and_count(daemon):
    before, types = samples(daemon.get("/metrics").body.decode())
    daemon.run("print(1)")
    daemon.run("raise ValueError")
    answer = daemon.get("/metrics")
    assert answer.headers["Content-Type"].startswith("text/plain")
    after, _ = samples(answer.body.decode())
    grown = [
        name
        for name in after
        if types.get(re.sub(r"\{.*", "", name)) == "counter"
        and after[name] >= before.get(name, 0) + 2
        and "run" in name
    ]
    assert grown, after
    assert all(name.startswith(("cordon_", "process_")) for name in after)


def test_counters_never_fall(daemon):
    first, types = samples(daemon.get("/metrics").body.decode())
    for _ in range(3):
        daemon.run("print(1)")
    second, _ = samples(daemon.get("/metrics").body.decode())
    for name, value in first.items():
        if types.get(re.sub(r"\{.*", "", name)) == "counter":
            assert second[name] >= value, name


def test_metrics_name_no_secret(daemon):
    daemon.run("print('private-marker-991')", env={"TOKEN": "private-marker-991"})
    text = daemon.get("/metrics").body.decode()
    assert "private-marker-991" not in text and daemon.key not in text


def test_readyz(daemon):
    answer = daemon.get("/readyz", headers={"Authorization": None})
    assert answer.status == 200 and json.loads(answer.body)


def methods_at(document, path):
    """Of all patterns that take this path: /a/{id} takes /a/b as well."""
    made = re.sub(r"\{[^}]*\}", "x", path)
    fits = [p for p in document["paths"] if re.fullmatch(re.sub(r"\\\{[^}]*\}", "[^/]+", re.escape(p)), made)]
    return {method for p in fits for method in document["paths"][p]}


def test_openapi_covers_every_route(daemon):
    answer = daemon.get("/openapi.json", headers={"Authorization": None})
    assert answer.status == 200
    document = answer.json()
    assert document["openapi"].startswith("3.") and document["info"]["title"] and document["info"]["version"]
    assert "post" in document["paths"]["/v1/runs"]
    for path in ("/v1/runs", "/metrics", "/readyz", "/openapi.json"):
        assert path in document["paths"], path
    nowhere = daemon.get("/v1/no/such/route").error()[1].split("/")[0].encode()
    for path, methods in document["paths"].items():
        for method, operation in methods.items():
            assert operation["responses"], (path, method)
            answer = daemon.request(method.upper(), re.sub(r"\{[^}]*\}", "x", path))
            assert answer.status != 405, (path, method)
            # An object that is not there is no missing route.
            assert answer.status != 404 or (b"{" in path.encode() and nowhere not in answer.body), (path, method, answer)
        for method in {"get", "post", "put", "delete"} - methods_at(document, path):
            assert daemon.request(method.upper(), re.sub(r"\{[^}]*\}", "x", path)).status in (405, 501), (path, method)


def test_openapi_references_resolve(daemon):
    document = daemon.get("/openapi.json").json()

    def walk(node):
        if isinstance(node, dict):
            if "$ref" in node:
                target = document
                for part in node["$ref"].removeprefix("#/").split("/"):
                    target = target[part]
            for value in node.values():
                walk(value)
        elif isinstance(node, list):
            for value in node:
                walk(value)

    walk(document)


def test_openapi_lists_the_fields_of_a_run(daemon):
    text = json.dumps(daemon.get("/openapi.json").json())
    for field in (
        "language",
        "code",
        "arguments",
        "stdin",
        "env",
        "files",
        "timeout_s",
        "memory_mb",
        "network",
        "allowed_domains",
        "artifacts",
        "backend",
        "outcome",
        "exit_code",
        "timing",
        "queue_ms",
        "x-ndjson",
    ):
        assert field in text, field


def test_log_is_structured_and_has_no_secrets(own):
    made = own(log_json=True, log_level="debug")
    made.run("print('code-marker-5512')", env={"A": "env-marker-5512"}, stdin="stdin-marker-5512")
    made.post({"language": "python", "code": "1"}, headers={"Authorization": "Bearer e2b_" + "ab" * 20})
    assert host.wait_for(lambda: len(made.log()) > 200)
    for line in made.log().splitlines():
        if line.startswith("{"):
            json.loads(line)
    for secret in (
        made.key,
        made.key[4:],
        "ab" * 20,
        "code-marker-5512",
        "env-marker-5512",
        "stdin-marker-5512",
        SECRET,
    ):
        assert secret not in made.log(), secret
    assert sum(line.startswith("{") for line in made.log().splitlines()) >= 2


def test_log_lines_cannot_be_forged(own):
    made = own()
    made.request("GET", "/x%0aerror%20forged=1")
    made.refused(backend="x\nlevel=error msg=forged")
    assert not re.search(r"^(level=)?error forged|^level=error msg=forged", made.log(), re.M)


def test_the_key_is_in_no_process_title(daemon):
    for pid in daemon.pids():
        assert daemon.key not in " ".join(host.cmdline(pid))
        assert daemon.key not in host.read(f"/proc/{pid}/environ")


def test_interpreter_without_an_absolute_path_is_told_to_whoever_asks(own):
    made = own(python="python3", ready=False, key=False)
    assert host.wait_for(lambda: answers(made)), made.log()
    made.key = KEY_FORM.search(made.log()).group(0)
    assert host.wait_for(lambda: b"CORDON_PYTHON" in made.get("/readyz").body)
    ready = made.get("/readyz")
    assert ready.status == 503 and "absolute path" in ready.error()[1], ready
    assert ready.error() == made.post({"language": "python", "code": "print(1)"}).error()


def test_not_ready_and_run_fail_in_the_same_words(own):
    """Where no user namespace can be made, nothing can run: said at once, alike, and with what mends it."""
    forbid = 'echo 0 > /proc/sys/user/max_user_namespaces; exec setpriv --ambient-caps=-all --inh-caps=-all "$@"'
    prefix = ["unshare", "--user", "--map-user=65534", "--map-group=65534", "--keep-caps", "sh", "-c", forbid, "sh"]
    made = own(prefix=prefix, ready=False, key=False)
    assert host.wait_for(lambda: answers(made)), made.log()
    made.key = KEY_FORM.search(made.log()).group(0)
    assert host.wait_for(lambda: b"namespace" in made.get("/readyz").body)
    ready = made.get("/readyz")
    failed = made.post({"language": "python", "code": "print(1)"})
    assert ready.status == 503 and failed.status == 503, (ready, failed)
    assert ready.error() == failed.error() and ready.error()[0] == "unavailable"
    assert "user namespace" in ready.error()[1]
    doctor = cli("doctor", prefix=prefix)
    assert doctor.status != 0 and "user namespace" in doctor.text


def test_a_missing_interpreter_is_named(own):
    made = own(python="/nonexistent/python3")
    status, kind, message = made.refused()
    assert status in (403, 503) and kind in ("refused", "unavailable") and "python" in message
    assert made.run("echo x", "bash")["stdout"] == "x\n"
    doctor = cli("doctor", python="/nonexistent/python3")
    assert "/nonexistent/python3" in doctor.text, doctor


def answers(made):
    try:
        return made.get("/readyz", timeout=20).status
    except OSError:
        return None


def test_idle_daemon_is_idle(daemon):
    import time

    def ticks():
        return sum(int(fields[11]) + int(fields[12]) for fields in map(host.stat_fields, daemon.pids()) if fields)

    def idle():
        before = ticks()
        time.sleep(2)
        return ticks() - before <= 10  # of 200 a CPU

    assert host.wait_for(idle)  # what came before may have left it some work


def test_a_stop_is_told_as_one(own):
    """Also when it is asked for twice at once, as timeout(1) does: the second is no call for haste."""
    daemon = own()
    state = daemon.state
    with subprocess.Popen(
        [BIN, "run", "-c", "import time\nprint('up', flush=True)\ntime.sleep(60)"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env={"PATH": "/usr/bin:/bin", "CORDON_STATE": state},
    ) as process:
        assert process.stdout.readline() == b"up\n"
        daemon.process.send_signal(signal.SIGTERM)
        time.sleep(0.1)
        daemon.process.send_signal(signal.SIGTERM)
        assert daemon.process.wait(60) == 0
        errors = process.stderr.read().decode()
        assert process.wait(60) == 125 and "the daemon is stopping" in errors and "client" not in errors, errors
    log = daemon.log()
    assert log.count("msg=stopping") == 1 and "is killed" not in log, log
