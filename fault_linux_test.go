package cairn_test

import (
	"strings"
	"syscall"
	"testing"

	"github.com/cairnrun/cairn"
)

// TestCheckpoint_UnreadableMemory shows that a part of the state which cannot
// be read is an error of the checkpoint, and that the program and later
// checkpoints continue.
func TestCheckpoint_UnreadableMemory(t *testing.T) {
	const size = 1 << 20
	data, err := syscall.Mmap(-1, 0, size, syscall.PROT_READ|syscall.PROT_WRITE, syscall.MAP_ANON|syscall.MAP_PRIVATE)
	if err != nil {
		t.Fatal(err)
	}
	defer syscall.Munmap(data)
	for i := range data {
		data[i] = byte(i)
	}
	hole := data[size/2 : 3*size/4]
	if err := syscall.Mprotect(hole, syscall.PROT_NONE); err != nil {
		t.Fatal(err)
	}
	p, err := cairn.Open(t.Context(), cairn.Options{Dir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	if err := cairn.Protect(p, "data", &data); err != nil {
		t.Fatal(err)
	}
	if _, err := p.Restore(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := p.Checkpoint(t.Context()); err == nil || !strings.Contains(err.Error(), "cannot be read") {
		t.Fatalf("a checkpoint with memory that cannot be read: %v", err)
	}
	if err := syscall.Mprotect(hole, syscall.PROT_READ|syscall.PROT_WRITE); err != nil {
		t.Fatal(err)
	}
	if err := p.Checkpoint(t.Context()); err != nil {
		t.Fatal(err)
	}
}
