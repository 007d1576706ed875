package main

import (
	"bufio"
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/cairnrun/cairn/internal/events"
	"github.com/cairnrun/cairn/internal/supervise/client"
	"github.com/cairnrun/cairn/internal/tier/s3/s3test"
)

// Bounds of storage tiers.
const (
	boundRedundant = 1.2              // ratio to a copy at the speed of the link, or of the disk
	boundSlowdown  = 0.05             // of the time between two checkpoints
	boundCoder     = 0.7              // ratio to the coder of package reedsolomon, at least
	boundHelper    = 128 << 20        // 64 MiB are parts on their way to the object store
	between        = 30 * time.Second // time between two checkpoints

	tierRate = 100 // Mbit/s: slow enough for two processors that all hosts share, and others
)

// place is a tier that is measured.
type place struct {
	name, policy string
	hosts        int
	disk         bool  // a copy of it is bounded by the disk, not by the link
	size         int64 // of each rank's state
}

func (b *bench) places() []place {
	shared := filepath.Join(b.tmp, "shared")
	return []place{
		{"partner", "partner", 2, false, *tierSize},
		{"rs=2+1", "rs=2+1:every=1", 3, false, *tierSize},
		{"s3", "s3=s3://" + s3test.Bucket + "/KEY:every=1", 1, false, *tierSize},
		{"shared", "shared=" + shared + ":every=1", 1, true, 8 * *tierSize},
	}
}

// disks prepares a disk for each host, in memory: what is measured is the link.
// It returns the shell that reaches hosts.
func (b *bench) disks() (shell string, err error) {
	dir, local := filepath.Join(b.tmp, "disks"), filepath.Join(b.tmp, "local")
	for _, d := range []string{dir, local, filepath.Join(b.tmp, "shared")} {
		if err := os.MkdirAll(d, 0o700); err != nil {
			return "", err
		}
	}
	if out, err := exec.CommandContext(b.ctx, "mount", "-t", "tmpfs", "none", dir).CombinedOutput(); err != nil {
		return "", fmt.Errorf("mount: %w: %s", err, out)
	}
	for _, h := range b.net.Hosts {
		if err := os.Mkdir(filepath.Join(dir, h), 0o700); err != nil {
			return "", err
		}
	}
	shell = filepath.Join(b.tmp, "reach")
	text := fmt.Sprintf("#!/bin/sh\nhost=$1; shift\ncase $host in %s) pin='%s';; *) pin='%s';; esac\nexec $pin ip netns exec $host sh -c 'mount --bind %s/$0 %s && exec \"$@\"' $host \"$@\"\n",
		b.net.Hosts[0], b.pin(b.net.Hosts[0]), b.pin(""), dir, local)
	return shell, os.WriteFile(shell, []byte(text), 0o700)
}

// store starts an object store on the last host, and returns its URL.
func (b *bench) store() (url string, end func(), err error) {
	cmd := exec.CommandContext(b.ctx, "sh", "-c", `exec $0 ip netns exec "$@"`, b.pin(b.net.Hosts[2]), b.net.Hosts[2], b.self, "-as", "store")
	in, err := cmd.StdinPipe()
	if err != nil {
		return "", nil, err
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return "", nil, err
	}
	cmd.Stderr = os.Stderr
	if err := cmd.Start(); err != nil {
		return "", nil, err
	}
	port, err := bufio.NewReader(out).ReadString('\n')
	return "http://10.77.0.3:" + strings.TrimSpace(port), func() { in.Close(); cmd.Wait() }, err
}

// runStore is the object store, in memory.
func runStore() error {
	ln, err := net.Listen("tcp", ":0")
	if err != nil {
		return err
	}
	fmt.Println(ln.Addr().(*net.TCPAddr).Port)
	go func() { // the process that started it is gone
		io.Copy(io.Discard, os.Stdin)
		ln.Close()
	}()
	if err := http.Serve(ln, s3test.New()); !errors.Is(err, net.ErrClosed) {
		return err
	}
	return nil
}

// stored is a checkpoint that was brought to tiers.
type stored struct {
	pause     time.Duration
	save      time.Duration            // until it was committed on the host's disk
	redundant map[string]time.Duration // from then on, by tier
	cpu       time.Duration            // of the first host's helper
	memory    int64                    // its most private memory
}

