package golang

import (
	"bytes"
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"errors"
	"fmt"
	"go/build/constraint"
	"go/parser"
	"go/token"
	"io/fs"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/cairnrun/cairn"
)

// shims are packages that take the place of those outside the standard library.
//
//go:embed shims/unix/*.go shims/xxh3/*.go shims/zstd/*.go
var shims embed.FS

// laidRoot is the import path under which the run time lies in GOROOT/src.
const laidRoot = "cairnrt"

// laidImports are the import paths that the run time's packages have there.
// golang.org/x/sys/cpu is found among the standard library's own vendored ones.
var laidImports = map[string]string{
	"github.com/zeebo/xxh3":              laidRoot + "/shims/xxh3",
	"github.com/klauspost/compress/zlib": "compress/zlib",
	"github.com/klauspost/compress/zstd": laidRoot + "/shims/zstd",
	"golang.org/x/sys/unix":              laidRoot + "/shims/unix",
	"golang.org/x/sys/cpu":               "golang.org/x/sys/cpu",
}

// laidTags are in force there, whatever tags the program is built with.
var laidTags = []string{"static", "cairnrt"}

// laidPlatforms are where the run time can be laid over.
var laidPlatforms = []string{
	"linux/amd64", "linux/arm64", "linux/riscv64", "linux/loong64", "linux/ppc64", "linux/ppc64le", "linux/s390x", "linux/mips64", "linux/mips64le",
	"darwin/amd64", "darwin/arm64",
}

// laidVersion is the oldest Go that compiles it.
const laidVersion = "go1.26"

// laid returns the run time's files, by their names below GOROOT/src.
var laid = sync.OnceValues(func() (map[string][]byte, error) {
	files := make(map[string][]byte)
	for _, t := range []struct {
		tree fs.FS
		skip string
	}{{cairn.Source, "source.go"}, {shims, ""}} {
		err := fs.WalkDir(t.tree, ".", func(name string, e fs.DirEntry, err error) error {
			if err != nil || e.IsDir() || name == t.skip || strings.HasSuffix(name, "_test.go") || strings.HasSuffix(name, "_windows.go") {
				return err
			}
			text, err := fs.ReadFile(t.tree, name)
			if err != nil {
				return err
			}
			if text, err = laidText(name, text); text != nil {
				files[path.Join(laidRoot, name)] = text
			}
			return err
		})
		if err != nil {
			return nil, fmt.Errorf("Cairn's run time: %w", err)
		}
	}
	return files, nil
})

// laidText is a file as it is laid over: imports and build constraints are
// changed, and nothing else. It is nil for a file that is never built there.
func laidText(name string, text []byte) ([]byte, error) {
	text = laidConstraint(text)
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
		to, err := laidImport(old)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", fset.Position(im.Pos()), err)
		}
		at := fset.Position(im.Path.Pos()).Offset
		out = append(append(out, text[done:at]...), strconv.Quote(to)...)
		done = at + len(im.Path.Value)
	}
	return append(out, text[done:]...), nil
}

// laidImport is the import path that a package has where it is laid over.
func laidImport(p string) (string, error) {
	if to, ok := laidImports[p]; ok {
		return to, nil
	}
	if rest, ok := strings.CutPrefix(p, cairnPath); ok && (rest == "" || rest[0] == '/') {
		return laidRoot + strings.TrimPrefix(rest, "/internal/compiler/golang"), nil
	}
	if first, _, _ := strings.Cut(p, "/"); strings.Contains(first, ".") {
		return "", fmt.Errorf("%s is not part of the standard library, and has no replacement", p)
	}
	return p, nil
}

// laidConstraint settles the tags laidTags in a file's build constraint. It
// returns nil if the file is never built then.
func laidConstraint(text []byte) []byte {
	for at := 0; at < len(text); {
		end := at + bytes.IndexByte(text[at:], '\n') + 1
		if end == at {
			end = len(text)
		}
		line := strings.TrimSpace(string(text[at:end]))
		if constraint.IsGoBuild(line) {
			x, err := constraint.Parse(line)
			if err != nil {
				return text // the compiler complains
			}
			x, known, value := settle(x)
			switch {
			case known && !value:
				return nil
			case known:
				return slices.Concat(text[:at], []byte("\n"), text[end:])
			}
			return slices.Concat(text[:at], []byte("//go:build "+x.String()+"\n"), text[end:])
		}
		if line != "" && !strings.HasPrefix(line, "//") {
			break
		}
		at = end
	}
	return text
}

