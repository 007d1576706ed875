package golang

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"go/ast"
	"go/importer"
	"go/parser"
	"go/token"
	"go/types"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"time"
)

// Errors that callers tell apart with errors.Is.
var (
	// ErrPattern says that the patterns do not name one program.
	ErrPattern = errors.New("no program to look at")
	// ErrSource says that the source has errors.
	ErrSource = errors.New("the program does not compile")
)

const (
	cairnPath  = "github.com/cairnrun/cairn"
	mpiPath    = cairnPath + "/mpi"
	devicePath = cairnPath + "/device"
)

// listed is what go list says of a package.
type listed struct {
	ImportPath, Name, Dir string
	GoFiles, CgoFiles     []string
	Standard, DepOnly     bool
	Imports               []string
	ImportMap             map[string]string
	Export                string
	DefaultGODEBUG        string // settings of a program, by its go.mod and its source
	Module                *struct {
		GoVersion string
		Main      bool
	}
	Error *struct{ Pos, Err string }
}

type loader struct {
	ctx  context.Context
	dir  string
	o    Options
	fset *token.FileSet

	byPath  map[string]*listed
	library map[string]bool
	sources []*source // dependencies first
	main    *source
	im      *imports

	begin  time.Time
	phases []Phase
}

// phase notes what was done since the last one.
func (ld *loader) phase(name string) {
	now := time.Now()
	ld.phases = append(ld.phases, Phase{name, now.Sub(ld.begin)})
	ld.begin = now
}

// whereModule says where a folder among the arguments of a go command has its
// module, if the command, run in another folder, did not look there.
func whereModule(from string, args []string) string {
	above := func(dir string) string {
		dir, err := filepath.Abs(dir)
		for err == nil {
			if _, err := os.Stat(filepath.Join(dir, "go.mod")); err == nil && dir != filepath.Clean(os.TempDir()) { // as the go command does
				return dir
			}
			up := filepath.Dir(dir)
			if up == dir {
				break
			}
			dir = up
		}
		return ""
	}
	for _, pattern := range args {
		dir := filepath.Join(from, pattern)
		if filepath.IsAbs(pattern) {
			dir = pattern
		}
		if info, err := os.Stat(dir); err != nil || !info.IsDir() {
			continue
		}
		switch m := above(dir); m {
		case "":
			return fmt.Sprintf("; %s is in no module: 'go mod init NAME' there makes it one", pattern)
		case above(from):
		default:
			return fmt.Sprintf("; %s is part of the module in %s: go there first", pattern, m)
		}
	}
	return ""
}

// golist runs go list and returns what it says, dependencies first.
func (ld *loader) golist(fields string, args ...string) ([]*listed, error) {
	name := ld.o.Go
	if name == "" {
		name = "go"
	}
	all := []string{"list", "-e", "-json=" + fields}
	if len(ld.o.Tags) > 0 {
		all = append(all, "-tags="+strings.Join(ld.o.Tags, ","))
	}
	cmd := exec.CommandContext(ld.ctx, name, append(all, args...)...)
	cmd.Dir, cmd.Env = ld.dir, ld.o.Env
	var out, complaint bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &complaint
	if err := cmd.Run(); err != nil {
		if ld.ctx.Err() != nil {
			return nil, ld.ctx.Err()
		}
		if errors.Is(err, exec.ErrNotFound) {
			return nil, fmt.Errorf("the go command is needed to read Go programs: %w; install Go, or put it into PATH", err)
		}
		if text := strings.TrimSpace(complaint.String()); text != "" {
			return nil, fmt.Errorf("go list: %s%s", text, whereModule(ld.dir, args))
		}
		return nil, fmt.Errorf("go list: %w", err)
	}
	var list []*listed
	for d := json.NewDecoder(&out); ; {
		p := new(listed)
		if err := d.Decode(p); err == io.EOF {
			return list, nil
		} else if err != nil {
			return nil, fmt.Errorf("go list gave no JSON: %w; cairn needs a go command of version 1.21 or newer", err)
		}
		list = append(list, p)
	}
}

