//go:build linux

package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// testbed lists all programs of examples/testbed.
var testbed = []string{"ft", "floyd", "spmv", "ftmd", "summa", "mg", "shwa"}

// place is a list of devices for a program of the testbed.
type place struct {
	name    string
	devices string // as in CAIRN_DEVICES
	pocl    string // number of devices of the OpenCL library
	n       int    // minimum number of devices that the program sees
}

// places are the possible places.
var places = []place{
	{"host", "host", "pthread", 1},
	{"host+host", "host,host", "pthread", 2},
	{"opencl", "opencl", "pthread", 1},
	{"opencl+opencl", "opencl", "pthread pthread", 2},
	{"host+opencl", "host,opencl", "pthread", 2},
	{"cuda", "cuda", "pthread", 1},
	{"cuda+host", "cuda,host", "pthread", 2},
}

// here holds the places that exist, and why others do not.
var here struct {
	once    sync.Once
	places  []place
	missing map[string]string
}

// found returns the places that exist. The first one is the host.
func found(t *testing.T) []place {
	t.Helper()
	build(t, "./examples/testbed", runtime.GOARCH)
	here.once.Do(func() {
		here.missing = make(map[string]string)
		for _, pl := range places {
			r, out, err := bed(t, pl, "summa")
			switch {
			case err == nil && len(r.Devices) < pl.n:
				here.missing[pl.name] = fmt.Sprintf("there are only %v", r.Devices)
			case err == nil:
				here.places = append(here.places, pl)
			default:
				here.missing[pl.name] = fmt.Sprintf("%v: %s", err, out)
			}
		}
	})
	for name, why := range here.missing {
		if !strings.Contains(why, "there is no device") && !strings.Contains(why, "there are only") {
			t.Fatalf("summa on %s: %s", name, why)
		}
	}
	return here.places
}

// bedReport is the part of the testbed's report that the tests need.
type bedReport struct {
	Devices  []string
	Steps    int
	From     int
	To       int
	Resumed  bool
	Stopped  bool
	Verified bool
	Digest   string
}

// bed runs the testbed and returns its report and its messages.
func bed(t *testing.T, pl place, args ...string) (bedReport, string, error) {
	t.Helper()
	return bedIn(t, []string{build(t, "./examples/testbed", runtime.GOARCH)}, pl, args...)
}

// bedIn does the same for another build of the testbed, with the command that
// runs it.
func bedIn(t *testing.T, argv []string, pl place, args ...string) (r bedReport, out string, err error) {
	t.Helper()
	report := filepath.Join(t.TempDir(), "report.json")
	argv = append(append(slices.Clone(argv), "-devices", pl.devices, "-json", report), args...)
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	cmd := exec.CommandContext(ctx, argv[0], argv[1:]...)
	cmd.Env = append(os.Environ(), pl.env()...)
	text, err := cmd.CombinedOutput()
	if err != nil {
		return r, string(text), err
	}
	return readBed(t, report), string(text), nil
}

// env returns the environment variables of the place.
func (pl place) env() []string {
	env := []string{"CAIRN_DEVICES=" + pl.devices, "POCL_DEVICES=" + pl.pocl}
	if stressed() {
		// Kills at random moments might damage the user's cache. Otherwise the
		// tests share it with those of other packages, because compiling takes
		// most of their time.
		env = append(env, "POCL_CACHE_DIR="+filepath.Join(binaries.dir, "kernels"))
	}
	return env
}

