import { spawn } from 'child_process';
import { writeSync } from 'fs';
spawn('sleep', ['1000']);
writeSync(1, 'go\n');
while (true);
