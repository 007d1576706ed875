// Command flags covers flag parsing, os.Args and flag.Args inside the loop.
package main

//difftest:args -n 6 -name=ü -v -rate 2.5 -tag x -tag y one two

import (
	"flag"
	"fmt"
	"os"
	"strings"
)

type tags []string

func (t *tags) String() string     { return strings.Join(*t, "+") }
func (t *tags) Set(s string) error { *t = append(*t, s); return nil }

var rate = flag.Float64("rate", 1, "growth")

func main() {
	n := flag.Int("n", 3, "rounds")
	var name string
	var list tags
	verbose := flag.Bool("v", false, "say more")
	flag.StringVar(&name, "name", "none", "a name")
	flag.Var(&list, "tag", "tags")
	flag.Parse()
	x := 1.0
	for i := 0; i < *n; i++ { //difftest:loop
		for range 1000 {
			x = x*0.999 + *rate
		}
		if *verbose {
			fmt.Printf("%d %s %.6f %s %v\n", i, name, x, list.String(), flag.Args())
		}
		if i == 2 {
			*n++
			list = append(list, "z")
			*rate = 1.25
		}
	}
	fmt.Println(len(os.Args), os.Args[1:3], flag.NArg(), flag.Arg(1), *n, list, flag.Parsed(), flag.Lookup("n").Value)
	flag.Visit(func(f *flag.Flag) { fmt.Print(f.Name, " ") })
	fmt.Println()
}
