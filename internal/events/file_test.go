package events

import (
	"os"
	"path/filepath"
	"testing"
	"time"
)

// TestReader_GrowingFile shows that a reader returns each event once, as the
// file grows, and begins anew when it is replaced.
func TestReader_GrowingFile(t *testing.T) {
	name := filepath.Join(t.TempDir(), FileName)
	r := NewReader(name)
	next := func(wantAnew bool, texts ...string) {
		t.Helper()
		list, anew, err := r.Next()
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, e := range list {
			got = append(got, e.Text)
		}
		if len(got) != len(texts) || anew != wantAnew {
			t.Fatalf("read %q, anew %v; want %q, %v", got, anew, texts, wantAnew)
		}
		for i := range got {
			if got[i] != texts[i] {
				t.Fatalf("read %q, want %q", got, texts)
			}
		}
	}
	next(false) // there is no file yet
	open := func() *File {
		t.Helper()
		f, err := OpenFile(name)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { f.Close() })
		return f
	}
	add := func(f *File, text string, seq uint64) {
		t.Helper()
		e := Event{Kind: Note, Time: time.Now(), Text: text}
		if err := f.Append(&e); err != nil {
			t.Fatal(err)
		}
		if e.Seq != seq || e.Version != Version {
			t.Fatalf("%s has number %d and version %d, want %d and %d", text, e.Seq, e.Version, seq, Version)
		}
	}
	f := open()
	add(f, "one", 1)
	next(false, "one")
	add(f, "two", 2)
	f.Close()

	// A kill in the middle of a line, and a line by someone else.
	raw, err := os.OpenFile(name, os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := raw.WriteString("what is this\n{\"v\":1,\"seq\":3,\"ti"); err != nil {
		t.Fatal(err)
	}
	next(false, "two")
	f = open()
	add(f, "three", 3)
	next(false, "three")

	// Another run in the directory. The file may be longer again when the
	// reader looks next.
	if err := f.Clear(); err != nil {
		t.Fatal(err)
	}
	add(f, "new", 1)
	next(true, "new")
	if err := f.Clear(); err != nil {
		t.Fatal(err)
	}
	add(f, "newer, and longer", 1)
	next(true, "newer, and longer")
	next(false)
}

// TestFile_Replaced removes, replaces and cuts the file while it is open.
func TestFile_Replaced(t *testing.T) {
	name := filepath.Join(t.TempDir(), FileName)
	f, err := OpenFile(name)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	r := NewReader(name)
	add := func(text string, seq uint64, want error) {
		t.Helper()
		e := Event{Kind: Note, Time: time.Now(), Text: text}
		if err := f.Append(&e); err != want || e.Seq != seq {
			t.Fatalf("%s: number %d, %v; want %d, %v", text, e.Seq, err, seq, want)
		}
		list, anew, err := r.Next()
		if err != nil || anew || len(list) != 1 || list[0].Text != text {
			t.Fatalf("%s: read %+v, %v, %v", text, list, anew, err)
		}
	}
	add("one", 1, nil)
	if err := os.Remove(name); err != nil {
		t.Fatal(err)
	}
	add("two", 2, ErrReplaced)
	add("three", 3, nil)
	if err := os.Rename(name, name+".old"); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(name, []byte("what is this"), 0o600); err != nil {
		t.Fatal(err)
	}
	add("four", 4, ErrReplaced)
	if err := os.Truncate(name, 0); err != nil {
		t.Fatal(err)
	}
	add("five", 5, ErrReplaced)

	// What cannot be opened is tried again.
	if err := os.Remove(name); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(name, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := f.Append(&Event{Kind: Note, Time: time.Now(), Text: "six"}); err == nil || err == ErrReplaced {
		t.Fatalf("a directory is a file: %v", err)
	}
	if err := os.Remove(name); err != nil {
		t.Fatal(err)
	}
	if err := f.Append(&Event{Kind: Note, Time: time.Now(), Text: "seven"}); err != ErrReplaced {
		t.Fatal(err)
	}
	if list, anew, err := r.Next(); err != nil || anew || len(list) != 2 || list[0].Text != "six" || list[1].Seq != 7 {
		t.Fatalf("read %+v, %v, %v", list, anew, err)
	}
}
