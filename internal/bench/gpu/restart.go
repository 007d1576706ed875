package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/cairnrun/cairn/device"
)

// saveAt is where the run has saved from which the others resume, as in the
// paper.
const saveAt = 0.75

// restarts measures how long programs of the testbed take that resume from a
// checkpoint at three quarters of their work, as figures 8 to 11 of Losada et
// al. do: on the same device, on another kind of device, on more and on fewer
// devices.
func restarts(ctx context.Context) error {
	path, err := testbedProgram(ctx)
	if err != nil {
		return err
	}
	on, err := restartDevices()
	if err != nil {
		return err
	}
	fmt.Printf("\nRestarts (medians of %d). 1 is the undisturbed run on the devices that it resumes on, with the start of the process.\n", *restartRounds)
	fmt.Printf("One device: %s; others: %s; two devices: %s\n", on.one, strings.Join(on.others, " "), strings.Join(on.two, " "))
	picked := func(all ...string) (out []string) {
		for _, name := range all {
			if slices.Contains(strings.Split(*names, ","), name) {
				out = append(out, name)
			}
		}
		return out
	}
	all := picked("ft", "floyd", "spmv", "ftmd", "summa", "mg", "shwa")
	unit := "run time, the undisturbed run being 1"
	parts := []string{"read the checkpoint", "start the process, open devices, set up", "compute the last quarter"}

	same := &figure{Name: "devices-restart-same", Title: "Restart on the same device after three quarters, size " + *size + " (figure 8 of Losada et al.)", Unit: unit, Parts: parts,
		Note: "The bars of the paper have no numbers. Its text bounds reading and positioning by 25 s; with its run times, the bars are at most this."}
	r := restartTable("same device, size " + *size)
	r.paper = true
	for _, name := range all {
		t, err := r.measure(ctx, path, name, *size, on.one, on.one)
		if err != nil {
			return err
		}
		same.Groups = append(same.Groups, group{name, []bar{t.bar("resumed"), {Name: "paper", Parts: []float64{papers[name].restarted(saveAt)}, Paper: true, Most: true}}})
	}
	if err := same.save(); err != nil {
		return err
	}

	other := &figure{Name: "devices-restart-other", Title: "Restart on another kind of device, size " + *otherSize + " (figure 9)", Unit: unit, Parts: parts,
		Note: "The paper went from a GPU to the same GPU, a Xeon Phi and processors. A Xeon Phi has no substitute here."}
	r = restartTable("another kind of device, size " + *otherSize)
	for _, name := range all {
		g := group{Name: name}
		for _, to := range append([]string{on.one}, on.others...) {
			t, err := r.measure(ctx, path, name, *otherSize, on.one, to)
			if err != nil {
				return err
			}
			g.Bars = append(g.Bars, t.bar(backendOf(on.one)+" → "+backendOf(to)))
		}
		other.Groups = append(other.Groups, g)
	}
	if err := other.save(); err != nil {
		return err
	}

	number := &figure{Name: "devices-restart-number", Title: "Restart on more and on fewer devices, size " + *otherSize + " (figure 10)", Unit: unit, Parts: parts,
		Note: "Devices: " + strings.Join(append([]string{on.one}, on.two...), "; ")}
	r = restartTable("more and fewer devices, size " + *otherSize)
	for _, name := range picked("ftmd", "summa", "mg", "shwa") {
		for _, two := range on.two {
			g := group{Name: name}
			for _, way := range [][2]string{{on.one, two}, {two, on.one}, {two, two}} {
				t, err := r.measure(ctx, path, name, *otherSize, way[0], way[1])
				if err != nil {
					return err
				}
				g.Bars = append(g.Bars, t.bar(kinds(way[0])+" → "+kinds(way[1])))
			}
			number.Groups = append(number.Groups, g)
		}
	}
	if err := number.save(); err != nil {
		return err
	}

	anywhere := &figure{Name: "devices-restart-anywhere", Title: "Restart of shwa on another kind and number of devices, size " + *otherSize + " (figure 11)", Unit: unit, Parts: parts,
		Note: "The paper also changed the operating system, which has no substitute here."}
	r = restartTable("another kind and number of devices, size " + *otherSize)
	for _, name := range picked("shwa") {
		for _, from := range []string{"host", "host,host,host"} {
			g := group{Name: "from " + kinds(from)}
			for _, to := range append([]string{on.one, "host,host"}, on.two...) {
				t, err := r.measure(ctx, path, name, *otherSize, from, to)
				if err != nil {
					return err
				}
				g.Bars = append(g.Bars, t.bar("on "+kinds(to)))
			}
			anywhere.Groups = append(anywhere.Groups, g)
		}
	}
	return anywhere.save()
}

// restartTable begins a table.
func restartTable(title string) *restartRows {
	fmt.Printf("\n%s\n", title)
	fmt.Printf(restartRow, "program", "saved on", "resumed on", "undisturbed", "resumed", "ratio", "read", "start", "compute", "state", "paper", "")
	return &restartRows{plain: make(map[string]restartTimes)}
}

const restartRow = "  %-6s %-24s %-24s %11s %9s %6s %8s %8s %8s %9s %8s  %s\n"

type restartRows struct {
	plain map[string]restartTimes // undisturbed runs
	paper bool                    // the paper says how long it may take
}

