package cuda

import (
	_ "embed"
	"fmt"
	"strconv"
	"strings"
)

// preamble is what the translated text stands on, in CUDA C++.
//
//go:embed preamble.h
var preamble string

const (
	sourceName  = "kernel.cl" // in the compiler's messages
	entrySuffix = "_cl"       // of kernels, so that none is one of CUDA's functions
	offsetName  = "cairn_offset_"
)

type paramKind uint8

const (
	paramGlobal paramKind = iota + 1
	paramLocal
	paramValue
)

func (k paramKind) String() string {
	return [...]string{"nothing", "a buffer", "local memory", "a value"}[k]
}

type param struct {
	name string
	kind paramKind
	size int // of a value, 0: not known from the text
}

// entry is a kernel as its declaration says.
type entry struct {
	name   string
	params []param
	group  [3]int // that it needs, or 0
}

func (e *entry) String() string {
	var b strings.Builder
	b.WriteString(e.name + "(")
	for i, p := range e.params {
		if i > 0 {
			b.WriteString(", ")
		}
		fmt.Fprintf(&b, "%s: %s", p.name, p.kind)
		if p.kind == paramValue && p.size > 0 {
			fmt.Fprintf(&b, " of %d bytes", p.size)
		}
	}
	return b.String() + ")"
}

type translation struct {
	code    string
	kernels map[string]*entry
}

// translate makes CUDA C++ of OpenCL C. Lines stay where they are.
func translate(src string) (*translation, error) {
	body, kernels, err := translateBody(src)
	if err != nil {
		return nil, err
	}
	var b strings.Builder
	b.WriteString(preamble)
	b.WriteString("namespace cairn { namespace kernels {\n")
	fmt.Fprintf(&b, "#line 1 %q\n", sourceName)
	b.WriteString(body)
	b.WriteString("\n} }\n")
	return &translation{b.String(), kernels}, nil
}

func translateBody(src string) (string, map[string]*entry, error) {
	if i := strings.IndexByte(src, 0); i >= 0 {
		return "", nil, fmt.Errorf("%s(%d): error: a zero byte", sourceName, 1+strings.Count(src[:i], "\n"))
	}
	toks, err := lex(src)
	if err != nil {
		return "", nil, err
	}
	t := &translator{toks: toks, sizes: map[string]int{}, kernels: map[string]*entry{}}
	for i := range toks {
		if toks[i].kind == tokDirective {
			if err := t.directive(&toks[i]); err != nil {
				return "", nil, err
			}
		}
		if k := toks[i].kind; k != tokSpace && k != tokDirective {
			t.sig = append(t.sig, i)
		}
	}
	t.ownMembers = t.findMembers()
	if err := t.walk(); err != nil {
		return "", nil, err
	}
	var b strings.Builder
	for _, tok := range toks {
		b.WriteString(tok.text)
		b.WriteString(tok.tail)
	}
	return b.String(), t.kernels, nil
}

type translator struct {
	toks       []token
	sig        []int          // those that are no space and no directive
	sizes      map[string]int // of types that the source names; 0: not known
	kernels    map[string]*entry
	ownMembers bool // a struct of the source has members s0…s3
}

// at returns significant token i, an empty one beyond the ends.
func (t *translator) at(i int) *token {
	if i < 0 || i >= len(t.sig) {
		return &token{}
	}
	return &t.toks[t.sig[i]]
}

func (t *translator) is(i int, text string) bool { return t.at(i).text == text }

func fault(line int, format string, args ...any) error {
	return fmt.Errorf("%s(%d): error: %s", sourceName, line, fmt.Sprintf(format, args...))
}

// space is what names an address space.
func space(word string) string {
	switch word {
	case "__global", "global":
		return "global"
	case "__local", "local":
		return "local"
	case "__constant", "constant":
		return "constant"
	case "__private", "private":
		return "private"
	}
	return ""
}

// words of C++ that are none of C, so that they may be names in a source.
var reserved = func() map[string]bool {
	m := map[string]bool{}
	for _, w := range strings.Fields(`alignas alignof and and_eq bitand bitor catch char16_t char32_t class compl
		const_cast constexpr decltype delete dynamic_cast explicit export friend mutable namespace new noexcept not
		not_eq nullptr operator or or_eq protected public reinterpret_cast static_assert static_cast template this
		thread_local throw try typeid typename using virtual wchar_t xor xor_eq
		threadIdx blockIdx blockDim gridDim warpSize cairn`) {
		m[w] = true
	}
	return m
}()

// plain translates words that mean the same wherever they stand.
func plain(word string) string {
	switch word {
	case "restrict", "__restrict":
		return "__restrict__"
	case "__private", "private", "__global", "global":
		return ""
	}
	if reserved[word] {
		return "cl_" + word
	}
	return word
}

