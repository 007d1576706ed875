// Command sorting covers sort and slices with closures that read and change
// captured variables, and a loop inside a callback of foreign code.
package main

import (
	"fmt"
	"slices"
	"sort"
	"strings"
)

type person struct {
	name string
	age  int
}

type byName []person

func (b byName) Len() int           { return len(b) }
func (b byName) Less(i, j int) bool { return b[i].name < b[j].name }
func (b byName) Swap(i, j int)      { b[i], b[j] = b[j], b[i] }

func weight(p person, salt int) (w int) {
	for i := range 200 {
		w = (w*3 + p.age + i*salt) % 991
	}
	return w
}

func main() {
	people := []person{{"mo", 41}, {"al", 30}, {"zoe", 25}, {"kim", 30}, {"bo", 67}, {"eva", 12}}
	compared := 0
	order := []string{}
	for salt := range 7 { //difftest:loop
		sort.Slice(people, func(i, j int) bool {
			compared++
			return weight(people[i], salt) < weight(people[j], salt)
		})
		order = append(order, people[0].name)
		slices.SortStableFunc(people, func(a, b person) int {
			return strings.Compare(order[len(order)-1], a.name) * (a.age - b.age)
		})
		fmt.Println(salt, people, compared > 0)
		people[salt%6].age += salt
		if salt == 4 {
			sort.Sort(sort.Reverse(byName(people)))
		}
		at, found := slices.BinarySearchFunc([]int{1, 3, 9}, salt, func(e, t int) int { return e - t })
		fmt.Println(at, found, order)
	}
}
