//go:build linux

package e2e

import (
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/cairnrun/cairn/internal/supervise/rundir"
	"github.com/cairnrun/cairn/internal/vfs/vfstest"
)

// randomKiller gives a command, kills its processes at a random moment, and
// gives the command again.
type randomKiller struct {
	t     *testing.T
	dice  *rand.Rand
	kills int
	names map[string]int // kills, by command
}

// killed counts a kill.
func (k *randomKiller) killed(name string) {
	k.kills++
	k.names[name]++
	k.t.Logf("%d kills: %v", k.kills, k.names)
}

func newRandomKiller(t *testing.T) *randomKiller {
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	return &randomKiller{t: t, dice: rand.New(rand.NewPCG(seed, 1)), names: make(map[string]int)}
}

// command kills a command so many times. Each time, begin makes the state that
// it finds, and check looks at what the second, undisturbed one has made of it.
// The moment is within the time that the undisturbed command takes.
func (k *randomKiller) command(times int, begin, check func(), args ...string) {
	t := k.t
	t.Helper()
	begin()
	began := time.Now()
	if out, code := cairnTool(t, args...); code != 0 {
		t.Fatalf("cairn %v: exit status %d: %s", args, code, out)
	}
	span := time.Since(began)
	check()
	for killed := 0; killed < times; {
		begin()
		cmd := exec.Command(build(t, "./cmd/cairn", runtime.GOARCH), args...)
		var said strings.Builder
		cmd.Stdout, cmd.Stderr = &said, &said
		cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		moment := time.Duration(k.dice.Int64N(int64(span)))
		time.Sleep(moment)
		whom, who := cmd.Process.Pid, "command"
		if k.dice.IntN(3) == 0 { // with its helpers on this machine
			whom, who = -whom, "group"
		}
		err := syscall.Kill(whom, syscall.SIGKILL)
		if cmd.Wait(); err == nil && !cmd.ProcessState.Exited() {
			killed++
			k.killed(args[0])
		}
		out, code := cairnTool(t, args...)
		if code != 0 {
			t.Fatalf("cairn %v, %s killed after %v: %s\nthe second time: exit status %d: %s", args, who, moment, said.String(), code, out)
		}
		check()
		if t.Failed() {
			t.Fatalf("cairn %v, %s killed after %v: %s\nthe second time: %s", args, who, moment, said.String(), out)
		}
	}
}

