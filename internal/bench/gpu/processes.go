package main

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"time"
	"unsafe"

	"github.com/cairnrun/cairn"
	"github.com/cairnrun/cairn/device"
	"github.com/cairnrun/cairn/internal/dl"
)

// splitProcesses lets several processes save at the same time, each its part of
// a state of a fixed size, to files in one directory.
func splitProcesses(ctx context.Context, d *target) error {
	forms := []string{"device"}
	if d.Info().Backend == "cuda" {
		forms = append(forms, "managed")
	}
	f := &figure{Name: "devices-split", Title: fmt.Sprintf("One checkpoint of %g GiB on host and device (figure 2 of Parasyris and Bautista Gomez)", *total), Unit: "time until it is durable in files; 1: half on the host, half in device memory, one process",
		Parts: []string{"paused", "the program runs"},
		Note:  "The paper's figure has no numbers. Its result: the time is the same wherever the data is, for 4 and for 32 processes."}
	fmt.Printf("\n%g GiB in files, all changed, the host's part in ordinary variables (medians of %d; of the processes, the slowest)\n", *total, splitRounds)
	const row = "  %-10s %-8s %-22s %10s %10s %10s\n"
	fmt.Printf(row, "processes", "memory", "", "pause", "safe after", "ratio")
	one := 0.0 // the first, with half of it on the host
	for _, n := range strings.Split(*states, ",") {
		for _, form := range forms {
			g := group{Name: n + " processes, " + form + " memory"}
			for _, percent := range []int{50, 10, 90} {
				pause, safe, err := together(ctx, d.Info().ID, n, form, percent)
				if err != nil {
					return fmt.Errorf("%s processes, %s memory, %d %% host: %w", n, form, percent, err)
				}
				one = cmp.Or(one, safe)
				name := fmt.Sprintf("%d %% host, %d %% %s", percent, 100-percent, form)
				fmt.Printf(row, n, form, name, fmt.Sprintf("%.1f ms", 1e3*pause), fmt.Sprintf("%.2f s", safe), fmt.Sprintf("%.2f", safe/one))
				g.Bars = append(g.Bars, bar{Name: name, Parts: []float64{pause / one, (safe - pause) / one}})
			}
			f.Groups = append(f.Groups, g)
		}
	}
	return f.save()
}

// splitRounds is the number of checkpoints of a process that count.
const splitRounds = 3

