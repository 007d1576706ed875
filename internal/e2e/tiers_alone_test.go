//go:build linux

package e2e

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
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
	"github.com/cairnrun/cairn/internal/tier/s3/s3test"
)

// alone is a program that names tiers by itself, and is started without 'cairn
// run'.
type alone struct {
	t     *testing.T
	top   string // its run directory and its results are here, and the shared directory
	tiers string
	env   []string
	args  []string
}

// aloneOn returns a program that keeps its checkpoints on a shared directory
// and an object store.
func aloneOn(t *testing.T, format string, args ...string) *alone {
	t.Helper()
	top, err := os.MkdirTemp("", "alone-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { // what was killed may have processes that still write
		for until := time.Now().Add(patience); os.RemoveAll(top) != nil && time.Now().Before(until); {
			time.Sleep(10 * time.Millisecond)
		}
	})
	a := &alone{t: t, top: top, args: args}
	if err := os.Mkdir(a.file("gpfs"), 0o700); err != nil {
		t.Fatal(err)
	}
	a.tiers = strings.NewReplacer("SHARED", "shared="+a.file("gpfs"), "S3", "s3=s3://"+s3test.Bucket+"/sim").Replace(format)
	a.env = []string{"CAIRN_OUTSIDE_FILES=1", "CAIRN_HELPER=" + build(t, "./cmd/cairn", runtime.GOARCH)}
	if strings.Contains(format, "S3") {
		server := s3test.New()
		t.Cleanup(server.Close)
		a.env = append(a.env, s3Access(server)...)
	}
	return a
}

// s3Access returns the variables with which programs reach an object store.
func s3Access(s *s3test.Server) []string {
	return []string{"AWS_ACCESS_KEY_ID=" + s3test.AccessKey, "AWS_SECRET_ACCESS_KEY=" + s3test.SecretKey, "AWS_ENDPOINT_URL=" + s.URL, "AWS_REGION=us-east-1"}
}

func (a *alone) file(name string) string { return filepath.Join(a.top, name) }

// command returns the command that starts the program.
func (a *alone) command() []string {
	return append(append([]string{"env"}, a.env...), append([]string{survivor(a.t), "-dir", a.file("sim.cairn"), "-out", a.file("out"), "-tiers", a.tiers}, a.args...)...)
}

// starts starts the program, which does what the test says.
func (a *alone) starts(step int) *driven {
	a.t.Helper()
	d := drive(a.t, a.command(), "-drive")
	if want := fmt.Sprintf("ready step=%d resumed=%t", step, step > 0); d.ready != want {
		a.t.Fatalf("%q, not %q: %s", d.ready, want, d.stderr.String())
	}
	return d
}

// stopped lets a program that is to stop reach points until it does. It returns
// the step at which it has.
func (a *alone) stopped(d *driven, step int) int {
	a.t.Helper()
	for ok := true; ok && step < 1e5; {
		if _, ok = d.try("run 1"); ok {
			step++
		}
	}
	if d.cmd.Wait(); d.cmd.ProcessState.ExitCode() != exitStopped {
		a.t.Errorf("%v: %s", d.cmd.ProcessState, d.stderr.String())
	}
	return step
}

// refuses starts the program, which is to refuse and to say why.
func (a *alone) refuses(why ...string) {
	a.t.Helper()
	argv := append(a.command(), "-steps", "3")
	out, err := exec.Command(argv[0], argv[1:]...).CombinedOutput()
	if err == nil {
		a.t.Errorf("it ran:\n%s", out)
	}
	must(a.t, string(out), why...)
}

// loses removes what is on the host: the run directory, the checkpoints in it,
// and what the program has written.
func (a *alone) loses() {
	a.t.Helper()
	for until := time.Now().Add(patience); ; time.Sleep(5 * time.Millisecond) { // a tier helper without a program may just begin to end
		err := errors.Join(os.RemoveAll(a.file("sim.cairn")), os.RemoveAll(a.file("out")))
		if err == nil {
			return
		}
		if time.Now().After(until) {
			a.t.Fatal(err)
		}
	}
}

// awaits waits until the log of the run has a text.
func (a *alone) awaits(text string) {
	a.t.Helper()
	until := time.Now().Add(patience)
	for {
		log, _ := os.ReadFile(filepath.Join(a.file("sim.cairn"), "log"))
		switch {
		case strings.Contains(string(log), text):
			return
		case time.Now().After(until):
			a.t.Fatalf("the log does not say %q:\n%s", text, log)
		}
		time.Sleep(5 * time.Millisecond) // no event tells of a line in a file
	}
}

