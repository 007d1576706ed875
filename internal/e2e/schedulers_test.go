//go:build linux

package e2e

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"
)

// example returns a file of examples/schedulers.
func example(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("..", "..", "examples", "schedulers", name))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// setting returns what a pattern with one group finds in an example, which must
// have it once.
func setting(t *testing.T, text, pattern string) string {
	t.Helper()
	found := regexp.MustCompile("(?m)"+pattern).FindAllStringSubmatch(text, -1)
	if len(found) != 1 {
		t.Fatalf("%q is %d times in the example", pattern, len(found))
	}
	return found[0][1]
}

// job is a command of an example that a scheduler starts, stops and starts
// again, with the traveller in place of the user's program.
type job struct {
	*runOf
	argv, env []string
}

// start starts the command as the first process of a container, if this process
// may make one.
func (j *job) start() *supervisor {
	j.t.Helper()
	argv := j.argv
	if os.Getuid() == 0 {
		argv = append([]string{"unshare", "--pid", "--fork", "--kill-child", "--mount-proc"}, argv...)
	}
	return begin(j.t, j.run(), j.env, argv...)
}

// first returns the number of the first process of the container.
func (j *job) first(s *supervisor) int {
	j.t.Helper()
	if os.Getuid() != 0 {
		return s.cmd.Process.Pid
	}
	text, err := os.ReadFile("/proc/" + strconv.Itoa(s.cmd.Process.Pid) + "/task/" + strconv.Itoa(s.cmd.Process.Pid) + "/children")
	if err != nil {
		j.t.Fatal(err)
	}
	pid, _ := strconv.Atoi(strings.TrimSpace(string(text)))
	if pid == 0 {
		j.t.Fatalf("there is no process in the container:\n%s", s.text())
	}
	return pid
}

// saves waits until the ranks run, and takes a checkpoint.
func (j *job) saves(s *supervisor) {
	j.t.Helper()
	s.awaits("started")
	s.reaches(1)
	if out, code := cairnTool(j.t, "checkpoint", j.run()); code != 0 {
		j.t.Fatalf("cairn checkpoint: status %d: %s\n%s", code, out, s.text())
	}
}

// restores waits until a start has restored a checkpoint, which must be no
// older than the one given.
func (j *job) restores(s *supervisor, least int) {
	j.t.Helper()
	s.awaits("restored checkpoint")
	if index, _ := strconv.Atoi(setting(j.t, s.text(), `restored checkpoint (\d+)`)); index < least {
		j.t.Fatalf("it resumed from checkpoint %d, and %d was committed:\n%s", index, least, s.text())
	}
}

// stopped waits for the end of a start that was stopped after saving.
func (j *job) stopped(s *supervisor) {
	j.t.Helper()
	if code := s.ends(); code != exitStopped {
		j.t.Fatalf("exit status %d after SIGTERM:\n%s", code, s.text())
	}
}

// newJob returns a job with the command of an example. In it, dir is the
// directory that outlives a start, and sim is the program.
func newJob(t *testing.T, argv []string, dir, sim string, env ...string) *job {
	t.Helper()
	j := &job{runOf: newRun(t, program(t, "traveller"))}
	bin := t.TempDir()
	if err := os.Symlink(build(t, "./cmd/cairn", runtime.GOARCH), filepath.Join(bin, "cairn")); err != nil {
		t.Fatal(err)
	}
	for _, a := range argv {
		switch {
		case a == sim:
			a = j.command[0]
		case strings.HasPrefix(a, dir+"/"):
			a = strings.Replace(strings.Replace(a, dir, j.root, 1), "sim.cairn", "run", 1)
			a = strings.Replace(a, "result.txt", "out.txt", 1)
		}
		j.argv = append(j.argv, a)
	}
	j.argv = append(j.argv, "-dir", j.root)
	j.argv[0] = filepath.Join(bin, filepath.Base(j.argv[0]))
	j.env = append(env, "PATH="+bin+":"+os.Getenv("PATH"))
	t.Cleanup(func() {
		if text, err := os.ReadFile(filepath.Join(j.run(), "log")); t.Failed() && err == nil {
			t.Logf("the run's log:\n%s", text)
		}
	})
	if err := os.Mkdir(filepath.Join(j.root, "files"), 0o700); err != nil {
		t.Fatal(err)
	}
	return j
}

// opens lets the program finish.
func (j *job) opens() {
	j.t.Helper()
	if err := os.WriteFile(filepath.Join(j.root, "gate"), nil, 0o600); err != nil {
		j.t.Fatal(err)
	}
}

