# SPDX-License-Identifier: Apache-2.0
"""JavaScript's driver, with the agent played by interpreter_peers. (Python's: test_interpreter_python.py.)"""
import json
import os
import re
import sys
import time

import pytest

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import interpreter_peers as peers  # noqa: E402
import pytest_tap  # noqa: E402
from interpreter_peers import FreshDriver  # noqa: E402

needs_node = pytest.mark.skipif(not os.path.exists(peers.NODE), reason=f"{peers.NODE} is not installed")


@pytest.fixture
def js():
    if not os.path.exists(peers.NODE):
        pytest.skip(f"{peers.NODE} is not installed")
    return lambda code, **options: FreshDriver("javascript", cwd=options.pop("home", None)).run(code, **options)


def test_js_script(js):
    outcome = js("console.log(1); console.error('two')")
    assert (outcome.out, outcome.err, outcome.exit, outcome.status) == ("1\n", "two\n", 0, 0)


def test_js_is_the_main_module(js):
    outcome = js("""#!/usr/bin/env node
console.log(require.main === module, module.id, __filename === process.argv[1], __dirname === process.cwd(),
  process.argv.length, exports === module.exports, this === module.exports, Object.keys(require.cache).length);
""")
    assert outcome.out == "true . true true 2 true true 1\n", outcome.err


def test_js_environment(js):
    outcome = js("console.log(JSON.stringify(process.env))", env=["A=b=c", "TZ=XYZ-5"], cpu_percent=250)
    seen = json.loads(outcome.out)
    assert seen["A"] == "b=c" and seen["OMP_NUM_THREADS"] == "3" and "REHEARSED" not in seen
    assert set(seen) <= {"A", "TZ", "HOME", "PATH", "LANG", "TMPDIR", "OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS",
                         "MKL_NUM_THREADS", "GOMAXPROCS", "RAYON_NUM_THREADS"}
    assert js("console.log(new Date(0).getHours())", env=["TZ=XYZ-5"]).out == "5\n"


def test_js_uncaught_error_is_nodes_own(js):
    outcome = js("const a = 1;\nfunction f() { null.x; }\nf();")
    assert re.match(r".*/main.js:2\nfunction f\(\) \{ null.x; \}\n +\^\n\nTypeError: ", outcome.err)
    assert "main.js:3:1" in outcome.err and "driver" not in outcome.err
    assert outcome.exit in (None, 1) and outcome.status == 1


def test_js_syntax_error(js):
    outcome = js("let x = ;")
    assert "main.js:1\nlet x = ;" in outcome.err and "SyntaxError" in outcome.err and outcome.status == 1


def test_js_rejection(js):
    outcome = js("Promise.reject(new Error('no'))")
    assert "Error: no" in outcome.err and outcome.status == 1
    assert js("process.on('unhandledRejection', (e) => console.log('seen', e.message)); Promise.reject(new Error('no'))").out == "seen no\n"


def test_js_caught_by_handler(js):
    outcome = js("process.on('uncaughtException', (e) => console.log('caught', e.message)); setTimeout(() => console.log('on'), 5); throw new Error('x')")
    assert (outcome.out, outcome.exit) == ("caught x\non\n", 0)


def test_js_exit_codes_and_handlers(js):
    assert js("process.exit(3)").exit == 3
    assert js("process.exitCode = 4").exit == 4
    assert js("process.exit(-1)").exit == 255
    outcome = js("process.on('exit', (c) => { console.log('bye', c); process.exitCode = 9 })\nprocess.on('beforeExit', () => console.log('before'))")
    assert (outcome.out, outcome.exit) == ("before\nbye 0\n", 9)
    outcome = js("process.on('exit', (c) => console.log('bye', c)); throw new Error('x')")
    assert outcome.out == "bye 1\n" and outcome.status == 1 and "Error: x" in outcome.err
    outcome = js("process.kill(process.pid, 'SIGKILL')")
    assert outcome.exit is None and outcome.status == -9


def test_js_large_output_is_complete(js):
    outcome = js("for (let i = 0; i < 160; i++) process.stdout.write(String.fromCharCode(97 + i % 26).repeat(65536)); process.exit(0)")
    assert outcome.stdout == b"".join(bytes([97 + i % 26]) * 65536 for i in range(160)) and outcome.exit == 0


def test_js_stdin(js):
    outcome = js("process.stdin.on('data', (d) => process.stdout.write(d)).on('end', () => console.log('end'))", stdin=b"a\xff\0b")
    assert outcome.stdout == b"a\xff\0bend\n"
    assert js("console.log(require('fs').readFileSync(0, 'utf8'))", stdin=b"whole").out == "whole\n"


