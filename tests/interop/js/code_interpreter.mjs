// SPDX-License-Identifier: Apache-2.0
// Cases for the public `@e2b/code-interpreter` package, unmodified, against a daemon. argv: the package's name.
import assert from 'node:assert/strict'
import { runCases, until } from './lib.mjs'

const { Sandbox } = await import(process.argv[2])

const withSandbox = (body, options) => async () => {
  const sandbox = await Sandbox.create({ timeoutMs: 300_000, ...options })
  try {
    await body(sandbox)
  } finally {
    await sandbox.kill().catch(() => {})
  }
}

export const cases = {
  value_and_state: withSandbox(async sandbox => {
    const first = await sandbox.runCode('x = 41\nx + 1')
    assert.equal(first.text, '42')
    assert.equal(first.error, undefined)
    assert.equal(first.executionCount, 1)
    const second = await sandbox.runCode('x')
    assert.equal(second.text, '41')
    assert.equal(second.executionCount, 2)
    assert.equal((await sandbox.runCode('"text"')).text, 'text')
    assert.equal((await sandbox.runCode('None')).text, undefined)
  }),

  logs_and_callbacks: withSandbox(async sandbox => {
    const out = [], err = [], results = []
    const execution = await sandbox.runCode('import sys\nprint("o")\nprint("e", file=sys.stderr)\ndisplay(1)\n2', {
      onStdout: message => out.push(message.line), onStderr: message => err.push(message.line),
      onResult: result => results.push(result.text),
    })
    assert.deepEqual([out.join(''), err.join('')], ['o\n', 'e\n'])
    assert.deepEqual(execution.logs, { stdout: ['o\n'], stderr: ['e\n'] })
    assert.deepEqual(results, ['1', '2'])
    assert.equal(execution.text, '2')
  }),

  streams_as_it_comes: withSandbox(async sandbox => {
    let seen = ''
    const say = 'import os, time\nfor i in range(3):\n    print(i)\n    while not os.path.exists(f"seen{i}"): time.sleep(0.05)' // goes on when it was seen
    const running = sandbox.runCode(say, { onStdout: message => (seen += message.line) })
    for (const text of ['0\n', '0\n1\n', '0\n1\n2\n']) {
      await until(() => seen === text)
      await sandbox.files.write(`seen${text.length / 2 - 1}`, '')
    }
    assert.equal((await running).error, undefined)
  }),

  errors: withSandbox(async sandbox => {
    const seen = []
    const execution = await sandbox.runCode('def f():\n    return 1 / 0\nf()', { onError: error => seen.push(error) })
    assert.equal(execution.error.name, 'ZeroDivisionError')
    assert.equal(execution.error.value, 'division by zero')
    assert.match(execution.error.traceback, /line 2, in f/)
    assert.equal(seen.length, 1)
    assert.equal((await sandbox.runCode('a = = 1')).error.name, 'SyntaxError')
    assert.equal((await sandbox.runCode('import sys; sys.exit(3)')).error.name, 'SystemExit')
    assert.equal((await sandbox.runCode('1')).text, '1')
  }),

  a_dead_interpreter: withSandbox(async sandbox => {
    await sandbox.runCode('x = 1')
    const execution = await sandbox.runCode('import os; os._exit(1)')
    assert.equal(execution.error.name, 'UnexpectedEndOfExecution')
    assert.equal((await sandbox.runCode('x')).error.name, 'NameError')
  }),

  charts: withSandbox(async sandbox => {
    const { results, error } = await sandbox.runCode(`
import matplotlib.pyplot as plt
plt.plot([1, 2, 3], [4, 5, 6], label='l')
plt.title('T'); plt.xlabel('x'); plt.ylabel('y (m)')
plt.show()
plt.bar(['a', 'b'], [1, 2])
plt.show()
plt.pie([1, 3], labels=['p', 'q'])
plt.show()
plt.boxplot([[1, 2, 3, 10]])
plt.show()
plt.scatter([1, 2], [3, 4])
plt.show()
fig, axes = plt.subplots(1, 2)
axes[0].plot([1]); axes[1].bar(['a'], [1])
plt.show()`, { timeoutMs: 120_000 })
    assert.equal(error, undefined)
    assert.deepEqual(results.map(result => result.chart.type), ['line', 'bar', 'pie', 'box_and_whisker', 'scatter', 'superchart'])
    assert.ok(results.every(result => result.png && Buffer.from(result.png, 'base64').subarray(1, 4).toString() === 'PNG'))
    const [line, bar, pie, box] = results.map(result => result.chart)
    assert.deepEqual([line.title, line.x_label, line.y_unit], ['T', 'x', 'm'])
    assert.deepEqual(line.elements[0].points, [[1, 4], [2, 5], [3, 6]])
    assert.deepEqual(bar.elements.map(element => [element.label, element.value]), [['a', 1], ['b', 2]])
    assert.deepEqual(pie.elements.map(element => [element.label, element.angle]), [['p', 90], ['q', 270]])
    assert.equal(box.elements[0].median, 2.5)
    assert.equal(results[5].chart.elements.length, 2)
  }),

  a_figure_left_open: withSandbox(async sandbox => {
    const { results } = await sandbox.runCode('import matplotlib.pyplot as plt\nplt.plot([1, 2]);', { timeoutMs: 120_000 })
    assert.equal(results.length, 1)
    assert.ok(results[0].png && results[0].svg)
  }),

  tables: withSandbox(async sandbox => {
    const { results } = await sandbox.runCode('import pandas as pd\npd.DataFrame({"a": [1, 2], "b": ["x", None]})', { timeoutMs: 120_000 })
    assert.match(results[0].html, /<table/)
    assert.deepEqual(results[0].data, { a: [1, 2], b: ['x', null] })
    assert.ok(results[0].formats().includes('html'))
  }),

  other_forms: withSandbox(async sandbox => {
    const { results } = await sandbox.runCode(`
from IPython.display import display, HTML, Markdown, Latex, JSON
display(HTML('<b>'), Markdown('# m'), Latex('$x$'), JSON({'a': 1}))
{'k': [1]}`)
    assert.deepEqual([results[0].html, results[1].markdown, results[2].latex, results[3].json], ['<b>', '# m', '$x$', { a: 1 }])
    assert.deepEqual(results[4].json, { k: [1] })
    assert.equal(results[4].isMainResult, true)
  }),

  environment: withSandbox(async sandbox => {
    assert.equal((await sandbox.runCode('import os; os.environ["A"]', { envs: { A: 'cell' } })).text, 'cell')
    assert.equal((await sandbox.runCode('os.environ.get("A")')).text, 'sandbox')
  }, { envs: { A: 'sandbox' } }),

  contexts: withSandbox(async sandbox => {
    const context = await sandbox.createCodeContext({ cwd: '/tmp', language: 'python' })
    assert.deepEqual([context.language, context.cwd], ['python', '/tmp'])
    await sandbox.runCode('x = 1', { context })
    assert.equal((await sandbox.runCode('import os; [x, os.getcwd()]', { context })).text, "[1, '/tmp']")
    assert.equal((await sandbox.runCode('x')).error.name, 'NameError')
    assert.ok((await sandbox.listCodeContexts()).some(found => found.id === context.id))
    await sandbox.restartCodeContext(context)
    assert.equal((await sandbox.runCode('x', { context })).error.name, 'NameError')
    await sandbox.removeCodeContext(context)
    assert.ok(!(await sandbox.listCodeContexts()).some(found => found.id === context.id))
    await assert.rejects(sandbox.runCode('1', { context }), /not found/)
  }),

  javascript: withSandbox(async sandbox => {
    await sandbox.runCode('const x = await Promise.resolve(20)', { language: 'js' })
    assert.equal((await sandbox.runCode('x + 1', { language: 'javascript' })).text, '21')
    const failed = await sandbox.runCode('null.x', { language: 'js' })
    assert.equal(failed.error.name, 'TypeError')
    assert.deepEqual((await sandbox.runCode('console.log("o"); ({ a: 1 })', { language: 'js' })).logs.stdout, ['o\n'])
  }),

  bash: withSandbox(async sandbox => {
    const execution = await sandbox.runCode('echo hi; exit 3', { language: 'bash' })
    assert.deepEqual(execution.logs.stdout, ['hi\n'])
    assert.equal(execution.error.value, '3')
  }),

  unknown_language: withSandbox(async sandbox => {
    await assert.rejects(sandbox.runCode('1', { language: 'r' }), /r|not/)
  }),

  a_client_timeout_interrupts: withSandbox(async sandbox => {
    await sandbox.runCode('x = 5')
    await assert.rejects(sandbox.runCode('import time; time.sleep(60)', { timeoutMs: 1500 }))
    assert.equal((await sandbox.runCode('x', { timeoutMs: 60_000 })).text, '5')
  }),

  files_and_commands_beside: withSandbox(async sandbox => {
    await sandbox.files.write('data.csv', 'a,b\n1,2\n')
    assert.equal((await sandbox.runCode('open("data.csv").read()')).text, 'a,b\\n1,2\\n')
    await sandbox.runCode('open("out", "w").write("o")')
    assert.equal((await sandbox.commands.run('cat out')).stdout, 'o')
  }),

  pause_and_resume: withSandbox(async sandbox => {
    await sandbox.runCode('x = 6')
    await sandbox.pause()
    const again = await Sandbox.connect(sandbox.sandboxId, { timeoutMs: 60_000 })
    assert.equal((await again.runCode('x')).text, '6')
  }),
}

await runCases(cases)
