package difftest

import (
	"bytes"
	"go/ast"
	"go/format"
	"go/importer"
	"go/parser"
	"go/token"
	"go/types"
	"slices"
	"strings"
	"sync"
)

// Shrink returns a smaller program for which fails still holds. It deletes
// statements, replaces compound statements by their bodies, and deletes
// functions and package variables, as long as the program still compiles and
// fails. It calls fails at most tries times.
func Shrink(src string, tries int, fails func(string) bool) string {
	attempt := func(candidate string) bool {
		candidate = useAll(candidate)
		if candidate == "" || candidate == src || tries <= 0 || !compiles(candidate) {
			return false
		}
		tries--
		if !fails(candidate) {
			return false
		}
		src = candidate
		return true
	}
	for changed := true; changed && tries > 0; {
		changed = false
		for i := 0; ; { // declarations
			candidate, ok := edit(src, func(f *ast.File) bool { return dropDecl(f, i) })
			if !ok {
				break
			}
			if attempt(candidate) {
				changed = true
			} else {
				i++
			}
		}
		for size := 16; size > 0; size /= 2 {
			for l := 0; ; l++ { // lists of statements
				at, known := 0, false
				for {
					candidate, ok := edit(src, func(f *ast.File) bool { return dropStmts(f, l, at, size, &known) })
					if !ok {
						break
					}
					if attempt(candidate) {
						changed = true
					} else {
						at += size
					}
				}
				if !known || tries <= 0 {
					break
				}
			}
		}
		for i := 0; ; { // compound statements
			candidate, ok := edit(src, func(f *ast.File) bool { return unwrap(f, i) })
			if !ok || tries <= 0 {
				break
			}
			if attempt(candidate) {
				changed = true
			} else {
				i++
			}
		}
	}
	return src
}

// edit changes a program's syntax tree. It returns false if there was nothing
// to change.
func edit(src string, change func(*ast.File) bool) (string, bool) {
	set := token.NewFileSet()
	f, err := parser.ParseFile(set, "p.go", src, parser.ParseComments|parser.SkipObjectResolution)
	if err != nil {
		return "", false
	}
	if !change(f) {
		return "", false
	}
	// Comments of deleted code would move to other places.
	comments := f.Comments[:0]
	for _, c := range f.Comments {
		if c.Pos() < f.Package || onLoop(set, f, c) {
			comments = append(comments, c)
		}
	}
	f.Comments = comments
	var b bytes.Buffer
	if err := format.Node(&b, set, f); err != nil {
		return "", true
	}
	return b.String(), true
}

// onLoop reports whether a comment stands on the line of a loop that still
// exists.
func onLoop(set *token.FileSet, f *ast.File, c *ast.CommentGroup) (found bool) {
	line := set.Position(c.Pos()).Line
	ast.Inspect(f, func(n ast.Node) bool {
		switch n.(type) {
		case *ast.ForStmt, *ast.RangeStmt:
			found = found || set.Position(n.Pos()).Line == line
		}
		return !found
	})
	return found
}

// dropDecl deletes the i-th declaration that is not an import.
func dropDecl(f *ast.File, i int) bool {
	for k, d := range f.Decls {
		if g, ok := d.(*ast.GenDecl); ok && g.Tok == token.IMPORT {
			continue
		}
		if i--; i < 0 {
			f.Decls = slices.Delete(f.Decls, k, k+1)
			return true
		}
	}
	return false
}

// lists returns all lists of statements.
func lists(f *ast.File) (all []*[]ast.Stmt) {
	ast.Inspect(f, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.BlockStmt:
			all = append(all, &n.List)
		case *ast.CaseClause:
			all = append(all, &n.Body)
		case *ast.CommClause:
			all = append(all, &n.Body)
		}
		return true
	})
	return all
}

// dropStmts deletes some statements of the l-th list. known reports whether
// there is such a list.
func dropStmts(f *ast.File, l, at, size int, known *bool) bool {
	all := lists(f)
	if l >= len(all) {
		return false
	}
	*known = true
	list := all[l]
	if at >= len(*list) {
		return false
	}
	*list = slices.Delete(*list, at, min(at+size, len(*list)))
	return true
}

// unwrap puts the statements of the i-th compound statement in its place.
func unwrap(f *ast.File, i int) bool {
	for _, list := range lists(f) {
		for k, s := range *list {
			if l, ok := s.(*ast.LabeledStmt); ok {
				s = l.Stmt
			}
			var body []ast.Stmt
			switch s := s.(type) {
			case *ast.IfStmt:
				body = s.Body.List
			case *ast.ForStmt:
				body = s.Body.List
			case *ast.RangeStmt:
				body = s.Body.List
			case *ast.BlockStmt:
				body = s.List
			default:
				continue
			}
			if i--; i < 0 {
				*list = slices.Replace(*list, k, k+1, body...)
				return true
			}
		}
	}
	return false
}

var std = sync.OnceValue(func() types.Importer {
	return importer.ForCompiler(token.NewFileSet(), "source", nil)
})

// compiles type-checks a program that imports packages of the standard library.
func compiles(src string) bool {
	_, _, errs := check(src)
	return src != "" && len(errs) == 0
}

// check returns a program's type errors.
func check(src string) (*token.FileSet, *ast.File, []error) {
	set := token.NewFileSet()
	f, err := parser.ParseFile(set, "p.go", src, parser.ParseComments|parser.SkipObjectResolution)
	if err != nil {
		return nil, nil, []error{err}
	}
	var errs []error
	conf := types.Config{Importer: std(), Error: func(err error) { errs = append(errs, err) }}
	conf.Check("p", set, []*ast.File{f}, nil)
	return set, f, errs
}

// useAll adds uses of variables that are not used any more.
func useAll(src string) string {
	set, f, errs := check(src)
	unused := make(map[token.Pos]string)
	for _, err := range errs {
		e, ok := err.(types.Error)
		name, found := strings.CutPrefix(e.Msg, "declared and not used: ")
		if !ok || !found {
			return src
		}
		unused[e.Pos] = name
	}
	if f == nil || len(unused) == 0 {
		return src
	}
	for _, list := range lists(f) {
		for k := len(*list) - 1; k >= 0; k-- {
			switch (*list)[k].(type) {
			case *ast.AssignStmt, *ast.DeclStmt:
			default:
				continue
			}
			for at, name := range unused {
				if s := (*list)[k]; s.Pos() <= at && at < s.End() {
					use := &ast.AssignStmt{Lhs: []ast.Expr{ast.NewIdent("_")}, TokPos: s.End(), Tok: token.ASSIGN, Rhs: []ast.Expr{ast.NewIdent(name)}}
					*list = slices.Insert(*list, k+1, ast.Stmt(use))
				}
			}
		}
	}
	var b bytes.Buffer
	if format.Node(&b, set, f) != nil {
		return src
	}
	return b.String()
}
