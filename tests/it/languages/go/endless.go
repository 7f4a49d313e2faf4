package main

import (
	"fmt"
	"os/exec"
)

func main() {
	exec.Command("sleep", "1000").Start()
	fmt.Println("go")
	for {
	}
}