def test_js_event_loop_runs_dry(js):
    outcome = js("setImmediate(() => { console.log('immediate'); setTimeout(() => console.log('timer'), 20) }); process.nextTick(() => console.log('tick')); Promise.resolve().then(() => console.log('micro')); console.log('main')")
    assert outcome.out.split() == ["main", "tick", "micro", "immediate", "timer"] and outcome.exit == 0


def test_js_module_syntax(js, tmp_path):
    (tmp_path / "helper.mjs").write_text("export let count = 0; export const add = () => { count += 1; };")
    (tmp_path / "data.json").write_text('{"a": 1}')
    outcome = js("import fs from 'node:fs';\nimport { count, add } from './helper.mjs';\nadd();\n"
                 "console.log(count, await Promise.resolve(5), import.meta.url.endsWith('/main.mjs'), fs.readdirSync('.').sort().join());",
                 home=str(tmp_path))
    assert outcome.out == "1 5 true data.json,helper.mjs,main.mjs\n" and outcome.exit == 0, outcome.err
    assert (tmp_path / "main.mjs").read_text().startswith("import fs") and (tmp_path / "main.mjs").read_text().endswith(");")


@pytest.mark.parametrize("code, out", [
    ("for await (const x of [1, 2]) console.log(x)", "1\n2\n"),
    ("#!/usr/bin/env node\nconsole.log(await 3)", "3\n"),
    ("for (const x of [1]) console.log(`${await x}`)", "1\n"),
    ("import { fileURLToPath } from 'url';\nconst __filename = fileURLToPath(import.meta.url);\nconsole.log(__filename.slice(-9))", "/main.mjs\n"[1:] ),
    ("async function f() { return await 1 }\nf().then(console.log)", "1\n"),
    ("// import export await\nconsole.log(typeof require)", "function\n"),
    ("export const a = 1;\nconsole.log(typeof require)", "undefined\n")])
def test_js_kinds_of_modules(js, code, out):
    outcome = js(code)
    assert outcome.out.lstrip("/") == out and outcome.exit == 0, outcome.err


def test_js_module_errors(js, tmp_path):
    outcome = js("import fs from 'fs';\n\nthrow new Error('m');", home=str(tmp_path))
    assert "main.mjs:3" in outcome.err and "Error: m" in outcome.err and outcome.status == 1
    outcome = js("import x from './missing.mjs';", home=str(tmp_path))
    assert "ERR_MODULE_NOT_FOUND" in outcome.err and outcome.status == 1
    outcome = js("import x from 'fs'; let y = ;", home=str(tmp_path))
    assert "SyntaxError" in outcome.err and outcome.status == 1
    assert (tmp_path / "main.mjs").read_text() == "import fs from 'fs';\n\nthrow new Error('m');"
    assert [name for name in os.listdir(tmp_path) if name != "main.js"] == ["main.mjs"]  # the later ones left nothing
    outcome = js("await 1; await new Promise(() => {});", home=str(tmp_path))
    assert outcome.exit == 13


def test_js_require_from_the_working_directory(js, tmp_path):
    (tmp_path / "lib.js").write_text("module.exports = 7")
    (tmp_path / "node_modules" / "pkg").mkdir(parents=True)
    (tmp_path / "node_modules" / "pkg" / "index.js").write_text("module.exports = 8")
    assert js("console.log(require('./lib'), require('pkg'))", home=str(tmp_path)).out == "7 8\n"
    assert js("import('./lib.js').then((m) => console.log(m.default))", home=str(tmp_path)).out == "7\n"


@pytest.mark.parametrize("code", [
    "function main(a) { return a; }", "const main = async (a) => a;", "module.exports = (a) => a;",
    "module.exports = { main: (a) => Promise.resolve(a) };", "exports.main = async function (a) { return a; };",
    "export default function (a) { return a; }", "export async function main(a) { return a; }",
    "globalThis.x = 1; class A { static go(a) { return a; } } function main(a) { return A.go(a); } // comment"])
def test_js_main(js, code):
    outcome = js(code, arguments={"n": [1, None, "é"]})
    assert outcome.result_text == '{"n":[1,null,"é"]}' and outcome.exit == 0, outcome.err


