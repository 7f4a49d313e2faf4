my $n = 1;
print $n);
