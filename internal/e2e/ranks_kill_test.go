//go:build linux

package e2e

import (
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/cairnrun/cairn/internal/interconnects"
)

// rankKills returns the total number of kills.
func rankKills() int {
	if os.Getenv("CAIRN_LONG") == "1" {
		return 1000
	}
	return 10 // one of each kind: the fault campaign kills ranks too
}

const verified = "Verification    =                     SUCCESSFUL"

// killed are the runs in which processes are killed: program, ranks and
// transports, with checkpoints so often that many kills happen during one.
var killed = []struct {
	name    string
	share   int // share of the kills, in hundredths
	n       int
	program string
	args    string
	flags   string
	slots   []int  // slots of hosts, if there are several
	ends    string // text in the output at a successful end
}{
	{"ring-shm-8", 14, 8, "ring", "-steps 12000 -bytes 8192 -report 0", "--transport shm --every 30ms", nil, "ring ok"},
	{"ring-tcp-4", 12, 4, "ring", "-steps 12000 -bytes 8192 -report 0", "--transport tcp --every 30ms", nil, "ring ok"},
	{"ring-reopen-4", 6, 4, "ring", "-steps 12000 -bytes 65536 -report 0", "--transport tcp-reopen --every 40ms", nil, "ring ok"},
	{"heat-shm-4", 14, 4, "heat", "-n 256 -steps 6000 -check 500", "--transport shm --every-points 120", nil, "heat ok"},
	{"heat-mixed-8", 12, 8, "heat", "-n 128 -steps 6000 -check 500", "--every 40ms", []int{3, 3, 2}, "heat ok"},
	{"cg-shm-4", 10, 4, "npb", "-kernel cg -class W", "--transport shm --every-points 1", nil, verified},
	{"mg-tcp-8", 8, 8, "npb", "-kernel mg -class W", "--transport tcp --every-points 1", nil, verified},
	{"ft-shm-8", 8, 8, "npb", "-kernel ft -class W", "--transport shm --every-points 1", nil, verified},
	{"is-mixed-4", 8, 4, "npb", "-kernel is -class W", "--every-points 1", []int{2, 2}, verified},
	{"ep-tcp-4", 8, 4, "npb", "-kernel ep -class S", "--transport tcp --every-points 1", nil, verified},
	{"sweep-shm-3", 8, 3, "sweep", "-steps 300 -size 50000", "--transport shm --every 50ms", nil, "sweep ok"}, // incremental checkpoints
}

// TestRanks_Killed kills ranks, sometimes a helper or the supervisor, at random
// moments of a run: while it computes, while a checkpoint is being taken, while
// it is being restarted. Every run must end with the result of an undisturbed
// one.
func TestRanks_Killed(t *testing.T) {
	two := make(chan struct{}, 2)
	for i, v := range killed {
		if i%6 != 4 && !stressed() {
			continue
		}
		t.Run(v.name, func(t *testing.T) {
			t.Parallel()
			two <- struct{}{}
			defer func() { <-two }()
			seed := uint64(time.Now().UnixNano())
			if s := os.Getenv("CAIRN_SEED"); s != "" {
				seed, _ = strconv.ParseUint(s, 10, 64)
			}
			t.Logf("CAIRN_SEED=%d", seed)
			command := append([]string{program(t, v.program)}, shorter(v.args)...)
			k := &hunter{t: t, n: v.n, command: command, dice: rand.New(rand.NewPCG(seed, uint64(i)))}
			k.flags = append(strings.Fields(v.flags), "-n", strconv.Itoa(v.n), "--grace", "5s")
			if len(v.slots) > 0 {
				k.flags = append(k.flags, "--rsh", interconnects.Shell, "--hosts", hosts(t, v.slots))
			}
			k.want = steady(undisturbed(t, v.n, command...))
			must(t, k.want, v.ends)
			k.most = max(1, rankKills()*v.share/100)
			for k.blows.all < k.most {
				k.hunt()
			}
			t.Logf("%d kills in %d runs: %s", k.blows.all, k.runs, k.blows)
		})
	}
}

// hosts returns hosts with these numbers of slots, for --hosts.
func hosts(t *testing.T, slots []int) string {
	t.Helper()
	net, err := interconnects.NewNetwork(len(slots))
	if err != nil {
		t.Skip(err)
	}
	t.Cleanup(net.Close)
	var list []string
	for i, k := range slots {
		list = append(list, fmt.Sprintf("%s:%d", net.Hosts[i], k))
	}
	return strings.Join(list, ",")
}

// steady returns an output without what differs from run to run.
func steady(text string) string {
	var out strings.Builder
	for line := range strings.Lines(text) {
		if !strings.Contains(line, "Time in seconds") && !strings.Contains(line, "Mop/s total") {
			out.WriteString(line)
		}
	}
	return out.String()
}

