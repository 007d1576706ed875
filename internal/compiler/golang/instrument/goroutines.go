package instrument

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"go/types"
	"path"
	"slices"
	"strings"

	"github.com/cairnrun/cairn/internal/compiler/golang/callgraph"
	"github.com/cairnrun/cairn/internal/compiler/golang/load"
	"github.com/cairnrun/cairn/internal/compiler/golang/rewrite"
)

// markGoroutines marks what starts goroutines, and operations that may block.
func (in *instrumenter) markGoroutines(path map[*callgraph.Function]bool, mark func(s *load.Package, at token.Pos, text string)) {
	for _, l := range in.Launches {
		text := rewrite.GoMark
		if l.Site != nil && slices.ContainsFunc(l.Site.Callees, func(f *callgraph.Function) bool { return path[f] }) {
			text = rewrite.GoPointsMark
		}
		if l.Rebuilt {
			text = rewrite.RebuiltMark
		} else if l.Background {
			text = rewrite.BackgroundMark
		}
		mark(l.Pkg, l.At, text)
	}
	for _, w := range append(in.Waits(), in.Wakes()...) {
		mark(w.Fn.Pkg, w.At, rewrite.ParkMark)
	}
}

// runtimeSource declares the functions of the run time that stand for waits and
// go statements, for the type checker. Those with an import come last.
var runtimeSource = []struct{ imports, text string }{
	{"", `
func Start(at string, f func()) { panic(0) }
func StartWhole(at string, f func()) { panic(0) }
func StartBackground(at string, f func()) { panic(0) }
func StartRebuilt(at string, f func()) { panic(0) }
func Recv[T any](c <-chan T) T { panic(0) }
func RecvOK[T any](c <-chan T) (T, bool) { panic(0) }
func To[T any](c chan<- T) Sender[T] { panic(0) }
func Ranged[T any](c <-chan T) <-chan T { panic(0) }
func RangedOld[T any](c <-chan T) (<-chan T, T) { panic(0) }

type CaseOf interface{ pending() }
type RecvCase[T any] struct{ v T }
type SendCase[T any] struct{ v T }
type Sender[T any] struct{ c chan<- T }
type Selected struct{ c CaseOf }

func (RecvCase[T]) pending() { panic(0) }
func (SendCase[T]) pending() { panic(0) }
func Received[T any](s Selected, c RecvCase[T]) T { panic(0) }
func ReceivedOK[T any](s Selected, c RecvCase[T]) (T, bool) { panic(0) }
func CaseRecv[T any](c <-chan T) RecvCase[T] { panic(0) }
func (Sender[T]) Send(v T) { panic(0) }
func (Sender[T]) Case(v T) SendCase[T] { panic(0) }
func Select(cases ...CaseOf) (int, Selected) { panic(0) }
`},
	{"sync", `
func WaitGroup(wg *sync.WaitGroup) { panic(0) }
func Lock(m *sync.Mutex) { panic(0) }
func Unlock(m *sync.Mutex) { panic(0) }
func LockRW(m *sync.RWMutex) { panic(0) }
func UnlockRW(m *sync.RWMutex) { panic(0) }
func RLock(m *sync.RWMutex) { panic(0) }
func RUnlock(m *sync.RWMutex) { panic(0) }
func LockAny(l sync.Locker) { panic(0) }
func UnlockAny(l sync.Locker) { panic(0) }
func CondWait(c *sync.Cond) { panic(0) }
func Signal(c *sync.Cond) { panic(0) }
func Broadcast(c *sync.Cond) { panic(0) }
func OnceKnown() bool { panic(0) }
func OnceBegin(o *sync.Once) bool { panic(0) }
func OnceEnd(o *sync.Once) { panic(0) }
`},
	{"time", "func Sleep(d time.Duration) { panic(0) }\n"},
}

// importer returns an importer for a package that may import the run time.
func (in *instrumenter) importer(s *load.Package) types.Importer {
	return &runtimeImporter{Importer: in.p.Source.Importer(s), in: in, of: s}
}

type runtimeImporter struct {
	types.Importer
	in *instrumenter
	of *load.Package
}

func (r *runtimeImporter) Import(name string) (*types.Package, error) {
	if name != r.in.runtime {
		return r.Importer.Import(name)
	}
	if p := r.in.stubs[r.of]; p != nil {
		return p, nil
	}
	var head, text strings.Builder
	fmt.Fprintf(&head, "package %s\n", path.Base(name))
	for _, part := range runtimeSource {
		if part.imports != "" {
			if !slices.Contains(r.of.Imports, part.imports) {
				continue // the package has no use for it
			}
			fmt.Fprintf(&head, "import %q\n", part.imports)
		}
		text.WriteString(part.text)
	}
	fset := token.NewFileSet()
	f, err := parser.ParseFile(fset, "resume.go", head.String()+text.String(), parser.SkipObjectResolution)
	if err != nil {
		return nil, err
	}
	conf := types.Config{Importer: r.Importer, IgnoreFuncBodies: true}
	p, err := conf.Check(name, fset, []*ast.File{f}, nil)
	if err != nil {
		return nil, err
	}
	if r.in.stubs == nil {
		r.in.stubs = map[*load.Package]*types.Package{}
	}
	r.in.stubs[r.of] = p
	return p, nil
}
