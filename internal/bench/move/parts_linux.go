package main

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/cairnrun/cairn/internal/control"
	"github.com/cairnrun/cairn/internal/supervise/client"
)

// Bounds of the results.
const (
	boundPipe  = 1.15 // ratio to the slowest stage alone
	boundPause = 0.2  // ratio to a copy of everything
	boundMore  = 0.05 // ratio to a rank's memory, in addition to two chunks
)

// Rates of links, in Mbit/s. All hosts share the processors of this machine. On
// a link without a limit, the processors are what is measured.
const (
	fast = 5000 // a copy of 2 GiB takes 3.4 s
	gigE = 1000
)

const usual = 64 << 20 // size of a chunk

// one moves a fresh rank from the first to the second host.
func (b *bench) one(size int64, how client.Migration) (*move, error) {
	list, err := b.several(size, 0, 5*time.Millisecond, how)
	if err != nil {
		return nil, err
	}
	return list[0], nil
}

// several moves a fresh rank from the first to the second host, back, and so
// on.
func (b *bench) several(size int64, dirty float64, period time.Duration, how ...client.Migration) (out []*move, err error) {
	j, err := b.launch(size, dirty, period)
	if err != nil {
		return nil, err
	}
	for i, h := range how {
		h.Ranks, h.To = []int{0}, b.net.Hosts[(i+1)%2]
		m, err := j.migrate(h)
		if err != nil {
			j.kill()
			return nil, err
		}
		tell("chunk %d rounds %d: %s; %s; memory %d, source %d more, destination %d", h.Chunk>>20, h.Rounds,
			control.MoveText(&m.MoveState), m.times(), m.own>>20, m.source>>20, m.destination>>20)
		out = append(out, m)
	}
	return out, j.end()
}

// launch starts a rank on the first host and returns when it is under way.
func (b *bench) launch(size int64, dirty float64, period time.Duration) (*job, error) {
	files := fmt.Sprintf("%s/job%d", b.tmp, b.jobs+1)
	j, err := b.start(1, b.net.List(2, 1), b.self, "-as", "rank", "-size", strconv.FormatInt(size, 10),
		"-dirty", strconv.FormatFloat(dirty, 'g', -1, 64), "-period", period.String(), "-files", files)
	if err != nil {
		return nil, err
	}
	return j, j.await(files + ".begun")
}

func s(ns int64) float64 { return float64(ns) / 1e9 }

// way is a way to move a rank.
type way struct {
	name string
	how  client.Migration
}

var ways = []way{
	{"pipelined", client.Migration{Chunk: usual}},
	{"precopy", client.Migration{Chunk: usual, Rounds: control.DefaultRounds}},
	{"chunks of 4 MiB", client.Migration{Chunk: 4 << 20}},
	{"chunks of 16 MiB", client.Migration{Chunk: 16 << 20}},
	{"chunks of 256 MiB", client.Migration{Chunk: 256 << 20}},
}

// pipeline compares a move with its stages, on a limited link and on one
// without a limit.
func (b *bench) pipeline() ([]figure, error) {
	limited, free := newLinkRun(ways), newLinkRun(ways[:1])
	for range *rounds {
		if err := b.try(limited, fast); err != nil {
			return nil, err
		}
		if err := b.try(free, 0); err != nil {
			return nil, err
		}
	}
	what := "A rank of " + gib(*size) + " moves, link: "
	pipe := figure{Title: what + "5 Gbit/s", Unit: "slowest stage alone", Bars: append(limited.stages(), limited.bar(0, "", boundPipe))}
	chunks := figure{Title: "Sizes of chunks, link: 5 Gbit/s", Unit: "slowest stage alone"}
	memory := figure{Title: "Memory of both processes", Unit: "what the program has by itself", Bars: []bar{{Name: "not moved", Parts: []float64{1}}}}
	for _, i := range []int{2, 3, 0, 4} {
		chunks.Bars = append(chunks.Bars, limited.bar(i, fmt.Sprintf("%d MiB", ways[i].how.Chunk>>20), boundPipe))
	}
	for _, i := range []int{0, 1, 2, 3, 4} {
		memory.Bars = append(memory.Bars, limited.memory(i)...)
	}
	unlimited := figure{Title: what + "no limit", Unit: "slowest stage alone", Bars: append(free.stages(), free.bar(0, "", 0))}
	return []figure{pipe, chunks, memory, unlimited}, nil
}

