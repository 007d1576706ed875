package main

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"

	"github.com/cairnrun/cairn/internal/coord/coordtest"
)

// ways are the transports that are compared, and the options that make Open MPI
// use the same.
var ways = []struct {
	name, title string
	mca         []string
}{
	{"shm", "shared memory", nil},
	{"tcp", "TCP", []string{"--mca", "pml", "ob1", "--mca", "btl", "tcp,self"}},
}

// quiesceRanks are the numbers of ranks for which quiescing is measured.
var quiesceRanks = []int{8, 16, 32}

// ranks measures messages between ranks compared with Open MPI's, and the cost
// of coordination.
func (b *bench) ranks() error {
	if runtime.GOOS != "linux" {
		b.log("ranks are left out: they need Linux")
		return nil
	}
	command := filepath.Join(b.dir, "cairn")
	if msg, err := exec.CommandContext(b.ctx, "go", "build", "-o", command, "github.com/cairnrun/cairn/cmd/cairn").CombinedOutput(); err != nil {
		return fmt.Errorf("building the command: %w: %s", err, firstLine(msg))
	}
	openMPI, err := b.buildPingPong()
	if err != nil {
		b.log("Open MPI is left out: %v", err)
	}
	for round := range *rounds {
		for _, w := range ways {
			b.log("round %d of %d: ranks, %s", round+1, *rounds, w.title)
			if err := b.start(command, 2, w.name, "pingpong", "cairn "+w.name+" "); err != nil {
				return err
			}
			if openMPI != "" {
				if err := b.openMPI(openMPI, w.name, w.mca); err != nil {
					b.log("Open MPI is left out: %v", err)
					openMPI = ""
				}
			}
			if err := b.start(command, 2, w.name, "count", w.name+" "); err != nil {
				return err
			}
		}
		for _, n := range quiesceRanks {
			b.log("round %d of %d: %d ranks quiesce", round+1, *rounds, n)
			if err := b.start(command, n, "shm", "quiesce", fmt.Sprint(n, " ")); err != nil {
				return err
			}
		}
	}
	b.reportRanks()
	return nil
}

// start runs this program as n ranks, and adds the measurements of rank 0 with
// a prefix.
func (b *bench) start(command string, n int, way, role, prefix string) error {
	self, err := os.Executable()
	if err != nil {
		return err
	}
	run, to := filepath.Join(b.dir, "run"), filepath.Join(b.dir, "measured")
	defer os.RemoveAll(run)
	cmd := exec.CommandContext(b.ctx, command, "run", "-n", strconv.Itoa(n), "--transport", way, "--run", run, "--retries", "0", self, "-as", role, "-to", to)
	if msg, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("%s of %d ranks: %w: %s", role, n, err, msg)
	}
	text, err := os.ReadFile(to)
	if err != nil {
		return err
	}
	return b.take(prefix, text)
}

// take adds measurements from lines "NAME VALUE".
func (b *bench) take(prefix string, text []byte) error {
	for line := range strings.Lines(string(text)) {
		name, value, _ := strings.Cut(strings.TrimSpace(line), " ")
		v, err := strconv.ParseFloat(value, 64)
		if err != nil {
			return fmt.Errorf("measured %q: %w", line, err)
		}
		b.add(prefix+name, v)
	}
	return nil
}

// openMPI runs the same ping-pong with Open MPI.
func (b *bench) openMPI(prog, way string, mca []string) error {
	args := append([]string{"-n", "2", "--allow-run-as-root"}, mca...)
	args = append(args, prog)
	for _, t := range messageSizes {
		args = append(args, strconv.Itoa(t.size), strconv.Itoa(t.batch), strconv.Itoa(t.batches))
	}
	cmd := exec.CommandContext(b.ctx, "mpirun", args...)
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("mpirun: %w: %s", err, firstLine(errs.Bytes()))
	}
	return b.take("openmpi "+way+" ", out.Bytes())
}

// pingPongProgram does the same as rank.pingpong, by the same rules. Its
// arguments are triples: size, round trips in a batch, batches.
const pingPongProgram = `
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
int main(int argc, char **argv) {
	int rank;
	MPI_Init(&argc, &argv);
	MPI_Comm_rank(MPI_COMM_WORLD, &rank);
	for (int i = 1; i + 2 < argc; i += 3) {
		int n = atoi(argv[i]), batch = atoi(argv[i + 1]), batches = atoi(argv[i + 2]);
		char *p = calloc(n, 1);
		double best = 1e9;
		for (int j = 0; j < batches; j++) {
			double begin = MPI_Wtime();
			for (int k = 0; k < batch; k++) {
				if (rank == 0) MPI_Send(p, n, MPI_BYTE, 1, 0, MPI_COMM_WORLD);
				MPI_Recv(p, n, MPI_BYTE, 1 - rank, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
				if (rank == 1) MPI_Send(p, n, MPI_BYTE, 0, 0, MPI_COMM_WORLD);
			}
			double took = (MPI_Wtime() - begin) / batch / 2;
			if (took < best) best = took;
		}
		if (rank == 0) printf("%d %.10f\n", n, best);
		free(p);
	}
	MPI_Finalize();
}
`

