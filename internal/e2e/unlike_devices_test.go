//go:build linux

package e2e

import (
	"bytes"
	"fmt"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"
)

// TestMigrate_OtherDevices moves ranks with arrays on devices to hosts with
// other devices, more or fewer, and back. The arrays are partly on several
// devices, partly on the host; some are views of others.
func TestMigrate_OtherDevices(t *testing.T) {
	onlyLong(t)
	want := undisturbed(t, 2, program(t, "emigrant"))
	found(t)
	opencl := "opencl"
	if why := here.missing["opencl+opencl"]; why != "" {
		t.Logf("without OpenCL: %s", why)
		opencl = "discrete,host"
	}
	for _, route := range [][]string{
		{opencl, "host", "discrete,discrete,discrete", opencl + ",host"},
		{"discrete,discrete", opencl, "host,host", "discrete"},
	} {
		t.Run(strings.Join(route, " "), func(t *testing.T) {
			t.Parallel()
			env := place{devices: route[0], pocl: "pthread pthread"}.env()
			w := wander(t, "ab", hereRemote(t), env, 7, program(t, "emigrant"))
			w.moves("--rank", "1", "--to", "c", "--env", "CAIRN_DEVICES="+route[1])
			w.goes(17)
			w.awaits("emigrant: rank 1 at step 0 with " + identified(route[0]))
			w.awaits("emigrant: rank 1 at step 7 with " + identified(route[1]))
			w.moves("--rank", "1", "--to", "d", "--env", "CAIRN_DEVICES="+route[2], "--rounds", "0", "--chunk", "100K")
			w.goes(27)
			w.awaits("emigrant: rank 1 at step 17 with " + identified(route[2]))
			// To the host where a rank already is, with other devices.
			w.moves("--rank", "0,1", "--to", "a", "--env", "CAIRN_DEVICES="+route[3])
			w.goes(37)
			w.moves("--rank", "0-1", "--to", "a", "--env", "CAIRN_DEVICES="+route[0])
			w.awaits("emigrant: rank 0 at step 27 with " + identified(route[3]))
			w.arrives(want)
		})
	}
}

// TestMigrate_DevicesToOtherArchitecture moves ranks from OpenCL devices to the
// processors of other architectures, and back.
func TestMigrate_DevicesToOtherArchitecture(t *testing.T) {
	others := emulators(t)
	want := undisturbed(t, 2, program(t, "emigrant"))
	found(t)
	devices := "opencl"
	if here.missing["opencl+opencl"] != "" {
		devices = "discrete,host"
	}
	for _, e := range others {
		t.Run(e.goarch, func(t *testing.T) {
			t.Parallel()
			abroad := script(t, "emigrant", fmt.Sprintf("exec %s %s \"$@\"", e.name, build(t, "./internal/e2e/testdata/emigrant", e.goarch)))
			w := wander(t, "ab", hereRemote(t), place{devices: devices, pocl: "pthread pthread"}.env(), 7, program(t, "emigrant"))
			w.moves("--rank", "1", "--to", "c", "--program", abroad, "--env", "CAIRN_DEVICES=discrete,host")
			w.goes(12)
			if exe := executes(w.pidOf(1, "c")); !strings.HasPrefix(exe, "qemu-") {
				t.Fatalf("rank 1 is run by %s", exe)
			}
			w.moves("--rank", "1", "--to", "b")
			w.goes(17)
			w.awaits("emigrant: rank 1 at step 12 with " + identified(devices))
			w.arrives(want)
		})
	}
}

// identified returns the IDs of the devices that a list names. OpenCL has two.
func identified(list string) string {
	var ids []string
	for i, name := range strings.Split(list, ",") {
		switch name {
		case "opencl":
			ids = append(ids, "opencl:0.0 opencl:0.1")
		case "discrete":
			ids = append(ids, fmt.Sprint("host:", 100+i))
		default:
			ids = append(ids, fmt.Sprint("host:", strings.Count(strings.Join(ids, " "), "host")))
		}
	}
	return strings.Join(ids, " ")
}

// TestMigrate_TestbedToHost moves a running program of the testbed from an
// OpenCL device to the host, and back. The result must be that of an
// undisturbed run.
func TestMigrate_TestbedToHost(t *testing.T) {
	places := found(t)
	from, to := places[0], places[1]
	for _, pl := range places {
		if pl.name == "opencl" {
			from = pl
		}
	}
	want, out, err := bed(t, to, "-size", "small", "floyd")
	if err != nil {
		t.Fatalf("undisturbed: %v\n%s", err, out)
	}
	for range 5 {
		root := t.TempDir()
		report := filepath.Join(root, "report.json")
		r := newRun(t, build(t, "./examples/testbed", runtime.GOARCH), "-dir", filepath.Join(root, "checkpoints"), "-size", "small", "-json", report, "floyd")
		s := r.startIn(from.env(), "--hosts", "a:1", "--rsh", hereRemote(t)+" {host}")
		moved := 0
		s.awaits(" started: ")
		for moved < 4 && s.changesPlace([]place{to, from}[moved%2]) {
			moved++
		}
		s.finishes()
		if got := readBed(t, report); got.Digest != want.Digest {
			t.Fatalf("moved %d times: the result's digest is %s, not %s\n%s", moved, got.Digest, want.Digest, s.text())
		}
		if moved >= 2 {
			return
		}
		t.Log("the program was too quick")
	}
	t.Fatal("the program was always too quick")
}

// changesPlace moves the only rank to other devices. The rank is stopped while
// the new process starts. It returns false if it was too late.
func (s *supervisor) changesPlace(pl place) bool {
	s.t.Helper()
	args := []string{"migrate", "--rank", "0", "--to", "a"}
	for _, v := range pl.env() {
		args = append(args, "--env", v)
	}
	before := s.state()
	cmd := exec.Command(build(s.t, "./cmd/cairn", runtime.GOARCH), append(args, s.run)...)
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	if err := cmd.Start(); err != nil || before == nil {
		s.t.Fatalf("%v\n%s", err, s.text())
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	for pid := 0; ; time.Sleep(time.Millisecond) {
		st := s.state()
		if st != nil && len(st.Moves) == len(before.Moves) && len(ended) == 0 {
			continue // the request is in progress
		}
		if st != nil && len(ended) == 0 && !st.Moves[len(st.Moves)-1].Over() && st.Moves[len(st.Moves)-1].State != "precopy" {
			if st.Moves[len(st.Moves)-1].State == "starting" && pid == 0 && stop(st.Ranks[0].Pid) == nil {
				pid = st.Ranks[0].Pid
			}
			continue
		}
		if pid != 0 {
			syscall.Kill(pid, syscall.SIGCONT)
		}
		break
	}
	err := <-ended
	if _, _, over := s.said(); err != nil && (over || strings.Contains(out.String(), "about to end") || strings.Contains(out.String(), "not running")) {
		return false
	}
	if err != nil {
		s.t.Fatalf("migrate: %v: %s\n%s", err, out.String(), s.text())
	}
	return true
}
