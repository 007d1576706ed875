package load

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// Listed is what go list prints for a package.
type Listed struct {
	ImportPath, Name, Dir string
	GoFiles, CgoFiles     []string
	Standard, DepOnly     bool
	Imports               []string
	ImportMap             map[string]string
	Export                string
	DefaultGODEBUG        string // settings of a program, from its go.mod and its source
	Module                *struct {
		GoVersion string
		Main      bool
	}
	Error *struct{ Pos, Err string }
}

// golist runs go list and returns its packages, dependencies first.
func (ld *Program) golist(env []string, fields string, args ...string) ([]*Listed, error) {
	all := []string{"list", "-e", "-json=" + fields}
	if len(ld.Options.Tags) > 0 {
		all = append(all, "-tags="+strings.Join(ld.Options.Tags, ","))
	}
	out, _, err := Go(ld.ctx, ld.Options.Go, ld.Dir, env, append(all, args...)...)
	if err != nil {
		return nil, err
	}
	return ParseList[Listed](out)
}

// list finds the program and its packages.
func (ld *Program) list(patterns []string) error {
	if len(patterns) == 0 {
		patterns = []string{"."}
	}
	list, err := ld.golist(ld.Options.Env, "ImportPath,Name,Dir,GoFiles,CgoFiles,Standard,DepOnly,Imports,ImportMap,DefaultGODEBUG,Module,Error",
		append([]string{"-deps", "--"}, patterns...)...)
	if err != nil {
		return err
	}
	ld.ByPath, ld.Library = make(map[string]*Listed), make(map[string]bool)
	var mains, others, broken, none []string
	for _, p := range list {
		ld.ByPath[p.ImportPath] = p
		if p.Error != nil && !p.Standard {
			text := p.Error.Err
			if p.Error.Pos != "" {
				text = p.Error.Pos + ": " + text
			}
			if !p.DepOnly && p.Name == "" && len(p.GoFiles) == 0 { // the pattern named it, but it is not a package
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
		if name := patterns[0]; strings.HasSuffix(name, ".go") && !fileExists(filepath.Join(ld.Dir, name)) && !fileExists(name) {
			none = []string{"there is no file " + name}
		}
		text := strings.Join(none, "\n")
		if dir := filepath.Join(ld.Dir, patterns[0]); strings.Contains(text, "main module") || strings.Contains(text, "workspace modules") {
			if filepath.IsAbs(patterns[0]) {
				dir = patterns[0]
			}
			if s, err := os.Stat(dir); err == nil && s.IsDir() {
				text += "\nIt is in another module: start cairn in that directory (cd " + patterns[0] + ")"
			}
		} else if !strings.Contains(text, ";") { // it names no remedy
			text += "; name a directory with Go files of package main, or its files"
		}
		return fmt.Errorf("%w: %s", ErrPattern, text)
	case len(mains) > 1:
		return fmt.Errorf("%w: %s is %d programs; name one of them: %s", ErrPattern, what, len(mains), strings.Join(mains, ", "))
	case len(mains) == 0 && len(others) > 0:
		return fmt.Errorf("%w: %s is not a program; name a package main", ErrPattern, others[0])
	case len(mains) == 0:
		return fmt.Errorf("%w: %s matches no package; name a directory with Go files of package main", ErrPattern, what)
	}
	ld.libraries(list)
	for _, p := range list {
		if ld.Library[p.ImportPath] {
			continue
		}
		s := &Package{Listed: p}
		ld.Sources = append(ld.Sources, s)
		if p.ImportPath == mains[0] {
			ld.Main = s
			s.pattern = what
			ld.Among = len(others) > 0
		}
	}
	if ld.Main == nil {
		return fmt.Errorf("%w: %s uses cgo, which Cairn cannot analyse; move the cgo code into a package of its own", ErrPattern, mains[0])
	}
	return nil
}

// libraries finds the packages that the compiler does not look into: libraries,
// and what they import.
func (ld *Program) libraries(list []*Listed) {
	var add func(path string)
	add = func(path string) {
		p := ld.ByPath[path]
		if p == nil || ld.Library[path] {
			return
		}
		ld.Library[path] = true
		for _, q := range p.Imports {
			if to, ok := p.ImportMap[q]; ok {
				q = to
			}
			add(q)
		}
	}
	for _, p := range list {
		switch {
		case p.Standard, len(p.CgoFiles) > 0:
			add(p.ImportPath)
		case p.ImportPath == "golang.org/x/sync/errgroup" && ld.ByPath[CairnPath] != nil: // ranks save their main goroutine only
			add(p.ImportPath)
		case p.ImportPath == CairnPath, p.ImportPath == MPIPath, p.ImportPath == DevicePath, p.ImportPath == CairnPath+"/hdf5":
			add(p.ImportPath)
		}
	}
}

func fileExists(name string) bool {
	st, err := os.Stat(name)
	return err == nil && st.Mode().IsRegular()
}
