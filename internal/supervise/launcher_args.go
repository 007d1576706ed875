//go:build linux

package supervise

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"
)

// kindOf returns the kind of a launcher by the name or path of its command:
// "srun"; "mpirun" also for mpiexec, whoever made it; or "". Systems with
// several MPI libraries have names such as mpirun.mpich or mpiexec.hydra.
func kindOf(command string) string {
	base := filepath.Base(command)
	for _, name := range []string{"mpirun", "mpiexec", "srun"} {
		if strings.HasPrefix(base, name) {
			return strings.Replace(name, "mpiexec", "mpirun", 1)
		}
	}
	return ""
}

// find returns the path of the launcher's command.
func (l *launcher) find() (string, error) {
	path, err := exec.LookPath(l.name)
	if x := new(exec.Error); errors.As(err, &x) {
		err = x.Err // callers name the launcher
	}
	if err != nil {
		return "", fmt.Errorf("%w; install it, load its module, or choose another with --launcher (fork needs no command)", err)
	}
	return path, nil
}

// openMPI reports whether mpirun belongs to Open MPI.
func openMPI(path string) bool { return isOpenMPI(version(path)) }

func isOpenMPI(text string) bool {
	return strings.Contains(text, "Open MPI") || strings.Contains(text, "OpenRTE")
}

// version returns the output of a program for --version, or "" if that takes
// long.
func version(path string) string {
	ctx, cancel := context.WithTimeout(context.Background(), versionTime)
	defer cancel()
	cmd := exec.CommandContext(ctx, path, "--version")
	cmd.WaitDelay = time.Second // for children that keep its output open
	text, _ := cmd.CombinedOutput()
	return string(text)
}

// srunArgs returns the arguments that srun gets besides those of the user.
// Steps may overlap, because a step keeps its processors after one of its
// machines has died. Slurm must not kill the helpers on the other machines:
// they may have to requeue the job. They need the environment, even in a job
// that was submitted without one.
func srunArgs(user []string, getenv func(string) string) (out []string) {
	given := func(name string) bool {
		return slices.ContainsFunc(user, func(a string) bool { return a == name || strings.HasPrefix(a, name+"=") })
	}
	if !given("--overlap") && !given("--exclusive") && getenv("SLURM_EXCLUSIVE") == "" {
		out = append(out, "--overlap")
	}
	if getenv("SLURM_JOB_ID") != "" && !given("--no-kill") && !given("-k") {
		out = append(out, "--no-kill")
	}
	if getenv("SLURM_EXPORT_ENV") != "" && !given("--export") {
		out = append(out, "--export=ALL")
	}
	return out
}

// withoutNodeCount returns an environment without the number of machines in the
// job, which srun would insist on.
func withoutNodeCount(env []string) []string {
	return slices.DeleteFunc(slices.Clone(env), func(v string) bool {
		name, _, _ := strings.Cut(v, "=")
		return name == "SLURM_NNODES" || name == "SLURM_JOB_NUM_NODES"
	})
}

var failedNode = regexp.MustCompile(`failed on node ([^\s:]+):`)

// failedNodes returns the machines that srun could not start tasks on, by its
// messages.
func failedNodes(said string) (out []string) {
	for _, m := range failedNode.FindAllStringSubmatch(said, -1) {
		out = append(out, m[1])
	}
	return out
}

// elsewhere returns a launcher's arguments without those that choose hosts and
// the number of processes.
func elsewhere(args []string) (out []string) {
	const one = "-H -host --host -hosts --hosts -f -hostfile --hostfile -machinefile --machinefile -default-hostfile --default-hostfile" +
		" -n -np --np -c -N -w --nodelist --nodes --ntasks --ntasks-per-node -npernode --npernode -ppn --ppn -perhost -r --relative -x-nodes -F --nodefile"
	names := strings.Fields(one)
	for i := 0; i < len(args); i++ {
		name, _, inside := strings.Cut(args[i], "=")
		switch {
		case slices.Contains(names, name):
			if !inside {
				i++
			}
		case len(name) > 2 && slices.Contains([]string{"-n", "-N", "-w", "-H", "-r"}, name[:2]) && strings.Trim(name[2:], "0123456789") == "": // -N2
		default:
			out = append(out, args[i])
		}
	}
	return out
}

// named reports whether a launcher's arguments name a host.
func named(args []string, host string) bool {
	for i, arg := range args {
		if !slices.Contains([]string{"-H", "-host", "--host"}, arg) || i+1 == len(args) {
			continue
		}
		for name := range strings.SplitSeq(args[i+1], ",") {
			if name, _, _ = strings.Cut(name, ":"); name == host {
				return true
			}
		}
	}
	return false
}

// exported returns the variables that a launcher's arguments name for all
// processes that it starts. Spawned processes do not get them.
func exported(args []string, lookup func(string) (string, bool)) (out []string) {
	for i, arg := range args {
		if arg != "-x" || i+1 == len(args) {
			continue
		}
		name, value, given := strings.Cut(args[i+1], "=")
		if !given {
			value, given = lookup(name)
		}
		if given {
			out = append(out, name+"="+value)
		}
	}
	return out
}

// ownServer reports whether a launcher's arguments name an ompi-server.
func ownServer(args []string) bool {
	return slices.ContainsFunc(args, func(a string) bool {
		name, _, _ := strings.Cut(a, "=")
		return strings.TrimLeft(name, "-") == "ompi-server"
	})
}