// onTiers starts a run on hosts, which changes all of its state between two
// points, takes checkpoints, and waits until all of its tiers have each.
func (b *bench) onTiers(shell string, p place, tiers, times int, before func() error) (list []*stored, err error) {
	j, policy, err := b.startOnTiers(shell, p, "rank")
	if err != nil {
		return nil, err
	}
	for range times {
		if err := before(); err != nil {
			return nil, err
		}
		x, err := j.store(tiers)
		if err != nil {
			j.kill()
			return nil, fmt.Errorf("%s: %w\n%s", policy, err, j.said.String())
		}
		tell("%s: pause %v, saved in %v, on tiers %v, processor time %v, memory %d MiB", policy, x.pause, x.save, x.redundant, x.cpu, x.memory>>20)
		list = append(list, x)
	}
	return list, j.end()
}

// startOnTiers starts a run on hosts, and waits until its first rank computes.
func (b *bench) startOnTiers(shell string, p place, role string) (j *job, policy string, err error) {
	policy, names := p.policy, make([]string, p.hosts)
	for i := range names {
		names[i] = b.net.Hosts[i] + ":1"
	}
	b.jobs++
	j = &job{b: b, files: filepath.Join(b.tmp, fmt.Sprintf("job%d", b.jobs)), ended: make(chan error, 1)}
	policy = strings.TrimSuffix("local="+filepath.Join(b.tmp, "local")+","+strings.ReplaceAll(policy, "KEY", filepath.Base(j.files)), ",")
	args := []string{"-c", `exec $0 ip "$@"`, b.pin(b.net.Hosts[0]), "netns", "exec", b.net.Hosts[0], b.cairn, "run", "--run", j.runDir(), "-n", strconv.Itoa(p.hosts), "--every", "24h", "--retries", "0",
		"--hosts", strings.Join(names, ","), "--rsh", shell + " {host}", "--tiers", policy,
		b.self, "-as", role, "-size", strconv.FormatInt(p.size, 10), "-dirty", "1", "-period", "100ms", "-files", j.files}
	j.cmd = exec.CommandContext(b.ctx, "sh", args...)
	j.cmd.Dir = b.tmp
	j.cmd.Cancel = func() error { return j.cmd.Process.Signal(os.Interrupt) }
	j.cmd.WaitDelay = 20 * time.Second
	j.cmd.Stderr = &j.said
	if err := j.cmd.Start(); err != nil {
		return nil, "", err
	}
	go func() { j.ended <- j.cmd.Wait() }()
	return j, policy, j.await(j.files + ".begun")
}

// store takes a checkpoint, and waits until so many tiers have it.
func (j *job) store(tiers int) (*stored, error) {
	pid, err := j.helper()
	if err != nil {
		return nil, err
	}
	x := &stored{redundant: make(map[string]time.Duration)}
	cpu, err := processorTime(pid)
	if err != nil {
		return nil, err
	}
	asked := time.Now()
	st, err := client.Checkpoint(j.b.ctx, j.runDir(), "benchmark")
	if err != nil {
		return nil, err
	}
	x.pause, x.save = time.Duration(st.PauseNS), st.Time.Sub(asked)
	err = j.until(10*time.Millisecond, func() bool {
		if m, err := memoryOf(pid); err == nil {
			x.memory = max(x.memory, m.private)
		}
		clear(x.redundant)
		text, _ := os.ReadFile(filepath.Join(j.runDir(), events.FileName))
		for line := range bytes.Lines(text) {
			var e events.Event
			if json.Unmarshal(line, &e) == nil && e.Kind == events.Tier && e.Tier != nil && e.Index == st.Index {
				kind, _, _ := strings.Cut(e.Tier.Tier, "=")
				x.redundant[kind] = e.Time.Sub(st.Time)
			}
		}
		return len(x.redundant) >= tiers
	})
	if err != nil {
		return nil, err
	}
	after, err := processorTime(pid)
	x.cpu = after - cpu
	return x, err
}

// helper returns the process of the first host's helper.
func (j *job) helper() (int, error) {
	out, err := exec.CommandContext(j.b.ctx, "ip", "netns", "pids", j.b.net.Hosts[0]).Output()
	if err != nil {
		return 0, err
	}
	for _, f := range strings.Fields(string(out)) {
		text, _ := os.ReadFile("/proc/" + f + "/cmdline")
		args := strings.Split(string(text), "\x00")
		if len(args) > 1 && args[0] == j.b.cairn && args[1] == "_host" {
			return strconv.Atoi(f)
		}
	}
	return 0, errors.New("the helper of the first host was not found")
}

