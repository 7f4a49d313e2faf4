$stdin.each_line { |line| puts "out #{line}" }
warn 'err é'
exit 3
