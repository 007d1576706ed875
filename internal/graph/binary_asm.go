//go:build amd64 || 386 || arm64 || arm || riscv64 || ppc64 || ppc64le || loong64

package graph

// The program's image in memory consists of its code, from imageStart to
// codeEnd, and of constants and package variables, up to imageEnd. The heap and
// the stacks lie elsewhere.
func imageStart() uintptr
func codeEnd() uintptr
func imageEnd() uintptr

// sections returns the bounds of the sections with package variables.
func sections() (data, edata, noptrdata, enoptrdata, bss, ebss, noptrbss, enoptrbss uintptr)
