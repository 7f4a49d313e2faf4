system("sleep 1000", wait = FALSE)
cat("go\n")
repeat {}
