// Command embed covers embedded structs and interfaces, promoted methods and
// fields, shadowed methods, and points in a promoted method.
package main

import "fmt"

type clock struct{ now int }

func (c *clock) advance(n int) { c.now += n }
func (c clock) time() string   { return fmt.Sprintf("%02d:%02d", c.now/60, c.now%60) }

type logger interface{ note(string) }

type book struct{ lines []string }

func (b *book) note(s string) { b.lines = append(b.lines, s) }

type world struct {
	*clock
	logger
	field [32]int
}

func (w *world) run(steps int) (sum int) {
	for s := 0; s < steps; s++ { //difftest:loop
		for i := range 4000 {
			w.field[i%32] = (w.field[(i+7)%32] + i*s) % 251
		}
		w.advance(s * 13)
		w.note(w.time())
		sum += w.field[s]
		fmt.Println(s, w.now, sum)
	}
	return sum
}

type bigWorld struct {
	world
	name string
}

func (b *bigWorld) note(s string) { b.logger.note(b.name + s) }

func main() {
	notes := &book{}
	w := &bigWorld{world{clock: &clock{now: 60}, logger: notes}, "big "}
	total := w.run(6)
	w.note("end")
	fmt.Println(total, notes.lines, w.time(), w.field[:5])
}
