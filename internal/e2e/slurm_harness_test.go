//go:build linux

package e2e

import (
	"crypto/rand"
	"fmt"
	"maps"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/cairnrun/cairn/internal/interconnects"
)

// slurmFiles is a directory with the files of a Slurm that a test starts.
type slurmFiles struct {
	t    *testing.T
	dir  string
	said locked // by its daemons
}

// newSlurm makes the directory, and starts the daemon that authenticates
// messages. It skips the test if Slurm is not installed.
func newSlurm(t *testing.T) *slurmFiles {
	t.Helper()
	for _, name := range []string{"munged", "slurmctld", "slurmd", "srun"} {
		if _, err := exec.LookPath(name); err != nil {
			t.Skipf("%s is not installed; 'scripts/deps long' installs it (Debian: slurm-wlm munge)", name)
		}
	}
	if os.Getuid() != 0 {
		t.Skip("starting Slurm takes root")
	}
	dir, err := os.MkdirTemp("", "cairn-slurm-") // a short name, for a socket
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	os.Chmod(dir, 0o755) // munged requires it
	f := &slurmFiles{t: t, dir: dir}
	key := make([]byte, 1024)
	rand.Read(key)
	if err := os.WriteFile(f.file("key"), key, 0o600); err != nil {
		t.Fatal(err)
	}
	f.daemon(syscall.SIGTERM, "munged", "-F", "--force", "--socket="+f.file("munge"), "--key-file="+f.file("key"),
		"--log-file="+f.file("munge.log"), "--pid-file="+f.file("munge.pid"), "--seed-file="+f.file("seed"))
	for limit := time.Now().Add(patience); time.Now().Before(limit); time.Sleep(10 * time.Millisecond) {
		if _, err := os.Stat(f.file("munge")); err == nil {
			break
		}
	}
	return f
}

func (f *slurmFiles) file(name ...string) string {
	return filepath.Join(append([]string{f.dir}, name...)...)
}

func (f *slurmFiles) env() []string { return []string{"SLURM_CONF=" + f.file("slurm.conf")} }

// daemon starts a daemon, which a signal ends with the test.
func (f *slurmFiles) daemon(end syscall.Signal, argv ...string) *exec.Cmd {
	f.t.Helper()
	cmd := exec.Command(argv[0], argv[1:]...)
	cmd.Env = append(os.Environ(), f.env()...)
	cmd.Stdout, cmd.Stderr = &f.said, &f.said
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: end}
	if err := cmd.Start(); err != nil {
		f.t.Fatal(err)
	}
	f.t.Cleanup(func() {
		cmd.Process.Signal(end)
		kill := time.AfterFunc(10*time.Second, func() { cmd.Process.Kill() })
		cmd.Wait()
		kill.Stop()
	})
	return cmd
}

// configure writes slurm.conf.
func (f *slurmFiles) configure(settings map[string]string, lines ...string) {
	f.t.Helper()
	all := map[string]string{
		"ClusterName": "cairn", "SlurmUser": "root", "SlurmdUser": "root", "AuthType": "auth/munge", "AuthInfo": "socket=" + f.file("munge"), "CredType": "cred/munge",
		"ProctrackType": "proctrack/linuxproc", "TaskPlugin": "task/none", "MpiDefault": "none", "ReturnToService": "2", "SlurmdParameters": "config_overrides",
		"SlurmctldPidFile": f.file("slurmctld.pid"), "SlurmdPidFile": f.file("%n.pid"), "SlurmdSpoolDir": f.file("%n"), "StateSaveLocation": f.file("state"),
	}
	maps.Copy(all, settings)
	text := ""
	for _, name := range slices.Sorted(maps.Keys(all)) {
		text += name + "=" + all[name] + "\n"
	}
	if err := os.WriteFile(f.file("slurm.conf"), []byte(text+strings.Join(lines, "\n")+"\n"), 0o644); err != nil {
		f.t.Fatal(err)
	}
}

// idle waits until all nodes are.
func (f *slurmFiles) idle(prefix ...string) {
	f.t.Helper()
	argv := append(prefix, "sinfo", "-h", "-o", "%T")
	for limit := time.Now().Add(patience); ; time.Sleep(50 * time.Millisecond) {
		cmd := exec.Command(argv[0], argv[1:]...)
		cmd.Env = append(os.Environ(), f.env()...)
		out, err := cmd.CombinedOutput()
		if err == nil && strings.Trim(strings.ReplaceAll(string(out), "idle", ""), "\n") == "" && len(out) > 0 {
			return
		}
		if time.Now().After(limit) {
			f.t.Skipf("Slurm does not come up here: %v %s\n%s", err, out, f.said.String())
		}
	}
}