// list finds the program and its packages.
func (ld *loader) list(patterns []string) error {
	if len(patterns) == 0 {
		patterns = []string{"."}
	}
	list, err := ld.golist("ImportPath,Name,Dir,GoFiles,CgoFiles,Standard,DepOnly,Imports,ImportMap,DefaultGODEBUG,Module,Error",
		append([]string{"-deps", "--"}, patterns...)...)
	if err != nil {
		return err
	}
	ld.byPath, ld.library = make(map[string]*listed), make(map[string]bool)
	var mains, others, broken, none []string
	for _, p := range list {
		ld.byPath[p.ImportPath] = p
		if p.Error != nil && !p.Standard {
			text := p.Error.Err
			if p.Error.Pos != "" {
				text = p.Error.Pos + ": " + text
			}
			if !p.DepOnly && p.Name == "" && len(p.GoFiles) == 0 { // it was named, and is no package
				none = append(none, text)
			} else {
				broken = append(broken, text)
			}
		}
		if p.DepOnly {
			continue
		}
		if p.Name == "main" {
			mains = append(mains, p.ImportPath)
		} else if p.Name != "" {
			others = append(others, p.ImportPath)
		}
	}
	what := strings.Join(patterns, " ")
	switch {
	case len(broken) > 0:
		return fmt.Errorf("%w:\n%s", ErrSource, strings.Join(broken, "\n"))
	case len(none) > 0:
		if name := patterns[0]; strings.HasSuffix(name, ".go") && !isFile(filepath.Join(ld.dir, name)) && !isFile(name) {
			none = []string{"there is no file " + name}
		}
		text := strings.Join(none, "\n")
		if !strings.Contains(text, ";") { // it does not say what to do
			text += "; name a folder with Go files of package main, or its files"
		}
		return fmt.Errorf("%w: %s", ErrPattern, text)
	case len(mains) > 1:
		return fmt.Errorf("%w: %s is %d programs; name one of them: %s", ErrPattern, what, len(mains), strings.Join(mains, ", "))
	case len(mains) == 0 && len(others) > 0:
		return fmt.Errorf("%w: %s is a package and not a program; name one with package main", ErrPattern, others[0])
	case len(mains) == 0:
		return fmt.Errorf("%w: %s matches no package; name a folder with Go files of package main", ErrPattern, what)
	}
	ld.libraries(list)
	for _, p := range list {
		if ld.library[p.ImportPath] {
			continue
		}
		s := &source{listed: p}
		ld.sources = append(ld.sources, s)
		if p.ImportPath == mains[0] {
			ld.main = s
			s.named = what
		}
	}
	if ld.main == nil {
		return fmt.Errorf("%w: %s uses cgo, which can't be looked into; put that into a package of its own", ErrPattern, mains[0])
	}
	return nil
}

// libraries finds the packages that are not looked into, which import only such.
func (ld *loader) libraries(list []*listed) {
	var add func(path string)
	add = func(path string) {
		p := ld.byPath[path]
		if p == nil || ld.library[path] {
			return
		}
		ld.library[path] = true
		for _, q := range p.Imports {
			if to, ok := p.ImportMap[q]; ok {
				q = to
			}
			add(q)
		}
	}
	for _, p := range list {
		switch {
		case p.Standard, len(p.CgoFiles) > 0, p.ImportPath == "golang.org/x/sync/errgroup":
			add(p.ImportPath)
		case p.ImportPath == cairnPath, p.ImportPath == mpiPath, p.ImportPath == devicePath, p.ImportPath == cairnPath+"/hdf5":
			add(p.ImportPath)
		}
	}
}

