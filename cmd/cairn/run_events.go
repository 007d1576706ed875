package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/pflag"

	"github.com/cairnrun/cairn/internal/control"
	"github.com/cairnrun/cairn/internal/events"
)

const (
	hookTime    = time.Minute      // how long a command of --on-event may take
	hookEndTime = 30 * time.Second // how long the end of the run waits for these commands
)

// eventFlags are the flags that pass on events.
type eventFlags struct{ to, hook string }

func (f *eventFlags) declare(flags *pflag.FlagSet) {
	flags.StringVar(&f.to, "events", "", "append events to `FILE`, a JSON document per line; - is stdout, which then has nothing else")
	flags.StringVar(&f.hook, "on-event", "", "run `COMMAND` with /bin/sh for every event, which it finds on stdin and in CAIRN_EVENT")
}

// start returns a function for each event of the run, and one for its end.
func (f *eventFlags) start(c *call, run string, say func(string)) (add func(*events.Event), end func(), err error) {
	var adds []func(*events.Event)
	var ends []func()
	if f.to != "" {
		w, err := eventsTo(c, f.to)
		if err != nil {
			return nil, nil, err
		}
		l := newEventLines(w, func(err error) {
			c.stdout.err = nil // a reader that has left is no failure of the run
			say(fmt.Sprintf("--events: events cannot be written any more: %v; %s has them", err, filepath.Join(run, events.FileName)))
		})
		adds, ends = append(adds, l.add), append(ends, l.close)
	}
	if f.hook != "" {
		h := newEventHook(f.hook, run, say)
		adds, ends = append(adds, h.add), append(ends, h.close)
	}
	add = func(e *events.Event) {
		for _, f := range adds {
			f(e)
		}
	}
	end = func() {
		for _, f := range ends {
			f()
		}
	}
	return add, end, nil
}

// eventsTo opens what --events names; "-" is stdout.
func eventsTo(c *call, name string) (io.Writer, error) {
	if name == "-" {
		return c.stdout, nil
	}
	// With a pipe, neither opening nor writing may block the run.
	f, err := os.OpenFile(name, os.O_CREATE|os.O_WRONLY|os.O_APPEND|syscall.O_NONBLOCK, 0o666)
	if errors.Is(err, syscall.ENXIO) {
		err = fmt.Errorf("%w: no process reads this pipe; start its reader first", err)
	}
	if err != nil {
		return nil, usagef("run: --events: %v", err)
	}
	return f, nil
}

// eventLines writes events as JSON lines. It never makes the run wait: a reader
// that is too slow misses events, and sees that by their numbers.
type eventLines struct {
	w      io.Writer
	queue  *displayQueue
	failed func(error) // called once
	broken bool
}

func newEventLines(w io.Writer, failed func(error)) *eventLines {
	return &eventLines{w: w, failed: failed, queue: newDisplayQueue(func(int) {})}
}

func (l *eventLines) add(e *events.Event) {
	line, err := json.Marshal(e)
	if err != nil {
		return
	}
	l.queue.note(func() {
		if l.broken {
			return
		}
		if _, err := l.w.Write(append(line, '\n')); err != nil {
			l.broken = true
			l.failed(err)
		}
	})
}

// close waits until all is written, unless the reader is stuck.
func (l *eventLines) close() {
	l.queue.close()
	select {
	case <-l.queue.done:
	case <-time.After(closeTime):
	}
	if f, ok := l.w.(*os.File); ok {
		f.Close()
	}
}

// eventHook runs a command for each event, one at a time.
type eventHook struct {
	command, run string
	queue        *displayQueue
	ctx          context.Context
	cancel       context.CancelFunc
	say          func(string) // reports a failure, once until the command works again
	failed       bool
}

func newEventHook(command, run string, say func(string)) *eventHook {
	h := &eventHook{command: command, run: run, say: say}
	h.ctx, h.cancel = context.WithCancel(context.Background())
	h.queue = newDisplayQueue(func(n int) {
		say(fmt.Sprintf("--on-event: the command is too slow, and was not run for %s", control.Count(n, "event")))
	})
	return h
}

func (h *eventHook) add(e *events.Event) {
	line, err := json.Marshal(e)
	if err != nil {
		return
	}
	h.queue.note(func() {
		err := h.do(e, append(line, '\n'))
		if err != nil && !h.failed && h.ctx.Err() == nil {
			h.say(fmt.Sprintf("--on-event: the command failed for the event %q: %v; the run continues", e.Kind, err))
		}
		h.failed = err != nil
	})
}

// do runs the command for one event.
func (h *eventHook) do(e *events.Event, line []byte) error {
	ctx, cancel := context.WithTimeout(h.ctx, hookTime)
	defer cancel()
	cmd := exec.CommandContext(ctx, "/bin/sh", "-c", h.command)
	cmd.Stdin = bytes.NewReader(line)
	cmd.Env = append(os.Environ(), "CAIRN_EVENT="+string(e.Kind), "CAIRN_EVENT_TEXT="+e.Text, "CAIRN_EVENT_RUN="+h.run)
	ownGroup(cmd)
	cmd.WaitDelay = time.Second // for what it has left in the background
	said, err := cmd.CombinedOutput()
	if ctx.Err() != nil && h.ctx.Err() == nil {
		return fmt.Errorf("it took longer than %v and was killed", hookTime)
	}
	if errors.Is(err, exec.ErrWaitDelay) {
		err = nil
	}
	if last := strings.TrimSpace(string(said)); err != nil && last != "" {
		return fmt.Errorf("%w: %s", err, printable(last[strings.LastIndexByte(last, '\n')+1:]))
	}
	return err
}

// close waits for the commands of the last events, but not forever.
func (h *eventHook) close() {
	h.queue.close()
	select {
	case <-h.queue.done:
	case <-time.After(hookEndTime):
		h.say(fmt.Sprintf("--on-event: the commands for the last events have not ended within %v, and are killed", hookEndTime))
	}
	h.cancel()
	<-h.queue.done
}
