// Package load reads a Go program: Load asks the go command for its packages,
// and parses and type-checks those that are not libraries.
//
// Libraries are the standard library, Cairn's own packages, packages with cgo,
// and what these import. The compiler does not look into them: it knows their
// types only, from the compiler's export data.
package load

import (
	"context"
	"errors"
	"fmt"
	"go/ast"
	"go/importer"
	"go/parser"
	"go/token"
	"go/types"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"time"
)

// Options are the options of Load. The zero value is that of a plain go build.
type Options struct {
	// Tags are build tags.
	Tags []string
	// Env is the environment of the go command; nil stands for that of this
	// process.
	Env []string
	// Take names functions, as cairn explain shows them. A dynamic call
	// that may lead to one of them is taken to lead to them only. This is
	// for programs with several modes of work.
	Take []string
	// Go is the go command. Empty stands for "go", found by PATH.
	Go string
	// ExportEnv is the environment in which the go command compiles what the
	// program imports; nil stands for Env. Only the types are read.
	ExportEnv []string
	// Step, if not nil, is called with the name of a step before it begins.
	Step func(name string)
}

// Phase is a part of the work, and the time it took.
type Phase struct {
	Name    string  `json:"name"`
	Seconds float64 `json:"seconds"`
}

// Errors for errors.Is.
var (
	// ErrPattern says that the patterns do not name one program.
	ErrPattern = errors.New("no program found")
	// ErrSource says that the source does not compile.
	ErrSource = errors.New("the program does not compile")
)

// Import paths of Cairn's packages.
const (
	CairnPath  = "github.com/cairnrun/cairn"
	MPIPath    = CairnPath + "/mpi"
	DevicePath = CairnPath + "/device"
)

// RuntimePath is the import path of the run time in programs that use Cairn,
// StdRuntimePath that in all others, where the run
// time is part of the standard library.
const (
	RuntimePath    = CairnPath + "/resume"
	StdRuntimePath = "cairnrt/resume"
)

// Package is a package whose source is read.
type Package struct {
	*Listed
	pattern string // of the main package: the patterns that named it
	Files   []*ast.File
	Types   *types.Package
	Info    *types.Info
}

// Program is a Go program: its packages, parsed and type-checked.
type Program struct {
	ctx     context.Context
	Dir     string
	Options Options
	Fset    *token.FileSet

	ByPath  map[string]*Listed // all packages, by import path
	Library map[string]bool    // import paths of packages that are not looked into
	Sources []*Package         // dependencies first
	Main    *Package
	Among   bool // the patterns name other packages than Main, too
	im      *imports

	begin  time.Time
	Phases []Phase
}

// Load reads the packages of the program that patterns name in dir.
func Load(ctx context.Context, dir string, patterns []string, o Options) (*Program, error) {
	ld := &Program{ctx: ctx, Dir: dir, Options: o, Fset: token.NewFileSet(), begin: time.Now()}
	ld.Begin("listing packages")
	if err := ld.list(patterns); err != nil {
		return nil, err
	}
	ld.Phase("go list")
	if err := ld.check(); err != nil {
		return nil, err
	}
	ld.Phase("parse and type-check")
	return ld, nil
}

// Begin reports that a step begins.
func (ld *Program) Begin(step string) {
	if ld.Options.Step != nil {
		ld.Options.Step(step)
	}
}

// Phase records the time since the last phase under a name.
func (ld *Program) Phase(name string) {
	now := time.Now()
	ld.Phases = append(ld.Phases, Phase{name, now.Sub(ld.begin).Seconds()})
	ld.begin = now
}

// check parses and type-checks the sources.
func (ld *Program) check() error {
	ld.Begin("parsing")
	errs := make([]error, len(ld.Sources))
	var wg sync.WaitGroup
	limit := make(chan bool, runtime.GOMAXPROCS(0))
	for i, s := range ld.Sources {
		wg.Go(func() {
			limit <- true
			defer func() { <-limit }()
			errs[i] = s.parse(ld.Fset)
		})
	}
	wg.Wait()
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("%w:\n%w", ErrSource, err)
	}
	ld.Begin("compiling imported libraries")
	im, err := ld.imports()
	if err != nil {
		return err
	}
	ld.Begin("type-checking")
	ld.im = im
	for _, s := range ld.Sources {
		if err := ld.ctx.Err(); err != nil {
			return err
		}
		if err := s.check(ld.Fset, im); err != nil {
			return err
		}
		im.source[s.ImportPath] = s.Types
	}
	return nil
}

