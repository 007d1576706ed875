package kernel

import (
	"fmt"
	"go/ast"
	"go/constant"
	"go/token"
	"go/types"
	"slices"
)

// Indexes. GPUs compute with 32 bits faster than with 64, and Go's int has 64.
// A launch on a GPU whose sizes and arrays are all small (see
// Translation.variant in package device) defines CAIRN_INDEX as int. An index
// that is valid then fits into 31 bits. The sums and products that it is
// computed from may not, but the low bits of a sum or product depend only on
// low bits. So it is right to compute all of the index with 32 bits, and
// compilers do so because of the conversion. An index that is not valid stays
// undefined.

// indexType is the beginning of all translations.
const indexType = `#ifndef CAIRN_INDEX
#define CAIRN_INDEX long
#endif

`

// maxOffset bounds constants that are added to an index after its conversion.
// The sum of an index of a small launch and such a constant fits into 32 bits.
const maxOffset = 1 << 20

// subscript translates the index of an element of s.
func (f *function) subscript(s *slice, x ast.Expr) string {
	k, ok := number(f.Info.TypeOf(x))
	if f.looping() || f.Info.Types[x].Value != nil || !ok || k.bits < 32 || k.bits == 32 && k.signed || s.space != "__global" {
		return f.expr(x)
	}
	// For a[i-1], a[i] and a[i+1], the conversion is of i: the compiler
	// computes one address.
	if c := f.offset(x); k.bits == 64 && c != 0 && -maxOffset <= c && c <= maxOffset {
		return fmt.Sprintf("(CAIRN_INDEX)%s + (%d)", f.without(x), c)
	}
	return fmt.Sprintf("(CAIRN_INDEX)%s", f.expr(x))
}

// looping reports whether a loop of the item is open. There an index changes by
// the same amount each time, and with 64 bits it becomes an address that
// increases. With 32 bits, which may wrap, it is computed anew.
func (f *function) looping() bool {
	return slices.ContainsFunc(f.targets, func(t *target) bool { return t.kind == 'f' })
}

// repeating reports whether a loop is open inside of a loop over items.
func (f *function) repeating() bool {
	i := slices.IndexFunc(f.targets, func(t *target) bool { return t.kind == 'i' })
	return i >= 0 && slices.ContainsFunc(f.targets[i:], func(t *target) bool { return t.kind == 'f' })
}

// offset returns the sum of the constants in a sum of 64-bit integers.
func (f *function) offset(x ast.Expr) int64 {
	if v := f.Info.Types[x].Value; v != nil {
		if c, ok := constant.Int64Val(constant.ToInt(v)); ok && -maxOffset <= c && c <= maxOffset {
			return c
		}
		return 0
	}
	if b, ok := ast.Unparen(x).(*ast.BinaryExpr); ok {
		switch b.Op {
		case token.ADD:
			return f.offset(b.X) + f.offset(b.Y)
		case token.SUB:
			return f.offset(b.X) - f.offset(b.Y)
		}
	}
	return 0
}

// without translates a sum without the constants that offset adds up.
func (f *function) without(x ast.Expr) string {
	b, ok := ast.Unparen(x).(*ast.BinaryExpr)
	if !ok || b.Op != token.ADD && b.Op != token.SUB || f.Info.Types[x].Value != nil {
		return f.expr(x)
	}
	constant := func(x ast.Expr) bool { return f.Info.Types[x].Value != nil && f.offset(x) != 0 }
	switch {
	case constant(b.Y):
		return f.without(b.X)
	case constant(b.X) && b.Op == token.ADD:
		return f.without(b.Y)
	case constant(b.X):
		return negate(kinds[types.Int], f.without(b.Y))
	}
	return f.binary(x, b.Op, f.Info.TypeOf(x), f.without(b.X), f.without(b.Y), nil)
}
