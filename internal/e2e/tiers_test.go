//go:build linux

package e2e

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/cairnrun/cairn/internal/supervise/rundir"
	"github.com/cairnrun/cairn/internal/tier/s3/s3test"
	"github.com/cairnrun/cairn/internal/tier/seal"
)

// sharedDir makes a directory for a shared tier, below where it is mounted.
func sharedDir(t *testing.T) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "gpfs")
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	return dir
}

// onShared starts a run on two hosts that share nothing but a tier, which gets
// every second checkpoint, in one file per host, and takes two.
func onShared(t *testing.T, ranks, keep int) (w *islands, shared, tiers string) {
	t.Helper()
	w = wanderOn(t, 2, ranks, "-size", "2000")
	shared = sharedDir(t)
	tiers = fmt.Sprintf("shared=%s:every=2,keep=%d,files=1", shared, keep)
	w.lets(5)
	w.begins("2 1", "--tiers", tiers)
	w.reachesStep(5)
	w.saves()
	w.awaits("checkpoint 1 is on shared=" + shared)
	w.goes(7)
	w.saves()
	return w, shared, tiers
}

// TestTiers_Shared keeps checkpoints of hosts that share nothing on a shared
// directory, too.
func TestTiers_Shared(t *testing.T) {
	t.Parallel()
	const n = 3
	want := undisturbed(t, n, program(t, "wander"), "-size", "2000")
	w, shared, _ := onShared(t, n, 1)
	w.goes(9)
	w.saves()
	w.awaits("checkpoint 3 is on shared=" + shared)
	w.tells(0, "status", "tier        shared="+shared+": checkpoint 3")
	w.tells(0, "list", "local, shared="+shared, "all hosts")
	w.tells(0, "verify --tier shared", "1 checkpoint checked, 0 damaged")
	w.tells(3, "verify --tier s3", "the run has no tier s3")
	files, _ := filepath.Glob(filepath.Join(shared, "run-*", "*", "files", "extra-*"))
	for _, name := range files { // packs
		text := tool(t, "cat", name)
		write(t, name, text[:len(text)-1]+"?")
	}
	w.tells(1, "verify --tier shared", "checkpoint 3: ", "extra-", "damaged")
	for _, name := range files {
		text := tool(t, "cat", name)
		write(t, name, text[:len(text)-1]+"\x00") // as a pack ends
	}
	if err := os.Rename(shared, shared+"-away"); err != nil {
		t.Fatal(err)
	}
	write(t, shared, "no directory")
	w.goes(11)
	w.saves()
	w.saves()
	w.awaits("shared=" + shared + " fails")
	w.tells(0, "status", "it fails since", "not a directory")
	if err := os.Remove(shared); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(shared+"-away", shared); err != nil {
		t.Fatal(err)
	}
	w.awaits("works again")
	// Now its file system is not mounted.
	if err := os.Rename(shared, shared+"-away"); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(shared, 0o700); err != nil {
		t.Fatal(err)
	}
	w.saves()
	w.saves()
	w.awaits("its file system may not be mounted here")
	w.tells(0, "list", "what this run had there is missing")
	w.tells(3, "verify --tier shared", "what this run had there is missing")
	if left, _ := filepath.Glob(filepath.Join(shared, "*")); len(left) > 0 {
		t.Errorf("where nothing is mounted, it has made %v", left)
	}
	if err := errors.Join(os.Remove(shared), os.Rename(shared+"-away", shared)); err != nil {
		t.Fatal(err)
	}
	w.awaits("works again")
	w.lets(60)
	w.finishes()
	sameOutput(t, w.output(), want)
	if left, _ := filepath.Glob(filepath.Join(shared, "run-*", "*", "files", "*.h5")); len(left) > 0 {
		t.Errorf("the finished run has left on the shared tier: %v", left)
	}
}

// stops stops the run.
func (w *islands) stops() {
	w.runOf.t.Helper()
	w.stopsRun()
}

func (w *wanderer) stopsRun() {
	t := w.runOf.t
	t.Helper()
	if out, code := cairnTool(t, "stop", w.run()); code != 0 {
		t.Fatalf("cairn stop: exit status %d: %s\n%s", code, out, w.text())
	}
	w.ends()
}

// loses removes a host's disk. The host cannot be reached then.
func (w *islands) loses(host string) {
	t := w.runOf.t
	t.Helper()
	if err := os.RemoveAll(filepath.Join(w.disks, host)); err != nil {
		t.Fatal(err)
	}
}

