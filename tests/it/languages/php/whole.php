while (($line = fgets(STDIN)) !== false) echo "out $line";
fwrite(STDERR, "err é\n");
exit(3);
