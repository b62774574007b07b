# SPDX-License-Identifier: Apache-2.0
"""POST /run as RAGFlow's executor manager answers it: request, order of checks, results, artifacts."""

import base64
import concurrent.futures
import contextlib
import json
import time

import pytest
from lib import executor_manager as em
from lib.daemon import Daemon
from lib.executor_manager import TOKEN, body, post, run, value

PNG = b"\x89PNG\r\n\x1a\n" + bytes(range(64))


@pytest.fixture(scope="module")
def door():
    """No limit on runs, and a short one on their time."""
    with Daemon(
        SANDBOX_EXECUTOR_MANAGER_API_TOKEN=f"  {TOKEN} ",
        SANDBOX_RUN_RATE_LIMIT="100000/minute",
        SANDBOX_RUN_PREAUTH_RATE_LIMIT="100000 per minute",
        SANDBOX_TIMEOUT="2s",
    ) as daemon:
        yield daemon


def dumps(data):
    return json.dumps(data, separators=(",", ":"), ensure_ascii=False).encode()


# --- 1.1: health, routes, redirects ---


@pytest.mark.parametrize("path", ["/", "/healthz"])
def test_health_needs_nothing(door, path):
    answer = door.get(path, headers={"Authorization": None})
    assert (answer.status, answer.body) == (200, b'{"status":"ok"}')
    assert answer.headers["Content-Type"] == "application/json"


def test_health_keeps_its_word_when_nothing_can_run(own):
    """Readiness is told by /readyz; /healthz only says that somebody answers."""
    daemon = own(ready=False, CORDON_BACKEND="local", CORDON_MIN_ISOLATION="hardware-virtualized",
                 SANDBOX_EXECUTOR_MANAGER_API_TOKEN=TOKEN)
    daemon.wait_ready()
    assert daemon.get("/healthz").body == b'{"status":"ok"}'
    result = run(daemon, "def main(): return 1")
    assert (result["status"], result["exit_code"], result["detail"]) == ("program_runner_error", -3, "internal_error")
    assert "CORDON_MIN_ISOLATION" in result["stderr"]


def test_other_methods_are_told_in_the_doors_words(door):
    for method in ("GET", "PUT", "DELETE", "PATCH"):
        answer = door.request(method, "/run")
        assert (answer.status, answer.body) == (405, b'{"detail":"Method Not Allowed"}')
        assert answer.headers["Allow"] == "POST"
    assert door.request("POST", "/healthz", b"").status == 405


@pytest.mark.parametrize("method,path", [("POST", "/run/"), ("GET", "/run/"), ("GET", "/healthz/")])
def test_a_slash_behind_is_redirected(door, method, path):
    answer = door.request(method, path, b"{}" if method == "POST" else None)
    assert (answer.status, answer.body) == (307, b"")
    assert answer.headers["Location"] == f"http://127.0.0.1:{door.port}{path[:-1]}"


# --- 1.2, 1.3: the request ---

GOOD = em.encode("def main(**values): return values")
MODEL = "Input should be a valid dictionary or object to extract fields from"
ENUM = {"expected": "'python' or 'nodejs'"}


def fault(kind, loc, msg, found, **ctx):
    return {"type": kind, "loc": ["body", *loc], "msg": msg, "input": found, **({"ctx": ctx["ctx"]} if ctx else {})}


BAD_BASE64 = ["*", "QQ=", "QQ", "Q", "QUJDQ", "QQ==QQ==", "QQ= =", "=QQ=", "Q=Q=", "QUJD=", "QQ\n==", "QQ_-", " QQ==", "=", "é"]

