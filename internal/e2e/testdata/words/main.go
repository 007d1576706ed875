// Words is a plain program with what another build of it has elsewhere: functions
// of libraries in variables, closures, errors that are compared, flags, types in
// interfaces.
package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"sort"
	"strings"
	"unicode"
)

var errShort = errors.New("too short")

type shape interface{ size() int }

type square struct{ side int }
type pair [2]int16

func (s *square) size() int { return s.side * s.side }
func (p pair) size() int    { return int(p[0]) * int(p[1]) }

type reader struct {
	next func() (string, error)
	err  error
}

func main() {
	rounds := flag.Int("rounds", 80, "rounds")
	flag.Parse()
	changes := map[string]func(string) string{"upper": strings.ToUpper, "lower": strings.ToLower, "title": func(s string) string { return s + "!" }}
	trim := strings.NewReplacer("a", "e", "the", "a")
	test := unicode.IsLetter
	n := 0
	r := &reader{err: io.EOF, next: func() (string, error) {
		n++
		if n%7 == 0 {
			return "", errShort
		}
		return strings.Repeat("the cat ", n%5), nil
	}}
	var shapes []shape
	var kept []error
	letters, text := 0, ""
	for i := range *rounds {
		s, err := r.next()
		if err != nil {
			kept = append(kept, err)
			continue
		}
		names := make([]string, 0, len(changes))
		for name := range changes {
			names = append(names, name)
		}
		sort.Strings(names)
		text = changes[names[i%len(names)]](trim.Replace(s))
		for _, c := range text {
			if test(c) {
				letters++
			}
		}
		if i%2 == 0 {
			shapes = append(shapes, &square{i})
		} else {
			shapes = append(shapes, pair{int16(i), -3})
		}
	}
	short, area := 0, 0
	for _, err := range kept {
		if err == errShort {
			short++
		}
	}
	for _, s := range shapes {
		area += s.size()
	}
	fmt.Println(*rounds, letters, text, short, len(kept), area, r.err == io.EOF, flag.Lookup("rounds").Value, flag.NFlag())
}