func readBed(t *testing.T, file string) (r bedReport) {
	t.Helper()
	text, err := os.ReadFile(file)
	if err == nil {
		err = json.Unmarshal(text, &r)
	}
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// TestDevices_ResumedOnOthers stops every program of the testbed in the middle
// on every kind and number of devices, and continues on every other one. The
// result must equal that of an undisturbed run on the host, bit for bit. The
// short test begins at one place with each program.
func TestDevices_ResumedOnOthers(t *testing.T) {
	places := found(t)
	for name, why := range here.missing {
		t.Run(name, func(t *testing.T) { t.Skip(why) })
	}
	for k, name := range testbed {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			want, out, err := bed(t, places[0], "-verify", name)
			if err != nil || !want.Verified || want.Digest == "" {
				t.Fatalf("undisturbed: %v %+v\n%s", err, want, out)
			}
			for j, from := range places {
				if !stressed() && j != k%len(places) {
					continue
				}
				dir := filepath.Join(t.TempDir(), "ckpt")
				stopped, out, err := bed(t, from, "-dir", dir, "-stop-at", "0.5", name)
				if err != nil || !stopped.Stopped || stopped.To != want.Steps/2 || stopped.Digest != "" {
					t.Fatalf("stopped on %s: %v %+v\n%s", from.name, err, stopped, out)
				}
				verifyCheckpoints(t, dir)
				for i, to := range places {
					if !stressed() && i != (j+k/2)%len(places) {
						continue
					}
					again := filepath.Join(t.TempDir(), "ckpt")
					if err := os.CopyFS(again, os.DirFS(dir)); err != nil {
						t.Fatal(err)
					}
					args := []string{"-dir", again, name}
					if i == 0 { // once, because it does not depend on where the result comes from
						args = append([]string{"-verify"}, args...)
					}
					got, out, err := bed(t, to, args...)
					if err != nil {
						t.Fatalf("from %s to %s: %v\n%s", from.name, to.name, err, out)
					}
					if !got.Resumed || got.From != stopped.To || got.To != want.Steps || got.Verified != (i == 0) {
						t.Fatalf("from %s to %s: %+v\n%s", from.name, to.name, got, out)
					}
					if got.Digest != want.Digest {
						t.Errorf("from %s to %s: the result's digest is %s, not %s\n%s", from.name, to.name, got.Digest, want.Digest, out)
					}
				}
			}
		})
	}
}

// TestDevices_HDF5 shows that other tools find an array that was on a device
// under its name, with its dimensions and values.
func TestDevices_HDF5(t *testing.T) {
	needH5py(t)
	need(t, "h5dump")
	result := filepath.Join(t.TempDir(), "result")
	if _, out, err := bed(t, places[0], "-result", result, "floyd"); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	for _, pl := range found(t) {
		dir := filepath.Join(t.TempDir(), "ckpt")
		r, out, err := bed(t, pl, "-dir", dir, "-stop-at", "1", "floyd") // when everything is computed
		if err != nil || !r.Stopped || r.To != r.Steps {
			t.Fatalf("%s: %v %+v\n%s", pl.name, err, r, out)
		}
		if out := python(t, sumRows, newest(t, dir), result); out != "ok\n" {
			t.Errorf("%s: %s", pl.name, out)
		}
		must(t, tool(t, "h5dump", "-H", "-d", "/MemBlocks/dist", newest(t, dir)), "H5T_STD_U32LE", "SIMPLE { ( 128, 128 ) / ( 128, 128 ) }")
	}
}

// sumRows sums the distances from each node and compares the sums with the
// result, which has sums and digests alternately.
const sumRows = `
import sys, h5py, numpy
dist = h5py.File(sys.argv[1], "r")["MemBlocks/dist"]
want = numpy.fromfile(sys.argv[2], "<f8")[0::2]
far = 1 << 30
got = numpy.where(dist[:] < far, dist[:], 0).sum(axis=1, dtype="u8")
if dist.shape != (128, 128):
    print("the shape is", dist.shape)
elif want.sum() == 0 or not numpy.array_equal(got, want):
    print("the sums are", got, "instead of", want)
else:
    print("ok")
`

