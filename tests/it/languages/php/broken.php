$n = 1;
echo $n);