// TestTiers_HostLost loses hosts with their disks while a run is stopped. The
// same command resumes it on the remaining host, and then on two blank ones.
func TestTiers_HostLost(t *testing.T) {
	t.Parallel()
	const n = 3
	want := undisturbed(t, n, program(t, "wander"), "-size", "2000")
	w, shared, tiers := onShared(t, n, 2)
	a, b := w.net.Hosts[0], w.net.Hosts[1]
	w.goes(9)
	w.stops() // this saves checkpoint 3, also there
	must(t, w.text(), "checkpoint 3 is on shared="+shared)
	// Now it does not have it, as if there had not been time.
	found, _ := filepath.Glob(filepath.Join(shared, "run-*", "*", "checkpoints", "00000003.json"))
	if len(found) != 1 || os.Remove(found[0]) != nil {
		t.Fatalf("manifests: %v", found)
	}
	w.loses(b)
	// Rank 2's file is on no host any more, and the commands read it elsewhere.
	if out, code := cairnTool(t, "inspect", "--rank", "2", w.run()+"@1"); code != 0 || !strings.Contains(out, "rank         2 of 3 ranks") {
		t.Errorf("cairn inspect of what only the shared tier has: exit status %d: %s", code, out)
	}
	if err := errors.Join(os.Rename(shared, shared+"-away"), os.Mkdir(shared, 0o700)); err != nil {
		t.Fatal(err)
	}
	w.lets(11)
	w.begins("3", "--tiers", tiers, "--retries", "0")
	if code := w.ends(); code == 0 || strings.Contains("\n"+w.text(), "\ncairn: started") {
		t.Errorf("with a shared tier that is not mounted: exit status %d:\n%s", code, w.text())
	}
	must(t, w.text(), "its file system may not be mounted here")
	if err := errors.Join(os.Remove(shared), os.Rename(shared+"-away", shared)); err != nil {
		t.Fatal(err)
	}
	w.begins("3", "--tiers", tiers)
	w.awaits("the run resumes from checkpoint 1")
	w.awaits("the files of ranks 0, 1 and 2 are brought") // hosts keep two
	w.awaits("restored checkpoint 1")
	w.reachesStep(11)
	w.stops()
	must(t, w.text(), "checkpoint 4 is on shared="+shared)
	w.loses(a)
	w.newDisk(t, a)
	w.newDisk(t, b)
	w.lets(60)
	w.begins("1 2", "--tiers", tiers)
	w.awaits("restored checkpoint 4")
	w.finishes()
	sameOutput(t, w.output(), want)
}

// TestTiers_RanksElsewhere resumes a run with its ranks on other hosts than
// before, and back again. No host is lost. The files that ranks write go where
// the ranks go.
func TestTiers_RanksElsewhere(t *testing.T) {
	t.Parallel()
	const n = 3
	for _, c := range []struct {
		tier string
		long bool
	}{{"partner", false}, {"shared", false}, {"rs=2+1:every=1", true}} {
		t.Run(c.tier, func(t *testing.T) {
			if c.long {
				onlyLong(t)
			}
			t.Parallel()
			w := wanderOn(t, 3, n, "-size", "2000")
			data := filepath.Join(w.local, "data")
			w.command = append(w.command, "-data", data)
			want := t.TempDir()
			for _, h := range w.net.Hosts {
				dir := filepath.Join(w.disks, h, "data")
				if err := os.Mkdir(dir, 0o700); err != nil {
					t.Fatal(err)
				}
				for r := range n {
					name := fmt.Sprintf("input-%d.txt", r)
					write(t, filepath.Join(dir, name), lines(100))
					write(t, filepath.Join(want, name), lines(100))
				}
			}
			tier := c.tier
			if tier == "shared" {
				tier += "=" + sharedDir(t) + ":every=1"
			}
			flags := []string{"--tiers", "local=" + filepath.Join(w.local, "me") + "," + tier}
			for i, slots := range []string{"3 1 1", "1 1 1", "0 2 1", "3 1 1"} {
				w.lets(5 + 2*i)
				w.begins(slots, flags...)
				if i > 0 {
					w.awaits("restored checkpoint")
				}
				w.reachesStep(5 + 2*i)
				if i < 3 {
					w.stops()
				}
			}
			w.lets(60)
			w.finishes()
			x := newRun(t, program(t, "wander"), "-size", "2000", "-data", want)
			x.start("-n", fmt.Sprint(n)).finishes()
			sameOutput(t, w.output(), x.output())
			for rank := range n {
				name := fmt.Sprintf("rank-%d.txt", rank)
				right := func(host string) bool {
					got, _ := os.ReadFile(filepath.Join(w.disks, host, "data", name))
					return string(got) == tool(t, "cat", filepath.Join(want, name))
				}
				if !slices.ContainsFunc(w.net.Hosts, right) {
					t.Errorf("no host has the right %s", name)
				}
			}
		})
	}
}

