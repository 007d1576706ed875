package device

import (
	"fmt"
	"os"
	"reflect"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
)

// Cairn's compiler finds arrays that a program overwrites before it reads them
// again (internal/compiler/golang/divide). Where the program can be saved, it
// tells which arrays these are. A checkpoint does not hold their bytes. After a
// restart they are unwritten: to read them is an error, never a wrong value.

// overwritten are the bytes that need not be saved, as long as the program has
// not used an array since.
var overwritten struct {
	sync.Mutex
	at    uint64 // operations when they were told
	parts map[*memory]rangeSet
}

// dryRun is a dry run of an iteration's launches: nothing is launched. It notes
// which bytes the kernels would overwrite before they read them.
type dryRun struct {
	arrays      map[*memory]rangeSet // those that may be left out
	overwritten map[*memory]rangeSet
	needed      map[*memory]rangeSet // read before they were overwritten
	launches    int
}

// dryRunning is the dry run that is under way, or nil.
var dryRunning atomic.Pointer[dryRun]

// mostDryLaunches bounds a dry run. Later launches do not count.
const mostDryLaunches = 1 << 14

// CairnDryRun begins a dry run, which CairnOverwritten ends, and reports
// whether there is one. The code that Cairn's compiler adds calls it. The text
// is as for CairnOverwritten, with the arrays that may be left out.
func CairnDryRun(text string, variables ...any) bool {
	arrays := findOverwritten(text, variables)
	if len(arrays) == 0 {
		return false
	}
	dryRunning.Store(&dryRun{arrays, map[*memory]rangeSet{}, map[*memory]rangeSet{}, 0})
	return true
}

// launch notes a launch.
func (r *dryRun) launch(args []Arg) error {
	for i, a := range args {
		a.h.m.mu.Lock()
		freed := a.h.m.freed
		a.h.m.mu.Unlock()
		if freed {
			return fmt.Errorf("argument %d: %w", i, errFreed)
		}
	}
	if r.launches++; r.launches > mostDryLaunches {
		return nil
	}
	for _, a := range args {
		if a.mode&reads != 0 {
			m := a.h.m
			r.overwritten[m].pieces(a.lo, a.hi, func(lo, hi int64, in bool) error {
				if !in {
					r.needed[m] = r.needed[m].with(lo, hi)
				}
				return nil
			})
		}
	}
	for _, a := range args {
		if a.mode == writes {
			r.overwritten[a.h.m] = r.overwritten[a.h.m].with(a.lo, a.hi)
		}
	}
	return nil
}

// addTo adds what need not be saved.
func (r *dryRun) addTo(parts map[*memory]rangeSet) {
	for m, arrays := range r.arrays {
		for _, a := range arrays {
			r.overwritten[m].pieces(a[0], a[1], func(lo, hi int64, in bool) error {
				if !in {
					return nil
				}
				return r.needed[m].pieces(lo, hi, func(lo, hi int64, in bool) error {
					if !in {
						parts[m] = parts[m].with(lo, hi)
					}
					return nil
				})
			})
		}
	}
}

// operations counts what the program does with its arrays.
var operations atomic.Uint64

// saving is not zero if a checkpoint is due; nil: none is ever taken.
var saving *uint32

// CairnSaving sets the variable that is not zero when a checkpoint is due.
func (*deviceCount) CairnSaving(due *uint32) {
	if os.Getenv("CAIRN_SAVE_ALL") == "" {
		saving = due
	}
}

// CairnSaves reports whether the program is about to be saved. The code that
// Cairn's compiler adds calls it.
func CairnSaves() bool { return saving != nil && atomic.LoadUint32(saving) != 0 }

// CairnOverwritten says which arrays the program overwrites before it reads
// them. The code that Cairn's compiler adds calls it. Each line of the text is
// a case: the type of one of the variables, paths whose pointers must be nil,
// paths whose pointers must not be nil, and paths of the arrays. A path begins
// with the number of a variable.
func CairnOverwritten(text string, variables ...any) {
	parts := findOverwritten(text, variables)
	if r := dryRunning.Swap(nil); r != nil {
		if parts == nil {
			parts = map[*memory]rangeSet{}
		}
		r.addTo(parts)
	}
	for m, r := range parts {
		m.mu.Lock()
		for _, x := range r {
			if m.freed || m.raw != nil {
				delete(parts, m)
				break
			}
			// A later checkpoint that holds them must not take them for
			// unchanged.
			i, j := m.cut(x[0], x[1])
			for ; i < j; i++ {
				m.spans[i].version = version.Add(1)
			}
		}
		m.mu.Unlock()
	}
	overwritten.Lock()
	defer overwritten.Unlock()
	overwritten.at, overwritten.parts = operations.Load(), parts
}

