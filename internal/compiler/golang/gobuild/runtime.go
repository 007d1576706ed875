package gobuild

import (
	"embed"
	"fmt"
	"go/parser"
	"go/token"
	"io/fs"
	"path"
	"strconv"
	"strings"
	"sync"

	"github.com/cairnrun/cairn/internal/compiler/golang/load"
	"github.com/cairnrun/cairn/internal/source"
)

// shims are packages that replace those outside the standard library.
//
//go:embed shims/unix/*.go shims/xxh3/*.go shims/zstd/*.go
var shims embed.FS

// runtimeRoot is the import path of the run time in GOROOT/src.
const runtimeRoot = "cairnrt"

// runtimeImports are the import paths of the run time's dependencies there.
// golang.org/x/sys/cpu is among the vendored packages of the standard library.
var runtimeImports = map[string]string{
	"github.com/zeebo/xxh3":              runtimeRoot + "/shims/xxh3",
	"github.com/klauspost/compress/zlib": "compress/zlib",
	"github.com/klauspost/compress/zstd": runtimeRoot + "/shims/zstd",
	"golang.org/x/sys/unix":              runtimeRoot + "/shims/unix",
	"golang.org/x/sys/cpu":               "golang.org/x/sys/cpu",
}

// platforms are those that the run time can be built for.
var platforms = []string{
	"linux/amd64", "linux/arm64", "linux/riscv64", "linux/loong64", "linux/ppc64", "linux/ppc64le", "linux/s390x", "linux/mips64", "linux/mips64le",
	"darwin/amd64", "darwin/arm64",
}

// minGoVersion is the oldest Go that compiles the run time.
const minGoVersion = "go1.26"

// runtimeFiles returns the run time's files, by their names below GOROOT/src.
var runtimeFiles = sync.OnceValues(func() (map[string][]byte, error) {
	files := make(map[string][]byte)
	for _, t := range []struct {
		tree fs.FS
		skip string
	}{{source.Files, "source.go"}, {shims, ""}} {
		err := fs.WalkDir(t.tree, ".", func(name string, e fs.DirEntry, err error) error {
			if err != nil || e.IsDir() || name == t.skip || strings.HasSuffix(name, "_test.go") || strings.HasSuffix(name, "_windows.go") {
				return err
			}
			text, err := fs.ReadFile(t.tree, name)
			if err != nil {
				return err
			}
			if text, err = runtimeText(name, text); text != nil {
				files[path.Join(runtimeRoot, name)] = text
			}
			return err
		})
		if err != nil {
			return nil, fmt.Errorf("Cairn's run time: %w", err)
		}
	}
	return files, nil
})

// runtimeText returns a file as it is in GOROOT: only imports and build
// constraints change. It returns nil for a file that is never built there.
func runtimeText(name string, text []byte) ([]byte, error) {
	text = simplifyConstraint(text)
	if text == nil || !strings.HasSuffix(name, ".go") {
		return text, nil
	}
	fset := token.NewFileSet()
	f, err := parser.ParseFile(fset, name, text, parser.ImportsOnly)
	if err != nil {
		return nil, err
	}
	var out []byte
	done := 0
	for _, im := range f.Imports {
		old, err := strconv.Unquote(im.Path.Value)
		if err != nil {
			return nil, err
		}
		to, err := runtimeImport(old)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", fset.Position(im.Pos()), err)
		}
		at := fset.Position(im.Path.Pos()).Offset
		out = append(append(out, text[done:at]...), strconv.Quote(to)...)
		done = at + len(im.Path.Value)
	}
	return append(out, text[done:]...), nil
}

// runtimeImport returns the import path of a package in GOROOT.
func runtimeImport(p string) (string, error) {
	if to, ok := runtimeImports[p]; ok {
		return to, nil
	}
	if rest, ok := strings.CutPrefix(p, load.CairnPath); ok && (rest == "" || rest[0] == '/') {
		return runtimeRoot + strings.TrimPrefix(rest, "/internal/compiler/golang/gobuild"), nil
	}
	if first, _, _ := strings.Cut(p, "/"); strings.Contains(first, ".") {
		return "", fmt.Errorf("%s is not part of the standard library, and has no replacement", p)
	}
	return p, nil
}