// released waits until nothing is left of a program that was killed.
func (a *alone) released() {
	a.t.Helper()
	for until := time.Now().Add(patience); ; time.Sleep(5 * time.Millisecond) {
		lock, _, err := rundir.TryLock(filepath.Join(a.file("sim.cairn"), "lock"))
		if err == nil {
			lock.Close()
			return
		}
		if errors.Is(err, fs.ErrNotExist) { // it was killed before there was a run
			return
		}
		if time.Now().After(until) {
			log, _ := os.ReadFile(filepath.Join(a.file("sim.cairn"), "log"))
			a.t.Fatalf("%v:\n%s", err, log)
		}
	}
}

// TestTiersAlone_HostLost kills a program that names tiers by itself, and loses
// everything that it has on its host. It resumes from the tiers, and its
// results are those of an uninterrupted run.
func TestTiersAlone_HostLost(t *testing.T) {
	t.Parallel()
	for name, tiers := range map[string]string{"shared": "SHARED:every=2", "s3": "S3:every=1", "both": "SHARED:every=1, S3:every=4,keep=1"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			a := aloneOn(t, tiers)
			d := a.starts(0)
			d.do("run 5", "save")
			a.awaits("checkpoint 1 is on ")
			d.do("run 2")
			d.kill()
			d = a.starts(5) // the host has it
			d.do("run 3", "save")
			d.cmd.Process.Signal(syscall.SIGTERM)
			step := a.stopped(d, 8)
			log := tool(t, "cat", filepath.Join(a.file("sim.cairn"), "log"))
			for _, tier := range strings.Fields(tiers) { // it has waited for that
				kind, _, _ := strings.Cut(tier, ":")
				kind = strings.ToLower(kind)
				must(t, log, "checkpoint 3 is on "+kind+"=")
			}
			a.loses()
			d = a.starts(step)
			d.do("run 7", "done")
			if err := d.cmd.Wait(); err != nil {
				t.Fatalf("%v: %s", err, d.stderr.String())
			}
			compare(t, a.file("out"), reference(t, "-steps", fmt.Sprint(step+7)))
			if left, _ := filepath.Glob(filepath.Join(a.file("gpfs"), "sim-*", "*", "files", "*.h5")); len(left) > 0 {
				t.Errorf("the finished run has left on the shared tier: %v", left)
			}
			a.refuses("the run has finished")
			left := filesIn(t, a.file("out"))
			a.loses()
			a.refuses("the run has finished")
			delete(left, "result.txt") // the program has written it without Cairn
			if got := filesIn(t, a.file("out")); len(left) == 0 || !maps.Equal(got, left) {
				t.Errorf("the files of the finished run: %v, not %v", slices.Sorted(maps.Keys(got)), slices.Sorted(maps.Keys(left)))
			}
		})
	}
}

// filesIn returns the content of the files in a directory, by name.
func filesIn(t *testing.T, dir string) map[string]string {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	out := make(map[string]string)
	for _, e := range entries {
		out[e.Name()] = tool(t, "cat", filepath.Join(dir, e.Name()))
	}
	return out
}

// TestTiersAlone_Retention shows which checkpoints a tier keeps, and that
// commands know the run.
func TestTiersAlone_Retention(t *testing.T) {
	onlyLong(t)
	t.Parallel()
	a := aloneOn(t, "SHARED:every=2,keep=2")
	d := a.starts(0)
	for i := 1; i <= 7; i++ {
		d.do("run 1", "save")
		if i%2 == 1 {
			a.awaits(fmt.Sprintf("checkpoint %d is on shared=", i))
		}
	}
	out, _ := cairnTool(t, "status", a.file("sim.cairn"))
	must(t, out, "tier        shared="+a.file("gpfs")+": checkpoint 7", "running")
	out, _ = cairnTool(t, "migrate", "--rank", "0", "--to", "elsewhere", a.file("sim.cairn"))
	must(t, out, "has not started the program")
	asked := make(chan string)
	go func() {
		out, _ := cairnTool(t, "stop", a.file("sim.cairn"))
		asked <- out
	}()
	a.awaits("cairn stop: ranks are to save and stop")
	a.stopped(d, 7)
	must(t, <-asked, "stopped")
	found, _ := filepath.Glob(filepath.Join(a.file("gpfs"), "sim-*", "*", "checkpoints", "*.json"))
	if len(found) != 2 || filepath.Base(found[0]) != "00000007.json" || filepath.Base(found[1]) != "00000008.json" {
		t.Errorf("on the shared tier are %v", found)
	}
	out, _ = cairnTool(t, "list", a.file("sim.cairn"))
	must(t, out, "local, shared="+a.file("gpfs"))
	out, code := cairnTool(t, "verify", "--tier", "shared", a.file("sim.cairn"))
	if must(t, out, "2 checkpoints checked, 0 damaged"); code != 0 {
		t.Errorf("cairn verify: exit status %d", code)
	}
}

