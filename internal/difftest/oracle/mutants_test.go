//go:build linux

package oracle

import (
	"bytes"
	"crypto/sha256"
	"encoding/gob"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"go/ast"
	"go/importer"
	"go/parser"
	"go/token"
	"go/types"
	"hash/fnv"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"
)

// mutant is a change that makes the rewriter wrong.
type mutant struct {
	name, file, drops string
	old, new          string
	first             []string // programs to try first
}

const (
	mutantsFile = "testdata/mutants.txt"
	rewriter    = "../../../internal/compiler/golang/rewrite"
	tableFile   = "../../../docs/reliability.md"
)

// readMutants reads the list of mutants.
func readMutants(t *testing.T) (list []*mutant) {
	t.Helper()
	text, err := os.ReadFile(mutantsFile)
	if err != nil {
		t.Fatal(err)
	}
	var was, now []string
	for line := range strings.Lines(string(text) + "\nmutant\n") {
		line = strings.TrimSuffix(line, "\n")
		key, value, _ := strings.Cut(line, " ")
		switch {
		case line == "" || line[0] == '#':
		case line[0] == '-':
			was = append(was, line[1:])
		case line[0] == '+':
			now = append(now, line[1:])
		case key == "mutant":
			if len(list) > 0 {
				m := list[len(list)-1]
				m.old, m.new = strings.Join(was, "\n"), strings.Join(now, "\n")
			}
			if was, now = nil, nil; value != "" {
				list = append(list, &mutant{name: value})
			}
		case key == "file":
			list[len(list)-1].file = value
		case key == "first":
			list[len(list)-1].first = strings.Fields(value)
		case key == "drops":
			list[len(list)-1].drops = value
		default:
			t.Fatalf("%s: what is %q?", mutantsFile, line)
		}
	}
	return list
}

// apply returns the changed file.
func (m *mutant) apply() ([]byte, error) {
	text, err := os.ReadFile(filepath.Join(rewriter, m.file))
	if err != nil {
		return nil, err
	}
	if n := bytes.Count(text, []byte(m.old)); n != 1 || m.old == "" {
		return nil, fmt.Errorf("mutant %s: the text that it changes is %d times in %s: bring %s up to date", m.name, n, m.file, mutantsFile)
	}
	return bytes.Replace(text, []byte(m.old), []byte(m.new), 1), nil
}

