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
//   - ReadsStdin are of variables, not of constants, functions, packages, types,
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

	"github.com/cairnrun/cairn/internal/compiler/golang/callgraph"
	"github.com/cairnrun/cairn/internal/compiler/golang/load"
	"github.com/cairnrun/cairn/internal/compiler/golang/lower"
)

// Load reads the program that patterns name in dir, as go build takes them; there
// must be one main package among what they match. It runs the go command, which
// may download modules and compile what the program imports.
func Load(ctx context.Context, dir string, patterns []string, o load.Options) (*lower.Program, error) {
	ld, err := load.Load(ctx, dir, patterns, o)
	if err != nil {
		return nil, err
	}
	g := callgraph.Resolve(ld)
	ld.Phase("call graph")
	return lower.Lower(ld, g)
}
