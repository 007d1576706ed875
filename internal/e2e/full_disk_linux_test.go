package e2e

import (
	"os"
	"path/filepath"
	"syscall"
	"testing"
)

// TestDisk_Full shows that the program gets an error and continues when the
// disk is full, that older checkpoints stay intact, and that checkpoints are
// saved again when there is room.
func TestDisk_Full(t *testing.T) {
	mount := t.TempDir()
	if err := syscall.Mount("tmpfs", mount, "tmpfs", 0, "size=6m"); err != nil {
		t.Skipf("a small file system cannot be mounted here (it takes root): %v", err)
	}
	t.Cleanup(func() { syscall.Unmount(mount, syscall.MNT_DETACH) })
	dir, out := filepath.Join(mount, "ckpt"), t.TempDir()
	size := []string{"-dense", "100000", "-sparse", "1000"} // 0.8 MB that changes in every step
	args := append(size, "-dir", dir, "-out", out)

	d := drive(t, []string{survivor(t)}, args...)
	must(t, d.do("run 10", "save", "run 10", "save"), "saved checkpoint=1", "saved checkpoint=2")
	filler := filepath.Join(mount, "filler")
	fill(t, filler)
	for range 3 {
		must(t, d.do("run 10", "save"), "not saved: cairn: checkpoint not saved", "no space left on device")
	}
	if n := len(verifyCheckpoints(t, dir)); n != 2 {
		t.Fatalf("%d checkpoints are left of 2", n)
	}
	d.kill()

	d = drive(t, []string{survivor(t)}, args...) // restoring needs no room
	must(t, d.ready, "ready step=20 resumed=true")
	must(t, d.do("run 10", "save"), "no space left on device")
	if err := os.Remove(filler); err != nil {
		t.Fatal(err)
	}
	must(t, d.do("run 10", "save"), "saved checkpoint=")
	d.do("run 5")
	d.kill()
	if n := len(verifyCheckpoints(t, dir)); n < 2 {
		t.Fatalf("%d checkpoints are left, 2 should be kept", n)
	}

	d = drive(t, []string{survivor(t)}, args...)
	must(t, d.ready, "ready step=40 resumed=true")
	d.do("run 10")
	d.finish()
	compare(t, out, reference(t, append(size, "-steps", "50")...))
}

// fill writes a file until the file system is full.
func fill(t *testing.T, path string) {
	t.Helper()
	f, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for _, size := range []int{64 << 10, 1} {
		p := make([]byte, size)
		for err == nil {
			_, err = f.Write(p)
		}
		if size > 1 {
			err = nil
		}
	}
}