// TestMutants_Apply shows that every mutant can still be applied, and that the
// table in the documentation has all of them.
func TestMutants_Apply(t *testing.T) {
	list := readMutants(t)
	if len(list) < 30 {
		t.Fatalf("only %d mutants", len(list))
	}
	out, err := exec.Command("go", "list", "-export", "-deps", "-f", "{{if .Export}}{{.ImportPath}} {{.Export}}{{end}}", rewriter+"/...").Output()
	if err != nil {
		t.Fatalf("go list: %v", err)
	}
	exports := make(map[string]string)
	for line := range strings.Lines(string(out)) {
		path, file, _ := strings.Cut(strings.TrimSpace(line), " ")
		exports[path] = file
	}
	fset := token.NewFileSet()
	im := importer.ForCompiler(fset, "gc", func(path string) (io.ReadCloser, error) { return os.Open(exports[path]) })
	files := make(map[string]*ast.File)
	var names []string
	for _, pattern := range []string{"*.go", "*/*.go"} {
		list, err := filepath.Glob(filepath.Join(rewriter, pattern))
		if err != nil {
			t.Fatal(err)
		}
		names = append(names, list...)
	}
	for _, name := range names {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		f, err := parser.ParseFile(fset, name, nil, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		rel, err := filepath.Rel(rewriter, name)
		if err != nil {
			t.Fatal(err)
		}
		files[rel] = f
	}
	doc, err := os.ReadFile(tableFile)
	if err != nil {
		t.Fatal(err)
	}
	seen := make(map[string]bool)
	for _, m := range list {
		if seen[m.name] || m.drops == "" {
			t.Errorf("mutant %s is there twice, or does not say what it drops", m.name)
		}
		seen[m.name] = true
		if !bytes.Contains(doc, []byte("| "+m.name+" |")) {
			t.Errorf("mutant %s is not in %s: 'make mutants' makes the table", m.name, tableFile)
		}
		if _, err := m.apply(); err != nil {
			t.Error(err)
		}
	}
	if t.Failed() {
		return
	}
	// check compiles the packages of the rewriter that have changed files.
	check := func(changed map[string][]byte) error {
		packages := make(map[string][]*ast.File)
		for name := range changed {
			packages[filepath.Dir(name)] = nil
		}
		for name, f := range files {
			if text, ok := changed[name]; ok {
				var err error
				if f, err = parser.ParseFile(fset, name, text, parser.SkipObjectResolution); err != nil {
					return err
				}
			}
			if all, ok := packages[filepath.Dir(name)]; ok {
				packages[filepath.Dir(name)] = append(all, f)
			}
		}
		for dir, all := range packages {
			if _, err := (&types.Config{Importer: im}).Check(dir, fset, all, nil); err != nil {
				return err
			}
		}
		return nil
	}
	// As many mutants as fit together are compiled at once. Each is compiled
	// alone only if that fails.
	for rest := list; len(rest) > 0; {
		var together, later []*mutant
		changed := make(map[string][]byte)
		for _, m := range rest {
			text, ok := changed[m.file]
			if !ok {
				text, _ = os.ReadFile(filepath.Join(rewriter, m.file))
			}
			if bytes.Count(text, []byte(m.old)) != 1 {
				later = append(later, m)
				continue
			}
			changed[m.file] = bytes.Replace(text, []byte(m.old), []byte(m.new), 1)
			together = append(together, m)
		}
		rest = later
		if check(changed) == nil {
			continue
		}
		for _, m := range together {
			text, _ := m.apply()
			if err := check(map[string][]byte{m.file: text}); err != nil {
				t.Errorf("mutant %s does not compile: %v", m.name, err)
			}
		}
	}
}

// TestOneMutant finds the directory of TestMutants, and the name of its mutant,
// in these environment variables.
const (
	envMutant     = "CAIRN_ORACLE_MUTANTS"
	envMutantName = "CAIRN_ORACLE_MUTANT"
)

// TestMutants builds the compiler with each mutant, and tries programs with it
// until one shows a wrong result. CAIRN_MUTANTS=REGEXP selects mutants by name,
// CAIRN_MUTANTS_PROGRAMS=REGEXP programs. CAIRN_MUTANTS_DIR=DIR keeps results,
// and continues there as long as the test binary is the same.
func TestMutants(t *testing.T) {
	pattern := os.Getenv("CAIRN_MUTANTS")
	if !long && pattern == "" {
		t.Skip("CAIRN_LONG=1 tries this; TestMutants_Apply holds that the mutants can be made")
	}
	wanted := regexp.MustCompile(pattern)
	dir := os.Getenv("CAIRN_MUTANTS_DIR")
	if dir == "" {
		dir = t.TempDir()
	}
	dir, err := filepath.Abs(filepath.Join(dir, selfKey(t)))
	if err != nil {
		t.Fatal(err)
	}
	for _, sub := range []string{"plain", "rewritten", "found", "bin"} {
		if err := os.MkdirAll(filepath.Join(dir, sub), 0o777); err != nil {
			t.Fatal(err)
		}
	}
	list := readMutants(t)
	noteRewritings(t, dir)
	t.Run("mutants", func(t *testing.T) {
		for _, m := range list {
			if !wanted.MatchString(m.name) {
				continue
			}
			t.Run(m.name, func(t *testing.T) {
				t.Parallel()
				if by := m.try(t, dir); by == "" {
					t.Errorf("it survives: no program shows that the rewriter drops %s", m.drops)
				}
			})
		}
	})
	checkKillers(t, list, dir)
	table := mutantTable(list, dir)
	t.Logf("\n%s", table)
	if name := os.Getenv("CAIRN_MUTANTS_TABLE"); name != "" {
		replaceTable(t, name, table)
	}
}

// mutantPrograms returns the programs for mutants, in a directory named by
// whose. All such directories have names of the same length, because gofmt's
// line breaks depend on it.
func mutantPrograms(t *testing.T, dir, whose string) []*program {
	t.Helper()
	h := fnv.New32a()
	h.Write([]byte(whose))
	to := filepath.Join(dir, fmt.Sprintf("programs-%08x", h.Sum32()))
	remove := func() {
		if err := os.RemoveAll(to); err != nil {
			t.Error(err)
		}
	}
	remove()
	t.Cleanup(remove)
	list := markedPrograms(t, filepath.Join(to, "marked"))
	root := testDir(t)
	all, _ := findPrograms(t, root)
	_, listed := readList(t)
	for _, p := range all {
		h := fnv.New32a()
		h.Write([]byte(p.name))
		if _, ok := listed[p.name]; ok || h.Sum32()%(sample/6) != 0 {
			continue
		}
		if err := p.locate(root, newWork(t, to, p)); err != nil {
			t.Fatal(err)
		}
		list = append(list, p)
	}
	some := regexp.MustCompile(os.Getenv("CAIRN_MUTANTS_PROGRAMS"))
	return slices.DeleteFunc(list, func(p *program) bool { return !some.MatchString(p.name) })
}

// fileName has no ending .go: the go command would look for a package there.
func (p *program) fileName() string {
	return strings.ReplaceAll(strings.TrimSuffix(p.name, ".go"), "/", "-")
}

// want finds out what a program does when the go command builds it, unless that
// is known.
func (p *program) want(t *testing.T, dir, work string) *standard {
	t.Helper()
	name := filepath.Join(dir, "plain", p.fileName())
	if text, err := os.ReadFile(name); err == nil {
		want := new(standard)
		if gob.NewDecoder(bytes.NewReader(text)).Decode(want) == nil {
			return want
		}
	}
	want := p.plainly(t, work)
	var text bytes.Buffer
	if err := gob.NewEncoder(&text).Encode(want); err != nil {
		t.Fatal(err)
	}
	part, err := os.CreateTemp(filepath.Dir(name), ".part-")
	if err != nil {
		t.Fatal(err)
	}
	_, err = part.Write(text.Bytes())
	if err = errors.Join(err, part.Close(), os.Rename(part.Name(), name)); err != nil {
		t.Fatal(err)
	}
	return want
}

// rewriting returns a digest of the compiler's result or refusal for a program.
func (p *program) rewriting(t *testing.T) string {
	t.Helper()
	h := sha256.New()
	rewritten, err := p.rewrite(t.Context())
	if err != nil {
		fmt.Fprintln(h, err)
	} else {
		for _, name := range slices.Sorted(maps.Keys(rewritten.Files)) {
			text := strings.ReplaceAll(string(rewritten.Files[name]), p.dir, "DIR")
			fmt.Fprintf(h, "%s %d\n%s", strings.ReplaceAll(name, p.dir, "DIR"), len(text), text)
		}
	}
	return hex.EncodeToString(h.Sum(nil))
}

// noteRewritings records what the correct compiler makes of each program. A
// program cannot kill a mutant that makes the same of it.
func noteRewritings(t *testing.T, dir string) {
	t.Helper()
	t.Run("rewritings", func(t *testing.T) {
		for _, p := range mutantPrograms(t, dir, "rewritings") {
			name := filepath.Join(dir, "rewritten", p.fileName())
			if _, err := os.Stat(name); err == nil {
				continue
			}
			t.Run(p.name, func(t *testing.T) {
				if err := os.WriteFile(name, []byte(p.rewriting(t)), 0o666); err != nil {
					t.Fatal(err)
				}
			})
		}
	})
}

// checkKillers checks that the programs which killed mutants are right with the
// correct compiler. Otherwise they prove nothing.
func checkKillers(t *testing.T, list []*mutant, dir string) {
	t.Helper()
	killers := make(map[string]bool)
	for _, m := range list {
		if text, err := os.ReadFile(filepath.Join(dir, "found", m.name)); err == nil {
			name, _, _ := strings.Cut(string(text), ": ")
			killers[name] = true
		}
	}
	t.Run("killers", func(t *testing.T) {
		scratch := t.TempDir()
		for _, p := range mutantPrograms(t, dir, "killers") {
			if !killers[p.name] {
				continue
			}
			t.Run(p.name, func(t *testing.T) {
				t.Parallel()
				work := newWork(t, scratch, p)
				defer os.RemoveAll(work)
				if r := p.compare(t, work, p.want(t, dir, work)); r.verdict != right {
					t.Errorf("it kills mutants, and is not right with the compiler as it is: %s, %s", r.verdict, r.reason)
				}
			})
		}
	})
}

// try looks for a program that kills a mutant, and returns how it does.
func (m *mutant) try(t *testing.T, dir string) string {
	t.Helper()
	name := filepath.Join(dir, "found", m.name)
	if text, err := os.ReadFile(name); err == nil {
		return string(text)
	}
	text, err := m.apply()
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(dir, "bin", m.name+".changed")
	if err := os.WriteFile(file, text, 0o666); err != nil {
		t.Fatal(err)
	}
	at, err := filepath.Abs(filepath.Join(rewriter, m.file))
	if err != nil {
		t.Fatal(err)
	}
	overlay, err := json.Marshal(map[string]any{"Replace": map[string]string{at: file}})
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file+".json", overlay, 0o666); err != nil {
		t.Fatal(err)
	}
	binary := filepath.Join(dir, "bin", m.name)
	defer os.Remove(binary)
	if text, err := exec.Command("go", "test", "-c", "-vet=off", "-overlay", file+".json", "-o", binary, ".").CombinedOutput(); err != nil {
		t.Fatalf("go test -c: %v\n%s", err, text)
	}
	cmd := exec.Command(binary, "-test.run=^TestOneMutant$", "-test.timeout=1h", "-test.v")
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}                         // if the test is stopped, its processes end, too
	cmd.Env = append(os.Environ(), envMutant+"="+dir, envMutantName+"="+m.name, "CAIRN_LONG=") // mutants run side by side, each with few kills
	out, err := cmd.CombinedOutput()
	by := ""
	if found := killedBy.FindStringSubmatch(string(out)); found != nil {
		by = found[1]
	} else if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	for name, text := range map[string][]byte{file + ".log": out, name: []byte(by)} {
		if err := os.WriteFile(name, text, 0o666); err != nil {
			t.Fatal(err)
		}
	}
	t.Logf("killed by %s", by)
	return by
}

