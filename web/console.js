// SPDX-License-Identifier: Apache-2.0
/* Try it: a program, its output as it comes, its files and pictures, and what became of it in plain words. */
import { get, lines, mayChange } from './api.js';
import { banner, button, bytes, fill, h, intro, milliseconds, pairs } from './dom.js';

const EXAMPLES = {
  python: "import matplotlib.pyplot as plt\n\nprint('hello from Python')\nplt.plot([1, 4, 9, 16])\nplt.savefig('artifacts/chart.png')\n",
  javascript: "console.log('hello from Node', process.version);\n",
  bash: 'echo hello from bash\nuname -s\n',
};
const NAMES = { python: 'Python', javascript: 'JavaScript', bash: 'Bash' };
const PICTURES = { png: 'image/png', jpg: 'image/jpeg', jpeg: 'image/jpeg', gif: 'image/gif', webp: 'image/webp' };
const CAUSES = {
  exited: 'The program ended by itself', signalled: 'A signal ended the program', timeout: 'Its time was up',
  memory: 'It needed more memory than it may have', output_limit: 'It wrote more than it may', cancelled: 'It was cancelled',
  refused: 'Policy refused to run it', unavailable: 'The backend could not run it', infrastructure: 'The sandbox itself failed',
};
const SHOWN = 200000, FRAME = 100000; // characters: of the output that are shown at most, and that may wait to be

let kept = { language: 'python', code: EXAMPLES.python }; // while other pages are looked at

function decode(base64) {
  return Uint8Array.from(atob(base64), (c) => c.charCodeAt(0));
}

/* The files of a run, which the browser holds in memory until they are cleared. */
class Files {
  constructor() {
    this.element = h('div', { class: 'shown' });
    this.urls = [];
  }

  clear() {
    for (const url of this.urls.splice(0)) URL.revokeObjectURL(url);
    fill(this.element);
  }

  /* A picture is shown, anything else only offered: a file of a program must never become a page of ours. */
  add(event) {
    const ending = event.name.split('.').pop().toLowerCase(), content = decode(event.content_b64 ?? '');
    const url = URL.createObjectURL(new Blob([content], { type: PICTURES[ending] ?? 'application/octet-stream' }));
    const link = h('a', { href: url, download: event.name.split('/').pop() }, `${event.name} (${bytes(content.length)})`);
    this.urls.push(url);
    this.element.append(h('figure', {}, PICTURES[ending] ? h('img', { src: url, alt: event.name }) : null, h('figcaption', {}, link)));
  }

  addDropped(event) {
    this.element.append(banner('warn', `${event.name} is not returned: ${event.reason}`));
  }
}

function outcomeOf(event) {
  const outcome = event.outcome, good = outcome.cause === 'exited' && event.exit_code === 0;
  return h('div', {}, banner(good ? 'good' : 'bad', outcome.message || `${CAUSES[outcome.cause] ?? outcome.cause}, exit code ${event.exit_code}.`),
    pairs([['Cause', outcome.cause], ['Exit code', event.exit_code], ['Backend', `${event.backend} (${outcome.isolation})`],
      ['Queue', milliseconds(event.timing.queue_ms)], ['Start', milliseconds(event.timing.start_ms)], ['Run', milliseconds(event.timing.run_ms)],
      ['Memory peak', outcome.memory_peak_bytes ? bytes(outcome.memory_peak_bytes) : ''], ['System call refused', outcome.blocked_syscall]]));
}

/* The newest SHOWN characters of what a program writes. They are put on the page a few times a second and not with each
 * piece: laying out that much text takes long. */
class Output {
  constructor() {
    this.element = h('pre', { role: 'log', 'aria-label': 'Output', tabindex: 0 });
    this.cut = h('p', { class: 'help', hidden: true });
    this.clear();
  }

  clear() {
    fill(this.element);
    this.cut.hidden = true;
    Object.assign(this, { size: 0, left: 0, pending: [], waiting: 0, planned: null });
  }

  /* A promise where more waits than should: so the browser hears of Cancel, and the daemon that we are slow. */
  add(text, kind) {
    this.pending.push([text, kind]);
    this.waiting += text.length;
    this.planned ??= new Promise((resolve) => { setTimeout(() => { this.flush(); resolve(); }, 50); });
    return this.waiting > FRAME ? this.planned : undefined;
  }

  flush() {
    const { element } = this, atEnd = element.scrollHeight - element.scrollTop - element.clientHeight < 40;
    element.append(...this.pending.map(([text, kind]) => h('span', { class: kind }, text)));
    this.size += this.waiting;
    Object.assign(this, { pending: [], waiting: 0, planned: null });
    if (this.size > SHOWN) this.forget(this.size - SHOWN);
    if (atEnd) element.scrollTop = element.scrollHeight;
  }

