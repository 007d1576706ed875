// Command anonymous covers anonymous structs, function types in maps, types
// declared inside functions, and composite literals of all kinds.
package main

import (
	"fmt"
	"math"
)

type op func(float64, float64) float64

func hyp(a, b float64) float64 { return math.Sqrt(a*a + b*b) }

func main() {
	type sample struct {
		in  [2]float64
		out float64
	}
	ops := map[string]op{
		"+": func(a, b float64) float64 { return a + b },
		"h": hyp,
		"^": math.Pow,
		"m": math.Max,
	}
	tests := []struct {
		name string
		a, b float64
	}{{"+", 1, 2}, {"h", 3, 4}, {"^", 1.001, 2}, {"m", 7, 5}, {"h", 0.5, 0.25}}
	memo := map[struct{ op, n string }]*sample{}
	state := struct {
		acc   float64
		stats struct{ min, max float64 }
		list  []struct{ k string }
	}{acc: 1}
	for i, t := range tests { //difftest:loop
		f := ops[t.name]
		for k := range 1000 {
			state.acc = f(t.a, math.Mod(state.acc, 50)) + f(float64(k%7), t.b)
		}
		state.stats.max = max(state.stats.max, state.acc)
		state.list = append(state.list, struct{ k string }{t.name})
		key := struct{ op, n string }{t.name, fmt.Sprint(i)}
		memo[key] = &sample{in: [2]float64{t.a, t.b}, out: state.acc}
		tests[(i+1)%5].a += 0.5 // the range has copied nothing: seen next time
		fmt.Printf("%s %.9f %+v %v\n", t.name, state.acc, state.stats, *memo[key])
	}
	fmt.Println(len(memo), state.list)
}
