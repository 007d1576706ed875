package main

import (
	"debug/elf"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// count prints how many instructions the programs execute, counted by Valgrind.
// Their times depend on the layout of memory, but their number does not. The
// garbage collector, which varies, is turned off. The count is that of the
// program's own process, without its start and end.
//
// It is printed with and without NOPs. The Go assembler puts NOPs before jumps
// that would cross a multiple of 32 bytes. So the number of NOPs in a loop
// depends on the length of the code before it, and changes by chance.
//
// Valgrind makes a program some fifty times slower, but not the clock: the
// count has as many more of the reports to the supervisor, two in a second.
// Reports matter more by what the program executes
// after them: from its first report on, a loop runs in the function that
// continues from a frame. A program that runs for some seconds does so, too.
func (b *bench) count(list []*program) error {
	if _, err := exec.LookPath("valgrind"); err != nil {
		return fmt.Errorf("-count needs Valgrind (the package valgrind of most systems): %w", err)
	}
	os.Setenv("GOGC", "off")
	os.Setenv("GODEBUG", "asyncpreemptoff=1") // Callgrind fails if a signal arrives while a thread starts
	fmt.Printf("%-12s %14s %8s %8s %14s %8s %8s\n", "", "plain, million", "alone %", "run %", "without NOPs", "alone %", "run %")
	for _, p := range list {
		m := &match{b: b, p: p, dir: filepath.Join(b.tmp, "run-"+p.name)}
		plain, made := b.binaries(p, 0)
		var n [kinds]instructions
		for kind, c := range m.ways(plain, made) {
			if kind == supervised && (*skipRun || p.nothing == nil) {
				continue
			}
			all, err := m.instructions(c, p.args)
			if err != nil {
				return fmt.Errorf("%s: %w", p.name, err)
			}
			if p.nothing != nil {
				start, err := m.instructions(c, p.nothing)
				if err != nil {
					return fmt.Errorf("%s: %w", p.name, err)
				}
				all.all -= start.all
				all.work -= start.work
			}
			n[kind] = all
		}
		more := func(of func(instructions) float64, kind int) string {
			if n[kind].all == 0 {
				return "-"
			}
			return fmt.Sprintf("%+.2f", 100*(of(n[kind])/of(n[asPlain])-1))
		}
		row := func(of func(instructions) float64) string {
			return fmt.Sprintf("%14.0f %8s %8s", of(n[asPlain])/1e6, more(of, alone), more(of, supervised))
		}
		fmt.Printf("%-12s %s %s\n", p.name, row(func(n instructions) float64 { return n.all }), row(func(n instructions) float64 { return n.work }))
	}
	return nil
}

// instructions are numbers of executed instructions.
type instructions struct {
	all  float64
	work float64 // all but NOPs
}

// instructions runs a command and counts what its last word, a program,
// executes. That runs below Valgrind, and what starts it does not: Callgrind
// fails when the cairn command gets a signal.
func (m *match) instructions(command []string, args []string) (instructions, error) {
	if err := os.Mkdir(m.dir, 0o777); err != nil {
		return instructions{}, err
	}
	defer os.RemoveAll(m.dir)
	last := len(command) - 1
	counted, profile := filepath.Join(m.dir, "counted"), filepath.Join(m.dir, "profile")
	script := fmt.Sprintf("#!/bin/sh\nexec valgrind -q --tool=callgrind --dump-instr=yes --dump-line=no --compress-pos=no --compress-strings=no '--callgrind-out-file=%s' '%s' \"$@\"\n", profile, command[last])
	if err := os.WriteFile(counted, []byte(script), 0o777); err != nil {
		return instructions{}, err
	}
	if _, _, err := m.run(append(slices.Clone(command[:last]), counted), args); err != nil {
		return instructions{}, err
	}
	text, err := os.ReadFile(profile)
	if err != nil {
		return instructions{}, err
	}
	return countProfile(string(text))
}

// countProfile sums a profile of Callgrind.
func countProfile(profile string) (n instructions, err error) {
	code := new(codeOf)
	total, inclusive := 0.0, false
	for line := range strings.Lines(profile) {
		line = strings.TrimSuffix(line, "\n")
		switch {
		case strings.HasPrefix(line, "totals:"):
			if total, err = strconv.ParseFloat(strings.TrimSpace(line[len("totals:"):]), 64); err != nil {
				return instructions{}, fmt.Errorf("Callgrind's profile: %w", err)
			}
		case strings.HasPrefix(line, "ob="):
			if code, err = openCode(line[len("ob="):]); err != nil {
				return instructions{}, err
			}
		case strings.HasPrefix(line, "calls="): // the next line is what the callee executes
			inclusive = true
		case strings.HasPrefix(line, "0x"):
			if inclusive {
				inclusive = false
				continue
			}
			at, times, _ := strings.Cut(line, " ")
			address, err := strconv.ParseUint(at, 0, 64)
			if err != nil {
				return instructions{}, fmt.Errorf("Callgrind's profile: %w", err)
			}
			executed, err := strconv.ParseFloat(times, 64)
			if err != nil {
				return instructions{}, fmt.Errorf("Callgrind's profile: %w", err)
			}
			n.all += executed
			if !isNOP(code.at(address)) {
				n.work += executed
			}
		}
	}
	if n.all == 0 || n.all != total {
		return instructions{}, fmt.Errorf("Callgrind's profile has %.0f instructions, and says that it has %.0f", n.all, total)
	}
	return n, nil
}

// codeOf is the machine code of a file for amd64; of others nothing is known.
type codeOf struct{ f *elf.File }

var opened = make(map[string]*codeOf)

func openCode(name string) (*codeOf, error) {
	if c := opened[name]; c != nil {
		return c, nil
	}
	c := new(codeOf)
	if filepath.IsAbs(name) {
		f, err := elf.Open(name)
		if err != nil {
			return nil, err
		}
		if f.Machine == elf.EM_X86_64 {
			c.f = f
		}
	}
	opened[name] = c
	return c, nil
}

// at returns the code from an address on: enough of it to see a NOP.
func (c *codeOf) at(address uint64) []byte {
	if c.f == nil {
		return nil
	}
	i := slices.IndexFunc(c.f.Progs, func(p *elf.Prog) bool {
		return p.Type == elf.PT_LOAD && p.Vaddr <= address && address < p.Vaddr+p.Filesz
	})
	if i < 0 {
		return nil
	}
	code := make([]byte, 16)
	n, _ := c.f.Progs[i].ReadAt(code, int64(address-c.f.Progs[i].Vaddr)) // io.EOF: the last bytes
	return code[:n]
}

// isNOP reports whether amd64 code begins with a NOP: 90 or 0f 1f, after
// prefixes without effect.
func isNOP(code []byte) bool {
	for len(code) > 0 && (code[0] == 0x66 || code[0] == 0x2e) {
		code = code[1:]
	}
	return len(code) > 0 && code[0] == 0x90 || len(code) > 1 && code[0] == 0x0f && code[1] == 0x1f
}
