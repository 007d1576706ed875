//go:build linux

package output

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/cairnrun/cairn/internal/control"
	"github.com/cairnrun/cairn/internal/supervise/rundir"
)

// TestOutput_AfterRollback shows that the output of a rank after a rollback is
// shown where it differs from what was shown before, by whole lines, and that
// nothing is shown twice.
func TestOutput_AfterRollback(t *testing.T) {
	type text struct {
		at   int64
		text string
	}
	long := strings.Repeat("0123456789abcde\n", tailSize/8)
	for _, v := range []struct {
		name   string
		pieces []text
		want   string
		again  bool
	}{
		{"the same", []text{{0, "a\nb\nc"}, {2, "b\n"}, {4, "c\nd\n"}}, "a|b|c|d|", false},
		{"cut and the same", []text{{0, "a\nb\n"}, {2, ""}, {2, "b\nc\n"}}, "a|b|c|", false},
		{"another text", []text{{0, "a\nfailed\n"}, {2, ""}, {2, "fine\nb\n"}}, "a|failed|fine|b|", true},
		{"in the midst of a line", []text{{0, "a\nstep 1\nstep 2\n"}, {2, "step 1\nst"}, {11, "op\n"}}, "a|step 1|step 2|stop|", true},
		{"an unfinished line", []text{{0, "a\nOh no"}, {2, "Oh yes\n"}}, "a|Oh no|Oh yes|", true},
		{"an unfinished line that continues", []text{{0, "a\nOh"}, {2, "Oh"}, {4, " yes\n"}}, "a|Oh yes|", false},
		{"shorter", []text{{0, "a\nb\nc\n"}, {0, "a\nx\n"}, {4, "y\nz\n"}}, "a|b|c|x|y|z|", true},
		{"some was let go", []text{{0, "a\n"}, {10, "b\n"}, {10, "c\n"}}, "a|b|c|", true},
		{"older than what is kept", []text{{0, long}, {0, "9" + long[1:]}, {int64(len(long)), "b\n"}}, strings.ReplaceAll(long, "\n", "|") + "b|", false},
	} {
		t.Run(v.name, func(t *testing.T) {
			var screen strings.Builder
			k := &Sink{o: Options{Line: func(_, _ int, line []byte, ok func(bool)) {
				screen.Write(line)
				screen.WriteByte('|')
				ok(true)
			}}, ranks: make([][2]stream, 1)}
			k.some.L = &k.mu
			for _, p := range v.pieces {
				m := &control.Output{Stream: control.Stdout, Offset: p.at}
				if p.text != "" {
					m.Data = []byte(p.text)
				}
				k.show(piece{from: new(control.FromRank), Output: m})
			}
			if got := screen.String(); got != v.want {
				t.Errorf("shown: %.200s\nwanted: %.200s", got, v.want)
			}
			if got := len(k.Repeated()) > 0; got != v.again {
				t.Errorf("shown again: %v, want %v", got, v.again)
			}
		})
	}
}