// travelled returns the output of the traveller on n ranks, undisturbed.
func travelled(t *testing.T, n string) string {
	t.Helper()
	r := newRun(t, program(t, "traveller"))
	r.command = append(r.command, "-dir", r.root)
	for _, name := range []string{"gate", "files"} {
		if err := os.Mkdir(filepath.Join(r.root, name), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	r.start("-n", n, "--every", "1h").finishes()
	return r.output()
}

// TestKubernetes_Contract does to the command of the example what Kubernetes
// does to pods of a Job: SIGTERM, the preStop hook, SIGKILL of the container, a
// pod that starts while the last one still runs, and one after the end. Each
// pod has the same command, and nothing but the volume remains of the last.
func TestKubernetes_Contract(t *testing.T) {
	t.Parallel()
	text := example(t, "kubernetes.yaml")
	var commands [][]string
	for _, m := range regexp.MustCompile(`(?m)^ *command: (\[.*\])$`).FindAllStringSubmatch(text, -1) {
		var argv []string
		if err := json.Unmarshal([]byte(m[1]), &argv); err != nil {
			t.Fatalf("%s: %v", m[1], err)
		}
		commands = append(commands, argv)
	}
	if len(commands) != 2 {
		t.Fatalf("%d commands in the example", len(commands))
	}
	grace := setting(t, text, `^ *terminationGracePeriodSeconds: (\d+)$`)
	if g := setting(t, text, `name: CAIRN_GRACE\n *value: "(\d+)"$`); g != grace {
		t.Errorf("CAIRN_GRACE is %s, terminationGracePeriodSeconds %s", g, grace)
	}
	if ignored := setting(t, text, `action: Ignore\n *onExitCodes:\n *operator: In\n *values: (.*)$`); ignored != "[74, 75]" {
		t.Errorf("the exit codes %s are no failure", ignored)
	}
	dir, sim := setting(t, text, `mountPath: (.*)$`), commands[0][len(commands[0])-1]
	j := newJob(t, commands[0], dir, sim, "KUBERNETES_SERVICE_HOST=10.0.0.1", "CAIRN_GRACE="+grace, "CAIRN_JOB=5b1f")
	want := travelled(t, "4")

	s := j.start()
	j.saves(s)
	for range 3 { // more than one does no harm
		syscall.Kill(j.first(s), syscall.SIGTERM)
		s.awaits("interrupted: ranks are to save and stop, within 110 s (CAIRN_GRACE)")
	}
	j.stopped(s)

	s = j.start()
	s.awaits("restored checkpoint 2")
	s.reaches(1)
	hook := commands[1]
	if out, code := cairnTool(t, strings.Replace(hook[1], dir, "", 1), strings.Replace(strings.Replace(hook[2], dir, j.root, 1), "sim.cairn", "run", 1)); code != 0 {
		t.Fatalf("preStop: status %d: %s\n%s", code, out, s.text())
	}
	j.stopped(s)

	s = j.start()
	s.awaits("restored checkpoint 3")
	j.saves(s)
	s.cmd.Process.Kill() // and with it the container, a moment later
	s.ends()

	s = j.start()
	j.restores(s, 4)
	next := j.start()
	next.awaits("waiting: an earlier start of this job still runs")
	s.reaches(1)
	syscall.Kill(j.first(s), syscall.SIGTERM)
	j.stopped(s)
	j.restores(next, 5)
	j.opens()
	next.finishes()
	sameOutput(t, j.output(), want)

	last := j.start()
	last.finishes()
	must(t, last.text(), "the run has finished in an earlier start of this job (5b1f")
	if strings.Contains(last.text(), "started: ") || strings.Contains(last.text(), "started again") {
		t.Errorf("it was started again:\n%s", last.text())
	}
	sameOutput(t, j.output(), want)
}

// TestSystemd_Unit does the same with the example of a service, as systemd
// does: stop, start, a crash of the service, and a start after the end.
func TestSystemd_Unit(t *testing.T) {
	onlyLong(t)
	t.Parallel()
	text := example(t, "sim.service")
	for pattern, want := range map[string]string{
		`^SuccessExitStatus=(.*)$`: "75", `^RestartPreventExitStatus=(.*)$`: "2 3", `^Restart=(.*)$`: "on-failure", `^KillMode=(.*)$`: "mixed",
	} {
		if got := setting(t, text, pattern); got != want {
			t.Errorf("%s is %s", pattern, got)
		}
	}
	dir := setting(t, text, `^WorkingDirectory=(.*)$`)
	argv := strings.Fields(strings.ReplaceAll(setting(t, text, `^ExecStart=(.*)$`), "result.txt", dir+"/result.txt"))
	argv = append(argv[:len(argv)-1], "--run", dir+"/sim.cairn", argv[len(argv)-1])
	j := newJob(t, argv, dir, "./sim", setting(t, text, `^Environment=(.*)$`))
	if path, err := exec.LookPath("systemd-analyze"); err == nil {
		file := filepath.Join(j.root, "sim.service")
		if err := os.WriteFile(file, []byte(strings.ReplaceAll(text, "/usr/local/bin/cairn", j.argv[0])), 0o600); err != nil {
			t.Fatal(err)
		}
		if out, err := exec.Command(path, "verify", file).CombinedOutput(); err != nil || len(out) > 0 {
			t.Errorf("systemd-analyze verify: %v: %s", err, out)
		}
	}
	s := j.start()
	j.saves(s)
	syscall.Kill(j.first(s), syscall.SIGTERM)
	j.stopped(s)
	s = j.start()
	s.awaits("restored checkpoint 2")
	j.saves(s)
	s.cmd.Process.Kill()
	s.ends()
	s = j.start()
	j.restores(s, 3)
	j.opens()
	s.finishes()
	sameOutput(t, j.output(), travelled(t, "4"))
	s = j.start()
	s.finishes()
	must(t, s.text(), "the run has finished in an earlier start of this job (sim-1")
}