// imports returns the importer for the type checker.
func (ld *Program) imports() (*imports, error) {
	need := ld.needed()
	files := make(map[string]string)
	if err := ld.exports(files, need); err != nil {
		return nil, err
	}
	all := false
	lookup := func(path string) (io.ReadCloser, error) {
		if files[path] == "" && !all {
			// Rewritten source may import packages that no source
			// imports.
			if err := ld.exports(files, need, "-deps"); err != nil {
				return nil, err
			}
			all = true
		}
		name := files[path]
		if name == "" {
			return nil, fmt.Errorf("package %s cannot be compiled ('go build %s' says why)", path, path)
		}
		return os.Open(name)
	}
	return &imports{compiled: importer.ForCompiler(ld.Fset, "gc", lookup), source: make(map[string]*types.Package)}, nil
}

// needed returns the compiled packages that the sources import.
func (ld *Program) needed() (need []string) {
	for _, s := range ld.Sources {
		for _, path := range s.Imports {
			if to, ok := s.ImportMap[path]; ok {
				path = to
			}
			if ld.Library[path] && path != "unsafe" && path != "C" {
				need = append(need, path)
			}
		}
	}
	slices.Sort(need)
	return slices.Compact(need)
}

// exports finds the export data files of compiled packages.
func (ld *Program) exports(files map[string]string, need []string, more ...string) error {
	if len(need) == 0 {
		return nil
	}
	env := ld.Options.Env
	if ld.Options.ExportEnv != nil {
		env = ld.Options.ExportEnv
	}
	list, err := ld.golist(env, "ImportPath,Export", slices.Concat([]string{"-export"}, more, []string{"--"}, need)...)
	if err != nil {
		return err
	}
	for _, p := range list {
		files[p.ImportPath] = p.Export
	}
	return nil
}

// imports is a types.Importer.
type imports struct {
	compiled types.Importer
	source   map[string]*types.Package
	of       *Package
}

func (im *imports) Import(path string) (*types.Package, error) {
	if path == "unsafe" {
		return types.Unsafe, nil
	}
	if to, ok := im.of.ImportMap[path]; ok {
		path = to
	}
	if p := im.source[path]; p != nil {
		return p, nil
	}
	return im.compiled.Import(path)
}

// Importer returns an importer for what s imports.
func (ld *Program) Importer(s *Package) types.Importer {
	return &imports{compiled: ld.im.compiled, source: ld.im.source, of: s}
}

func (s *Package) parse(fset *token.FileSet) error {
	for _, name := range s.GoFiles {
		f, err := parser.ParseFile(fset, filepath.Join(s.Dir, name), nil, parser.ParseComments|parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		s.Files = append(s.Files, f)
	}
	return nil
}

func (s *Package) check(fset *token.FileSet, im *imports) error {
	im.of = s
	var found []string
	more := 0
	conf := types.Config{Importer: im, Sizes: types.SizesFor("gc", runtime.GOARCH), Error: func(err error) {
		if len(found) < 10 {
			found = append(found, err.Error())
		} else {
			more++
		}
	}}
	if s.Module != nil && s.Module.GoVersion != "" {
		conf.GoVersion = "go" + s.Module.GoVersion
	}
	s.Info = &types.Info{
		Types: make(map[ast.Expr]types.TypeAndValue), Defs: make(map[*ast.Ident]types.Object),
		Uses: make(map[*ast.Ident]types.Object), Implicits: make(map[ast.Node]types.Object),
		Selections: make(map[*ast.SelectorExpr]*types.Selection), Scopes: make(map[ast.Node]*types.Scope),
		Instances: make(map[*ast.Ident]types.Instance), FileVersions: make(map[*ast.File]string),
	}
	var err error
	s.Types, err = conf.Check(s.ImportPath, fset, s.Files, s.Info)
	if more > 0 {
		found = append(found, fmt.Sprintf("and %d more", more))
	}
	if len(found) > 0 {
		return fmt.Errorf("%w:\n%s\n%s", ErrSource, strings.Join(found, "\n"), s.remedy())
	}
	if err != nil {
		return fmt.Errorf("%w: %w; %s", ErrSource, err, s.remedy())
	}
	return nil
}

// remedy says what to do about source that does not compile.
func (s *Package) remedy() string {
	if s.ImportPath == "command-line-arguments" { // files were named
		return fmt.Sprintf("correct it until 'go build %s' succeeds; name all files of the program, or their directory", s.pattern)
	}
	return fmt.Sprintf("correct it until 'go build %s' succeeds", s.ImportPath)
}

// Rewritable reports whether the package's source can be replaced.
func (s *Package) Rewritable() bool { return !s.Standard && len(s.CgoFiles) == 0 }
