//go:build linux && (amd64 || arm64) && !static

package dl

import (
	"errors"
	"runtime"
	"strings"
	"sync"
	"testing"
	"unsafe"
)

func openC(t testing.TB, names ...string) *Library {
	t.Helper()
	l, err := Open(names...)
	if err != nil {
		t.Skip(err)
	}
	return l
}

// TestCall calls functions of libc, with and without results.
func TestCall(t *testing.T) {
	c := openC(t, "libno-such-library.so", "libc.so.6")
	if c.Name() != "libc.so.6" {
		t.Error(c.Name())
	}
	strlen, err := c.Lookup("strlen")
	if err != nil {
		t.Fatal(err)
	}
	text := append([]byte("how long?"), 0)
	if n := Call(strlen, uintptr(unsafe.Pointer(&text[0]))); n != 9 {
		t.Errorf("strlen says %d", n)
	}
	abs, err := c.Lookup("abs")
	if err != nil {
		t.Fatal(err)
	}
	minus := int32(-7)
	if n := int32(Call(abs, uintptr(minus))); n != 7 {
		t.Errorf("abs says %d", n)
	}
}

// TestErrors checks the errors for missing libraries and symbols.
func TestErrors(t *testing.T) {
	_, err := Open("libno-such-library.so", "/no/such/path.so")
	if !errors.Is(err, ErrNotFound) || !strings.Contains(err.Error(), "libno-such-library.so") || !strings.Contains(err.Error(), "/no/such/path.so") {
		t.Error(err)
	}
	if _, err := Open(); !errors.Is(err, ErrNotFound) {
		t.Error(err)
	}
	c := openC(t, "libc.so.6")
	if _, err := c.Lookup("no_such_symbol"); !errors.Is(err, ErrNoSymbol) || !strings.Contains(err.Error(), "no_such_symbol") {
		t.Error(err)
	}
}

// TestCall_Threads shows that memory which C reads is on the heap, and stays
// valid while the stack grows.
func TestCall_Threads(t *testing.T) {
	c := openC(t, "libc.so.6")
	memcmp, err := c.Lookup("memcmp")
	if err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for i := range 2000 {
				var a, b [64]byte
				a[i%64], b[i%64] = byte(i), byte(i)
				if Call(memcmp, uintptr(unsafe.Pointer(&a)), uintptr(unsafe.Pointer(&b)), 64) != 0 {
					t.Error("different")
				}
				if i%500 == 0 {
					runtime.GC()
				}
			}
		})
	}
	wg.Wait()
}

func BenchmarkCall(b *testing.B) {
	c := openC(b, "libc.so.6")
	abs, err := c.Lookup("abs")
	if err != nil {
		b.Fatal(err)
	}
	for b.Loop() {
		Call(abs, 1)
	}
}
