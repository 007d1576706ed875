package engine

import (
	"os"
	"os/signal"
	"sync"
)

// signalWatch turns signals into due checkpoints. After a signal with
// SaveAndStop, the next one has its usual effect, in case the program never
// reaches a point. Under a supervisor it has none: schedulers signal all
// processes of a job, some twice, and the supervisor kills ranks that do not
// stop in time.
type signalWatch struct {
	ch   chan os.Signal
	done chan struct{}
	once sync.Once
}

func watchSignals(p *Run) *signalWatch {
	actions := p.opts.Signals
	if actions == nil {
		actions = defaultSignals
	}
	if len(actions) == 0 {
		return nil
	}
	w := &signalWatch{ch: make(chan os.Signal, 4), done: make(chan struct{})}
	for s := range actions {
		signal.Notify(w.ch, s)
	}
	go func() {
		for {
			select {
			case <-w.done:
				return
			case s := <-w.ch:
				if actions[s] == SaveAndStop {
					p.requestStop(s.String())
					if p.identity.supervisor != nil && p.identity.tiers == nil {
						continue
					}
					signal.Stop(w.ch) // the next one has its usual effect
					for other, a := range actions {
						if a != SaveAndStop {
							signal.Notify(w.ch, other)
						}
					}
				} else {
					p.requestBy(s.String())
				}
			}
		}
	}()
	return w
}

func (w *signalWatch) stop() {
	w.once.Do(func() {
		signal.Stop(w.ch)
		close(w.done)
	})
}
