# SPDX-License-Identifier: Apache-2.0
"""JavaScript and bash as their users know them."""

import pytest


@pytest.mark.parametrize(
    "name,code,out",
    [
        ("require", "const p = require('path'); console.log(p.join('a', 'b'))", "a/b\n"),
        ("node: names", "console.log(require('node:os').EOL === '\\n')", "true\n"),
        (
            "modules",
            (
                "import fs from 'fs'; import { join } from 'node:path'; "
                "console.log(typeof fs.readFileSync, join('a', 'b'))"
            ),
            "function a/b\n",
        ),
        ("top-level await", "const x = await Promise.resolve(5); console.log(x)", "5\n"),
        ("import()", "import('path').then(p => console.log(p.join('x', 'y')))", "x/y\n"),
        ("timers", "setTimeout(() => console.log('later'), 20); console.log('now')", "now\nlater\n"),
        (
            "worker_threads",
            (
                "const { Worker } = require('worker_threads'); "
                "new Worker(\"require('worker_threads').parentPort.postMessage(6 * 7)\", { eval: true }).on('message', m => console.log(m))"
            ),
            "42\n",
        ),
        ("child_process", "console.log(require('child_process').execSync('echo hi').toString())", "hi\n\n"),
        (
            "child node",
            "console.log(require('child_process').execFileSync(process.execPath, ['-p', '1+1']).toString())",
            "2\n\n",
        ),
        (
            "crypto",
            "console.log(require('crypto').createHash('sha256').update('').digest('hex').slice(0, 8))",
            "e3b0c442\n",
        ),
        (
            "fs",
            "const fs = require('fs'); fs.writeFileSync('/tmp/a', 'x'); console.log(fs.readFileSync('/tmp/a', 'utf8'))",
            "x\n",
        ),
        ("zlib", "const z = require('zlib'); console.log(z.gunzipSync(z.gzipSync('abc')).toString())", "abc\n"),
        (
            "local server",
            (
                "const n = require('net'); "
                "const s = n.createServer(c => c.end('hey')).listen(0, '127.0.0.1', () => n.connect(s.address().port, '127.0.0.1').on('data', d => { console.log('' + d); "
                "s.close() }))"
            ),
            "hey\n",
        ),
        (
            "http on loopback",
            (
                "const h = require('http'); "
                "const s = h.createServer((q, r) => r.end('web')).listen(0, '127.0.0.1', () => h.get({ port: s.address().port, host: '127.0.0.1' }, r => r.on('data', d => { console.log('' + d); "
                "s.close(); s.closeAllConnections() })))"
            ),
            "web\n",
        ),
        ("wasm", "console.log(WebAssembly.validate(new Uint8Array([0, 97, 115, 109, 1, 0, 0, 0])))", "true\n"),
        (
            "event emitter",
            "const E = require('events'); const e = new E(); e.on('x', v => console.log(v)); e.emit('x', 3)",
            "3\n",
        ),
        (
            "globals",
            "console.log(typeof require, typeof module, typeof fetch, typeof structuredClone)",
            "function object function function\n",
        ),
        ("exit handlers", "process.on('exit', c => console.log('bye', c))", "bye 0\n"),
        ("argv", "console.log(process.argv.length >= 1, process.cwd())", "true /home/user\n"),
        ("async iteration", "for await (const x of [1, 2]) console.log(x)", "1\n2\n"),
    ],
)
def test_javascript(run, name, code, out):
    answer = run(code, "javascript", timeout_s=30, memory_mb=512)
    assert answer["stdout"] == out, (name, answer["stderr"], answer["outcome"])
    assert answer["exit_code"] == 0


@pytest.mark.parametrize(
    "code,words",
    [
        ("throw new Error('boom')", ["Error: boom"]),
        ("nope()", ["ReferenceError", "nope"]),
        ("let x = ;", ["SyntaxError"]),
        ("Promise.reject(new Error('unseen'))", ["unseen"]),
        ("await Promise.reject(new TypeError('t'))", ["TypeError: t"]),
        ("null.x", ["TypeError"]),
        ("require('not-there')", ["Cannot find module", "not-there"]),
    ],
)
def test_javascript_errors(run, code, words):
    answer = run(code, "javascript")
    assert answer["exit_code"] == 1 and all(word in answer["stderr"] for word in words), answer


