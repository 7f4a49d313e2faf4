spawn 'sleep', '1000'
$stdout.puts 'go'
$stdout.flush
loop {}
