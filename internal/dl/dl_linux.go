//go:build linux && (amd64 || arm64) && !static

package dl

import "github.com/ebitengine/purego"

func dlopen(name string, global bool) (uintptr, error) {
	mode := purego.RTLD_NOW | purego.RTLD_LOCAL
	if global {
		mode = purego.RTLD_NOW | purego.RTLD_GLOBAL
	}
	return purego.Dlopen(name, mode)
}

func dlsym(handle uintptr, symbol string) (uintptr, error) { return purego.Dlsym(handle, symbol) }

//go:uintptrescapes
func call(addr uintptr, args ...uintptr) uintptr {
	r, _, _ := purego.SyscallN(addr, args...)
	return r
}