// directive handles a line of the preprocessor.
func (t *translator) directive(tok *token) error {
	rest := strings.TrimLeft(tok.text[1:], " \t")
	word := rest
	for i := 0; i < len(rest); i++ {
		if !isLetter(rest[i]) {
			word = rest[:i]
			break
		}
	}
	rest = strings.TrimLeft(rest[len(word):], " \t")
	switch word {
	case "include":
		return fault(tok.line, "#include is not possible in kernels")
	case "pragma":
		if strings.HasPrefix(rest, "OPENCL") {
			tok.text = strings.Repeat("\n", strings.Count(tok.text, "\n"))
		}
	case "define":
		toks, err := lex(rest)
		if err != nil {
			return fault(tok.line, "in #define: %v", err)
		}
		var list []string
		for i := range toks {
			if toks[i].kind != tokWord {
				if toks[i].kind != tokSpace {
					list = append(list, toks[i].text)
				}
				continue
			}
			list = append(list, toks[i].text)
			switch w := toks[i].text; {
			case space(w) == "local", space(w) == "constant", w == "__kernel", w == "kernel":
				return fault(tok.line, "%s in a macro is not possible on CUDA; write it where it is meant", w)
			default:
				toks[i].text = plain(w)
			}
		}
		macro := &translator{toks: toks}
		for i := range toks {
			if toks[i].kind != tokSpace && i > 0 {
				macro.sig = append(macro.sig, i)
			}
		}
		if len(toks) > 1 && toks[1].text == "(" { // its parameters
			macro.sig = macro.sig[min(macro.match(0)+1, len(macro.sig)):]
		}
		for i := range macro.sig {
			macro.vector(i)
		}
		if len(list) >= 2 {
			size := sizeOf(list[1:], t.sizes)
			if old, ok := t.sizes[list[0]]; ok && old != size {
				size = 0
			}
			t.sizes[list[0]] = size
		}
		var b strings.Builder
		b.WriteString("#define ")
		for _, k := range toks {
			b.WriteString(k.text)
		}
		tok.text = b.String()
	}
	return nil
}

// sizeOf gives the size of a type of words, 0 if that is not known.
func sizeOf(words []string, named map[string]int) int {
	base, sign := "", false
	for _, w := range words {
		switch w {
		case "const", "volatile", "__private", "private":
		case "signed", "unsigned":
			sign = true
		case "int":
			if base == "" {
				base = "int"
			} else if base != "long" && base != "short" {
				return 0
			}
		default:
			if base != "" && base != "int" {
				return 0
			}
			base = w
		}
	}
	if base == "" {
		if sign {
			return 4
		}
		return 0
	}
	if n, ok := named[base]; ok {
		return n
	}
	if n := scalarSizes[base]; n > 0 {
		return n
	}
	if n := len(base); n > 1 {
		count := int(base[n-1] - '0')
		if size := scalarSizes[base[:n-1]]; size > 0 && (count == 2 || count == 4) && vectorBase[base[:n-1]] {
			return size * count
		}
	}
	return 0
}

var scalarSizes = map[string]int{
	"char": 1, "uchar": 1, "short": 2, "ushort": 2, "int": 4, "uint": 4, "float": 4,
	"long": 8, "ulong": 8, "double": 8, "size_t": 8, "ptrdiff_t": 8, "intptr_t": 8, "uintptr_t": 8,
}

var vectorBase = map[string]bool{"int": true, "uint": true, "long": true, "ulong": true, "float": true, "double": true}

// findMembers looks for structs with members s0…s3.
func (t *translator) findMembers() bool {
	for i := range t.sig {
		if !t.is(i, "struct") && !t.is(i, "union") {
			continue
		}
		for i++; i < len(t.sig) && !t.is(i, "{") && !t.is(i, ";") && !t.is(i, "("); i++ {
		}
		if !t.is(i, "{") {
			continue
		}
		for end := t.match(i); i < end; i++ {
			if component(t.at(i).text) != "" {
				return true
			}
		}
	}
	return false
}

// component gives the other name of s0…s3.
func component(s string) string {
	if len(s) == 2 && (s[0] == 's' || s[0] == 'S') && '0' <= s[1] && s[1] <= '3' {
		return "xyzw"[s[1]-'0' : s[1]-'0'+1]
	}
	return ""
}

// match returns the index of the bracket that closes the one at i, or the end.
func (t *translator) match(i int) int {
	depth := 0
	for ; i < len(t.sig); i++ {
		switch t.at(i).text {
		case "(", "[", "{":
			depth++
		case ")", "]", "}":
			if depth--; depth == 0 {
				return i
			}
		}
	}
	return i
}

