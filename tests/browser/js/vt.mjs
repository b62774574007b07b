// SPDX-License-Identifier: Apache-2.0
/* The terminal's screen (web/vt.js) without a browser. Argument: the module's path. Each case prints {"case", "error"}. */
import assert from 'node:assert/strict';
import { pathToFileURL } from 'node:url';

const { Screen } = await import(pathToFileURL(process.argv[2]));

function shown(text, cols = 20, rows = 5) {
  const screen = new Screen(cols, rows);
  screen.write(text);
  return screen;
}

const cases = {
  'lines, tabs, backspace and carriage return'() {
    assert.equal(shown('one\r\ntwo\ttab\r\nabc\b\bX\rZ').text(), 'one\ntwo     tab\nZXc');
  },
  'a long line wraps, and what scrolls away is kept'() {
    const screen = shown('abcdefgh', 4, 2);
    assert.equal(screen.text(), 'abcd\nefgh');
    screen.write('\r\nlast');
    assert.equal(screen.text(), 'efgh\nlast');
    assert.equal(screen.history.map((row) => row.map((cell) => cell.text).join('')).join('|'), 'abcd');
    assert.equal(shown('abcd', 4, 2).y, 0); // the cursor waits at the end of a full line
  },
  'the cursor moves and erases'() {
    assert.equal(shown('\x1b[2;3HX\x1b[1;1HY\x1b[BZ').text(), 'Y\n ZX');
    assert.equal(shown('abcdef\x1b[3D\x1b[K').text(), 'abc');
    assert.equal(shown('abcdef\x1b[3D\x1b[1K').text(), '    ef');
    assert.equal(shown('a\r\nb\r\nc\x1b[2;1H\x1b[J').text(), 'a');
    assert.equal(shown('a\r\nb\x1b[2J').text(), '');
    assert.equal(shown('abcdef\x1b[1G\x1b[2P').text(), 'cdef');
    assert.equal(shown('abcdef\x1b[1G\x1b[2@').text(), '  abcdef');
    assert.equal(shown('abcdef\x1b[1G\x1b[2X').text(), '  cdef');
  },
  'a region scrolls by itself'() {
    const screen = shown('1\r\n2\r\n3\r\n4\r\n5\x1b[2;4r\x1b[4;1H\n');
    assert.equal(screen.text(), '1\n3\n4\n\n5');
    assert.equal(screen.history.length, 0);
    assert.equal(shown('1\r\n2\r\n3\x1b[1;1H\x1b[L').text(), '\n1\n2\n3');
    assert.equal(shown('1\r\n2\r\n3\x1b[1;1H\x1b[M').text(), '2\n3');
    assert.equal(shown('1\r\n2\x1b[1;1H\x1bM').text(), '\n1\n2');
  },
  'the second screen leaves the first as it was'() {
    const screen = shown('first\x1b[?1049h\x1b[Hsecond');
    assert.equal(screen.text(), 'second');
    screen.write('\x1b[?1049l!');
    assert.equal(screen.text(), 'first!');
  },
  'colours'() {
    const screen = shown('\x1b[1;31mA\x1b[0;38;5;208mB\x1b[48;2;1;2;300mC\x1b[97mD\x1b[mE');
    const styles = screen.cells[0].slice(0, 5).map((cell) => cell.style);
    assert.deepEqual([styles[0].fg, styles[0].bold], [1, true]);
    assert.equal(styles[1].fg, 'rgb(255, 135, 0)');
    assert.equal(styles[2].bg, 'rgb(1, 2, 255)');
    assert.equal(styles[3].fg, 15);
    assert.deepEqual([styles[4].fg, styles[4].bg], [null, null]);
  },
  'wide, combining and drawn characters'() {
    const screen = shown('漢字e\u0301\x1b(0qx\x1b(B');
    assert.equal(screen.text(), '漢字e\u0301─│');
    assert.equal(screen.x, 7);
    assert.equal(shown('abc漢', 4, 2).text(), 'abc\n漢');
    const marks = shown(`e${'\u0301'.repeat(1000)}`);
    assert(marks.cells[0][0].text.length < 20);
  },
  'a program that asks is answered, by nothing of its own'() {
    const answers = [], screen = new Screen(20, 5, (text) => answers.push(text));
    screen.write('ab\x1b[6n\x1b[5n\x1b[c\x1b]0;title\x07\x1b]52;c;?\x07\x1bP$qm\x1b\\\x1b[21t');
    assert.deepEqual(answers, ['\x1b[1;3R', '\x1b[0n', '\x1b[?6c']);
  },
  'titles, links, clipboard and device strings are skipped'() {
    assert.equal(shown('a\x1b]0;<script>alert(1)</script>\x07b\x1b]8;;javascript:alert(1)\x1b\\c\x1b]8;;\x1b\\\x1bPq#0~\x1b\\d\x1b_x\x1b\\e').text(), 'abcde');
    const endless = shown('\x1b]0;' + 'x'.repeat(1e6));
    assert.equal(endless.text(), '');
    endless.write('\x07y');
    assert.equal(endless.text(), 'y');
  },
  'modes that the keyboard needs'() {
    const screen = shown('\x1b[?1h\x1b[?2004h\x1b[?25l');
    assert.deepEqual([screen.cursorKeys, screen.bracketed, screen.cursorShown], [true, true, false]);
    screen.write('\x1bc');
    assert.deepEqual([screen.cursorKeys, screen.bracketed, screen.cursorShown], [false, false, true]);
  },
  'another size'() {
    const screen = shown('1\r\n2\r\n3\r\n4\r\nprompt', 20, 5);
    screen.resize(3, 2);
    assert.equal(screen.text(), '4\npro');
    screen.resize(30, 10);
    assert.deepEqual([screen.cells.length, screen.cells[9].length, screen.y], [10, 30, 1]);
  },
  'huge numbers and floods end soon'() {
    const screen = shown('x\x1b[999999999b\x1b[999999999@\x1b[999999999L\x1b[999999999;999999999H\x1b[999999999S\x1b[9999999999999999999999999A' +
      '\x1b[' + '1;'.repeat(100000) + 'm' + 'z'.repeat(200000));
    assert(screen.history.length <= 2000 && screen.cells.length === 5 && screen.cells.every((row) => row.length === 20));
  },
  'whatever comes, it stays a screen'() {
    let seed = 7;
    const random = (n) => { seed = (seed * 1103515245 + 12345) % 2147483648; return seed % n; };
    const pieces = ['\x1b', '[', ']', '?', ';', ':', '0', '1', '9', '38', '5', '255', 'm', 'H', 'J', 'K', 'L', 'M', 'P', '@', 'S', 'T', 'r', 'h', 'l', 'b',
      '1049', '\n', '\r', '\b', '\t', '漢', '\u0301', 'a', '\x07', '\\', '(', '0', '\x9b', '\u{1f600}', '7', '8', 'c', '!', 'p', 'X', '\0', '\x7f', '\ud800'];
    for (let round = 0; round < 300; round++) {
      const screen = new Screen(1 + random(30), 1 + random(10));
      for (let i = 0; i < 300; i++) {
        screen.write(pieces[random(pieces.length)]);
        if (random(50) === 0) screen.resize(1 + random(30), 1 + random(10));
      }
      assert(screen.cells.length === screen.rows && screen.cells.every((row) => row.length === screen.cols && row.every((cell) => typeof cell.text === 'string')));
      assert(screen.x >= 0 && screen.x < screen.cols && screen.y >= 0 && screen.y < screen.rows && screen.top <= screen.bottom && screen.bottom < screen.rows);
    }
  },
};

for (const [name, run] of Object.entries(cases)) {
  let error = null;
  try {
    run();
  } catch (caught) {
    error = caught.stack.slice(0, 800);
  }
  console.log(JSON.stringify({ case: name, error }));
}
