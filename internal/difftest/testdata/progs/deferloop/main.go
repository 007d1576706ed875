// Command deferloop covers defers that pile up in a loop while points are
// taken, with arguments and closures over the loop's variables.
package main

import "fmt"

type stack struct{ log []string }

func (s *stack) pop(i int, what string) {
	s.log = append(s.log, fmt.Sprint(i, what))
	fmt.Println("pop", i, what)
}

func climb(s *stack, n int) (h uint32) {
	h = 7
	for i := range n { //difftest:loop
		for k := range 2000 {
			h = h*16777619 ^ uint32(k+i)
		}
		if i%3 == 0 {
			defer s.pop(i, fmt.Sprintf("x%08x", h))
		} else if i%3 == 1 {
			saved := h
			defer func() {
				h ^= saved
				s.pop(i, "closure")
			}()
		}
		fmt.Printf("%d %08x\n", i, h)
	}
	return h
}

func main() {
	s := &stack{}
	fmt.Printf("%08x\n", climb(s, 7))
	fmt.Println(s.log)
}
