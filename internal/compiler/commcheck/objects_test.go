package commcheck_test

import (
	"testing"

	"github.com/cairnrun/cairn/internal/compiler/commcheck"
)

// objectPatterns test objects, recursion, and branches without communication.
var objectPatterns = []pattern{
	{"objects", `
global shared hi of T, shared lo of T
proc main() {
    new p T
    put(p, hi, 2) = (rank+1)%size
    put(p, lo) = (rank-1+size)%size
    new q T from p
    put(q, hi, 2) = 0
    for i = 0; i < 100; i = i + 1 {       # body safe
        send to get(p, hi, 2)
        recv from get(p, lo)
    }
    send to get(q, hi, 2)
    recv from get(q, lo)
    call w()                              # unsafe
}`, commcheck.Options{}},
	{"one of several", `
global shared hi of T, shared lo of T
proc swap(o of T) {
    send to get(o, hi) tag 1
    recv from get(o, lo) tag 1
}
proc main() {
    new p T
    put(p, hi) = (rank+1)%size
    put(p, lo) = (rank-1+size)%size
    new q T
    put(q, hi) = (rank-1+size)%size
    put(q, lo) = (rank+1)%size
    for i = 0; i < 100; i = i + 1 {       # body safe
        if ? { p = q }
        call swap(p)
    }
    call w()                              # safe
    put(q, hi) = 0
    if ? { p = q }
    call w()                              # safe
    call swap(p)
    call w()                              # unsafe
}`, commcheck.Options{Uniform: true}},
	{"no communicator", `
global shared c of T
proc main() {
    new p T
    put(p, c) = -1
    if get(p, c) == -1 {
        call w()                          # safe
    } else {
        call w()                          # unknown: no rank was seen
    }
    collective "barrier" group get(p, c)
    call w()                              # unknown: no rank was seen
}`, commcheck.Options{}},
	{"recursion", `
proc down(n) {
    collective "barrier"
    if ?(n) { call down(n-1) }
    send to (rank+1)%size
    recv from (rank-1+size)%size
}
proc up(n) {
    send to (rank+1)%size
    if ?(n) { call up(n-1) }
}
proc main() {
    call down(?)
    call w()                              # safe
    call up(?)
    call w()                              # unsafe
}`, commcheck.Options{Uniform: true}},
	{"silent ways", `
proc find(n) (at) {
    for k = 0; k < n; k = k + 1 {
        if ?(k) { return k }
    }
    return 0-1
}
proc main() {
    for i = 0; i < 100; i = i + 1 {       # body safe
        collective "barrier"
        if rank > ? { continue }
        call find(rank) -> x
        if x > 2 { y = 1 }
    }
    call w()                              # safe
    for i = 0; i < 100; i = i + 1 {
        if rank > ? { continue }
        collective "barrier"
    }
    call w()                              # unknown: may differ
}`, commcheck.Options{}},
	{"errors", `
proc main() {
    if assume -1 ?(x) { exit }
    if assume -1 size == 3 { exit }
    if size == 3 { send to 0 }
    call w()                              # safe
}`, commcheck.Options{}},
}

// TestAnalyze_Objects does the same for patterns with objects.
func TestAnalyze_Objects(t *testing.T) {
	for _, c := range objectPatterns {
		t.Run(c.name, func(t *testing.T) { check(t, c.name, c.text, c.opt) })
	}
}
