// Package instrument makes a program restartable. Instrument has points placed
// (package place), runs the passes of package rewrite over every package, and
// writes files that register package variables, functions and closures with
// the run time (register.go). If a pass refuses a function, Instrument tries
// again with other points.
package instrument

import (
	"bytes"
	"errors"
	"fmt"
	"go/ast"
	"go/constant"
	"go/format"
	"go/token"
	"go/types"
	"go/version"
	"maps"
	"os"
	"slices"
	"strings"
	"sync"

	"github.com/cairnrun/cairn/internal/compiler/golang/callgraph"
	"github.com/cairnrun/cairn/internal/compiler/golang/divide"
	"github.com/cairnrun/cairn/internal/compiler/golang/explain"
	"github.com/cairnrun/cairn/internal/compiler/golang/load"
	"github.com/cairnrun/cairn/internal/compiler/golang/lower"
	"github.com/cairnrun/cairn/internal/compiler/golang/place"
	"github.com/cairnrun/cairn/internal/compiler/golang/rewrite"
	"github.com/cairnrun/cairn/internal/compiler/golang/rewrite/closures"
	"github.com/cairnrun/cairn/internal/compiler/golang/rewrite/emit"
	"github.com/cairnrun/cairn/internal/compiler/golang/rewrite/normalize"
	"github.com/cairnrun/cairn/internal/control"
)

// ErrRefused says that a program cannot be made restartable.
var ErrRefused = errors.New("the program cannot be made restartable")

// Options are the options of Instrument.
type Options struct {
	// Explain says how loops are chosen.
	Explain explain.Options
	// Everywhere puts a point into every loop and at the beginning of every
	// function that can have one. It is for tests: such a program is slow.
	Everywhere bool `json:",omitempty"`
}

// Result is a program that can be restarted.
type Result struct {
	// Files are the files that differ from the program's own, by absolute
	// name. Some are new.
	Files map[string][]byte
	// Runtime is the import path of the run time that they use.
	Runtime string
	// Goroutines reports whether other goroutines than main's are saved.
	Goroutines bool
	// Points are where checkpoints may be taken.
	Points []explain.PointInfo
	// Frames says what is saved of every function on the path to a point.
	Frames []frameInfo
	// Globals are the package variables that are saved.
	Globals []string
	// Rebuilt are package variables that functions make again after a restart.
	Rebuilt []string
	// ReadsStdin reports whether the program reads stdin.
	ReadsStdin bool
	// Refused says why other loops have no point.
	Refused []*rewrite.Refusal
	// Uncovered says which work is not saved, and what to do about it.
	Uncovered []string
	// Warnings are sentences about the points, with positions.
	Warnings []string
	// Explanation says how loops were chosen.
	Explanation *explain.Explanation

	short           func(name string) string
	unsaved         []string         // closures that cannot be saved
	generic         []genericClosure // closures of generic functions, for registerGeneric
	commentWarnings int              // how many of Warnings, the first ones, are about comments
	reported        []string         // those of Refused that Uncovered repeats
	without         map[explain.Location]*rewrite.Refusal
	heads           []lineRange // lines of the marks, one for each of Points
}

// lineRange is where the mark of a point is: from the line of the loop's brace
// to that of the statement after it.
type lineRange struct{ begin, end int }

type frameInfo = emit.FrameInfo

// Readable returns one of Files without line directives.
func (in *Result) Readable(name string) []byte {
	text := rewrite.StripLineComments(in.Files[name])
	if t, err := format.Source(text); err == nil {
		return t
	}
	return text
}

// instrumenter runs the passes of package rewrite.
type instrumenter struct {
	*place.Placement
	p                *lower.Program
	sources          map[*load.Package]*rewrittenPackage // packages of the last attempt
	used             map[*types.Var]globalUse
	names            map[*types.TypeName]*types.Alias // see named
	std              map[string]*rewrite.StdSource    // see stdSource
	inspectOnce      sync.Once
	callerInspectors map[string]bool // see inspectsCallers
	randomOnce       sync.Once
	random           map[string]bool // see usesRandom
	fieldsOnce       sync.Once
	fields           map[*types.Var]bool // see reassigned

	explained   *explain.Explanation
	rebuilders  []rebuilder
	overwritten map[ast.Stmt]*divide.Overwritten // see markOverwritten
	leftOut     map[ast.Stmt]*divide.Overwritten // with the dry runs that are possible
	undivided   []ast.Stmt                       // loops without a point, because they divide work among devices
	runtime     string                           // import path of the run time
	stubs       map[*load.Package]*types.Package // see runtimeStub
}

