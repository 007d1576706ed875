//go:build linux

package serve

import (
	"os"
	"runtime"
	"strconv"

	"golang.org/x/sys/unix"
)

// Unbind lets the helper use all processors of its job if an MPI launcher has
// bound the program to some of them. The helper inherits the binding, and would
// otherwise take time of the program's own core.
func Unbind() {
	launched := false
	for _, name := range []string{"OMPI_COMM_WORLD_RANK", "PMIX_RANK", "PMI_RANK", "SLURM_PROCID"} {
		launched = launched || os.Getenv(name) != ""
	}
	if !launched {
		return // a user has bound the program, and means its helper, too
	}
	var all unix.CPUSet
	for i := range 64 * len(all) {
		all.Set(i)
	}
	for range 2 { // the second time for threads that began meanwhile
		tasks, _ := os.ReadDir("/proc/self/task")
		for _, task := range tasks {
			if tid, err := strconv.Atoi(task.Name()); err == nil {
				unix.SchedSetaffinity(tid, &all) // the thread may have ended
			}
		}
	}
	if os.Getenv("GOMAXPROCS") == "" {
		runtime.SetDefaultGOMAXPROCS()
	}
}