// findOverwritten returns the bytes of the arrays. If a path does not lead
// anywhere, there are none.
func findOverwritten(text string, variables []any) (parts map[*memory]rangeSet) {
	defer func() {
		if e := recover(); e != nil { // a nil pointer on the way, for example
			parts = nil
		}
	}()
	done := map[string]bool{}
	parts = map[*memory]rangeSet{}
	for line := range strings.Lines(text) {
		f := strings.Split(strings.TrimSuffix(line, "\n"), ";")
		if len(f) != 4 || done[f[0]] || !isOfType(f[0], variables) {
			continue
		}
		holds := true
		for i, want := range []bool{true, false} {
			for _, p := range strings.Fields(f[1+i]) {
				follow(p, variables, func(v reflect.Value) { holds = holds && v.IsNil() == want })
			}
		}
		if !holds {
			continue
		}
		done[f[0]] = true // no other case holds
		for _, p := range strings.Fields(f[3]) {
			follow(p, variables, func(v reflect.Value) {
				if v.Kind() == reflect.Pointer {
					if v.IsNil() {
						return
					}
					v = v.Elem()
				}
				if v.Type().PkgPath() != reflect.TypeFor[Arg]().PkgPath() || !strings.HasPrefix(v.Type().Name(), "Array[") {
					panic(fmt.Sprintf("%v is not an array", v.Type()))
				}
				h := (*handle)(v.FieldByName("h").UnsafePointer())
				if h != nil {
					parts[h.m] = parts[h.m].with(v.FieldByName("lo").Int(), v.FieldByName("hi").Int())
				}
			})
		}
	}
	return parts
}

// isOfType reports whether a variable has a type: N=PACKAGE.NAME, or nothing if
// any type will do.
func isOfType(text string, variables []any) bool {
	if text == "" {
		return true
	}
	n, name, _ := strings.Cut(text, "=")
	i, err := strconv.Atoi(n)
	if err != nil || i >= len(variables) || variables[i] == nil {
		return false
	}
	t := reflect.TypeOf(variables[i])
	if t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	return t.PkgPath()+"."+t.Name() == name
}

// follow calls f with the values at a path.
func follow(p string, variables []any, f func(reflect.Value)) {
	steps := strings.Split(p, "/")
	i, err := strconv.Atoi(steps[0])
	if err != nil {
		panic(err)
	}
	var walk func(v reflect.Value, steps []string)
	walk = func(v reflect.Value, steps []string) {
		if len(steps) == 0 {
			f(v)
			return
		}
		for v.Kind() == reflect.Pointer || v.Kind() == reflect.Interface {
			v = v.Elem()
		}
		switch {
		case steps[0] != "*":
			walk(v.FieldByName(steps[0]), steps[1:])
		case v.Kind() == reflect.Map:
			for it := v.MapRange(); it.Next(); {
				walk(it.Value(), steps[1:])
			}
		default:
			for i := range v.Len() {
				walk(v.Index(i), steps[1:])
			}
		}
	}
	walk(reflect.ValueOf(variables[i]), steps[1:])
}

// leftOut returns the bytes of the memory that a checkpoint leaves out. The
// caller holds mu.
func (m *memory) leftOut() rangeSet {
	if saving == nil || m.inState { // the program may read the host copy
		return nil
	}
	overwritten.Lock()
	defer overwritten.Unlock()
	if overwritten.at != operations.Load() {
		return nil
	}
	return overwritten.parts[m]
}

// allLeftOut returns the memories of which a checkpoint leaves something out.
func allLeftOut() (list []*memory) {
	overwritten.Lock()
	defer overwritten.Unlock()
	if overwritten.at == operations.Load() {
		for m := range overwritten.parts {
			list = append(list, m)
		}
	}
	return list
}

// pieces divides bytes lo…hi where r begins and ends. in says whether a piece
// is in r.
func (r rangeSet) pieces(lo, hi int64, f func(lo, hi int64, in bool) error) error {
	for _, x := range r {
		from, to := max(lo, x[0]), min(hi, x[1])
		if from >= to {
			continue
		}
		if lo < from {
			if err := f(lo, from, false); err != nil {
				return err
			}
		}
		if err := f(from, to, true); err != nil {
			return err
		}
		lo = to
	}
	if lo < hi {
		return f(lo, hi, false)
	}
	return nil
}