CASES = {
    "empty object": ({}, [fault("missing", ["code_b64"], "Field required", {})]),
    "only others": ({"a": [1, {"b": "é\n"}]}, [fault("missing", ["code_b64"], "Field required", {"a": [1, {"b": "é\n"}]})]),
    "array": ([1, "x"], [fault("model_attributes_type", [], MODEL, [1, "x"])]),
    "string": ("x", [fault("model_attributes_type", [], MODEL, "x")]),
    "number": (5, [fault("model_attributes_type", [], MODEL, 5)]),
    "null": (None, [fault("missing", [], "Field required", None)]),
    "code null": ({"code_b64": None}, [fault("string_type", ["code_b64"], "Input should be a valid string", None)]),
    "code number": ({"code_b64": 1.5}, [fault("string_type", ["code_b64"], "Input should be a valid string", 1.5)]),
    "code array": ({"code_b64": ["a"]}, [fault("string_type", ["code_b64"], "Input should be a valid string", ["a"])]),
    "javascript": ({"code_b64": GOOD, "language": "javascript"},
                   [fault("enum", ["language"], "Input should be 'python' or 'nodejs'", "javascript", ctx=ENUM)]),
    "capital": ({"code_b64": GOOD, "language": "Python"},
                [fault("enum", ["language"], "Input should be 'python' or 'nodejs'", "Python", ctx=ENUM)]),
    "language null": ({"code_b64": GOOD, "language": None},
                      [fault("enum", ["language"], "Input should be 'python' or 'nodejs'", None, ctx=ENUM)]),
    "arguments array": ({"code_b64": GOOD, "arguments": []},
                        [fault("dict_type", ["arguments"], "Input should be a valid dictionary", [])]),
    "arguments number": ({"code_b64": GOOD, "arguments": 7},
                         [fault("dict_type", ["arguments"], "Input should be a valid dictionary", 7)]),
    "arguments string": ({"code_b64": GOOD, "arguments": "{}"},
                         [fault("dict_type", ["arguments"], "Input should be a valid dictionary", "{}")]),
    "all of them, in the order of the fields": (
        {"arguments": 1, "language": 2, "code_b64": 3},
        [fault("string_type", ["code_b64"], "Input should be a valid string", 3),
         fault("enum", ["language"], "Input should be 'python' or 'nodejs'", 2, ctx=ENUM),
         fault("dict_type", ["arguments"], "Input should be a valid dictionary", 1)]),
}


@pytest.mark.parametrize("name", CASES)
def test_what_is_wrong_with_the_fields(door, name):
    sent, faults = CASES[name]
    answer = post(door, json.dumps(sent))
    assert (answer.status, answer.body) == (422, dumps({"detail": faults}))
    assert answer.headers["Content-Type"] == "application/json"


@pytest.mark.parametrize("text", BAD_BASE64)
def test_bad_base64_is_told_in_pythons_words(door, text):
    try:
        base64.b64decode(text, validate=True)
        pytest.skip("this Python takes it")
    except ValueError as error:
        why = str(error)
    answer = post(door, {"code_b64": text})
    found = fault("value_error", ["code_b64"], f"Value error, Invalid base64 encoding: {why}", text, ctx={"error": {}})
    assert (answer.status, answer.body) == (422, dumps({"detail": [found]}))


@pytest.mark.parametrize("text", ["", "QR==", "UGFzcw==", "QUJD"])
def test_what_python_takes_is_taken(door, text):
    """Also base64 whose last bits stand for nothing. These programs have no main, which is no 422."""
    assert base64.b64decode(text, validate=True) is not None
    answer = post(door, {"code_b64": text})
    assert answer.status == 200 and answer.json()["status"] == "program_error"


JSON_FAULTS = [(b"hello", 0, "Expecting value"), (b"{", 1, "Expecting property name enclosed in double quotes"),
               (b'{"a" 1}', 5, "Expecting ':' delimiter"), (b"[1 2]", 3, "Expecting ',' delimiter"), (b"{} x", 3, "Extra data")]


@pytest.mark.parametrize("sent,at,why", JSON_FAULTS)
@pytest.mark.parametrize("token", [TOKEN, "wrong", None])
def test_no_json_is_told_before_the_token_is_asked_for(door, sent, at, why, token):
    answer = post(door, sent, token)
    found = {"type": "json_invalid", "loc": ["body", at], "msg": "JSON decode error", "input": {}, "ctx": {"error": why}}
    assert (answer.status, answer.body) == (422, dumps({"detail": [found]}))


