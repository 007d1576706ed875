// Command whilecall covers loops whose work is in their condition: in a call,
// in a call beside another condition, in a method that has a loop with a point
// of its own; and in the post statement.
package main

import "fmt"

type model struct {
	step, most int
	cells      [400]int
}

func (m *model) run() bool {
	for i := range m.cells {
		m.cells[i] = (m.cells[i]*31 + i*m.step + 7) % 1009
	}
	m.step++
	return m.step >= m.most
}

func (m *model) sum() (s int) {
	for _, c := range m.cells {
		s += c
	}
	return s
}

// blocks works in loops inside each other.
func (m *model) blocks(n int) bool {
	for b := range n {
		for i := range 20 {
			for k := range 20 {
				m.cells[(b*i+k)%len(m.cells)] += m.step
			}
		}
		m.step++
	}
	fmt.Println("blocks", m.step, m.sum())
	return m.step < m.most
}

func main() {
	m := &model{most: 6}
	for !m.run() { //difftest:loop
	}
	fmt.Println(m.step, m.sum())
	m.most = 12
	tries := 0
	for tries < 100 && !m.run() { //difftest:loop
		tries++
		fmt.Println("try", tries, m.sum())
	}
	m.most = 40
	for m.blocks(4) { //difftest:loop
	}
	fmt.Println(m.step, tries, m.sum())
}
