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

// TestDelayed takes the events of a rank's stdout one by one, and shows what
// each of them makes visible.
//
//	START launch   the rank is started
//	+text          it prints, and its helper sends that
//	late +text     it prints, and its helper sends that after the next event
//	FROM a         a piece of an earlier launch comes
//	cut N          it restores a checkpoint, and its helper says that the file
//	               was cut
//	uncut N        the same, and its helper has not seen that
//	commit N       a checkpoint in which the file has N bytes is secure
//	FAIL, FINISH   the run ends
func TestDelayed(t *testing.T) {
	long := strings.Repeat("0123456789abcde\n", tailSize/8)
	for _, v := range []struct {
		name   string
		events []string
		want   []string // shown after each event
		again  bool
	}{
		{"up to checkpoints", []string{"START a", "+1\n2\n", "commit 2", "+3\n", "commit 6", "+4\n", "FINISH"}, []string{"", "", "1|", "", "2|3|", "", "4|"}, false},
		{"another text after a restart", []string{"START a", "+1\n2\n3\n", "commit 2", "START b", "cut 2", "+x\n3\n", "commit 6", "FINISH"}, []string{"", "", "1|", "", "", "", "x|3|", ""}, false},
		{"from the beginning", []string{"START a", "+1\n2\n", "START b", "cut 0", "+x\n", "FINISH"}, []string{"", "", "", "", "", "x|"}, false},
		{"behind what was shown, another text", []string{"START a", "+1\n2\n3\n", "commit 6", "START b", "cut 2", "+x\n3\n4\n", "commit 8", "FINISH"}, []string{"", "", "1|2|3|", "", "", "", "x|3|4|", ""}, true},
		{"behind what was shown, the same", []string{"START a", "+1\n2\n3\n", "commit 6", "START b", "cut 2", "commit 2", "+2\n3\n4\n", "commit 4", "commit 8"}, []string{"", "", "1|2|3|", "", "", "", "", "", "4|"}, false},
		{"too far behind", []string{"START a", "+" + long, "commit 131072", "START b", "cut 0", "commit 0"}, []string{"", "", strings.ReplaceAll(long, "\n", "|"), "", "", ""}, true},
		{"in a line", []string{"START a", "+12", "commit 1", "+3\n4", "commit 4", "FINISH"}, []string{"", "", "", "", "123|", "4|"}, false},
		{"the commit overtakes the output", []string{"START a", "+1\n", "late +2\n", "commit 4", "+3\n", "commit 6"}, []string{"", "", "", "1|2|", "", "3|"}, false},
		{"the commit overtakes it after a restart", []string{"START a", "+1\n2\n", "commit 2", "START b", "uncut 2", "late +x\n", "commit 4"}, []string{"", "", "1|", "", "", "", "x|"}, false},
		{"output of an earlier launch", []string{"START a", "+1\n2\n", "commit 2", "START b", "cut 2", "FROM a", "+3\n", "commit 4"}, []string{"", "", "1|", "", "", "", "", "3|"}, false},
		{"failed", []string{"START a", "+1\n2\n", "commit 2", "FAIL"}, []string{"", "", "1|", "2|"}, false},
	} {
		for _, mirror := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, mirror %v", v.name, mirror), func(t *testing.T) {
				o := Options{Run: t.TempDir(), Delay: true, Mirror: mirror}
				o.RankOutput = filepath.Join(o.Run, "output")
				name := rundir.OutputFile(o.RankOutput, 0, control.Stdout)
				if err := os.Mkdir(o.RankOutput, 0o700); err != nil {
					t.Fatal(err)
				}
				var screen strings.Builder
				o.Line = func(_, _ int, line []byte, ok func(bool)) {
					screen.Write(line)
					screen.WriteByte('|')
					ok(true)
				}
				k, err := New(o, 1)
				if err != nil {
					t.Fatal(err)
				}
				defer k.Close()
				var text, launch string
				queue := control.NewSendQueue(nil, 0)
				queue.Finish() // nobody reads the acknowledgements
				send := func(launch string, at int, data string) {
					m := &control.Output{Stream: control.Stdout, Offset: int64(at)}
					if data != "" {
						m.Data = []byte(data)
					}
					k.Take(&control.FromRank{Launch: launch}, m, queue)
				}
				store := func() {
					if !mirror {
						if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
							t.Fatal(err)
						}
					}
				}
				later := func() {}
				for i, e := range v.events {
					screen.Reset()
					after := later
					later = func() {}
					var n int
					switch word, rest, _ := strings.Cut(e, " "); {
					case word == "START":
						launch = rest
						k.Start(0, launch)
					case word == "FROM":
						send("a", len(text), "x\n")
					case e[0] == '+':
						at := len(text)
						text += e[1:]
						store()
						send(launch, at, e[1:])
					case word == "late":
						at := len(text)
						text += rest[1:]
						store()
						later = func() { send(launch, at, rest[1:]) }
					case word == "cut":
						fmt.Sscan(rest, &n)
						text = text[:n]
						store()
						send(launch, n, "")
					case word == "uncut":
						fmt.Sscan(rest, &n)
						text = text[:n]
						store()
					case word == "commit":
						fmt.Sscan(rest, &n)
						k.Commit(0, int64(n))
					case word == "FAIL":
						k.CommitAll()
					case word == "FINISH":
						if err := k.Finish(); err != nil {
							t.Fatal(err)
						}
					}
					after()
					k.idle()
					if got := screen.String(); got != v.want[i] {
						t.Fatalf("event %d, %.40q: shown %.200q, want %.200q", i+1, e, got, v.want[i])
					}
				}
				if got := len(k.Repeated()) > 0; got != v.again {
					t.Errorf("shown again: %v, want %v", got, v.again)
				}
			})
		}
	}
}

// idle waits until run has nothing to do.
func (k *Sink) idle() {
	k.mu.Lock()
	defer k.mu.Unlock()
	for !k.closed && (len(k.queue) > 0 || !k.began.IsZero()) {
		k.some.Wait()
	}
}
