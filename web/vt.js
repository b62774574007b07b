// SPDX-License-Identifier: Apache-2.0
/* A terminal's screen: what a program writes goes in, rows of cells come out. No DOM, so that it is tested by itself.
 *
 * It understands what programs use that take it for xterm-256color: cursor, erasing, scrolling regions, the second
 * screen, colours, wide and combining characters. What it does not know it leaves out. Nothing that comes in is ever
 * more than a cell's text: titles, links, clipboard and device strings are skipped. All is bounded: rows that scrolled
 * away, parameters, repeats, marks on one character. */

const HISTORY = 2000, PARAMETERS = 16, NUMBER = 9999, MARKS = 8;
const PLAIN = Object.freeze({ fg: null, bg: null, bold: false, dim: false, italic: false, underline: false, inverse: false, strike: false });
const LINES = '\u2666\u2592\u2409\u240c\u240d\u240a\u00b0\u00b1\u2424\u240b\u2518\u2510\u250c\u2514\u253c\u23ba\u23bb\u2500\u23bc\u23bd\u251c\u2524\u2534\u252c\u2502\u2264\u2265\u03c0\u2260\u00a3\u00b7';
const WIDE = /^[\u1100-\u115f\u2e80-\ua4cf\uac00-\ud7a3\uf900-\ufaff\ufe30-\ufe6f\uff01-\uff60\uffe0-\uffe6\u{1f300}-\u{1f64f}\u{1f680}-\u{1f6ff}\u{1f900}-\u{1f9ff}\u{20000}-\u{3fffd}]/u;
const MARK = /^[\p{M}\u200d\ufe0f]/u;

/* After ESC: what the next characters are. */
const STATES = { '[': 'csi', ']': 'string', P: 'string', X: 'string', '^': 'string', _: 'string', '(': 'charset', ')': 'skip', '*': 'skip',
  '+': 'skip', '#': 'skip', ' ': 'skip', '%': 'skip' };

const second = (given, otherwise) => given[1] > 0 ? given[1] : otherwise;
const inRegion = (s) => s.y >= s.top && s.y <= s.bottom;

/* After CSI: the screen, the first number (1 where it is 0 or not given), all numbers (-1: not given). */
const COMMANDS = {
  A: (s, n) => s.moveTo(s.x, Math.max(s.y - n, s.y >= s.top ? s.top : 0)),
  B: (s, n) => s.moveTo(s.x, Math.min(s.y + n, s.y <= s.bottom ? s.bottom : s.rows - 1)),
  C: (s, n) => s.moveTo(s.x + n, s.y),
  D: (s, n) => s.moveTo(s.x - n, s.y),
  E: (s, n) => s.moveTo(0, s.y + n),
  F: (s, n) => s.moveTo(0, s.y - n),
  G: (s, n) => s.moveTo(n - 1, s.y),
  '`': (s, n) => s.moveTo(n - 1, s.y),
  d: (s, n) => s.moveTo(s.x, n - 1),
  H: (s, n, given) => s.moveTo(second(given, 1) - 1, n - 1),
  f: (s, n, given) => s.moveTo(second(given, 1) - 1, n - 1),
  J: (s, n, given) => s.eraseDisplay(Math.max(given[0], 0)),
  K: (s, n, given) => s.erase(s.y, given[0] > 0 ? 0 : s.x, given[0] === 1 ? s.x + 1 : s.cols),
  X: (s, n) => s.erase(s.y, s.x, s.x + n),
  L: (s, n) => inRegion(s) && s.scroll(-n, s.y),
  M: (s, n) => inRegion(s) && s.scroll(n, s.y),
  '@': (s, n) => s.shift(n),
  P: (s, n) => s.shift(-n),
  S: (s, n) => s.scroll(n),
  T: (s, n) => s.scroll(-n),
  b: (s, n) => s.repeat(n),
  r: (s, n, given) => s.region(n - 1, second(given, s.rows) - 1),
  m: (s, n, given) => s.colours(given),
  s: (s) => s.save(),
  u: (s) => s.restore(),
  n: (s, n) => n === 6 ? s.answer(`\x1b[${s.y + 1};${s.x + 1}R`) : n === 5 && s.answer('\x1b[0n'),
  c: (s, n, given) => given[0] <= 0 && s.answer('\x1b[?6c'),
};

