// Command closurestate covers closures in struct fields, in slices and in
// maps, which share variables with each other.
package main

import (
	"fmt"
	"sort"
)

type button struct {
	label string
	press func(int) string
	next  *button
}

type machine struct {
	rules map[string]func(float64) float64
	order []string
	steps []func()
}

func main() {
	presses := 0
	buttons := []*button{}
	for _, label := range []string{"red", "green", "blue"} {
		own := 0
		b := &button{label: label}
		b.press = func(n int) string {
			presses += n
			own++
			return fmt.Sprint(b.label, own, presses)
		}
		if len(buttons) > 0 {
			b.next = buttons[len(buttons)-1]
		}
		buttons = append(buttons, b)
	}
	m := machine{rules: map[string]func(float64) float64{}}
	rate := 1.5
	m.rules["grow"] = func(x float64) float64 { return x * rate }
	m.rules["cap"] = func(x float64) float64 { return min(x, 1000) }
	m.rules["dip"] = func(x float64) float64 { rate -= 0.01; return x - rate }
	for name := range m.rules {
		m.order = append(m.order, name)
	}
	sort.Strings(m.order)
	x := 1.0
	m.steps = append(m.steps, func() { x = m.rules["grow"](x) }, func() { x = m.rules["dip"](x) })
	for day := range 7 { //difftest:loop
		for range 300 {
			for _, s := range m.steps {
				s()
			}
			x = m.rules["cap"](x)
		}
		b := buttons[day%3]
		fmt.Printf("%d %s %.9f %.9f %v\n", day, b.press(day), x, rate, b.next != nil)
	}
	fmt.Println(buttons[2].press(0), buttons[2].next.press(1), m.order)
}