@pytest.mark.parametrize("sent", [b"\xff\xfe", b'{"code_b64":"\xff"}', b"[" * 100000, b"\0", b'{"code_b64":"a\nb"}'])
def test_bytes_that_are_no_json(door, sent):
    assert em.detail(post(door, sent))[0]["type"] == "json_invalid"


def test_no_body(door):
    assert post(door, b"").body == dumps({"detail": [fault("missing", [], "Field required", None)]})


def test_the_content_type_decides(door):
    sent = json.dumps(body("def main(): return 1"))
    for kind in ("application/json", "application/json; charset=utf-8", "application/problem+json", "APPLICATION/JSON", None):
        assert post(door, sent, headers={"Content-Type": kind}).status == 200, kind
    for kind in ("text/plain", "application/x-www-form-urlencoded", "application/jsonx", "text/json"):
        answer = post(door, sent, headers={"Content-Type": kind})
        assert answer.body == dumps({"detail": [fault("model_attributes_type", [], MODEL, sent)]}), kind
        assert post(door, sent, "wrong", headers={"Content-Type": kind}).status == 401


def test_fields_are_checked_after_the_token(door):
    assert post(door, {}, "wrong").status == 401
    assert post(door, {"code_b64": "*"}, None).status == 401


def test_unknown_fields_and_null_arguments(door):
    """RAGFlow's Go client sends base_image, and arguments as null."""
    code = "def main(**values): return values"
    assert value(run(door, code, arguments=None, base_image="x:1", limit={"a": []})) == {}
    sent = {"code_b64": em.encode(code), "arguments": {"a": 1}}  # python is the default
    assert value(post(door, sent).json()) == {"a": 1}


def test_the_last_of_two_equal_names_counts(door):
    sent = '{"code_b64":"*","code_b64":"%s","arguments":{"a":1},"arguments":{"a":2}}' % GOOD
    assert value(post(door, sent).json()) == {"a": 2}


def test_escapes_in_base64_and_names(door):
    sent = '{"code\\u005fb64":"%s","language":"p\\u0079thon"}' % GOOD.replace("=", "\\u003d")
    assert value(post(door, sent).json()) == {}


def test_chunked_bodies(door):
    sent = json.dumps(body("def main(a): return a", arguments={"a": "x" * 100000})).encode()
    connection = door.connection()
    parts = (sent[at:at + 777] for at in range(0, len(sent), 777))
    connection.request("POST", "/run", parts, {"Authorization": f"Bearer {TOKEN}", "Content-Type": "application/json"},
                       encode_chunked=True)
    answer = connection.getresponse()
    assert value(json.loads(answer.read())) == "x" * 100000
    connection.close()


def test_large_arguments(door):
    """10 MB and more, which once did not fit on a command line; there and back."""
    text = "é\"\\\n" * 900_000  # 10.8 MB as JSON
    result = run(door, "def main(text, n): return [len(text), n]", arguments={"text": text, "n": 10**30})
    assert value(result) == [len(text), 10**30]
    text = "x" * 10_000_000
    assert value(run(door, "def main(text): return text", arguments={"text": text})) == text
    assert value(run(door, "function main({ text }) { return text.length }", "nodejs", arguments={"text": text})) == len(text)


def test_code_that_is_no_utf8(door):
    """The original answers with a 500, which RAGFlow's Go client repeats."""
    result = run(door, b"def main(): return '\xff'")
    assert (result["status"], result["exit_code"], result["detail"]) == ("program_runner_error", -999, "unhandled_exception")
    assert "UTF-8" in result["stderr"] and "0xff in position 20" in result["stderr"]


def test_code_that_is_too_large(door):
    result = run(door, b"#" * (2 << 20))
    assert (result["status"], result["exit_code"]) == ("program_runner_error", -999)
    assert "CORDON_CODE_KB" in result["stderr"]


def test_a_body_that_is_too_large(own):
    daemon = own(SANDBOX_EXECUTOR_MANAGER_API_TOKEN=TOKEN, body_mb=1)
    answer = post(daemon, b"[" + b"1," * (1 << 20) + b"1]")
    assert answer.status == 413 and list(answer.json()) == ["detail"] and "CORDON_BODY_MB" in answer.json()["detail"]


