package gobuild

import (
	"os"
	"path/filepath"
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
