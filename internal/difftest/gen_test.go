//go:build linux

package difftest

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
)

// batch is the number of random programs that are built at once.
const batch = 10

// seeds returns the seeds to try.
func seeds(t *testing.T) (from, to uint64) {
	t.Helper()
	said := os.Getenv("CAIRN_DIFFTEST_SEEDS")
	if said == "" && !stress {
		return 1, 2
	} else if said == "" {
		return 1, 10 * batch
	}
	a, b, found := strings.Cut(said, "-")
	if !found {
		b = a
	}
	from, err1 := strconv.ParseUint(a, 10, 64)
	to, err2 := strconv.ParseUint(b, 10, 64)
	if err1 != nil || err2 != nil || to < from {
		t.Fatalf("CAIRN_DIFFTEST_SEEDS=%s: want FROM-TO", said)
	}
	return from, to
}

// writeModule makes one program out of packages with a Main. Its argument says
// which one runs.
func writeModule(t *testing.T, dir string, packages map[string]string) {
	t.Helper()
	var imports, cases strings.Builder
	write := func(name, text string) {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o777); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o666); err != nil {
			t.Fatal(err)
		}
	}
	for name, src := range packages {
		write(name+"/p.go", src)
		fmt.Fprintf(&imports, "\t%q\n", "random/"+name)
		fmt.Fprintf(&cases, "\tcase %q:\n\t\t%s.Main()\n", name, name)
	}
	write("go.mod", "module random\n\ngo 1.26\n")
	write("main.go", "// Command random is random programs.\npackage main\n\nimport (\n\t\"os\"\n\n"+imports.String()+")\n\nfunc main() {\n\tswitch os.Args[1] {\n"+cases.String()+"\t}\n}\n")
}

// TestRandomPrograms_KilledAtPoints compares random programs that are killed at
// their points with the same programs built by the go command.
func TestRandomPrograms_KilledAtPoints(t *testing.T) { tryRandom(t, "random", Generate) }

// TestConcurrentPrograms_KilledAtPoints does so with programs that have
// goroutines.
func TestConcurrentPrograms_KilledAtPoints(t *testing.T) {
	tryRandom(t, "concurrent", GenerateConcurrent)
}

func tryRandom(t *testing.T, kind string, generate func(seed uint64, pkg string) (string, error)) {
	from, to := seeds(t)
	tb := &table{}
	t.Run("all", func(t *testing.T) {
		for first := from; first <= to; first += batch {
			t.Run(fmt.Sprint("from ", first), func(t *testing.T) {
				t.Parallel()
				packages := make(map[string]string)
				for seed := first; seed < first+batch && seed <= to; seed++ {
					name := fmt.Sprint("p", seed)
					src, err := generate(seed, name)
					if err != nil {
						t.Fatal(err)
					}
					if again, _ := generate(seed, name); again != src {
						t.Fatalf("seed %d gives two programs", seed)
					}
					packages[name] = src
				}
				tryBatch(t, tb, fmt.Sprint(kind, first), packages)
			})
		}
	})
	if len(tb.rows) > 0 {
		t.Logf("\n%s", tb)
	}
}

// tryBatch tries random programs that are built as one.
func tryBatch(t *testing.T, tb *table, name string, packages map[string]string) {
	dir := filepath.Join(scratch, name)
	writeModule(t, dir, packages)
	whole := &program{name: name, dir: dir, pkg: ".", marks: findMarks(t, dir, dir)}
	plain := filepath.Join(scratch, "plain-"+name)
	if text, err := compiler(t, dir, "go", "build", "-ldflags=-s -w", "-o", plain, ".").CombinedOutput(); err != nil {
		t.Fatalf("go build: %v\n%s", err, text)
	}
	var binary, said string
	built := false
	for pkg, src := range packages {
		t.Run(pkg, func(t *testing.T) {
			p := &program{name: pkg, args: []string{pkg}}
			want := p.plain(t, plain)
			if want.exit != 0 && want.exit != 7 {
				t.Fatalf("the program ends with status %d\n%s", want.exit, want.stderr)
			}
			if d := p.plain(t, plain).differs(want); d != "" {
				t.Fatalf("the plain program is not the same twice: %s", d)
			}
			needBuild(t)
			if !built {
				binary, said = whole.buildProtected(t)
				built = true
				t.Logf("%d of %d marked loops have points", len(whole.marks)-len(whole.missed), len(whole.marks))
			}
			use := binary
			if use == "" { // find out which one it is
				alone := filepath.Join(dir, "alone-"+pkg)
				writeModule(t, alone, map[string]string{pkg: src})
				if use, said = (&program{name: name + pkg, dir: alone, pkg: "."}).buildProtected(t); use == "" {
					tb.add(p, 0, 0, "REFUSED: "+reason(said))
					t.Fatalf("cairn build refuses:\n%s", said)
				}
			}
			p.compare(t, tb, use, want)
			if t.Failed() {
				t.Logf("%s", p.smaller(t, src, want))
			}
		})
	}
}

