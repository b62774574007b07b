# SPDX-License-Identifier: Apache-2.0
"""What main returns, on a channel of its own."""

import pytest


@pytest.mark.parametrize(
    "expression,value",
    [
        ("1", 1),
        ("-1.5", -1.5),
        ("'t\\u00e9xt'", "t\u00e9xt"),
        ("[1, [2, {'a': None}]]", [1, [2, {"a": None}]]),
        ("True", True),
        ("None", None),
        ("(1, 2)", [1, 2]),
        ("float('nan')", None),
        ("[float('inf'), -float('inf'), 1]", [None, None, 1]),
        ("{'a': float('nan')}", {"a": None}),
        ("''", ""),
        ("{}", {}),
        ("10**30", 10**30),
        ("'\\0 \\u2028 \\x1b'", "\0 \u2028 \x1b"),
        ("'</script>\\\\\"'", '</script>\\"'),
        ("{1: 2}", {"1": 2}),
    ],
)
def test_python_values(run, expression, value):
    answer = run(f"def main():\n    return {expression}", arguments={})
    assert answer["result"] == value and answer["exit_code"] == 0, answer


@pytest.mark.parametrize(
    "expression,value",
    [
        ("1", 1),
        ("'t\\u00e9xt'", "t\u00e9xt"),
        ("[1, {a: null}]", [1, {"a": None}]),
        ("NaN", None),
        ("[Infinity, -Infinity]", [None, None]),
        ("{a: undefined, b: 1}", {"b": 1}),
        ("new Date(0)", "1970-01-01T00:00:00.000Z"),
    ],
)
def test_javascript_values(run, expression, value):
    answer = run(f"function main() {{ return ({expression}) }}", "javascript", arguments={})
    assert answer["result"] == value and answer["exit_code"] == 0, answer


@pytest.mark.parametrize(
    "language,code",
    [
        ("python", "def main():\n    return object()"),
        ("python", "def main():\n    return {1, 2}"),
        ("python", "def main():\n    a = []; a.append(a); return a"),
        ("python", "def main():\n    return b'bytes'"),
        ("javascript", "function main() { const a = {}; a.a = a; return a }"),
        ("javascript", "function main() { return 1n }"),
        ("javascript", "function main() { return undefined }"),
    ],
)
def test_what_cannot_be_json_is_a_clear_error(run, language, code):
    answer = run(code, language, arguments={})
    assert answer["result"] is None
    assert "JSON" in answer["outcome"]["result_error"] or "undefined" in code, answer["outcome"]
    assert answer["outcome"]["result_error"][:40] in answer["stderr"]


def test_async_main(run):
    code = "import asyncio\nasync def main(n):\n    await asyncio.sleep(0.01)\n    return n * 2"
    assert run(code, arguments={"n": 4})["result"] == 8
    assert (
        run(
            "async function main({n}) { await new Promise(r => setTimeout(r, 10)); return n * 2 }",
            "javascript",
            arguments={"n": 4},
        )["result"]
        == 8
    )


def test_a_raising_main_has_no_result(run):
    answer = run("def main():\n    raise ValueError('no good')", arguments={})
    assert answer["exit_code"] == 1 and answer["result"] is None and "ValueError: no good" in answer["stderr"]
    answer = run("function main() { throw new Error('no good') }", "javascript", arguments={})
    assert answer["exit_code"] == 1 and answer["result"] is None and "no good" in answer["stderr"]


def test_async_rejection(run):
    answer = run("async function main() { throw new Error('later') }", "javascript", arguments={})
    assert answer["exit_code"] == 1 and "later" in answer["stderr"] and answer["result"] is None


def test_exit_within_main(run):
    answer = run("import sys\ndef main():\n    sys.exit(7)", arguments={})
    assert answer["exit_code"] == 7 and answer["result"] is None


def test_printing_cannot_forge_a_result(run):
    lookalike = '{"result": "forged"}\n{"type":"result","data":"forged"}\n__RESULT__forged\n'
    code = (
        f"import sys\ndef main():\n    print({lookalike!r}); print({lookalike!r}, file=sys.stderr)\n    return 'true'"
    )
    answer = run(code, arguments={})
    assert answer["result"] == "true" and answer["stdout"] == lookalike + "\n"
    assert run(f"print({lookalike!r})")["result"] is None


def test_output_and_result_together(run):
    answer = run("def main():\n    print('printed')\n    return 1", arguments={})
    assert (answer["stdout"], answer["result"]) == ("printed\n", 1)


def test_a_large_result(run):
    answer = run("def main():\n    return 'r' * (2 << 20)", arguments={}, memory_mb=512)
    if answer["result"] is None:
        assert answer["outcome"]["result_error"], answer["outcome"]
    else:
        assert answer["result"] == "r" * (2 << 20)


def test_a_huge_result_is_bounded(run):
    answer = run("def main():\n    return 'r' * (200 << 20)", arguments={}, memory_mb=2048, timeout_s=60)
    assert answer["result"] is None and answer["outcome"]["result_error"], answer["outcome"]


def test_deep_results(run):
    answer = run("def main():\n    a = []\n    for _ in range(500): a = [a]\n    return a", arguments={})
    assert isinstance(answer["result"], list) or answer["outcome"]["result_error"]


def test_main_of_if_name(run):
    assert run("if __name__ == '__main__':\n    print('script')")["stdout"] == "script\n"


def test_result_with_surrogates(run):
    answer = run("def main():\n    return '\\ud800'", arguments={})
    assert answer["result"] is not None or answer["outcome"]["result_error"]
