//go:build linux

package e2e

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/cairnrun/cairn/internal/interconnects"
	"github.com/cairnrun/cairn/internal/supervise/rundir"
)

// islands are hosts that share neither a disk nor the run directory: network
// namespaces in which another directory is mounted at the same place.
type islands struct {
	wanderer
	net   *interconnects.Network
	disks string // a directory per host; no host sees it
	local string // where each host sees its own
	shell string
	env   []string // of the run, besides this process's
	usual bool     // without flags, the run has the tiers that runs have; otherwise local alone
}

// wanderOn makes hosts, and a run that computes up to a step at a time.
func wanderOn(t *testing.T, hosts, ranks int, args ...string) *islands {
	t.Helper()
	limit := filepath.Join(t.TempDir(), "limit")
	w := onIslands(t, hosts, ranks, append(append([]string{program(t, "wander")}, args...), "-limit", limit)...)
	w.limit = limit
	return w
}

// onIslands makes hosts, and a run of a program.
func onIslands(t *testing.T, hosts, ranks int, command ...string) *islands {
	t.Helper()
	need(t, "ip", "mount")
	w := &islands{net: network(t, hosts), disks: t.TempDir(), local: t.TempDir()}
	if out, err := exec.Command("ip", "netns", "exec", w.net.Hosts[0], "mount", "-t", "tmpfs", "none", w.local).CombinedOutput(); err != nil {
		t.Skipf("a file system cannot be mounted: %v %s; be root", err, out)
	}
	w.ranks = ranks
	w.runOf = newRun(t, command...)
	for _, h := range w.net.Hosts {
		w.newDisk(t, h)
	}
	w.shell = script(t, "remote", fmt.Sprintf(`host=$1; shift
exec ip netns exec $host sh -c 'mount --bind %[1]s/$0 %[2]s && mount -t tmpfs none %[1]s && mount -t tmpfs none %[3]s && exec "$@"' $host "$@"`, w.disks, w.local, w.run()))
	return w
}

// newDisk gives a host a blank disk.
func (w *islands) newDisk(t *testing.T, host string) {
	t.Helper()
	if err := os.Mkdir(filepath.Join(w.disks, host), 0o700); err != nil {
		t.Fatal(err)
	}
}

// disk returns the directory of the run on a host's disk.
func (w *islands) disk(host string) string {
	t := w.runOf.t
	t.Helper()
	list, err := filepath.Glob(filepath.Join(w.disks, host, "me", "run-*"))
	if err != nil || len(list) != 1 {
		t.Fatalf("on the disk of %s: %v %v", host, list, err)
	}
	return list[0]
}

// begins starts the run with so many slots on hosts: "2 1" or "0 2 1".
func (w *islands) begins(slots string, flags ...string) {
	var hosts []string
	for i, n := range strings.Fields(slots) {
		if n != "0" {
			hosts = append(hosts, w.net.Hosts[i]+":"+n)
		}
	}
	if !w.usual {
		flags = append([]string{"--tiers", "local=" + filepath.Join(w.local, "me")}, flags...)
	}
	w.supervisor = w.startIn(w.env, append([]string{"-n", fmt.Sprint(w.ranks), "--hosts", strings.Join(hosts, ","), "--rsh", w.shell + " {host}", "--local", filepath.Join(w.local, "me"), "--every", "1h", "--retries", "2"}, flags...)...)
}

// saves takes a checkpoint.
func (w *islands) saves() {
	t := w.runOf.t
	t.Helper()
	if out, code := cairnTool(t, "checkpoint", w.run()); code != 0 {
		t.Fatalf("cairn checkpoint: exit status %d: %s\n%s", code, out, w.text())
	}
}

// killsAll kills the supervisor, all helpers and all ranks, at once.
func (w *islands) killsAll() {
	t := w.runOf.t
	t.Helper()
	pids := []int{w.supervisor.cmd.Process.Pid}
	locks, _ := filepath.Glob(filepath.Join(w.disks, "*", "me", "run-*", "hosts", "*.lock"))
	for _, name := range locks {
		f, _, err := rundir.TryLock(name)
		if err == nil { // nobody
			f.Close()
			continue
		}
		var who rundir.Holder
		for end := time.Now().Add(patience); ; time.Sleep(time.Millisecond) { // it may be being written
			text, err := os.ReadFile(name)
			if err == nil {
				err = json.Unmarshal(text, &who)
			}
			if err == nil {
				break
			}
			if time.Now().After(end) {
				t.Fatalf("%s: %v: %s", name, err, text)
			}
		}
		pids = append(pids, who.Helper)
		for _, p := range who.Ranks {
			pids = append(pids, p.Pid)
		}
	}
	for _, s := range []syscall.Signal{syscall.SIGSTOP, syscall.SIGKILL} {
		for _, p := range pids {
			syscall.Kill(p, s)
		}
	}
	w.ends()
}

