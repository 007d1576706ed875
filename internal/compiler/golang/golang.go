// Package golang is the compiler for Go programs. Load makes an ir.Program of
// one; Explain says where its checkpoints go, and why; Instrument rewrites it so
// that it can be gone on with from there; Build runs go build with the rewritten
// source and Cairn's run time; Make does it all. The program's own files are
// never changed.
//
// # What is read
//
//	go list       packages, files, build tags            list.go
//	go/types      source of all that is not a library    list.go
//	ssa, rta, vta what dynamic calls lead to             graph.go
//	ir            statement by statement                 lower.go, expr.go, …
//
// # What is made
//
//	points        loops to save in, and others instead   points.go
//	spine         the calls from main to them            spine.go
//	rewrite       frames and continuations               instrument.go, package rewrite
//	registry      package variables, func values         register.go
//	laid over     the run time, as standard library      build_laid.go
//	go build      with an overlay, or from the cache     build.go, build_module.go, build_make.go
//
// # Libraries
//
// Libraries are the standard library, Cairn's run time and packages with cgo,
// and what these import: their functions are not followed and count one statement.
// Those of mpi, device, sync and errgroup that communicate, compute, start or
// wait are recognised.
//
// # Counting
//
// Package load says how statements are counted. For Go this means:
//
//   - Reads are of variables, not of constants, functions, packages, types,
//     fields and labels; indices of every kind, keys and left sides are left out.
//     x++ and x += y read x.
//   - A statement with calls of functions whose source is known counts these,
//     and nothing else; a return counts one more. Calls in a condition count, its
//     reads do not. Calls in a loop's header count nothing.
//   - A function literal is a procedure of its own. What a library is given to
//     call counts as called where it is given.
//   - Deferred calls count at every return but those that hand on an error.
//   - A generic function is one procedure.
//
// # Values
//
// Variables are followed by value where match needs them: integers, bools and
// communicators, and small arrays and fields of structs with a name, object by
// object, as long as it is known where a pointer leads (structs.go). Other fields
// of one declaration are one variable, and so are all elements of one type.
// Comparisons of an error with nil are taken to find none where the branch
// leaves the function: runs that end with an error are not looked at.
package golang

import (
	"context"
	"fmt"
	"go/ast"
	"go/token"
	"go/types"
	"sync"
	"time"

	"github.com/cairnrun/cairn/internal/compiler/ir"
)

// Options of Load. The zero value is that of a plain go build.
type Options struct {
	// Tags are build tags.
	Tags []string
	// Env is the environment of the go command. Nil: that of this process.
	Env []string
	// Take are names of functions, as Explain shows them: dynamic calls that may
	// lead to one of them are taken to lead to these only. It is for programs with
	// several modes of work.
	Take []string
	// Go is the go command. Empty: "go", by PATH.
	Go string
}

// Program is a Go program that was read.
type Program struct {
	*ir.Program
	// Package is the import path of its main package.
	Package string
	// Points and Skip are where comments ask for a point, and for none:
	//
	//	//cairn:point
	//	//cairn:skip
	//
	// on a loop's line or before it.
	Points, Skip []ir.Pos
	strays       []stray
	// Files and Lines count the source that is not a library's.
	Files, Lines int
	// Assumed is the number of conditions in which an error is taken to be nil.
	Assumed int
	// Warnings are sentences, each with its position where it has one.
	Warnings []string
	// Phases are what Load did, and how long it took.
	Phases []Phase

	extents []extent
	ld      *loader
	looked  sync.Once
	askers  map[string]bool // see asks
	calls   *graph
	at      func(token.Pos) ir.Pos
	short   func(string) string
	names   map[*types.TypeName]*types.Alias // see named
}

// Phase is a part of the work, and its time.
type Phase struct {
	Name string
	Took time.Duration
}

// source is a package whose source is read.
type source struct {
	*listed
	named string // how it was asked for, if it is the program
	files []*ast.File
	types *types.Package
	info  *types.Info
}

// Load reads the program that patterns name in dir, as go build takes them; there
// must be one main package among what they match. It runs the go command, which
// may download modules and compile what the program imports.
func Load(ctx context.Context, dir string, patterns []string, o Options) (*Program, error) {
	ld := &loader{ctx: ctx, dir: dir, o: o, fset: token.NewFileSet(), begin: time.Now()}
	if err := ld.list(patterns); err != nil {
		return nil, err
	}
	ld.phase("go list")
	if err := ld.check(); err != nil {
		return nil, err
	}
	ld.phase("parse and type-check")
	return ld.program()
}

// program makes the program of sources that were checked.
func (ld *loader) program() (*Program, error) {
	p := &Program{Package: ld.main.ImportPath}
	g := resolve(ld)
	p.Warnings = append(p.Warnings, g.warnings...)
	ld.phase("call graph")
	// Which communicators are the world shows when all is lowered.
	l := newLowerer(ld, g, nil)
	l = newLowerer(ld, g, l.worlds(l.program()))
	p.Program = l.program()
	p.Assumed, p.extents = l.assumed, l.extents
	p.ld, p.calls, p.at, p.short = ld, g, l.pos, l.short
	p.comments(l)
	for _, s := range ld.sources {
		p.Files += len(s.files)
		for _, f := range s.files {
			p.Lines += ld.fset.File(f.FileStart).LineCount()
		}
	}
	for _, name := range ld.o.Take {
		if !l.took[name] {
			return nil, fmt.Errorf("%w: no dynamic call that main reaches leads to a function %s; 'cairn explain --all' shows the names of functions with loops", ErrPattern, name)
		}
	}
	ld.phase("lowering")
	p.Phases = ld.phases
	return p, nil
}