// linkRun holds the measurements on one link.
type linkRun struct {
	ways  []way
	stage [3][]float64 // write, transfer and read, as ratios to the slowest
	most  []float64    // time of the slowest, in ns
	took  [][]float64  // by way, in ns
	more  [][2][]float64
	own   float64 // memory of the program itself
}

func newLinkRun(ways []way) *linkRun {
	return &linkRun{ways: ways, took: make([][]float64, len(ways)), more: make([][2][]float64, len(ways))}
}

// try moves a rank once in every way.
func (b *bench) try(t *linkRun, rate int) error {
	if err := b.limit(rate); err != nil {
		return err
	}
	alone, err := b.alone("stages", *size)
	if err != nil {
		return err
	}
	most := float64(alone.slowest())
	tell("%d Mbit/s: write %.3f transfer %.3f read %.3f", rate, s(alone.Write), s(alone.Transfer), s(alone.Read))
	t.most = append(t.most, most)
	for i, v := range []int64{alone.Write, alone.Transfer, alone.Read} {
		t.stage[i] = append(t.stage[i], float64(v)/most)
	}
	for i, w := range t.ways {
		m, err := b.one(*size, w.how)
		if err != nil {
			return err
		}
		t.own = float64(m.own)
		t.took[i] = append(t.took[i], float64(m.TransferNS))
		t.more[i][0] = append(t.more[i][0], 1+float64(m.source)/t.own)
		t.more[i][1] = append(t.more[i][1], float64(m.destination)/t.own)
	}
	return nil
}

func (t *linkRun) stages() (out []bar) {
	for i, name := range []string{"write alone", "transfer alone", "read alone"} {
		out = append(out, bar{Name: name, Parts: []float64{median(t.stage[i])}})
	}
	return out
}

func (t *linkRun) bar(i int, name string, bound float64) bar {
	return ratio(cmp.Or(name, t.ways[i].name), t.took[i], t.most, bound)
}

// ratio returns the median of how much longer one thing takes than another,
// round by round.
func ratio(name string, a, b []float64, bound float64) bar {
	var l []float64
	for i := range a {
		l = append(l, a[i]/b[i])
	}
	return bar{Name: name, Parts: []float64{median(l)}, Bound: bound, Least: slices.Min(a) / slices.Min(b)}
}

func (t *linkRun) memory(i int) (out []bar) {
	w := t.ways[i]
	for k, who := range []string{"source", "destination"} {
		out = append(out, bar{Name: w.name + ", " + who, Parts: []float64{median(t.more[i][k])}, Bound: 1 + 2*float64(w.how.Chunk)/t.own + boundMore})
	}
	return out
}

