//go:build !gc || (!amd64 && !arm64)

package graph

func imageStart() uintptr { return 0 }
func codeEnd() uintptr    { return 0 }
func imageEnd() uintptr   { return 0 }

func sections() (data, edata, noptrdata, enoptrdata, bss, ebss, noptrbss, enoptrbss uintptr) { return }
