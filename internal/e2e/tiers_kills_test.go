//go:build linux

package e2e

import (
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"
)

// hostTiers are policies, with what they promise.
var hostTiers = []struct {
	policy string
	names  []string // of the tiers, in messages; one of them has what is lost
	losses int      // so many hosts may be lost with their disks
	least  int      // hosts that the policy needs
}{
	{"partner", []string{"partner=1"}, 1, 2},
	{"partner=2", []string{"partner=2"}, 2, 3},
	{"rs=2+1:every=1", []string{"rs=2+1"}, 1, 3},
	{"rs=2+2:every=1", []string{"rs=2+2"}, 2, 4},
	{"shared=SHARED:every=1", []string{"shared=SHARED"}, 4, 1},
	{"partner,shared=SHARED:every=1", []string{"partner=1", "shared=SHARED"}, 4, 2},
}

// TestTiers_KilledHosts kills all processes of a run at random moments, and
// removes the disks of so many hosts as its tiers promise to bear. The run
// resumes on random hosts, from a checkpoint that is not older than the newest
// that a tier had, and ends with the output of an undisturbed one.
// CAIRN_HOST_KILLS is how many hosts are lost in all, CAIRN_SEED the first
// seed.
func TestTiers_KilledHosts(t *testing.T) {
	onlyLong(t)
	number := func(name string, otherwise int) int {
		if text := os.Getenv(name); text != "" {
			n, err := strconv.Atoi(text)
			if err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			return n
		}
		return otherwise
	}
	const ranks = 4
	want := undisturbed(t, ranks, program(t, "wander"), "-size", "2000")
	kills, first := number("CAIRN_HOST_KILLS", 100), number("CAIRN_SEED", 1)
	var mu sync.Mutex
	var all sync.WaitGroup
	lost, total, runs, next := make(map[string]int), 0, 0, first
	for range 20 { // most of the time they wait until no rank can run on a lost host
		all.Go(func() {
			for {
				mu.Lock()
				seed := next
				next++
				over := total >= kills || t.Failed()
				mu.Unlock()
				if over {
					return
				}
				c := hostTiers[seed%len(hostTiers)]
				t.Run(fmt.Sprintf("seed %d", seed), func(t *testing.T) {
					t.Log(c.policy)
					l := &hostLoss{rng: rand.New(rand.NewPCG(uint64(seed), 9)), islands: wanderOn(t, 4, ranks, "-size", "2000")}
					shared := sharedDir(t)
					for _, name := range c.names {
						l.names = append(l.names, strings.ReplaceAll(name, "SHARED", shared))
					}
					l.flags = []string{"--tiers", "local=" + filepath.Join(l.local, "me") + "," + strings.ReplaceAll(c.policy, "SHARED", shared), "--grace", "1s"}
					n := l.run(t, c.losses, c.least)
					sameOutput(t, l.output(), want)
					mu.Lock()
					defer mu.Unlock()
					total, runs = total+n, runs+1
					lost[c.policy] += n
				})
			}
		})
	}
	all.Wait()
	t.Logf("%d runs; %d hosts lost with their disks: %v", runs, total, lost)
}

// hostLoss is a run that loses hosts.
type hostLoss struct {
	*islands
	rng    *rand.Rand
	names  []string // of its tiers
	flags  []string
	newest int // the newest checkpoint that all tiers have
}

// run returns how many hosts were lost.
func (l *hostLoss) run(t *testing.T, losses, least int) (total int) {
	step := 0
	for round := range 8 {
		step += 3
		l.lets(step)
		l.begins(l.slots(least), l.flags...)
		if round > 0 {
			l.resumes(t, round)
		}
		l.reachesStep(step)
		l.saves()
		index := l.committed(t)
		for _, name := range l.names {
			l.awaits(fmt.Sprintf("checkpoint %d is on %s", index, name))
		}
		l.newest = index
		step += 2
		l.goes(step)
		if l.rng.IntN(2) == 0 { // while another one is taken and copied
			done := make(chan struct{})
			go func() {
				defer close(done)
				cairnTool(t, "checkpoint", l.islands.run())
			}()
			<-time.After(time.Duration(l.rng.IntN(300)) * time.Millisecond)
			l.killsAll()
			<-done
		} else {
			l.killsAll()
		}
		for _, i := range l.rng.Perm(4)[:1+l.rng.IntN(losses)] {
			host := l.net.Hosts[i]
			l.loses(host)
			l.newDisk(t, host)
			total++
		}
	}
	l.lets(60)
	l.begins(l.slots(least), l.flags...)
	l.resumes(t, 8)
	l.finishes()
	return total
}

// resumes waits until the run has resumed, and checks from which checkpoint.
func (l *hostLoss) resumes(t *testing.T, round int) {
	t.Helper()
	const text = "restored checkpoint "
	if _, ok := l.seesWithin(3*patience, 0, text); !ok { // it may wait for ranks on lost hosts
		t.Fatalf("round %d: it has ended:\n%s", round, l.text())
	}
	_, rest, _ := strings.Cut(l.text(), text)
	index := 0
	if _, err := fmt.Sscan(rest, &index); err != nil || index < l.newest {
		t.Errorf("round %d: resumed from checkpoint %d, and the tiers had %d: %v\n%s", round, index, l.newest, err, l.text())
	}
}

// committed returns the newest committed checkpoint.
func (l *hostLoss) committed(t *testing.T) int {
	t.Helper()
	st := l.state()
	if st == nil || st.Last == nil {
		t.Fatalf("no checkpoint is known: %+v\n%s", st, l.text())
	}
	return int(st.Last.Index)
}

// slots distributes the ranks over some hosts.
func (l *hostLoss) slots(least int) string {
	slots := make([]int, 4)
	hosts := l.rng.Perm(4)[:least+l.rng.IntN(5-least)]
	for i := range l.ranks {
		slots[hosts[i%len(hosts)]]++
	}
	return strings.Trim(fmt.Sprint(slots), "[]")
}