// refuses starts the run, which must refuse for reasons.
func (w *islands) refuses(slots string, why ...string) {
	w.runOf.t.Helper()
	w.refusesWith(nil, slots, why...)
}

// refusesWith does the same with flags.
func (w *islands) refusesWith(flags []string, slots string, why ...string) {
	t := w.runOf.t
	t.Helper()
	w.begins(slots, flags...)
	if code := w.ends(); code != 1 && code != 3 {
		t.Fatalf("exit status %d:\n%s", code, w.text())
	}
	must(t, w.text(), why...)
	if strings.Contains("\n"+w.text(), "\ncairn: started") {
		t.Errorf("it has started ranks:\n%s", w.text())
	}
}

// TestLocal_ResumedOnOtherHosts kills everything of a run whose hosts share
// nothing, again and again, and resumes it on the same hosts, on others, on
// fewer and on more.
func TestLocal_ResumedOnOtherHosts(t *testing.T) {
	t.Parallel()
	const n = 4
	want := undisturbed(t, n, program(t, "wander"), "-size", "2000")
	w := wanderOn(t, 3, n, "-size", "2000")
	step, place := 5, filepath.Join(t.TempDir(), "me", "sim")
	w.lets(step)
	for i, slots := range []string{"2 2", "2 2", "0 2 2", "0 0 4", "2 1 1"} {
		w.begins(slots)
		if i > 0 {
			w.awaits(fmt.Sprintf("restored checkpoint %d", i))
		}
		w.reachesStep(step)
		w.saves()
		if i == 1 { // of what is on the hosts' disks alone
			out, code := cairnTool(t, "copy", w.run(), place)
			if code != 0 {
				t.Fatalf("cairn copy: exit status %d: %s", code, out)
			}
			must(t, out, "1 checkpoint of run ", "copied to "+place)
		}
		step += 5
		w.goes(step)
		w.killsAll()
	}
	w.lets(60)
	w.begins("2 1 1")
	w.finishes()
	sameOutput(t, w.output(), want)
	c := &wanderer{runOf: newRun(t, w.command...), ranks: n, limit: w.limit}
	c.supervisor = c.start("-n", fmt.Sprint(n), "--every", "1h", "--from", place)
	c.awaits("restored checkpoint 2")
	c.finishes()
	sameOutput(t, c.output(), want)
	for _, h := range w.net.Hosts {
		if left, _ := filepath.Glob(filepath.Join(w.disk(h), "ckpt", "*")); len(left) > 0 {
			t.Errorf("the finished run has left on %s: %v", h, left)
		}
	}
}

