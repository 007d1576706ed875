// Command jsonstep covers encoding/json in each step, with values of type any
// that came out of it as state, and regexp and template use.
package main

import (
	"encoding/json"
	"fmt"
	"regexp"
	"strings"
)

type doc struct {
	ID    int               `json:"id"`
	Tags  []string          `json:"tags,omitempty"`
	Attrs map[string]any    `json:"attrs"`
	Child *doc              `json:"child"`
	Raw   json.RawMessage   `json:"raw"`
	Names map[string]string `json:"names"`
}

var number = regexp.MustCompile(`\d+`)

func main() {
	d := &doc{ID: 1, Attrs: map[string]any{"x": 1.5}, Raw: json.RawMessage(`{"a":1}`)}
	var loose any
	for i := range 6 { //difftest:loop
		d = &doc{ID: i, Child: d, Tags: append(d.Tags, fmt.Sprint("t", i)), Attrs: map[string]any{"i": i}, Names: map[string]string{"k": strings.Repeat("v", i)}}
		text, err := json.Marshal(d)
		if err != nil {
			panic(err)
		}
		for range 20 {
			if err := json.Unmarshal(text, &loose); err != nil {
				panic(err)
			}
		}
		m := loose.(map[string]any)
		sum := 0.0
		for _, n := range number.FindAllString(string(text), -1) {
			var f float64
			fmt.Sscan(n, &f)
			sum += f
		}
		back := &doc{}
		if err := json.Unmarshal(text, back); err != nil {
			panic(err)
		}
		if i%2 == 1 {
			d = back
		}
		fmt.Println(i, len(text), sum, len(m), m["id"], back.Child.ID, d.Attrs["i"])
	}
	text, _ := json.Marshal(loose)
	fmt.Println(string(text))
}