// restartTimes holds medians in seconds.
type restartTimes struct {
	all, read, start, compute float64
	plain                     float64 // all, of the undisturbed run
	digest                    string
	state                     int64
}

func (t *restartTimes) bar(name string) bar {
	return bar{Name: name, Parts: []float64{t.read / t.plain, t.start / t.plain, t.compute / t.plain}}
}

// measure saves at three quarters on some devices, and resumes on others. The
// result must have the bits of the undisturbed run.
func (r *restartRows) measure(ctx context.Context, path, name, size, from, to string) (t restartTimes, err error) {
	key := name + " " + to
	plain, ok := r.plain[key]
	if !ok {
		if plain, err = r.runs(ctx, path, name, to, func(int) ([]string, error) { return []string{"-size", size}, nil }); err != nil {
			return t, err
		}
		r.plain[key] = plain
	}
	dir := filepath.Join(*tmpDir, "restart")
	defer os.RemoveAll(dir)
	saved := filepath.Join(dir, "saved")
	s, _, err := runTestbed(ctx, path, name, from, "-size", size, "-dir", saved, "-stop-at", fmt.Sprint(saveAt))
	if err != nil {
		return t, err
	}
	t, err = r.runs(ctx, path, name, to, func(round int) ([]string, error) {
		again := saved // the last one need not keep it: when the work is done, checkpoints are removed
		if round < *restartRounds-1 {
			again = filepath.Join(dir, fmt.Sprint(round))
			if err := os.CopyFS(again, os.DirFS(saved)); err != nil {
				return nil, err
			}
		}
		return []string{"-size", size, "-dir", again}, nil
	})
	if err != nil {
		return t, err
	}
	t.plain, t.state = plain.all, s.State
	paper := ""
	if r.paper {
		paper = fmt.Sprintf("≤ %.2f", papers[name].restarted(saveAt))
	}
	met := "same bits"
	if t.digest != plain.digest {
		met = missedBound("the result has OTHER BITS")
	}
	s1 := func(v float64) string { return fmt.Sprintf("%.2f s", v) }
	fmt.Printf(restartRow, name, from, to, s1(plain.all), s1(t.all), fmt.Sprintf("%.2f", t.all/plain.all), s1(t.read), s1(t.start), s1(t.compute),
		fmt.Sprintf("%.1f MB", float64(t.state)/1e6), paper, met)
	return t, nil
}

// runs runs a program several times.
func (r *restartRows) runs(ctx context.Context, path, name, on string, args func(round int) ([]string, error)) (t restartTimes, err error) {
	var all, read, start, compute []float64
	for round := range *restartRounds {
		list, err := args(round)
		if err != nil {
			return t, err
		}
		resume := slices.Contains(list, "-dir")
		p, took, err := runTestbed(ctx, path, name, on, list...)
		if err != nil {
			return t, err
		}
		if resume && (!p.Resumed || float64(p.From) < saveAt*float64(p.Steps)-1) {
			return t, fmt.Errorf("testbed %s on %s has not resumed at %v of its steps: %+v", name, on, saveAt, p)
		}
		all, read, compute = append(all, took), append(read, p.Restore), append(compute, p.Loop)
		start = append(start, took-p.Restore-p.Loop)
		if t.digest != "" && t.digest != p.Digest {
			return t, fmt.Errorf("%s on %s: results differ between runs", name, on)
		}
		t.digest = p.Digest
	}
	t.all, t.read, t.start, t.compute = median(all), median(read), median(start), median(compute)
	return t, nil
}

// restartOn are the devices of the restarts.
type restartOn struct {
	one    string
	others []string // of other kinds
	two    []string // each two devices
}

// restartDevices finds the devices: the first one, one of each other kind, and
// pairs of them.
func restartDevices() (on restartOn, err error) {
	list := *list
	devs, err := device.Open(list)
	if err != nil {
		return on, err
	}
	if list == "" {
		if devs, err = device.Devices(); err != nil {
			return on, err
		}
	}
	if len(devs) == 0 {
		return on, fmt.Errorf("there is no device %q", list)
	}
	on.one = devs[0].Info().ID
	if devs[0].Info().Backend == "host" {
		on.one = "host"
	}
	for _, backend := range []string{"cuda", "opencl"} {
		found, err := device.Open(backend)
		if err != nil || len(found) == 0 {
			continue
		}
		if id := found[0].Info().ID; backendOf(id) != backendOf(on.one) {
			on.others = append(on.others, id)
			on.two = append(on.two, on.one+","+id)
		} else if len(found) > 1 {
			on.two = append(on.two, on.one+","+found[1].Info().ID)
		}
	}
	if backendOf(on.one) != "host" {
		on.others = append(on.others, "host")
	}
	if len(on.two) == 0 {
		on.two = []string{on.one + ",host"}
	}
	return on, nil
}

// backendOf returns the backend of a device.
func backendOf(id string) string {
	backend, _, _ := strings.Cut(id, ":")
	return backend
}

// kinds returns the backends of a list of devices.
func kinds(list string) string {
	var out []string
	for id := range strings.SplitSeq(list, ",") {
		out = append(out, backendOf(id))
	}
	return strings.Join(out, "+")
}