// processorTime returns what a process has used.
func processorTime(pid int) (time.Duration, error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	_, after, ok := strings.Cut(string(text), ") ")
	f := strings.Fields(after)
	if err != nil || !ok || len(f) < 13 {
		return 0, fmt.Errorf("process %d: %w", pid, cmp.Or(err, errors.New("it has ended")))
	}
	user, err1 := strconv.Atoi(f[11])
	system, err2 := strconv.Atoi(f[12])
	return time.Duration(user+system) * time.Second / 100, errors.Join(err1, err2) // in hundredths, on all architectures of Linux
}

// copyToDisk returns how long a plain copy of so many bytes takes, until they
// are on the disk of the shared directory.
func (b *bench) copyToDisk(size int64) (time.Duration, error) {
	f, err := os.CreateTemp(filepath.Join(b.tmp, "shared"), "copy-")
	if err != nil {
		return 0, err
	}
	defer os.Remove(f.Name())
	defer f.Close()
	c := newContent(8 << 20)
	c.write(0, len(c.versions), 1)
	part := make([]byte, 0, 8<<20)
	for _, w := range c.words {
		part = append(part, byte(w), byte(w>>8), byte(w>>16), byte(w>>24), byte(w>>32), byte(w>>40), byte(w>>48), byte(w>>56))
	}
	began := time.Now()
	for left := size; left > 0 && err == nil; left -= int64(len(part)) {
		_, err = f.Write(part[:min(int64(len(part)), left)])
	}
	if err == nil {
		err = f.Sync()
	}
	return time.Since(began), err
}

// beginTiers prepares disks, an object store, and links with a limited rate.
func (b *bench) beginTiers() (shell string, end func(), err error) {
	if shell, err = b.disks(); err != nil {
		return "", nil, err
	}
	unmount := func() { exec.Command("umount", filepath.Join(b.tmp, "disks")).Run() }
	url, closeStore, err := b.store()
	if err != nil {
		unmount()
		return "", nil, err
	}
	for _, v := range [][2]string{{"AWS_ACCESS_KEY_ID", s3test.AccessKey}, {"AWS_SECRET_ACCESS_KEY", s3test.SecretKey}, {"AWS_ENDPOINT_URL", url}, {"AWS_REGION", "us-east-1"}} {
		os.Setenv(v[0], v[1])
	}
	return shell, func() {
		b.limit(0)
		closeStore()
		unmount()
	}, b.limit(tierRate)
}

