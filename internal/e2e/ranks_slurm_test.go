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
	r := newTraveller(t)
	p := r.travels(4, r.startIn(env, "-n", "4", "--launcher", "srun", "--every", "50ms"))
	p.waits()
	p.s.awaits("committed")
	host, err := os.Hostname()
	if err != nil {
		t.Fatal(err)
	}
	p.moves("--rank", "1", "--to", host)
	p.moves("--rank", "1", "--to", host)
	st := p.s.state()
	if st == nil || len(st.Ranks) != 4 {
		t.Fatalf("no ranks: %v\n%s", st, p.s.text())
	}
	syscall.Kill(st.Ranks[2].Pid, syscall.SIGKILL)
	p.arrives()
	must(t, p.s.text(), "4 ranks by srun", "started again", "restored checkpoint")
}
