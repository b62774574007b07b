// SPDX-License-Identifier: Apache-2.0
/* Try it: a program, its output as it comes, its files and pictures, and what became of it in plain words. */
import { get, lines, mayChange } from './api.js';
import { banner, button, bytes, h, milliseconds, pairs } from './dom.js';

const EXAMPLES = {
  python: "import matplotlib.pyplot as plt\n\nprint('hello from Python')\nplt.plot([1, 4, 9, 16])\nplt.savefig('artifacts/chart.png')\n",
  javascript: "console.log('hello from Node', process.version);\n",
  bash: 'echo hello from bash\nuname -s\n',
};
const PICTURES = { png: 'image/png', jpg: 'image/jpeg', jpeg: 'image/jpeg', gif: 'image/gif', webp: 'image/webp' };
const CAUSES = {
  exited: 'The program ended by itself', signalled: 'A signal ended the program', timeout: 'Its time was up',
  memory: 'It needed more memory than it may have', output_limit: 'It wrote more than it may', cancelled: 'It was cancelled',
  refused: 'Policy refused to run it', unavailable: 'The backend could not run it', infrastructure: 'The sandbox itself failed',
};

function decode(base64) {
  return Uint8Array.from(atob(base64), (c) => c.charCodeAt(0));
}

/* A picture is shown, anything else only offered: a file of a program must never become a page of ours. */
function fileOf(event) {
  const ending = event.name.split('.').pop().toLowerCase(), content = decode(event.content_b64 ?? '');
  const url = URL.createObjectURL(new Blob([content], { type: PICTURES[ending] ?? 'application/octet-stream' }));
  const link = h('a', { href: url, download: event.name.split('/').pop() }, `${event.name} (${bytes(content.length)})`);
  return h('figure', {}, PICTURES[ending] ? h('img', { src: url, alt: event.name }) : null, h('figcaption', {}, link));
}

function outcomeOf(event) {
  const outcome = event.outcome, good = outcome.cause === 'exited' && event.exit_code === 0;
  return h('div', {}, banner(good ? 'good' : 'bad', outcome.message || `${CAUSES[outcome.cause] ?? outcome.cause}, exit code ${event.exit_code}.`),
    pairs([['Cause', outcome.cause], ['Exit code', event.exit_code], ['Backend', `${event.backend} (${outcome.isolation})`],
      ['Queue', milliseconds(event.timing.queue_ms)], ['Start', milliseconds(event.timing.start_ms)], ['Run', milliseconds(event.timing.run_ms)],
      ['Memory peak', outcome.memory_peak_bytes ? bytes(outcome.memory_peak_bytes) : ''], ['System call refused', outcome.blocked_syscall]]));
}

export async function console_(main) {
  if (!mayChange()) {
    main.append(banner('warn', 'A key of scope view may not run code.'));
    return undefined;
  }
  const { backends } = await get('/v1/backends');
  const language = h('select', { id: 'language' }, Object.keys(EXAMPLES).map((name) => h('option', { value: name }, name)));
  const backend = h('select', { id: 'backend' }, h('option', { value: '' }, 'the one in use'),
    backends.map((row) => h('option', { value: row.name }, row.name)));
  const seconds = h('input', { id: 'seconds', type: 'number', min: 1, max: 300, value: 30 });
  const code = h('textarea', { id: 'code', rows: 12, spellcheck: 'false', value: EXAMPLES.python });
  const output = h('pre', { role: 'log', 'aria-label': 'Output', tabindex: 0 }), shown = h('div', { class: 'shown' });
  const result = h('div', { 'aria-live': 'polite' });
  let abort = null;

  language.addEventListener('change', () => {
    if (Object.values(EXAMPLES).includes(code.value)) code.value = EXAMPLES[language.value];
  });
  const take = (event) => {
    const text = event.data ?? (event.data_b64 ? '[bytes that are no text]' : '');
    if (event.type === 'queued') output.append('waiting for a place...\n');
    else if (event.type === 'stdout') output.append(text);
    else if (event.type === 'stderr') output.append(h('span', { class: 'error' }, text));
    else if (event.type === 'result') result.append(banner('', `Result: ${JSON.stringify(event.result)}`));
    else if (event.type === 'artifact') shown.append(fileOf(event));
    else if (event.type === 'dropped') shown.append(banner('warn', `${event.name} is not returned: ${event.reason}`));
    else if (event.type === 'outcome') result.append(outcomeOf(event));
    else if (event.type === 'error') result.append(banner('bad', event.error.message));
  };
  const run = async () => {
    abort = new AbortController();
    cancel.disabled = false;
    for (const place of [output, shown, result]) place.replaceChildren();
    const body = { language: language.value, code: code.value, timeout_s: Number(seconds.value) || 30, artifacts: true };
    if (backend.value) body.backend = backend.value;
    try {
      await lines('/v1/runs', body, abort.signal, take);
    } catch (error) {
      result.append(error.name === 'AbortError' ? banner('warn', 'Cancelled: the program was ended.') : banner('bad', error.message));
    } finally {
      abort = null;
      cancel.disabled = true;
    }
  };
  const go = button('Run', run), cancel = h('button', { type: 'button', class: 'second', disabled: true, onclick: () => abort?.abort() }, 'Cancel');
  code.addEventListener('keydown', (event) => {
    if (event.key === 'Enter' && (event.ctrlKey || event.metaKey)) go.click();
  });
  main.append(h('div', { class: 'card' },
    h('div', { class: 'row' }, h('label', {}, 'Language', language), h('label', {}, 'Backend', backend), h('label', {}, 'Seconds', seconds)),
    h('label', { class: 'field', for: 'code' }, 'Program'), code,
    h('div', { class: 'row' }, go, cancel, h('span', { class: 'soft' }, 'Ctrl+Enter runs it'))), output, shown, result);
  return () => abort?.abort();
}