// TestTiersAlone_TierFails has a tier that fails: the program continues, and
// its log says so. At its end it waits for the tier as long as it was told.
func TestTiersAlone_TierFails(t *testing.T) {
	t.Parallel()
	a := aloneOn(t, "SHARED:every=1")
	a.env = append(a.env, "CAIRN_GRACE=2s")
	d := a.starts(0)
	d.do("run 1", "save")
	a.awaits("checkpoint 1 is on shared=")
	shared := a.file("gpfs")
	if err := os.Rename(shared, shared+"-away"); err != nil {
		t.Fatal(err)
	}
	write(t, shared, "no directory")
	d.do("run 1", "save")
	a.awaits("shared=" + shared + " fails")
	d.do("run 1", "save", "finish")
	if err := d.cmd.Wait(); err != nil {
		t.Fatalf("%v: %s", err, d.stderr.String())
	}
	must(t, d.stderr.String(), "WARN", "tier shared="+shared+" fails: ", "not a directory", "does not have checkpoint 3")
	a.starts(3).finish() // the host has it
}

// TestTiersAlone_Damaged damages what the host has. The program gets it from
// the tier, or resumes from an older checkpoint.
func TestTiersAlone_Damaged(t *testing.T) {
	t.Parallel()
	a := aloneOn(t, "SHARED:every=2")
	d := a.starts(0)
	d.do("run 3", "save")
	a.awaits("checkpoint 1 is on shared=")
	d.do("run 2", "save")
	d.kill()
	a.released()
	a.damage("00000002")
	a.removeFromTier("00000002")
	d = a.starts(3)
	must(t, d.stderr.String(), "WARN", "checkpoint 2 cannot be loaded")
	d.do("run 1", "save", "finish")
	d.cmd.Wait()
	a.damage("00000003")
	a.starts(4).finish()
}

// damage changes a file of the host's checkpoint directory in its middle.
func (a *alone) damage(index string) {
	a.t.Helper()
	found, _ := filepath.Glob(filepath.Join(a.file("sim.cairn"), "local", "*", "ckpt", "ckpt-"+index, "rank-0000.h5"))
	if len(found) != 1 {
		a.t.Fatalf("checkpoint %s: %v", index, found)
	}
	text := []byte(tool(a.t, "cat", found[0]))
	for i := len(text) / 3; i < len(text)*2/3; i++ {
		text[i] ^= 0x55
	}
	write(a.t, found[0], string(text))
}

// removeFromTier removes the manifest of a checkpoint.
func (a *alone) removeFromTier(index string) {
	found, _ := filepath.Glob(filepath.Join(a.file("gpfs"), "sim-*", "*", "checkpoints", index+".json"))
	for _, name := range found {
		os.Remove(name)
	}
}

// TestTiersAlone_Refused has everything that needs 'cairn run', and mistakes.
func TestTiersAlone_Refused(t *testing.T) {
	t.Parallel()
	a := aloneOn(t, "SHARED:every=1")
	good := a.tiers
	a.tiers = "local=" + a.file("scratch") + ", partner"
	a.refuses("partner keeps copies on other hosts", "cairn run --hosts")
	a.tiers = "local=" + a.file("scratch") + ", rs=2+1"
	a.refuses("rs keeps copies on other hosts", "cairn run --hosts")
	a.tiers = "shred=/x"
	a.refuses("shred")
	a.tiers = good
	a.env = append(a.env, "OMPI_COMM_WORLD_RANK=0", "OMPI_COMM_WORLD_SIZE=2")
	a.refuses("several ranks", "cairn run -n N --tiers")
	a.env = []string{"CAIRN_HELPER=/nowhere/cairn"}
	a.refuses("tiers need the cairn command", "CAIRN_HELPER")
	a.env = []string{"CAIRN_HELPER=" + build(t, "./cmd/cairn", runtime.GOARCH)}
	d := a.starts(0)
	a.refuses("holds it") // the same program, which runs
	d.do("run 1", "save", "finish")
	d.cmd.Wait()
	out, err := exec.Command(survivor(t), "-dir", a.file("sim.cairn"), "-out", a.file("out"), "-steps", "3").CombinedOutput()
	if err == nil {
		t.Errorf("without its tiers it starts from the beginning:\n%s", out)
	}
	must(t, string(out), "keeps its checkpoints on tiers", "set Options.Tiers")
	plain := t.TempDir()
	tool(t, survivor(t), "-dir", plain, "-out", a.file("out"), "-steps", "3", "-every-points", "1")
	out, err = exec.Command("env", append(a.env, survivor(t), "-dir", plain, "-out", a.file("out"), "-tiers", good)...).CombinedOutput()
	if err == nil {
		t.Errorf("with checkpoints of a run without tiers it starts from the beginning:\n%s", out)
	}
	must(t, string(out), "checkpoints of a run without tiers", "unset Options.Tiers")
	// Under 'cairn run' its tiers are those of the command.
	write(t, a.file("none"), "")
	o, code := cairnToolIn(t, nil, "run", "--run", a.file("other.cairn"), survivor(t), "-dir", a.file("dir"), "-out", a.file("out2"), "-tiers", good, "-steps", "3")
	if code == 0 {
		t.Errorf("'cairn run' ignores the program's tiers: %s", o)
	}
	must(t, o, "give 'cairn run' the same, --tiers ")
}

