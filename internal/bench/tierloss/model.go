package main

import (
	"math"
	"time"
)

const (
	gib  = float64(1 << 30)
	year = 365.25 * 24 * float64(time.Hour) / float64(time.Second) // in seconds
)

// model is a cluster and a run on it. Times are in seconds.
type model struct {
	hosts     int
	racks     int
	hostMTBF  float64 // until a host is lost with its disk
	rackMTBF  float64 // until all hosts of a rack are
	state     float64 // bytes of a host's part of a checkpoint
	link      float64 // bytes per second that a host may send, and receive, for tiers
	shared    float64 // … that the shared file system takes from all hosts together
	s3        float64 // … that the object store does
	detect    float64 // until a lost host is noticed and another one takes its place
	every     float64 // between two checkpoints
	everyFS   float64 // checkpoints between two on the shared tier
	everyS3   float64 // … on the object store
	everyCode float64 // … that are encoded
}

// scheme is a way to keep copies on hosts.
type scheme struct {
	name  string
	group int     // hosts that hold for each other
	lose  int     // of them that may be lost
	sent  float64 // bytes that a host sends, and stores for others, per byte of state
	every float64 // checkpoints between two
}

func schemes(m *model) []scheme {
	return []scheme{
		{"partner", 2, 1, 1, 1},
		{"partner=2", 3, 2, 2, 1},
		{"rs=4+2", 6, 2, 5. / 4, m.everyCode},
		{"rs=8+2", 10, 2, 9. / 8, m.everyCode},
		{"rs=8+3", 11, 3, 10. / 8, m.everyCode},
	}
}

// redundant returns how long it takes until a checkpoint has its copies.
func (s scheme) redundant(m *model) float64 { return s.sent * m.state / m.link }

// rebuild returns how long it takes until a lost host's part is on another one:
// it comes from one host, or from as many as there are data shards; what counts
// is what the new host can receive.
func (s scheme) rebuild(m *model) float64 { return m.state / m.link }

// window returns how long a loss leaves a group with less redundancy: until it
// is noticed, the part is on a new host, and that has sent its copies again.
// The new host also holds for others: they send while it receives.
func (s scheme) window(m *model) float64 {
	return m.detect + s.rebuild(m) + s.redundant(m)
}

// losses returns how often per year a group is lost: more of its hosts at the
// same time than may be. With domains, a group's hosts are in different racks,
// as far as there are enough; without, they are wherever they are.
func (s scheme) losses(m *model, domains bool) float64 {
	groups := float64(m.hosts) / float64(s.group)
	host, rack := year/m.hostMTBF, year/m.rackMTBF
	any := host + rack // a host is lost with its rack, too
	total := groups / meanTimeToLoss(s.group, s.lose, any, year/s.window(m))
	racks := float64(m.racks) * rack // that are lost
	switch {
	case !domains:
		hit := groups * atLeast(s.lose+1, s.group, m.hosts/m.racks, m.hosts)
		total += racks * (1 - math.Exp(-hit))
	case m.racks < s.group: // several at once
		once := (s.group + m.racks - 1) / m.racks
		more := s.lose + 1 - once // that have to be lost besides
		if more <= 0 {
			return total + racks
		}
		hit := groups * math.Exp(logChoose(s.group-once, more)) * math.Pow(any*s.window(m)/year, float64(more))
		total += racks * (1 - math.Exp(-hit))
	}
	return total
}

// meanTimeToLoss returns the mean time until more than lose of n hosts are lost
// at the same time, each of which is lost with a rate and repaired with another
// one. It solves the chain of states 0 … lose for its absorption time.
func meanTimeToLoss(n, lose int, loss, repair float64) float64 {
	// t[k] is the mean time from k lost hosts on, as a + b·t[0]:
	// (up+down)·t[k] = 1 + up·t[k+1] + down·t[k-1]. Work with the time from k
	// to k+1 instead: u[k] = 1/up + down/up·u[k-1], which has no cancellation.
	sum, u := 0., 0.
	for k := range lose + 1 {
		up, down := float64(n-k)*loss, float64(k)*repair
		u = 1/up + down/up*u
		sum += u
	}
	return sum
}

// atLeast returns the probability that of n hosts, chosen among all, k or more
// are among some.
func atLeast(k, n, some, all int) float64 {
	p := 0.
	for i := k; i <= n; i++ {
		p += math.Exp(logChoose(some, i) + logChoose(all-some, n-i) - logChoose(all, n))
	}
	return p
}

func logChoose(n, k int) float64 {
	if k < 0 || k > n {
		return math.Inf(-1)
	}
	a, _ := math.Lgamma(float64(n + 1))
	b, _ := math.Lgamma(float64(k + 1))
	c, _ := math.Lgamma(float64(n - k + 1))
	return a - b - c
}
