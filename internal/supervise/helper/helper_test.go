//go:build linux

package helper

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/cairnrun/cairn/internal/supervise/rundir"
)

// TestLaunchedRank_Environment checks the rank that each launcher gives in the
// environment.
func TestLaunchedRank_Environment(t *testing.T) {
	env := func(list ...string) func(string) string {
		return func(name string) string {
			for _, v := range list {
				if k, value, _ := strings.Cut(v, "="); k == name {
					return value
				}
			}
			return ""
		}
	}
	for _, c := range []struct {
		env  []string
		want int
	}{{[]string{"OMPI_COMM_WORLD_RANK=3"}, 3}, {[]string{"PMI_RANK=2"}, 2}, {[]string{"SLURM_PROCID=0"}, 0}, {nil, -1}, {[]string{"PMI_RANK=x"}, -1}} {
		got, err := launchedRank(env(c.env...))
		if err != nil {
			got = -1
		}
		if got != c.want {
			t.Errorf("%q: %d, %v", c.env, got, err)
		}
	}
}

// TestLayOut_Descriptors checks that descriptors which must keep their numbers
// do so.
func TestLayOut_Descriptors(t *testing.T) {
	file := func(name string) *os.File { return os.NewFile(^uintptr(0)>>1, name) }
	a, b, x := file("a"), file("b"), file("x")
	for _, c := range []struct {
		keep map[int]*os.File
		want string
	}{
		{nil, "[3 4]"}, {map[int]*os.File{3: x}, "[4 5]"}, {map[int]*os.File{4: x}, "[3 5]"}, {map[int]*os.File{9: x}, "[3 4]"},
	} {
		extra, numbers := layOut(c.keep, a, b)
		if fmt.Sprint(numbers) != c.want || extra[numbers[0]-3] != a || extra[numbers[1]-3] != b {
			t.Errorf("%v: %v", c.keep, numbers)
		}
		for fd, f := range c.keep {
			if fd-3 < len(extra) && extra[fd-3] != f {
				t.Errorf("descriptor %d is not kept", fd)
			}
		}
	}
}

// TestAwaitRanks_OtherHelpers shows that ranks are awaited as long as their
// helper lives and has ranks.
func TestAwaitRanks_OtherHelpers(t *testing.T) {
	run := t.TempDir()
	if err := os.Mkdir(filepath.Join(run, "hosts"), 0o700); err != nil {
		t.Fatal(err)
	}
	lock := func(name, launch string, ranks ...rundir.Process) *os.File {
		f, _, err := rundir.TryLock(rundir.HostLock(run, name))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { f.Close() })
		if err := rundir.RecordProcesses(f, "", launch, ranks); err != nil {
			t.Fatal(err)
		}
		return f
	}
	far := time.Now().Add(time.Hour)
	one := rundir.Process{Pid: 1}
	lock("of-another-launch", "y", one)
	lock("without-ranks", "x")
	lock("that-is-lost", "x", one).Close()
	awaitRanks(run, "x", far)
	b, a := lock("b", "x", one), lock("a", "x")
	awaitRanks(run, "x", time.Now().Add(50*time.Millisecond)) // it does not wait forever
	over := make(chan bool)
	go func() {
		awaitRanks(run, "x", far)
		close(over)
	}()
	moved := time.AfterFunc(100*time.Millisecond, func() { // a rank moves from b to a
		rundir.RecordProcesses(a, "", "x", []rundir.Process{one})
		rundir.RecordProcesses(b, "", "x", nil)
	})
	defer moved.Stop()
	select {
	case <-over:
		t.Fatal("they were not waited for")
	case <-time.After(400 * time.Millisecond):
	}
	a.Close()
	<-over
}

// TestStderrBuffer_LastSaid checks what is quoted of the end of stderr.
func TestStderrBuffer_LastSaid(t *testing.T) {
	for text, want := range map[string]string{
		"":                       "",
		"a\n\n b \nc\nd\n":       "b | c | d",
		"x\npanic: y\n\nz\nu\nv": "panic: y | z | u",
		strings.Repeat("é", 500): strings.Repeat("é", 200) + "…",
	} {
		if got := lastSaid(text); got != want {
			t.Errorf("%q: %q, want %q", text, got, want)
		}
	}
}
