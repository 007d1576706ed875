//go:build linux

package devices

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestTestbed_DeviceLost loses a device in the middle of a launch and of a
// copy, at once or noticed late. The compiled program rolls back by itself and
// continues on the devices that remain, with the same result.
func TestTestbed_DeviceLost(t *testing.T) {
	t.Parallel()
	plain, made := build(t, "testbed")
	devices := []struct{ list, first string }{{"discrete,discrete,discrete", "host:10%d"}}
	if cuda() {
		devices[0] = struct{ list, first string }{"cuda:0,host,host", "cuda:0"}
	}
	if opencl() {
		devices = append(devices, struct{ list, first string }{"opencl:0.0,opencl:0.1,opencl:0.2", "opencl:0.%d"})
	}
	for i, name := range []string{"shwa", "ftmd", "spmv", "floyd", "summa", "mg", "ft"} {
		if !stress && i > 1 {
			break
		}
		t.Run(name, func(t *testing.T) {
			for k, on := range devices {
				want := ""
				for j, call := range []string{"Launch:%d", "CopyIn:%d:late", "CopyOut:%d", "Launch:%d:late"} {
					if !stress && (k != i%len(devices) || j != i%4) {
						continue
					}
					if want == "" {
						want = plainly(t, plain, on.list, name)
					}
					rolled := false
					for n := 8; !rolled && n > 0; n /= 2 { // some programs make few calls
						rolled = loses(t, made, on.list, fmt.Sprintf(strings.Replace(on.first, "%d", fmt.Sprint(i%3), 1)+"@"+call, n), want, name)
					}
					if !rolled {
						t.Errorf("%s on %s: no loss of a device at %s led to a rollback", name, on.list, call)
					}
				}
			}
		})
	}
}

// TestTestbed_DeviceLostSupervised loses a device of a compiled program under
// 'cairn run', which restarts it without the device. Its output is exact,
// wherever that happens.
func TestTestbed_DeviceLostSupervised(t *testing.T) {
	t.Parallel()
	plain, made := build(t, "testbed")
	for _, name := range []string{"spmv", "shwa", "ftmd"} {
		if !stress && name != "spmv" {
			break
		}
		want := plainly(t, plain, "discrete,discrete", name)
		for _, at := range []string{"Launch:2", "CopyOut:9", "Launch:30:late"} {
			if !stress && at != "Launch:30:late" {
				continue
			}
			dir := t.TempDir()
			cmd := command(t, dir, cairn(t), "run", "--every-points", "2", "-o", "out", made, name)
			cmd.Env = append(cmd.Env, "CAIRN_DEVICES=discrete,discrete", "CAIRN_LOSE_DEVICE=host:100@"+at)
			said, err := cmd.CombinedOutput()
			out, rerr := os.ReadFile(filepath.Join(dir, "out"))
			want := want
			// It was lost before the first checkpoint, which was not
			// committed by the helper meanwhile either.
			if strings.Contains(string(said), "from the beginning") && !strings.Contains(string(said), "restored checkpoint") {
				want = strings.Replace(want, "on 2 devices", "on 1 devices", 1)
			}
			if err != nil || rerr != nil || string(out) != want {
				t.Errorf("%s, %s: %v, %v, it prints\n%swant\n%s%s", name, at, err, rerr, out, want, said)
			}
			for _, part := range []string{"host:100", " on the devices that remain", "started again", "ended on [host:101 "} {
				if !strings.Contains(string(said), part) {
					t.Errorf("%s, %s: %q is missing in\n%s", name, at, part, said)
				}
			}
		}
	}
}

// loses runs a compiled program that is killed at a point, started again, and
// loses a device then. It reports whether the program has rolled back; if not,
// the device had fewer calls.
func loses(t *testing.T, made, devices, lose, want string, args ...string) (rolled bool) {
	t.Helper()
	dir := t.TempDir()
	var out, errs bytes.Buffer
	start := func(env ...string) error {
		cmd := command(t, t.TempDir(), made, args...)
		cmd.Env = append(cmd.Env, "CAIRN_DIR="+dir, "CAIRN_EVERY_POINTS=2", "CAIRN_DEVICES="+devices)
		cmd.Env = append(cmd.Env, env...)
		cmd.Stdout, cmd.Stderr = &out, &errs
		return cmd.Run()
	}
	if start("CAIRN_KILL_AT=4") == nil {
		t.Errorf("it was not killed:\n%s", errs.Bytes())
	}
	err := start("CAIRN_LOSE_DEVICE=" + lose)
	// Without a supervisor, what was printed after the checkpoint is printed
	// again: here, at most the first line.
	first, _, _ := strings.Cut(want, "\n")
	if err != nil || out.String() != want && out.String() != first+"\n"+want {
		t.Errorf("%s on %s: %v, it prints\n%swant\n%s%s", lose, devices, err, out.Bytes(), want, errs.Bytes())
	}
	t.Logf("%s:\n%s", lose, errs.Bytes())
	return strings.Contains(errs.String(), "; rolling back to checkpoint ")
}
