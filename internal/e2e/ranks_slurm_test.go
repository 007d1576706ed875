//go:build linux

package e2e

import (
	"crypto/rand"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// slurm starts Slurm on this machine, with all its files in one directory and
// with ports on loopback. It returns the environment for srun.
func slurm(t *testing.T) []string {
	t.Helper()
	for _, name := range []string{"munged", "slurmctld", "slurmd", "srun"} {
		if _, err := exec.LookPath(name); err != nil {
			t.Skipf("%s is not installed (Debian: slurmctld slurmd slurm-client munge)", name)
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
	host, err := os.Hostname()
	if err != nil {
		t.Fatal(err)
	}
	key := make([]byte, 1024)
	rand.Read(key)
	if err := os.WriteFile(filepath.Join(dir, "key"), key, 0o600); err != nil {
		t.Fatal(err)
	}
	var ports []int
	for range 2 {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
		ports = append(ports, l.Addr().(*net.TCPAddr).Port)
		l.Close()
	}
	conf := strings.NewReplacer("DIR", dir, "HOST", host, "PORT1", fmt.Sprint(ports[0]), "PORT2", fmt.Sprint(ports[1])).Replace(`
ClusterName=cairn
SlurmctldHost=HOST(127.0.0.1)
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
AuthInfo=socket=DIR/munge
CredType=cred/munge
SlurmctldPort=PORT1
SlurmdPort=PORT2
ProctrackType=proctrack/pgid
TaskPlugin=task/none
MpiDefault=none
ReturnToService=2
SlurmctldPidFile=DIR/slurmctld.pid
SlurmdPidFile=DIR/slurmd.pid
SlurmdSpoolDir=DIR
StateSaveLocation=DIR
SlurmdParameters=config_overrides
NodeName=HOST NodeAddr=127.0.0.1 CPUs=8 State=UNKNOWN
PartitionName=p Nodes=ALL Default=YES State=UP OverSubscribe=FORCE:8
`)
	if err := os.WriteFile(filepath.Join(dir, "slurm.conf"), []byte(conf), 0o644); err != nil {
		t.Fatal(err)
	}
	env := []string{"SLURM_CONF=" + filepath.Join(dir, "slurm.conf")}
	var said locked
	daemon := func(name string, args ...string) {
		cmd := exec.Command(name, args...)
		cmd.Env = append(os.Environ(), env...)
		cmd.Stdout, cmd.Stderr = &said, &said
		cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGTERM}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			cmd.Process.Signal(syscall.SIGTERM)
			kill := time.AfterFunc(10*time.Second, func() { cmd.Process.Kill() })
			cmd.Wait()
			kill.Stop()
		})
	}
	file := func(name string) string { return filepath.Join(dir, name) }
	daemon("munged", "-F", "--force", "--socket="+file("munge"), "--key-file="+file("key"),
		"--log-file="+file("munge.log"), "--pid-file="+file("munge.pid"), "--seed-file="+file("seed"))
	for limit := time.Now().Add(patience); time.Now().Before(limit); time.Sleep(10 * time.Millisecond) {
		if _, err := os.Stat(file("munge")); err == nil {
			break
		}
	}
	daemon("slurmctld", "-D")
	daemon("slurmd", "-D")
	for limit := time.Now().Add(patience / 3); ; time.Sleep(50 * time.Millisecond) {
		cmd := exec.Command("sinfo", "-h", "-o", "%T")
		cmd.Env = append(os.Environ(), env...)
		out, err := cmd.CombinedOutput()
		if err == nil && strings.TrimSpace(string(out)) == "idle" {
			return env
		}
		if time.Now().After(limit) {
			t.Skipf("Slurm does not come up here: %v %s\n%s", err, out, said.String())
		}
	}
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

// TestRanks_Srun lets cairn run start its ranks by srun, moves one of them,
// which needs another srun, and kills one.
func TestRanks_Srun(t *testing.T) {
	t.Parallel()
	env := slurm(t)
	command := []string{program(t, "ring"), "-steps", "40000", "-report", "0"}
	want := undisturbed(t, 4, command...)
	r := newRun(t, command...)
	s := r.startIn(env, "-n", "4", "--launcher", "srun", "--every", "50ms")
	s.awaits("committed")
	host, err := os.Hostname()
	if err != nil {
		t.Fatal(err)
	}
	p := r.travels(4, s)
	p.moves("--rank", "1", "--to", host)
	p.moves("--rank", "1", "--to", host)
	st := s.state()
	if st == nil || len(st.Ranks) != 4 {
		t.Fatalf("no ranks: %v\n%s", st, s.text())
	}
	syscall.Kill(st.Ranks[2].Pid, syscall.SIGKILL)
	s.finishes()
	must(t, s.text(), "4 ranks by srun", "started again", "restored checkpoint")
	sameOutput(t, r.output(), want)
}
