package golang

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/scanner"
	"go/token"
	"maps"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/cairnrun/cairn/internal/compiler/golang/rewrite"
)

// Source has digests of what a program is made of. They depend neither on where
// its files are, nor on comments and formatting.
type Source struct {
	// Digest is the digest of everything.
	Digest string `json:"digest"`
	// Files has a digest of each file, by its import path and name.
	Files map[string]string `json:"files,omitempty"`
	// Resumable has a digest of each declaration that frames, closures and
	// types in a checkpoint depend on, by import path and name.
	Resumable map[string]string `json:"resumable,omitempty"`
}

// Changed returns the names that two of Files or Resumable do not have in
// common, or with different digests.
func Changed(a, b map[string]string) (names []string) {
	for n, d := range a {
		if b[n] != d {
			names = append(names, n)
		}
	}
	for n := range b {
		if _, ok := a[n]; !ok {
			names = append(names, n)
		}
	}
	slices.Sort(names)
	return names
}

// made matches what the rewriting puts before the name of a function.
var made = regexp.MustCompile(`\b` + rewrite.Prefix + `[a-z]+_(\d+_)?`)

// Conflicts returns the functions and types that a checkpoint of s may hold and
// that are different in t.
func (s *Source) Conflicts(t *Source) []string {
	var names []string
	for _, n := range Changed(s.Resumable, t.Resumable) {
		n = made.ReplaceAllString(n, "")
		if strings.HasSuffix(n, ".init") { // it registers them
			n = "the package variables and func values of " + strings.TrimSuffix(n, ".init")
		}
		names = append(names, n)
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// source returns the digests of a program.
func (w *Rewritten) source() (*Source, error) {
	files, err := w.builder.Sources()
	if err != nil {
		return nil, err
	}
	s := &Source{Files: map[string]string{}, Resumable: map[string]string{}}
	dirs := map[string]string{}
	digests, errs := make([]string, len(files)), make([]error, len(files))
	each(len(files), func(i int) {
		f := files[i]
		text, err := os.ReadFile(filepath.Join(f.Dir, f.Name))
		if f.Go {
			text = tokens(text)
		}
		digests[i], errs[i] = digest(text), err
	})
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	for i, f := range files {
		dirs[f.Dir] = f.ImportPath
		s.Files[path.Join(f.ImportPath, filepath.ToSlash(f.Name))] = digests[i]
	}
	all := sha256.New()
	for _, name := range slices.Sorted(maps.Keys(s.Files)) {
		fmt.Fprintf(all, "file %q %s\n", name, s.Files[name])
	}
	rewritten := map[string][]byte{}
	for name, text := range w.Files {
		dir, ok := dirs[filepath.Dir(name)]
		if !ok {
			dir = filepath.ToSlash(filepath.Dir(w.TreePath(name)))
		}
		rewritten[path.Join(dir, filepath.Base(name))] = text
	}
	names := slices.Sorted(maps.Keys(rewritten))
	digests = make([]string, len(names))
	each(len(names), func(i int) { digests[i] = digest(tokens(withoutLines(rewritten[names[i]]))) })
	for i, name := range names {
		fmt.Fprintf(all, "rewritten %q %s\n", name, digests[i])
		if err := s.resumable(path.Dir(name), rewritten[name]); err != nil {
			return nil, err
		}
	}
	s.Digest = hex.EncodeToString(all.Sum(nil)[:16])
	return s, nil
}

// resumable adds the declarations of a rewritten file on which checkpoints
// depend: types, and what contains a name that the rewriting has made.
func (s *Source) resumable(pkg string, text []byte) error {
	text = withoutLines(text)
	fset := token.NewFileSet()
	f, err := parser.ParseFile(fset, "", text, parser.SkipObjectResolution)
	if err != nil {
		return fmt.Errorf("rewritten source of %s: %w", pkg, err)
	}
	for _, d := range f.Decls {
		name, matters := "", false
		switch d := d.(type) {
		case *ast.FuncDecl:
			name = rewrite.FuncName(d)
		case *ast.GenDecl:
			if matters = d.Tok == token.TYPE; d.Tok == token.IMPORT || len(d.Specs) == 0 {
				continue
			}
			switch spec := d.Specs[0].(type) {
			case *ast.TypeSpec:
				name = spec.Name.Name
			case *ast.ValueSpec:
				name = spec.Names[0].Name
			}
		}
		ast.Inspect(d, func(n ast.Node) bool {
			id, ok := n.(*ast.Ident)
			matters = matters || ok && strings.HasPrefix(id.Name, rewrite.Prefix)
			return !matters
		})
		if !matters {
			continue
		}
		name = pkg + "." + name
		// There may be several of one name, as init or _.
		s.Resumable[name] = digest([]byte(s.Resumable[name]), tokens(text[fset.Position(d.Pos()).Offset:fset.Position(d.End()).Offset]))
	}
	return nil
}

// withoutLines removes what tells the run time lines of the source: the calls
// that say where literals are that cannot be saved, and the positions of loops
// in the tags of frames.
func withoutLines(text []byte) []byte {
	var out []byte
	for l := range strings.Lines(string(text)) {
		if strings.HasPrefix(l, "\t"+rewrite.Prefix+".Unsavable(") {
			continue
		}
		if strings.Contains(l, ` loops:"`) {
			l = loopLines.ReplaceAllString(l, "$1")
		}
		out = append(out, l...)
	}
	return out
}

// loopLines matches the position of a loop in a tag; see loopTag in package
// emit.
var loopLines = regexp.MustCompile(`@[^@]*?:\d+([ "])`)

// each calls do for 0 to n-1, on all processors.
func each(n int, do func(i int)) {
	var next atomic.Int64
	var wg sync.WaitGroup
	for range min(n, runtime.GOMAXPROCS(0)) {
		wg.Go(func() {
			for i := int(next.Add(1)) - 1; i < n; i = int(next.Add(1)) - 1 {
				do(i)
			}
		})
	}
	wg.Wait()
}

func digest(texts ...[]byte) string {
	h := sha256.New()
	for _, t := range texts {
		h.Write(t)
	}
	return hex.EncodeToString(h.Sum(nil)[:16])
}

// tokens returns the tokens of Go source, a line for each, without comments
// other than directives, and without the commas and semicolons that only
// formatting needs.
func tokens(text []byte) []byte {
	var s scanner.Scanner
	var out []byte
	s.Init(token.NewFileSet().AddFile("", -1, len(text)), text, func(token.Position, string) {}, scanner.ScanComments)
	pending := token.ILLEGAL // a comma or semicolon
	for {
		_, tok, lit := s.Scan()
		if tok == token.COMMENT && (!strings.HasPrefix(lit, "//go:") || strings.HasPrefix(lit, "//go:generate")) {
			continue
		}
		if pending != token.ILLEGAL && tok != token.RPAREN && tok != token.RBRACE && tok != token.RBRACK && tok != token.EOF {
			out = append(append(out, pending.String()...), '\n')
		}
		pending = token.ILLEGAL
		switch tok {
		case token.EOF:
			return out
		case token.COMMA, token.SEMICOLON:
			pending = tok
		default:
			out = append(append(out, tok.String()...), ' ')
			out = append(strconv.AppendQuote(out, lit), '\n')
		}
	}
}