// lines returns lines with their numbers, as wander reads them.
func lines(n int) string {
	text := ""
	for i := range n {
		text += fmt.Sprintf("%04d\n", i)
	}
	return text
}

// TestTiers_HostVanishes loses a host with its disk and its processes while the
// run computes. The supervisor waits until no rank can run there any more, and
// resumes on the other host. Then the lost host comes back.
func TestTiers_HostVanishes(t *testing.T) {
	onlyLong(t)
	t.Parallel()
	for _, on := range []string{"shared", "partner", "rs"} {
		t.Run(on, func(t *testing.T) {
			t.Parallel()
			hostVanishes(t, on)
		})
	}
}

func hostVanishes(t *testing.T, on string) {
	const n = 3
	want := undisturbed(t, n, program(t, "wander"), "-size", "2000")
	w := wanderOn(t, 3, n, "-size", "2000")
	b, slots, restored := w.net.Hosts[0], "1 3 0", 2
	tiers := "local=" + filepath.Join(w.local, "me") + ","
	switch on {
	case "shared":
		tiers, restored = tiers+"shared="+sharedDir(t)+":every=2", 1
	case "partner":
		tiers += "partner"
	case "rs":
		tiers, slots = tiers+"rs=2+1:every=1", "1 1 2"
	}
	flags := []string{"--tiers", tiers, "--grace", "1s"}
	w.lets(5)
	w.begins(slots, flags...)
	w.reachesStep(5)
	w.saves()
	w.awaits("checkpoint 1 is on " + on + "=")
	w.goes(7)
	w.saves()
	if restored == 2 {
		w.awaits("checkpoint 2 is on " + on + "=")
	}
	w.goes(9)
	from, _, _ := w.said()
	helper, disk := w.helperOf(b), filepath.Join(w.disks, b)
	if err := os.Rename(disk, disk+"-away"); err != nil {
		t.Fatal(err)
	}
	syscall.Kill(helper, syscall.SIGKILL)
	for _, text := range []string{"may still run on " + b, fmt.Sprintf("restored checkpoint %d", restored)} {
		var ok bool
		if from, ok = w.seesWithin(2*patience, from, text); !ok { // it waits for the ranks that may still run
			t.Fatalf("it did not say %q:\n%s", text, w.text())
		}
	}
	w.goes(12)
	w.stops()
	if err := os.Rename(disk+"-away", disk); err != nil {
		t.Fatal(err)
	}
	w.lets(60)
	w.begins("2 1 1", flags...)
	w.finishes()
	sameOutput(t, w.output(), want)
}

