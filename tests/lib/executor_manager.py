# SPDX-License-Identifier: Apache-2.0
"""A client of the executor manager's door: RAGFlow's side of POST /run, and what its answers look like."""

import base64
import json
import subprocess

TOKEN = "test-token-52d1"
KEYS = ["status", "stdout", "stderr", "exit_code", "detail", "time_used_ms", "memory_used_kb", "resource_limit_type",
        "unauthorized_access_type", "runtime_error_type", "artifacts", "result"]
MARKER = "__RAGFLOW_RESULT__:"
NONE = object()  # a header or field that is left out


def guests_have(module):
    """Guests run the host's own Python."""
    return subprocess.run(["/usr/bin/python3", "-I", "-c", f"import {module}"], capture_output=True, check=False).returncode == 0


def encode(code):
    return base64.b64encode(code if isinstance(code, bytes) else code.encode()).decode()


def marker(value):
    envelope = json.dumps({"present": True, "value": value, "type": "json"}, separators=(",", ":"))
    return MARKER + encode(envelope)


def body(code, language="python", **fields):
    return {"code_b64": encode(code), "language": language, "arguments": {}, **fields}


def authorization(token):
    return {"Authorization": None if token is None else f"Bearer {token}"}


def post(daemon, data, token=TOKEN, path="/run", headers=None, **options):
    return daemon.request("POST", path, data, headers={**authorization(token), **(headers or {})}, **options)


def run(daemon, code, language="python", token=TOKEN, timeout=60, **fields):
    """The result object of a call that must be answered with 200; its shape is checked."""
    answer = post(daemon, body(code, language, **fields), token, timeout=timeout)
    assert answer.status == 200, answer
    assert answer.headers["Content-Type"] == "application/json"
    result = answer.json()
    assert list(result) == KEYS, list(result)
    # Compact, UTF-8 not escaped, in the order of the keys: the bytes are what Python's own writer gives.
    assert answer.body.startswith(b'{"status":"') and b'", "' not in answer.body.split(b'"stderr"')[0][:20]
    check_shape(result)
    return result


def check_shape(result):
    assert result["memory_used_kb"] is None
    if result["status"] == "success":
        assert result["exit_code"] == 0 and isinstance(result["time_used_ms"], float)
    else:
        assert result["stdout"] == "" and result["artifacts"] == [] and result["result"] is None


def value(result):
    assert result["status"] == "success", result
    assert list(result["result"]) == ["present", "value", "type"]
    assert result["result"]["present"] is True and result["result"]["type"] == "json"
    return result["result"]["value"]


def detail(answer):
    """The one entry of a 422's list."""
    assert answer.status == 422, answer
    assert list(answer.json()) == ["detail"]
    return answer.json()["detail"]
