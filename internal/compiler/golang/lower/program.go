package lower

import (
	"fmt"
	"go/token"
	"slices"

	"github.com/cairnrun/cairn/internal/compiler/golang/callgraph"
	"github.com/cairnrun/cairn/internal/compiler/golang/load"
	"github.com/cairnrun/cairn/internal/compiler/ir"
)

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
	Strays       []Stray
	// Files and Lines count the source that is not a library's.
	Files, Lines int
	// Assumed is the number of conditions in which an error is taken to be nil.
	Assumed int
	// Warnings are sentences, each with its position where it has one.
	Warnings []string
	// Phases are what Load did, and how long it took.
	Phases []load.Phase

	Extents   []Extent
	Source    *load.Program
	Dynamic   *callgraph.Dynamic
	At        func(token.Pos) ir.Pos
	ShortName func(string) string
}

// lowerAll lowers the packages of a program.
func Lower(ld *load.Program, g *callgraph.Dynamic) (*Program, error) {
	p := &Program{Package: ld.Main.ImportPath, Warnings: slices.Clone(g.Warnings)}
	// Which communicators are the world shows when all is lowered.
	l := newLowerer(ld, g, nil)
	l = newLowerer(ld, g, l.worldComms(l.program()))
	p.Program = l.program()
	p.Assumed, p.Extents = l.assumed, l.extents
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
	p.Phases = ld.Phases
	return p, nil
}

// extent is where a loop is.
type Extent struct {
	ir.Pos
	Last int // line
}

// stray is a comment that belongs to no loop.
type Stray struct {
	at   ir.Pos
	Name string
	Own  bool // it is in the program's own module
}

func (s Stray) String() string {
	return fmt.Sprintf("%s: //cairn:%s belongs to no loop: points are at the beginning of a loop's rounds; put the comment on the line of the loop, or on the line before it", s.at, s.Name)
}