// settle simplifies a constraint in which laidTags are set. If it is known by
// that, it returns its value.
func settle(x constraint.Expr) (_ constraint.Expr, known, value bool) {
	switch x := x.(type) {
	case *constraint.TagExpr:
		if slices.Contains(laidTags, x.Tag) {
			return nil, true, true
		}
	case *constraint.NotExpr:
		y, known, value := settle(x.X)
		if known {
			return nil, true, !value
		}
		return &constraint.NotExpr{X: y}, false, false
	case *constraint.AndExpr:
		return settleTwo(x.X, x.Y, false, func(a, b constraint.Expr) constraint.Expr { return &constraint.AndExpr{X: a, Y: b} })
	case *constraint.OrExpr:
		return settleTwo(x.X, x.Y, true, func(a, b constraint.Expr) constraint.Expr { return &constraint.OrExpr{X: a, Y: b} })
	}
	return x, false, false
}

// settleTwo settles two constraints of which one with the value decides.
func settleTwo(x, y constraint.Expr, decides bool, join func(a, b constraint.Expr) constraint.Expr) (constraint.Expr, bool, bool) {
	a, knownA, valueA := settle(x)
	b, knownB, valueB := settle(y)
	switch {
	case knownA && valueA == decides, knownB && valueB == decides:
		return nil, true, decides
	case knownA && knownB:
		return nil, true, !decides
	case knownA:
		return b, false, false
	case knownB:
		return a, false, false
	}
	return join(a, b), false, false
}

// layOver makes a GOROOT below dir that is root with the run time in it: links to
// all that root has, the run time's files, and a package os with hooks. (An overlay of the go command does
// not do: assembly needs folders that exist, and nothing can be laid over a
// toolchain in the module cache.) Builds with it use what the go command has
// compiled for root, but for package os and what imports it.
func layOver(dir, root, version string) (string, error) {
	files, err := laid()
	if err != nil {
		return "", err
	}
	hooked, err := hookedOS(root)
	if err != nil {
		return "", err
	}
	files = maps.Clone(files)
	maps.Copy(files, hooked)
	names := slices.Sorted(maps.Keys(files))
	h := sha256.New()
	fmt.Fprintf(h, "%s\n%s\n", root, version)
	for _, name := range names {
		fmt.Fprintf(h, "%s %d\n%s", name, len(files[name]), files[name])
	}
	made := filepath.Join(dir, "goroot-"+hex.EncodeToString(h.Sum(nil)[:8]))
	for _, name := range names {
		to := filepath.Join(made, "src", filepath.FromSlash(name))
		// What a crash of the system left half-written is seen by this.
		if old, err := os.ReadFile(to); err == nil && bytes.Equal(old, files[name]) {
			continue
		}
		if err := replaceFile(to, files[name], 0o644); err != nil {
			return "", err
		}
	}
	if err := linkAll(filepath.Join(made, "src"), filepath.Join(root, "src"), laidRoot, "os"); err != nil {
		return "", err
	}
	var but []string
	for name := range hooked {
		but = append(but, path.Base(name))
	}
	if err := linkAll(filepath.Join(made, "src", "os"), filepath.Join(root, "src", "os"), but...); err != nil {
		return "", err
	}
	if err := linkAll(made, root, "src"); err != nil {
		return "", err
	}
	now := time.Now()
	os.Chtimes(made, now, now)
	forget(dir, "goroot-", 30*24*time.Hour)
	return made, nil
}

// linkAll makes dir hold links to all that of holds, but for some names.
func linkAll(dir, of string, but ...string) error {
	entries, err := os.ReadDir(of)
	if err != nil {
		return err
	}
	for _, e := range entries {
		if slices.Contains(but, e.Name()) {
			continue
		}
		from, to := filepath.Join(dir, e.Name()), filepath.Join(of, e.Name())
		if old, err := os.Readlink(from); err == nil && old == to {
			continue
		}
		// Another build may do the same.
		if os.Symlink(to, from) == nil {
			continue
		}
		next, err := os.MkdirTemp(dir, ".new-*")
		if err != nil {
			return err
		}
		err = os.Symlink(to, filepath.Join(next, "link"))
		if err == nil {
			err = os.Rename(filepath.Join(next, "link"), from)
		}
		if err = errors.Join(err, os.RemoveAll(next)); err != nil {
			return err
		}
	}
	return nil
}

// forget removes folders below dir whose names begin with prefix and that were not
// used for long.
func forget(dir, prefix string, long time.Duration) {
	entries, _ := os.ReadDir(dir)
	for _, e := range entries {
		if st, err := e.Info(); err == nil && strings.HasPrefix(e.Name(), prefix) && time.Since(st.ModTime()) > long {
			os.RemoveAll(filepath.Join(dir, e.Name())) // where not, the next build tries again
		}
	}
}

// replaceFile writes a file that others may be reading, or writing too.
func replaceFile(name string, text []byte, mode fs.FileMode) error {
	if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
		return err
	}
	f, err := os.CreateTemp(filepath.Dir(name), ".new-*")
	if err != nil {
		return err
	}
	_, err = f.Write(text)
	if e := f.Chmod(mode); err == nil {
		err = e
	}
	if e := f.Close(); err == nil {
		err = e
	}
	if err == nil {
		err = os.Rename(f.Name(), name)
	}
	if err != nil {
		os.Remove(f.Name())
	}
	return err
}
