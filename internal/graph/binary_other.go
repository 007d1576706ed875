//go:build !amd64 && !386 && !arm64 && !arm && !riscv64 && !ppc64 && !ppc64le && !loong64

package graph

func imageStart() uintptr { return 0 }
func codeEnd() uintptr    { return 0 }
func imageEnd() uintptr   { return 0 }

func sections() (data, edata, noptrdata, enoptrdata, bss, ebss, noptrbss, enoptrbss uintptr) { return }
