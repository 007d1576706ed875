package main

import "os"

func main() {
	n := len(os.Args)
	//cairn:skip
	for i := 0; i < n; i++ { // skip
		n += i * n * n
		n += i * n * n
		n += i * n * n
	}
	// A loop with a label.
	//cairn:point because it is asked for
again:
	for i := 0; i < n; i++ { // point
		if i > 3 {
			continue again
		}
	}
	for i := range n { //cairn:point
		println(i)
	}
	//cairn:nonsense
	println(n)
}
