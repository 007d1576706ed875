// Command deferblock covers deferred literals that use variables of the block
// they stand in, recover in a loop's deferred literals, and points between.
package main

import (
	"errors"
	"fmt"
)

func work(seed int) uint32 {
	h := uint32(seed)*16777619 ^ 2166136261
	return h*h ^ h>>7
}

func block(n int) (h uint32) {
	if y := n * 2; n > 2 {
		z := []int{y}
		defer func() {
			z[0]++
			y++
			fmt.Println("block", y, z)
		}()
		y += 10
		z = append(z, 5)
	} else {
		what := fmt.Sprint("else ", y)
		defer func(s string) { fmt.Println(s, what) }(what + "!")
		what += "?"
	}
	for i := range n { //difftest:loop
		h ^= work(i)
		fmt.Println(i, h)
	}
	return h
}

func safe(n int) (err error) {
	for i := range n { //difftest:loop
		defer func() {
			if r := recover(); r != nil {
				err = errors.Join(err, fmt.Errorf("%d: %v", i, r))
				if i > 1 {
					panic(fmt.Sprint("again ", i))
				}
			}
		}()
		fmt.Println("safe", i, work(i))
	}
	for j := 0; j < 2; j++ { //difftest:loop
		for k := range 2 {
			defer fmt.Println("inner", j, k, work(j+k))
		}
	}
	for i := range 2 { //difftest:loop
		fmt.Println("after", i, work(i))
	}
	panic("first")
}

func each[T any](list []T) {
	for i, v := range list { //difftest:loop
		defer func(before T) { fmt.Println(i, v, before) }(list[0])
		fmt.Println(work(i))
	}
}

func main() {
	for n := 2; n < 5; n++ {
		fmt.Println(block(n))
	}
	fmt.Println(safe(4))
	each([]string{"a", "b", "c"})
	each([]float64{1, 2})
}
