// Plain is a program for the fault campaign. It does not use checkpoints;
// 'cairn build' makes it restartable. Its behaviour depends on its arguments
// only, and its output depends on what it reads. A step that is lost, repeated
// or undone too far changes its output or a file.
//
//	plain MODE SEED STEPS PAUSE
//
// Modes: files (changes files in all ways), nolinks (without hard links),
// append (the least idempotent thing that a program can do), compute (loops
// that reset their own conditions), input (reads its standard input), exit
// (ends with status 7), many (many files open at once).
package main

import (
	"bufio"
	"fmt"
	"os"
	"slices"
	"sort"
	"strconv"
	"strings"
	"time"

	"github.com/cairnrun/cairn/internal/faults/testdata/begins"
)

var pause time.Duration

func main() {
	if len(os.Args) != 5 {
		fmt.Fprintln(os.Stderr, "usage: plain MODE SEED STEPS PAUSE")
		os.Exit(2)
	}
	seed, _ := strconv.ParseUint(os.Args[2], 10, 64)
	steps, _ := strconv.Atoi(os.Args[3])
	pause, _ = time.ParseDuration(os.Args[4])
	begins.Note()
	r := &dice{seed*2 + 1}
	switch os.Args[1] {
	case "files", "nolinks":
		w := newWorld(r)
		w.single = os.Args[1] == "nolinks"
		w.run(steps)
	case "append":
		appends(r, steps)
	case "compute":
		compute(r, steps)
	case "input":
		input(steps)
	case "many":
		many(r, steps)
	case "exit":
		fails(r, steps)
	default:
		os.Exit(2)
	}
	fmt.Println("end")
}

// dice is a small random generator.
type dice struct{ s uint64 }

func (d *dice) next() uint64 {
	d.s = d.s*6364136223846793005 + 1442695040888963407
	x := d.s ^ d.s>>29
	return x * 0x9e3779b97f4a7c15 >> 16
}

func (d *dice) n(n int) int { return int(d.next() % uint64(n)) }

func check(step int, what string, err error) {
	if err != nil {
		fmt.Println("step", step, what+":", err)
		os.Exit(1)
	}
}

// appends adds a line to two files and to the output in each step. The files
// are opened only for appending.
func appends(r *dice, steps int) {
	kept, err := os.OpenFile("kept.log", os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	check(0, "open", err)
	sum := uint64(0)
	for i := 0; i < steps; i++ { //cairn:point
		sum = sum*31 + r.next()
		line := fmt.Sprintf("line %d %x\n", i, sum)
		_, err := kept.WriteString(line)
		check(i, "write", err)
		again, err := os.OpenFile("again.log", os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
		check(i, "open", err)
		_, err = again.WriteString(line)
		check(i, "write", err)
		check(i, "close", again.Close())
		fmt.Print(line)
		time.Sleep(pause)
	}
	check(steps, "close", kept.Close())
}

// fails ends with a status other than 0, which is a result like any other.
func fails(r *dice, steps int) {
	for i := 0; i < steps; i++ { //cairn:point
		check(i, "write", os.WriteFile("exit.txt", fmt.Appendf(nil, "%d %x", i, r.next()), 0o644))
		fmt.Println("step", i)
		time.Sleep(pause)
	}
	os.Exit(7)
}

// compute has loops that reset their own conditions.
func compute(r *dice, steps int) {
	for i := 0; i < steps; i++ { //cairn:point
		a := make([]int, 5+r.n(6))
		for k := range a {
			a[k] = r.n(100)
		}
		for swapped := true; swapped; { //cairn:point
			swapped = false
			for k := 1; k < len(a); k++ {
				if a[k-1] > a[k] {
					a[k-1], a[k] = a[k], a[k-1]
					swapped = true
				}
			}
		}
		x, rounds := 1.0, 0
		for diff := 1.0; diff > 1e-9; { //cairn:point
			y := (x + float64(a[len(a)-1]+2)/x) / 2
			diff = max(x-y, y-x)
			x = y
			rounds++
		}
		seen := map[int]string{}
		more := true
		for k := 0; more; k++ { //cairn:point
			more = false
			seen[a[k%len(a)]] = fmt.Sprint(k)
			if k < len(a)+3 {
				more = true
			}
		}
		keys := make([]int, 0, len(seen))
		for k := range seen {
			keys = append(keys, k)
		}
		slices.Sort(keys)
		fmt.Println("step", i, sort.IntsAreSorted(a), a, strconv.FormatFloat(x, 'g', 12, 64), rounds, keys)
		time.Sleep(pause)
	}
}

// input copies lines, numbered and digested, and stops at the end of the input.
func input(steps int) {
	in := bufio.NewScanner(os.Stdin)
	sum, i := uint64(0), 0
	for in.Scan() { //cairn:point
		for _, b := range in.Bytes() {
			sum = sum*131 + uint64(b)
		}
		fmt.Printf("%d %x %s\n", i, sum, strings.ToUpper(in.Text()))
		i++
		time.Sleep(pause)
	}
	check(i, "read", in.Err())
	fmt.Println("lines", i, "of", steps)
}

// many keeps files open and writes to them in turn, also through buffers.
func many(r *dice, steps int) {
	var files []*os.File
	var lines []*bufio.Writer
	for i := range 6 {
		f, err := os.Create(fmt.Sprintf("many-%d", i))
		check(i, "create", err)
		files = append(files, f)
		lines = append(lines, bufio.NewWriterSize(f, 64))
	}
	for i := 0; i < steps; i++ { //cairn:point
		k := r.n(len(files))
		if k%2 == 0 {
			_, err := fmt.Fprintf(lines[k], "step %d of %d\n", i, k)
			check(i, "write", err)
		} else {
			_, err := files[k].WriteAt([]byte(fmt.Sprintf("%6d", i)), int64(r.n(40))*3)
			check(i, "write", err)
		}
		if r.n(8) == 0 {
			check(i, "flush", lines[0].Flush())
			st, err := files[k].Stat()
			check(i, "stat", err)
			fmt.Println("step", i, "file", k, "has", st.Size())
		}
		time.Sleep(pause)
	}
	for i, f := range files {
		check(steps, "flush", lines[i].Flush())
		check(steps, "close", f.Close())
	}
}
