package gobuild

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// packageInfo is what go list says of a package for a build.
type packageInfo struct {
	ImportPath, Name, Dir    string
	Standard, DepOnly        bool
	GoFiles, CgoFiles        []string
	CFiles, CXXFiles, MFiles []string
	HFiles, FFiles, SFiles   []string
	SwigFiles, SwigCXXFiles  []string
	SysoFiles, EmbedFiles    []string
	Module                   *module
	Error                    *struct{ Pos, Err string }
}

// module is what go list says of a module.
type module struct {
	Path, Version, Dir, GoMod string
	Main                      bool
	Replace                   *module
}

const unitFields = "ImportPath,Name,Dir,Standard,DepOnly,GoFiles,CgoFiles,CFiles,CXXFiles,MFiles,HFiles,FFiles,SFiles," +
	"SwigFiles,SwigCXXFiles,SysoFiles,EmbedFiles,Module,Error"

// packages returns the packages of the program.
func (b *Builder) packages() ([]*packageInfo, error) {
	if b.pkgs != nil {
		return b.pkgs, nil
	}
	args := []string{"list", "-e", "-deps", "-json=" + unitFields}
	for _, f := range b.flags {
		if name, _, _ := strings.Cut(strings.TrimLeft(f, "-"), "="); name != "v" && name != "x" && name != "a" && name != "work" {
			args = append(args, f)
		}
	}
	out, err := b.run(append(append(args, "--"), b.Patterns...)...)
	if err != nil {
		return nil, err
	}
	for d := json.NewDecoder(bytes.NewReader(out)); ; {
		u := new(packageInfo)
		if err := d.Decode(u); err == io.EOF {
			return b.pkgs, nil
		} else if err != nil {
			return nil, fmt.Errorf("go list gave no JSON: %w; cairn needs a go command of version 1.21 or newer", err)
		}
		b.pkgs = append(b.pkgs, u)
	}
}

// replaceModules makes files in the module cache, which the go command does not let
// be replaced, part of folders that only the overlay has, and go.mod or go.work
// use these.
func (b *Builder) replaceModules(files map[string][]byte) error {
	list, err := b.packages()
	if err != nil {
		return err
	}
	modules := make(map[string]*module) // by folder
	for _, u := range list {
		if m := u.Module; m != nil && m.Dir != "" {
			modules[m.Dir] = m
		}
	}
	cache, err := b.CacheDir()
	if err != nil {
		return err
	}
	changed := make(map[string]string) // module path → its folder in the overlay
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
		to := filepath.Join(cache, "modules", strings.ReplaceAll(rel, "@", "-")) // go.work takes no @ in a folder's name
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
		with := filepath.Join(b.work, fmt.Sprintf("%d-%s", len(b.overlay), filepath.Base(name)))
		if err := os.WriteFile(with, text, 0o644); err != nil {
			return err
		}
		b.overlay[filepath.Join(to, inside)] = with
	}
	return b.replaceInGoMod(changed)
}

// overlayModule shows a module's files, as they are, in another folder.
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
			case ".s", ".S", ".h": // the assembler looks for itself
				return linkOrCopy(filepath.Join(as, rel), name)
			}
			b.overlay[filepath.Join(as, rel)] = name
		}
		return nil
	})
	if _, ok := b.overlay[filepath.Join(as, "go.mod")]; !ok && err == nil {
		// It is older than modules; the go command keeps one for it.
		b.overlay[filepath.Join(as, "go.mod")] = gomod
	}
	return err
}

// replaceInGoMod lets go.mod or go.work, as the go command sees them, replace modules
// by folders.
func (b *Builder) replaceInGoMod(dirs map[string]string) error {
	name, edit := b.env["GOMOD"], "mod"
	for i, f := range b.flags {
		if alt, ok := strings.CutPrefix(strings.TrimLeft(f, "-"), "modfile="); ok {
			// The go.sum beside it is used, so it keeps its name.
			name = b.abs(alt)
			b.flags[i] = "-modfile=" + name
		}
	}
	if work := b.env["GOWORK"]; work != "" && work != "off" {
		name, edit = work, "work"
	}
	if name == "" || name == os.DevNull {
		return errors.New("files of modules are to be replaced, but there is no go.mod")
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

// linkOrCopy makes a file of a module, which never changes, known by another name.
func linkOrCopy(to, from string) error {
	if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil {
		return err
	}
	if err := os.Symlink(from, to); err == nil || errors.Is(err, fs.ErrExist) {
		return nil
	}
	return CopyFile(to, from)
}