// TestLocal_DiskLost changes the disk of a host while a run is stopped. It
// refuses, and names the host, and nothing is changed: with the disk as it was,
// it resumes.
func TestLocal_DiskLost(t *testing.T) {
	t.Parallel()
	const n = 3
	want := undisturbed(t, n, program(t, "wander"), "-size", "2000")
	w := wanderOn(t, 3, n, "-size", "2000")
	a, b := w.net.Hosts[0], w.net.Hosts[1]
	w.lets(5)
	w.begins("2 1")
	w.reachesStep(5)
	w.saves()
	tool(t, "cp", "-a", filepath.Join(w.disks, b), filepath.Join(w.disks, "old"))
	w.goes(10)
	w.saves()
	w.goes(12)
	w.saves() // now no host has the first one any more
	w.goes(14)
	w.killsAll()
	w.tells(0, "list", a+": checkpoint 3 of ranks 0 and 1; 2 of ranks 0 and 1", b+": checkpoint 3 of rank 2; 2 of rank 2", "3           3/3", "recovery line")
	w.tells(0, "verify", "ckpt-00000003/rank-0002.h5: sound", "ckpt-00000002/rank-0000.h5: sound")
	w.tells(0, "inspect --rank 2", "rank         2 of 3 ranks", "state")
	w.tells(3, "gc", "on the hosts of the run")
	disk, away := filepath.Join(w.disks, b), filepath.Join(w.disks, "away")
	swap := func(from, to string) {
		t.Helper()
		if err := os.Rename(from, to); err != nil {
			t.Fatal(err)
		}
	}
	swap(disk, away)
	w.newDisk(t, b)
	w.refuses("2 1", b, "is blank", "rank 2")
	w.refuses("3", b, "is blank", "rank 2") // though it has no rank now
	swap(disk, filepath.Join(w.disks, "blank"))
	w.refuses("2 0 1", b, "rank 2") // it cannot be reached: there is no disk to mount
	w.tells(1, "list", "host "+b+": not known", "no checkpoint is complete")
	swap(filepath.Join(w.disks, "old"), disk)
	w.refuses("2 1", b, "an older copy", "checkpoint 3")
	swap(disk, filepath.Join(w.disks, "old"))

	// A file that is damaged on one host: an older checkpoint is taken, on all.
	swap(away, disk)
	w.damages(b, 3, 2)
	w.tells(1, "verify", "ckpt-00000003/rank-0002.h5: damaged", "it uses checkpoint 2")
	w.lets(15)
	w.begins("2 0 1") // it is found where it is brought from, or where it is
	w.awaits("rank 2: its file of checkpoint 3 could not be fetched from " + b)
	w.awaits("restored checkpoint 2")
	w.reachesStep(15)
	w.saves()
	w.goes(17)
	w.killsAll()

	// The disks of two hosts, exchanged: nothing has to be brought.
	swap(filepath.Join(w.disks, a), away)
	swap(filepath.Join(w.disks, w.net.Hosts[2]), filepath.Join(w.disks, a))
	swap(away, filepath.Join(w.disks, w.net.Hosts[2]))
	w.lets(60)
	w.begins("1 0 2")
	w.finishes()
	if strings.Contains(w.text(), "brought") {
		t.Errorf("files were brought:\n%s", w.text())
	}
	sameOutput(t, w.output(), want)
}

// tells runs a command on the run directory, which must end with a status and
// print texts.
func (w *islands) tells(code int, command string, texts ...string) {
	t := w.runOf.t
	t.Helper()
	out, got := cairnTool(t, append(strings.Fields(command), w.run())...)
	if got != code {
		t.Errorf("cairn %s: exit status %d, want %d:\n%s", command, got, code, out)
	}
	must(t, out, texts...)
}

// damages changes a byte in the middle of a rank's file of a checkpoint.
func (w *islands) damages(host string, index uint64, rank int) {
	t := w.runOf.t
	t.Helper()
	name := filepath.Join(w.disk(host), "ckpt", fmt.Sprintf("ckpt-%08d", index), fmt.Sprintf("rank-%04d.h5", rank))
	text, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	text[len(text)/2] ^= 1
	write(t, name, string(text))
}

// helperOf returns the process of a host's helper.
func (w *islands) helperOf(host string) int {
	t := w.runOf.t
	t.Helper()
	var who rundir.Holder
	text, err := os.ReadFile(rundir.HostLock(w.disk(host), host))
	if err == nil {
		err = json.Unmarshal(text, &who)
	}
	if err != nil {
		t.Fatal(err)
	}
	return who.Helper
}

// TestLocal_HelperKilledFileDamaged kills one host's helper, with its ranks,
// while the run computes, and damages a file that no rank has to be brought:
// the run restarts by itself, from the newest checkpoint that all ranks can
// load.
func TestLocal_HelperKilledFileDamaged(t *testing.T) {
	t.Parallel()
	const n = 3
	want := undisturbed(t, n, program(t, "wander"), "-size", "2000")
	w := wanderOn(t, 2, n, "-size", "2000")
	a, b := w.net.Hosts[0], w.net.Hosts[1]
	w.lets(5)
	w.begins("2 1")
	w.reachesStep(5)
	w.saves()
	w.goes(8)
	w.saves()
	from, _, _ := w.said()
	syscall.Kill(w.helperOf(b), syscall.SIGKILL)
	if _, ok := w.sees(from, "restored checkpoint 2"); !ok {
		t.Fatalf("it has ended:\n%s", w.text())
	}
	w.goes(12)
	w.saves()
	w.goes(14)
	w.killsAll()
	w.damages(a, 3, 1)
	w.lets(60)
	w.begins("2 1")
	w.awaits("rank 1's file on " + a + " cannot be loaded")
	w.awaits("restored checkpoint 2")
	w.finishes()
	sameOutput(t, w.output(), want)
}