var killedBy = regexp.MustCompile(`(?m)KILLED BY (.*)$`)

// TestOneMutant is run by TestMutants, with a wrong compiler.
func TestOneMutant(t *testing.T) {
	dir := os.Getenv(envMutant)
	if dir == "" {
		t.Skip("TestMutants runs this")
	}
	patience = time.Minute // a program with a wrong rewriting may never end
	list := mutantPrograms(t, dir, os.Getenv(envMutantName))
	for _, m := range readMutants(t) {
		if m.name == os.Getenv(envMutantName) {
			slices.SortStableFunc(list, func(a, b *program) int {
				at := func(p *program) int {
					if i := slices.Index(m.first, p.name); i >= 0 {
						return i
					}
					return len(m.first)
				}
				return at(a) - at(b)
			})
		}
	}
	scratch := t.TempDir()
	for _, p := range list {
		if why := p.kills(t, dir, scratch); why != "" {
			fmt.Printf("KILLED BY %s: %s\n", p.name, why)
			return
		}
	}
}

// kills describes how a program shows that the compiler is wrong, or returns
// "".
func (p *program) kills(t *testing.T, dir, scratch string) (why string) {
	defer func() {
		if r := recover(); r != nil {
			why = fmt.Sprintf("the compiler panics: %v", r)
		}
	}()
	was, err := os.ReadFile(filepath.Join(dir, "rewritten", p.fileName()))
	if err != nil {
		t.Fatal(err)
	}
	if p.rewriting(t) == string(was) {
		return ""
	}
	work := newWork(t, scratch, p)
	defer os.RemoveAll(work)
	want := p.want(t, dir, work)
	if want.Verdict != "" {
		return ""
	}
	fmt.Printf("%s: rewritten in another way\n", p.name)
	r := p.compare(t, work, want)
	if r.verdict == right {
		return ""
	}
	reason, _, _ := strings.Cut(r.reason, "\n")
	return r.verdict + ", " + reason
}

