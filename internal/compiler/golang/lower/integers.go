package lower

import (
	"go/types"
)

// wrapSize is the size of an integer type as ir.Wrap has it; 0 if there is no need to
// wrap, or t is no integer.
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
