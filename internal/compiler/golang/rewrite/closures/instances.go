package closures

import (
	"fmt"
	"go/token"
	"go/types"
	"slices"
	"strings"

	"github.com/cairnrun/cairn/internal/compiler/golang/rewrite"
)

// instances holds the types with which generic functions and types are
// instantiated.
type instances struct {
	owner map[*types.TypeParam]types.Object // the function, or the type for its own parameters and those of its methods
	index map[*types.TypeParam]int
	args  map[types.Object][][]types.Type
	from  map[types.Object][]*types.Package // the packages in which each of args occurs
	open  map[types.Object]bool             // other packages may instantiate it, too
	ctx   *types.Context
}

// maxInstances limits the instances of one function.
const maxInstances = 200

func packageInstances(p *rewrite.Package) *instances { return instancesOf(false, p) }

// instancesOf finds the instances in some packages. whole says that there are
// no other packages.
func instancesOf(whole bool, list ...*rewrite.Package) *instances {
	k := &instances{map[*types.TypeParam]types.Object{}, map[*types.TypeParam]int{}, map[types.Object][][]types.Type{},
		map[types.Object][]*types.Package{}, map[types.Object]bool{}, types.NewContext()}
	in := map[*types.Package]bool{}
	for _, p := range list {
		in[p.Types] = true
		k.owners(p, whole)
	}
	type edge struct {
		to   types.Object
		args []types.Type
		from types.Object // the function or type whose parameters occur in args; nil: none
		in   *types.Package
		pos  int
	}
	var edges []edge
	for _, p := range list {
		for id, inst := range p.Info.Instances {
			o := p.Info.Uses[id]
			if o == nil || !in[o.Pkg()] {
				continue
			}
			e := edge{to: o, args: slices.Collect(inst.TypeArgs.Types()), in: p.Types, pos: int(id.Pos())}
			for _, t := range e.args {
				mentions(t, func(t *types.TypeParam) {
					if e.from = k.owner[t]; e.from == nil {
						k.open[o] = true
					}
				})
			}
			edges = append(edges, e)
		}
	}
	slices.SortFunc(edges, func(a, b edge) int { return a.pos - b.pos })
	for again := true; again; {
		again = false
		for _, e := range edges {
			if k.open[e.to] {
				continue
			}
			if e.from == nil {
				again = k.add(e.to, e.args, e.in) || again
				continue
			}
			if k.open[e.from] {
				k.open[e.to], again = true, true
				continue
			}
			for i, of := range k.args[e.from] {
				var list []types.Type
				for _, t := range e.args {
					sub := map[*types.TypeParam]types.Type{}
					mentions(t, func(t *types.TypeParam) { sub[t] = of[k.index[t]] })
					list = append(list, k.subst(t, sub))
				}
				again = k.add(e.to, list, k.from[e.from][i]) || again
			}
		}
	}
	return k
}

// owners finds the declarations that type parameters belong to.
func (k *instances) owners(p *rewrite.Package, whole bool) {
	own := func(o types.Object, list *types.TypeParamList) {
		for i := range list.Len() {
			k.owner[list.At(i)], k.index[list.At(i)] = o, i
		}
		if list.Len() > 0 && o.Exported() && p.Types.Name() != "main" && !whole {
			k.open[o] = true
		}
	}
	for _, o := range p.Info.Defs {
		switch o := o.(type) {
		case *types.Func:
			own(o, o.Signature().TypeParams())
			if r := o.Signature().Recv(); r != nil {
				t := types.Unalias(r.Type())
				if ptr, ok := t.(*types.Pointer); ok {
					t = types.Unalias(ptr.Elem())
				}
				if n, ok := t.(*types.Named); ok {
					own(n.Origin().Obj(), o.Signature().RecvTypeParams())
				}
			}
		case *types.TypeName:
			switch t := o.Type().(type) {
			case *types.Named:
				own(o, t.TypeParams())
			case *types.Alias:
				own(o, t.TypeParams())
			}
		}
	}
}

