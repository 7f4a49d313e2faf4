package main

var n int = "a"

func main() {}