// TestDevices_OtherArchitecture moves runs from an OpenCL device to other
// architectures, one of them big-endian, and back. (The omitted programs
// compute sines, which differ between machines.)
func TestDevices_OtherArchitecture(t *testing.T) {
	others := emulators(t)
	route := []struct {
		place
		prefix []string
		goarch string
	}{{place: places[3], goarch: runtime.GOARCH}}
	if found(t); here.missing[route[0].name] != "" {
		route[0].place = places[1]
	}
	for _, e := range others {
		leg := route[0]
		leg.place, leg.prefix, leg.goarch = places[1], []string{e.name}, e.goarch
		route = append(route, leg)
	}
	route = append(route, route[0])
	for _, name := range []string{"floyd", "spmv", "summa", "mg", "shwa"} {
		if !stressed() && name != "spmv" {
			continue
		}
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			want, out, err := bed(t, places[0], name)
			if err != nil {
				t.Fatalf("undisturbed: %v\n%s", err, out)
			}
			dir, last := filepath.Join(t.TempDir(), "ckpt"), 0
			for i, leg := range route {
				args := []string{"-dir", dir, name}
				if i < len(route)-1 {
					args = append([]string{"-stop-at", fmt.Sprint(float64(i+1) / float64(len(route)))}, args...)
				}
				r, out, err := bedIn(t, append(leg.prefix, build(t, "./examples/testbed", leg.goarch)), leg.place, args...)
				if err != nil || r.Resumed != (i > 0) || r.From != last || r.To <= last {
					t.Fatalf("%s on %s: %v %+v\n%s", leg.name, leg.goarch, err, r, out)
				}
				if last = r.To; i == len(route)-1 && r.Digest != want.Digest {
					t.Errorf("the result's digest is %s, not %s", r.Digest, want.Digest)
				}
			}
		})
	}
}

// supervised runs floyd, which takes some seconds, under cairn run. disturb is
// called when there is a checkpoint, and returns false if it was too late.
func supervised(t *testing.T, pl place, disturb func(s *supervisor, pid int) bool) (*runOf, string) {
	t.Helper()
	bin := build(t, "./examples/testbed", runtime.GOARCH)
	for range 5 {
		root := t.TempDir()
		report := filepath.Join(root, "report.json")
		r := newRun(t, bin, "-dir", filepath.Join(root, "checkpoints"), "-size", "small", "-json", report, "floyd")
		s := r.startIn(pl.env(), "--every-points", "50")
		if _, ok := s.sees(0, "checkpoint 1 committed"); !ok {
			t.Fatalf("there was no checkpoint:\n%s", s.text())
		}
		st := s.state()
		if st == nil || len(st.Ranks) == 0 || !runs(st.Ranks[0].Pid, bin) || !disturb(s, st.Ranks[0].Pid) {
			t.Log("the program was too quick")
			continue
		}
		return r, report
	}
	t.Fatal("the program was always too quick")
	return nil, ""
}

// TestDevices_Killed kills a program with devices under the supervisor, which
// restarts it.
func TestDevices_Killed(t *testing.T) {
	onlyLong(t)
	places := found(t)
	want, out, err := bed(t, places[0], "-size", "small", "floyd")
	if err != nil {
		t.Fatalf("undisturbed: %v\n%s", err, out)
	}
	for _, pl := range places {
		t.Run(pl.name, func(t *testing.T) {
			t.Parallel()
			var s *supervisor
			_, report := supervised(t, pl, func(sup *supervisor, pid int) bool {
				s = sup
				return syscall.Kill(pid, syscall.SIGKILL) == nil
			})
			s.finishes()
			r := readBed(t, report)
			if !r.Resumed || r.From == 0 {
				t.Fatalf("it was not rolled back: %+v\n%s", r, s.text())
			}
			if r.Digest != want.Digest {
				t.Errorf("the result's digest is %s, not %s\n%s", r.Digest, want.Digest, s.text())
			}
		})
	}
}

