n = 1
puts n)