// parts returns which ranks' files a host has, of any checkpoint.
func (w *islands) parts(host string) (out []string) {
	names, _ := filepath.Glob(filepath.Join(w.disk(host), "ckpt", "ckpt-*", "rank-????.h5"))
	for _, name := range names {
		if rank := strings.TrimSuffix(filepath.Base(name), ".h5"); !slices.Contains(out, rank) {
			out = append(out, rank)
		}
	}
	slices.Sort(out)
	return out
}

// TestLocal_Move moves ranks of a run whose hosts share nothing. Right after a
// move, the checkpoint of the rank is on the host that it has left; later, it
// is where the rank is, and the old host has nothing of it.
func TestLocal_Move(t *testing.T) {
	onlyLong(t)
	t.Parallel()
	const n = 3
	want := undisturbed(t, n, program(t, "wander"), "-size", "2000")
	w := wanderOn(t, 3, n, "-size", "2000")
	a, b, c := w.net.Hosts[0], w.net.Hosts[1], w.net.Hosts[2]
	w.lets(5)
	w.begins("2 1")
	w.reachesStep(5)
	w.saves()
	w.goes(8)
	w.moves("--rank", "1", "--to", c)
	w.goes(10)
	if got := w.parts(c); got != nil {
		t.Errorf("%s has files of %v", c, got)
	}
	w.killsAll() // before the next checkpoint
	w.lets(12)
	w.begins("1 1 1")
	w.awaits("restored checkpoint 1")
	w.reachesStep(12)
	w.moves("--host", b, "--to", a)
	w.moves("--rank", "1", "--to", a) // all are on one host
	for step := range 3 {
		w.saves()
		w.goes(13 + step)
	}
	for h, want := range map[string][]string{a: {"rank-0000", "rank-0001", "rank-0002"}, b: nil, c: nil} {
		got := w.parts(h)
		for end := time.Now().Add(patience); !slices.Equal(got, want); got = w.parts(h) {
			if time.Now().After(end) {
				t.Fatalf("after checkpoints where the ranks are, %s has files of %v, want %v", h, got, want)
			}
			time.Sleep(5 * time.Millisecond) // no event tells that a helper has removed files
		}
	}
	w.goes(18)
	w.killsAll()
	w.lets(60)
	w.begins("1 1 1")
	w.awaits("brought to other hosts")
	w.finishes()
	sameOutput(t, w.output(), want)
}

// TestLocal_ChangedFiles runs a program that was made restartable by 'cairn
// build' and changes files in all ways, outside its working directory. Its
// journal goes with it from host to host, in moves and in restarts.
func TestLocal_ChangedFiles(t *testing.T) {
	onlyLong(t)
	t.Parallel()
	made, _ := cairnBuilds(t, "./internal/e2e/testdata/clerk")
	plain := t.TempDir()
	want := tool(t, build(t, "./internal/e2e/testdata/clerk", runtime.GOARCH), "-dir", plain, "-steps", "600")
	books := t.TempDir()
	w := onIslands(t, 3, 1, made, "-dir", books, "-steps", "600", "-pause", "2ms")
	all := []string{"1", "0 1", "0 0 1", "1"}
	if !stressed() {
		all = all[:2]
	}
	for i, slots := range all {
		w.begins(slots, "--every", "40ms")
		if i > 0 {
			w.awaits("restored checkpoint")
		}
		from, ok := w.sees(0, "committed")
		if ok {
			_, ok = w.sees(from, "committed")
		}
		if !ok {
			t.Fatalf("it has ended:\n%s", w.text())
		}
		if i%2 == 1 {
			w.wanderer.moves("--rank", "0", "--to", w.net.Hosts[0])
		}
		w.killsAll()
	}
	w.begins("0 0 1", "--every", "40ms")
	w.finishes()
	sameOutput(t, w.output(), want)
	sameTree(t, books, plain)
}

