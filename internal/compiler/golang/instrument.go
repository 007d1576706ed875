package golang

import (
	"bytes"
	"errors"
	"fmt"
	"go/ast"
	"go/constant"
	"go/format"
	"go/token"
	"go/types"
	"maps"
	"os"
	"slices"
	"strings"

	"github.com/cairnrun/cairn/internal/compiler/golang/rewrite"
	"github.com/cairnrun/cairn/internal/compiler/ir"
	"github.com/cairnrun/cairn/internal/control"
)

// ErrRefused says that a program can't be made restartable.
var ErrRefused = errors.New("the program can't be made restartable")

// Import paths of the run time: of programs that use Cairn, and of the others.
const (
	runtimePath = cairnPath + "/resume"
	laidPath    = "cairnrt/resume"
)

// InstrumentOptions of Instrument.
type InstrumentOptions struct {
	// Explain says how loops are chosen.
	Explain ExplainOptions
	// Everywhere puts a point into every loop and at the beginning of every
	// function that can have one. It is for tests: such a program is slow.
	Everywhere bool `json:",omitempty"`
}

// Instrumented is a program that can be restarted.
type Instrumented struct {
	// Files are the files that differ from the program's own, by their absolute
	// names; some are new.
	Files map[string][]byte
	// Runtime is the import path of the run time that they use.
	Runtime string
	// Points are where checkpoints may be taken.
	Points []PointInfo
	// Frames are what is saved of every function on the way to a point.
	Frames []frameInfo
	// Globals are the package variables that are saved.
	Globals []string
	// Reads says that the program reads stdin.
	Reads bool
	// Refused is why other loops have no point.
	Refused []*rewrite.Refusal
	// Uncovered says which work is not saved, and what to do about it.
	Uncovered []string
	// Warnings are sentences about the points, with their positions.
	Warnings []string
	// Explanation is how loops were chosen.
	Explanation *Explanation

	short   func(name string) string
	unsaved []string      // closures that can't be saved
	open    []openClosure // of the packages, for registerOpen
	asked   int           // how many of Warnings, the first ones, are about comments
	told    []string      // of Refused: those that Uncovered tells of
	without map[place]*rewrite.Refusal
}

type frameInfo = rewrite.FrameInfo

// relative is how a file is called in messages.
func (in *Instrumented) relative(name string) string {
	if in.short == nil {
		return name
	}
	return in.short(name)
}

// Readable is one of Files without what tells its statements their lines.
func (in *Instrumented) Readable(name string) []byte {
	text := rewrite.Plain(in.Files[name])
	if t, err := format.Source(text); err == nil {
		return t
	}
	return text
}

// PointInfo is a place where checkpoints may be taken.
type PointInfo struct {
	File     string `json:"file"`
	Line     int    `json:"line"`
	Function string `json:"function"`

	begin, end int // lines between which its mark is: of the brace, and of what follows
}

// instrumenter makes a program restartable.
type instrumenter struct {
	p       *Program
	calls   *callGraph
	from    map[*function]bool  // that main leads to
	others  map[*function]*site // that may run on other goroutines
	loops   map[ast.Node]*function
	tried   map[ast.Node]bool
	points  []ast.Stmt
	inner   map[ast.Node]bool              // of points: loops besides those that were chosen
	banned  map[*function]*rewrite.Refusal // they can't be on the spine
	lost    map[ast.Node]*rewrite.Refusal  // had a point, and can't
	sources map[*source]*rewrittenSource   // by the last attempt
	infos   map[ast.Node]LoopInfo
	rounds  int
	pricer  *pricer
	low     *pricer
	shares  map[ir.Pos]float64    // of samples, if there is a profile
	trips   map[ir.Pos]int        // rounds of loops that have a known number of them
	works   map[ast.Node]int      // see work
	alives  map[ast.Node][]string // see goroutines
	waiting map[string]bool       // go statements whose goroutines wait for signals; see waitsOnly
	refused []*rewrite.Refusal
	used    map[*types.Var]use

	explained  *Explanation
	everywhere bool // see InstrumentOptions
}