# --- 1.6: status and exit codes ---


def test_success(door):
    result = run(door, "import sys\ndef main(a, b=2):\n    print('é', a)\n    print('x', file=sys.stderr)\n    return {'s': a + b}",
                 arguments={"a": 1})
    assert value(result) == {"s": 3}
    assert (result["stdout"], result["stderr"], result["exit_code"]) == ("é 1\n", "x\n", 0)
    assert result["detail"] is None and 0 < result["time_used_ms"]
    assert {result[key] for key in em.KEYS[6:10]} == {None} and result["artifacts"] == []


def test_bytes_of_a_whole_answer(door):
    answer = post(door, body("def main(): return {'ä': [1, 2.5, None, True, 'x\\ny']}"))
    time_used = json.loads(answer.body)["time_used_ms"]
    expected = ('{"status":"success","stdout":"","stderr":"","exit_code":0,"detail":null,"time_used_ms":%.3f,'
                '"memory_used_kb":null,"resource_limit_type":null,"unauthorized_access_type":null,"runtime_error_type":null,'
                '"artifacts":[],"result":{"present":true,"value":{"ä":[1,2.5,null,true,"x\\ny"]},"type":"json"}}' % time_used)
    assert answer.body == expected.encode()


@pytest.mark.parametrize("language,code", [
    ("python", "def main():\n    while True: pass"),
    ("python", "import signal\nsignal.signal(signal.SIGTERM, signal.SIG_IGN)\ndef main():\n    print('x', flush=True)\n    while True: pass"),
    ("nodejs", "function main() { for (;;); }"),
    ("nodejs", "process.on('SIGTERM', () => {}); async function main() { console.log(1); await new Promise((r) => setTimeout(r, 1e6)); }"),
])
def test_timeout(door, language, code):
    """Also of a program that ignores SIGTERM, which the original reports as an internal error and leaves running."""
    began = time.monotonic()
    result = run(door, code, language)
    assert time.monotonic() - began < 60
    assert (result["status"], result["exit_code"], result["stderr"]) == ("resource_limit_exceeded", -124, "Execution timeout")
    assert result["resource_limit_type"] == "time" and 2000 <= result["time_used_ms"] < 60000
    assert result["runtime_error_type"] is None


def test_memory(door):
    result = run(door, "def main():\n    data = []\n    while True: data.append(bytearray(8 << 20))")
    assert (result["status"], result["exit_code"]) == ("resource_limit_exceeded", -137)
    assert (result["stderr"], result["resource_limit_type"]) == ("Memory limit exceeded (killed by OOM)", "memory")
    assert result["time_used_ms"] > 0


PROGRAM_ENDS = [
    ("exit 3", "import sys\ndef main():\n    sys.stderr.write('why')\n    sys.exit(3)", ("program_error", 3, "why", None, None, "nonzero_exit")),
    ("permission", "import sys\ndef main():\n    sys.stderr.write('Operation not permitted; Permission denied; MemoryError')\n    sys.exit(1)",
     ("unauthorized_access", 1, "Operation not permitted; Permission denied; MemoryError", None, "file_access", None)),
    ("not permitted", "import sys\ndef main():\n    sys.stderr.write('MemoryError Operation not permitted')\n    sys.exit(1)",
     ("unauthorized_access", 1, "MemoryError Operation not permitted", None, "disallowed_syscall", None)),
    ("memory error", "import sys\ndef main():\n    sys.stderr.write('MemoryError')\n    sys.exit(1)",
     ("resource_limit_exceeded", 1, "MemoryError", "memory", None, None)),
    ("its own 124", "import sys\ndef main(): sys.exit(124)", ("program_error", 124, "", None, None, "nonzero_exit")),
    ("its own 137", "import sys\ndef main(): sys.exit(137)", ("program_error", 137, "", None, None, "nonzero_exit")),
    ("signal", "import os, signal\ndef main(): os.kill(os.getpid(), signal.SIGSEGV)", ("program_error", 139, "", None, None, "nonzero_exit")),
]


