# SPDX-License-Identifier: Apache-2.0
"""Cases for integrations/langflow under Langflow's own sandbox layer (lfx), unmodified, against a daemon. A JSON line a case.
Those named machine_… need a daemon whose backend exec-sandbox can run."""

import http.server
import json
import os
import subprocess
import sys
import tempfile
import threading
import traceback

import cordon_langflow.backend
from lfx.utils import sandbox
from lfx.utils.sandbox import SandboxExecutionError, SandboxUnavailableError, registry, run_code_in_sandbox

URL = os.environ["LANGFLOW_CORDON_URL"]


def fresh(**environment):
    """The backend as lfx gets it, with these settings."""
    for name in [name for name in os.environ if name.startswith(("LANGFLOW_SANDBOX_", "LANGFLOW_CORDON_BACKEND"))]:
        del os.environ[name]
    os.environ.update({"LANGFLOW_CORDON_URL": URL, "LANGFLOW_SANDBOX_BACKEND": "cordon", **environment})
    cordon_langflow.backend._settings = lambda: None  # the environment counts
    return cordon_langflow.backend.create()


def refused(call, *words):
    try:
        result = call()
    except SandboxUnavailableError as error:
        missing = [word for word in words if word not in str(error)]
        assert not missing, f"{missing} not in: {error}"
    else:
        raise AssertionError(f"not refused: {result}")


def case_the_entry_point_is_what_lfx_looks_for():
    import tomllib

    with open(os.environ["CORDON_LANGFLOW_PROJECT"], "rb") as file:
        points = tomllib.load(file)["project"]["entry-points"]
    assert points == {"lfx.sandbox_backends": {"cordon": "cordon_langflow.backend:create"}}, points


def case_lfx_takes_it_and_refuses_what_is_no_hardware_boundary():
    fresh()
    if "cordon" not in registry.known_sandbox_backends():
        sandbox.register_sandbox_backend("cordon", cordon_langflow.backend.create)
    assert sandbox.get_sandbox_backend() == "cordon" and sandbox.is_sandbox_enabled()
    refused(lambda: run_code_in_sandbox("print(1)"), "cordon", "hardware-virtualized", "namespace")
    result = run_code_in_sandbox("  \n")
    assert (result.stdout, result.stderr, result.exit_code) == ("", "", 0), result


def case_what_the_daemon_declares_is_declared():
    found = fresh().capabilities()
    assert found.isolation == "namespace" and found.supports_deny_all_egress is True, found
    found = fresh(LANGFLOW_CORDON_BACKEND="none").capabilities()
    assert found.isolation == "none", found
    found = fresh(LANGFLOW_CORDON_BACKEND="nowhere").capabilities()
    assert found.isolation == "none" and not found.supports_deny_all_egress, found


def case_what_was_measured_to_be_otherwise_is_not_declared():
    def verified(**values):
        return {"capabilities": [{"name": name, "declared": True, "verified": value} for name, value in values.items()]}

    declared = {"isolation": "hardware-virtualized", "deny_all_egress": True, "domain_allowlist": True, "max_timeout_s": 0}
    of = lambda **row: cordon_langflow.backend.CordonBackend._of({"capabilities": declared, **row})
    for row in ({}, {"verified": None}, {"verified": verified(deny_all_egress=True, domain_allowlist=None)}):
        found = of(**row)
        assert found.supports_deny_all_egress and found.supports_domain_allowlist and found.max_timeout_seconds is None, row
    assert not of(verified=verified(deny_all_egress=False)).supports_deny_all_egress
    assert not of(verified=verified(egress_exceptions=False)).supports_deny_all_egress
    assert not of(verified=verified(domain_allowlist=False)).supports_domain_allowlist
    assert not of(capabilities={**declared, "egress_exceptions": ["169.254.0.0/16"]}).supports_deny_all_egress


