//go:build linux

package local

import (
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"testing"

	"github.com/cairnrun/cairn/internal/tier"
)

// TestOwn packs the own files of a rank, and unpacks them on another host in
// place of older ones. What has a journal is marked.
func TestOwn(t *testing.T) {
	ctx := context.Background()
	a, b := newHost(t), newHost(t)
	save(t, a, 1, 2, 1, attempt)
	prints(t, a, 1, []byte("hello\n"))
	prints(t, b, 1, []byte("of an older start\n"))
	src, ext, end, err := a.PackOwn(ctx, 1, 2)
	if err != nil || ext != OwnExt {
		t.Fatalf("%q, %v", ext, err)
	}
	defer end()
	if err := b.UnpackOwn(ctx, io.NewSectionReader(src, 0, src.Size), 1, 2, 3, attempt); err != nil {
		t.Fatal(err)
	}
	if got, err := os.ReadFile(filepath.Join(b.Path, filepath.FromSlash(stdoutName(1)))); err != nil || string(got) != "hello\n" {
		t.Errorf("%q, %v", got, err)
	}
	if files, err := b.Scan(); err != nil || len(files.Lines) != 1 || files.Lines[0].Index != 3 {
		t.Errorf("%+v, %v; want the recovery line", files, err)
	}
	// An object that names another rank's file changes nothing.
	if err := b.UnpackOwn(ctx, io.NewSectionReader(src, 0, src.Size), 0, 2, 3, attempt); !errors.Is(err, tier.ErrDamaged) {
		t.Errorf("unpacked for another rank: %v", err)
	}
	if err := os.WriteFile(filepath.Join(CheckpointDir(a.Path), "journal-0001.json"), bytes.Repeat([]byte("x"), 10), 0o600); err != nil {
		t.Fatal(err)
	}
	_, ext, end, err = a.PackOwn(ctx, 1, 2)
	if err != nil || ext != LacksExt {
		t.Fatalf("with a journal: %q, %v", ext, err)
	}
	end()
	if left, _ := filepath.Glob(filepath.Join(a.Path, "own-*")); left != nil {
		t.Errorf("left: %v", left)
	}
}