// TestTiers_S3 loses the only host's disk and the run directory while a run is
// stopped. The same command resumes it from an object store, which has nothing
// but encrypted objects; --from goes back to an older checkpoint.
func TestTiers_S3(t *testing.T) {
	t.Parallel()
	const n = 2
	want := undisturbed(t, n, program(t, "wander"), "-size", "2000")
	server := s3test.New()
	t.Cleanup(server.Close)
	top := t.TempDir()
	scratch, key, limit := filepath.Join(top, "scratch"), filepath.Join(top, "key"), filepath.Join(top, "limit")
	if out, code := cairnTool(t, "key", key); code != 0 || !strings.Contains(out, "a new key, ") {
		t.Fatalf("cairn key: exit status %d: %s", code, out)
	}
	w := &wanderer{runOf: newRun(t, program(t, "wander"), "-size", "2000", "-limit", limit), ranks: n, limit: limit}
	tiers := fmt.Sprintf("local=%s,s3=s3://%s/sim:key=%s", scratch, s3test.Bucket, key)
	env := []string{"AWS_ACCESS_KEY_ID=" + s3test.AccessKey, "AWS_SECRET_ACCESS_KEY=" + s3test.SecretKey, "AWS_ENDPOINT_URL=" + server.URL, "AWS_REGION=us-east-1", "CAIRN_TIERS=" + tiers}
	w.lets(5)
	w.supervisor = w.startIn(env, "-n", fmt.Sprint(n), "--every", "1h")
	w.reachesStep(5)
	w.stopsRun()
	must(t, w.text(), "checkpoint 1 is on s3=s3://"+s3test.Bucket+"/sim")
	// Nothing is left but the object store.
	loses := func() {
		t.Helper()
		if err := errors.Join(os.RemoveAll(scratch), os.RemoveAll(w.run())); err != nil {
			t.Fatal(err)
		}
	}
	loses()
	w.lets(9)
	w.supervisor = w.startIn(env, "-n", fmt.Sprint(n), "--every", "1h")
	w.awaits("the run on s3=s3://" + s3test.Bucket + "/sim")
	w.awaits("restored checkpoint 1")
	w.reachesStep(9)
	w.stopsRun()
	must(t, w.text(), "checkpoint 2 is on s3=s3://"+s3test.Bucket+"/sim")
	rec, err := rundir.ReadRecord(w.run())
	if err != nil {
		t.Fatal(err)
	}
	id := rec.ID
	for _, dir := range []string{scratch, w.runOf.root} {
		err := filepath.WalkDir(dir, func(name string, e os.DirEntry, err error) error {
			if err == nil && e.Type().IsRegular() {
				var text []byte
				if text, err = os.ReadFile(name); strings.Contains(string(text), s3test.SecretKey) {
					t.Errorf("%s has the secret key", name)
				}
			}
			return err
		})
		if err != nil {
			t.Error(err)
		}
	}
	for _, name := range server.Keys() {
		if strings.Contains(string(server.Content(name)), s3test.SecretKey) {
			t.Errorf("%s has the secret key", name)
		}
	}
	loses()
	another := filepath.Join(top, "another")
	if _, err := seal.CreateKey(another); err != nil {
		t.Fatal(err)
	}
	w.supervisor = w.startIn(append(env[:len(env)-1:len(env)-1], "CAIRN_TIERS="+strings.Replace(tiers, key, another, 1)), "-n", fmt.Sprint(n), "--every", "1h")
	if w.ends() == 0 || !strings.Contains(w.text(), "encrypted with another key") || strings.Contains(w.text(), "cairn: started") {
		t.Errorf("with another key:\n%s", w.text())
	}
	loses()
	w.supervisor = w.startIn(env, "-n", "1", "--every", "1h")
	if w.ends() == 0 || !strings.Contains(w.text(), "has 2 ranks, not 1") {
		t.Errorf("with another number of ranks:\n%s", w.text())
	}
	loses()
	place := "s3://" + s3test.Bucket + "/sim"
	looks := func(code int, args []string, texts ...string) {
		t.Helper()
		out, got := cairnToolIn(t, env, args...)
		if got != code {
			t.Errorf("cairn %v: exit status %d, want %d: %s", args, got, code, out)
		}
		must(t, out, texts...)
	}
	looks(0, []string{"list", "--key", key, place}, "CHECKPOINT  RANKS", "\n2 ", "\n1 ", "2 checkpoints of run "+id, "cairn run -n 2 --from "+place+" PROGRAM")
	looks(0, []string{"inspect", "--key", key, "--rank", "1", place + "@1"}, "checkpoint   1, ", "rank         1 of 2 ranks", "state")
	looks(1, []string{"diff", "--key", key, place + "@1", place + "@2"}, "first   checkpoint 1", "second  checkpoint 2", "state")
	looks(0, []string{"verify", "--key", key, place}, place+": 2 checkpoints checked, 0 damaged")
	looks(0, []string{"export", "--key", key, place + "@2", filepath.Join(top, "out.h5")}, "checkpoint 2, rank 0 of 2 ranks")
	looks(3, []string{"list", place}, "encrypted, and no key is given")
	away := filepath.Join(top, "away", "sim")
	if out, code := cairnToolIn(t, env, "copy", "--key", key, place, away); code != 0 || !strings.Contains(out, "2 checkpoints of run "+id) {
		t.Errorf("cairn copy: exit status %d: %s", code, out)
	}
	if out, code := cairnToolIn(t, env, "copy", "--key", key, place+"@7", away+"2"); code != 3 || !strings.Contains(out, "no such checkpoint") {
		t.Errorf("cairn copy of what is not there: exit status %d: %s", code, out)
	}
	w.lets(60)
	w.supervisor = w.startIn(env, "-n", fmt.Sprint(n), "--every", "1h", "--from", place+"@1")
	w.awaits("restored checkpoint 1")
	w.finishes()
	sameOutput(t, w.output(), want)
	for _, text := range []string{tool(t, "cat", filepath.Join(w.run(), "run.json")), tool(t, "cat", filepath.Join(w.run(), "log"))} {
		if strings.Contains(text, s3test.SecretKey) {
			t.Errorf("the run directory has the secret key:\n%s", text)
		}
	}
	// The copy is a run of its own, and not encrypted: it leaves alone what it
	// finds of the other one.
	loses()
	w.supervisor = w.startIn(nil, "-n", fmt.Sprint(n), "--every", "1h", "--from", away)
	w.awaits("restored checkpoint 2")
	w.finishes()
	sameOutput(t, w.output(), want)
	if ids := strings.Fields(tool(t, "sh", "-c", "ls "+away+" | grep -E '^[0-9a-f]{32}$' || true")); slices.Contains(ids, id) {
		t.Errorf("the copy has the identity of the other run, %s", id)
	}
}

