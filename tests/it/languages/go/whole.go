package main

import (
	"bufio"
	"fmt"
	"os"
)

func main() {
	lines := bufio.NewScanner(os.Stdin)
	for lines.Scan() {
		fmt.Println("out", lines.Text())
	}
	fmt.Fprintln(os.Stderr, "err é")
	os.Exit(3)
}