// tiers measures storage tiers.
func (b *bench) tiers() ([]figure, error) {
	shell, end, err := b.beginTiers()
	if err != nil {
		return nil, err
	}
	defer end()
	redundant := figure{Title: fmt.Sprintf("from the commit until a tier has it: %d MiB, %d Mbit/s", *tierSize>>20, tierRate), Unit: "a plain copy over the link; for shared, to the disk"}
	pauses := figure{Title: "pause of the program", Unit: "the pause with local alone"}
	costs := figure{Title: fmt.Sprintf("a checkpoint each %.0f s, all four tiers busy", between.Seconds()), Unit: fmt.Sprintf("%.0f s of one processor", between.Seconds())}
	memories := figure{Title: "memory of a helper, in addition to that with local alone", Unit: fmt.Sprintf("%d MiB", boundHelper>>20)}
	none := func() error { return nil }
	alone, err := b.onTiers(shell, place{"", "", 3, false, *tierSize}, 0, *rounds+1, none)
	if err != nil {
		return nil, err
	}
	pause := median(field(alone[1:], func(x *stored) float64 { return x.pause.Seconds() }))
	for _, p := range b.places() {
		var raw []float64
		list, err := b.onTiers(shell, p, 1, *rounds+1, func() error {
			took, err := b.copyToDisk(p.size)
			if err == nil && !p.disk {
				var s *stages
				if s, err = b.alone("send", *tierSize); err == nil {
					took = time.Duration(s.Transfer)
				}
			}
			raw = append(raw, took.Seconds())
			return err
		})
		if err != nil {
			return nil, err
		}
		var ratios []float64
		for i, x := range list[1:] { // the first one makes directories and buffers
			for _, d := range x.redundant {
				ratios = append(ratios, d.Seconds()/raw[i+1])
			}
		}
		redundant.Bars = append(redundant.Bars, bar{Name: p.name, Parts: []float64{median(ratios)}, Bound: boundRedundant, Least: least(ratios),
			Note: fmt.Sprintf("the copy takes %.2f s; saved on the host in %.2f s before", median(raw[1:]), median(field(list[1:], func(x *stored) float64 { return x.save.Seconds() })))})
		if p.size != *tierSize {
			redundant.Bars[len(redundant.Bars)-1].Note += fmt.Sprintf("; %d MiB", p.size>>20)
			continue
		}
		pauses.Bars = append(pauses.Bars, bar{Name: p.name, Parts: []float64{median(field(list[1:], func(x *stored) float64 { return x.pause.Seconds() })) / pause}, Note: fmt.Sprintf("local alone pauses for %.1f ms", pause*1000)})
	}
	all := ""
	for _, p := range b.places() {
		all += "," + p.policy
	}
	list, err := b.onTiers(shell, place{"", strings.TrimPrefix(all, ","), 3, false, *tierSize}, 4, *rounds+1, none)
	if err != nil {
		return nil, err
	}
	for _, c := range []struct {
		name string
		list []*stored
	}{{"local alone", alone}, {"all tiers", list}} {
		x := bar{Name: c.name, Parts: []float64{
			median(field(c.list[1:], func(x *stored) float64 { return x.pause.Seconds() })) / between.Seconds(),
			median(field(c.list[1:], func(x *stored) float64 { return x.cpu.Seconds() })) / between.Seconds()}}
		if c.name == "all tiers" {
			x.Bound = boundSlowdown
		}
		costs.Parts, costs.Bars = []string{"pause", "processor time of the helper"}, append(costs.Bars, x)
	}
	memory := func(x *stored) float64 { return float64(x.memory) }
	base := median(field(alone, memory))
	memories.Bars = []bar{{Name: "all tiers", Parts: []float64{(median(field(list, memory)) - base) / boundHelper}, Bound: 1, Note: fmt.Sprintf("local alone: %.0f MiB", base/(1<<20))}}
	return []figure{redundant, pauses, costs, memories}, nil
}

// coder runs the benchmarks of package erasure, which compare it with the
// coders of package reedsolomon.
func (b *bench) coder() ([]figure, error) {
	out, err := exec.CommandContext(b.ctx, "go", "test", "-run", "^$", "-bench", "Encode|Rebuild", "-benchtime", "8x", "./internal/tier/erasure").CombinedOutput()
	if err != nil {
		return nil, fmt.Errorf("go test: %w\n%s", err, out)
	}
	fig := figure{Title: "Reed–Solomon coder: speed, at least 0.7", Unit: "the stream coder of reedsolomon, processor time"}
	for line := range strings.Lines(string(out)) {
		f := strings.Fields(line)
		name, ok := strings.CutPrefix(line, "Benchmark")
		if !ok || len(f) < 4 {
			continue
		}
		name, _, _ = strings.Cut(strings.Fields(name)[0], "-")
		x := bar{Name: strings.ToLower(strings.Replace(name, "/", " ", 1)), Least: 0}
		mem := ""
		for i := 2; i+1 < len(f); i += 2 {
			v, err := strconv.ParseFloat(f[i], 64)
			switch {
			case err != nil:
				return nil, err
			case f[i+1] == "×stream-cpu":
				x.Parts = []float64{v}
			case f[i+1] == "×mem-cpu":
				mem = f[i]
			}
		}
		x.Note = "of its coder of memory " + mem
		if x.Parts == nil {
			return nil, fmt.Errorf("no figure in %q", line)
		}
		if x.AtLeast = boundCoder; x.sum() < boundCoder {
			x.Note += "; below 0.7: NOT HELD"
		}
		fig.Bars = append(fig.Bars, x)
	}
	return []figure{fig}, nil
}

func field(list []*stored, f func(*stored) float64) (out []float64) {
	for _, x := range list {
		out = append(out, f(x))
	}
	return out
}

func least(l []float64) float64 {
	v := l[0]
	for _, x := range l {
		v = min(v, x)
	}
	return v
}
