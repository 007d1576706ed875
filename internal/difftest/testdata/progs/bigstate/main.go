// Command bigstate covers larger state: arrays and slices of some hundred
// kilobytes, most of which do not change, and many small objects.
package main

import "fmt"

type leaf struct {
	id   int
	next *leaf
	data []byte
}

var field [1 << 15]float64

func main() {
	fixed := make([]int32, 1<<16)
	for i := range fixed {
		fixed[i] = int32(i * i)
	}
	index := map[int]*leaf{}
	var head *leaf
	for i := range 2000 {
		head = &leaf{i, head, make([]byte, i%50)}
		index[i] = head
	}
	sum := 0.0
	for step := range 6 { //difftest:loop
		for i := 1; i < len(field)-1; i += 7 {
			field[i] += float64(fixed[i]%100) / float64(step+1)
			sum += field[i]
		}
		for l := head; l != nil; l = l.next {
			if l.id%(step+10) == 0 {
				l.data = append(l.data, byte(step))
				delete(index, l.id)
			}
		}
		fmt.Printf("%d %.6f %d %d\n", step, sum, len(index), len(head.next.data))
	}
	n := 0
	for id, l := range index {
		if l.id != id || index[id] != l {
			panic("mixed up")
		}
		n += len(l.data)
	}
	fmt.Println(n, field[8], fixed[999])
}
