use strict;
use warnings;
while (my $line = <STDIN>) { print "out $line"; }
print STDERR "err é\n";
exit 3;