func newInstrumenter(p *Program) *instrumenter {
	in := &instrumenter{p: p, calls: newCallGraph(p), loops: map[ast.Node]*function{}, tried: map[ast.Node]bool{}, works: map[ast.Node]int{}, inner: map[ast.Node]bool{}, alives: map[ast.Node][]string{},
		banned: map[*function]*rewrite.Refusal{}, lost: map[ast.Node]*rewrite.Refusal{}, sources: map[*source]*rewrittenSource{}, infos: map[ast.Node]LoopInfo{}}
	if in.calls.main != nil {
		in.from = reach([]*function{in.calls.main}, plainCall)
		in.others = in.calls.concurrent()
	}
	return in
}

// Instrument chooses a program's points and rewrites it. An error that wraps
// ErrRefused says why that can't be done.
func Instrument(p *Program, o InstrumentOptions) (*Instrumented, error) {
	if p.calls.failed {
		return nil, fmt.Errorf("%w: %s", ErrRefused, strings.Join(p.Warnings, "; "))
	}
	if err := p.takesOwn(); err != nil {
		return nil, err
	}
	in := newInstrumenter(p)
	if in.calls.main == nil {
		return nil, fmt.Errorf("%w: it has no main function", ErrRefused)
	}
	if err := in.devices(); err != nil {
		return nil, err
	}
	e := Explain(p, o.Explain)
	asked, err := p.asked(e)
	if err != nil {
		return nil, err
	}
	if o.Explain.Samples != nil {
		in.shares = o.Explain.Samples.shares(p)
	}
	in.everywhere = o.Everywhere
	in.choose(e)
	if len(in.points) == 0 {
		in.next()
	}
	for {
		out, err := in.attempt()
		var r *rewrite.Refusal
		if errors.As(err, &r) {
			if !in.retreat(r) {
				return nil, in.failure()
			}
			continue
		}
		if err != nil {
			return nil, err
		}
		out.asked = len(asked)
		out.Warnings = slices.Concat(asked, in.company(), out.unsaved[:min(3, len(out.unsaved))])
		if n := len(out.unsaved) - 3; n > 0 {
			out.Warnings = append(out.Warnings, fmt.Sprintf("%d closures more can't be saved either", n))
		}
		if len(e.Ranks) == 0 && !in.everywhere {
			out.Uncovered, out.told = in.uncovered()
		}
		out.without = in.without()
		out.Refused, out.Explanation, out.Reads, out.short = in.refused, e, p.readsInput(), p.short
		return out, nil
	}
}

// failure is the error of a program without points.
func (in *instrumenter) failure() error {
	if len(in.refused) == 0 {
		return fmt.Errorf("%w: no loop was chosen, by the count of its work; put a comment //cairn:point before the loop that does the work. A program without loops is run as it is by 'go build' and 'cairn run ./BINARY'", ErrRefused)
	}
	var l []string
	for _, r := range in.refused {
		l = append(l, r.Error())
	}
	return &refusedError{fmt.Sprintf("%v:\n%s", ErrRefused, strings.Join(l, "\n")), in.without()}
}

