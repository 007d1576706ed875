package golang

import (
	"bytes"
	"errors"
	"fmt"
	"go/ast"
	"go/format"
	"go/token"
	"go/types"
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"

	"github.com/cairnrun/cairn/compiler/golang/rewrite"
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
	Frames []rewrite.FrameInfo
	// Globals are the package variables that are saved.
	Globals []string
	// Reads says that the program reads stdin.
	Reads bool
	// Refused is why other loops have no point.
	Refused []*rewrite.Refusal
	// Explanation is how loops were chosen.
	Explanation *Explanation
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
	refused []*rewrite.Refusal
	used    map[*types.Var]use

	explained *Explanation
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
	in := &instrumenter{p: p, calls: newCallGraph(p), loops: map[ast.Node]*function{}, tried: map[ast.Node]bool{}}
	if in.calls.main == nil {
		return nil, fmt.Errorf("%w: it has no main function", ErrRefused)
	}
	in.from = reach([]*function{in.calls.main}, plainCall)
	in.others = in.calls.concurrent()
	e := Explain(p, o.Explain)
	in.explained = e
	in.choose(e)
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
		out.Refused, out.Explanation, out.Reads = in.refused, e, p.readsInput()
		return out, nil
	}
}

// failure is the error of a program without points.
func (in *instrumenter) failure() error {
	if len(in.refused) == 0 {
		return fmt.Errorf("%w: no loop was chosen ('cairn explain' says why); put a comment //cairn:point before the loop that does the work", ErrRefused)
	}
	var l []string
	for _, r := range in.refused {
		l = append(l, r.Error())
	}
	return fmt.Errorf("%w:\n%s", ErrRefused, strings.Join(l, "\n"))
}

// choose finds the loops that Explain chose.
func (in *instrumenter) choose(e *Explanation) {
	type place struct {
		file string
		line int
	}
	chosen := map[place]LoopInfo{}
	for _, l := range e.Loops {
		if l.Chosen {
			chosen[place{l.File, l.Line}] = l
		}
	}
	for _, fn := range in.calls.all {
		ast.Inspect(fn.body, func(n ast.Node) bool {
			switch n.(type) {
			case *ast.FuncLit:
				return false
			case *ast.ForStmt, *ast.RangeStmt:
				in.loops[n] = fn
				at := in.p.at(n.Pos())
				if l, ok := chosen[place{at.File, at.Line}]; ok {
					in.take(n, l)
				}
			}
			return true
		})
	}
}

// take makes a loop a point, or says why not and tries the loops around it.
func (in *instrumenter) take(n ast.Node, l LoopInfo) {
	if in.tried[n] {
		return
	}
	in.tried[n] = true
	fn := in.loops[n]
	if why := in.hindrance(n, fn, l); why != nil {
		in.refused = append(in.refused, why)
		in.around(n, fn)
		return
	}
	in.points = append(in.points, n.(ast.Stmt))
}

// around tries the loops around one that has no point.
func (in *instrumenter) around(n ast.Node, fn *function) {
	if outer := in.enclosing(fn, n.Pos()); outer != nil {
		in.take(outer, LoopInfo{})
		return
	}
	seen := map[*function]bool{}
	var up func(fn *function)
	up = func(fn *function) {
		if seen[fn] {
			return
		}
		seen[fn] = true
		for _, t := range fn.in {
			if t.kind == deferCall || !in.from[t.from] && t.kind == plainCall {
				continue
			}
			if outer := in.enclosing(t.from, t.call.Pos()); outer != nil {
				in.take(outer, LoopInfo{})
			} else {
				up(t.from)
			}
		}
	}
	up(fn)
}

// enclosing returns the innermost loop of a function around a position, which is
// not the one that begins there.
func (in *instrumenter) enclosing(fn *function, at token.Pos) ast.Node {
	var best ast.Node
	for n, f := range in.loops {
		if f == fn && n.Pos() < at && at < n.End() && (best == nil || best.Pos() < n.Pos()) {
			best = n
		}
	}
	return best
}

// hindrance says why there can be no point in a loop.
func (in *instrumenter) hindrance(n ast.Node, fn *function, l LoopInfo) *rewrite.Refusal {
	at := in.p.ld.fset.Position(n.Pos())
	at.Filename = in.p.at(n.Pos()).File
	if !in.can(fn) {
		return &rewrite.Refusal{Pos: at, Reason: "the loop is in a package of another module, which is not rewritten", Remedy: "put a comment //cairn:point before the loop that calls it"}
	}
	spine := in.calls.leading(fn, in.from, in.can)
	if !spine[in.calls.main] {
		why := "main does not call " + fn.name() + " directly"
		if t := in.others[fn]; t != nil {
			why = fmt.Sprintf("%s runs on a goroutine that is started at %s", fn.name(), in.p.at(t.call.Pos()))
		}
		return &rewrite.Refusal{Pos: at, Reason: "the loop can't be gone on with: " + why, Remedy: "choose a loop on main's own goroutine with //cairn:point"}
	}
	if alive := in.alive(n, fn, l.Goroutines); len(alive) > 0 {
		return &rewrite.Refusal{Pos: at, Reason: "goroutines may be alive at the loop's point: " + strings.Join(alive, "; "),
			Remedy: "wait for them in each round, or choose another loop with //cairn:point"}
	}
	if r, ok := n.(*ast.RangeStmt); ok {
		if _, ok := fn.s.info.TypeOf(r.X).Underlying().(*types.Signature); ok {
			return &rewrite.Refusal{Pos: at, Reason: "the loop ranges over a function, whose state can't be saved", Remedy: "choose the loop around it with //cairn:point"}
		}
	}
	return nil
}

