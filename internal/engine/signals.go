package engine

import (
	"os"
	"os/signal"
	"sync"
)

// signalWatch turns signals into due checkpoints. After a signal with
// SaveAndStop, the next such signal has its usual effect, in case the program
// never reaches a point. Under a supervisor the next signal has no effect:
// schedulers signal all processes of a job, some of them twice, and the
// supervisor kills ranks that do not stop in time.
type signalWatch struct {
	save, stopping chan os.Signal // by what a signal does; a channel for each, so that one can be given up
	done           chan struct{}
	once           sync.Once
}

func watchSignals(p *Run) *signalWatch {
	actions := p.opts.Signals
	if actions == nil {
		actions = defaultSignals
	}
	if len(actions) == 0 {
		return nil
	}
	w := &signalWatch{save: make(chan os.Signal, 4), stopping: make(chan os.Signal, 4), done: make(chan struct{})}
	for s, a := range actions {
		if a == SaveAndStop {
			signal.Notify(w.stopping, s)
		} else {
			signal.Notify(w.save, s)
		}
	}
	go func() {
		for {
			select {
			case <-w.done:
				return
			case s := <-w.save:
				p.requestBy(s.String())
			case s := <-w.stopping:
				p.requestStop(s.String())
				if p.identity.supervisor == nil || p.identity.tiers != nil {
					signal.Stop(w.stopping) // the next signal has its usual effect
				}
			}
		}
	}()
	return w
}

func (w *signalWatch) stop() {
	w.once.Do(func() {
		signal.Stop(w.save)
		signal.Stop(w.stopping)
		close(w.done)
	})
}
