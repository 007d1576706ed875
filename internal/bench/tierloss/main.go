// Tierloss prints what storage tiers cost and what they survive on a large
// cluster, by arithmetic: the tables of docs/tiers.md.
//
//	go run ./internal/bench/tierloss
package main

import (
	"fmt"
	"io"
	"os"
)

// large is the cluster that the tables are about.
var large = model{
	hosts: 10000, racks: 250, hostMTBF: 5 * year, rackMTBF: 20 * year,
	state: 64 * gib, link: 2.5e9, shared: 1e12, s3: 2e11,
	detect: 60, every: 600, everyFS: 16, everyS3: 32, everyCode: 4,
}

func main() { tables(os.Stdout, large) }

func tables(w io.Writer, m model) {
	fmt.Fprintf(w, "| tier | sent per host and checkpoint | stored for others | until redundant | rebuild of a host | hosts that may be lost |\n|---|---|---|---|---|---|\n")
	for _, s := range schemes(&m) {
		fmt.Fprintf(w, "| `%s` | %.0f GiB | %.0f GiB | %.0f s | %.0f s | %d of %d |\n", s.name, s.sent*m.state/gib, s.sent*m.state/gib, s.redundant(&m), s.rebuild(&m), s.lose, s.group)
	}
	total := float64(m.hosts) * m.state
	fmt.Fprintf(w, "| `shared` | %.0f GiB | | %.0f min | %.0f min for all | all |\n", m.state/gib, total/m.shared/60, total/m.shared/60)
	fmt.Fprintf(w, "| `s3` | %.0f GiB | | %.0f min | %.0f min for all | all |\n\n", m.state/gib, total/m.s3/60, total/m.s3/60)

	mtbfs := []float64{1, 5, 20}
	fmt.Fprintf(w, "| losses per year |")
	for _, y := range mtbfs {
		fmt.Fprintf(w, " MTBF %.0f y, domains | … no domains |", y)
	}
	fmt.Fprint(w, "\n|---|---|---|---|---|---|---|\n")
	for _, s := range schemes(&m) {
		fmt.Fprintf(w, "| `%s` |", s.name)
		for _, y := range mtbfs {
			x := m
			x.hostMTBF = y * year
			fmt.Fprintf(w, " %s | %s |", number(s.losses(&x, true)), number(s.losses(&x, false)))
		}
		fmt.Fprintln(w)
	}

	fmt.Fprintf(w, "\n| hosts | racks | hosts lost per year | of the link | `partner`: losses per year | `rs=4+2` | shared busy | s3 busy |\n|---|---|---|---|---|---|---|---|\n")
	for _, n := range []int{16, 100, 1000, 10000} {
		x := m
		x.hosts, x.racks = n, max(1, n/40)
		all := float64(n) * x.state
		list := schemes(&x)
		fmt.Fprintf(w, "| %d | %d | %s | %.0f %% | %s | %s | %s | %s |\n", n, x.racks, number(float64(n)*year/x.hostMTBF+float64(n)*year/x.rackMTBF),
			100*(list[0].redundant(&x)/x.every+list[2].redundant(&x)/(x.every*list[2].every)),
			number(list[0].losses(&x, true)), number(list[2].losses(&x, true)),
			percent(all/x.shared/(x.every*x.everyFS)), percent(all/x.s3/(x.every*x.everyS3)))
	}
	fmt.Fprintln(w)

	fmt.Fprintf(w, "| what is lost | how often per year | work lost each time | hours per year |\n|---|---|---|---|\n")
	lost := float64(m.hosts)*year/m.hostMTBF + float64(m.racks)*year/m.rackMTBF
	again := m.every/2 + m.detect + m.state/m.link
	row := func(what string, often, each float64) {
		fmt.Fprintf(w, "| %s | %s | %.0f min | %s |\n", what, number(often), each/60, number(often*each/3600))
	}
	row("a host, or a rack; the newest checkpoint is redundant", lost, again)
	row("… it is not yet: the one before is restored", lost*schemes(&m)[0].redundant(&m)/m.every, m.every)
	for _, s := range []scheme{schemes(&m)[0], schemes(&m)[2]} {
		row(fmt.Sprintf("more hosts than `%s` survives: from the shared tier", s.name), s.losses(&m, true), m.every*m.everyFS/2+total/m.shared)
	}
	row("the shared file system, too (once in 10 years): from s3", 0.1, m.every*m.everyS3/2+total/m.s3)
}

// number prints a number with two digits.
func number(x float64) string {
	switch {
	case x == 0:
		return "0"
	case x >= 10:
		return fmt.Sprintf("%.0f", x)
	case x >= 0.01:
		return fmt.Sprintf("%.2g", x)
	}
	return fmt.Sprintf("%.0e", x)
}

func percent(x float64) string {
	if x < 0.005 {
		return "< 1 %"
	}
	return fmt.Sprintf("%.0f %%", 100*x)
}
