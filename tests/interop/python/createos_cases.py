# SPDX-License-Identifier: Apache-2.0
"""Cases for the PyPI package `langflow-sandbox-createos`, unmodified, against the CreateOS door. A JSON line a case."""

import json
import os
import sys
import threading
import traceback
import uuid

import httpx
from langflow_sandbox_createos import create_backend
from langflow_sandbox_createos.components.createos.createos_sandbox import CreateOSSandboxComponent
from lfx.utils.sandbox.base import SandboxUnavailableError

COUNTER = """
import os
path = "/workspace/counter"
n = int(open(path).read()) + 1 if os.path.exists(path) else 1
open(path, "w").write(str(n))
print(n)
"""


def api(method, path, **options):
    url = os.environ["CREATEOS_SANDBOX_BASE_URL"]
    headers = {"X-Api-Key": os.environ["CREATEOS_SANDBOX_API_KEY"]}
    return httpx.request(method, url + path, headers=headers, timeout=30, **options)


def living():
    return [row["id"] for row in api("GET", "/v1/sandboxes").json()["data"]["data"]]


def component(name, **values):
    made = CreateOSSandboxComponent(_id=name)
    made.set(**{"session_mode": "flow", "allow_network": False, "timeout_seconds": 30, "collect_artifacts": False, **values})
    return made


def case_backend_runs():
    backend = create_backend()
    result = backend.run("import sys; print(6 * 7); print('e', file=sys.stderr)")
    assert (result.stdout, result.stderr, result.exit_code) == ("42\n", "e\n", 0), result
    result = backend.run("import sys; sys.exit(3)")
    assert result.exit_code == 3, result
    result = backend.run("import os; print(os.environ['OWN'])", env={"OWN": "ä b"})
    assert result.stdout == "ä b\n", result
    assert living() == [], "a throwaway guest was left"


def case_backend_timeout():
    backend = create_backend()
    os.environ["LANGFLOW_SANDBOX_TIMEOUT_SECONDS"] = "2"
    result = backend.run("import time; print('begun', flush=True); time.sleep(60)")
    assert result.exit_code in (-1, 124, 137), result
    assert living() == []


def case_backend_wrong_key():
    kept = os.environ["CREATEOS_SANDBOX_API_KEY"]
    os.environ["CREATEOS_SANDBOX_API_KEY"] = "e2b_" + "0" * 40
    try:
        create_backend().run("print(1)")
    except SandboxUnavailableError as error:
        assert "401" in str(error), error
    else:
        raise AssertionError("a wrong key was accepted")
    finally:
        os.environ["CREATEOS_SANDBOX_API_KEY"] = kept


def destroy_all():
    for id_ in living():
        api("DELETE", f"/v1/sandboxes/{id_}")


def case_reuse_counts():
    name = "c-" + uuid.uuid4().hex[:6]
    try:
        results = [component(name, python_code=COUNTER).run_sandbox().data for _ in range(3)]
        assert [result["result"] for result in results] == ["1", "2", "3"], results
        assert len({result["sandbox_id"] for result in results}) == 1, results
        assert [result["reused_guest"] for result in results] == [False, True, True], results
    finally:
        destroy_all()


def case_reuse_resumes():
    name = "c-" + uuid.uuid4().hex[:6]
    try:
        first = component(name, python_code=COUNTER).run_sandbox().data
        paused = api("POST", f"/v1/sandboxes/{first['sandbox_id']}/pause")
        assert paused.json()["data"]["status"] == "paused", paused.text
        second = component(name, python_code=COUNTER).run_sandbox().data
        assert (second["result"], second["sandbox_id"]) == ("2", first["sandbox_id"]), second
    finally:
        destroy_all()


def case_reuse_refuses_drift():
    name = "c-" + uuid.uuid4().hex[:6]
    try:
        first = component(name, python_code=COUNTER).run_sandbox().data
        put = api("PUT", f"/v1/sandboxes/{first['sandbox_id']}/egress", json={"egress": ["240.0.0.1"]})
        assert put.status_code == 200, put.text
        try:
            component(name, python_code=COUNTER).run_sandbox()
        except SandboxUnavailableError as error:
            assert "egress" in str(error)
        else:
            raise AssertionError("a guest whose egress drifted was adopted")
    finally:
        destroy_all()


def case_reuse_races():
    name = "c-" + uuid.uuid4().hex[:6]
    results, errors = [], []

    def run():
        try:
            results.append(component(name, command="echo hello").run_sandbox().data)
        except BaseException as error:  # told below
            errors.append(error)

    try:
        threads = [threading.Thread(target=run) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert not errors, errors
        assert len({result["sandbox_id"] for result in results}) == 1, results
        assert len(living()) == 1
    finally:
        destroy_all()


def case_artifacts():
    made = component(
        "c-" + uuid.uuid4().hex[:6],
        session_mode="off",
        collect_artifacts=True,
        python_code="open('/workspace/artifacts/a.txt','w').write('text'); open('/workspace/artifacts/b','wb').write(bytes(range(256)))",
    )
    result = made.run_sandbox().data
    assert result["exit_code"] == 0 and result["artifact_count"] == 2, result
    assert living() == []


def main():
    os.environ["LANGFLOW_SANDBOX_CREATEOS_ACCEPT_EGRESS_EXCEPTIONS"] = "true"
    for name, body in {n[5:]: b for n, b in globals().items() if n.startswith("case_")}.items():
        error = None
        try:
            body()
        except BaseException:  # the test tells it
            error = traceback.format_exc()
        print(json.dumps({"case": name, "error": error}).replace('{"case": ', '{"case":'), flush=True)


if __name__ == "__main__":
    sys.exit(main())