def test_js_main_values(js):
    assert js("function main() { return { a: NaN, b: Infinity, c: undefined } }", arguments={}).result == {"a": None, "b": None}
    assert js("function main() { return null }", arguments={}).result_text == "null"
    outcome = js("function main() {}", arguments={})
    assert outcome.result_error == "main() must return a value. Use null for an empty result." and outcome.exit == 1
    for value, error in (("10n", "BigInt"), ("(() => { const a = {}; a.a = a; return a; })()", "circular"), ("() => 1", "function")):
        outcome = js(f"function main() {{ return {value} }}", arguments={})
        assert outcome.result_error.startswith("main() returned a value that is not JSON: ") and error in outcome.result_error
        assert outcome.exit == 1 and outcome.result_text is None
    outcome = js("function main() { return 'x'.repeat(17 << 20) }", arguments={})
    assert "more than" in outcome.result_error
    assert len(js("function main() { return 'x'.repeat(10 << 20) }", arguments={}).result) == 10 << 20


def test_js_main_failures(js):
    outcome = js("function main() {\n  throw new Error('m');\n}", arguments={})
    assert "main.js:2" in outcome.err and "driver" not in outcome.err and outcome.status == 1
    assert "no function main()" in js("var x = 1", arguments={}).result_error
    assert "before main() returned" in js("function main() { return new Promise(() => {}) }", arguments={}).result_error
    for arguments in ("[1]", "null", "{", ""):
        assert "arguments" in js("function main() { return 1 }", arguments=arguments).result_error


def test_js_main_ends_when_the_loop_is_dry(js):
    outcome = js("function main() { setTimeout(() => console.log('later'), 20); return 1 }", arguments={})
    assert (outcome.result, outcome.out, outcome.exit) == (1, "later\n", 0)


def test_js_children_and_workers(js):
    outcome = js("""
const { execFileSync } = require('child_process');
const { Worker, isMainThread } = require('worker_threads');
console.log(execFileSync('/bin/ls', ['/proc/self/fd']).toString().trim().split('\\n').join());
console.log(execFileSync(process.execPath, ['-p', '40 + 2']).toString().trim());
new Worker("require('worker_threads').parentPort.postMessage(6); process.exit(5)", { eval: true })
  .on('message', (m) => console.log('worker', m)).on('exit', (c) => { console.log('worker exit', c); });
""")
    assert outcome.out.splitlines()[0] in ("0,1,2,3", "0,1,2")
    assert outcome.out.splitlines()[1:] == ["42", "worker 6", "worker exit 5"] and outcome.exit == 0, outcome.err


@pytest.mark.parametrize("head", [
    "const { Worker, isMainThread, parentPort } = require('worker_threads'), { fork } = require('child_process'), f = __filename;",
    "import { Worker, isMainThread, parentPort } from 'worker_threads'; import { fork } from 'child_process';\n"
    "import { fileURLToPath } from 'url'; const f = fileURLToPath(import.meta.url);"])
def test_js_workers_and_forks_of_the_program(js, head):
    outcome = js(head + """
if (!isMainThread) parentPort.postMessage('worker');
else if (process.send) { process.send('fork'); process.disconnect(); }
else new Worker(f).on('message', console.log).on('exit', () => fork(f).on('message', (m) => console.log(m)));
""")
    assert (outcome.out, outcome.exit) == ("worker\nfork\n", 0), outcome.err


def test_js_driver_is_not_to_be_seen(js):
    outcome = js("console.log(Object.keys(globalThis).join(), Object.keys(process).includes('emit'), module.parent, new Error().stack)")
    assert "driver" not in outcome.out and "cordon" not in outcome.out.replace("cordon-test", "")


def test_js_replaced_builtins(js):
    outcome = js("JSON.stringify = null; require('fs').writeSync = null; Buffer.from = null; function main() { return 1 }", arguments={})
    assert outcome.exit is None or outcome.exit in (0, 1)
    assert js("JSON.stringify = () => 'forged'; require('fs').writeSync = null; function main() { return 1 }", arguments={}).result == 1


@needs_node
def test_js_parked_is_small():
    drivers = [FreshDriver("javascript") for _ in range(3)]
    for driver in drivers:
        driver.pipes.wait_ready()
    private, end = 1 << 30, time.monotonic() + 20
    while private >= 24 << 10 and time.monotonic() < end:  # its threads go to rest a moment after it
        time.sleep(0.1)
        with open(f"/proc/{drivers[0].child.pid}/smaps_rollup") as file:
            private = sum(int(n) for n in re.findall(r"Private_\w+:\s+(\d+)", file.read()))
    for driver in drivers:
        driver.close()
        os.close(driver.pipes.stdin)
    assert private < 24 << 10, private


# --- run by meson: one TAP line a test ---

if __name__ == "__main__":
    sys.exit(pytest_tap.main(__file__))