// hunter runs a command repeatedly and kills its processes.
type hunter struct {
	t       *testing.T
	n       int
	command []string
	flags   []string
	want    string
	dice    *rand.Rand
	most    int

	runs  int
	blows blows
}

// blows counts what was killed, and when.
type blows struct {
	all, ranks, helpers, supervisors int
	computing, saving, restarting    int
	resumed                          int // starts from a checkpoint
}

func (b blows) String() string {
	return fmt.Sprintf("%d of ranks, %d of helpers, %d of supervisors; %d computing, %d while a checkpoint was written, %d while restarting; %d starts from a checkpoint",
		b.ranks, b.helpers, b.supervisors, b.computing, b.saving, b.restarting, b.resumed)
}

// hunt performs one run from its beginning to its end.
func (k *hunter) hunt() {
	t := k.t
	t.Helper()
	r := newRun(t, k.command...)
	k.runs++
	at := k.blows.all
	for {
		s := r.start(k.flags...)
		again := k.chase(r, s)
		k.blows.resumed += strings.Count(s.text(), "restored checkpoint")
		if again {
			continue
		}
		s.finishes()
		break
	}
	if got := steady(r.output()); got != k.want {
		t.Fatalf("after %d blows the output differs: %s", k.blows.all-at, firstDifference([]byte(got), []byte(k.want)))
	}
	os.RemoveAll(r.root)
}

// chase kills processes of a run until it ends, or enough have been killed. It
// returns whether the supervisor was killed and the run must be started again.
func (k *hunter) chase(r *runOf, s *supervisor) bool {
	line, ok := s.sees(0, "started")
	early := 0 // consecutive kills without a new checkpoint
	for ok && k.blows.all < k.most {
		when := k.dice.IntN(4)
		if early >= 2 { // otherwise its checkpoint would rightly be quarantined
			when = 1
		}
		var moment *int
		switch when {
		case 0: // while it starts
			moment = &k.blows.restarting
			early++
		case 1, 2: // some checkpoints later
			for range 1 + k.dice.IntN(2) {
				if line, ok = s.sees(line, "committed"); !ok {
					return false
				}
			}
			moment, early = &k.blows.computing, 0
		case 3: // while a checkpoint is being written
			if line, ok = s.sees(line, "committed"); !ok {
				return false
			}
			k.awaitsWriting(r.checkpoints(), s)
			moment, early = &k.blows.saving, 0
		}
		if span := k.dice.IntN(4); span > 0 && when != 3 { // up to 1, 8 or 64 ms later
			time.Sleep(time.Duration(k.dice.Int64N(int64(time.Millisecond) << (3 * (span - 1)))))
		}
		hit, supervisor := false, false
		for !hit { // otherwise it has just begun, or is about to end
			if _, _, over := s.said(); over {
				return false
			}
			hit, supervisor = k.strike(s)
		}
		*moment++
		if supervisor {
			s.ends()
			return true
		}
		line, ok = s.sees(line, "started again")
	}
	return false
}

// awaitsWriting returns when a file of a checkpoint is being written.
func (k *hunter) awaitsWriting(dir string, s *supervisor) {
	for limit := time.Now().Add(patience); time.Now().Before(limit); {
		if found, _ := filepath.Glob(filepath.Join(dir, "ckpt-*", "*.tmp")); len(found) > 0 {
			return
		}
		if _, _, over := s.said(); over {
			return
		}
	}
}

// strike kills one process of the run, and returns whether it did, and
// whether that was the supervisor.
func (k *hunter) strike(s *supervisor) (hit, supervisor bool) {
	st := s.state()
	if st == nil || len(st.Ranks) != k.n {
		return false, false
	}
	pid := st.Ranks[k.dice.IntN(k.n)].Pid
	if pid == 0 || !runs(pid, k.command[0]) {
		return false, false
	}
	victim := pid
	counter := &k.blows.ranks
	switch k.dice.IntN(12) {
	case 0:
		counter = &k.blows.helpers
		if victim = parentOf(pid); victim <= 1 || victim == s.cmd.Process.Pid || !runs(victim, s.cmd.Path) {
			return false, false
		}
	case 1:
		counter, victim = &k.blows.supervisors, s.cmd.Process.Pid
	}
	if syscall.Kill(victim, syscall.SIGKILL) != nil {
		return false, false
	}
	k.blows.all++
	*counter++
	return true, counter == &k.blows.supervisors
}

// TestRanks_SingleRank runs a program for several ranks with one rank,
// supervised.
func TestRanks_SingleRank(t *testing.T) {
	t.Parallel()
	want := ""
	for i := range 5 {
		r := newRun(t, program(t, "ring"), "-steps", "200", "-report", "0")
		r.start("-n", "1", "--every-points", "50").finishes()
		if i == 0 {
			want = r.output()
			must(t, want, "ring ok ranks=1 steps=200")
		}
		sameOutput(t, r.output(), want)
	}
}