def case_a_daemon_that_is_not_there_is_unavailable():
    backend = fresh()
    os.environ["LANGFLOW_CORDON_URL"] = "http://127.0.0.1:9"
    refused(backend.capabilities, "cordon", "can not be asked")
    refused(lambda: backend.run("print(1)"), "cordon", "can not be asked")


def case_the_daemon_judges_by_langflows_rules_as_well():
    refused(lambda: fresh().run("print(1)"), "refused and not run", "hardware-virtualized", "local")
    refused(lambda: fresh(LANGFLOW_CORDON_BACKEND="none").run("print(1)"), "not a hardware-virtualized boundary", "none")
    refused(lambda: fresh(LANGFLOW_CORDON_BACKEND="nowhere").run("print(1)"), "nowhere")


PLUGGED = """
import sys
from lfx.utils import sandbox
from lfx.utils.sandbox import SandboxUnavailableError, registry, run_code_in_sandbox
assert ("cordon" in registry.known_sandbox_backends()) == (sys.argv[1] == "known"), registry.known_sandbox_backends()
try:
    print(run_code_in_sandbox("print(1)"))
except SandboxUnavailableError as error:
    print(error)
"""


def plugged(listed, known):
    """What a fresh Langflow says of a run, with the package installed (as metadata that pip would write) and so listed."""
    with tempfile.TemporaryDirectory() as folder:
        info = os.path.join(folder, "cordon_langflow-0.1.0.dist-info")
        os.mkdir(info)
        with open(os.path.join(info, "METADATA"), "w", encoding="utf-8") as file:
            file.write("Metadata-Version: 2.1\nName: cordon-langflow\nVersion: 0.1.0\n")
        with open(os.path.join(info, "entry_points.txt"), "w", encoding="utf-8") as file:
            file.write("[lfx.sandbox_backends]\ncordon = cordon_langflow.backend:create\n")
        path = os.pathsep.join([folder, os.environ["PYTHONPATH"]])
        env = dict(os.environ, PYTHONPATH=path, LANGFLOW_SANDBOX_BACKEND="cordon", LANGFLOW_SANDBOX_BACKEND_PLUGINS=listed)
        done = subprocess.run([sys.executable, "-s", "-c", PLUGGED, known], env=env, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr[-1500:]
        return done.stdout


def case_lfx_finds_it_by_its_entry_point_only_where_it_is_listed():
    fresh()
    told = plugged("cordon", "known")
    assert "hardware-virtualized" in told and "namespace" in told, told
    told = plugged("", "unknown")
    assert "cordon" in told and "hardware-virtualized" not in told, told


def case_it_works_in_a_child_though_its_lock_was_held_at_the_fork():
    backend = fresh()
    backend._lock.acquire()
    pid = os.fork()
    if pid == 0:
        backend.reset_after_fork()
        os._exit(0 if backend.capabilities().isolation == "namespace" else 3)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0


class Answers(http.server.BaseHTTPRequestHandler):
    """A daemon that answers a run with what a test says."""

    def do_POST(self):
        self.rfile.read(int(self.headers["Content-Length"]))
        status, data = self.server.answer
        self.send_response(status)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *_):
        pass


def answered(status, body):
    """What a run comes to when the daemon answers so: the result, or the class of the error."""
    server = http.server.HTTPServer(("127.0.0.1", 0), Answers)
    server.answer = status, body if isinstance(body, bytes) else json.dumps(body).encode()
    thread = threading.Thread(target=server.handle_request)
    thread.start()
    backend = fresh()
    os.environ["LANGFLOW_CORDON_URL"] = f"http://127.0.0.1:{server.server_address[1]}"
    try:
        return backend.run("print(1)")
    except Exception as error:
        return type(error)
    finally:
        thread.join()
        server.server_close()


