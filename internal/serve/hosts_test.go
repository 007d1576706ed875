//go:build linux

package serve

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/cairnrun/cairn/internal/interconnects"
)

// mpiHosts are hosts on which a launcher of MPI starts one rank each. They are
// network namespaces with host names of their own.
type mpiHosts struct {
	net   *interconnects.Network
	shell string // the command by which a launcher reaches a host: SHELL ADDRESS COMMAND…
}

// newHosts makes hosts. The script begins what is started on another host than
// the first; $n is the number of that host.
func newHosts(t *testing.T, hosts int, script string) *mpiHosts {
	t.Helper()
	mustFind(t, "unshare")
	net, err := interconnects.NewNetwork(hosts)
	if err != nil {
		t.Skip(err)
	}
	t.Cleanup(net.Close)
	h := &mpiHosts{net, filepath.Join(t.TempDir(), "shell")}
	name, _, _ := strings.Cut(net.Hosts[0], "-0-")
	_, number, _ := strings.Cut(net.Hosts[0], "-0-")
	writeScript(t, h.shell, fmt.Sprintf(`while case $1 in -*) true;; *) false;; esac; do shift; done
n=$((${1##*.} - 1))
shift
%s
exec ip netns exec %s-$n-%s unshare --uts sh -c "hostname host$n; $*"`, script, name, number))
	return h
}

func writeScript(t *testing.T, name, text string) {
	t.Helper()
	if err := os.WriteFile(name, []byte("#!/bin/sh\n"+text+"\n"), 0o755); err != nil {
		t.Fatal(err)
	}
}

// options are those of the launcher that starts ranks on the hosts.
func (h *mpiHosts) options(lib mpiLibrary) []string {
	var list []string
	for i := range h.net.Hosts {
		list = append(list, fmt.Sprintf("10.77.0.%d", i+1))
	}
	hosts := strings.Join(list, ",")
	if lib.name == "mpich" {
		return []string{"-launcher", "ssh", "-launcher-exec", h.shell, "-iface", "eth0", "-hosts", hosts}
	}
	return []string{"--mca", "plm_rsh_agent", h.shell, "--host", hosts}
}

// first makes a command run on the first host.
func (h *mpiHosts) first(cmd *exec.Cmd) *exec.Cmd {
	args := append([]string{"ip", "netns", "exec", h.net.Hosts[0], "unshare", "--uts", "sh", "-c", `hostname host0; exec "$@"`, "sh", cmd.Path}, cmd.Args[1:]...)
	on := exec.Command(args[0], args[1:]...)
	on.Env, on.Dir = cmd.Env, cmd.Dir
	return on
}

// TestHeat_Hosts kills ranks of an MPI program in C that are on several hosts,
// and their helpers.
func TestHeat_Hosts(t *testing.T) {
	if os.Getenv("CAIRN_LONG") == "" {
		t.Skip("TestHeat_HostLost uses hosts every day: set CAIRN_LONG=1")
	}
	for _, lib := range mpiLibraries {
		t.Run(lib.name, func(t *testing.T) {
			h := newHosts(t, 3, "")
			heat := heatC(t, lib.compiler)
			mustFind(t, lib.launcher[0])
			v := &victim{path: heat, ranks: 3, start: func(ckpt, _ string) *exec.Cmd {
				cmd := program(t, "cairn")
				// By its name: Open MPI looks for its parts beside a path.
				cmd.Path, cmd.Args = "/usr/bin/env", slices.Concat([]string{"env"}, lib.launcher, h.options(lib), []string{"-n", "3", heat, "40", "100", "2", ckpt})
				return h.first(cmd)
			}}
			v.undisturbed(t)
			v.survive(t, []kill{{at: "committed#1", resumes: true}})
			v.surviveMany(t, 50, []string{"point", "send", "receive", "copy", "committed"}, 2*time.Second)
		})
	}
}

// TestHeat_HostLost kills everything on one of three hosts at once, after a
// checkpoint: 'cairn run' starts the launcher again, and the program resumes.
func TestHeat_HostLost(t *testing.T) {
	for i, lib := range mpiLibraries {
		t.Run(lib.name, func(t *testing.T) {
			if i > 0 && os.Getenv("CAIRN_LONG") == "" {
				t.Skip("TestHeat_RankKilled uses it every day: set CAIRN_LONG=1")
			}
			dir := t.TempDir()
			// The rank on the second host stops at the first start.
			h := newHosts(t, 3, fmt.Sprintf(`if [ $n = 1 ] && mkdir %s/started 2>/dev/null; then
	export KILL_AT=committed#1=%d KILL_RANK=1
fi`, dir, syscall.SIGSTOP))
			heat := heatC(t, lib.compiler)
			mustFind(t, lib.launcher[0])
			writeScript(t, filepath.Join(dir, "mpirun"), "exec "+strings.Join(lib.launcher, " ")+` "$@"`)
			plain := program(t, "cairn")
			plain.Path, plain.Args = filepath.Join(dir, "mpirun"), []string{"mpirun", "-n", "3", heat, "40", "100"}
			want := output(t, plain)
			cmd := program(t, "cairn", "run", "-q", "--run", filepath.Join(dir, "run"), "--launcher", "mpirun", "--launcher-args", strings.Join(h.options(lib), " "), "-n", "3", heat, "40", "100", "2")
			cmd.Env = append(cmd.Env, "PATH="+dir+":"+os.Getenv("PATH"), "CAIRN_HELPER=") // 'cairn run' says it on all hosts
			cmd = h.first(cmd)
			var stdout, stderr bytes.Buffer
			cmd.Stdout, cmd.Stderr = &stdout, &stderr
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			ended := make(chan error, 1)
			go func() { ended <- cmd.Wait() }()
			for !stopped(heat) {
				select {
				case err := <-ended:
					t.Fatalf("it ended before its second rank had stopped: %v\n%s", err, &stderr)
				case <-time.After(10 * time.Millisecond):
				}
			}
			out, err := exec.Command("ip", "netns", "pids", h.net.Hosts[1]).Output()
			if err != nil {
				t.Fatal(err)
			}
			for _, pid := range strings.Fields(string(out)) {
				var p int
				fmt.Sscan(pid, &p)
				syscall.Kill(p, syscall.SIGKILL)
			}
			if err := <-ended; err != nil || !strings.Contains(stdout.String(), want) {
				t.Errorf("%v: it printed %q, want %q\n%s", err, &stdout, want, &stderr)
			}
			if !strings.Contains(stderr.String(), "resumed at step") {
				t.Errorf("it did not resume:\n%s", &stderr)
			}
		})
	}
}

// stopped reports whether a process of a program has stopped at a signal.
func stopped(path string) bool {
	return slices.ContainsFunc(processes(path), func(pid int) bool {
		text, _ := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
		_, rest, _ := bytes.Cut(text, []byte(") "))
		return bytes.HasPrefix(rest, []byte("T"))
	})
}