func (b *bench) buildPingPong() (string, error) {
	src, out := filepath.Join(b.dir, "pingpong.c"), filepath.Join(b.dir, "pingpong")
	if err := os.WriteFile(src, []byte(pingPongProgram), 0o666); err != nil {
		return "", err
	}
	if msg, err := exec.CommandContext(b.ctx, "mpicc", "-O2", src, "-o", out).CombinedOutput(); err != nil {
		return "", fmt.Errorf("building its ping-pong (Debian: libopenmpi-dev): %w: %s", err, firstLine(msg))
	}
	return out, nil
}

// reportRanks prints the results of ranks.
func (b *bench) reportRanks() {
	w := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', 0)
	defer w.Flush()
	row := func(cells ...string) { fmt.Fprintln(w, strings.Join(cells, "\t")) }
	fmt.Fprintf(w, "\nmessages between two ranks, %d processors, medians of %d rounds\n\n", runtime.NumCPU(), *rounds)
	row("WHAT", "CAIRN", "OPEN MPI", "RATIO", "BOUND", "")
	for _, way := range ways {
		for _, t := range messageSizes {
			name := strconv.Itoa(t.size)
			ours, theirs := "cairn "+way.name+" "+name, "openmpi "+way.name+" "+name
			show := func(s float64) string {
				if t.size == 1 {
					return fmt.Sprintf("%.3f µs", 1e6*s)
				}
				return fmt.Sprintf("%.2f GB/s", float64(t.size)/s/1e9)
			}
			what := fmt.Sprintf("%s, %s", way.title, sizeText(t.size))
			if b.got[theirs] == nil {
				row(what, show(b.median(ours)), "not available here")
				continue
			}
			r := b.ratio(ours, theirs)
			if t.size == 1 {
				row(what, show(b.median(ours)), show(b.median(theirs)), fmt.Sprintf("%.2f ×", r), "≤ 2", verdict(r <= 2))
				continue
			}
			bound, ok := "", ""
			if t.size >= 1<<20 {
				bound, ok = "≥ 0.8", verdict(1/r >= 0.8)
			}
			row(what, show(b.median(ours)), show(b.median(theirs)), fmt.Sprintf("%.2f ×", 1/r), bound, ok)
		}
	}
	fmt.Fprintln(w)
	row("ONE BYTE, COUNTED", "COUNTED", "UNCOUNTED", "COST", "BOUND", "")
	for _, way := range ways {
		bound, paper := 0.05, "16.8 %"
		if way.name == "tcp" {
			bound, paper = 0.01, "0.2 %"
		}
		cost := b.ratio(way.name+" counted", way.name+" uncounted") - 1
		row(way.title, fmt.Sprintf("%.3f µs", 1e6*b.median(way.name+" counted")), fmt.Sprintf("%.3f µs", 1e6*b.median(way.name+" uncounted")),
			fmt.Sprintf("%+.1f %%", 100*cost), fmt.Sprintf("≤ %.0f %%", 100*bound), verdict(cost <= bound),
			fmt.Sprintf("equals differ by %+.1f %%; Hursey et al.: %s", 100*(b.ratio(way.name+" uncounted2", way.name+" uncounted")-1), paper))
	}
	fmt.Fprintln(w)
	row("REQUEST UNTIL ALL RANKS HAVE COPIED", "MEDIAN", "MOST", "")
	for _, n := range quiesceRanks {
		name := fmt.Sprint(n, " quiesce")
		most := 0.0
		for _, v := range b.got[name] {
			most = max(most, v)
		}
		row(fmt.Sprint(n, " ranks"), fmt.Sprintf("%.4f s", b.median(name)), fmt.Sprintf("%.4f s", most), "Hursey et al., 8 to 36 ranks: 0.01 to 0.12 s for the protocol")
	}
	fmt.Fprintln(w)
	row("SIMULATED", "ROUNDS", "WHILE PAUSED", "MESSAGES", "PER RANK", "MOST", "BOOKMARKS TO ALL WOULD BE")
	for _, n := range []int{8, 64, 512, 1000, 4096, 10000} {
		c := coordtest.Simulate(n, 0, torus(n))
		row(fmt.Sprint(n, " ranks, neighbours in a box"), fmt.Sprint(c.Rounds), fmt.Sprint(c.Paused), fmt.Sprint(c.Messages), fmt.Sprintf("%.1f", float64(c.Messages)/float64(n)), fmt.Sprint(c.MaxPerRank), fmt.Sprint(n*(n-1)))
	}
}

func sizeText(n int) string {
	switch {
	case n >= 1<<20:
		return fmt.Sprint(n>>20, " MiB")
	case n >= 1<<10:
		return fmt.Sprint(n>>10, " KiB")
	}
	return fmt.Sprint(n, " byte")
}

// torus gives each of n ranks its neighbours in a periodic box with sides that
// are as equal as possible.
func torus(n int) func(rank int) []int {
	var dims [3]int
	for a := 1; a*a*a <= n; a++ {
		for b := a; n%a == 0 && a*b*b <= n; b++ {
			if n/a%b == 0 {
				dims = [3]int{a, b, n / a / b}
			}
		}
	}
	return func(rank int) []int {
		var list []int
		stride := 1
		for _, d := range dims {
			at := rank / stride % d
			for _, to := range []int{(at + 1) % d, (at + d - 1) % d} {
				p := rank + (to-at)*stride
				if p != rank && !slices.Contains(list, p) {
					list = append(list, p)
				}
			}
			stride *= d
		}
		return list
	}
}