// mutantTable returns the results of mutants, in Markdown.
func mutantTable(list []*mutant, dir string) string {
	var b strings.Builder
	survive := 0
	b.WriteString("| mutant | drops | killed by |\n|---|---|---|\n")
	for _, m := range list {
		by := "not tried"
		if text, err := os.ReadFile(filepath.Join(dir, "found", m.name)); err == nil {
			if by = string(text); by == "" {
				by = "**survives**"
				survive++
			}
		}
		by = strings.NewReplacer("|", "\\|", "\n", " ").Replace(by)
		if n := 160; len(by) > n {
			by = strings.ToValidUTF8(by[:n], "") + "…"
		}
		fmt.Fprintf(&b, "| %s | %s | %s |\n", m.name, m.drops, by)
	}
	fmt.Fprintf(&b, "\n%d mutants, %d survive.\n", len(list), survive)
	return b.String()
}

// replaceTable inserts the table into a document, between two comments.
func replaceTable(t *testing.T, name, table string) {
	t.Helper()
	text, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	const begin, end = "<!-- mutants -->\n", "<!-- /mutants -->"
	head, rest, ok1 := strings.Cut(string(text), begin)
	_, tail, ok2 := strings.Cut(rest, end)
	if !ok1 || !ok2 {
		t.Fatalf("%s has no place for the table of mutants", name)
	}
	if err := os.WriteFile(name, []byte(head+begin+table+end+tail), 0o666); err != nil {
		t.Fatal(err)
	}
}
