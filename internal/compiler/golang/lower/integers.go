package lower

import (
	"go/types"
)

// wrapSize returns the operand of ir.Wrap for an integer type, 0 if t needs no
// wrapping or is no integer.
func wrapSize(t types.Type) int64 {
	b, ok := t.Underlying().(*types.Basic)
	if !ok {
		return 0
	}
	switch b.Kind() {
	case types.Int8:
		return -8
	case types.Int16:
		return -16
	case types.Int32:
		return -32
	case types.Uint8:
		return 8
	case types.Uint16:
		return 16
	case types.Uint32:
		return 32
	case types.Uint, types.Uint64, types.Uintptr:
		return 64
	}
	return 0
}
