package cuda

import (
	"fmt"
	"strconv"
	"strings"
)

// attribute removes the attribute at i, records what it says about a kernel,
// and returns where it ends.
func (t *translator) attribute(i int, e *entry) (int, error) {
	line, end := t.at(i).line, t.match(i+1)
	if !t.is(i+1, "(") || end >= len(t.sig) {
		return i, fault(line, "an attribute of a kernel is not complete")
	}
	for j := i; j < end; j++ {
		if !t.is(j, "reqd_work_group_size") && !t.is(j, "__reqd_work_group_size__") {
			continue
		}
		for d := range 3 {
			n, err := strconv.Atoi(t.at(j + 2 + 2*d).text)
			if err != nil || n < 1 || n > 1024 {
				return i, fault(line, "reqd_work_group_size needs three numbers")
			}
			e.group[d] = n
		}
	}
	for ; i <= end; i++ {
		t.at(i).text = ""
	}
	return end, nil
}

// attributeBefore returns the start of the attribute that ends before i, or -1.
func (t *translator) attributeBefore(i int) int {
	depth := 0
	for i--; i >= 0; i-- {
		switch t.at(i).text {
		case ")":
			depth++
		case "(":
			depth--
		}
		if depth <= 0 {
			break
		}
	}
	if t.is(i, "(") && t.is(i-1, "__attribute__") {
		return i - 1
	}
	return -1
}

// kernel translates a declaration of a kernel, up to the brace of its body.
func (t *translator) kernel(i int) error {
	at := t.at(i)
	at.text = `extern "C" __global__`
	e := &entry{}
	if before := t.attributeBefore(i); before >= 0 {
		if _, err := t.attribute(before, e); err != nil {
			return err
		}
	}
	last := i
	for i++; i < len(t.sig) && !t.is(i, "(") && !t.is(i, ";") && !t.is(i, "{"); i++ {
		if !t.is(i, "__attribute__") {
			last = i
			continue
		}
		end, err := t.attribute(i, e)
		if err != nil {
			return err
		}
		i = end
	}
	name := t.at(last)
	for last--; last >= 0 && t.at(last).text == ""; last-- { // an attribute was here
	}
	if !t.is(i, "(") || name.kind != tokWord || !t.is(last, "void") {
		return fault(at.line, "after __kernel there must be void, a name and parameters")
	}
	e.name = name.text
	name.text += entrySuffix
	end := t.match(i)
	if end >= len(t.sig) {
		return fault(at.line, "the parameters of kernel %s do not end", e.name)
	}
	var locals strings.Builder
	for i++; i < end; {
		next, depth := i, 0
		for ; next < end && (depth > 0 || !t.is(next, ",")); next++ {
			switch t.at(next).text {
			case "(", "[", "{":
				depth++
			case ")", "]", "}":
				depth--
			}
		}
		if next == i+1 && t.is(i, "void") {
			break
		}
		p, local, err := t.param(i, next)
		if err != nil {
			return err
		}
		e.params = append(e.params, p)
		locals.WriteString(local)
		i = next + 1
	}
	if !t.is(end+1, "{") {
		return nil // a declaration only
	}
	t.at(end + 1).tail = locals.String()
	if e.group[0] > 0 {
		at.text += fmt.Sprintf(" __launch_bounds__(%d)", e.group[0]*e.group[1]*e.group[2])
	}
	if old := t.kernels[e.name]; old != nil && old.String() != e.String() {
		return fault(at.line, "kernel %s is there twice, with different parameters", e.name)
	}
	t.kernels[e.name] = e
	return nil
}

// param parses the parameter in tokens lo…hi. A parameter in local memory
// becomes an offset; local is the declaration of the pointer for the body.
func (t *translator) param(lo, hi int) (p param, local string, err error) {
	where, stars, arrays, nameAt := "", 0, false, -1
	var words, decl []string
	for i := lo; i < hi; i++ {
		tok := t.at(i)
		switch {
		case tok.text == "*":
			stars++
			nameAt = -1
		case tok.text == "[":
			arrays = true
			i = t.match(i)
			continue
		case space(tok.text) != "":
			if s := space(tok.text); stars == 0 && s != "private" {
				where = s
			}
			continue
		case tok.kind == tokWord && plain(tok.text) != "__restrict__" && tok.text != "const" && tok.text != "volatile":
			nameAt = i
			if stars == 0 {
				words = append(words, tok.text)
			}
		}
	}
	if nameAt < 0 || len(words) == 0 {
		return p, "", fault(t.at(lo).line, "a parameter of a kernel needs a type and a name")
	}
	p.name = t.at(nameAt).text
	switch {
	case where == "local":
		if stars != 1 || arrays && !t.is(nameAt+1, ")") {
			return p, "", fault(t.at(lo).line, "parameter %s in local memory must be a pointer", p.name)
		}
		p.kind = paramLocal
		for i := lo; i < hi; i++ {
			if space(t.at(i).text) == "" {
				decl = append(decl, plain(t.at(i).text))
			}
			t.at(i).text = ""
		}
		t.at(lo).text = "unsigned int " + offsetName + p.name
		t.at(lo).kind = tokMark
		local = fmt.Sprintf(" %s = cairn::local_at{%s%s};", strings.Join(decl, " "), offsetName, p.name)
	case stars > 0 || arrays:
		if where != "global" && where != "constant" {
			return p, "", fault(t.at(lo).line, "parameter %s is a pointer; say __global, __constant or __local", p.name)
		}
		p.kind, p.size = paramGlobal, 8
	default:
		p.kind = paramValue
		p.size = sizeOf(words[:len(words)-1], t.sizes)
	}
	return p, local, nil
}
