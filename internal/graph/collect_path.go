package graph

import (
	"fmt"
	"reflect"
	"strconv"
	"strings"
	"unsafe"
)

const (
	pathHead = 12 // steps that are shown at the start of a path
	pathTail = 24 // steps that are shown at the end of a path
)

// path returns a Go expression for the place at byte at of item i.
func (c *Collector) path(i int32, at uintptr) string {
	if !c.trace {
		c.needsTrace = true
		return "?"
	}
	type step struct {
		i  int32
		at uintptr
	}
	var steps []step
	for i >= 0 {
		steps = append(steps, step{i, at})
		i, at = c.traces[i].parent, c.traces[i].at
	}
	var b pathText
	for k := len(steps) - 1; k >= 0; k-- {
		if k == len(steps)-1-pathHead && k > pathTail {
			b.settle()
			b.s += fmt.Sprintf("…(%d more)…", k-pathTail)
			k = pathTail
		}
		c.item(&b, steps[k].i)
		c.inside(&b, c.items.S[steps[k].i], steps[k].at)
	}
	b.settle()
	return b.s
}

// pathText is an expression under construction.
type pathText struct {
	s     string
	deref int // pending dereferences, which a selector may make unnecessary
}

func (b *pathText) settle() {
	if b.deref > 0 {
		b.s = strings.Repeat("*", b.deref) + b.s
		b.deref = 0
	}
}

func (b *pathText) add(s string) {
	if s[0] == '.' && b.deref > 0 && s[1] != '(' {
		b.deref-- // Go dereferences once by itself
	}
	if b.deref > 0 {
		b.s = "(" + strings.Repeat("*", b.deref) + b.s + ")"
		b.deref = 0
	}
	b.s += s
}

// item appends the steps from a reference to item i.
func (c *Collector) item(b *pathText, i int32) {
	it := c.items.S[i]
	switch it.via() {
	case viaRoot:
		b.s = c.roots[i].Name
	case viaPtr:
		if d := c.heldBy(i); d != nil {
			b.add(".(" + shortName(d.t) + ")")
		}
		b.deref++
	case viaIface:
		b.add(".(" + shortName(c.plan(it).t) + ")")
	case viaMap:
		if d := c.heldBy(i); d != nil {
			b.add(".(" + shortName(d.t) + ")")
		}
	}
}

// heldBy returns the dynamic type of the interface through which item i was
// reached, or nil.
func (c *Collector) heldBy(i int32) *plan {
	t := c.traces[i]
	par := c.items.S[t.parent]
	p := c.plan(par).base
	off := t.at % p.size
	for {
		switch p.kind {
		case kStruct:
			f := p.fields[p.fieldAt(off)]
			p, off = f.p, off-f.off
			continue
		case kArray:
			p, off = p.base, off%p.base.size
			continue
		case kIface:
			ptr := unsafe.Add(address(par.addr), t.at)
			return c.ifaces[(*ifaceHeader)(ptr).tab]
		}
		return nil
	}
}

// inside appends the steps from item it to its byte at.
func (c *Collector) inside(b *pathText, it item, at uintptr) {
	p, n := c.plan(it), uintptr(0)
	if p.size > 0 {
		n = at / p.size
		at -= n * p.size
	}
	switch it.via() {
	case viaChan:
		b.settle()
		b.s = "<-" + b.s
		p, at = p.fields[0].p, 0
	case viaFunc:
		b.add("()")
		return
	case viaSlice:
		b.add("[" + strconv.Itoa(int(n)) + "]")
	case viaMap, viaSyncMap:
		f := p.fields[p.fieldAt(at)]
		key := "[" + keyText(reflect.NewAt(p.t, unsafe.Add(address(it.addr), n*p.size)).Elem().Field(0)) + "]"
		if f.name == "Key" {
			b.settle()
			b.s = "key " + key + " of " + b.s
		} else {
			b.add(key)
		}
		p, at = f.p, at-f.off
	case viaCodec:
		b.add("." + (*record)(unsafe.Add(address(it.addr), n*p.size)).Name)
		return
	}
	for {
		switch p.kind {
		case kStruct:
			i := p.fieldAt(at)
			if i < 0 {
				return
			}
			f := p.fields[i]
			b.add("." + f.name)
			p, at = f.p, at-f.off
		case kArray:
			i := at / p.elem.size
			b.add("[" + strconv.Itoa(int(i)) + "]")
			p, at = p.elem, at-i*p.elem.size
		default:
			return
		}
	}
}

func keyText(v reflect.Value) string {
	for v.Kind() == reflect.Interface && !v.IsNil() {
		v = v.Elem()
	}
	s := ""
	switch v.Kind() {
	case reflect.String:
		s = strconv.Quote(v.String())
	case reflect.Pointer, reflect.Chan, reflect.UnsafePointer:
		return shortName(v.Type())
	default:
		s = fmt.Sprintf("%v", v)
	}
	if len(s) > 40 {
		s = s[:36] + "…"
	}
	return s
}

// shortName returns a readable name of a type.
func shortName(t reflect.Type) string { return t.String() }
