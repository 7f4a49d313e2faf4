exec 'sleep', '1000' unless fork;
$| = 1;
print "go\n";
1 while 1;