// TestTiers_KilledAtRandom kills 'cairn repair', 'copy', 'gc' and 'run --from',
// and a helper that reads old checkpoints again, with SIGKILL at random
// moments. The same command completes what they have begun. CAIRN_KILLS is how
// often each is killed; it is 3 without that.
func TestTiers_KilledAtRandom(t *testing.T) {
	onlyLong(t)
	t.Parallel()
	times := 3
	if n := os.Getenv("CAIRN_KILLS"); n != "" {
		fmt.Sscan(n, &times)
	}
	const n = 3
	want := undisturbed(t, n, program(t, "wander"), "-size", "2000")
	k := newRandomKiller(t)
	w := wanderOn(t, 3, n, "-size", "2000")
	shared := sharedDir(t)
	flags := []string{"--tiers", "local=" + filepath.Join(w.local, "me") + ",partner,rs=2+1:every=1,shared=" + shared + ":every=1"}
	w.lets(5)
	w.begins("1 1 1", flags...)
	w.reachesStep(5)
	w.saves()
	for _, on := range []string{"partner=1", "rs=2+1", "shared=" + shared} {
		w.awaits("checkpoint 1 is on " + on)
	}
	w.goes(7)
	w.stops()
	must(t, w.text(), "checkpoint 2 is on partner=1", "checkpoint 2 is on rs=2+1", "checkpoint 2 is on shared="+shared)
	all := append(slices.Clone(w.net.Hosts), "")
	at := func(host string) string {
		if host == "" {
			return shared
		}
		return filepath.Join(w.disks, host)
	}
	was := t.TempDir()
	for i, host := range all {
		tool(t, "cp", "-a", at(host), filepath.Join(was, fmt.Sprint(i)))
	}
	asBefore := func() {
		for i, host := range all {
			w.awaitHelper(host)
			removes(t, at(host))
			tool(t, "cp", "-a", filepath.Join(was, fmt.Sprint(i)), at(host))
		}
	}
	whole := func() {
		t.Helper()
		w.tells(0, "repair", "0 repaired, 0 cannot be repaired")
		w.tells(0, "list", "2           ", "local, partner=1, rs=2+1, shared="+shared, "all hosts")
	}
	// Of each rank, the host's file or that on the shared tier stays sound.
	k.command(times, func() {
		asBefore()
		host := w.net.Hosts[k.dice.IntN(3)]
		rank, _ := filepath.Glob(filepath.Join(w.disk(host), "ckpt", "ckpt-00000002", "rank-*.h5"))
		vfstest.Rot(t, rank[0])
		removes(t, filepath.Join(w.disk(w.net.Hosts[k.dice.IntN(3)]), "kept"))
		files, _ := filepath.Glob(filepath.Join(shared, "run-*", "*", "files", "rank-*"))
		files = slices.DeleteFunc(files, func(name string) bool {
			return strings.HasPrefix(filepath.Base(name), strings.TrimSuffix(filepath.Base(rank[0]), ".h5"))
		})
		for range 2 {
			vfstest.Rot(t, files[k.dice.IntN(len(files))])
		}
		if k.dice.IntN(2) == 0 {
			vfstest.Rot(t, one(t, shared, "run-*", "*", "checkpoints/00000002.json"))
		}
	}, whole, "repair", w.run())
	asBefore()
	from := one(t, shared, "run-*")
	place := filepath.Join(filepath.Dir(shared), "copy", "sim")
	tool(t, "mkdir", filepath.Dir(place))
	k.command(times, func() { removes(t, place) }, func() {
		tool(t, "diff", "-r", shared, filepath.Join(was, "3"))
		if out, code := cairnTool(t, "verify", place); code != 0 {
			t.Errorf("the copy: %s", out)
		}
	}, "copy", from+"@2", place)
	k.command(times, asBefore, whole, "gc", "--tier", "shared", "--keep", "1", w.run())
	// Copies are resumed, and killed while they begin.
	for range times {
		c := &wanderer{runOf: newRun(t, w.command...), ranks: n, limit: w.limit}
		begin := func() { c.supervisor = c.start("-n", fmt.Sprint(n), "--every", "1h", "--grace", "1s", "--from", place) }
		began := time.Now()
		begin()
		moment := time.Duration(k.dice.Int64N(int64(1500 * time.Millisecond)))
		time.Sleep(moment - min(moment, time.Since(began)))
		c.supervisor.cmd.Process.Kill()
		c.ends()
		k.killed("run --from")
		if k.dice.IntN(2) == 0 { // it is not the first process of a container: it waits until its ranks have ended
			c.awaitEnd()
		}
		w.lets(60)
		begin()
		if _, ok := c.seesWithin(3*patience, 0, "restored checkpoint"); !ok {
			t.Fatalf("killed after %v:\n%s", moment, c.text())
		}
		c.supervisor.cmd.Process.Kill() // once more, anywhere
		c.ends()
		k.killed("run --from")
		begin()
		c.finishes()
		sameOutput(t, c.output(), want)
		// The end of that run is at the place. The copy is made again.
		removes(t, place)
		w.lets(7)
		if out, code := cairnTool(t, "copy", from+"@2", place); code != 0 {
			t.Fatal(out)
		}
	}
	asBefore()
	w.killsScrubbers(k, min(times, 5), append(flags, "--retries", "1000")[1]+",scrub=1m")
	w.lets(60)
	w.finishes()
	sameOutput(t, w.output(), want)
}

// killsScrubbers kills helpers of a running run while they read again what has
// rotted. The run restarts by itself.
func (w *islands) killsScrubbers(k *randomKiller, times int, tiers string) {
	t := w.runOf.t
	t.Helper()
	w.begins("1 1 1", "--tiers", tiers, "--retries", "1000")
	w.awaits("restored checkpoint 2")
	seen := 0
	for range times {
		host := w.net.Hosts[k.dice.IntN(3)]
		ranks, _ := filepath.Glob(filepath.Join(w.disk(host), "ckpt", "ckpt-00000002", "rank-*.h5"))
		if len(ranks) > 0 {
			rots(t, ranks[0])
		}
		time.Sleep(time.Duration(k.dice.Int64N(int64(time.Second))))
		if pid := w.helperOf(host); pid > 0 && syscall.Kill(pid, syscall.SIGKILL) == nil {
			k.killed("helper")
		}
		var ok bool
		if seen, ok = w.seesWithin(3*patience, seen, "restored checkpoint"); !ok {
			t.Fatalf("it did not restart:\n%s", w.text())
		}
	}
}

// awaitHelper waits until no helper has a host's directory.
func (w *islands) awaitHelper(host string) {
	t := w.runOf.t
	t.Helper()
	locks, _ := filepath.Glob(filepath.Join(w.disks, host, "me", "run-*", "hosts", "*.lock"))
	for _, name := range locks {
		for end := time.Now().Add(patience); ; time.Sleep(5 * time.Millisecond) { // no event tells of a lock
			f, holder, err := rundir.TryLock(name)
			if err == nil {
				f.Close()
				break
			}
			if time.Now().After(end) {
				t.Fatalf("a helper does not end: %s", holder)
			}
		}
	}
}

// awaitEnd waits until nothing of the run is left.
func (w *wanderer) awaitEnd() {
	locks, _ := filepath.Glob(filepath.Join(w.run(), "local", "run-*", "hosts", "*.lock"))
	for _, name := range locks {
		for end := time.Now().Add(2 * patience); time.Now().Before(end); time.Sleep(5 * time.Millisecond) { // no event tells of a lock
			if f, _, err := rundir.TryLock(name); err == nil {
				f.Close()
				break
			}
		}
	}
}
