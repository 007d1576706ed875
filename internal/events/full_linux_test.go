package events

import (
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// TestFile_Full appends while the file cannot grow. No half line stays, and all
// events are there when there is room again.
func TestFile_Full(t *testing.T) {
	name := filepath.Join(t.TempDir(), FileName)
	f, err := OpenFile(name)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	add := func(text string) error { return f.Append(&Event{Kind: Note, Time: time.Now(), Text: text}) }
	if err := add("one"); err != nil {
		t.Fatal(err)
	}
	signal.Ignore(syscall.SIGXFSZ)
	defer signal.Reset(syscall.SIGXFSZ)
	var old syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_FSIZE, &old); err != nil {
		t.Fatal(err)
	}
	limit := old
	limit.Cur = uint64(f.size) + 20
	if err := syscall.Setrlimit(syscall.RLIMIT_FSIZE, &limit); err != nil {
		t.Fatal(err)
	}
	for _, text := range []string{"two", "three"} {
		if err := add(text); err == nil {
			t.Error("there was room for", text)
		}
		if raw, _ := os.ReadFile(name); strings.Count(string(raw), "\n") != 1 || !strings.HasSuffix(string(raw), "\n") {
			t.Errorf("the file holds %q", raw)
		}
	}
	if err := syscall.Setrlimit(syscall.RLIMIT_FSIZE, &old); err != nil {
		t.Fatal(err)
	}
	if err := add("four"); err != nil {
		t.Fatal(err)
	}
	list, _, err := NewReader(name).Next()
	if err != nil || len(list) != 4 || list[1].Text != "two" || list[3].Seq != 4 {
		t.Errorf("%v %+v", err, list)
	}
}