@pytest.mark.parametrize("name,code,expected", PROGRAM_ENDS, ids=[end[0] for end in PROGRAM_ENDS])
def test_programs_that_end_badly(door, name, code, expected):
    result = run(door, code)
    assert (result["status"], result["exit_code"], result["stderr"], result["resource_limit_type"],
            result["unauthorized_access_type"], result["runtime_error_type"]) == expected
    assert result["time_used_ms"] is None and result["detail"] is None


def test_words_on_stderr_do_not_matter_when_it_went_well(door):
    result = run(door, "import sys\ndef main():\n    sys.stderr.write('Permission denied')\n    return 1")
    assert value(result) == 1 and result["stderr"] == "Permission denied"


def test_real_denials(door):
    result = run(door, "def main(): open('/etc/x', 'w')")
    assert result["status"] in ("unauthorized_access", "program_error") and "/etc/x" in result["stderr"]
    result = run(door, "import os\ndef main(): os.setuid(0)")
    assert (result["status"], result["unauthorized_access_type"]) == ("unauthorized_access", "disallowed_syscall")


def test_output_that_is_no_utf8(door):
    """As the original: it can't be told."""
    for stream in ("stdout", "stderr"):
        for data in (b"ab\xffc", b"\xe4\xbd", b"\xe4\xbdx", b"\xed\xa0\x80", b"\xc0\x80", b"\xf4\x90\x80\x80"):
            try:
                data.decode()
            except UnicodeDecodeError as error:
                why = str(error)
            result = run(door, f"import sys\ndef main():\n    sys.{stream}.buffer.write({data!r})")
            assert (result["status"], result["exit_code"], result["detail"]) == ("program_runner_error", -3, "internal_error")
            assert result["stderr"] == why


def test_stdout_that_was_cut(door):
    result = run(door, "def main():\n    print('é' * (1 << 20))\n    return 1")
    assert value(result) == 1
    assert result["stdout"] == "é" * (1 << 19) and "CORDON_STDOUT_KB" in result["detail"]


def test_too_much_output(own):
    daemon = own(SANDBOX_EXECUTOR_MANAGER_API_TOKEN=TOKEN, output_kill_mb=1)
    result = run(daemon, "def main():\n    while True: print('x' * 100000)")
    assert (result["status"], result["resource_limit_type"]) == ("resource_limit_exceeded", "output")
    assert result["exit_code"] == -153 and result["stderr"]


# --- 1.8: main, its result, its marker ---


@pytest.mark.parametrize("returned,expected", [
    ("None", None), ("[1, 'é', {'a': None}]", [1, "é", {"a": None}]), ("float('nan')", None), ("[float('inf'), 1]", [None, 1]),
    ("'x' * 9_000_000", "x" * 9_000_000), ("10 ** 40", 10**40), ("{1: 2}", {"1": 2}), ("'\\u2028\\x00'", "\u2028\x00"),
])
def test_values_of_python(door, returned, expected):
    answer = post(door, body(f"def main(): return {returned}"))
    assert value(json.loads(answer.body, parse_constant=lambda name: pytest.fail(f"{name} is no JSON"))) == expected


@pytest.mark.parametrize("code,words", [
    ("x = 1", "main"), ("", "main"), ("  \n\t", "main"), ("def main(): return {1, 2}", "TypeError"),
    ("def main(): return object()", "TypeError"), ("def main(", "SyntaxError"), ("def main(): return y", "NameError"),
    ("def main(a): return 1", "missing 1 required positional argument"),
])
def test_python_that_gives_no_result(door, code, words):
    result = run(door, code)
    assert (result["status"], result["exit_code"], result["runtime_error_type"]) == ("program_error", 1, "nonzero_exit")
    assert words in result["stderr"]


def test_what_python_programs_find(door):
    code = ("import sys\nprint('top')\nif __name__ == '__main__':\n    print('block')\n"
            "def main(): return [sys.flags.isolated, __name__, sys.argv[0]]")
    result = run(door, code)
    assert result["stdout"] == "top\n" and value(result)[1] == "main"


