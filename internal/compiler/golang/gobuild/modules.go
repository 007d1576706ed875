package gobuild

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/cairnrun/cairn/internal/compiler/golang/load"
)

// packageInfo is what go list prints for a package.
type packageInfo struct {
	ImportPath, Name, Dir    string
	Standard, DepOnly        bool
	GoFiles, CgoFiles        []string
	CFiles, CXXFiles, MFiles []string
	HFiles, FFiles, SFiles   []string
	SwigFiles, SwigCXXFiles  []string
	SysoFiles, EmbedFiles    []string
	Imports                  []string
	Module                   *module
	Error                    *struct{ Pos, Err string }
}

// module is what go list prints for a module.
type module struct {
	Path, Version, Dir, GoMod string
	Main                      bool
	Replace                   *module
}

const packageFields = "ImportPath,Name,Dir,Standard,DepOnly,GoFiles,CgoFiles,CFiles,CXXFiles,MFiles,HFiles,FFiles,SFiles," +
	"SwigFiles,SwigCXXFiles,SysoFiles,EmbedFiles,Imports,Module,Error"

// packages returns the packages of the program.
func (b *Builder) packages() ([]*packageInfo, error) {
	if b.pkgs != nil {
		return b.pkgs, nil
	}
	args := []string{"list", "-e", "-deps", "-json=" + packageFields}
	for _, f := range b.flags {
		if name, _, _ := strings.Cut(strings.TrimLeft(f, "-"), "="); name != "v" && name != "x" && name != "a" && name != "work" {
			args = append(args, f)
		}
	}
	out, err := b.run(append(append(args, "--"), b.Patterns...)...)
	if err != nil {
		return nil, err
	}
	b.pkgs, err = load.ParseList[packageInfo](out)
	return b.pkgs, err
}

// replaceModules replaces files in the module cache. The go command does not
// allow that by overlay, so each of their modules gets a directory that exists
// in the overlay only, and go.mod or go.work uses it.
func (b *Builder) replaceModules(files map[string][]byte) error {
	list, err := b.packages()
	if err != nil {
		return err
	}
	modules := make(map[string]*module) // by directory
	for _, u := range list {
		if m := u.Module; m != nil && m.Dir != "" {
			modules[m.Dir] = m
		}
	}
	cache, err := b.CacheDir()
	if err != nil {
		return err
	}
	changed := make(map[string]string) // module path → its directory in the overlay
	for name, text := range files {
		dir := filepath.Dir(name)
		for modules[dir] == nil && within(b.env["GOMODCACHE"], dir) {
			dir = filepath.Dir(dir)
		}
		m := modules[dir]
		if m == nil {
			return fmt.Errorf("%w: %s is in the module cache, but in no module of the program", ErrBuild, name)
		}
		rel, err := filepath.Rel(b.env["GOMODCACHE"], dir)
		if err != nil {
			return err
		}
		to := filepath.Join(cache, "modules", strings.ReplaceAll(rel, "@", "-")) // go.work allows no @ in a directory's name
		if changed[m.Path] == "" {
			changed[m.Path] = to
			if err := b.overlayModule(m, to); err != nil {
				return err
			}
		}
		inside, err := filepath.Rel(dir, name)
		if err != nil {
			return err
		}
		if err := b.replace(filepath.Join(to, inside), text); err != nil {
			return err
		}
	}
	return b.replaceInGoMod(changed)
}

// overlayModule adds a module's unchanged files to the overlay under another
// directory.
func (b *Builder) overlayModule(m *module, as string) error {
	gomod := m.GoMod
	if m.Replace != nil {
		gomod = m.Replace.GoMod
	}
	err := filepath.WalkDir(m.Dir, func(name string, e fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if e.Type().IsRegular() && !strings.HasSuffix(name, "_test.go") {
			rel, err := filepath.Rel(m.Dir, name)
			if err != nil {
				return err
			}
			switch filepath.Ext(name) {
			case ".s", ".S", ".h": // the assembler does not use the overlay
				return linkOrCopy(filepath.Join(as, rel), name)
			}
			b.overlay[filepath.Join(as, rel)] = name
		}
		return nil
	})
	if _, ok := b.overlay[filepath.Join(as, "go.mod")]; !ok && err == nil {
		// The module is older than go.mod files; the go command keeps
		// one for it.
		b.overlay[filepath.Join(as, "go.mod")] = gomod
	}
	return err
}

// replaceInGoMod overlays go.mod or go.work with one that replaces modules by
// directories.
func (b *Builder) replaceInGoMod(dirs map[string]string) error {
	name, edit := b.env["GOMOD"], "mod"
	for i, f := range b.flags {
		if alt, ok := strings.CutPrefix(strings.TrimLeft(f, "-"), "modfile="); ok {
			// The go command uses the go.sum beside it, so it keeps
			// its name.
			name = b.abs(alt)
			b.flags[i] = "-modfile=" + name
		}
	}
	if work := b.env["GOWORK"]; work != "" && work != "off" {
		name, edit = work, "work"
	}
	if name == "" || name == os.DevNull {
		return errors.New("cannot replace files of modules: there is no go.mod")
	}
	text, err := os.ReadFile(name)
	if err != nil {
		return err
	}
	with := filepath.Join(b.work, "instead."+edit)
	if err := os.WriteFile(with, text, 0o644); err != nil {
		return err
	}
	args := []string{edit, "edit"}
	for path, dir := range dirs {
		args = append(args, "-replace="+path+"="+dir)
	}
	if _, err := b.run(append(args, with)...); err != nil {
		return err
	}
	b.overlay[name] = with
	return nil
}
