# SPDX-License-Identifier: Apache-2.0
"""What goes in: stdin, environment, files, arguments."""

import json

import pytest

# facts/langflow.md 2.3: names that change what an interpreter loads, or where libc looks
DANGEROUS = """LD_PRELOAD LD_LIBRARY_PATH LD_AUDIT LD_BIND_NOW LD_DEBUG LD_DEBUG_OUTPUT LD_USE_LOAD_BIAS LD_PROFILE
LD_ORIGIN_PATH LD_AOUT_LIBRARY_PATH LD_AOUT_PRELOAD GLIBC_TUNABLES NODE_OPTIONS NODE_REPL_HISTORY PYTHONPATH PYTHONINSPECT
PYTHONWARNINGS PYTHONSTARTUP PYTHONHOME BASH_ENV ENV PROMPT_COMMAND IFS CDPATH PS4 PATH GCONV_PATH HOSTALIASES LOCPATH
NLSPATH RESOLV_HOST_CONF RES_OPTIONS TMPDIR TZDIR MALLOC_CHECK_ MALLOC_TRACE MALLOC_PERTURB_""".split()

CAT = {
    "python": "import sys; sys.stdout.buffer.write(sys.stdin.buffer.read())",
    "javascript": "process.stdin.pipe(process.stdout)",
    "bash": "cat",
}
ECHO_ENV = {
    "python": "import os, json; print(json.dumps(dict(os.environ)))",
    "javascript": "console.log(JSON.stringify(process.env))",
    "bash": "/usr/bin/python3 -c 'import os, json; print(json.dumps(dict(os.environ)))'",
}


@pytest.mark.parametrize("language", CAT)
class TestStdin:
    def test_arrives(self, run, language):
        assert run(CAT[language], language, stdin="one\ntwo \u00e9\n")["stdout"] == "one\ntwo \u00e9\n"

    def test_is_at_its_end_by_default(self, run, language):
        answer = run(CAT[language], language, timeout_s=10)
        assert answer["stdout"] == "" and answer["outcome"]["cause"] == "exited"

    def test_large(self, run, language):
        text = "abcdefghij" * 90000
        assert run(CAT[language], language, stdin=text)["stdout"] == text

    def test_nobody_reads_it(self, run, language):
        code = {"python": "print(1)", "javascript": "console.log(1)", "bash": "echo 1"}[language]
        answer = run(code, language, stdin="x" * 500000)
        assert answer["stdout"] == "1\n" and answer["exit_code"] == 0

    def test_children_read_it_too(self, run, language):
        code = {
            "python": "import subprocess; subprocess.run(['cat'])",
            "javascript": "require('child_process').spawnSync('cat', {stdio: 'inherit'})",
            "bash": "/bin/cat",
        }[language]
        assert run(code, language, stdin="for the child")["stdout"] == "for the child"


def test_stdin_with_nul_and_lines(run):
    text = "a\0b\r\nc"
    assert run("import sys; print(ascii(sys.stdin.buffer.read()))", stdin=text)["stdout"] == ascii(text.encode()) + "\n"


def test_input_function(run):
    assert run("print(input() + input())", stdin="ab\ncd\n")["stdout"] == "abcd\n"
    failed = run("input()")
    assert failed["exit_code"] == 1 and "EOFError" in failed["stderr"]


@pytest.mark.parametrize("language", ECHO_ENV)
def test_environment_arrives_and_nothing_of_the_host_does(run, language):
    seen = json.loads(run(ECHO_ENV[language], language, env={"GREETING": "h\u00e9 = =llo", "EMPTY": ""})["stdout"])
    assert seen["GREETING"] == "h\u00e9 = =llo" and seen["EMPTY"] == ""
    allowed = {
        "GREETING",
        "EMPTY",
        "PATH",
        "HOME",
        "LANG",
        "LC_ALL",
        "LC_CTYPE",
        "USER",
        "LOGNAME",
        "SHELL",
        "TERM",
        "TMPDIR",
        "PWD",
        "SHLVL",
        "_",
        "OLDPWD",
        "MPLBACKEND",
        "MPLCONFIGDIR",
        "TZ",
        "UV_THREADPOOL_SIZE",
        "GOMAXPROCS",
        "NODE_OPTIONS",
        "NODE_PATH",
        "OMP_NUM_THREADS",
        "OPENBLAS_NUM_THREADS",
        "MKL_NUM_THREADS",
        "NUMEXPR_NUM_THREADS",
        "NUMEXPR_MAX_THREADS",
        "VECLIB_MAXIMUM_THREADS",
        "BLIS_NUM_THREADS",
        "RAYON_NUM_THREADS",
        "OMP_THREAD_LIMIT",
        "PYTHONDONTWRITEBYTECODE",
        "PYTHONUNBUFFERED",
        "PYTHONHASHSEED",
        "PYTHON_CPU_COUNT",
        "JULIA_NUM_THREADS",
        "XDG_CACHE_HOME",
        "XDG_CONFIG_HOME",
        "XDG_RUNTIME_DIR",
        "POLARS_MAX_THREADS",
        "LOKY_MAX_CPU_COUNT",
        "MALLOC_ARENA_MAX",
        "HOSTNAME",
        "NODE_NO_WARNINGS",
        "NO_COLOR",
    }
    assert set(seen) <= allowed, set(seen) - allowed


