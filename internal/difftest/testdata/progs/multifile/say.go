package main

import . "fmt"

func say(args ...any) { Println(args...) }

func spin(x, n int) int {
	for k := range 3000 {
		x = (x*5 + k*n) % 3001
	}
	return x
}
