package cuda

import (
	_ "embed"
	"fmt"
	"slices"
	"strings"
)

// preamble is CUDA C++ that the translated text needs.
//
//go:embed preamble.h
var preamble string

const (
	sourceName  = "kernel.cl" // name in the compiler's messages
	entrySuffix = "_cl"       // suffix of kernels, so that no name collides with CUDA's functions
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
	size int // size of a value; 0: unknown from the text
}

// entry is the declaration of a kernel.
type entry struct {
	name   string
	params []param
	group  [3]int // required size of groups, or 0
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

// translate translates OpenCL C to CUDA C++. Lines keep their numbers.
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
	t := &translator{toks: toks, sizes: map[string]int{}, vectors: map[string]bool{}, kernels: map[string]*entry{}}
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
	sig        []int           // indexes of tokens that are neither space nor directives
	sizes      map[string]int  // sizes of types that the source names; 0: unknown
	vectors    map[string]bool // names that the source defines for vectors
	kernels    map[string]*entry
	ownMembers bool // a struct of the source has members s0…s3
}

// at returns significant token i, or an empty token outside of the range.
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

// space returns the address space that a word names, or "".
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

// reserved are words of C++ that are not reserved in C, so that a source may
// use them as names.
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

// plain translates words that have the same meaning in any context.
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

// directive handles a preprocessor line.
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
			case isOther(w):
				return fault(tok.line, "%s is not possible on CUDA: vectors have 2 or 4 elements", w)
			default:
				toks[i].text = plain(w)
			}
		}
		macro := &translator{toks: toks, vectors: t.vectors}
		for i := range toks {
			if toks[i].kind != tokSpace && i > 0 {
				macro.sig = append(macro.sig, i)
			}
		}
		if len(toks) > 1 && toks[1].text == "(" { // skip its parameters
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
			t.alias(list[0], list[1:])
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

// sizeOf returns the size of the type that words name, or 0 if it is unknown.
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

// component returns the other name of s0…s3.
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
		case isOther(word):
			return fault(tok.line, "%s is not possible on CUDA: vectors have 2 or 4 elements", word)
		case (t.is(i-1, ".") || t.is(i-1, "->")) && !t.ownMembers && component(word) != "":
			tok.text = component(word)
		default:
			tok.text = plain(word)
		}
	}
	return nil
}

// pointer reports whether the declaration with an address space at i declares a
// pointer into that space, not a variable in it.
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

// constant handles the word __constant. A variable of the source stays in
// constant memory. A variable in a function becomes an ordinary constant, and
// so does the target of a pointer.
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

// vector rewrites (float2)(a, b) as float2(a, b), for every type name that is
// not a scalar: in C++, the first form means b alone. For names of vectors, the
// comma may come from a macro.
func (t *translator) vector(i int) {
	name := i + 1
	for qualifier(t.at(name).text) {
		name++
	}
	end := name + 1
	for qualifier(t.at(end).text) {
		end++
	}
	word := t.at(name).text
	if !t.is(i, "(") || t.at(name).kind != tokWord || !t.is(end, ")") || !t.is(end+1, "(") || scalarSizes[word] > 0 {
		return
	}
	if prev := t.at(i - 1); prev.kind == tokWord && prev.text != "return" && prev.text != "else" && prev.text != "case" ||
		prev.kind == tokNumber || prev.kind == tokText || prev.text == ")" || prev.text == "]" {
		return
	}
	depth, comma := 0, isVector(word) || t.vectors[word]
	for j := end + 1; j < len(t.sig) && !comma; j++ {
		switch t.at(j).text {
		case "(", "[", "{":
			depth++
		case ")", "]", "}":
			depth--
		case ",":
			comma = depth == 1
		}
		if depth == 0 {
			break
		}
	}
	if comma {
		for j := i; j <= end; j++ {
			if j != name {
				t.at(j).text = " "
			}
		}
	}
}

func qualifier(word string) bool {
	return word == "const" || word == "volatile" || space(word) == "private"
}

// isVector reports whether a word names a supported vector type.
func isVector(word string) bool {
	n := len(word) - 1
	return n > 0 && (word[n] == '2' || word[n] == '4') && vectorBase[word[:n]]
}

// isOther reports whether a word names a vector type of OpenCL that is not
// supported. CUDA has some of these names for types of another size.
func isOther(word string) bool {
	for _, end := range []string{"3", "8", "16"} {
		if base, ok := strings.CutSuffix(word, end); ok && base != "size_t" && scalarSizes[base] > 0 {
			return true
		}
	}
	return false
}

// alias records that a name stands for a vector.
func (t *translator) alias(name string, words []string) {
	words = slices.DeleteFunc(slices.Clone(words), qualifier)
	if len(words) == 1 && (isVector(words[0]) || t.vectors[words[0]]) {
		t.vectors[name] = true
	}
}

// typedef records the size of a name for a simple type.
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
		t.alias(words[n-1], words[:n-1])
	}
}
