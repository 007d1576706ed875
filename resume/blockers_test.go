package resume

import (
	"runtime"
	"strings"
	"testing"
)

// TestProgramGoroutine checks which goroutines of a stack dump are the
// program's.
func TestProgramGoroutine(t *testing.T) {
	const (
		me     = "goroutine 1 [running]:\nmain.main()\n\t/x/main.go:9 +0x1\n"
		signal = "\ngoroutine 20 [syscall]:\nos/signal.loop()\n\t/go/src/os/signal/signal_unix.go:23 +0x13\ncreated by os/signal.Notify.func1.1 in goroutine 1\n\t/go/src/os/signal/signal.go:152 +0x1f\n"
	)
	ours := func(id, by string) string {
		return "\ngoroutine " + id + " [select]:\n" + ownModule + ".f()\n\t/c/f.go:1 +0x1\ncreated by " + by + "\n\t/c/g.go:2 +0x2\n"
	}
	user := "\ngoroutine 7 [chan receive, 3 minutes]:\nmain.work(0x1)\n\t/x/work.go:5 +0x2c\ncreated by main.start in goroutine 1\n\t/x/start.go:77 +0x55\n"
	group := func(first string) string {
		return "\ngoroutine 8 [runnable]:\n" + first + "()\n\t/x/a.go:5 +0x2c\nsync.(*WaitGroup).Go.func1()\n\t/go/src/sync/waitgroup.go:239 +0x4a\ncreated by sync.(*WaitGroup).Go in goroutine 1\n\t/go/src/sync/waitgroup.go:237 +0x73\n"
	}
	cleanup := func(f string) string {
		return "\ngoroutine 9 [sync.Mutex.Lock]:\nsync.(*Mutex).Lock(...)\n\t/go/src/sync/mutex.go:46\n" + f + "(0x1)\n\t/x/a.go:5 +0x2c\nruntime.runCleanups()\n\t/go/src/runtime/mcleanup.go:745 +0x92\n"
	}
	waiters.all = map[string]*waiter{"30": {savedWaiter{nil, 12}}, "31": {savedWaiter{nil, 12}}}
	defer func() { waiters.all = nil }()
	waiting := func(id, state, calls string) string {
		return "\ngoroutine " + id + " [" + state + "]:\n" + calls + ownPackage + "(*waiter).run(0x1)\n\t/c/waits.go:5 +0x2c\ncreated by " + ownPackage + "Go in goroutine 1\n\t/c/waits.go:3 +0x55\n"
	}
	const rest, other = "main.main.func1()\n\t/x/main.go:12 +0x1\n", "main.main.func1()\n\t/x/main.go:14 +0x1\n"
	child := "\ngoroutine 40 [chan receive]:\nmain.work(0x1)\n\t/x/work.go:5 +0x2c\ncreated by main.main.func1 in goroutine 30\n\t/x/main.go:13 +0x55\n"
	for _, c := range []struct {
		name, text, at string
		blocked        bool
	}{
		{"waiters", me + waiting("30", "chan receive", rest) + waiting("31", "select, 2 minutes", rest), "", false},
		{"a waiter that does not wait any more", me + waiting("30", "chan receive", other), "/c/waits.go:3", true},
		{"a waiter that is to begin", me + waiting("30", "runnable", ""), "/c/waits.go:3", false},
		{"a waiter that nobody knows", me + waiting("32", "chan receive", rest), "/c/waits.go:3", true},
		{"a waiter that waits deeper", me + waiting("30", "chan receive", rest+other), "/c/waits.go:3", true},
		{"a child of a waiter", me + waiting("30", "chan receive", rest) + child, "/x/main.go:13", true},
		{"alone", me, "", false},
		{"own", me + signal + ours("5", ownModule+".supervised in goroutine 1") + ours("6", ownModule+"/ckpt.(*Saver).run in goroutine 1"), "", false},
		{"children of own", me + ours("5", ownModule+".supervised in goroutine 1") + ours("9", "example.com/zip.Start in goroutine 5"), "", false},
		{"user", me + signal + user, "/x/start.go:77", true},
		{"children of users", me + user + ours("9", "main.more in goroutine 7"), "/x/start.go:77", true},
		{"user's group", me + group("main.work.func1"), "/go/src/sync/waitgroup.go:237", false},
		{"own group", me + group(ownModule+"/ckpt.work.func1"), "", false},
		{"own cleanup", me + cleanup(ownModule+"/device.newMemory.func1"), "", false},
		{"user's cleanup", me + cleanup("main.forget"), "/go/src/runtime/mcleanup.go:745", true},
		{"a program in this module", me + ours("5", ownModule+"/examples/heat.run in goroutine 1"), "/c/g.go:2", true},
		{"a module with a longer name", me + ours("5", ownModule+"s.run in goroutine 1"), "/c/g.go:2", true},
	} {
		g := programGoroutine(c.text)
		if at := ""; g != nil {
			if at = g.at; at != c.at || g.blocked != c.blocked {
				t.Errorf("%s: found %+v, want one started at %q", c.name, g, c.at)
			}
		} else if c.at != "" {
			t.Errorf("%s: found none, want one started at %q", c.name, c.at)
		}
	}
}

// TestLiveGoroutine finds a goroutine of the program that is not known.
func TestLiveGoroutine(t *testing.T) {
	ready, stop := make(chan int), make(chan int)
	defer close(stop)
	go func() { close(ready); <-stop }()
	<-ready
	// After a resume, the goroutine that runs all tests is unknown, too.
	if why := liveGoroutine(runtime.NumGoroutine(), grace); !strings.HasPrefix(why, "a goroutine is running that ") {
		t.Errorf("found %q", why)
	}
	if why := liveGoroutine(1, grace); why != "" {
		t.Errorf("found %q", why)
	}
}

// TestLiveGoroutine_StartedByInit finds a goroutine that init has started, and
// what started it.
func TestLiveGoroutine_StartedByInit(t *testing.T) {
	begun, end := make(chan bool), make(chan bool)
	defer close(end)
	startUnknown("main.go:7", func() {
		begun <- true
		<-end
	})
	<-begun
	text := make([]byte, 1<<20)
	text = text[:runtime.Stack(text, true)]
	for s := range strings.SplitSeq(string(text), "\n\n") {
		if strings.Contains(s, "created by "+initCreator) {
			g := programGoroutine("\n\n" + s)
			if g == nil || g.text() != "a goroutine is running that init has started at main.go:7" {
				t.Errorf("%+v", g)
			}
			return
		}
	}
	t.Error("the goroutine is not there")
}
