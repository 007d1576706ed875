//go:build linux

package serve

import (
	"os"
	"runtime"
	"strconv"

	"golang.org/x/sys/unix"
)

// Unbind lets the helper use all processors of its job if a launcher of MPI has
// bound the program to some. A child inherits that, and the helper would take
// the time of the program's own core.
func Unbind() {
	launched := false
	for _, name := range []string{"OMPI_COMM_WORLD_RANK", "PMIX_RANK", "PMI_RANK", "SLURM_PROCID"} {
		launched = launched || os.Getenv(name) != ""
	}
	if !launched {
		return // whoever has bound the program means its helper, too
	}
	var all unix.CPUSet
	for i := range 64 * len(all) {
		all.Set(i)
	}
	for range 2 { // threads may begin meanwhile
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
