package commcheck_test

import "github.com/cairnrun/cairn/internal/compiler/commcheck"

// workPatterns test more than messages: concurrent work, jumps, values.
var workPatterns = []pattern{
	{"launch", `
proc f() { x = 1 }                    # unsafe: runs beside
proc g() { send to rank; recv from rank }
proc main() {
    launch f group wg
    call w()                           # unsafe: launch:4: concurrent f starts here
    join
    call w()                           # unsafe
    join group wg
    call w()                           # safe
    launch g group wg
    call w()                           # unsafe
    join group wg
    call w()                           # unknown: communicates
}`, commcheck.Options{}},
	{"jumps", `
proc main() {
    L: for i = 0; i < 100; i = i + 1 {    # body safe
        if i == 7 {
            continue
        }
        for {
            send to (rank+1)%size tag i
            if i == 50 {
                break L
            }
            recv from (rank-1+size)%size tag i
            continue L
        }
    }
    call w()                           # unsafe
}`, commcheck.Options{}},
	{"growing", `
proc main() {
    for i = 0; i < 1000000; i = i + 1 {
        send to (rank+1)%size
        call w()                        # unsafe
    }
    call w()                           # unknown
}`, commcheck.Options{Ranks: []int{2}}},
	{"switch", `
proc main() {
    switch rank {
    case 0 { send to size-1 tag 1 }
    case 1, 2, 3 {
        if rank == size-1 {
            recv from 0 tag 1
            break
        }
    }
    default { call w() }
    }
    call w()                           # safe
}`, commcheck.Options{Ranks: []int{2, 3, 4}}},
	{"goto", `
proc main() {
    label M
    call w()                           # unknown: goto
    goto M
}`, commcheck.Options{}},
	{"shared", `
proc main() {
    var shared d
    d = 1
    send to (rank+d)%size
    recv from (rank-d+size)%size
    call w()                           # unknown: destination
}`, commcheck.Options{}},
	{"two calls, two values", `
proc f() (y) {
    call lib() -> y
}
proc main() {
    call f() -> a
    call f() -> b
    if a { send to (rank+1)%size }
    if b { recv from (rank-1+size)%size }
    call w()                           # unsafe
}`, commcheck.Options{Uniform: true}},
	{"the same at first", `
proc main() {
    x, y, z = 0, 0, 0
    for i = 0; i < 1000000; i = i + 1 {   # body unknown
        if x > 2 {
            send to (rank+1)%size
            recv from (rank-1+size)%size
        }
        x = y + 1
        y = z
        z = rank * 2
    }
    call w()                           # unknown
}`, commcheck.Options{Budget: 50000}},
	{"tags of iterations", `
proc main() {
    send to (rank+1)%size tag 0
    for i = 0; i < 1000; i = i + 1 {   # body unsafe
        recv from (rank-1+size)%size
        send to (rank+1)%size tag i
    }
    recv from (rank-1+size)%size
    call w()                           # safe
    for i = 0; i < 1000; i = i + 1 {   # body unsafe
        send to (rank+1)%size tag i
        recv from (rank-1+size)%size tag i+1
    }
    call w()                           # unsafe
}`, commcheck.Options{}},
	{"requests passed on", `
proc start(t) (q) {
    isend to (rank+1)%size tag t request q
    return q
}
proc finish(r) {
    wait request r
}
proc main() {
    call start(1) -> a
    recv from (rank-1+size)%size tag 1
    call w()                           # unsafe: not waited for
    call finish(a)
    call w()                           # safe
    call start(1) -> a
    b = a
    recv from (rank-1+size)%size tag 1
    wait request b
    call w()                           # safe
    call start(1) -> a
    call start(2) -> a
    recv from (rank-1+size)%size tag 1
    recv from (rank-1+size)%size tag 2
    wait request a
    call w()                           # unsafe: request is gone
}`, commcheck.Options{}},
	{"assigned on some ranks", `
proc main() {
    d, e = 1, 1
    if rank == 0 {
        d = 0
    } else {
        e = 0
    }
    if d == 0 { send to 1 }
    if e == 0 && rank == 1 { recv from 0 }
    call w()                           # safe
    if d { send to rank }
    recv from rank
    call w()                           # unsafe
}`, commcheck.Options{}},
	{"any source or a named one", `
proc main() {
    if rank == 0 {
        recv tag 1
        recv from 1 tag 1
    } else {
        send to 0 tag 1
    }
    call w()                           # unknown: more than one receive
}`, commcheck.Options{Ranks: []int{3}}},
	{"any source or a named one, sends first", `
proc main() {
    if rank != 0 {
        send to 0 tag 1
    } else {
        recv tag 1
        recv from 1 tag 1
    }
    call w()                           # unknown: more than one receive
}`, commcheck.Options{Ranks: []int{3}}},
	{"returns on some ranks", `
proc f() {
    if ? { return }
    send to (rank+1)%size
    recv from (rank-1+size)%size
    call w()                           # unknown
}
proc main() {
    call f()
    call w()                           # unknown: may differ
}`, commcheck.Options{}},
	{"changed on some ranks", `
proc main() {
    d = 1
    if ? { d = 2 }
    call w()                           # safe
    send to (rank+d)%size
    call w()                           # unknown: destination
}`, commcheck.Options{}},
	{"a last message", `
proc main() {
    if rank == 0 {
        for i = 1; i < size; i = i + 1 { recv tag 3 }
    } else {
        send to 0 tag 3
    }
    call w()                           # unknown: sent later
    if ? {
        send to 0 tag 3
        exit
    }
    call w()                           # unknown
}`, commcheck.Options{Ranks: []int{3}}},
	{"made of a rank", `
proc main() {
    x = rank
    call lib(x) -> y
    z = ?(x)
    call lib(1) -> u
    if u { send to rank; recv from rank }
    call w()                           # safe
    if z { send to rank; recv from rank }
    call w()                           # unknown
    if y { send to rank; recv from rank }
    call w()                           # unknown
}`, commcheck.Options{Uniform: true}},
	{"any source for ever", `
proc main() {
    for {                              # body unknown: sent later
        call w()                       # unknown: sent later
        if rank == 0 {
            for i = 1; i < size; i = i + 1 { recv tag 3 }
        } else {
            send to 0 tag 3
        }
    }
}`, commcheck.Options{Ranks: []int{3}}},
	{"changed by concurrent work", `
global d
proc f() { d = 2 }
proc main() {
    d = 1
    launch f group g
    join group g
    call w()                           # safe
    send to (rank+d)%size
    recv from (rank-d+size)%size
    call w()                           # unknown: destination
}`, commcheck.Options{}},
	{"compute loops", `
proc main() {
    call f() -> m
    for i = 0; i < m; i = i + 1 {      # body unknown
        call w()
    }
    for i = 0; i < 1000000; i = i + 1 {      # body safe
        for j = 0; j < 1000000; j = j + 1 {      # body safe
            call w()                             # safe
        }
        send to (rank+1)%size
        recv from (rank-1+size)%size
    }
    do { i = i + 1 } while i < m
    call w()                           # safe
}`, commcheck.Options{}},
}
