// Command containers covers container/list, heap and ring kept across points.
package main

import (
	"container/heap"
	"container/list"
	"container/ring"
	"fmt"
)

type job struct {
	due, id, index int
}

type queue []*job

func (q queue) Len() int           { return len(q) }
func (q queue) Less(i, j int) bool { return q[i].due < q[j].due }
func (q queue) Swap(i, j int) {
	q[i], q[j] = q[j], q[i]
	q[i].index, q[j].index = i, j
}
func (q *queue) Push(x any) {
	j := x.(*job)
	j.index = len(*q)
	*q = append(*q, j)
}
func (q *queue) Pop() any {
	old := *q
	j := old[len(old)-1]
	*q = old[:len(old)-1]
	return j
}

func main() {
	q := &queue{}
	recent := list.New()
	seats := ring.New(4)
	late := &job{due: 1000, id: -1}
	heap.Push(q, late)
	for now := range 8 { //difftest:loop
		for k := range 50 {
			heap.Push(q, &job{due: (now*31 + k*17) % 101, id: now*100 + k})
		}
		sum := 0
		for range 40 {
			j := heap.Pop(q).(*job)
			sum = (sum*3 + j.id) % 9001
			if e := recent.PushFront(j.id); recent.Len() > 5 {
				recent.Remove(recent.Back())
				recent.MoveToBack(e)
			}
		}
		late.due -= 100
		heap.Fix(q, late.index)
		seats.Value = sum
		seats = seats.Next()
		fmt.Print(now, " ", q.Len(), " ", late.index, " ", sum, ":")
		for e := recent.Front(); e != nil; e = e.Next() {
			fmt.Print(" ", e.Value)
		}
		fmt.Println()
	}
	seats.Do(func(v any) { fmt.Print(v, " ") })
	fmt.Println()
}
