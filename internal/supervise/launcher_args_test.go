//go:build linux

package supervise

import (
	"slices"
	"strings"
	"testing"
)

// TestKindOf_Commands checks which commands are known as launchers.
func TestKindOf_Commands(t *testing.T) {
	for kind, commands := range map[string]string{
		"mpirun": "mpirun mpirun.openmpi mpirun.mpich mpiexec mpiexec.hydra mpirun-mpich-mp /opt/mpi/bin/mpirun ./mpiexec ../srun.d/mpirun",
		"srun":   "srun /usr/bin/srun srun.22",
		"":       "fork ssh qsub orterun /opt/mpirun/bin/start mpi MPIRUN -mpirun / .",
	} {
		for _, command := range strings.Fields(commands) {
			if got := kindOf(command); got != kind {
				t.Errorf("%s: %q, not %q", command, got, kind)
			}
		}
	}
}

// TestExported_Variables checks which variables -x exports in the arguments of
// mpirun.
func TestExported_Variables(t *testing.T) {
	lookup := func(name string) (string, bool) { return "here", name == "SET" }
	got := exported([]string{"--oversubscribe", "-x", "SET", "-x", "UNSET", "--mca", "a", "b", "-x", "A=b=c", "-x"}, lookup)
	if want := []string{"SET=here", "A=b=c"}; !slices.Equal(got, want) {
		t.Errorf("%q, not %q", got, want)
	}
}

// TestElsewhere_Arguments checks which arguments of a launcher remain for ranks
// on other hosts.
func TestElsewhere_Arguments(t *testing.T) {
	got := elsewhere(strings.Fields("--oversubscribe --host a:2,b:2 -n 4 --mca btl tcp -N2 --nodelist=a,b -w c --map-by node -x PATH"))
	if want := "--oversubscribe --mca btl tcp --map-by node -x PATH"; strings.Join(got, " ") != want {
		t.Errorf("%q", got)
	}
}

// TestSrunArgs checks what is added to the arguments of srun.
func TestSrunArgs(t *testing.T) {
	for _, x := range []struct{ user, env, want string }{
		{"", "", "--overlap"},
		{"-v", "SLURM_JOB_ID", "--overlap --no-kill"},
		{"--exclusive --no-kill", "SLURM_JOB_ID", ""},
		{"--overlap --export=NONE", "SLURM_EXPORT_ENV", ""},
		{"", "SLURM_EXPORT_ENV SLURM_EXCLUSIVE", "--export=ALL"},
	} {
		getenv := func(name string) string {
			if slices.Contains(strings.Fields(x.env), name) {
				return "1"
			}
			return ""
		}
		if got := strings.Join(srunArgs(strings.Fields(x.user), getenv), " "); got != x.want {
			t.Errorf("%q with %s: %q, not %q", x.user, x.env, got, x.want)
		}
	}
}

// TestFailedNodes finds the names of nodes in the messages of srun.
func TestFailedNodes(t *testing.T) {
	said := "srun: error: Task launch for StepId=1.1 failed on node n3: Communication connection failure | srun: error: Task launch for StepId=1.1 failed on node a-7: x | failed on node"
	if got := failedNodes(said); !slices.Equal(got, []string{"n3", "a-7"}) {
		t.Errorf("%q", got)
	}
}
