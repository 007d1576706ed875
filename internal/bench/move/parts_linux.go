package main

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/cairnrun/cairn/supervise"
)

// Bounds on what is measured.
const (
	boundPipe  = 1.15 // of the slowest stage alone
	boundPause = 0.2  // of a copy of all
	boundMore  = 0.05 // of a rank's memory, besides two chunks
)

// Rates of links, in Mbit/s. The hosts share two processors or so: on a link
// that is not limited, all that is measured is who gets them.
const (
	fast  = 5000
	slow  = 5000 // a copy of 2 GiB takes 3.4 s
	gigE  = 1000
	mega  = 1 << 20
	usual = 64 * mega
)

// one is a move of a fresh rank from the first to the second host.
func (b *bench) one(size int64, dirty float64, period string, how supervise.Migration) (*move, error) {
	j, err := b.launch(size, dirty, period)
	if err != nil {
		return nil, err
	}
	how.Ranks, how.To = []int{0}, b.net.Hosts[1]
	m, err := j.migrate(how)
	if err != nil {
		j.kill()
		return nil, err
	}
	tell("chunk %d rounds %d sequential %v: %s; spawn %.3f ahead %.3f negotiation %.3f transfer %.3f restart %.3f; %+v; memory %d, source %d more, newcomer %d",
		how.Chunk>>20, how.Rounds, how.Sequential, supervise.MoveText(&m.MoveState), s(m.SpawnNS), s(m.AheadNS), s(m.NegotiationNS), s(m.TransferNS), s(m.RestartNS),
		*m.Stats, m.own>>20, m.source>>20, m.newcomer>>20)
	return m, j.end()
}

// launch starts a rank on the first host and returns when it is under way.
func (b *bench) launch(size int64, dirty float64, period string) (*job, error) {
	files := fmt.Sprintf("%s/job%d", b.tmp, b.jobs+1)
	j, err := b.start(1, b.net.List(2, 1), b.self, "-as", "rank", "-size", strconv.FormatInt(size, 10),
		"-dirty", strconv.FormatFloat(dirty, 'g', -1, 64), "-period", period, "-files", files)
	if err != nil {
		return nil, err
	}
	return j, j.await(files + ".begun")
}

func s(ns int64) float64 { return float64(ns) / 1e9 }

// pipeline compares a move with its stages, on a link that is limited and on
// one that is not.
func (b *bench) pipeline() (out []figure, err error) {
	modes := []struct {
		name string
		how  supervise.Migration
	}{
		{"pipelined", supervise.Migration{Chunk: usual}},
		{"one after the other", supervise.Migration{Chunk: usual, Sequential: true}},
		{"ahead", supervise.Migration{Chunk: usual, Rounds: supervise.DefaultRounds}},
	}
	for _, link := range []struct {
		name string
		rate int
	}{{"8 Gbit/s", fast}, {"no limit", 0}} {
		if err := b.limit(link.rate); err != nil {
			return nil, err
		}
		var ratio, stage [3][]float64
		var own float64
		var above [3][2][]float64
		for range *rounds {
			alone, err := b.alone("stages", *size, usual)
			if err != nil {
				return nil, err
			}
			most := float64(alone.slowest())
			tell("%s: write %.3f transfer %.3f read %.3f", link.name, s(alone.Write), s(alone.Transfer), s(alone.Read))
			for i, v := range []int64{alone.Write, alone.Transfer, alone.Read} {
				stage[i] = append(stage[i], float64(v)/most)
			}
			for i, mode := range modes {
				if i == 2 && link.rate == 0 {
					continue
				}
				m, err := b.one(*size, 0, "5ms", mode.how)
				if err != nil {
					return nil, err
				}
				ratio[i] = append(ratio[i], float64(m.TransferNS)/most)
				own = float64(m.own)
				above[i][0] = append(above[i][0], 1+float64(m.source)/own)
				above[i][1] = append(above[i][1], float64(m.newcomer)/own)
			}
		}
		f := figure{title: "A rank of " + gib(*size) + " moves, link: " + link.name, unit: "slowest stage alone"}
		for i, name := range []string{"write alone", "transfer alone", "read alone"} {
			f.bars = append(f.bars, bar{name: name, parts: []float64{median(stage[i])}})
		}
		x := bar{name: "pipelined", parts: []float64{median(ratio[0])}}
		if link.rate != 0 {
			x.bound = boundPipe
		}
		f.bars = append(f.bars, x, bar{name: modes[1].name, parts: []float64{median(ratio[1])}})
		out = append(out, f)
		if link.rate == 0 {
			continue
		}
		g := figure{title: "Memory of its processes", unit: "what the program has by itself", bars: []bar{{name: "not moved", parts: []float64{1}}}}
		for i, mode := range modes {
			for k, who := range []string{"source", "newcomer"} {
				x := bar{name: mode.name + ", " + who, parts: []float64{median(above[i][k])}}
				if i != 1 {
					x.bound = 1 + 2*usual/own + boundMore
				}
				g.bars = append(g.bars, x)
			}
		}
		out = append(out, g)
	}
	return out, nil
}

