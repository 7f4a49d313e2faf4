require('child_process').spawn('sleep', ['1000']);
require('fs').writeSync(1, 'go\n');
while (true);