/* After SGR, besides colours. */
const FLAGS = { 1: ['bold', true], 2: ['dim', true], 3: ['italic', true], 4: ['underline', true], 7: ['inverse', true], 9: ['strike', true],
  23: ['italic', false], 24: ['underline', false], 27: ['inverse', false], 29: ['strike', false] };

const blank = (style) => ({ text: ' ', style });
const clamp = (n, low, high) => Math.max(low, Math.min(high, n));

export class Screen {
  /* answer(text): what the terminal says by itself when a program asks where the cursor is. */
  constructor(cols, rows, answer = () => {}) {
    this.cols = cols;
    this.rows = rows;
    this.answer = answer;
    this.history = []; // rows that scrolled away and are not taken yet
    this.reset();
  }

  reset() {
    Object.assign(this, { x: 0, y: 0, style: PLAIN, top: 0, bottom: this.rows - 1, wrapNext: false, other: null, state: 'ground',
      saved: { x: 0, y: 0, style: PLAIN, drawing: false }, drawing: false, last: '', autowrap: true, insert: false,
      cursorShown: true, cursorKeys: false, bracketed: false });
    this.cells = Array.from({ length: this.rows }, () => this.row());
    this.dirty = new Set(this.cells.keys());
  }

  row(style = PLAIN) {
    return Array.from({ length: this.cols }, () => blank(style));
  }

  /* The rows as text, for tests and for who reads with a screen reader. */
  text() {
    return this.cells.map((row) => row.map((cell) => cell.text).join('').trimEnd()).join('\n').trimEnd();
  }

  resize(cols, rows) {
    const fit = (cells) => {
      for (const row of cells) {
        while (row.length < cols) row.push(blank(PLAIN));
        row.length = cols;
      }
      while (cells.length < rows) cells.push(Array.from({ length: cols }, () => blank(PLAIN)));
    };
    while (this.cells.length > rows && this.y >= rows) { // what is above goes, not what is typed
      this.keep(this.cells.shift());
      this.y--;
    }
    Object.assign(this, { cols, rows, top: 0, bottom: rows - 1, wrapNext: false });
    for (const cells of [this.cells, this.other?.cells].filter(Boolean)) {
      fit(cells);
      cells.length = rows;
    }
    this.x = clamp(this.x, 0, cols - 1);
    this.y = clamp(this.y, 0, rows - 1);
    this.touch(0, rows - 1);
  }

  touch(from, to) {
    for (let y = from; y <= to; y++) this.dirty.add(y);
  }

  keep(row) {
    if (this.other) return; // the second screen has no past
    this.history.push(row);
    if (this.history.length > HISTORY) this.history.shift();
  }

  write(text) {
    for (const char of text) this[this.state](char);
  }

  /* --- states: each takes one character --- */

  escape(char) {
    this.state = STATES[char] ?? 'ground';
    if (char === '[') Object.assign(this, { numbers: [''], mark: '' });
    else if (char === '7') this.save();
    else if (char === '8') this.restore();
    else if (char === 'D') this.lineFeed();
    else if (char === 'M') this.reverseFeed();
    else if (char === 'c') this.reset();
    else if (char === 'E') {
      this.x = 0;
      this.lineFeed();
    }
  }

  skip() {
    this.state = 'ground';
  }

  charset(char) {
    this.drawing = char === '0';
    this.state = 'ground';
  }

  /* A title, a link, a clipboard, a picture: skipped to its end. */
  string(char) {
    if (char === '\x07' || char === '\x9c' || char === '\x18' || char === '\x1a') this.state = 'ground';
    else if (char === '\x1b') this.state = 'stringEnd';
  }

  stringEnd(char) {
    this.state = 'ground';
    if (char !== '\\') this.escape(char);
  }

  csi(char) {
    if (char >= '0' && char <= '9') {
      const at = this.numbers.length - 1;
      if (this.numbers[at].length < 4) this.numbers[at] += char;
    } else if (char === ';' || char === ':') {
      if (this.numbers.length < PARAMETERS) this.numbers.push('');
    } else if (char >= '<' && char <= '?') {
      this.mark = char;
    } else if (char >= ' ' && char <= '/') {
      this.mark += char;
    } else if (char >= '@' && char <= '~') {
      this.state = 'ground';
      this.command(char);
    } else if (char === '\x18' || char === '\x1a') {
      this.state = 'ground';
    } else if (char === '\x1b') {
      this.state = 'escape';
    } else if (char < ' ') {
      this.control(char);
    }
  }