// TestTiersAlone_KilledWaiting kills a program while its tier helper waits for
// the end of what may still run of an earlier start: the helper ends, too.
func TestTiersAlone_KilledWaiting(t *testing.T) {
	onlyLong(t)
	t.Parallel()
	a := aloneOn(t, "SHARED:every=1")
	d := a.starts(0)
	d.do("run 5", "save")
	a.awaits("checkpoint 1 is on ")
	rec, err := rundir.ReadRecord(a.file("sim.cairn"))
	if err != nil {
		t.Fatal(err)
	}
	syscall.Kill(rec.Pid, syscall.SIGKILL) // it cannot tell that the program has ended
	d.kill()
	a.released()
	a.loses()
	cmd := exec.Command(a.command()[0], a.command()[1:]...)
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	a.awaits("may still run on ")
	cmd.Process.Kill()
	cmd.Wait()
	a.released()
}

// TestTiersAlone_KilledAtRandom kills the program, or its tier helper, at
// random moments again and again, and sometimes loses what is on the host then.
func TestTiersAlone_KilledAtRandom(t *testing.T) {
	onlyLong(t)
	t.Parallel()
	steps := 400
	a := aloneOn(t, "SHARED:every=1, S3:every=3", "-dense", "2000", "-steps", fmt.Sprint(steps), "-every-points", "7")
	want := reference(t, a.args...)
	dice := rand.New(rand.NewPCG(uint64(time.Now().UnixNano()), 1))
	kills, lost, helpers, times := 0, 0, 0, 6
	if stressed() {
		times = 150
	}
	for span := 300 * time.Millisecond; ; {
		cmd := exec.Command(a.command()[0], a.command()[1:]...)
		var stderr strings.Builder
		cmd.Stderr = &stderr
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		ended := make(chan error, 1)
		go func() { ended <- cmd.Wait() }()
		var bell <-chan time.Time
		if kills < times {
			bell = time.After(time.Duration(dice.Int64N(int64(span))))
		} else {
			bell = time.After(patience * 3)
		}
		select {
		case err := <-ended:
			if err != nil && !strings.Contains(stderr.String(), "the run has finished") {
				t.Fatalf("%v: %s", err, stderr.String())
			}
			compare(t, a.file("out"), want)
			if kills < times { // again, from the beginning
				a.loses()
				os.RemoveAll(a.file("gpfs"))
				a = aloneOn(t, "SHARED:every=1, S3:every=3", a.args...)
				continue
			}
			t.Logf("%d kills; %d of them of the tier helper; the host was lost %d times", kills, helpers, lost)
			return
		case <-bell:
		}
		if kills >= times {
			t.Fatalf("it hangs: %s", stderr.String())
		}
		kills++
		if rec, err := rundir.ReadRecord(a.file("sim.cairn")); err == nil && rec != nil && dice.IntN(3) == 0 {
			if syscall.Kill(rec.Pid, syscall.SIGKILL) == nil {
				helpers++
				if <-ended == nil { // it had just finished its work
					compare(t, a.file("out"), want)
					a = aloneOn(t, "SHARED:every=1, S3:every=3", a.args...)
					continue
				}
			}
		}
		cmd.Process.Kill()
		select {
		case <-ended:
		default:
		}
		if dice.IntN(3) == 0 {
			a.released()
			log, _ := os.ReadFile(filepath.Join(a.file("sim.cairn"), "log"))
			if strings.Contains(string(log), " is on s3=") || strings.Contains(string(log), " is on shared=") || !strings.Contains(string(log), "started") {
				lost++
				a.loses()
			}
		}
	}
}
