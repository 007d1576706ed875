package graph

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
)

type describer struct {
	b   strings.Builder
	num map[*plan]int
	def []*plan
}

// describe returns a portable description of a type: its structure with names,
// without sizes. Two types with equal descriptions have equal images. The
// grammar:
//
//	text   = type { " @" number quoted-name "=" type }     definitions, from @0
//	type   = "*" type | "[]" type | "[" n "]" type | "map" entry
//	       | "{" name type "," … "}" | "@" number | word
func describe(p *plan) string {
	d := describer{num: make(map[*plan]int)}
	d.ref(p)
	for i := 0; i < len(d.def); i++ {
		q := d.def[i]
		fmt.Fprintf(&d.b, " @%d%s=", i, strconv.Quote(typeName(q.t)))
		d.body(q)
	}
	return d.b.String()
}

func (d *describer) ref(p *plan) {
	if p.t.Name() == "" || p.t.PkgPath() == "" {
		d.body(p)
		return
	}
	n, ok := d.num[p]
	if !ok {
		n = len(d.def)
		d.num[p] = n
		d.def = append(d.def, p)
	}
	d.b.WriteByte('@')
	d.b.WriteString(strconv.Itoa(n))
}

func (d *describer) body(p *plan) {
	if p.size == 0 {
		d.b.WriteString("empty")
		return
	}
	switch p.kind {
	case kScalar, kString:
		d.b.WriteString(p.t.Kind().String())
	case kPtr:
		d.b.WriteByte('*')
		d.ref(p.elem)
	case kSlice:
		d.b.WriteString("[]")
		d.ref(p.elem)
	case kArray:
		fmt.Fprintf(&d.b, "[%d]", p.n)
		d.ref(p.elem)
	case kMap:
		d.b.WriteString("map")
		d.ref(p.elem)
	case kIface:
		d.b.WriteString("interface")
	case kStruct:
		d.b.WriteByte('{')
		for _, f := range p.fields {
			d.b.WriteString(f.name)
			d.b.WriteByte(' ')
			d.ref(f.p)
			d.b.WriteByte(',')
		}
		d.b.WriteByte('}')
	case kCodec:
		d.b.WriteString("state")
	case kFunc:
		d.b.WriteString("func")
	case kChan: // no struct field can have this name
		d.b.WriteString("{chan ")
		d.ref(p.elem)
		d.b.WriteString(",}")
	case kTimer:
		d.b.WriteString("timer")
	case kOpaque:
		d.b.WriteString("opaque")
	default:
		d.b.WriteString("std")
	}
}

// desc is a parsed description. Kinds: * [] [ map { @ and w (word).
type desc struct {
	kind   string
	elem   *desc
	n      int // length of an array, or number of a definition
	word   string
	names  []string
	fields []*desc
}

type descText struct {
	root *desc
	defs []*desc
	name []string
}

type descParser struct {
	s      string
	budget int
}

var errDesc = errors.New("bad type description")

func parseDesc(s string) (*descText, error) {
	p := descParser{s: s, budget: 1 << 20}
	var t descText
	var err error
	if t.root, err = p.typ(0); err != nil {
		return nil, err
	}
	for p.s != "" {
		want := fmt.Sprintf(" @%d", len(t.defs))
		if !strings.HasPrefix(p.s, want) {
			return nil, errDesc
		}
		p.s = p.s[len(want):]
		q, err := strconv.QuotedPrefix(p.s)
		if err != nil {
			return nil, errDesc
		}
		name, err := strconv.Unquote(q)
		if err != nil {
			return nil, errDesc
		}
		p.s = p.s[len(q):]
		if !p.take("=") {
			return nil, errDesc
		}
		d, err := p.typ(0)
		if err != nil {
			return nil, err
		}
		t.defs = append(t.defs, d)
		t.name = append(t.name, name)
	}
	return &t, nil
}

func (p *descParser) take(s string) bool {
	r, ok := strings.CutPrefix(p.s, s)
	p.s = r
	return ok
}

func (p *descParser) number() (int, error) {
	i := 0
	for i < len(p.s) && p.s[i] >= '0' && p.s[i] <= '9' {
		i++
	}
	n, err := strconv.Atoi(p.s[:i])
	p.s = p.s[i:]
	return n, err
}

func (p *descParser) typ(depth int) (*desc, error) {
	if p.budget--; depth > 500 || p.budget < 0 {
		return nil, errDesc
	}
	var err error
	switch {
	case p.take("*"):
		d := &desc{kind: "*"}
		d.elem, err = p.typ(depth + 1)
		return d, err
	case p.take("[]"):
		d := &desc{kind: "[]"}
		d.elem, err = p.typ(depth + 1)
		return d, err
	case p.take("map"):
		d := &desc{kind: "map"}
		if d.elem, err = p.typ(depth + 1); err == nil && d.elem.kind != "{" && d.elem.kind != "w" {
			err = errDesc
		}
		return d, err
	case p.take("["):
		d := &desc{kind: "["}
		if d.n, err = p.number(); err != nil || !p.take("]") {
			return nil, errDesc
		}
		d.elem, err = p.typ(depth + 1)
		return d, err
	case p.take("@"):
		d := &desc{kind: "@"}
		d.n, err = p.number()
		return d, err
	case p.take("{"):
		d := &desc{kind: "{"}
		for !p.take("}") {
			name, rest, ok := strings.Cut(p.s, " ")
			if !ok || name == "" || strings.ContainsAny(name, "{},*[]@") {
				return nil, errDesc
			}
			p.s = rest
			f, err := p.typ(depth + 1)
			if err != nil {
				return nil, err
			}
			if !p.take(",") {
				return nil, errDesc
			}
			d.names = append(d.names, name)
			d.fields = append(d.fields, f)
		}
		return d, nil
	}
	i := 0
	for i < len(p.s) && (p.s[i] >= 'a' && p.s[i] <= 'z' || p.s[i] >= '0' && p.s[i] <= '9') {
		i++
	}
	if i == 0 {
		return nil, errDesc
	}
	d := &desc{kind: "w", word: p.s[:i]}
	p.s = p.s[i:]
	return d, nil
}

// TypeName returns a readable name for a described type, or "?" if the
// description is invalid.
func TypeName(description string) string {
	t, err := parseDesc(description)
	if err != nil {
		return "?"
	}
	return t.text(t.root, 0)
}

// text returns a readable name of a type.
func (t *descText) text(d *desc, depth int) string {
	if depth > 20 {
		return "…"
	}
	switch d.kind {
	case "*", "[]":
		return d.kind + t.text(d.elem, depth+1)
	case "[":
		return fmt.Sprintf("[%d]%s", d.n, t.text(d.elem, depth+1))
	case "map":
		k, v := "struct{}", "struct{}"
		for i, n := range d.elem.names {
			if n == "Key" {
				k = t.text(d.elem.fields[i], depth+1)
			} else if n == "Val" {
				v = t.text(d.elem.fields[i], depth+1)
			}
		}
		return "map[" + k + "]" + v
	case "@":
		if d.n < len(t.name) {
			return t.name[d.n]
		}
		return "?"
	case "{":
		if len(d.names) > 8 {
			return "struct{…}"
		}
		var b strings.Builder
		for i, n := range d.names {
			if i > 0 {
				b.WriteString("; ")
			}
			b.WriteString(n + " " + t.text(d.fields[i], depth+5))
		}
		return "struct{" + b.String() + "}"
	}
	if d.word == "empty" {
		return "struct{}"
	}
	return d.word
}