// together starts processes, lets them save at the same time, and returns
// medians of the slowest times.
func together(ctx context.Context, id, processes, form string, percent int) (pause, safe float64, err error) {
	n, err := strconv.Atoi(processes)
	if err != nil || n < 1 {
		return 0, 0, fmt.Errorf("%q is no number of processes", processes)
	}
	self, err := os.Executable()
	if err != nil {
		return 0, 0, err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	dir, err := os.MkdirTemp(*tmpDir, "split")
	if err != nil {
		return 0, 0, err
	}
	defer os.RemoveAll(dir)
	type process struct {
		cmd *exec.Cmd
		in  io.WriteCloser
		out *bufio.Scanner
	}
	var list []process
	defer func() {
		for _, p := range list {
			p.in.Close()
			err = errors.Join(err, p.cmd.Wait())
		}
	}()
	bytes := int64(*total*(1<<30)) / int64(n)
	for i := range n {
		cmd := exec.CommandContext(ctx, self, "-member", fmt.Sprintf("%s,%d,%d", form, percent, bytes), "-dir", filepath.Join(dir, fmt.Sprint(i)))
		cmd.Env = append(os.Environ(), "CAIRN_DEVICES="+id)
		cmd.Stderr = os.Stderr
		in, err := cmd.StdinPipe()
		if err != nil {
			return 0, 0, err
		}
		out, err := cmd.StdoutPipe()
		if err != nil {
			return 0, 0, err
		}
		if err := cmd.Start(); err != nil {
			return 0, 0, err
		}
		list = append(list, process{cmd, in, bufio.NewScanner(out)})
	}
	next := func(p process) (string, error) {
		if !p.out.Scan() {
			return "", errors.Join(errors.New("a process has ended"), p.out.Err())
		}
		return p.out.Text(), nil
	}
	var pauses, safes []float64
	for round := range splitRounds + 1 {
		for _, p := range list {
			if _, err := next(p); err != nil { // it is ready
				return 0, 0, err
			}
		}
		for _, p := range list {
			if _, err := fmt.Fprintln(p.in, "save"); err != nil {
				return 0, 0, err
			}
		}
		pause, safe := 0.0, 0.0
		for _, p := range list {
			text, err := next(p)
			if err != nil {
				return 0, 0, err
			}
			var a, b float64
			if _, err := fmt.Sscan(text, &a, &b); err != nil {
				return 0, 0, err
			}
			pause, safe = max(pause, a), max(safe, b)
		}
		if round > 0 { // the first one allocates memory
			pauses, safes = append(pauses, pause), append(safes, safe)
		}
	}
	return median(pauses), median(safes), nil
}

// splitMember is one of the processes. It says that it is ready, waits for a
// line, saves, and prints the pause and the time until the checkpoint is
// durable, in seconds.
func splitMember(ctx context.Context, what string) error {
	f := strings.Split(what, ",")
	if len(f) != 3 {
		return fmt.Errorf("-member %q is not FORM,PERCENT,BYTES", what)
	}
	percent, err := strconv.Atoi(f[1])
	bytes, e := strconv.ParseInt(f[2], 10, 64)
	if err := errors.Join(err, e); err != nil {
		return err
	}
	devs, err := device.Devices()
	if err != nil {
		return err
	}
	host := make([]uint32, bytes/100*int64(percent)/4)
	changeWords(host, true)
	n := int(bytes/4) - len(host)
	x := device.New[uint32](n)
	if f[0] == "managed" {
		runtime.LockOSThread() // to which a CUDA context belongs
		defer runtime.UnlockOSThread()
		if x, err = managed(devs[0], n); err != nil {
			return err
		}
	}
	var info cairn.CheckpointInfo
	p, err := cairn.Open(ctx, cairn.Options{Dir: *tmpDir, Every: time.Hour, OnSaved: func(i cairn.CheckpointInfo) { info = i }})
	if err != nil {
		return err
	}
	defer p.Close()
	cairn.Protect(p, "host", &host)
	cairn.Protect(p, "x", x)
	if _, err := p.Restore(ctx); err != nil {
		return err
	}
	lines := bufio.NewScanner(os.Stdin)
	for round := range splitRounds + 1 {
		changeWords(host, true)
		err := devs[0].Launch(fill, device.Size{1 << 20}.In(256), device.InOut(x), uint32(round), uint64(n))
		if err := errors.Join(err, devs[0].Finish()); err != nil {
			return err
		}
		fmt.Println("ready")
		if !lines.Scan() {
			return errors.New("stdin has ended")
		}
		begin := time.Now()
		if err := p.Checkpoint(ctx); err != nil {
			return err
		}
		fmt.Println(info.Pause.Seconds(), time.Since(begin).Seconds())
	}
	p.Finish()
	return nil
}

// managed returns an array of managed memory, which moves between the host and
// the device by itself. The calling goroutine keeps its thread.
func managed(d *device.Device, n int) (*device.Array[uint32], error) {
	one := device.New[uint32](1) // a launch creates the context
	if err := errors.Join(d.Launch(fill, device.Size{1}, device.Out(one), uint32(0), uint64(1)), d.Finish()); err != nil {
		return nil, err
	}
	cu, err := dl.Open("libcuda.so.1")
	if err != nil {
		return nil, err
	}
	for _, c := range []struct {
		name string
		args []uintptr
	}{
		{"cuDevicePrimaryCtxRetain", []uintptr{slot(0), 0}},
		{"cuCtxSetCurrent", nil},
		{"cuMemAllocManaged", []uintptr{slot(1), uintptr(4 * n), 1}},
	} {
		f, err := cu.Lookup(c.name)
		if err != nil {
			return nil, err
		}
		if c.args == nil {
			c.args = []uintptr{slots[0]}
		}
		if code := int32(dl.Call(f, c.args...)); code != 0 {
			return nil, fmt.Errorf("%s returned %d", c.name, code)
		}
	}
	return device.Raw[uint32](slots[1], n)
}

// slots are written by C, so they must not be on a stack, which may move.
var slots [2]uintptr

func slot(i int) uintptr { return uintptr(unsafe.Pointer(&slots[i])) }