def case_outcomes_are_told_in_lfxs_own_words():
    for cause, code, expected in [("exited", 3, 3), ("signalled", 139, 139), ("timeout", -1, -1), ("memory", 137, 137),
                                  ("output_limit", -1, 137)]:
        result = answered(200, {"stdout": "so far", "stderr": "", "exit_code": code, "timing": {"run_ms": 12.6},
                                "outcome": {"cause": cause, "message": "why"}})
        assert (result.stdout, result.exit_code, result.execution_time_ms) == ("so far", expected, 12), (cause, result)
        assert result.stderr == ("why" if cause == "output_limit" else ""), (cause, result)
    for cause, expected in [("refused", SandboxUnavailableError), ("unavailable", SandboxUnavailableError),
                            ("infrastructure", SandboxExecutionError), ("cancelled", SandboxExecutionError)]:
        body = {"exit_code": -1, "timing": {"run_ms": 0}, "outcome": {"cause": cause, "message": "why"}}
        assert answered(200, body) is expected, cause


def case_errors_are_lfxs_two_classes():
    """Unavailable: nothing ran. Execution: something may have."""
    for status, kind, expected in [
        (503, "busy", SandboxUnavailableError), (503, "unavailable", SandboxUnavailableError), (403, "refused", SandboxUnavailableError),
        (401, "unauthenticated", SandboxUnavailableError), (429, "quota_exceeded", SandboxUnavailableError),
        (400, "invalid_request", SandboxUnavailableError), (500, "infrastructure", SandboxExecutionError),
    ]:
        assert answered(status, {"error": {"kind": kind, "message": "why"}}) is expected, kind
    assert answered(200, b"no json") is SandboxUnavailableError
    assert answered(502, b"<html>") is SandboxUnavailableError


# --- with machines ---

def machine(**environment):
    return fresh(LANGFLOW_CORDON_BACKEND="exec-sandbox", LANGFLOW_SANDBOX_TIMEOUT_SECONDS="200", **environment)


def case_machine_declares_what_it_is():
    assert machine().capabilities().isolation in {"software-emulated", "hardware-virtualized"}


def case_machine_runs_code():
    result = machine().run("import sys, os; print(6 * 7, os.environ['OWN']); print('e', file=sys.stderr)", env={"OWN": "ä b"})
    assert (result.stdout, result.stderr, result.exit_code) == ("42 ä b\n", "e\n", 0), result
    assert result.success and result.execution_time_ms >= 0
    result = machine().run("import sys; print('so far'); sys.exit(3)")
    assert (result.stdout, result.exit_code) == ("so far\n", 3), result


def case_machine_keeps_the_output_of_what_takes_too_long():
    backend = machine()
    backend.run("print(1)")  # so that the next one's time is its own
    os.environ["LANGFLOW_SANDBOX_TIMEOUT_SECONDS"] = "3"
    result = backend.run("import time\nprint('so far', flush=True)\nwhile True: time.sleep(1)")
    assert (result.stdout, result.exit_code) == ("so far\n", -1), result
    assert "LANGFLOW_SANDBOX_TIMEOUT_SECONDS" in result.error_message(), result.error_message()


def case_machine_tells_that_memory_ran_out():
    result = machine().run("print('so far', flush=True)\nblocks = []\nwhile True: blocks.append(bytearray(b'x' * (1 << 20)))")
    assert result.exit_code in {137, 1}, result  # 1: Python was told first, and says MemoryError itself
    assert result.exit_code == 137 or "MemoryError" in result.stderr, result
    assert result.stdout == "so far\n", result


def case_machine_cuts_output_and_does_not_fail():
    result = machine().run("import sys\nfor _ in range(40): sys.stdout.write('x' * 65536)\nsys.exit(4)")
    assert result.exit_code == 4 and len(result.stdout) == 1 << 20, (result.exit_code, len(result.stdout))


def main():
    for name, body in {n[5:]: b for n, b in globals().items() if n.startswith("case_")}.items():
        if name.startswith("machine_") != (sys.argv[1:] == ["machine"]):
            continue
        error = None
        try:
            body()
        except BaseException:  # the test tells it
            error = traceback.format_exc()
        print(json.dumps({"case": name, "error": error}).replace('{"case": ', '{"case":'), flush=True)


if __name__ == "__main__":
    sys.exit(main())