// TestShowRest_Ended shows what ranks that have ended have written since their
// supervisor was lost, once.
func TestShowRest_Ended(t *testing.T) {
	o := Options{Run: t.TempDir()}
	o.RankOutput = filepath.Join(o.Run, "output")
	if err := os.Mkdir(o.RankOutput, 0o700); err != nil {
		t.Fatal(err)
	}
	long := strings.Repeat("line\n", tailSize/4) // several pieces
	for name, text := range map[string]string{
		rundir.OutputFile(o.RankOutput, 0, control.Stdout): "a\nb\n",
		rundir.OutputFile(o.RankOutput, 0, control.Stderr): "c\n" + long,
		filepath.Join(o.Run, "output-offsets"):             fmt.Sprintf("%015d\n%015d\n", 2, 2),
	} {
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	var screen [2]strings.Builder
	o.Line = func(_, stream int, line []byte, ok func(bool)) {
		fmt.Fprintf(&screen[stream-1], "%s\n", line)
		ok(true)
	}
	k, err := New(o, 1)
	if err != nil {
		t.Fatal(err)
	}
	if n, err := k.ShowStderr(0, 1<<30, nil); n != len(long) || err != nil {
		t.Errorf("%d bytes of %d on stderr are on the screen: %v", n, len(long), err)
	}
	k.AwaitIdle(t.Context())
	if got := screen[1].String(); got != long {
		t.Errorf("%d bytes of %d on stderr are on the screen", len(got), len(long))
	}
	if err := k.ShowRest(); err != nil {
		t.Fatal(err)
	}
	k.Close()
	if got := screen[0].String(); got != "b\n" || screen[1].Len() != len(long) {
		t.Errorf("stdout has %q; and %d bytes on stderr", got, screen[1].Len())
	}
}

// TestOutput_AfterSupervisor shows that a supervisor continues after the
// recorded offsets of the previous one or, if there are none, after the content
// of the file; and that it records the offsets of lines that were written.
func TestOutput_AfterSupervisor(t *testing.T) {
	const notes = "%015d\n000000000000000\n"
	for _, v := range []struct {
		name, file, notes string
		at                int64 // offset to which the file is cut before the rank continues
		text              string
		fail              string // line that cannot be written
		want              string
		noted             int
	}{
		{"not all was shown", "a\nb\nc\n", fmt.Sprintf(notes, 2), 6, "d\n", "", "b|c|d|", 8},
		{"nothing was shown", "a\nb\nc\n", fmt.Sprintf(notes, 0), 6, "d\n", "", "a|b|c|d|", 8},
		{"all was shown", "a\nb\nc\n", fmt.Sprintf(notes, 6), 6, "d\n", "", "d|", 8},
		{"set back behind that", "a\nb\nc\n", fmt.Sprintf(notes, 4), 2, "b\nc\nd\n", "", "c|d|", 8},
		{"set back behind that, another text", "a\nb\nc\n", fmt.Sprintf(notes, 4), 2, "B\nc\nd\n", "", "B|c|d|", 8},
		{"was set back then", "a\n", fmt.Sprintf(notes, 6), 2, "b\nc\nd\n", "", "d|", 8},
		{"was set back then, and has not come there", "a\n", fmt.Sprintf(notes, 6), 2, "b\n", "", "", 6},
		{"no line's end", "a\nb", fmt.Sprintf(notes, 2), 3, "c\nd", "", "bc|", 5},
		{"an earlier version", "a\nb\n", "", 4, "c\n", "", "c|", 6},
		{"another number of ranks", "a\nb\n", fmt.Sprintf(notes+notes, 2, 2), 4, "c\n", "", "c|", 6},
		{"damaged", "a\nb\n", strings.Repeat("\x00", 2*offsetWidth), 4, "c\n", "", "c|", 6},
		{"not written", "a\nb\n", fmt.Sprintf(notes, 2), 4, "c\nd\n", "c", "b|d|", 4},
	} {
		t.Run(v.name, func(t *testing.T) {
			o := Options{Run: t.TempDir()}
			o.RankOutput = filepath.Join(o.Run, "output")
			name := rundir.OutputFile(o.RankOutput, 0, control.Stdout)
			if err := os.Mkdir(o.RankOutput, 0o700); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(name, []byte(v.file), 0o600); err != nil {
				t.Fatal(err)
			}
			if v.notes != "" {
				if err := os.WriteFile(filepath.Join(o.Run, "output-offsets"), []byte(v.notes), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			var screen strings.Builder
			o.Line = func(_, _ int, line []byte, ok func(bool)) {
				if string(line) != v.fail {
					screen.Write(line)
					screen.WriteByte('|')
				}
				ok(string(line) != v.fail)
			}
			k, err := New(o, 1)
			if err != nil {
				t.Fatal(err)
			}
			defer k.rest()
			text := v.file[:v.at] + v.text
			at := min(k.Start(0, "")[0], v.at) // as a follower would
			k.show(piece{from: new(control.FromRank), Output: &control.Output{Stream: control.Stdout, Offset: at, Data: []byte(text[at:])}})
			if screen.String() != v.want {
				t.Errorf("shown: %q, want %q", screen.String(), v.want)
			}
			if got := readOffsets(o.Run, 1); len(got) != 1 || got[0] != [2]int64{int64(v.noted), 0} {
				t.Errorf("noted: %v, want %d", got, v.noted)
			}
		})
	}
}