var startedAt = regexp.MustCompile(`started at ([^ ,;]+:\d+)`)

// alive returns those of some goroutines that are not started by the loop itself.
// Whether those have ended when a round has, is looked at when the program runs.
func (in *instrumenter) alive(n ast.Node, fn *function, all []string) []string {
	inside := map[string]bool{}
	var calls []*function
	note := func(f *function, t *site) {
		if t.kind == goCall || t.kind == libraryOwn {
			inside[in.p.at(t.call.Pos()).String()] = true
		}
	}
	for _, f := range in.calls.all {
		if f.decl != fn.decl {
			continue
		}
		for _, t := range f.sites {
			if n.Pos() <= t.call.Pos() && t.call.Pos() < n.End() {
				note(f, t)
				calls = append(calls, t.to...)
			}
		}
	}
	for f := range reach(calls, plainCall, deferCall, goCall, libraryNow, libraryOwn) {
		for _, t := range f.sites {
			note(f, t)
		}
	}
	return slices.DeleteFunc(slices.Clone(all), func(s string) bool {
		m := startedAt.FindStringSubmatch(s)
		return m != nil && inside[m[1]]
	})
}

// can says that a function's source can be replaced.
func (in *instrumenter) can(fn *function) bool { return in.p.own(fn.s) }

// retreat drops the points that a refusal concerns.
func (in *instrumenter) retreat(r *rewrite.Refusal) bool {
	in.refused = append(in.refused, r)
	was := in.points
	in.points = nil
	var gone []ast.Node
	for _, n := range was {
		fn := in.loops[n]
		hit := false
		for f := range in.calls.leading(fn, in.from, in.can) {
			hit = hit || f.decl != nil && r.Func == rewrite.FuncName(f.decl) && f.s.ImportPath == r.Package
		}
		if hit || r.Func == "" {
			gone = append(gone, n)
		} else {
			in.points = append(in.points, n)
		}
	}
	if len(gone) == 0 { // whoever it concerns: begin with the innermost
		gone, in.points = []ast.Node{was[len(was)-1]}, was[:len(was)-1]
	}
	for _, n := range gone {
		in.around(n, in.loops[n])
	}
	return len(in.points) > 0
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
		mark(fn.s, body.Lbrace+1, rewrite.PointMark)
		at := in.p.at(n.Pos())
		out.Points = append(out.Points, PointInfo{at.File, at.Line, fn.name()})
	}
	for fn := range spine {
		for _, t := range fn.sites {
			if t.kind == plainCall && slices.ContainsFunc(t.to, func(f *function) bool { return spine[f] }) {
				mark(fn.s, t.call.Lparen+1, rewrite.CallMark)
			}
		}
	}
	for _, s := range in.p.ld.sources {
		if !in.p.own(s) {
			continue
		}
		if err := in.source(s, marks[s], out); err != nil {
			return nil, err
		}
	}
	return out, nil
}

func loopBody(n ast.Node) *ast.BlockStmt {
	switch n := n.(type) {
	case *ast.ForStmt:
		return n.Body
	case *ast.RangeStmt:
		return n.Body
	}
	return nil
}

// replaced are functions of libraries that have an effect on a run.
var replaced = map[string]string{
	"os.Exit": "Exit", "os.Open": "Open", "os.Create": "Create", "os.OpenFile": "OpenFile",
	"log.Fatal": "Fatal", "log.Fatalf": "Fatalf", "log.Fatalln": "Fatalln",
	"context.WithCancel": "WithCancel", "context.WithCancelCause": "WithCancelCause",
	"context.WithTimeout": "WithTimeout", "context.WithTimeoutCause": "WithTimeoutCause",
	"context.WithDeadline": "WithDeadline", "context.WithDeadlineCause": "WithDeadlineCause",
	"context.WithValue": "WithValue", "context.WithoutCancel": "WithoutCancel",
	"os/signal.NotifyContext": "NotifyContext",
	cairnPath + ".Open":       "OpenRun",
}

// source rewrites a package.
func (in *instrumenter) source(s *source, marks map[token.Pos]string, out *Instrumented) error {
	p, err := in.p.rewritten(s)
	if err != nil {
		return err
	}
	was := p.Source
	if p, err = p.Marked(marks); err != nil {
		return err
	}
	p, made, err := p.Closures(p.Keeps)
	if err != nil {
		return err
	}
	if p, err = p.Normal(p.Spine()); err != nil {
		return err
	}
	woven, err := p.Weave(out.Runtime, replaced)
	if err != nil {
		return err
	}
	for name, text := range p.Source {
		if t := woven.Files[name]; t != nil {
			text = t
		}
		if text = rewrite.Unmarked(text); !bytes.Equal(rewrite.Plain(text), was[name]) {
			if text, err = format.Source(text); err != nil {
				return fmt.Errorf("%s: %w", name, err)
			}
			out.Files[name] = rewrite.Lined(text)
		}
	}
	out.Frames = append(out.Frames, woven.Frames...)
	return in.register(s, p, made, out)
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
		Sizes: types.SizesFor("gc", "amd64"), Importer: &imports{compiled: p.ld.im.compiled, source: p.ld.im.source, of: s}}
	if s.Module != nil && s.Module.GoVersion != "" {
		q.GoVersion = "go" + s.Module.GoVersion
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

// readsInput says that the program names stdin, or a function that reads it.
func (p *Program) readsInput() bool {
	for _, s := range p.ld.sources {
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