@pytest.mark.parametrize("code,expected", [
    ("function main() { return { a: [1] } }", {"a": [1]}),
    ("const main = async ({ x = 1 }) => x + 1", 2),
    ("async function main() { return await new Promise((r) => setTimeout(() => r(null), 5)) }", None),
    ("function main() { return 1 }\nmodule.exports = { main }", 1),
    ("function main() { return 1 }\nmodule.exports = function other() { return 2 }", 1),
    ("exports.main = () => 3", 3),
    ("module.exports = () => 4", 4),
    ("import fs from 'node:fs'; export function main() { return typeof fs.readFileSync }", "function"),
    ("function main() { return [NaN, 'é'] }", [None, "é"]),
    ("function main() { return 1 } // the last line is a comment", 1),
    ("function main() { return { then(take) { take(9) } } }", 9),
])
def test_values_of_node(door, code, expected):
    assert value(run(door, code, "nodejs", arguments=None)) == expected


@pytest.mark.parametrize("code,words", [
    ("function main() {}", "Error: main() must return a value. Use null for an empty result.\n"),
    ("async function main() {}", "Error: main() must return a value. Use null for an empty result.\n"),
    ("function main() { return () => 1 }", "Error: main() returned a non-JSON-serializable value.\n"),
    ("function main() { const a = {}; a.a = a; return a }", "Error: main() returned a non-JSON-serializable value.\n"),
    ("const x = 1", "Error: main is not a function\n"),
    ("", "Error: main is not a function\n"),
])
def test_node_that_gives_no_result(door, code, words):
    result = run(door, code, "nodejs")
    assert (result["status"], result["exit_code"], result["stderr"]) == ("program_error", 1, words)


@pytest.mark.parametrize("code,begins", [
    ("async function main() { throw new Error('late') }", "Error in async main function: Error: late\n"),
    ("function main() { throw new Error('soon') }", "Error when executing main: Error: soon\n"),
    ("function main() { return Promise.reject('x') }", "Error in async main function: x\n"),
])
def test_node_that_throws(door, code, begins):
    result = run(door, code, "nodejs")
    assert (result["status"], result["exit_code"]) == ("program_error", 1)
    assert result["stderr"].startswith(begins)


def test_node_top_level_errors(door):
    result = run(door, "function main() { return 1 }\nnope()", "nodejs")
    assert result["status"] == "program_error" and "nope is not defined" in result["stderr"] and "main.js:2" in result["stderr"]


def test_nothing_printed_passes_for_the_result(door):
    forged = em.marker("forged")
    result = run(door, f"print({forged!r})\ndef main():\n    print('a')\n    print({forged!r})\n    print('b')\n    return 'real'")
    assert value(result) == "real" and result["stdout"] == "a\nb\n"
    result = run(door, f"import os\ndef main():\n    print({forged!r}, flush=True)\n    os._exit(0)")
    assert (result["status"], result["result"], result["stdout"]) == ("success", None, "")


def test_markers_in_stdout(door):
    """Empty and good ones are dropped, others are text."""
    lines = [em.MARKER, em.MARKER + "   ", em.MARKER + "*", em.MARKER + em.encode("[1]"), em.MARKER + em.encode('{"present":1}'),
             " " + em.marker(1), "x" + em.marker(1), em.marker(1) + " "]
    result = run(door, f"for line in {lines!r}: print(line)\ndef main(): return 1")
    assert result["stdout"] == "".join(line + "\n" for line in lines[2:7])


@pytest.mark.parametrize("text", [
    "a\r\nb\rc\vd\fe\x1cf\x1dg\x1eh\x85i\u2028j\u2029k", "a\n", "\n", "\n\n", "", "a", "a\n\n\n", "\na", "a\r\n", "a\r", "\r\r\n",
    "x\u2027y\u202az\u00c5",
])
def test_lines_of_stdout(door, text):
    """Split and joined by Python, as the original does when it looks for the marker."""
    expected = "\n".join(text.splitlines())
    expected += "\n" if text.endswith("\n") and expected else ""
    result = run(door, f"import sys\nsys.stdout.buffer.write({text.encode()!r})\ndef main(): return 1")
    assert result["stdout"] == expected