// newInstrumenter returns an instrumenter without points. several says that
// other goroutines than main's are saved, if possible.
func newInstrumenter(p *lower.Program, several bool) *instrumenter {
	in := &instrumenter{p: p, sources: map[*load.Package]*rewrittenPackage{}, std: map[string]*rewrite.StdSource{}, runtime: load.StdRuntimePath}
	if in.usesCairn() {
		in.runtime = load.RuntimePath
	}
	in.Placement = place.New(p, several)
	return in
}

// Instrument places a program's points and rewrites it. If that cannot be done,
// it returns an error that wraps ErrRefused and says why.
func Instrument(p *lower.Program, o Options) (*Result, error) {
	if p.Dynamic.Failed {
		return nil, fmt.Errorf("%w: %s", ErrRefused, strings.Join(p.Warnings, "; "))
	}
	if err := ownCheckpoints(p); err != nil {
		return nil, err
	}
	rebuilders, err := findRebuilders(p)
	if err != nil {
		return nil, err
	}
	in := newInstrumenter(p, true)
	in.rebuilders = rebuilders
	if in.Calls.Main == nil {
		return nil, fmt.Errorf("%w: it has no main function", ErrRefused)
	}
	if err := in.checkDevices(); err != nil {
		return nil, err
	}
	e := explain.Explain(p, o.Explain)
	asked, err := checkComments(p, e)
	if err != nil {
		return nil, err
	}
	in.explained = e
	p.Source.Begin("choosing points")
	in.Choose(e, o.Explain.Samples, o.Everywhere)
	for {
		p.Source.Begin("rewriting")
		out, err := in.attempt()
		var r *rewrite.Refusal
		if errors.As(err, &r) {
			if !in.Retreat(r) {
				return nil, in.failure()
			}
			continue
		}
		if errors.Is(err, normalize.ErrWaits) && in.Several() {
			asked = append(asked, fmt.Sprintf("%v; only the main goroutine is saved, when no other is alive", err))
			in = newInstrumenter(p, false)
			in.explained, in.rebuilders = e, rebuilders
			in.Choose(e, o.Explain.Samples, o.Everywhere)
			continue
		}
		if err != nil {
			return nil, err
		}
		out.commentWarnings = len(asked)
		out.Warnings = slices.Concat(asked, in.StrayBackground())
		if len(e.Ranks) == 0 && !o.Everywhere {
			out.Uncovered, out.reported = in.Uncovered()
		}
		out.Uncovered = slices.Concat(out.Uncovered, in.GoroutineWarnings(), in.OutsideWaits(), out.unsaved[:min(3, len(out.unsaved))])
		if n := len(out.unsaved) - 3; n > 0 {
			out.Uncovered = append(out.Uncovered, fmt.Sprintf("%d more closures cannot be saved", n))
		}
		out.without = in.Without()
		for _, n := range in.undivided {
			at := p.At(n.Pos())
			out.without[explain.Location{File: at.File, Line: at.Line}] = &rewrite.Refusal{
				Reason: "it divides the work among the devices, which is not interrupted"}
		}
		in.explainOverwritten()
		out.Refused, out.Explanation, out.ReadsStdin, out.short = in.Refused, e, in.readsInput(), p.ShortName
		return out, nil
	}
}

// failure returns the error of a program without points.
func (in *instrumenter) failure() error {
	if len(in.Refused) == 0 {
		return fmt.Errorf("%w: no loop was chosen; put //cairn:point before the loop that does the work. To run a program without loops unchanged, use 'go build' and 'cairn run ./BINARY'", ErrRefused)
	}
	var l []string
	for _, r := range in.Refused {
		l = append(l, r.Error())
	}
	return &refusedError{fmt.Sprintf("%v:\n%s", ErrRefused, strings.Join(l, "\n")), in.Without()}
}