// add records an instance, and reports whether it is new.
func (k *instances) add(o types.Object, list []types.Type, in *types.Package) bool {
	if slices.ContainsFunc(k.args[o], func(l []types.Type) bool { return slices.EqualFunc(l, list, types.Identical) }) {
		return false
	}
	k.args[o], k.from[o] = append(k.args[o], list), append(k.from[o], in)
	if len(k.args[o]) > maxInstances || slices.ContainsFunc(list, func(t types.Type) bool { return t == nil }) {
		k.open[o] = true
	}
	return true
}

// GenericClosure is a closure of a generic function that other packages
// instantiate. Each package registers the closures for its type arguments.
type GenericClosure struct {
	Owner       string // the function, or the receiver type of the method
	Name        string // as in Entry, with [...] in place of type arguments
	Constructor string // generic, and exported
	Params      []int  // indexes of the owner's type parameters that it uses
	Pos         token.Position
	Func        string // function that contains it
	Resumable   bool   // it has a point, or a call that leads to one
}

// planOpen plans a closure of a function that may be instantiated elsewhere.
func (c *converter) planOpen(l *closure, used []int) *rewrite.Refusal {
	for _, name := range []string{"panic", "nil"} {
		for _, o := range c.Info.Defs {
			if o != nil && o.Name() == name {
				return c.no(l.node.Pos(), "give it another name", "%s is declared by the package, and needed for this closure as Go's own", name)
			}
		}
	}
	l.open, l.used = true, used
	return nil
}

// exported begins the names of constructors that other packages need.
var exported = strings.ToUpper(rewrite.Prefix[:1]) + rewrite.Prefix[1:]

// declareOpen writes the declarations of a closure of a function that other
// packages instantiate. Its constructor is generic. Closures of different
// instances differ by the dictionary that they capture in addition to the
// environment.
func (c *converter) declareOpen(l *closure, params, args string) {
	b := &c.files[l.file].decls
	c.declareEnv(l, params, args)
	name := exported + "make_" + l.ident
	lit := strings.Replace(c.literal(l), guard, fmt.Sprintf("if %s == nil {\npanic(interface{}((*%senv_%s%s)(nil))) // so both are captured\n}", rewrite.EnvName, rewrite.Prefix, l.ident, args), 1)
	fmt.Fprintf(b, "\n// %s makes a closure; it is exported for instances.\n//\n//go:noinline\nfunc %s%s(%s *%senv_%s%s) %s {\nreturn %s\n}\n",
		name, name, params, rewrite.EnvName, rewrite.Prefix, l.ident, args, l.sigText, lit)
	c.declared[name] = l
	c.made.Generic = append(c.made.Generic, GenericClosure{Owner: l.owner.object.Name(), Name: c.Types.Path() + "." + l.name, Constructor: name, Params: l.used,
		Pos: c.Fset.Position(l.node.Pos()), Func: c.no(l.node.Pos(), "", "").Func, Resumable: c.resumable.Funcs[l.node]})
}

// guard marks code that makes a literal capture its environment.
const guard = "/*cairn:guard*/"

// Instance is a list of types with which something generic is instantiated.
type Instance struct {
	Args []types.Type
	In   *types.Package // the package in whose source it occurs, perhaps only through a call of another generic function
}

// Instances returns a function that lists the instances of a generic function
// or type. That function returns false if not all instances can be known. list
// holds all packages of the program.
func Instances(list []*rewrite.Package) func(types.Object) ([]Instance, bool) {
	k := instancesOf(true, list...)
	return func(o types.Object) ([]Instance, bool) {
		var out []Instance
		for i, args := range k.args[o] {
			out = append(out, Instance{args, k.from[o][i]})
		}
		return out, !k.open[o]
	}
}

// Nameable reports whether a package can write a type at package level.
func Nameable(t types.Type, p *types.Package) bool {
	ok := rewrite.Unnameable(t, p, map[types.Type]bool{}) == ""
	_ = types.TypeString(t, func(q *types.Package) string {
		ok = ok && (q == p || rewrite.Importable(q.Path(), p.Path()))
		return q.Name()
	})
	return ok
}
