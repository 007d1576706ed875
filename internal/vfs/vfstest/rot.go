package vfstest

import (
	"os"
	"testing"
	"time"
)

// Rot changes a byte in the middle of a file on disk, in place, and keeps its
// time, as a disk does that returns wrong data.
func Rot(t testing.TB, name string) {
	t.Helper()
	if err := rot(name); err != nil {
		t.Fatal(err)
	}
}

func rot(name string) error {
	f, err := os.OpenFile(name, os.O_RDWR, 0)
	if err != nil {
		return err
	}
	defer f.Close()
	st, err := f.Stat()
	if err != nil {
		return err
	}
	b := make([]byte, 1)
	if _, err := f.ReadAt(b, st.Size()/2); err != nil {
		return err
	}
	b[0] ^= 1
	if _, err := f.WriteAt(b, st.Size()/2); err != nil {
		return err
	}
	return os.Chtimes(name, time.Time{}, st.ModTime())
}