// chunks moves with chunks of several sizes.
func (b *bench) chunks() ([]figure, error) {
	if err := b.limit(fast); err != nil {
		return nil, err
	}
	sizes := []int64{4, 16, 64, 256}
	took, above := make([][]float64, len(sizes)), make([][]float64, len(sizes))
	own := 0.0
	for range *rounds {
		alone, err := b.alone("send", *size, usual)
		if err != nil {
			return nil, err
		}
		for i, n := range sizes {
			m, err := b.one(*size, 0, "5ms", supervise.Migration{Chunk: n * mega})
			if err != nil {
				return nil, err
			}
			took[i] = append(took[i], float64(m.TransferNS)/float64(alone.Transfer))
			own = float64(m.own)
			above[i] = append(above[i], float64(max(m.own+m.source, m.newcomer))/own)
		}
	}
	f := figure{title: "Chunks, link: 8 Gbit/s", unit: "transfer alone"}
	g := figure{title: "Memory by chunks, the larger of source and newcomer", unit: "what the program has by itself"}
	for i, n := range sizes {
		name := fmt.Sprintf("%d MiB", n)
		f.bars = append(f.bars, bar{name: name, parts: []float64{median(took[i])}, bound: boundPipe})
		g.bars = append(g.bars, bar{name: name, parts: []float64{median(above[i])}, bound: 1 + 2*float64(n*mega)/own + boundMore})
	}
	return []figure{f, g}, nil
}

// programs moves ranks of real programs: 1, half and all of a host.
func (b *bench) programs() (out []figure, err error) {
	if err := b.limit(gigE); err != nil {
		return nil, err
	}
	counts := []struct {
		name  string
		ranks []int
	}{{"1 of 4", []int{1}}, {"2 of 4", []int{1, 2}}, {"4 of 4", []int{0, 1, 2, 3}}}
	const kinds = 4 // the last is all, one after the other
	for _, program := range strings.Split(*classes, ",") {
		kernel, class, _ := strings.Cut(program, ".")
		var phases [kinds][4][]float64
		var stage, state [kinds][]float64
		for range *rounds {
			for i := range kinds {
				c := counts[min(i, len(counts)-1)]
				m, err := b.program(kernel, class, supervise.Migration{Ranks: c.ranks, To: b.net.Hosts[2], Chunk: usual, Sequential: i >= len(counts)})
				if err != nil {
					return nil, fmt.Errorf("%s: %w", program, err)
				}
				alone, err := b.alone("send", m.Stats.Sent, usual)
				if err != nil {
					return nil, err
				}
				for k, ns := range []int64{m.SpawnNS, m.NegotiationNS, m.TransferNS, m.RestartNS} {
					phases[i][k] = append(phases[i][k], float64(ns)/float64(alone.Transfer))
				}
				stage[i] = append(stage[i], float64(alone.Transfer))
				state[i] = append(state[i], float64(m.Stats.Sent))
			}
		}
		f := figure{title: fmt.Sprintf("NPB %s, class %s, 8 ranks, link: 1 Gbit/s", strings.ToUpper(kernel), class), unit: "transfer alone",
			parts: []string{"spawn", "negotiation", "write-transfer-read", "restart"}}
		for i := range kinds {
			x := bar{name: counts[min(i, len(counts)-1)].name, note: fmt.Sprintf("%.1f MB", median(state[i])/1e6)}
			if i >= len(counts) {
				x.name += ", one after the other"
			}
			for k := range phases[i] {
				x.parts = append(x.parts, median(phases[i][k]))
			}
			f.bars = append(f.bars, x)
		}
		out = append(out, f)
	}
	return out, nil
}

// program moves ranks of a benchmark.
func (b *bench) program(kernel, class string, how supervise.Migration) (*move, error) {
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
		tell("%s.%s ranks %v sequential %v: %s; spawn %.3f negotiation %.3f transfer %.3f restart %.3f; %+v", kernel, class, how.Ranks, how.Sequential,
			supervise.MoveText(&m.MoveState), s(m.SpawnNS), s(m.NegotiationNS), s(m.TransferNS), s(m.RestartNS), *m.Stats)
	}
	return m, err
}

// pause holds a rank that was sent ahead, and one that was not.
func (b *bench) pause() ([]figure, error) {
	if err := b.limit(slow); err != nil {
		return nil, err
	}
	var held, copied, rest []float64
	for range *rounds {
		full, err := b.one(2**size, 0.05, "500ms", supervise.Migration{Chunk: usual})
		if err != nil {
			return nil, err
		}
		m, err := b.one(2**size, 0.05, "500ms", supervise.Migration{Chunk: usual, Rounds: supervise.DefaultRounds})
		if err != nil {
			return nil, err
		}
		most := float64(full.TransferNS)
		copied = append(copied, float64(full.PauseNS)/most)
		held = append(held, float64(m.PauseNS)/most)
		rest = append(rest, float64(m.Stats.Sent)/float64(m.Stats.State))
	}
	return []figure{{title: fmt.Sprintf("How long a rank of %s is held that changes 5 %% of it between two points, link: 5 Gbit/s", gib(2**size)), unit: "a copy of all of it",
		bars: []bar{
			{name: "nothing sent ahead", parts: []float64{median(copied)}},
			{name: "sent ahead", parts: []float64{median(held)}, bound: boundPause, note: fmt.Sprintf("%.0f %% of the state sent while it was held", 100*median(rest))},
		}}}, nil
}

func gib(n int64) string {
	if n < 1<<30 {
		return fmt.Sprintf("%d MiB", n>>20)
	}
	return fmt.Sprintf("%g GiB", float64(n)/(1<<30))
}
