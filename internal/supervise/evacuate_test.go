//go:build linux

package supervise

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/cairnrun/cairn/internal/supervise/rundir"
)

// TestEvacuate_File evacuates the hosts that RUN/evacuate lists.
func TestEvacuate_File(t *testing.T) {
	gate := fifo(t)
	o := threeHosts(t, "pause:8:2", "pause:10:3", "gate:0:15:"+gate)
	l := begin(t, o)
	l.pid(1, 1)
	l.s.Evacuate()
	l.await("no host is evacuated: open ")
	path := filepath.Join(o.Run, rundir.EvacuateFile)
	write := func(text string) {
		t.Helper()
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		l.s.Evacuate()
	}
	write("# nothing\n\n")
	l.await("evacuate names no host")
	write("a b c\n")
	l.await("evacuate:1: 3 words; a line is HOST, or HOST TARGET")
	write("a\nb -oProxyCommand=x\n")
	l.await(`evacuate:2: "-oProxyCommand=x" is no host`)
	write("a a\n")
	l.await("evacuate:1: host a cannot be evacuated to itself")
	write("nowhere # yet\nb   # it gets hot\na d\n")
	l.await("host nowhere not moved: the run has no host nowhere; it has a, b, c")
	l.await("rank 1 moved from b to c: paused ")
	l.await("rank 0 moved from a to d: paused ")
	write("a\n")
	l.await("no rank is on a; none will be placed there any more")
	open(t, gate)
	l.ends(rundir.Finished, 0).says("host b is to be evacuated, as evacuate says")
	l.exactMoved(20, map[int][]int{1: {8}, 0: {10}})
	if got := hostsOf(t, o); got != "a:0 b:0 c:1 d:1" {
		t.Error(got)
	}
}

// TestEvacuate_When runs a command on each host that decides when to evacuate
// it.
func TestEvacuate_When(t *testing.T) {
	gate := fifo(t)
	o := threeHosts(t, "pause:8:1", "gate:0:15:"+gate)
	flag := filepath.Join(t.TempDir(), "hot")
	// The command identifies its host by the helper's lock file.
	o.EvacuateWhen, o.EvacuatePoll = `test -e `+flag+` && grep -q "\"helper\":$PPID," `+o.Run+`/hosts/b.lock`, 20*time.Millisecond
	l := begin(t, o)
	l.pid(1, 1)
	if err := os.WriteFile(flag, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	l.await("host b is to be evacuated, as --evacuate-when says there")
	l.await("rank 1 moved from b to c: paused ")
	open(t, gate)
	l.ends(rundir.Finished, 0)
	l.exactMoved(20, map[int][]int{1: {8}})
	for _, s := range l.said {
		if strings.Contains(s, "is to be evacuated") && !strings.Contains(s, "host b") {
			t.Error(s)
		}
	}
}

// TestEvacuate_CommandMissing shows that a command that cannot run is reported
// once, and that the run continues.
func TestEvacuate_CommandMissing(t *testing.T) {
	gate := fifo(t)
	o := options(t, 1, "gate:0:3:"+gate)
	o.EvacuateWhen, o.EvacuatePoll = "no-such-command-at-all 2>/dev/null; s=$?; echo >> "+o.Run+"/times; exit $s", 300*time.Millisecond
	l := begin(t, o)
	l.await("host localhost: --evacuate-when: ")
	for n := 0; n < 3; { // it is tried again all the same
		text, _ := os.ReadFile(o.Run + "/times")
		n = len(text)
	}
	open(t, gate)
	l.ends(rundir.Finished, 0)
	n := 0
	for _, s := range l.said {
		if strings.Contains(s, "--evacuate-when") {
			n++
		}
	}
	if n != 1 {
		t.Errorf("it was said %d times: %q", n, l.said)
	}
}