@pytest.mark.parametrize("name", DANGEROUS)
def test_dangerous_environment_names_are_refused(daemon, name):
    for spelling in (name, name.lower()):
        status, kind, message = daemon.refused(env={spelling: "x"})
        assert status == 400 and kind == "invalid_request" and spelling in message, message


@pytest.mark.parametrize("name", ["", "A=B", "A\0B", "1A B", "A\nB", "A" * 300])
def test_impossible_environment_names_are_refused(daemon, name):
    status, kind, message = daemon.refused(env={name: "x"})
    assert status == 400 and kind == "invalid_request" and "env" in message


@pytest.mark.parametrize("value", ["a\0b", 5, None, ["x"], {"a": "b"}, True])
def test_impossible_environment_values_are_refused(daemon, value):
    status, _, message = daemon.refused(env={"NAME": value})
    assert status == 400 and "env" in message


def test_many_variables(daemon):
    env = {f"V{i}": "x" * 100 for i in range(100)}
    assert daemon.run("import os; print(sum(k.startswith('V') for k in os.environ))", env=env)["stdout"] == "100\n"
    status, _, message = daemon.refused(env={f"V{i}": "x" for i in range(5000)})
    assert status in (400, 413) and "env" in message


class TestFiles:
    def test_are_there_in_every_language(self, run):
        files = {"data.txt": "t\u00e9xt", "deep/er/b.bin": bytes(range(256)), "empty": ""}
        code = "import hashlib\nfor n in ('data.txt', 'deep/er/b.bin', 'empty'): print(len(open(n, 'rb').read()))"
        assert run(code, files=files)["stdout"] == "5\n256\n0\n"
        assert run("cat data.txt", "bash", files=files)["stdout"] == "t\u00e9xt"
        assert (
            run("process.stdout.write(require('fs').readFileSync('data.txt'))", "javascript", files=files)["stdout"]
            == "t\u00e9xt"
        )

    def test_can_be_imported(self, run):
        assert run("import helper; print(helper.value)", files={"helper.py": "value = 7"})["stdout"] == "7\n"
        assert (
            run("console.log(require('./helper.js'))", "javascript", files={"helper.js": "module.exports = 7"})[
                "stdout"
            ]
            == "7\n"
        )

    def test_belong_to_the_code(self, run):
        code = (
            "import os; s = os.stat('a'); print(s.st_uid == os.getuid(), oct(s.st_mode & 0o777)); "
            "open('a', 'w').write('new')"
        )
        assert run(code, files={"a": "old"})["stdout"] == "True 0o644\n"

    def test_binary_survives(self, run):
        content = bytes(range(256)) * 4096
        code = "import hashlib; print(hashlib.sha256(open('b', 'rb').read()).hexdigest())"
        import hashlib

        assert run(code, files={"b": content})["stdout"].strip() == hashlib.sha256(content).hexdigest()

    @pytest.mark.parametrize(
        "path",
        [
            "../x",
            "a/../../x",
            "..",
            "",
            ".",
            "a\0b",
            "/",
            "a/",
            "//etc/passwd",
            "/etc/x",
            "/usr/bin/python3",
            "/proc/self/mem",
            "a/./../../b",
            "x" * 300,
            "d/" * 3000 + "f",
        ],
    )
    def test_refused_paths(self, daemon, path):
        from lib.client import request_body

        answer = daemon.post(request_body("print(1)", "python", {"files": {path: "x"}}))
        if answer.status == 200:  # well-formed, but nothing that the code may write: told by the guest
            outcome = answer.json()["outcome"]
            assert outcome["cause"] == "refused" and path in outcome["message"] and answer.json()["stdout"] == ""
        else:
            assert answer.status == 400 and answer.error()[0] == "invalid_request" and "files" in answer.error()[1]

    def test_absolute_paths_in_the_private_places(self, run):
        code = "print(open('/tmp/a').read() + open('/home/user/b').read())"
        assert run(code, files={"/tmp/a": "1", "/home/user/b": "2"})["stdout"] == "12\n"

    def test_more_than_the_disk_holds(self, daemon, own):
        made = own(disk_mb=1)
        from lib.client import request_body

        answer = made.post(request_body("print(1)", "python", {"files": {"big": b"x" * (3 << 20)}}))
        if answer.status == 200:
            assert answer.json()["outcome"]["cause"] in ("refused", "infrastructure") or answer.json()["exit_code"] != 0
            assert (
                "disk" in answer.json()["outcome"]["message"].lower()
                or "space" in answer.json()["outcome"]["message"].lower()
            )
        else:
            assert answer.status in (400, 413) and "disk" in answer.error()[1].lower()
        assert made.run("print(2)")["stdout"] == "2\n"

    def test_a_file_as_a_folder(self, daemon):
        from lib.client import request_body

        answer = daemon.post(request_body("print(1)", "python", {"files": {"a": "x", "a/b": "y"}}))
        told = answer.error()[1] if answer.status != 200 else answer.json()["outcome"]["message"]
        assert "a/b" in told, answer