  ground(char) {
    if (char < ' ' || char === '\x7f') this.control(char);
    else if (char >= '\x80' && char <= '\x9f') return; // C1 in UTF-8: nobody means it
    else this.put(this.drawing && char >= '`' && char <= '~' ? LINES[char.charCodeAt(0) - 96] : char);
  }

  control(char) {
    if (char === '\x1b') this.state = 'escape';
    else if (char === '\r') this.moveTo(0, this.y);
    else if (char === '\n' || char === '\v' || char === '\f') this.lineFeed();
    else if (char === '\b') this.moveTo(this.x - 1, this.y);
    else if (char === '\t') this.moveTo((Math.floor(this.x / 8) + 1) * 8, this.y);
    else if (char === '\x0e') this.drawing = true;
    else if (char === '\x0f') this.drawing = false;
  }

  /* --- writing --- */

  put(char) {
    if (MARK.test(char)) {
      const before = this.cells[this.y][this.wrapNext ? this.x : Math.max(0, this.x - 1)];
      if (before.text.length < MARKS) before.text += char;
      this.dirty.add(this.y);
      return;
    }
    const width = WIDE.test(char) && this.cols > 1 ? 2 : 1;
    if (this.autowrap && (this.wrapNext || this.x + width > this.cols)) {
      this.x = 0;
      this.lineFeed();
    }
    this.x = Math.min(this.x, this.cols - width);
    const row = this.cells[this.y];
    if (this.insert) row.splice(this.x, 0, ...Array.from({ length: width }, () => blank(this.style)));
    row[this.x] = { text: char, style: this.style };
    if (width === 2) row[this.x + 1] = { text: '', style: this.style }; // the second half of the one before
    row.length = this.cols;
    this.last = char;
    this.dirty.add(this.y);
    this.wrapNext = this.x + width >= this.cols;
    this.x = Math.min(this.x + width, this.cols - 1);
  }

  repeat(n) {
    for (let i = 0; this.last && i < Math.min(n, this.cols * this.rows); i++) this.put(this.last);
  }

  moveTo(x, y) {
    this.dirty.add(this.y);
    this.x = clamp(x, 0, this.cols - 1);
    this.y = clamp(y, 0, this.rows - 1);
    this.wrapNext = false;
    this.dirty.add(this.y);
  }

  lineFeed() {
    if (this.y === this.bottom) this.scroll(1);
    else this.moveTo(this.x, this.y + 1);
    this.wrapNext = false;
  }

  reverseFeed() {
    if (this.y === this.top) this.scroll(-1);
    else this.moveTo(this.x, this.y - 1);
  }

  /* The region moves up by n rows (down: negative). */
  scroll(n, from = this.top) {
    const erased = { ...PLAIN, bg: this.style.bg };
    for (let i = Math.min(Math.abs(n), this.bottom - from + 1); i > 0; i--) {
      const [gone] = this.cells.splice(n > 0 ? from : this.bottom, 1);
      this.cells.splice(n > 0 ? this.bottom : from, 0, this.row(erased));
      if (n > 0 && from === 0 && this.bottom === this.rows - 1) this.keep(gone);
    }
    this.touch(from, this.bottom);
  }

  erase(y, from, to) {
    const erased = { ...PLAIN, bg: this.style.bg };
    for (let x = from; x < Math.min(to, this.cols); x++) this.cells[y][x] = blank(erased);
    this.dirty.add(y);
  }

  eraseDisplay(how) {
    if (how === 0) this.erase(this.y, this.x, this.cols);
    if (how === 1) this.erase(this.y, 0, this.x + 1);
    if (how > 2) return;
    const [from, to] = how === 0 ? [this.y + 1, this.rows] : how === 1 ? [0, this.y] : [0, this.rows];
    for (let y = from; y < to; y++) this.erase(y, 0, this.cols);
  }