// attempt rewrites the program for the points at hand.
func (in *instrumenter) attempt() (*Instrumented, error) {
	if len(in.points) == 0 {
		return nil, in.failure()
	}
	out := &Instrumented{Files: map[string][]byte{}, Runtime: laidPath}
	if in.p.usesCairn() {
		out.Runtime = runtimePath
	}
	spine := map[*function]bool{}
	marks := map[*source]map[token.Pos]string{}
	mark := func(s *source, at token.Pos, text string) {
		if marks[s] == nil {
			marks[s] = map[token.Pos]string{}
		}
		marks[s][at] = text
	}
	for _, n := range in.points {
		fn := in.loops[n]
		maps.Copy(spine, in.calls.leading(fn, in.from, in.can))
		body := loopBody(n)
		if n == ast.Stmt(fn.body) {
			mark(fn.s, firstIn(body), rewrite.BlockMark)
		} else {
			mark(fn.s, body.Lbrace+1, rewrite.PointMark)
		}
		at := in.p.at(n.Pos())
		point := PointInfo{File: at.File, Line: at.Line, Function: fn.name(), begin: in.p.at(body.Lbrace).Line, end: in.p.at(body.Rbrace).Line}
		if len(body.List) > 0 {
			point.end = in.p.at(body.List[0].Pos()).Line
		}
		out.Points = append(out.Points, point)
	}
	for i, fn := range in.calls.all {
		if !spine[fn] {
			continue
		}
		if lit, ok := fn.node.(*ast.FuncLit); ok {
			mark(fn.s, lit.Body.Lbrace+1, fmt.Sprintf(rewrite.LitMark, i))
		}
		for _, t := range fn.sites {
			if t.kind != plainCall || !slices.ContainsFunc(t.to, func(f *function) bool { return spine[f] }) {
				continue
			}
			if t.loop != nil {
				mark(fn.s, t.loop.Range+token.Pos(len("range")), rewrite.RangeMark)
			} else {
				mark(fn.s, t.call.Lparen+1, rewrite.CallMark)
			}
		}
	}
	var own []*source
	for _, s := range in.p.ld.sources {
		if !in.p.own(s) {
			continue
		}
		own = append(own, s)
		in.markWaits(s, mark)
		if r := in.sources[s]; r == nil || !maps.Equal(r.marks, marks[s]) {
			if err := in.prepare(s, marks[s]); err != nil {
				return nil, err
			}
		}
	}
	quick := in.quick(spine)
	for _, s := range own {
		if err := in.weave(s, quick[s], out); err != nil {
			return nil, err
		}
	}
	in.p.writeNames(out)
	return out, in.registerOpen(out)
}

// rewrittenSource is what came of a package.
type rewrittenSource struct {
	marks map[token.Pos]string
	was   map[string][]byte // its text
	p     *rewrite.Package  // ready to be woven
	made  *rewrite.Made
	lits  map[string]string   // see Lifted
	can   map[string][]string // see Quick
	quick map[string]bool     // with which it was woven
	out   *Instrumented
}

// quick finds the functions that can be left when a set is due: all that they lead
// to by calls, on the way to points, can be, too.
func (in *instrumenter) quick(spine map[*function]bool) map[*source]map[string]bool {
	name := map[*function]string{}
	lifted := map[*function]bool{} // what calls them can call nothing else
	quick := map[*source]map[string]bool{}
	for i, fn := range in.calls.all {
		r := in.sources[fn.s]
		if !spine[fn] || r == nil {
			continue
		}
		s := r.lits[fmt.Sprint(i)]
		lifted[fn] = s != ""
		if d, ok := fn.node.(*ast.FuncDecl); ok {
			s = rewrite.FuncName(d)
		}
		if _, ok := r.can[s]; !ok {
			continue
		}
		if name[fn] = s; quick[fn.s] == nil {
			quick[fn.s] = map[string]bool{}
		}
		quick[fn.s][s] = true
	}
	for changed := true; changed; {
		changed = false
		for fn, s := range name {
			bad := slices.ContainsFunc(in.sources[fn.s].can[s], func(to string) bool { return !quick[fn.s][to] })
			for _, t := range fn.sites {
				kept := func(to *function) bool { return spine[to] && name[to] == "" }
				if t.kind == plainCall {
					bad = bad || slices.ContainsFunc(t.to, kept) || !(len(t.to) == 1 && lifted[t.to[0]]) && slices.ContainsFunc(t.may, kept)
				}
			}
			if bad {
				delete(name, fn)
				delete(quick[fn.s], s)
				changed = true
			}
		}
	}
	return quick
}

func loopBody(n ast.Node) *ast.BlockStmt {
	switch n := n.(type) {
	case *ast.ForStmt:
		return n.Body
	case *ast.RangeStmt:
		return n.Body
	case *ast.BlockStmt: // of a function; see Everywhere
		return n
	}
	return nil
}

