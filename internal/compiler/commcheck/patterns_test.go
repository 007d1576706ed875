package commcheck_test

import "github.com/cairnrun/cairn/internal/compiler/commcheck"

type pattern struct {
	name, text string
	opt        commcheck.Options
}

// patterns are programs with the expected verdicts of their places. "# safe" at
// the end of a line is the verdict for the place before the statement there. "#
// body safe" is the verdict for the beginning of the body of the loop there.
// Text after a colon must be in the reasons.
var patterns = []pattern{
	{"ring, send first", `
proc main() {
    call a()                     # safe
    send to (rank+1)%size tag 1  # safe
    call b()                     # unsafe: ring, send first:3: send from rank 0 to 1 is not received
    recv from (rank-1+size)%size tag 1
    call c()                     # safe
}`, commcheck.Options{Ranks: []int{2, 3, 4, 8}}},
	{"ring, receive first", `
proc main() {
    recv from (rank-1+size)%size tag 1
    call b()                     # unsafe: waits for a message
    send to (rank+1)%size tag 1
    call c()                     # safe
}`, commcheck.Options{Ranks: []int{1, 2, 3, 4, 8}}},
	{"ring in a loop", `
proc main() {
    for i = 0; i < 1000; i = i + 1 {   # body safe
        call w()                       # safe
        send to (rank+1)%size tag i
        recv from (rank-1+size)%size tag i
        call w()                       # safe
    }
    call c()                           # safe
}`, commcheck.Options{}},
	{"ring, iterations not known", `
proc main() {
    call "atoi" atoi() -> n
    for i = 0; i < n; i = i + 1 {   # body unknown: may have more iterations
        send to (rank+1)%size tag i
        recv from (rank-1+size)%size tag i
    }
    call c()                           # unknown
}`, commcheck.Options{}},
	{"ring, iterations taken to be the same", `
proc main() {
    call "atoi" atoi() -> n
    for i = 0; i < n; i = i + 1 {   # body safe
        send to (rank+1)%size tag i
        call b()                      # unsafe
        recv from (rank-1+size)%size tag i
        call x() -> e
        if e {
            break
        }
        call b()                      # safe
    }
    call c()                          # safe
}`, commcheck.Options{Uniform: true}},
	{"halo", `
proc main() {
    for step = 0; step < 100; step = step + 1 {   # body safe
        if rank > 0 {
            send to rank-1 tag 1                    # unsafe: only ranks 1, 2, 3 of 4
        }
        if rank < size-1 {
            send to rank+1 tag 2
        }
        call w()                                    # unsafe
        if rank > 0 {
            recv from rank-1 tag 2
        }
        if rank < size-1 {
            recv from rank+1 tag 1
        }
        call w()                                    # safe
    }
    call w()                                        # safe
}`, commcheck.Options{Ranks: []int{4}}},
	{"master and workers", `
proc main() {
    for step = 0; step < 100; step = step + 1 {
        if rank == 0 {
            for i = 1; i < size; i = i + 1 {
                send to i tag 7
            }
            for i = 1; i < size; i = i + 1 {
                recv from i tag 8
            }
        } else {
            recv from 0 tag 7
            call w()                                # unsafe
            send to 0 tag 8
        }
        call w()                                    # safe
    }
    call w()                                        # safe
}`, commcheck.Options{Ranks: []int{2, 4, 7}}},
	{"exchange by xor", `
proc main() {
    for d = 1; d < size; d = d * 2 {       # body safe
        sendrecv to rank ^ d tag d
        recv from rank ^ d tag d
    }
    call w()                               # safe
}`, commcheck.Options{Ranks: []int{2, 4, 8, 16}}},
	{"transpose", `
proc main() {
    for i = 0; i < size; i = i + 1 {       # body unsafe
        send to i
    }
    for i = 0; i < size; i = i + 1 {
        recv from i
    }
    call w()                               # safe
}`, commcheck.Options{Ranks: []int{2, 3, 5}}},
	{"reduce tree", `
proc main() {
    for d = 1; d < size; d = d * 2 {       # body unsafe: only
        if rank % (2*d) != 0 {
            send to rank - d tag 5
            break
        }
        if rank + d < size {
            recv from rank + d tag 5
        }
    }
    call w()                               # safe
    for d = 1; d < size; d = d * 2 {       # body safe
        if rank % (2*d) == d {
            send to rank - d tag 5
        } else if rank % (2*d) == 0 && rank + d < size {
            recv from rank + d tag 5
        }
        call w()                           # safe
    }
    call w()                               # safe
}`, commcheck.Options{Ranks: []int{2, 3, 4, 6, 8}}},
	{"pipeline", `
proc main() {
    for s = 0; s < 10; s = s + 1 {        # body safe
        if rank > 0 {
            recv from rank - 1
        }
        call w()                           # unsafe
        if rank < size - 1 {
            send to rank + 1
        }
    }
    call w()                               # safe
}`, commcheck.Options{}},
	{"non-blocking", `
proc main() {
    for s = 0; s < 1000; s = s + 1 {        # body safe
        irecv from (rank-1+size)%size request q
        isend to (rank+1)%size request p
        call w()                           # unsafe: is not waited for yet
        wait request p
        call w()                           # unsafe
        wait request q
        call w()                           # safe
    }
}`, commcheck.Options{}},
	{"array of requests", `
proc main() {
    for i = 0; i < size; i = i + 1 {
        irecv from i
        isend to i
    }
    call w()                           # unsafe
    wait
    call w()                           # safe
    isend to rank request q
    recv from rank
    wait
    call w()                           # unsafe
    isend to rank request q
    recv from rank
    wait request q
    call w()                           # unsafe: its request is gone
}`, commcheck.Options{}},
	{"collectives", `
proc main() {
    collective "bcast" root 0
    call w()                           # safe
    if rank == 0 {
        collective "reduce" root 0
    }
    call w()                           # unsafe: reduce was called by rank 0 so far
    if rank != 0 {
        collective "reduce" root 0
    }
    call w()                           # safe
    if rank == 0 {
        collective "barrier"
    } else {
        collective "barrier"
    }
    call w()                           # safe
    if rank == 0 {
        collective "gather" root 0
    } else {
        collective "bcast" root 0
    }
    call w()                           # unknown: meets gather
}`, commcheck.Options{}},
	{"redundant", `
proc main() {
    call f() -> x
    if x {
        send to (rank+1)%size tag 1
    } else {
        call w()                      # safe
        send to (rank+1)%size tag 1
    }
    call w()                           # unsafe
    recv from (rank-1+size)%size tag 1
    call w()                           # safe
}`, commcheck.Options{Uniform: true}},
	{"same condition twice", `
proc main() {
    call f() -> x
    if x > 3 {
        send to (rank+1)%size tag 1
    }
    call w()                           # unsafe
    if x > 3 {
        recv from (rank-1+size)%size tag 1
    }
    call w()                           # safe
    if x <= 3 {
        send to (rank+1)%size tag 1
    }
    if x > 4 {
        recv from (rank-1+size)%size tag 1
    }
    call w()                           # unsafe
}`, commcheck.Options{Uniform: true}},
	{"condition may differ", `
proc main() {
    call f() -> x
    if x {
        call w()                      # unknown
    }
    call w()                           # safe
    if x {
        send to (rank+1)%size tag 1
    }
    call w()                           # unknown: may differ from rank to rank
}`, commcheck.Options{}},
	{"errors end it", `
proc main() {
    send to (rank+1)%size tag 1
    recv from (rank-1+size)%size tag 1 status e
    if e {
        call "print" print(e)
        exit
    }
    call w()                           # safe
    if e {
        return
    }
    call w()                           # safe
}`, commcheck.Options{}},
	{"procedures", `
proc shift(d, t) {
    send to (rank+d+size)%size tag t
    call w()                           # unsafe
    recv from (rank-d+size)%size tag t
    call w()                           # safe
}
proc down(k) (r) {
    if k == 0 {
        return 5
    }
    call shift(k, k)
    call down(k-1) -> r
    return r
}
proc main() {
    call shift(1, 3)
    call w()                           # safe
    call shift(0-1, 3)
    call down(3) -> t
    send to rank tag t
    recv from rank tag 5
    call w()                           # safe
}`, commcheck.Options{Ranks: []int{4, 5}}},
	{"deep recursion", `
proc down(k) {
    if k > 0 {
        call down(k-1)
        send to rank
        recv from rank
    }
}
proc main() {
    call down(20)
    call w()                           # safe
    call down(200)
    call w()                           # unknown: deep
}`, commcheck.Options{}},
	{"dynamic calls", `
proc f() { send to rank; call w() }      # unsafe
proc g() { recv from rank }
proc h() { x = 1 }
proc k() { x = 2 }
extern e()
proc main() {
    call "op" h|k()
    call w()                           # safe
    call "op" f|h()
    call w()                           # unsafe
    call e()
    call w()                           # unknown: source is not known
}`, commcheck.Options{Uniform: true}},
	{"dynamic calls that may differ", `
proc f() { send to rank }
proc h() { x = 1 }
proc k() { x = 2 }
proc main() {
    call "op" h|k()
    call w()                           # safe
    call "op" f|h()
    call w()                           # unknown: one of several
}`, commcheck.Options{}},
	{"any source", `
proc main() {
    for s = 0; s < 100; s = s + 1 {   # body safe
        if rank == 0 {
            for i = 1; i < size; i = i + 1 {
                recv tag 3
            }
        } else {
            send to 0 tag 3
        }
        call w()                        # safe
        collective "barrier"
        call w()                        # safe
    }
}`, commcheck.Options{Ranks: []int{3, 4}}},
	{"any source without a barrier", `
proc main() {
    for s = 0; s < 100; s = s + 1 {   # body unknown: sent later
        if rank == 0 {
            for i = 1; i < size; i = i + 1 {
                recv tag 3
            }
        } else {
            send to 0 tag 3
        }
        call w()                        # unknown
    }
}`, commcheck.Options{Ranks: []int{3}}},
	{"any source once", `
proc main() {
    if rank == 0 {
        for i = 1; i < size; i = i + 1 {
            recv tag 3
        }
    } else {
        send to 0 tag 3
    }
    call w()                        # safe
    if rank == 0 {
        recv from 1 tag 4
    } else if rank == 1 {
        send to 0 tag 4
    }
    call w()                        # safe
}`, commcheck.Options{Ranks: []int{2, 3, 4}}},
	{"probe", `
proc main() {
    if rank == 0 { send to size-1 tag 3 }
    if rank == size-1 {
        probe tag 3 status src
        recv from src tag 3
    }
    call w()                        # unknown: source that cannot be evaluated
}`, commcheck.Options{}},
	{"split", `
proc main() {
    collective "split" root rank % 2 status c
    send to (rank(c)+1) % size(c) group c tag 1
    call w()                        # unsafe
    recv from (rank(c)-1+size(c)) % size(c) group c tag 1
    call w()                        # safe
    collective "allreduce" group c
    call w()                        # safe
    if rank % 2 == 0 {
        collective "barrier" group c
    }
    call w()                        # safe
    if rank == 0 {
        collective "barrier" group c
    }
    call w()                        # unsafe: called by rank 0
}`, commcheck.Options{Ranks: []int{4, 5}}},
	{"split of unknown groups", `
proc main() {
    collective "split" status c
    collective "allreduce" group c
    call w()                        # safe
    send to (rank(c)+1) % size(c) group c tag 1
    call w()                        # unknown
}`, commcheck.Options{Ranks: []int{4, 5}}},
	{"world by name", `
proc shift(c) {
    send to (rank(c)+1) % size(c) group c tag 1
    recv from (rank(c)-1+size(c)) % size(c) group c tag 1
}
proc main() {
    call shift(0)
    collective "dup" status d
    call shift(d)
    call w()                        # safe
    send to rank group d
    recv from rank
    call w()                        # unsafe
}`, commcheck.Options{}},
	{"iterations by rank", `
proc main() {
    for i = 0; i < rank; i = i + 1 {   # body unsafe: only
        send to 0 tag i
    }
    if rank == 0 {
        for i = 1; i < size; i = i + 1 {
            for j = 0; j < i; j = j + 1 {
                recv from i tag j
            }
        }
    }
    call w()                           # safe
}`, commcheck.Options{}},
}
