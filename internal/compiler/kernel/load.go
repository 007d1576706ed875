package kernel

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
	"slices"
	"strings"

	"github.com/cairnrun/cairn/internal/compiler/golang/load"
)

// Package is a package that uses package device.
type Package struct {
	Dir  string
	Name string
	*Source
}

type listed struct {
	ImportPath, Name, Dir, Export string
	GoFiles, CgoFiles, Imports    []string
	ImportMap                     map[string]string
	DepOnly                       bool
	Module                        *struct{ GoVersion string }
	Error                         *struct{ Pos, Err string }
}

// Load reads those of the packages that patterns name in dir which import
// package device. A file that 'cairn kernels' wrote is left out.
func Load(ctx context.Context, dir string, patterns []string, tags string) ([]*Package, error) {
	args := []string{"list", "-e", "-export", "-deps", "-json=ImportPath,Name,Dir,Export,GoFiles,CgoFiles,Imports,ImportMap,DepOnly,Module,Error", "-tags=" + tags, "--"}
	if len(patterns) == 0 {
		patterns = []string{"."}
	}
	out, _, err := load.Go(ctx, "", dir, nil, append(args, patterns...)...)
	if err != nil {
		return nil, err
	}
	list, err := load.ParseList[listed](out)
	if err != nil {
		return nil, err
	}
	exports := make(map[string]string)
	for _, p := range list {
		exports[p.ImportPath] = p.Export
		if p.Error != nil && !p.DepOnly && p.Name == "" {
			return nil, fmt.Errorf("%w: %s", load.ErrPattern, p.Error.Err)
		}
	}
	var found []*Package
	for _, p := range list {
		if p.DepOnly || !slices.Contains(p.Imports, DevicePath) && p.ImportMap[DevicePath] == "" {
			continue
		}
		s, err := check(p, exports)
		if err != nil {
			return nil, err
		}
		found = append(found, &Package{Dir: p.Dir, Name: p.Name, Source: s})
	}
	return found, nil
}

func check(p *listed, exports map[string]string) (*Source, error) {
	fset := token.NewFileSet()
	var files []*ast.File
	for _, name := range append(slices.Clone(p.GoFiles), p.CgoFiles...) {
		if name == FileName {
			continue
		}
		f, err := parser.ParseFile(fset, filepath.Join(p.Dir, name), nil, parser.ParseComments|parser.SkipObjectResolution)
		if err != nil {
			return nil, fmt.Errorf("%w: %w", load.ErrSource, err)
		}
		files = append(files, f)
	}
	version := ""
	if p.Module != nil && p.Module.GoVersion != "" {
		version = "go" + p.Module.GoVersion
	}
	return Check(fset, p.ImportPath, version, files, func(path string) string {
		if to, ok := p.ImportMap[path]; ok {
			path = to
		}
		return exports[path]
	})
}

// Check type-checks a package. export returns the file with the export data of
// an imported package.
func Check(fset *token.FileSet, path, version string, files []*ast.File, export func(path string) string) (*Source, error) {
	s := &Source{Fset: fset, Files: files, Info: &types.Info{
		Types: make(map[ast.Expr]types.TypeAndValue), Defs: make(map[*ast.Ident]types.Object),
		Uses: make(map[*ast.Ident]types.Object), Selections: make(map[*ast.SelectorExpr]*types.Selection),
		Instances: make(map[*ast.Ident]types.Instance),
	}}
	var found []string
	conf := types.Config{
		GoVersion: version, FakeImportC: true, Sizes: sizes,
		Importer: importer.ForCompiler(fset, "gc", func(path string) (io.ReadCloser, error) {
			name := export(path)
			if name == "" {
				return nil, fmt.Errorf("package %s cannot be compiled ('go build %s' says why)", path, path)
			}
			return os.Open(name)
		}),
		Error: func(err error) { found = append(found, err.Error()) },
	}
	var err error
	s.Types, err = conf.Check(path, fset, files, s.Info)
	if len(found) > 0 {
		return nil, fmt.Errorf("%w:\n%s", load.ErrSource, strings.Join(found[:min(len(found), 10)], "\n"))
	}
	if err != nil {
		return nil, errors.Join(load.ErrSource, err)
	}
	return s, nil
}