// replaced are functions of libraries that have an effect on a run, and what
// stands for them in the run time.
var replaced = map[string]string{
	"os.Exit": "Exit", "os.Open": "Open", "os.Create": "Create", "os.OpenFile": "OpenFile", "os.CreateTemp": "CreateTemp",
	"os.Mkdir": "Mkdir", "os.MkdirAll": "MkdirAll", "os.MkdirTemp": "MkdirTemp", "os.Remove": "Remove", "os.RemoveAll": "RemoveAll", "os.Rename": "Rename",
	"os.WriteFile": "WriteFile", "os.Truncate": "Truncate", "os.Link": "Link", "os.Symlink": "Symlink", "os.Chmod": "Chmod", "os.CopyFS": "CopyFS", "os.OpenRoot": "OpenRoot",
	"io/ioutil.WriteFile": "WriteFile", "io/ioutil.TempFile": "CreateTemp", "io/ioutil.TempDir": "MkdirTemp",
	"log.Fatal": "Fatal", "log.Fatalf": "Fatalf", "log.Fatalln": "Fatalln",
	"os/signal.NotifyContext": "NotifyContext", "os/signal.Notify": "Notify", "os/signal.Stop": "StopNotify",
	"os/signal.Ignore": "Ignore", "os/signal.Ignored": "Ignored", "os/signal.Reset": "ResetSignals",
	"runtime.SetFinalizer": "SetFinalizer", "runtime.AddCleanup": "AddCleanup",
	"time.AfterFunc": "AfterFunc", "context.AfterFunc": "ContextAfterFunc",
	"context.WithCancel": "WithCancel", "context.WithCancelCause": "WithCancelCause",
	"context.WithDeadline": "WithDeadline", "context.WithDeadlineCause": "WithDeadlineCause",
	"context.WithTimeout": "WithTimeout", "context.WithTimeoutCause": "WithTimeoutCause",
	"context.WithValue": "WithValue", "context.WithoutCancel": "WithoutCancel",
	cairnPath + ".Open": "OpenRun",
}

// random are the functions of math/rand with a generator of their own.
var random = []string{"ExpFloat64", "Float32", "Float64", "Int", "Int31", "Int31n", "Int63", "Int63n", "Intn",
	"NormFloat64", "Perm", "Read", "Shuffle", "Uint32", "Uint64"}

// replacements are those for this program. A program that seeds the generator of
// math/rand, or whose settings let it begin with the seed 1, has it saved.
func (p *Program) replacements() map[string]string {
	all := maps.Clone(replaced)
	if p.savesRandom() {
		all["math/rand.Seed"] = "Seed"
		for _, f := range random {
			all["math/rand."+f] = "Rand()." + f
		}
	}
	return all
}

// savesRandom says that the generator of math/rand may give the same numbers in
// each run, as far as is known when the program is built.
func (p *Program) savesRandom() bool {
	return p.usesRandom("Seed") || slices.Contains(strings.Split(p.ld.main.DefaultGODEBUG, ","), "randautoseed=0")
}

// usesRandom says that the program names one of some functions of math/rand.
func (p *Program) usesRandom(names ...string) bool {
	for _, s := range p.ld.sources {
		for _, o := range s.info.Uses {
			if o.Pkg() != nil && o.Pkg().Path() == "math/rand" && o.Parent() == o.Pkg().Scope() && slices.Contains(names, o.Name()) {
				return true
			}
		}
	}
	return false
}

// prepare rewrites a package up to where its functions are woven.
func (in *instrumenter) prepare(s *source, marks map[token.Pos]string) error {
	p, err := in.p.rewritten(s)
	if err != nil {
		return err
	}
	was := p.Source
	if p, err = p.Marked(marks); err != nil {
		return err
	}
	if p, err = p.Hoisted((*rewrite.Package).Spine); err != nil {
		return err
	}
	if p, err = p.Ranges(); err != nil {
		return err
	}
	if p, err = p.Results((*rewrite.Package).Spine); err != nil {
		return err
	}
	if p, err = p.Gotos((*rewrite.Package).Spine); err != nil {
		return err
	}
	p, lits := p.Lifted()
	p, made, err := p.Closures(p.Keeps)
	if err != nil {
		return err
	}
	if made.Stuck != nil { // whoever calls it could not call it again
		return made.Stuck
	}
	if p, err = p.Normal(p.Spine()); err != nil {
		return err
	}
	can, err := p.Quick()
	if err != nil {
		return err
	}
	in.sources[s] = &rewrittenSource{marks: marks, was: was, p: p, made: made, lits: lits, can: can}
	return nil
}

