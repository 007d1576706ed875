// Command linked covers linked structures that are walked by a pointer living
// across points: a doubly linked list, a cursor into it, and a tail.
package main

import "fmt"

type item struct {
	prev, next *item
	value      int
	owner      *chain
}

type chain struct {
	head, tail *item
	n          int
}

func (c *chain) push(v int) *item {
	it := &item{prev: c.tail, value: v, owner: c}
	if c.tail == nil {
		c.head = it
	} else {
		c.tail.next = it
	}
	c.tail = it
	c.n++
	return it
}

func (c *chain) drop(it *item) {
	if it.prev != nil {
		it.prev.next = it.next
	} else {
		c.head = it.next
	}
	if it.next != nil {
		it.next.prev = it.prev
	} else {
		c.tail = it.prev
	}
	c.n--
}

func main() {
	c := &chain{}
	for i := range 10 {
		c.push(i * 3)
	}
	sum := 0
	for at := c.head; at != nil; at = at.next { //difftest:loop
		for k := range 2000 {
			sum = (sum*7 + at.value + k) % 30011
		}
		switch {
		case at.value%2 == 0 && at.prev != nil:
			c.drop(at.prev)
		case c.n < 8:
			at.owner.push(sum % 50)
		}
		at.value = sum
		fmt.Println(c.n, sum, c.head.value, c.tail.value)
		if sum%13 == 0 {
			break
		}
	}
	for at := c.tail; at != nil; at = at.prev {
		fmt.Print(at.value, " ")
	}
	fmt.Println(c.n)
}
