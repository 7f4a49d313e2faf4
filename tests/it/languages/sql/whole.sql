.mode list
.headers off
CREATE TABLE input(line TEXT);
.import /dev/stdin input
SELECT 'out ' || line FROM input;
.shell echo 'err é' >&2
SELECT * FROM nowhere;