def test_exit_0_without_a_result(door):
    result = run(door, "import sys\ndef main():\n    print('x')\n    sys.exit(0)")
    assert (result["status"], result["exit_code"], result["stdout"], result["result"]) == ("success", 0, "x\n", None)


# --- 1.10: artifacts ---


def artifacts(result):
    assert result["status"] == "success", result
    for entry in result["artifacts"]:
        assert list(entry) == ["name", "mime_type", "size", "content_b64"]
        assert entry["size"] == len(base64.b64decode(entry["content_b64"]))
    return {entry["name"]: (entry["mime_type"], base64.b64decode(entry["content_b64"])) for entry in result["artifacts"]}


def test_kinds_of_artifacts(door):
    kinds = {"png": "image/png", "jpg": "image/jpeg", "jpeg": "image/jpeg", "svg": "image/svg+xml", "pdf": "application/pdf",
             "csv": "text/csv", "json": "application/json", "html": "text/html"}
    code = f"def main():\n    for kind in {list(kinds)!r}:\n        open(f'artifacts/a.{{kind}}', 'wb').write({PNG!r})"
    found = artifacts(run(door, code))
    assert found == {f"a.{kind}": (mime, PNG) for kind, mime in kinds.items()}


def test_artifacts_from_the_working_directory(door):
    """So that savefig("chart.png") comes back; of two of one name the working directory's is the one."""
    code = ("def main():\n    open('chart.PNG', 'w').write('1')\n    open('both.csv', 'w').write('root')\n"
            "    open('artifacts/both.csv', 'w').write('folder')\n    open('artifacts/é ü.json', 'w').write('{}')")
    found = artifacts(run(door, code))
    assert found == {"chart.PNG": ("image/png", b"1"), "both.csv": ("text/csv", b"root"), "é ü.json": ("application/json", b"{}")}


def test_what_is_no_artifact(door):
    code = """
import os
def main():
    for name in ('a.txt', 'noext', 'x.exe', '.hidden.png', 'n\\nl.png', 'd\\x7f.png', 'a..b.png', 'b\\\\c.png', 'png', 'main.py', 'x.png.bak'):
        open('artifacts/' + name, 'w').write('x')
        if name != 'main.py':
            open(name, 'w').write('x')
    open('artifacts/empty.png', 'w')
    open('empty.csv', 'w')
    os.mkdir('artifacts/dir.png')
    os.mkdir('artifacts/sub')
    open('artifacts/sub/deep.png', 'w').write('x')
    os.mkdir('folder')
    open('folder/deep.png', 'w').write('x')
    os.symlink('/etc/passwd', 'artifacts/link.json')
    os.symlink('/etc/passwd', 'link.json')
    os.mkfifo('artifacts/pipe.csv')
    open('artifacts/good.png', 'w').write('x')
    open('good.csv', 'w').write('y')
"""
    assert set(artifacts(run(door, code))) == {"good.png", "good.csv"}


def test_a_link_in_the_working_directory_hides_nothing(door):
    code = ("import os\ndef main():\n    os.symlink('/etc/passwd', 'a.csv')\n    open('artifacts/a.csv', 'w').write('good')")
    assert artifacts(run(door, code)) == {"a.csv": ("text/csv", b"good")}


def test_how_many_and_how_large(door):
    code = "def main():\n    for i in range(300):\n        open(f'artifacts/{i:03}.csv', 'w').write('x')\n        open(f'{i:03}.txt', 'w').write('x')"
    assert len(artifacts(run(door, code))) == 10
    code = ("def main():\n    open('artifacts/just.csv', 'wb').write(bytes(10485760))\n"
            "    open('artifacts/more.csv', 'wb').write(bytes(10485761))")
    assert {name: len(data) for name, (_, data) in artifacts(run(door, code)).items()} == {"just.csv": 10485760}


def test_no_artifacts_of_a_failure(door):
    result = run(door, "def main():\n    open('artifacts/a.csv', 'w').write('x')\n    raise ValueError")
    assert result["status"] == "program_error" and result["artifacts"] == []


