$child = proc_open(['sleep', '1000'], [], $pipes);
echo "go\n";
while (true);
