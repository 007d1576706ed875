package gobuild

import (
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/cairnrun/cairn/internal/compiler/golang/load"
)

// TreePath returns the place of a file in a tree of the files of a build: as in
// the program's module or workspace, or below modules/PATH for another module.
func (b *Builder) TreePath(name string) string {
	root := ""
	if file := b.env["GOWORK"]; file != "" && file != "off" {
		root = filepath.Dir(file)
	} else if file := b.env["GOMOD"]; file != "" && file != os.DevNull {
		root = filepath.Dir(file)
	}
	if within(root, name) {
		return rel(root, name)
	}
	if list, err := b.packages(); err == nil {
		for _, u := range list {
			if m := u.Module; m != nil && within(m.Dir, name) {
				return filepath.Join("modules", filepath.FromSlash(m.Path), rel(m.Dir, name))
			}
		}
	}
	if within(b.Dir, name) {
		return rel(b.Dir, name)
	}
	return filepath.Base(name)
}

// SourceFile is a file of the program or of one of its modules.
type SourceFile struct {
	ImportPath, Dir, Name string
	Go                    bool // Go source without cgo
}

// Sources returns the files that the program is made of, without those of the
// standard library and of Cairn.
func (b *Builder) Sources() ([]SourceFile, error) {
	list, err := b.packages()
	if err != nil {
		return nil, err
	}
	var out []SourceFile
	for _, u := range list {
		if u.Standard || u.ImportPath == load.CairnPath || strings.HasPrefix(u.ImportPath, load.CairnPath+"/") && u.DepOnly {
			continue
		}
		for _, name := range u.GoFiles {
			out = append(out, SourceFile{u.ImportPath, u.Dir, name, true})
		}
		for _, name := range slices.Concat(u.CgoFiles, u.CFiles, u.CXXFiles, u.MFiles, u.HFiles, u.FFiles, u.SFiles, u.SysoFiles, u.EmbedFiles) {
			out = append(out, SourceFile{u.ImportPath, u.Dir, name, false})
		}
	}
	return out, nil
}

// rel returns a name relative to a directory that contains it.
func rel(dir, name string) string {
	name, _ = filepath.Rel(dir, name)
	return name
}

// within reports whether a name is below a directory.
func within(dir, name string) bool {
	rel, err := filepath.Rel(dir, name)
	return dir != "" && err == nil && filepath.IsLocal(rel)
}