// smaller says how to get a smaller program that fails as p does. If
// CAIRN_DIFFTEST_SHRINK is set, it does so, with that number of attempts.
func (p *program) smaller(t *testing.T, src string, want *outcome) string {
	tries, _ := strconv.Atoi(os.Getenv("CAIRN_DIFFTEST_SHRINK"))
	if tries == 0 {
		return fmt.Sprintf("CAIRN_DIFFTEST_SHRINK=200 CAIRN_DIFFTEST_SEEDS=%s shrinks it", strings.TrimPrefix(p.name, "p"))
	}
	n := 0
	small := Shrink(src, tries, func(candidate string) bool {
		n++
		dir := filepath.Join(t.TempDir(), "m")
		writeModule(t, dir, map[string]string{p.name: candidate})
		one := &program{name: fmt.Sprint(p.name, "-", n), dir: dir, pkg: ".", args: p.args}
		plain := filepath.Join(dir, "plain")
		if _, err := command(t, dir, "go", "build", "-o", plain, ".").CombinedOutput(); err != nil {
			return false
		}
		want := one.plain(t, plain)
		if want.exit != 0 && want.exit != 7 {
			return false
		}
		binary, _ := one.buildProtected(t)
		if binary == "" {
			return false
		}
		defer os.Remove(binary)
		if one.plain(t, binary).differs(want) != "" {
			return true
		}
		for n := 1; n < 1<<20; n += 1 + n/4 {
			got := one.protected(t, binary, protection{killAt: strconv.Itoa(n)})
			if got.differs(want) != "" {
				return true
			}
			if got.kills == 0 {
				break
			}
		}
		return false
	})
	return "shrunk to\n" + small
}

// TestGenerator checks many programs without building them: they compile, and
// together they have all intended constructs.
func TestGenerator(t *testing.T) {
	checkGenerator(t, Generate, "func finish()",
		"//cairn:point", "break L", "continue L", "fallthrough", "goto ", "defer func", "defer tr(", "recover()", "go func", "select {", ".(type)",
		"range &", "range count(", "range odd(", ".walk {", "range filled(", "else if", "default:", "gFunc =", "gTable[", "boom(", ":= range", "for {", "delete(", "append(",
		".next()", "walker.next(", "state(state", ".both(", "1e-9", "!= nil; ", "> 0; ", "= false\n", "= nil\n", "= <-offer(1", "\treturn\n",
	)
}

// TestGenerator_Concurrent checks programs with goroutines likewise.
func TestGenerator_Concurrent(t *testing.T) {
	checkGenerator(t, GenerateConcurrent, "func f0(",
		"//cairn:point", "go func() {", "go func(", "go t.value(", "go later(", ").run(f)", "wg.Go(", "range jobs", "newQueue(", "once.Do(", "sync.OnceValue(",
		"select {", "case <-time.After(", "default:", "= nil\n", "<-tokens", "ctx.Done()", "context.WithTimeout(", "time.NewTicker(", "time.AfterFunc(", "time.Sleep(",
		".CompareAndSwap(", "next()", "b.wait()", "recover()", "r.reply <-", "sync.RWMutex", "sync.Map", "each(list", "<-left", "acc.add(", "f3(",
	)
}

// checkGenerator looks for parts in what follows the common part of programs.
func checkGenerator(t *testing.T, generate func(seed uint64, pkg string) (string, error), common string, parts ...string) {
	t.Helper()
	var all strings.Builder
	for seed := uint64(1000); seed < 1040; seed++ {
		src, err := generate(seed, "p")
		if err != nil {
			t.Fatal(err)
		}
		if !compiles(src) {
			t.Errorf("the program of seed %d does not compile", seed)
		}
		_, body, _ := strings.Cut(src, common)
		all.WriteString(body)
	}
	for _, part := range parts {
		if !strings.Contains(all.String(), part) {
			t.Errorf("no program has %q", part)
		}
	}
}

// TestShrink shrinks a program that "fails" as long as a loop in it has both a
// label and a call of g.
func TestShrink(t *testing.T) {
	const src = `// Package p is a program.
package p

import "fmt"

var used, unused = 1, 2

func g(n int) int {
	if n > 3 {
		n--
	}
	return n
}

func h() { fmt.Println("h") }

// Main is the program.
func Main() {
	a := 1
	b := 2
	_, _ = a, b
	if a < b {
	outer:
		for i := 0; i < 3; i++ { //cairn:point
			h()
			switch {
			case i == 2:
				break outer
			}
			{
				used = g(i)
			}
		}
	}
	h()
	fmt.Println(a, b)
	fmt.Println(used)
}
`
	small := Shrink(src, 500, func(s string) bool {
		return strings.Contains(s, "break outer") && strings.Contains(s, "g(i)") && strings.Contains(s, "fmt.Print")
	})
	if !compiles(small) || strings.Contains(small, "func h") || strings.Contains(small, "if ") || !strings.Contains(small, "//cairn:point") || strings.Contains(small, "a := 1") {
		t.Errorf("shrunk to\n%s", small)
	}
}