def test_artifacts_of_node(door):
    code = "const fs = require('fs'); function main() { fs.writeFileSync('artifacts/a.json', '1'); fs.writeFileSync('b.html', '2'); return 1 }"
    assert set(artifacts(run(door, code, "nodejs"))) == {"a.json", "b.html"}


def test_a_chart(door):
    if not em.guests_have("matplotlib"):
        pytest.skip("the host's python3 has no matplotlib")
    code = "import matplotlib.pyplot as plt\ndef main():\n    plt.plot([1, 2])\n    plt.savefig('chart.png')"
    assert artifacts(run(door, code))["chart.png"][1].startswith(b"\x89PNG")


# --- 1.11: the pool, and what is left of a run ---


def test_no_state_survives(door):
    code = ("import os, subprocess\ndef main():\n    seen = [os.path.exists('/tmp/left'), os.path.exists('left.txt'), "
            "len([p for p in os.listdir('/proc') if p.isdigit()])]\n    open('/tmp/left', 'w').write('x')\n    open('left.txt', 'w').write('x')\n"
            "    subprocess.Popen(['sleep', '1000'])\n    return seen")
    first = value(run(door, code))
    assert first[:2] == [False, False]
    for _ in range(3):
        assert value(run(door, code)) == first


def test_parallel_calls_beyond_the_pool(own):
    daemon = own(SANDBOX_EXECUTOR_MANAGER_API_TOKEN=TOKEN, SANDBOX_EXECUTOR_MANAGER_POOL_SIZE=2, SANDBOX_TIMEOUT="30", max_runs=2)
    code = "import time\ndef main(n):\n    time.sleep(0.1)\n    return n"
    with concurrent.futures.ThreadPoolExecutor(24) as pool:
        results = list(pool.map(lambda n: run(daemon, code, arguments={"n": n}), range(24)))
    assert [value(result) for result in results] == list(range(24))


@contextlib.contextmanager
def a_run_under_way(daemon):
    "Its client leaves when the block ends."
    connection = daemon.connection()
    code = "import signal\ndef main(): signal.pause()"
    connection.request("POST", "/run", json.dumps(body(code)), daemon.headers(em.authorization(TOKEN)))
    daemon.wait_for_load(1)
    yield
    connection.close()


def test_a_full_queue_is_a_busy_pool(own):
    daemon = own(SANDBOX_EXECUTOR_MANAGER_API_TOKEN=TOKEN, SANDBOX_TIMEOUT="300", max_runs=1, queue=0)
    with a_run_under_way(daemon):
        result = run(daemon, "def main(): return 1")
        assert (result["status"], result["exit_code"]) == ("program_runner_error", -10)
        assert (result["stderr"], result["detail"]) == ("Container pool is busy", "no_available_container")


def test_a_client_that_leaves_ends_its_run(own):
    daemon = own(SANDBOX_EXECUTOR_MANAGER_API_TOKEN=TOKEN, SANDBOX_TIMEOUT="300")
    with a_run_under_way(daemon):
        pass
    daemon.wait_for_load(0)


def test_keep_alive_and_order(door):
    connection = door.connection()
    for n in range(5):
        assert post(door, b"x", connection=connection).status == 422
        assert post(door, {}, "wrong", connection=connection).status == 401
        assert value(post(door, body("def main(n): return n", arguments={"n": n}), connection=connection).json()) == n
    connection.close()


def test_code_is_not_logged(own):
    daemon = own(SANDBOX_EXECUTOR_MANAGER_API_TOKEN=TOKEN, log_level="debug")
    run(daemon, "def main(word):\n    print('secret-in-code')\n    return word", arguments={"word": "secret-in-arguments"})
    run(daemon, "def main(): raise ValueError('secret-in-error')")
    log = daemon.log()
    assert "secret-in" not in log and TOKEN not in log and em.encode("secret-in-code")[:16] not in log


def test_the_route_is_documented(door):
    paths = door.get("/openapi.json").json()["paths"]
    assert "post" in paths["/run"] and "get" in paths["/healthz"] and "/run/" not in paths
