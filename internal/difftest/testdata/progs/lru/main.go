// Command lru covers an LRU cache with a map into a list, and eviction by a
// callback that is kept in a field.
package main

import (
	"container/list"
	"fmt"
)

type lru struct {
	max     int
	ll      *list.List
	items   map[string]*list.Element
	onEvict func(key string, value int)
}

type pair struct {
	key   string
	value int
}

func (c *lru) get(k string) (int, bool) {
	if e, ok := c.items[k]; ok {
		c.ll.MoveToFront(e)
		return e.Value.(*pair).value, true
	}
	return 0, false
}

func (c *lru) put(k string, v int) {
	if e, ok := c.items[k]; ok {
		e.Value.(*pair).value = v
		c.ll.MoveToFront(e)
		return
	}
	c.items[k] = c.ll.PushFront(&pair{k, v})
	if c.ll.Len() > c.max {
		last := c.ll.Back()
		p := c.ll.Remove(last).(*pair)
		delete(c.items, p.key)
		if c.onEvict != nil {
			c.onEvict(p.key, p.value)
		}
	}
}

func main() {
	evicted, hits := 0, 0
	c := &lru{max: 5, ll: list.New(), items: map[string]*list.Element{}}
	c.onEvict = func(key string, value int) { evicted = (evicted*7 + value + len(key)) % 9973 }
	for round := range 8 { //difftest:loop
		for k := range 400 {
			key := fmt.Sprint("k", (k*k+round)%11)
			if v, ok := c.get(key); ok {
				hits += v & 1
			} else {
				c.put(key, k*round)
			}
		}
		fmt.Print(round, " ", hits, " ", evicted)
		for e := c.ll.Front(); e != nil; e = e.Next() {
			fmt.Print(" ", *e.Value.(*pair))
		}
		fmt.Println(len(c.items))
	}
}