  forget(wanted) {
    for (let left = wanted; left > 0;) {
      const first = this.element.firstChild, text = first.textContent;
      if (text.length <= left) first.remove();
      else first.textContent = text.slice(left);
      left -= text.length;
    }
    this.size -= wanted;
    this.left += wanted;
    this.cut.textContent = `${this.left} characters before these are not shown.`;
    this.cut.hidden = false;
  }
}

function take(event, output, files, result) {
  const text = event.data ?? (event.data_b64 ? '[bytes that are no text]' : '');
  if (event.type === 'queued') return output.add('waiting for a place...\n', 'soft');
  if (event.type === 'stdout') return output.add(text);
  if (event.type === 'stderr') return output.add(text, 'error');
  if (event.type === 'result') result.append(banner('', `Result: ${JSON.stringify(event.result)}`));
  else if (event.type === 'artifact') files.add(event);
  else if (event.type === 'dropped') files.addDropped(event);
  else if (event.type === 'outcome') {
    output.flush(); // all that it wrote is there when it is told what came of it
    result.append(outcomeOf(event));
  } else if (event.type === 'error') result.append(banner('bad', event.error.message));
  return undefined;
}

/* What to run, as it is filled in. */
function makeForm(backends) {
  const language = h('select', { id: 'language' }, Object.keys(EXAMPLES).map((name) => h('option', { value: name, selected: name === kept.language }, NAMES[name])));
  const backend = h('select', { id: 'backend' }, h('option', { value: '' }, 'the one in use'),
    backends.map((row) => h('option', { value: row.name, disabled: !row.able }, row.able ? row.name : `${row.name} (not ready)`)));
  const seconds = h('input', { id: 'seconds', type: 'number', min: 1, max: 86400, value: 30 });
  const code = h('textarea', { id: 'code', rows: 14, spellcheck: 'false', autocapitalize: 'off', value: kept.code });
  const keep = () => { kept = { language: language.value, code: code.value }; };
  language.addEventListener('change', () => {
    if (Object.values(EXAMPLES).includes(code.value)) code.value = EXAMPLES[language.value];
    keep();
  });
  code.addEventListener('input', keep);
  const read = () => ({ language: language.value, code: code.value, timeout_s: Number(seconds.value) || 30, artifacts: true, ...backend.value && { backend: backend.value } });
  return { language, backend, seconds, code, read };
}

export async function console_(main) {
  intro(main, 'Run a program as a client would. What it leaves in artifacts/ is shown below its output.');
  if (!mayChange()) {
    main.append(banner('warn', 'A key of scope view may not run code.'));
    return undefined;
  }
  const form = makeForm((await get('/v1/backends')).backends), output = new Output();
  const files = new Files(), result = h('div', { 'aria-live': 'polite' }), none = h('p', { class: 'empty' }, 'Output appears here as the program writes it.');
  let abort = null;
  const run = async () => {
    abort = new AbortController();
    cancel.disabled = false;
    none.hidden = true;
    output.clear();
    files.clear();
    fill(result);
    try {
      await lines('/v1/runs', form.read(), abort.signal, (event) => take(event, output, files, result));
    } catch (error) {
      result.append(error.name === 'AbortError' ? banner('warn', 'Cancelled: the program was ended.') : banner('bad', error.message));
    } finally {
      output.flush();
      abort = null;
      cancel.disabled = true;
    }
  };
  const go = button('Run', run), cancel = h('button', { type: 'button', class: 'second', disabled: true, onclick: () => abort?.abort() }, 'Cancel');
  form.code.addEventListener('keydown', (event) => {
    if (event.key === 'Enter' && (event.ctrlKey || event.metaKey)) go.click();
  });
  main.append(h('div', { class: 'bench' }, h('section', { class: 'card', 'aria-label': 'Program' },
    h('div', { class: 'row' }, h('label', {}, 'Language', form.language), h('label', {}, 'Backend', form.backend), h('label', {}, 'Seconds', form.seconds)),
    h('label', { class: 'field', for: 'code' }, 'Program'), form.code,
    h('div', { class: 'row' }, go, cancel, h('span', { class: 'soft' }, 'Ctrl+Enter runs it'))),
  h('section', { class: 'card', 'aria-label': 'What came of it' }, none, result, output.cut, output.element, files.element)));
  return () => {
    abort?.abort();
    files.clear();
  };
}
