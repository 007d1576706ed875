// Package trace tells who calls it.
package trace

import (
	"fmt"
	"runtime"
)

// Log prints the caller's name, and v.
func Log(v ...any) {
	pc, _, _, _ := runtime.Caller(1)
	fmt.Println(runtime.FuncForPC(pc).Name(), fmt.Sprint(v...))
}