// attempt rewrites the program with the current points.
func (in *instrumenter) attempt() (*Result, error) {
	divides := in.divisionFunctions()
	inDivision := func(n ast.Stmt) bool { return divides[in.Loops[n].Node] }
	if slices.ContainsFunc(in.Points, func(n ast.Stmt) bool { return !inDivision(n) }) {
		for _, n := range in.Points {
			if inDivision(n) {
				in.undivided = append(in.undivided, n)
			}
		}
		in.Points = slices.DeleteFunc(slices.Clone(in.Points), inDivision)
	}
	if len(in.Points) == 0 {
		return nil, in.failure()
	}
	out := &Result{Files: map[string][]byte{}, Runtime: in.runtime, Goroutines: in.Several()}
	path := in.ResumablePath()
	marks := map[*load.Package]map[token.Pos]string{}
	mark := func(s *load.Package, at token.Pos, text string) {
		if marks[s] == nil {
			marks[s] = map[token.Pos]string{}
		}
		marks[s][at] = text
	}
	for _, n := range in.Points {
		fn := in.Loops[n]
		body := place.LoopBody(n)
		if n == ast.Stmt(fn.Body) {
			mark(fn.Pkg, place.FirstPos(body), rewrite.BlockMark)
		} else {
			mark(fn.Pkg, body.Lbrace+1, in.markOverwritten(fn, n, path))
		}
		at := in.p.At(n.Pos())
		head := lineRange{in.p.At(body.Lbrace).Line, in.p.At(body.Rbrace).Line}
		if len(body.List) > 0 {
			head.end = in.p.At(body.List[0].Pos()).Line
		}
		out.Points = append(out.Points, explain.PointInfo{File: at.File, Line: at.Line, Function: fn.Name()})
		out.heads = append(out.heads, head)
	}
	if err := in.markDivision(path, func(s *load.Package, at token.Pos, text string) {
		mark(s, at, marks[s][at]+text)
	}); err != nil {
		return nil, err
	}
	for i, fn := range in.Calls.All {
		if !path[fn] {
			continue
		}
		if lit, ok := fn.Node.(*ast.FuncLit); ok {
			mark(fn.Pkg, lit.Body.Lbrace+1, fmt.Sprintf(rewrite.LitMark, i))
		}
		for _, t := range fn.Sites {
			if t.Kind != callgraph.PlainCall || !slices.ContainsFunc(t.Callees, func(f *callgraph.Function) bool { return path[f] }) {
				continue
			}
			if t.Loop != nil {
				mark(fn.Pkg, t.Loop.Range+token.Pos(len("range")), rewrite.RangeMark)
			} else {
				mark(fn.Pkg, t.Call.Lparen+1, rewrite.CallMark)
			}
		}
	}
	in.markGoroutines(path, mark)
	var own []*load.Package
	for _, s := range in.p.Source.Sources {
		if !s.Rewritable() {
			continue
		}
		own = append(own, s)
		in.markSignalWaits(s, mark)
		if r := in.sources[s]; r == nil || !maps.Equal(r.marks, marks[s]) {
			if err := in.prepare(s, marks[s]); err != nil {
				return nil, err
			}
		}
	}
	fast := in.fastPaths(path)
	for _, s := range own {
		if err := in.emit(s, fast[s], out); err != nil {
			return nil, err
		}
	}
	in.writeNames(out)
	return out, in.registerGeneric(out)
}

// prepare runs the passes up to the one that emits functions.
func (in *instrumenter) prepare(s *load.Package, marks map[token.Pos]string) error {
	p, err := in.rewritten(s)
	if err != nil {
		return err
	}
	was := p.Source
	if p, err = normalize.Mark(p, marks); err != nil {
		return err
	}
	if p, err = normalize.RenameLocals(p, p.ResumablePath()); err != nil {
		return err
	}
	if p, err = normalize.MoveLoopLiterals(p, p.ResumablePath()); err != nil {
		return err
	}
	if p, err = normalize.LowerWaits(p, in.runtime); err != nil {
		return err
	}
	if p, err = normalize.LowerCallbacks(p, in.runtime); err != nil {
		return err
	}
	if p, err = normalize.LowerOnce(p); err != nil {
		return err
	}
	if p, err = normalize.HoistTypes(p, (*rewrite.Package).ResumablePath); err != nil {
		return err
	}
	if p, err = normalize.LowerRanges(p); err != nil {
		return err
	}
	if p, err = normalize.MoveResults(p, (*rewrite.Package).ResumablePath); err != nil {
		return err
	}
	if p, err = normalize.LowerGotos(p, (*rewrite.Package).ResumablePath); err != nil {
		return err
	}
	p, lits := closures.Lift(p)
	p, made, err := closures.Convert(p, p.MustConvert)
	if err != nil {
		return err
	}
	if made.Stuck != nil { // its callers could not call it again
		return made.Stuck
	}
	if p, err = normalize.Functions(p, p.ResumablePath()); err != nil {
		return err
	}
	can, err := emit.FastPaths(p)
	if err != nil {
		return err
	}
	in.sources[s] = &rewrittenPackage{marks: marks, was: was, p: p, made: made, lits: lits, can: can}
	return nil
}

