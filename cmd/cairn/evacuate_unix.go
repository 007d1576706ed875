//go:build unix

package main

import (
	"os"
	"os/signal"
	"syscall"

	"github.com/cairnrun/cairn/internal/supervise"
)

// watchEvacuate evacuates the listed hosts when SIGUSR2 comes, until the function
// that it returns is called.
func watchEvacuate(s *supervise.Supervisor) (stop func()) {
	told, ended := make(chan os.Signal, 1), make(chan struct{})
	signal.Notify(told, syscall.SIGUSR2)
	go func() {
		for {
			select {
			case <-told:
				s.Evacuate()
			case <-ended:
				return
			}
		}
	}()
	return func() {
		signal.Stop(told)
		close(ended)
	}
}
