package instrument

import (
	"fmt"
	"go/format"
	"go/types"
	"maps"
	"path/filepath"
	"slices"
	"strings"

	"github.com/cairnrun/cairn/internal/compiler/golang/load"
	"github.com/cairnrun/cairn/internal/compiler/golang/rewrite"
	"github.com/cairnrun/cairn/internal/compiler/golang/rewrite/closures"
)

// genericName is the file that is added to packages that instantiate generic
// functions of others.
const genericName = "zz_cairn_of.go"

// genericClosure is a closure in a generic function that others may
// instantiate.
type genericClosure struct {
	closures.GenericClosure
	s *load.Package
}

// registerGeneric writes the files in which packages register the closures of
// other packages' generic functions, one for each list of type arguments.
func (in *instrumenter) registerGeneric(out *Result) error {
	if len(out.generic) == 0 {
		return nil
	}
	var all []*rewrite.Package
	byTypes := map[*types.Package]*load.Package{}
	for _, s := range in.p.Source.Sources {
		all = append(all, &rewrite.Package{Path: s.ImportPath, Types: s.Types, Info: s.Info})
		byTypes[s.Types] = s
	}
	instances := closures.Instances(all)
	files := map[*load.Package]*genericFile{}
	for _, o := range out.generic {
		list, ok := instances(o.s.Types.Scope().Lookup(o.Owner))
		if !ok {
			if err := in.refuseGeneric(o, out, "may be instantiated with unknown types"); err != nil {
				return err
			}
			continue
		}
		for _, i := range list {
			q := byTypes[i.In]
			if !in.canRegister(q, o, i) {
				q = o.s // q may not import it, because it is internal
			}
			if !in.canRegister(q, o, i) {
				if err := in.refuseGeneric(o, out, "is instantiated with a type that cannot be named outside of where it is declared"); err != nil {
					return err
				}
				continue
			}
			if files[q] == nil {
				files[q] = &genericFile{of: q, imports: map[string]string{}}
			}
			files[q].add(o, i)
		}
	}
	for q, f := range files {
		text, err := f.text(out.Runtime)
		if err != nil {
			return err
		}
		out.Files[filepath.Join(q.Dir, genericName)] = rewrite.AllowTypeParams(text, goVersion(q))
	}
	return nil
}

// canRegister reports whether package q can name a closure's constructor and
// the type arguments of an instance, and may import their packages.
func (in *instrumenter) canRegister(q *load.Package, o genericClosure, i closures.Instance) bool {
	if q == nil || !q.Rewritable() {
		return false
	}
	needed := map[*types.Package]bool{o.s.Types: true}
	for _, n := range o.Params {
		if !closures.Nameable(i.Args[n], q.Types) {
			return false
		}
		types.TypeString(i.Args[n], func(p *types.Package) string {
			needed[p] = true
			return ""
		})
	}
	for p := range needed {
		if p != q.Types && (!visibleIn(p.Path(), q.ImportPath) || q.Types != i.In && !in.imports(q, p.Path())) {
			return false
		}
	}
	return true
}

// visibleIn reports whether a package may import the path: an internal package
// belongs to the directory above internal.
func visibleIn(path, from string) bool {
	at := strings.LastIndex("/"+path+"/", "/internal/")
	if at < 0 {
		return true
	}
	parent := strings.TrimSuffix(path[:max(at-1, 0)], "/")
	return from == parent || strings.HasPrefix(from, parent+"/")
}

// imports reports whether a package imports a path, directly or not.
func (in *instrumenter) imports(q *load.Package, path string) bool {
	seen := map[string]bool{}
	var find func(list []string) bool
	find = func(list []string) bool {
		return slices.ContainsFunc(list, func(p string) bool {
			if p == path || seen[p] {
				return p == path
			}
			seen[p] = true
			s := in.p.Source.ByPath[p]
			return s != nil && find(s.Imports)
		})
	}
	return find(q.Imports)
}

// refuseGeneric refuses a closure on the resumable path, and warns of others.
func (in *instrumenter) refuseGeneric(o genericClosure, out *Result, why string) error {
	r := &rewrite.Refusal{Pos: o.Pos, Package: o.s.ImportPath, Func: o.Func, Reason: fmt.Sprintf("a closure that is part of the state is in %s, which %s", o.Owner, why),
		Remedy: "use a type that is declared at package level, or a function that is not generic"}
	if o.Resumable {
		return r
	}
	out.unsaved = append(out.unsaved, in.unsavedText(r))
	return nil
}

// genericFile is one of these files.
type genericFile struct {
	of      *load.Package
	imports map[string]string // names, by path
	lines   []string
}

// add registers the closure of one instance.
func (f *genericFile) add(o genericClosure, i closures.Instance) {
	name := func(p *types.Package) string {
		if p == f.of.Types {
			return ""
		}
		if f.imports[p.Path()] == "" {
			f.imports[p.Path()] = fmt.Sprintf("%sp%d", rewrite.Prefix, len(f.imports)+1)
		}
		return f.imports[p.Path()]
	}
	var args, full []string
	for _, n := range o.Params {
		args = append(args, types.TypeString(i.Args[n], name))
		full = append(full, types.TypeString(i.Args[n], nil))
	}
	mk := o.Constructor
	if p := name(o.s.Types); p != "" {
		mk = p + "." + mk
	}
	line := fmt.Sprintf("%s.Closure(%q, %s[%s])\n", rewrite.Prefix, strings.Replace(o.Name, "[...]", "["+strings.Join(full, ",")+"]", 1), mk, strings.Join(args, ", "))
	if !slices.Contains(f.lines, line) {
		f.lines = append(f.lines, line)
	}
}

// text returns the file's text.
func (f *genericFile) text(runtime string) ([]byte, error) {
	var b strings.Builder
	fmt.Fprintf(&b, "// Code generated by cairn. DO NOT EDIT.\n\npackage %s\n\nimport %s %q\n", f.of.Name, rewrite.Prefix, runtime)
	for _, path := range slices.Sorted(maps.Keys(f.imports)) {
		fmt.Fprintf(&b, "import %s %q\n", f.imports[path], path)
	}
	fmt.Fprintf(&b, "\nfunc init() {\n%s}\n", strings.Join(f.lines, ""))
	return format.Source([]byte(b.String()))
}