def test_javascript_stack_lines(run):
    answer = run("\n\nfunction f() {\n  throw new Error('here')\n}\nf()", "javascript")
    assert ":4:" in answer["stderr"]


def test_javascript_heap_is_within_the_limit(run):
    answer = run(
        "const x = []; for (;;) x.push({ a: new Array(1000).fill(1) })", "javascript", memory_mb=128, timeout_s=60
    )
    assert answer["exit_code"] != 0 and answer["outcome"]["cause"] in ("memory", "signalled", "exited")


def test_javascript_guests_share_nothing(run):
    for _ in range(4):
        assert (
            run(
                (
                    "console.log(globalThis.mark, require('fs').existsSync('/tmp/mark')); globalThis.mark = 1; "
                    "require('fs').writeFileSync('/tmp/mark', '')"
                ),
                "javascript",
            )["stdout"]
            == "undefined false\n"
        )


def test_javascript_main_forms(run):
    for code in (
        "function main({n}) { return n + 1 }",
        "const main = ({n}) => n + 1",
        "async function main({n}) { return n + 1 }",
        "module.exports = { main: ({n}) => n + 1 }",
        "exports.main = ({n}) => n + 1",
        "export function main({n}) { return n + 1 }",
    ):
        assert run(code, "javascript", arguments={"n": 1})["result"] == 2, code


@pytest.mark.parametrize(
    "code,out,status",
    [
        ("echo a | tr a b", "b\n", 0),
        ("false", "", 1),
        ("set -e; false; echo no", "", 1),
        ("exit 9", "", 9),
        ("echo $((6*7))", "42\n", 0),
        ("x=(1 2 3); echo ${#x[@]}", "3\n", 0),
        ("cat <<E\nhere\nE", "here\n", 0),
        ("diff <(echo a) <(echo a) && echo same", "same\n", 0),
        ("false | true; echo ${PIPESTATUS[0]}", "1\n", 0),
        ("echo $HOME; pwd", "/home/user\n/home/user\n", 0),
        ("nosuchcommand", "", 127),
        ("sleep 0.05 & wait; echo waited", "waited\n", 0),
        ("python3 -c 'print(1)'", "1\n", 0),
        ("printf '\\0' | od -c | head -1 | tr -s ' '", "0000000 \\0\n", 0),
        ("trap 'echo bye' EXIT; exit 3", "bye\n", 3),
        ("echo $BASH_VERSION | grep -c ^5", "1\n", 0),
        ("seq 100000 | tail -1", "100000\n", 0),
        ("mktemp -d | grep -c ^/tmp", "1\n", 0),
        ("f() { return 4; }; f; echo $?", "4\n", 0),
        ("awk 'BEGIN{print 1/4}'", "0.25\n", 0),
        ("echo x > a; ls", "a\n", 0),
    ],
)
def test_bash(run, code, out, status):
    answer = run(code, "bash")
    assert answer["exit_code"] == status, answer
    assert answer["stdout"].replace("artifacts\n", "") == out


def test_bash_errors_name_the_line(run):
    answer = run("echo a\nnosuchcommand\n", "bash")
    assert "line 2" in answer["stderr"] and "nosuchcommand" in answer["stderr"]


def test_bash_syntax_error(run):
    answer = run("if true; then", "bash")
    assert answer["exit_code"] == 2 and "syntax error" in answer["stderr"]


@pytest.mark.parametrize("spelling", ["python3", "py", "js", "node", "sh", "ruby", "", "PYTHON", None, 5])
def test_other_languages_are_refused_with_the_list(daemon, spelling):
    answer = daemon.post({"language": spelling, "code": "1"})
    if answer.status == 200:
        assert spelling in ("PYTHON", "python3", "py", "js", "node", "sh")  # other spellings of the three
    else:
        assert answer.status in (400, 403) and "language" in answer.error()[1]


@pytest.mark.parametrize("language", ["python", "javascript", "bash"])
def test_time_and_dates_are_now(run, language):
    import time

    code = {
        "python": "import time; print(int(time.time()))",
        "javascript": "console.log(Math.floor(Date.now() / 1000))",
        "bash": "date +%s",
    }
    assert abs(int(run(code[language], language)["stdout"]) - time.time()) < 5
