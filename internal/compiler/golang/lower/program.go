package lower

import (
	"fmt"
	"go/token"
	"slices"

	"github.com/cairnrun/cairn/internal/compiler/golang/callgraph"
	"github.com/cairnrun/cairn/internal/compiler/golang/load"
	"github.com/cairnrun/cairn/internal/compiler/ir"
)

// Program is a Go program as IR, with the source that it was lowered from.
type Program struct {
	*ir.Program
	// Package is the import path of the main package.
	Package string
	// Points and Skip are the places where comments ask for a point, or for
	// none:
	//
	//	//cairn:point
	//	//cairn:skip
	//
	// on a loop's line or on the line before it.
	Points, Skip []ir.Pos
	// Background are the places where comments say that a goroutine does not
	// matter for the state.
	Background []ir.Pos
	// Strays are such comments that belong to no loop.
	Strays []Stray
	// Files and Lines count the source of all packages but libraries.
	Files, Lines int
	// AssumedNil is the number of conditions in which an error is assumed to
	// be nil.
	AssumedNil int
	// Warnings are sentences, most of them with a position.
	Warnings []string

	Extents   []Extent
	Source    *load.Program
	Dynamic   *callgraph.Dynamic
	At        func(token.Pos) ir.Pos // a position, with the file's ShortName
	ShortName func(string) string    // a file's name for messages
}

// Lower lowers the packages of a program.
func Lower(ld *load.Program, g *callgraph.Dynamic) (*Program, error) {
	p := &Program{Package: ld.Main.ImportPath, Warnings: slices.Clone(g.Warnings)}
	// Only when all is lowered it is known which variables hold the world
	// communicator. Lower again with that knowledge.
	l := newLowerer(ld, g, nil)
	p.Program = l.program()
	if world := l.worldComms(p.Program); len(world) > 0 {
		l = newLowerer(ld, g, world)
		p.Program = l.program()
	}
	p.AssumedNil, p.Extents = l.assumed, l.extents
	p.Source, p.Dynamic, p.At, p.ShortName = ld, g, l.pos, l.short
	l.comments(p)
	for _, s := range ld.Sources {
		p.Files += len(s.Files)
		for _, f := range s.Files {
			p.Lines += ld.Fset.File(f.FileStart).LineCount()
		}
	}
	for _, name := range ld.Options.Take {
		if !l.takeFound[name] {
			return nil, fmt.Errorf("%w: no dynamic call that main reaches leads to a function %s; 'cairn explain --all' shows the names of functions with loops", load.ErrPattern, name)
		}
	}
	ld.Phase("lowering")
	return p, nil
}

// Extent is where a loop is.
type Extent struct {
	ir.Pos
	Last int // line
}

// Stray is a comment that belongs to no loop.
type Stray struct {
	at   ir.Pos
	Name string
	Own  bool // in the program's own module
}

func (s Stray) String() string {
	return fmt.Sprintf("%s: //cairn:%s belongs to no loop; put the comment on the line of the loop, or on the line before it", s.at, s.Name)
}
