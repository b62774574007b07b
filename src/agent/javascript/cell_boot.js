'use strict';
{
  const { readSync } = require('fs');
  let data = Buffer.alloc(0), size = 8;
  while (data.length < size) {
    const piece = Buffer.alloc(size - data.length), n = readSync(3, piece);
    if (n === 0) process.kill(process.pid, 'SIGKILL');
    data = Buffer.concat([data, piece.subarray(0, n)]);
    if (data.length === 8) size = 8 + data.readUInt32LE(4);
  }
  require('vm').compileFunction(data.toString('utf8', 8), ['require', 'importer'], { filename: 'cordon' })(require,
    (specifier) => import(specifier));
}
