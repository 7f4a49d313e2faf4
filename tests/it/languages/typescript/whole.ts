import * as fs from 'fs';
const lines: string[] = fs.readFileSync(0, 'utf8').split('\n').filter(Boolean);
lines.forEach((line: string) => console.log(`out ${line}`));
console.error('err é');
process.exitCode = 3;
