package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
)

// count prints how many instructions the programs execute, counted by Valgrind.
// Their times depend on the layout of memory, but their number does not. The
// garbage collector, which varies, is turned off. The count is that of the
// program's own process, without its start and end.
//
// Valgrind makes a program some fifteen times slower, but not the clock: the
// count has as many more of the reports to the supervisor, two in a second.
// That adds about 0.1 %. Reports matter more by what the program executes
// after them: from its first report on, a loop runs in the function that
// continues from a frame. A program that runs for some seconds does so, too.
func (b *bench) count(list []*program) error {
	if _, err := exec.LookPath("valgrind"); err != nil {
		return fmt.Errorf("-count needs Valgrind (the package valgrind of most systems): %w", err)
	}
	os.Setenv("GOGC", "off")
	fmt.Printf("%-12s %14s %8s %8s\n", "", "plain, million", "alone %", "run %")
	for _, p := range list {
		m := &match{b: b, p: p, dir: filepath.Join(b.tmp, "run-"+p.name)}
		plain, made := b.binaries(p, 0)
		var n [kinds]float64
		for kind, c := range m.ways(plain, made) {
			if kind == supervised && (*skipRun || p.nothing == nil) {
				continue
			}
			all, err := m.instructions(c, c[len(c)-1], p.args)
			if err != nil {
				return fmt.Errorf("%s: %w", p.name, err)
			}
			if p.nothing != nil {
				start, err := m.instructions(c, c[len(c)-1], p.nothing)
				if err != nil {
					return fmt.Errorf("%s: %w", p.name, err)
				}
				all -= start
			}
			n[kind] = all
		}
		more := func(kind int) string {
			if n[kind] == 0 {
				return "-"
			}
			return fmt.Sprintf("%+.2f", 100*(n[kind]/n[asPlain]-1))
		}
		fmt.Printf("%-12s %14.0f %8s %8s\n", p.name, n[asPlain]/1e6, more(alone), more(supervised))
	}
	return nil
}

var (
	counted = regexp.MustCompile(`I\s+refs:\s+([0-9,]+)`)
	ofWhom  = regexp.MustCompile(`Command: (\S+)`)
)

// instructions runs a command and returns the number of instructions executed
// by the process of binary, which is the command itself or one that it starts.
func (m *match) instructions(command []string, binary string, args []string) (float64, error) {
	if err := os.Mkdir(m.dir, 0o777); err != nil {
		return 0, err
	}
	defer os.RemoveAll(m.dir)
	valgrind := []string{"valgrind", "--tool=cachegrind", "--cache-sim=no", "--cachegrind-out-file=/dev/null", "--trace-children=yes", "--log-file=valgrind.%p"}
	if _, _, err := m.run(append(valgrind, command...), args); err != nil {
		return 0, err
	}
	logs, err := filepath.Glob(filepath.Join(m.dir, "valgrind.*"))
	if err != nil {
		return 0, err
	}
	for _, name := range logs {
		log, err := os.ReadFile(name)
		if err != nil {
			return 0, err
		}
		who, n := ofWhom.FindSubmatch(log), counted.FindSubmatch(log)
		if who != nil && n != nil && string(who[1]) == binary {
			return strconv.ParseFloat(strings.ReplaceAll(string(n[1]), ",", ""), 64)
		}
	}
	return 0, fmt.Errorf("Valgrind has not counted what %s did", binary)
}
