for (line in readLines(file("stdin"))) cat("out ", line, "\n", sep = "")
message("err é")
quit(status = 3)
