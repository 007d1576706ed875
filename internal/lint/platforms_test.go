package lint

import (
	"encoding/json"
	"errors"
	"go/ast"
	"go/parser"
	"go/token"
	"go/types"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// TestPlatforms type-checks all packages for other systems. This takes a tenth
// of the time of building them ("make cross").
func TestPlatforms(t *testing.T) {
	platforms := []string{"darwin/arm64", "windows/amd64"}
	if os.Getenv("CAIRN_LONG") != "" {
		platforms = append(platforms, "linux/arm64", "linux/s390x")
	}
	for _, p := range platforms {
		t.Run(p, func(t *testing.T) {
			t.Parallel()
			system, arch, _ := strings.Cut(p, "/")
			cmd := exec.Command("go", "list", "-deps", "-json=ImportPath,Dir,GoFiles,ImportMap,Standard", "./...")
			cmd.Dir = filepath.Join("..", "..")
			cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOOS="+system, "GOARCH="+arch)
			cmd.Stderr = t.Output()
			out, err := cmd.StdoutPipe()
			if err != nil {
				t.Fatal(err)
			}
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			own := 0
			done := map[string]*types.Package{"unsafe": types.Unsafe}
			for dec := json.NewDecoder(out); ; {
				var pkg listed
				if err := dec.Decode(&pkg); errors.Is(err, io.EOF) {
					break
				} else if err != nil {
					t.Fatal(err)
				}
				if done[pkg.ImportPath] != nil {
					continue
				}
				ours := pkg.ImportPath == module || strings.HasPrefix(pkg.ImportPath, module+"/")
				if ours {
					own++
				}
				done[pkg.ImportPath] = pkg.check(arch, done, func(err error) {
					if ours {
						t.Error(err)
					}
				})
			}
			if err := cmd.Wait(); err != nil {
				t.Fatal(err)
			}
			if own < 40 {
				t.Errorf("only %d packages were checked", own)
			}
		})
	}
}

// listed is what go list prints for a package.
type listed struct {
	ImportPath string
	Dir        string
	GoFiles    []string
	ImportMap  map[string]string
	Standard   bool
}

// check type-checks a package whose imports have been checked. It first removes
// the bodies of functions of other modules, which need not be checked.
func (p *listed) check(arch string, done map[string]*types.Package, failed func(error)) *types.Package {
	fset := token.NewFileSet()
	var files []*ast.File
	for _, name := range p.GoFiles {
		f, err := parser.ParseFile(fset, filepath.Join(p.Dir, name), nil, parser.SkipObjectResolution)
		if err != nil {
			failed(err)
			continue
		}
		if p.Standard || !strings.HasPrefix(p.ImportPath, module) {
			for _, d := range f.Decls {
				if fn, ok := d.(*ast.FuncDecl); ok && fn.Body != nil {
					fn.Body = &ast.BlockStmt{Lbrace: fn.Body.Lbrace, Rbrace: fn.Body.Rbrace}
				}
			}
		}
		files = append(files, f)
	}
	c := types.Config{Error: failed, FakeImportC: true, Sizes: types.SizesFor("gc", arch), Importer: importer(func(path string) (*types.Package, error) {
		if to, ok := p.ImportMap[path]; ok {
			path = to
		}
		if pkg := done[path]; pkg != nil {
			return pkg, nil
		}
		return nil, errors.New("not listed: " + path)
	})}
	pkg, _ := c.Check(p.ImportPath, fset, files, nil)
	return pkg
}

type importer func(path string) (*types.Package, error)

func (f importer) Import(path string) (*types.Package, error) { return f(path) }
