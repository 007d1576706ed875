//go:build linux

package supervise

import (
	"bytes"
	"debug/buildinfo"
	"os"
	"path/filepath"
	"slices"

	"github.com/cairnrun/cairn/internal/control"
)

// instrumentation says whether a program uses Cairn, as far as its file shows.
type instrumentation int

const (
	unknown instrumentation = iota // it is not a Go program, and may start one that uses Cairn
	instrumented
	uninstrumented // it does not contain Cairn
)

func instrumentationOf(program string) instrumentation {
	if _, err := buildinfo.ReadFile(program); err != nil {
		return unknown
	}
	text, err := os.ReadFile(program)
	switch {
	case err != nil:
		return unknown
	case bytes.Contains(text, []byte(control.EnvControl)):
		return instrumented
	}
	return uninstrumented
}

// greeted reports whether a rank has said Hello.
func (a *attempt) greeted() bool {
	return slices.ContainsFunc(a.ranks, func(r rank) bool { return r.Cairn })
}

// sayUninstrumented warns, once, that a program does not use Cairn and cannot
// be saved: when it starts, or, if its file does not show that, when it has
// ended without a Hello.
func (s *Supervisor) sayUninstrumented(ended bool) {
	name := filepath.Base(s.o.Command[0])
	switch {
	case s.saidUninstrumented || s.a.greeted():
		return
	case s.instrumentation == uninstrumented:
		s.say("%s does not use Cairn: nothing of it is saved, and after a failure it starts from the beginning; %s", name, remedy)
	case s.instrumentation == unknown && ended && s.a.begun():
		s.say("%s has not reported that it uses Cairn: a program that does not is not saved, and starts from the beginning after a failure", name)
	default:
		return
	}
	s.saidUninstrumented = true
}

const remedy = "name its source ('cairn run .' in its directory), or build it with 'cairn build'"