// weave rewrites the functions of a package, unless that was done in the same way.
func (in *instrumenter) weave(s *source, quick map[string]bool, out *Instrumented) error {
	r := in.sources[s]
	if r.out == nil || !maps.Equal(r.quick, quick) {
		r.quick, r.out = quick, nil
		own := &Instrumented{Files: map[string][]byte{}, Runtime: out.Runtime}
		woven, err := r.p.Weave(out.Runtime, in.p.replacements(), quick)
		if err != nil {
			return err
		}
		for name, text := range r.p.Source {
			if t := woven.Files[name]; t != nil {
				text = t
			}
			if text = rewrite.Unmarked(text); !bytes.Equal(rewrite.Plain(text), r.was[name]) {
				if text, err = format.Source(text); err != nil {
					return fmt.Errorf("%s: %w", name, err)
				}
				own.Files[name] = rewrite.Generic(rewrite.Lined(text), r.p.GoVersion)
			}
		}
		own.Frames = woven.Frames
		if err := in.register(s, r.p, r.made, own); err != nil {
			return err
		}
		r.out = own
	}
	maps.Copy(out.Files, r.out.Files)
	out.Frames = append(out.Frames, r.out.Frames...)
	out.Globals = append(out.Globals, r.out.Globals...)
	out.unsaved = append(out.unsaved, r.out.unsaved...)
	out.open = append(out.open, r.out.open...)
	return nil
}

// own says that a package's source can be replaced.
func (p *Program) own(s *source) bool { return !s.Standard && len(s.CgoFiles) == 0 }

// usesCairn says that the program uses a package of Cairn whose values can be
// saved, so that it has Cairn's module.
func (p *Program) usesCairn() bool {
	for _, path := range []string{cairnPath, mpiPath, devicePath} {
		if p.ld.byPath[path] != nil {
			return true
		}
	}
	return false
}

// rewritten is a package for package rewrite.
func (p *Program) rewritten(s *source) (*rewrite.Package, error) {
	q := &rewrite.Package{Path: s.ImportPath, Fset: p.ld.fset, Files: s.files, Source: map[string][]byte{}, Types: s.types, Info: s.info,
		Sizes: types.SizesFor("gc", "amd64"), Importer: &imports{compiled: p.ld.im.compiled, source: p.ld.im.source, of: s}, Named: p.named, Asks: p.asks}
	if s.Module != nil {
		q.GoVersion = "go1.16" // as go build takes modules that do not say
		if s.Module.GoVersion != "" {
			q.GoVersion = "go" + s.Module.GoVersion
		}
	}
	for _, f := range s.files {
		name := p.ld.fset.File(f.FileStart).Name()
		text, err := os.ReadFile(name)
		if err != nil {
			return nil, err
		}
		q.Source[name] = text
	}
	return q, nil
}

// asks says that functions of a package, or of what it imports, look at who calls
// them: loggers, errors with the place that they come from.
func (p *Program) asks(path string) bool {
	p.looked.Do(func() {
		p.askers = map[string]bool{"log/slog": true}
		for _, s := range p.ld.sources {
			if p.own(s) && rewrite.AsksForCallers(s.info) {
				p.askers[s.ImportPath] = true
			}
		}
		for grew := true; grew; {
			grew = false
			for _, s := range p.ld.sources {
				if !p.askers[s.ImportPath] && p.own(s) && slices.ContainsFunc(s.Imports, func(i string) bool { return p.askers[i] }) {
					p.askers[s.ImportPath], grew = true, true
				}
			}
		}
	})
	return p.askers[path]
}

// readsInput says that the program names stdin, or a function that reads it.
func (p *Program) readsInput() bool {
	for _, s := range p.ld.sources {
		for _, tv := range s.info.Types {
			if tv.Value != nil && tv.Value.Kind() == constant.String {
				if fd, ok := control.StreamOf(constant.StringVal(tv.Value)); ok && fd == 0 {
					return true
				}
			}
		}
		for _, o := range s.info.Uses {
			if o.Pkg() == nil || o.Parent() != o.Pkg().Scope() {
				continue
			}
			switch o.Pkg().Path() + "." + o.Name() {
			case "os.Stdin", "fmt.Scan", "fmt.Scanf", "fmt.Scanln", "syscall.Stdin":
				return true
			}
		}
	}
	return false
}
