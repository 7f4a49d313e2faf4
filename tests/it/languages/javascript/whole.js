const fs = require('fs');
for (const line of fs.readFileSync(0, 'utf8').split('\n').filter(Boolean)) {
  console.log(`out ${line}`);
}
console.error('err é');
process.exitCode = 3;