// check parses and type-checks the sources.
func (ld *loader) check() error {
	errs := make([]error, len(ld.sources))
	var wg sync.WaitGroup
	limit := make(chan bool, runtime.GOMAXPROCS(0))
	for i, s := range ld.sources {
		wg.Add(1)
		go func() {
			defer wg.Done()
			limit <- true
			defer func() { <-limit }()
			errs[i] = s.parse(ld.fset)
		}()
	}
	wg.Wait()
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("%w:\n%w", ErrSource, err)
	}
	im, err := ld.imports()
	if err != nil {
		return err
	}
	ld.im = im
	for _, s := range ld.sources {
		if err := ld.ctx.Err(); err != nil {
			return err
		}
		if err := s.check(ld.fset, im); err != nil {
			return err
		}
		im.source[s.ImportPath] = s.types
	}
	return nil
}

// imports makes what finds packages for the type checker.
func (ld *loader) imports() (*imports, error) {
	need := ld.needed()
	files := make(map[string]string)
	if err := ld.exports(files, need); err != nil {
		return nil, err
	}
	all := false
	lookup := func(path string) (io.ReadCloser, error) {
		if files[path] == "" && !all {
			// Rewritten source imports packages of types that no source names, too.
			if err := ld.exports(files, need, "-deps"); err != nil {
				return nil, err
			}
			all = true
		}
		name := files[path]
		if name == "" {
			return nil, fmt.Errorf("package %s could not be compiled; 'go build %s' tells why", path, path)
		}
		return os.Open(name)
	}
	return &imports{compiled: importer.ForCompiler(ld.fset, "gc", lookup), source: make(map[string]*types.Package)}, nil
}

// needed returns the compiled packages that the sources import.
func (ld *loader) needed() (need []string) {
	for _, s := range ld.sources {
		for _, path := range s.Imports {
			if to, ok := s.ImportMap[path]; ok {
				path = to
			}
			if ld.library[path] && path != "unsafe" && path != "C" {
				need = append(need, path)
			}
		}
	}
	slices.Sort(need)
	return slices.Compact(need)
}

// exports finds the files of compiled packages.
func (ld *loader) exports(files map[string]string, need []string, more ...string) error {
	if len(need) == 0 {
		return nil
	}
	list, err := ld.golist("ImportPath,Export", slices.Concat([]string{"-export"}, more, []string{"--"}, need)...)
	if err != nil {
		return err
	}
	for _, p := range list {
		files[p.ImportPath] = p.Export
	}
	return nil
}

// imports finds packages for the type checker.
type imports struct {
	compiled types.Importer
	source   map[string]*types.Package
	of       *source
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

func (s *source) parse(fset *token.FileSet) error {
	for _, name := range s.GoFiles {
		f, err := parser.ParseFile(fset, filepath.Join(s.Dir, name), nil, parser.ParseComments|parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		s.files = append(s.files, f)
	}
	return nil
}

func (s *source) check(fset *token.FileSet, im *imports) error {
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
	s.info = &types.Info{
		Types: make(map[ast.Expr]types.TypeAndValue), Defs: make(map[*ast.Ident]types.Object),
		Uses: make(map[*ast.Ident]types.Object), Implicits: make(map[ast.Node]types.Object),
		Selections: make(map[*ast.SelectorExpr]*types.Selection), Scopes: make(map[ast.Node]*types.Scope),
		Instances: make(map[*ast.Ident]types.Instance), FileVersions: make(map[*ast.File]string),
	}
	var err error
	s.types, err = conf.Check(s.ImportPath, fset, s.files, s.info)
	if more > 0 {
		found = append(found, fmt.Sprintf("and %d more", more))
	}
	if len(found) > 0 {
		return fmt.Errorf("%w:\n%s\n%s", ErrSource, strings.Join(found, "\n"), s.mend())
	}
	if err != nil {
		return fmt.Errorf("%w: %w; %s", ErrSource, err, s.mend())
	}
	return nil
}

// mend says what to do about a source that does not compile.
func (s *source) mend() string {
	if s.ImportPath == "command-line-arguments" { // it is of files
		return fmt.Sprintf("mend it until 'go build %s' passes; all files of the program have to be named, or their folder", s.named)
	}
	return fmt.Sprintf("mend it until 'go build %s' passes", s.ImportPath)
}
