//go:build linux

package e2e

import (
	"os"
	"syscall"
	"testing"
)

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