// TestDevices_Stopped stops a supervised program by 'cairn stop' and starts it
// again with other devices.
func TestDevices_Stopped(t *testing.T) {
	onlyLong(t)
	places := found(t)
	want, out, err := bed(t, places[0], "-size", "small", "floyd")
	if err != nil {
		t.Fatalf("undisturbed: %v\n%s", err, out)
	}
	for i, from := range places {
		if !stressed() && i != 2%len(places) {
			continue
		}
		to := places[(i+1)%len(places)]
		t.Run(from.name+" to "+to.name, func(t *testing.T) {
			t.Parallel()
			run, report := supervised(t, from, func(s *supervisor, pid int) bool {
				// Keep it stopped until the supervisor knows.
				if stop(pid) != nil {
					return false
				}
				stop := exec.Command(build(t, "./cmd/cairn", runtime.GOARCH), "stop", s.run)
				if err := stop.Start(); err != nil {
					t.Fatal(err)
				}
				for {
					st := s.state()
					_, _, over := s.said()
					if st == nil || st.State != "running" || over {
						break
					}
					time.Sleep(time.Millisecond)
				}
				syscall.Kill(pid, syscall.SIGCONT)
				return stop.Wait() == nil && s.ends() == exitStopped
			})
			if _, err := os.Stat(report); err == nil {
				t.Fatal("it has a result, though it was stopped")
			}
			s := run.startIn(to.env(), "--every-points", "50")
			s.finishes()
			r := readBed(t, report)
			if !r.Resumed || r.From == 0 || len(r.Devices) < to.n || r.Digest != want.Digest {
				t.Errorf("%+v, the digest should be %s\n%s", r, want.Digest, s.text())
			}
		})
	}
}

// TestDevices_Lost runs a program that loses its device, under the supervisor.
// If it was the only one, the program ends and is restarted; otherwise it
// continues by itself.
func TestDevices_Lost(t *testing.T) {
	t.Parallel()
	bin := build(t, "./internal/e2e/testdata/losing", runtime.GOARCH)
	want := undisturbed(t, 1, bin)
	if strings.Count(want, "step") != 12 {
		t.Fatalf("undisturbed:\n%s", want)
	}
	for _, devices := range []string{"1", "3"} {
		for _, late := range []string{"", "-late"} {
			t.Run(devices+late, func(t *testing.T) {
				args := []string{bin, "-devices", devices, "-mark", filepath.Join(t.TempDir(), "mark")}
				if late != "" {
					args = append(args, late)
				}
				r := newRun(t, args...)
				s := r.start("--every-points", "40")
				s.finishes()
				must(t, s.text(), "the device is lost: call 9")
				if devices == "1" {
					must(t, s.text(), "there is no device left", "started again")
				} else {
					must(t, s.text(), "losing: back to step")
					if strings.Contains(s.text(), "started again") {
						t.Errorf("it was started again:\n%s", s.text())
					}
				}
				sameOutput(t, r.output(), want)
			})
		}
	}
}

// TestDevices_LostWithRanks runs three ranks, of which one loses a device. All
// roll back in their processes, over each transport. If a rank is killed
// meanwhile, all restart.
func TestDevices_LostWithRanks(t *testing.T) {
	onlyLong(t)
	t.Parallel()
	bin := build(t, "./internal/e2e/testdata/losing", runtime.GOARCH)
	const n = 3
	want := undisturbed(t, n, bin)
	if strings.Count(want, "step") != 12*n {
		t.Fatalf("undisturbed:\n%s", want)
	}
	for _, c := range []struct{ name, env, event string }{
		{"shm", "CAIRN_TRANSPORT=shm", ""},
		{"tcp", "CAIRN_TRANSPORT=tcp", ""},
		{"killed at the begin", "CAIRN_STEP=rollback.begin=kill", "started again"},
		{"killed at the end", "CAIRN_STEP=rollback.done=kill", "started again"},
	} {
		if os.Getenv("CAIRN_LONG") == "" && c.name != "shm" && c.name != "killed at the begin" {
			continue
		}
		t.Run(c.name, func(t *testing.T) {
			r := newRun(t, bin, "-devices", "2", "-mark", filepath.Join(t.TempDir(), "mark"))
			s := r.startIn([]string{c.env}, "-n", strconv.Itoa(n), "--every-points", "20")
			s.finishes()
			must(t, s.text(), "the device is lost: call 9")
			if c.event != "" {
				must(t, s.text(), c.event)
			} else {
				must(t, s.text(), "rank 1 lost its device (", "; all ranks rolled back to checkpoint ", "losing: back to step")
				if strings.Contains(s.text(), "started again") {
					t.Errorf("it was started again:\n%s", s.text())
				}
				status, _ := cairnTool(t, "status", r.run())
				must(t, status, "rolled back 1 time", "rank 1 lost its device (")
			}
			sameOutput(t, r.output(), want)
		})
	}
}