  /* Room of n cells at the cursor, or (negative) so many taken away. */
  shift(n) {
    const row = this.cells[this.y], erased = { ...PLAIN, bg: this.style.bg }, count = Math.min(Math.abs(n), this.cols - this.x);
    const blanks = Array.from({ length: count }, () => blank(erased));
    if (n > 0) row.splice(this.x, 0, ...blanks);
    else row.splice(this.x, count), row.push(...blanks);
    row.length = this.cols;
    this.dirty.add(this.y);
  }

  save() {
    this.saved = { x: this.x, y: this.y, style: this.style, drawing: this.drawing };
  }

  restore() {
    const { x, y, style, drawing } = this.saved;
    Object.assign(this, { style, drawing });
    this.moveTo(x, y);
  }

  secondScreen(on) {
    if (on === Boolean(this.other)) return;
    if (on) {
      this.other = { cells: this.cells };
      this.cells = Array.from({ length: this.rows }, () => this.row());
    } else {
      this.cells = this.other.cells;
      this.other = null;
    }
    this.touch(0, this.rows - 1);
  }

  mode(number, on) {
    const plain = { 1: 'cursorKeys', 7: 'autowrap', 25: 'cursorShown', 2004: 'bracketed' };
    if (this.mark === '' && number === 4) this.insert = on;
    if (this.mark !== '?') return;
    if (plain[number]) this[plain[number]] = on;
    if (number === 1049 && on) this.save();
    if (number === 47 || number === 1047 || number === 1049) this.secondScreen(on);
    if (number === 1049 && !on) this.restore();
    this.dirty.add(this.y);
  }

  command(char) {
    const given = this.numbers.map((text) => text === '' ? -1 : Math.min(Number(text), NUMBER));
    if (char === 'h' || char === 'l') given.forEach((one) => this.mode(one, char === 'h'));
    else if (this.mark === '!' && char === 'p') this.reset();
    else if (!this.mark) COMMANDS[char]?.(this, given[0] > 0 ? given[0] : 1, given);
  }

  region(top, bottom) {
    if (bottom >= this.rows || top >= bottom) [top, bottom] = [Math.min(top, this.rows - 2), this.rows - 1];
    if (top < 0 || top >= bottom) [top, bottom] = [0, this.rows - 1];
    Object.assign(this, { top, bottom });
    this.moveTo(0, 0);
  }

  /* --- colours --- */

  colours(given) {
    const style = { ...this.style };
    for (let i = 0; i < given.length; i++) {
      const one = Math.max(given[i], 0);
      if (one === 0) Object.assign(style, PLAIN);
      else if (FLAGS[one]) style[FLAGS[one][0]] = FLAGS[one][1];
      else if (one === 22) style.bold = style.dim = false;
      else if (one >= 30 && one <= 37) style.fg = one - 30;
      else if (one >= 40 && one <= 47) style.bg = one - 40;
      else if (one >= 90 && one <= 97) style.fg = one - 82;
      else if (one >= 100 && one <= 107) style.bg = one - 92;
      else if (one === 39) style.fg = null;
      else if (one === 49) style.bg = null;
      else if (one === 38 || one === 48) {
        const [colour, taken] = colourOf(given.slice(i + 1));
        if (colour !== undefined) style[one === 38 ? 'fg' : 'bg'] = colour;
        i += taken;
      }
    }
    this.style = Object.freeze(style);
  }
}

/* What follows 38 or 48: a number of the palette, or a text of red, green and blue; and how much of it was taken. */
function colourOf(given) {
  const byte = (n) => clamp(n ?? 0, 0, 255);
  if (given[0] === 2) return [`rgb(${byte(given[1])}, ${byte(given[2])}, ${byte(given[3])})`, 4];
  if (given[0] !== 5) return [undefined, 0];
  const n = byte(given[1]);
  if (n < 16) return [n, 2];
  const level = (k) => k ? 55 + 40 * k : 0, cube = n - 16, grey = 8 + 10 * (n - 232);
  if (n >= 232) return [`rgb(${grey}, ${grey}, ${grey})`, 2];
  return [`rgb(${level(Math.floor(cube / 36))}, ${level(Math.floor(cube / 6) % 6)}, ${level(cube % 6)})`, 2];
}