// emit runs the last pass over a package, unless its result is there already.
func (in *instrumenter) emit(s *load.Package, fast map[string]bool, out *Result) error {
	r := in.sources[s]
	if r.out == nil || !maps.Equal(r.fast, fast) {
		r.fast, r.out = fast, nil
		own := &Result{Files: map[string][]byte{}, Runtime: out.Runtime}
		emitted, err := emit.Emit(r.p, out.Runtime, in.replacements(), fast)
		if err != nil {
			return err
		}
		for name, text := range r.p.Source {
			if t := emitted.Files[name]; t != nil {
				text = t
			}
			if text = rewrite.StripMarks(text); !bytes.Equal(rewrite.StripLineComments(text), r.was[name]) {
				if text, err = format.Source(text); err != nil {
					return fmt.Errorf("%s: %w", name, err)
				}
				own.Files[name] = rewrite.AllowTypeParams(rewrite.JoinLineComments(text), goVersion(s))
			}
		}
		own.Frames = emitted.Frames
		if err := in.register(s, r.p, r.made, own); err != nil {
			return err
		}
		r.out = own
	}
	maps.Copy(out.Files, r.out.Files)
	out.Frames = append(out.Frames, r.out.Frames...)
	out.Globals = append(out.Globals, r.out.Globals...)
	out.Rebuilt = append(out.Rebuilt, r.out.Rebuilt...)
	out.unsaved = append(out.unsaved, r.out.unsaved...)
	out.generic = append(out.generic, r.out.generic...)
	return nil
}

// usesCairn reports whether the program imports a package of Cairn, so that it
// has Cairn's module.
func (in *instrumenter) usesCairn() bool {
	return slices.ContainsFunc([]string{load.CairnPath, load.MPIPath, load.DevicePath}, func(path string) bool { return in.p.Source.ByPath[path] != nil })
}

// rewritten returns a package in the form that package rewrite takes.
func (in *instrumenter) rewritten(s *load.Package) (*rewrite.Package, error) {
	q := &rewrite.Package{Path: s.ImportPath, Fset: in.p.Source.Fset, Files: s.Files, Source: map[string][]byte{}, Types: s.Types, Info: s.Info,
		Sizes: types.SizesFor("gc", "amd64"), Importer: in.importer(s), Named: in.named, InspectsCallers: in.inspectsCallers, Reassigned: in.reassigned, Std: in.stdSource}
	if q.GoVersion = goVersion(s); q.GoVersion != "" && version.Compare(q.GoVersion, rewrite.TypeParams) < 0 {
		q.GoVersion = rewrite.TypeParams // AllowTypeParams makes it so
	}
	for _, f := range s.Files {
		name := in.p.Source.Fset.File(f.FileStart).Name()
		text, err := os.ReadFile(name)
		if err != nil {
			return nil, err
		}
		q.Source[name] = text
	}
	return q, nil
}

// stdSource returns the source of a package of the standard library.
func (in *instrumenter) stdSource(path string) (*rewrite.StdSource, error) {
	if s := in.std[path]; s != nil {
		return s, nil
	}
	p := in.p.Source.ByPath[path]
	if p == nil {
		return nil, fmt.Errorf("the program does not import package %s", path)
	}
	s, err := rewrite.ReadStd(path, p.Dir, p.GoFiles)
	if err == nil {
		in.std[path] = s
	}
	return s, err
}

// goVersion returns the version of Go that a package is written for, as in its
// go.mod; empty: the newest.
func goVersion(s *load.Package) string {
	switch {
	case s.Module == nil:
		return ""
	case s.Module.GoVersion == "":
		return "go1.16" // as go build assumes
	}
	return "go" + s.Module.GoVersion
}

// inspectsCallers reports whether functions of a package, or of what it
// imports, look at their callers, as loggers do, and errors with a position.
func (in *instrumenter) inspectsCallers(path string) bool {
	in.inspectOnce.Do(func() {
		in.callerInspectors = map[string]bool{"log/slog": true}
		for _, s := range in.p.Source.Sources {
			if s.Rewritable() && rewrite.InspectsCallers(s.Info) {
				in.callerInspectors[s.ImportPath] = true
			}
		}
		for grew := true; grew; {
			grew = false
			for _, s := range in.p.Source.Sources {
				if !in.callerInspectors[s.ImportPath] && s.Rewritable() && slices.ContainsFunc(s.Imports, func(i string) bool { return in.callerInspectors[i] }) {
					in.callerInspectors[s.ImportPath], grew = true, true
				}
			}
		}
	})
	return in.callerInspectors[path]
}

// readsInput reports whether the program names stdin, or a function that reads
// it.
func (in *instrumenter) readsInput() bool {
	for _, s := range in.p.Source.Sources {
		for _, tv := range s.Info.Types {
			if tv.Value != nil && tv.Value.Kind() == constant.String {
				if fd, ok := control.StreamOf(constant.StringVal(tv.Value)); ok && fd == 0 {
					return true
				}
			}
		}
		for _, o := range s.Info.Uses {
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