// programs moves ranks of real programs: 1, half and all of a host.
func (b *bench) programs() ([]figure, error) {
	if err := b.limit(gigE); err != nil {
		return nil, err
	}
	kinds := []way{
		{"1 of 4", client.Migration{Ranks: []int{1}}},
		{"2 of 4", client.Migration{Ranks: []int{1, 2}}},
		{"4 of 4", client.Migration{Ranks: []int{0, 1, 2, 3}}},
	}
	times := figure{Title: "NPB, 8 ranks, 4 on a host: write-transfer-read", Unit: "transfer alone, link: 1 Gbit/s"}
	whole := figure{Title: "NPB: the whole move", Unit: "that of one rank", Parts: []string{"spawn", "negotiation", "write-transfer-read", "restart"}}
	for _, program := range strings.Split(*classes, ",") {
		kernel, class, _ := strings.Cut(program, ".")
		took := make([][4][]float64, len(kinds))
		moved, alone, sent := make([][]float64, len(kinds)), make([][]float64, len(kinds)), make([]int64, len(kinds))
		for range *rounds {
			for i, w := range kinds {
				w.how.To, w.how.Chunk = b.net.Hosts[2], usual
				m, err := b.program(kernel, class, w.how)
				if err != nil {
					return nil, fmt.Errorf("%s: %w", program, err)
				}
				for k, ns := range []int64{m.SpawnNS, m.NegotiationNS, m.TransferNS, m.RestartNS} {
					took[i][k] = append(took[i][k], float64(ns))
				}
				if sent[i] = m.Stats.Sent; sent[i] < little {
					continue
				}
				send, err := b.alone("send", m.Stats.Sent)
				if err != nil {
					return nil, err
				}
				all := max(m.TransferNS, m.Stats.AllNS) // some ranks begin before the last one is paused
				moved[i], alone[i] = append(moved[i], float64(all)), append(alone[i], float64(send.Transfer))
			}
		}
		one := 0.0
		for i, w := range kinds {
			name := fmt.Sprintf("%s.%s, %s", strings.ToUpper(kernel), class, w.name)
			note := fmt.Sprintf("%.1f MB", float64(sent[i])/1e6)
			x := bar{Name: name, Note: note}
			for k := range took[i] {
				x.Parts = append(x.Parts, median(took[i][k]))
			}
			if i == 0 {
				one = x.sum()
			}
			for k := range x.Parts {
				x.Parts[k] /= one
			}
			whole.Bars = append(whole.Bars, x)
			if len(moved[i]) == 0 {
				continue
			}
			y := ratio(name, moved[i], alone[i], boundPipe)
			y.Note = note
			times.Bars = append(times.Bars, y)
		}
	}
	return []figure{times, whole}, nil
}

// little is an amount that is sent in negligible time.
const little = 4 << 20

// program moves ranks of a benchmark.
func (b *bench) program(kernel, class string, how client.Migration) (*move, error) {
	h := b.net.Hosts
	j, err := b.start(8, fmt.Sprintf("%s:4,%s:4", h[0], h[1]), b.npb, "-kernel", kernel, "-class", class)
	if err != nil {
		return nil, err
	}
	defer j.kill()
	if err := j.awaitRanks(8); err != nil {
		return nil, err
	}
	m, err := j.migrate(how)
	if err == nil {
		tell("%s.%s ranks %v: %s; %s", kernel, class, how.Ranks, control.MoveText(&m.MoveState), m.times())
	}
	return m, err
}

// pause moves a rank with precopy, and one without.
func (b *bench) pause() ([]figure, error) {
	if err := b.limit(fast); err != nil {
		return nil, err
	}
	const dirty, period = 0.05, 500 * time.Millisecond
	var pauses, copied, all, rest []float64
	for range *rounds {
		both, err := b.several(2**size, dirty, period, client.Migration{Chunk: usual}, client.Migration{Chunk: usual, Rounds: control.DefaultRounds})
		if err != nil {
			return nil, err
		}
		full, m := both[0], both[1]
		all = append(all, float64(full.TransferNS))
		copied = append(copied, float64(full.PauseNS))
		pauses = append(pauses, float64(m.PauseNS))
		rest = append(rest, float64(m.Stats.Sent)/float64(m.Stats.State))
	}
	f := figure{Title: fmt.Sprintf("Pause of a rank of %s that changes %.0f %% between points", gib(2**size), 100*dirty), Unit: "a copy of all of it, link: 5 Gbit/s"}
	x := ratio("precopy", pauses, all, boundPause)
	x.Note = fmt.Sprintf("%.0f %% of the state sent during the pause", 100*median(rest))
	f.Bars = []bar{ratio("no precopy", copied, all, 0), x}
	return []figure{f}, nil
}

func gib(n int64) string {
	if n < 1<<30 {
		return fmt.Sprintf("%d MiB", n>>20)
	}
	return fmt.Sprintf("%g GiB", float64(n)/(1<<30))
}