// TestTiers_TwoRunsAtOnePlace begins two runs at one place of an object store:
// they do not know of each other. The second one has the place, and finishes;
// the first one stops when it comes with a checkpoint. Its own is not lost: it
// continues when the place is free.
func TestTiers_TwoRunsAtOnePlace(t *testing.T) {
	t.Parallel()
	const n = 2
	want := undisturbed(t, n, program(t, "wander"), "-size", "2000")
	server := s3test.New()
	t.Cleanup(server.Close)
	both := make([]*wanderer, 2)
	for i := range both {
		top := t.TempDir()
		limit := filepath.Join(top, "limit")
		w := &wanderer{runOf: newRun(t, program(t, "wander"), "-size", "2000", "-limit", limit), ranks: n, limit: limit}
		env := []string{"AWS_ACCESS_KEY_ID=" + s3test.AccessKey, "AWS_SECRET_ACCESS_KEY=" + s3test.SecretKey, "AWS_ENDPOINT_URL=" + server.URL, "AWS_REGION=us-east-1",
			"CAIRN_TIERS=local=" + filepath.Join(top, "scratch") + ",s3=s3://" + s3test.Bucket + "/sim:every=1"}
		w.lets(5)
		begin := func() { w.supervisor = w.startIn(env, "-n", fmt.Sprint(n), "--every", "1h") }
		if begin(); i == 0 {
			defer func() {
				w.lets(60)
				begin()
				w.awaits("restored checkpoint 1")
				w.finishes()
				sameOutput(t, w.output(), want)
			}()
		}
		w.reachesStep(5)
		both[i] = w
	}
	first, second := both[0], both[1]
	if out, code := cairnTool(t, "checkpoint", second.run()); code != 0 {
		t.Fatalf("cairn checkpoint: exit status %d: %s", code, out)
	}
	second.awaits("checkpoint 1 is on s3=")
	cairnTool(t, "checkpoint", first.run())
	if code := first.ends(); code == 0 {
		t.Errorf("the first run: exit status %d:\n%s", code, first.text())
	}
	must(t, first.text(), "checkpoint 1 committed", "another run was begun at the place of this one")
	second.lets(60)
	second.finishes()
	sameOutput(t, second.output(), want)
}

// TestTiers_CopiesOnOtherHosts keeps copies, or shards, of each host's
// checkpoints on other hosts. A host is lost with its disk while the run is
// stopped, and the same command resumes it on the others.
func TestTiers_CopiesOnOtherHosts(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		kind          string
		tier, name    string
		hosts         int
		before, after string // slots
	}{
		{"partner", "partner", "partner=1", 2, "2 1", "3"},
		{"rs", "rs=2+1:every=1", "rs=2+1", 3, "1 1 1", "2 0 1"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			const n = 3
			want := undisturbed(t, n, program(t, "wander"), "-size", "2000")
			w := wanderOn(t, c.hosts, n, "-size", "2000")
			b := w.net.Hosts[1]
			flags := []string{"--tiers", "local=" + filepath.Join(w.local, "me") + "," + c.tier}
			if c.kind == "partner" { // as --local alone means
				flags, w.usual = nil, true
			}
			w.lets(5)
			w.begins(c.before, flags...)
			w.reachesStep(5)
			for i := range 3 {
				w.saves()
				w.awaits(fmt.Sprintf("checkpoint %d is on %s", i+1, c.name))
				w.goes(7 + i)
			}
			w.tells(0, "status", "tier        "+c.name+": checkpoint 3")
			w.stops()
			must(t, w.text(), "checkpoint 4 is on "+c.name)
			w.tells(0, "list", "local, "+c.name, fmt.Sprintf("any 1 of %d hosts", c.hosts))
			w.tells(0, "verify --tier "+c.kind, c.name+": ", "0 damaged")
			w.loses(b)
			w.tells(0, "list", "no loss")
			w.lets(60)
			w.begins(c.after, flags...)
			w.awaits("restored checkpoint 4")
			w.finishes()
			sameOutput(t, w.output(), want)
		})
	}
}
