// Package golang compiles Go programs so that they can be restarted. Load reads
// a program; Make rewrites it and builds it; Rewrite only rewrites it. The
// program's own files are never changed.
//
// Each stage is a package:
//
//	load        packages, files and types, by way of the go command
//	callgraph   what calls lead to, dynamic ones too
//	lower       Go syntax to the IR of package ir
//	divide      how work is divided among devices
//	explain     which loops do the work, and what is in flight there
//	place       in which loops points are placed, and what they cost
//	rewrite     the passes over Go source: frames and continuations
//	instrument  runs the passes, registers variables and functions
//	gobuild     go build, with the rewritten files and the run time
//
// Make keeps what it built in a cache (cache.go).
package golang

import (
	"context"

	"github.com/cairnrun/cairn/internal/compiler/golang/callgraph"
	"github.com/cairnrun/cairn/internal/compiler/golang/load"
	"github.com/cairnrun/cairn/internal/compiler/golang/lower"
)

// Load reads the program that patterns name in dir, as go build takes them.
// They must match one main package. Load runs the go command, which may
// download modules and compile what the program imports.
func Load(ctx context.Context, dir string, patterns []string, o load.Options) (*lower.Program, error) {
	ld, err := load.Load(ctx, dir, patterns, o)
	if err != nil {
		return nil, err
	}
	ld.Begin("building the call graph")
	g := callgraph.Resolve(ld)
	ld.Phase("call graph")
	ld.Begin("lowering")
	return lower.Lower(ld, g)
}