// slurm starts Slurm on this machine, with ports on loopback. It returns the
// environment for srun.
func slurm(t *testing.T) []string {
	t.Helper()
	f := newSlurm(t)
	host, err := os.Hostname()
	if err != nil {
		t.Fatal(err)
	}
	var ports []string
	for range 2 {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
		ports = append(ports, strconv.Itoa(l.Addr().(*net.TCPAddr).Port))
		l.Close()
	}
	f.configure(map[string]string{"ProctrackType": "proctrack/pgid", "SlurmctldHost": host + "(127.0.0.1)", "SlurmctldPort": ports[0], "SlurmdPort": ports[1]},
		"NodeName="+host+" NodeAddr=127.0.0.1 CPUs=8 State=UNKNOWN", "PartitionName=p Nodes=ALL Default=YES State=UP OverSubscribe=FORCE:8")
	f.daemon(syscall.SIGTERM, "slurmctld", "-D")
	f.daemon(syscall.SIGTERM, "slurmd", "-D")
	f.idle()
	return f.env()
}

// locked is a buffer for several writers.
type locked struct {
	mu  sync.Mutex
	buf strings.Builder
}

func (l *locked) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.Write(p)
}

func (l *locked) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.String()
}

// cluster is Slurm on several nodes. Each has its own network, processes, host
// name and temporary directory, and sees the cluster's directory. Node 0 is the
// controller; the others are n1, n2, …, with four processors each. The
// partition p takes jobs; those of the partition high preempt them.
type cluster struct {
	*slurmFiles
	net   *interconnects.Network
	nodes []*exec.Cmd
}

// newCluster starts a cluster. Settings for the partition p come after its
// name.
func newCluster(t *testing.T, nodes int, settings map[string]string, partition string) *cluster {
	t.Helper()
	need(t, "unshare", "nsenter")
	build(t, "./cmd/cairn", runtime.GOARCH) // the nodes see what is built by now
	program(t, "traveller")
	f := newSlurm(t)
	c := &cluster{slurmFiles: f, net: network(t, nodes+1), nodes: make([]*exec.Cmd, nodes+1)}
	all := map[string]string{
		"SlurmctldHost": "ctl(10.77.0.1)", "AuthInfo": "socket=" + f.file("munge") + ",cred_expire=5", "SlurmdTimeout": "5", "MessageTimeout": "5", "KillWait": "30",
		"SchedulerParameters": "batch_sched_delay=0,sched_min_interval=100000,sched_interval=2,requeue_delay=1", "SelectType": "select/cons_tres", "SelectTypeParameters": "CR_Core",
		"PreemptType": "preempt/partition_prio", "PreemptMode": "REQUEUE", "JobRequeue": "1",
	}
	maps.Copy(all, settings)
	var lines []string
	for i := range nodes {
		lines = append(lines, fmt.Sprintf("NodeName=n%d NodeAddr=10.77.0.%d CPUs=4 State=UNKNOWN", i+1, i+2))
	}
	f.configure(all, append(lines, "PartitionName=p Nodes=ALL Default=YES PriorityTier=1 "+partition, "PartitionName=high Nodes=ALL PriorityTier=10 PreemptMode=OFF")...)
	f.daemon(syscall.SIGTERM, append(c.in(0), "unshare", "--uts", "sh", "-c", "hostname ctl; exec slurmctld -D")...)
	for i := range nodes {
		c.startNode(i + 1)
	}
	f.idle(c.in(0)...)
	return c
}

// in returns the begin of a command in a node's network.
func (c *cluster) in(node int) []string {
	return []string{"nsenter", "--net=/run/netns/" + c.net.Hosts[node]}
}

// startNode starts a node. It has a temporary directory of its own, in which
// the cluster's and the programs' directories are visible.
func (c *cluster) startNode(i int) {
	c.t.Helper()
	const script = `set -e
hostname $1
mkdir -p $2/$1 $2/$1.tmp
mount -t tmpfs none /dev/shm
mount -t tmpfs none $2/$1.tmp
for dir in $2 $3; do
	mkdir $2/$1.tmp/${dir##*/}
	mount --bind $dir $2/$1.tmp/${dir##*/}
done
mount --move $2/$1.tmp ${2%/*}
cd /
slurmd -D -N $1
sleep 1000000`
	c.nodes[i] = c.daemon(syscall.SIGKILL, append(c.in(i), "unshare", "--uts", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc",
		"sh", "-c", script, "sh", fmt.Sprintf("n%d", i), c.dir, binaries.dir)...)
}

// killNode ends a node, as a power cut does. If silent is set, no other node
// gets a message of that.
func (c *cluster) killNode(i int, silent bool) {
	c.t.Helper()
	if silent {
		tool(c.t, "ip", "-n", c.net.Hosts[i], "link", "set", "eth0", "down")
	}
	c.nodes[i].Process.Kill()
	c.nodes[i].Process.Wait()
}

