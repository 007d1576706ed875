//go:build amd64 || 386 || arm64 || arm || riscv64 || ppc64 || ppc64le || loong64

package graph

// The program itself in memory: its code, from imageStart to codeEnd, constants
// and package variables, to imageEnd. The heap and stacks lie elsewhere.
func imageStart() uintptr
func codeEnd() uintptr
func imageEnd() uintptr

// sections tells where the package variables lie.
func sections() (data, edata, noptrdata, enoptrdata, bss, ebss, noptrbss, enoptrbss uintptr)
