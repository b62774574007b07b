// What a program leaves in artifacts/ comes back with its answer.
const fs = require('fs');
const os = require('os');

fs.writeFileSync('artifacts/greeting.txt', 'Hello from JavaScript\n');
console.log(`Hello from Node ${process.version} as uid ${process.getuid()}, process ${process.pid}`);
console.log('Network interfaces here:', Object.keys(os.networkInterfaces()).join(' ') || 'none');