func (t *translator) walk() error {
	depth := 0
	for i := 0; i < len(t.sig); i++ {
		tok := t.at(i)
		switch {
		case tok.text == "{":
			depth++
		case tok.text == "}":
			depth--
		case tok.text == "(":
			t.vector(i)
		}
		if tok.kind != tokWord {
			continue
		}
		switch word := tok.text; {
		case word == "__kernel" || word == "kernel":
			if err := t.kernel(i); err != nil {
				return err
			}
		case space(word) == "local":
			if t.pointer(i) {
				tok.text = ""
			} else {
				tok.text = "__shared__"
			}
		case space(word) == "constant":
			t.constant(i, depth)
		case word == "typedef":
			t.typedef(i)
		case (t.is(i-1, ".") || t.is(i-1, "->")) && !t.ownMembers && component(word) != "":
			tok.text = component(word)
		default:
			tok.text = plain(word)
		}
	}
	return nil
}

// pointer tells whether the declaration with an address space at i is one of a
// pointer to there, not of a variable there.
func (t *translator) pointer(i int) bool {
	for i++; i < len(t.sig); i++ {
		switch t.at(i).text {
		case "*":
			return true
		case ";", "=", "[", "]", ",", ")", "{", "}":
			return false
		}
	}
	return false
}

// constant: a variable of the source stays in constant memory, one in a
// function becomes an ordinary constant, and so does what a pointer leads to.
func (t *translator) constant(i, depth int) {
	tok := t.at(i)
	isPointer := t.pointer(i)
	if !isPointer && depth == 0 {
		tok.text = "__constant__"
		return
	}
	tok.text = "const"
	for j := i - 1; t.at(j).kind == tokWord; j-- {
		if t.is(j, "const") {
			tok.text = ""
		}
	}
	for j := i + 1; t.at(j).kind == tokWord; j++ {
		if t.is(j, "const") {
			tok.text = ""
		}
	}
}

// vector makes (float2)(a, b) into float2(a, b), for any name in the place of
// float2 that is not one of a scalar: C++ would take b alone.
func (t *translator) vector(i int) {
	if !t.is(i, "(") || t.at(i+1).kind != tokWord || !t.is(i+2, ")") || !t.is(i+3, "(") || scalarSizes[t.at(i+1).text] > 0 {
		return
	}
	if prev := t.at(i - 1); prev.kind == tokWord && prev.text != "return" && prev.text != "else" && prev.text != "case" ||
		prev.kind == tokNumber || prev.kind == tokText || prev.text == ")" || prev.text == "]" {
		return
	}
	depth, comma := 0, false
	for j := i + 3; j < len(t.sig); j++ {
		switch t.at(j).text {
		case "(", "[", "{":
			depth++
		case ")", "]", "}":
			depth--
		case ",":
			comma = comma || depth == 1
		}
		if depth == 0 {
			break
		}
	}
	if comma {
		t.at(i).text, t.at(i+2).text = " ", ""
	}
}

// typedef notes the size of a name for a simple type.
func (t *translator) typedef(i int) {
	var words []string
	for i++; i < len(t.sig); i++ {
		if t.is(i, ";") {
			break
		}
		if t.at(i).kind != tokWord {
			return
		}
		words = append(words, t.at(i).text)
	}
	if n := len(words); n >= 2 {
		t.sizes[words[n-1]] = sizeOf(words[:n-1], t.sizes)
	}
}

// kernel translates a declaration of a kernel, up to the brace of its body.
func (t *translator) kernel(i int) error {
	at := t.at(i)
	at.text = `extern "C" __global__`
	e := &entry{}
	for i++; t.is(i, "__attribute__"); i++ {
		if !t.is(i+1, "(") {
			return fault(at.line, "an attribute of a kernel is not complete")
		}
		end := t.match(i + 1)
		if t.is(i+3, "reqd_work_group_size") {
			for d, j := 0, i+5; d < 3; d, j = d+1, j+2 {
				n, err := strconv.Atoi(t.at(j).text)
				if err != nil || n < 1 || n > 1024 {
					return fault(t.at(i).line, "reqd_work_group_size needs three numbers")
				}
				e.group[d] = n
			}
		}
		for ; i < end; i++ {
			t.at(i).text = ""
		}
		t.at(end).text = ""
	}
	for i < len(t.sig) && !t.is(i, "(") && !t.is(i, ";") && !t.is(i, "{") {
		i++
	}
	name := t.at(i - 1)
	if !t.is(i, "(") || name.kind != tokWord || !t.is(i-2, "void") {
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

// param reads the parameter of tokens lo…hi. One in local memory becomes an
// offset; what declares the pointer in the body is returned.
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