// do runs a command of Slurm and returns its output.
func (c *cluster) do(argv ...string) string {
	c.t.Helper()
	out, err := c.try(argv...)
	if err != nil {
		c.t.Fatalf("%s: %v\n%s", strings.Join(argv, " "), err, out)
	}
	return out
}

func (c *cluster) try(argv ...string) (string, error) {
	argv = append(c.in(0), argv...)
	cmd := exec.Command(argv[0], argv[1:]...)
	cmd.Env = append(os.Environ(), c.env()...)
	cmd.Env = append(cmd.Env, "PATH="+c.file("bin")+":"+os.Getenv("PATH"))
	out, err := cmd.CombinedOutput()
	return strings.TrimSpace(string(out)), err
}

// batch is a job that runs the example's script.
type batch struct {
	*runOf
	c  *cluster
	id string
}

// submit submits the script of the example, with options of sbatch.
func (c *cluster) submit(options ...string) *batch {
	c.t.Helper()
	root, err := os.MkdirTemp(c.dir, "job-")
	if err != nil {
		c.t.Fatal(err)
	}
	b := &batch{runOf: &runOf{t: c.t, root: root}, c: c}
	os.Mkdir(c.file("bin"), 0o755) // it may be there
	os.Symlink(build(c.t, "./cmd/cairn", runtime.GOARCH), c.file("bin", "cairn"))
	if err := os.Symlink(program(c.t, "traveller"), filepath.Join(root, "sim")); err != nil {
		c.t.Fatal(err)
	}
	if err := os.Mkdir(filepath.Join(root, "files"), 0o700); err != nil {
		c.t.Fatal(err)
	}
	text := example(c.t, "slurm.sh")
	for old, new := range map[string]string{"run -n 8 ": "run -n 4 ", "--every 10m": "--every 200ms"} {
		if strings.Count(text, old) != 1 {
			c.t.Fatalf("the example does not have %q once", old)
		}
		text = strings.Replace(text, old, new, 1)
	}
	script := filepath.Join(root, "slurm.sh")
	if err := os.WriteFile(script, []byte(text), 0o755); err != nil {
		c.t.Fatal(err)
	}
	b.t.Cleanup(func() {
		if b.t.Failed() {
			b.t.Logf("the job's output:\n%s\nthe run's log:\n%s", b.text("slurm.out"), b.text("sim.cairn/log"))
		}
	})
	b.id = c.do(append(append([]string{"sbatch", "--parsable", "-D", root, "-o", filepath.Join(root, "slurm.out")}, options...), script)...)
	return b
}

// text returns the content of a file of the job, empty if there is none.
func (b *batch) text(name string) string {
	text, _ := os.ReadFile(filepath.Join(b.root, name))
	return string(text)
}

// makes makes a file that tells the program something.
func (b *batch) makes(name string) {
	b.t.Helper()
	if err := os.WriteFile(filepath.Join(b.root, name), nil, 0o600); err != nil {
		b.t.Fatal(err)
	}
}

func (b *batch) removes(name string) {
	b.t.Helper()
	if err := os.Remove(filepath.Join(b.root, name)); err != nil {
		b.t.Fatal(err)
	}
}

// until waits for a condition.
func (b *batch) until(what string, cond func() bool) {
	b.t.Helper()
	for limit := time.Now().Add(4 * patience); !cond(); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(limit) {
			b.t.Fatalf("waited in vain: %s\n%s", what, b.c.do("scontrol", "show", "job", b.id))
		}
	}
}

// logs waits until the run's log has a text, from an offset on. It returns the
// offset behind it.
func (b *batch) logs(from int, text string) (after int) {
	b.t.Helper()
	b.until("for "+text, func() bool {
		log := b.text("sim.cairn/log")
		if i := strings.Index(log[min(from, len(log)):], text); i >= 0 {
			after = from + i + len(text)
			return true
		}
		return false
	})
	return after
}

// state returns the state of the job, empty if Slurm has forgotten it.
func (b *batch) state() string {
	text, err := b.c.try("scontrol", "show", "job", b.id)
	if err != nil {
		return ""
	}
	_, rest, _ := strings.Cut(text, "JobState=")
	state, _, _ := strings.Cut(rest, " ")
	return state
}

// becomes waits for a state of the job.
func (b *batch) becomes(state string) {
	b.t.Helper()
	b.until("for the state "+state, func() bool { return b.state() == state })
}

// finishes lets the program finish, waits for that, and compares the output
// with that of an undisturbed run.
func (b *batch) finishes(want string) {
	b.t.Helper()
	b.makes("gate")
	b.logs(0, "Z finished\n")
	b.until("for the end", func() bool { // Slurm may wait for a node that it does not know to be dead
		state := b.state()
		return state == "COMPLETED" || state == "COMPLETING" || state == "FAILED"
	})
	must(b.t, b.c.do("scontrol", "show", "job", b.id), "ExitCode=0:0")
	sameOutput(b.t, b.text("result.txt"), want)
}