// TestLocal_OpenMPI kills everything of a run that mpirun has started on two
// hosts that share nothing, and resumes it there, and then with a rank on the
// other host. mpirun starts a helper per rank, and those of a host use one
// directory.
func TestLocal_OpenMPI(t *testing.T) {
	onlyLong(t)
	t.Parallel()
	need(t, "mpirun.openmpi", "unshare")
	const n = 4
	want := undisturbed(t, n, program(t, "wander"), "-size", "2000")
	w := wanderOn(t, 2, n, "-size", "2000")
	a, b := w.net.Hosts[0], w.net.Hosts[1]
	starts := func(near, far int) {
		t.Helper()
		w.beginsMPI(near, far)
	}
	w.lets(5)
	starts(2, 2)
	w.reachesStep(5)
	w.saves()
	w.goes(8)
	w.killsAll()
	w.lets(12)
	starts(2, 2)
	w.awaits("restored checkpoint 1")
	w.reachesStep(12)
	w.saves()
	w.goes(14)
	w.killsAll()
	w.lets(60)
	starts(1, 3)
	w.awaits("the files of rank 1 are brought to other hosts")
	w.finishes()
	sameOutput(t, w.output(), want)
	for _, h := range []string{a, b} {
		if left, _ := filepath.Glob(filepath.Join(w.disk(h), "ckpt", "*")); len(left) > 0 {
			t.Errorf("the finished run has left on %s: %v", h, left)
		}
	}
}

// beginsMPI starts the run with mpirun, with so many ranks on the first host
// and on the second one.
func (w *islands) beginsMPI(near, far int, flags ...string) {
	t := w.runOf.t
	t.Helper()
	own, err := os.Hostname()
	if err != nil {
		t.Fatal(err)
	}
	a, b := w.net.Hosts[0], w.net.Hosts[1]
	here := script(t, "here", fmt.Sprintf(`exec ip netns exec %[1]s sh -c 'mount --bind %[2]s/%[1]s %[3]s && exec "$@"' sh "$@"`, a, w.disks, w.local))
	agent := script(t, "agent", fmt.Sprintf(`host=$1; shift
exec %s $host unshare --uts sh -c "hostname $host; $*"`, w.shell))
	argv := append([]string{here, build(t, "./cmd/cairn", runtime.GOARCH), "run", "--run", w.run(), "-o", w.out(), "-n", fmt.Sprint(w.ranks), "--every", "1h", "--local", filepath.Join(w.local, "me"), "--launcher", "mpirun",
		fmt.Sprintf("--launcher-args=--oversubscribe --host %s:%d,%s:%d --mca plm_rsh_agent %s", own, near, b, far, agent)}, flags...)
	w.supervisor = begin(t, w.run(), launcherNamed(t, "mpirun.openmpi"), append(append(argv, w.command[0], "--"), w.command[1:]...)...)
}

// TestLocal_KilledAtRandom kills everything at random moments, also while a
// rank moves, and resumes on random hosts.
func TestLocal_KilledAtRandom(t *testing.T) {
	onlyLong(t)
	t.Parallel()
	const n, kills = 4, 40
	want := undisturbed(t, n, program(t, "wander"), "-size", "20000", "-steps", "400")
	w := wanderOn(t, 4, n, "-size", "20000", "-steps", "400")
	seed := uint64(7)
	if text := os.Getenv("CAIRN_SEED"); text != "" {
		seed, _ = strconv.ParseUint(text, 10, 64)
	}
	t.Logf("CAIRN_SEED=%d", seed)
	rng := rand.New(rand.NewPCG(seed, 7))
	moved := 0
	for i := range kills {
		w.lets(9 * (i + 1)) // so that it does not end
		slots := make([]int, 4)
		for room := 0; room < n; {
			k := rng.IntN(len(slots))
			slots[k]++
			room++
		}
		w.begins(strings.Trim(fmt.Sprint(slots), "[]"), "--every-points", fmt.Sprint(2+rng.IntN(6)))
		from, ok := w.sees(0, "started")
		for k := rng.IntN(12); ok && k > 0; k-- {
			from, ok = w.sees(from, "committed")
		}
		if !ok {
			t.Fatalf("kill %d: it has ended:\n%s", i, w.text())
		}
		if rng.IntN(2) == 0 {
			a := w.travels(n, w.supervisor).asks("--rank", fmt.Sprint(rng.IntN(n)), "--to", w.net.Hosts[rng.IntN(4)])
			time.Sleep(time.Duration(rng.IntN(1500)) * time.Millisecond) // any moment of the move
			w.killsAll()
			<-a.done
			if a.code == 0 {
				moved++
			}
			continue
		}
		w.killsAll()
	}
	t.Logf("%d moves were over when everything was killed", moved)
	w.lets(400)
	w.begins("1 1 1 1")
	w.finishes()
	sameOutput(t, w.output(), want)
}