class TestArguments:
    CALL = {
        "python": "def main(a, b=2):\n    return [a, b]",
        "javascript": "function main({a, b = 2}) { return [a, b] }",
    }

    @pytest.mark.parametrize("language", CALL)
    def test_main_is_called_with_them(self, run, language):
        answer = run(self.CALL[language], language, arguments={"a": {"x": [1, None, "\u00e9", 1.5, True]}})
        assert answer["result"] == [{"x": [1, None, "\u00e9", 1.5, True]}, 2] and answer["exit_code"] == 0

    @pytest.mark.parametrize("language", CALL)
    def test_without_them_main_is_not_called(self, run, language):
        answer = run(self.CALL[language], language)
        assert answer["result"] is None and answer["exit_code"] == 0

    @pytest.mark.parametrize("language", CALL)
    def test_empty_ones_call_it_too(self, run, language):
        code = {"python": "def main():\n    return 'called'", "javascript": "function main() { return 'called' }"}[
            language
        ]
        assert run(code, language, arguments={})["result"] == "called"

    @pytest.mark.parametrize("language", CALL)
    def test_no_main_is_an_error_that_says_so(self, run, language):
        answer = run({"python": "x = 1", "javascript": "let x = 1"}[language], language, arguments={})
        assert answer["exit_code"] != 0 and "main" in answer["stderr"] + answer["outcome"]["result_error"]

    def test_wrong_ones_are_the_programs_error(self, run):
        answer = run("def main(a): return a", arguments={"b": 1})
        assert answer["exit_code"] == 1 and "TypeError" in answer["stderr"]

    @pytest.mark.parametrize("value", [[1], "text", 5, True])
    def test_only_objects(self, daemon, value):
        status, _, message = daemon.refused("def main(): pass", arguments=value)
        assert status == 400 and "arguments" in message

    def test_exact_big_numbers(self, run):
        answer = run("def main(n): return [n, n + 1]", arguments={"n": 9007199254740993})
        assert answer["result"] == [9007199254740993, 9007199254740994]

    def test_ten_megabytes(self, run):
        text = "z" * (10 << 20)
        answer = run("def main(s): return len(s)", arguments={"s": text}, memory_mb=512)
        assert answer["result"] == 10 << 20

    def test_bash_gets_them_as_said(self, daemon):
        answer = daemon.post({"language": "bash", "code": "main() { echo called; }", "arguments": {}})
        if answer.status != 200:
            assert answer.status in (400, 501) and "bash" in answer.error()[1]
        else:
            assert "called" in answer.json()["stdout"] or "bash" in answer.json()["outcome"]["message"]


def test_code_that_is_not_utf8_is_refused(daemon):
    body = b'{"language":"python","code":"print(\'\xff\xfe\')"}'
    answer = daemon.post(body)
    assert answer.status == 400 and answer.error()[0] == "invalid_request"


def test_lone_surrogates_are_refused_or_harmless(daemon):
    answer = daemon.post(b'{"language":"python","code":"print(ascii(\'\\ud800\'))"}')
    assert answer.status in (200, 400)


def test_code_with_a_nul(daemon):
    answer = daemon.post({"language": "python", "code": "print(1)\0print(2)"})
    if answer.status == 200:
        assert answer.json()["exit_code"] == 1 and "null byte" in answer.json()["stderr"]
    else:
        assert answer.status == 400 and "code" in answer.error()[1]


def test_one_megabyte_of_code(daemon):
    line = "x = 1  # " + "p" * 90 + "\n"
    code = line * ((1 << 20) // len(line) - 1) + "print('end')\n"
    assert daemon.run(code, memory_mb=512)["stdout"] == "end\n"


def test_more_code_than_allowed(daemon):
    status, kind, message = daemon.refused("#" * ((1 << 20) + 1))
    assert status in (400, 413) and "code" in message and kind in ("too_large", "invalid_request")


def test_a_body_beyond_the_limit(own):
    made = own(body_mb=1)
    answer = made.post({"language": "python", "code": "1", "stdin": "x" * (2 << 20)})
    assert answer.status == 413 and answer.error()[0] == "too_large"
    assert made.run("print(1)")["stdout"] == "1\n"


def test_ten_megabytes_of_code(own):
    made = own(code_kb=16384)
    code = "text = '''" + "x" * (10 << 20) + "'''\nprint(len(text))"
    assert made.run(code, memory_mb=512, timeout_s=60)["stdout"] == f"{10 << 20}\n"


def test_code_in_another_encoding(daemon):
    """As bytes it may be anything that the interpreter takes: the coding line decides, as with a file."""
    import base64

    latin = "# -*- coding: latin-1 -*-\nprint(ascii('\xe9'))\n".encode("latin-1")
    for code, out, error in ((latin, "'\\xe9'\n", ""), (b"print('\xff')", "", "SyntaxError")):
        answer = daemon.post({"language": "python", "code_b64": base64.b64encode(code).decode()}).json()
        assert answer["stdout"] == out and error in answer["stderr"], answer
