//go:build !linux || (!amd64 && !arm64) || static

package dl

func dlopen(string, bool) (uintptr, error)   { return 0, ErrUnsupported }
func dlsym(uintptr, string) (uintptr, error) { return 0, ErrUnsupported }
func call(uintptr, ...uintptr) uintptr       { panic(ErrUnsupported) }
