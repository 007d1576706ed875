//go:build unix

package e2e

import (
	"fmt"
	"path/filepath"
	"runtime"
	"testing"
)

// emulator runs programs of another architecture.
type emulator struct{ goarch, name string }

// bigEndian is an emulator of a big-endian machine.
var bigEndian = emulator{"s390x", "qemu-s390x-static"}

// emulators returns the emulators to try in the long tests. Each needs a
// standard library to be built, which takes most of a minute; every day, the
// corpus of files in testdata has those of a big-endian machine.
func emulators(t *testing.T) []emulator {
	t.Helper()
	onlyLong(t)
	list := []emulator{{"arm64", "qemu-aarch64-static"}, bigEndian}
	for _, e := range list {
		need(t, e.name)
	}
	return list
}

// TestRestart_OtherArchitecture moves one run between machines: it begins here,
// continues on other architectures, and comes back.
func TestRestart_OtherArchitecture(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("user-mode emulation is for Linux programs")
	}
	const source = "./internal/e2e/testdata/survivor"
	others := emulators(t)
	route := [][]string{{survivor(t)}}
	for _, e := range others {
		route = append(route, []string{e.name, build(t, source, e.goarch)})
	}
	route = append(route, []string{survivor(t)})
	const leg = 37
	size := []string{"-dense", "500", "-sparse", "100000"}
	want := reference(t, append(size, "-steps", fmt.Sprint(2*leg*len(route)))...)
	for _, compress := range []string{"", "gzip", "zstd"} {
		t.Run("compress="+compress, func(t *testing.T) {
			t.Parallel()
			dir, out := filepath.Join(t.TempDir(), "ckpt"), t.TempDir()
			for i, argv := range route {
				d := drive(t, argv, append(size, "-dir", dir, "-out", out, "-compress", compress)...)
				if ready := fmt.Sprintf("ready step=%d resumed=%t", 2*leg*i, i > 0); d.ready != ready {
					t.Fatalf("leg %d: %q instead of %q", i, d.ready, ready)
				}
				run := fmt.Sprintf("run %d", leg)
				d.do(run, "save", run, "save") // the second is differential
				if i < len(route)-1 {
					d.do(run) // not in any checkpoint; the next process does it again
					d.kill()
				} else {
					d.finish()
				}
				verifyCheckpoints(t, dir)
			}
			compare(t, out, want)
		})
	}
}
