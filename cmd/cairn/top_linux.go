package main

import (
	"context"
	"fmt"
	"path/filepath"
	"time"

	"github.com/gdamore/tcell/v2"
	"github.com/rivo/uniseg"
	"github.com/spf13/cobra"

	"github.com/cairnrun/cairn/internal/events"
	"github.com/cairnrun/cairn/internal/supervise/client"
)

// topEvery is the time between two looks at the run.
const topEvery = 500 * time.Millisecond

func init() { runCommands = append(runCommands, topCommand) }

func topCommand(c *call) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "top [flags] [RUN]",
		Short: "show a run in the terminal, live",
		Long: `Shows a run in the terminal, and updates the picture: the state, figures, a
timeline, hosts and ranks, storage tiers, and the log. The timeline shows failures
(✗), work that is computed again (▒) and the pauses of checkpoints. RUN is the run
directory that 'cairn run' made; if left out, the only *.cairn directory here.

Each rank is a bar, the higher the more points it has reached, compared with the
others. Keys: q ends the command, not the run; c takes a checkpoint; s makes the
run save and stop, after a question.`,
		Example: `  cairn top                  # the run in this directory
  cairn top --once sim.cairn # one picture as text`,
		Args:              takes(0, 1),
		ValidArgsFunction: completeRuns,
	}
	once := cmd.Flags().Bool("once", false, "print one picture and end, as without a terminal")
	cmd.RunE = c.does(func(ctx context.Context, c *call) error {
		if c.json {
			return usagef("top: output is text; 'cairn status --json' has the state as JSON")
		}
		run, err := c.theRun()
		if err != nil {
			return err
		}
		if run, err = filepath.Abs(run); err != nil {
			return err
		}
		t := &top{topView: topView{run: run}, reader: events.NewReader(filepath.Join(run, events.FileName)), news: make(chan func(), 1)}
		if t.look(ctx)(); t.err != nil {
			return t.err
		}
		if *once || !isTerminal(c.stdout.w) {
			for _, r := range t.frame(time.Now(), 100, 40) {
				for _, s := range r {
					c.printf("%s", s.text)
				}
				c.printf("\n")
			}
			return nil
		}
		screen, err := tcell.NewScreen()
		if err == nil {
			err = screen.Init()
		}
		if err != nil {
			return fmt.Errorf("the terminal cannot be used: %w; 'cairn top --once' needs none", err)
		}
		defer screen.Fini()
		return t.show(ctx, screen)
	})
	return cmd
}

// top is the state of the command.
type top struct {
	topView
	reader *events.Reader
	news   chan func() // changes of the view, made by other goroutines
	asking bool        // whether to stop
}

// look reads the run, and returns a function that puts what it found into the
// view.
func (t *top) look(ctx context.Context) func() {
	list, anew, err := t.reader.Next()
	st, serr := client.Read(ctx, t.run)
	if err == nil {
		err = serr
	}
	now := time.Now()
	return func() {
		t.add(list, anew)
		if t.err = err; st != nil {
			t.state, t.read = st, now
		}
	}
}

// show draws the run again and again until the user leaves.
func (t *top) show(ctx context.Context, screen tcell.Screen) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	keys, quit := make(chan tcell.Event, 16), make(chan struct{})
	defer close(quit)
	go screen.ChannelEvents(keys, quit)
	post := func(f func()) {
		select {
		case t.news <- f:
		case <-ctx.Done():
		}
	}
	go func() {
		tick := time.NewTicker(topEvery)
		defer tick.Stop()
		for {
			select {
			case <-tick.C:
				post(t.look(ctx))
			case <-ctx.Done():
				return
			}
		}
	}()
	for {
		t.draw(screen)
		select {
		case f := <-t.news:
			f()
		case e := <-keys:
			switch e := e.(type) {
			case *tcell.EventResize:
				screen.Sync()
			case *tcell.EventKey:
				if !t.key(ctx, e, post) {
					return nil
				}
			}
		case <-ctx.Done():
			return nil
		}
	}
}

// key handles a key. It reports false if the command is to end.
func (t *top) key(ctx context.Context, e *tcell.EventKey, post func(func())) bool {
	if e.Key() == tcell.KeyCtrlC || e.Key() == tcell.KeyEscape && !t.asking || e.Rune() == 'q' && !t.asking {
		return false
	}
	request := func(doing string, do func() (string, error)) {
		t.ask = doing
		go func() {
			text, err := do()
			if err != nil {
				text = err.Error()
			}
			post(func() { t.ask = printable(text) })
		}()
	}
	switch {
	case t.asking:
		t.asking, t.ask = false, ""
		if e.Rune() == 'y' {
			request("the ranks save and stop", func() (string, error) {
				st, err := client.Stop(ctx, t.run, "cairn top")
				if err != nil {
					return "", err
				}
				return "the run is " + st.State, nil
			})
		}
	case e.Rune() == 'c' && t.live():
		request("a checkpoint is being taken", func() (string, error) {
			c, err := client.Checkpoint(ctx, t.run, "cairn top")
			if err != nil {
				return "", err
			}
			return fmt.Sprintf("checkpoint %d committed", c.Index), nil
		})
	case e.Rune() == 's' && t.live():
		t.asking, t.ask = true, "save and stop the run? y: yes, any other key: no"
	default:
		t.ask = ""
	}
	return true
}

// draw shows the view.
func (t *top) draw(screen tcell.Screen) {
	width, height := screen.Size()
	screen.Clear()
	put := func(y int, r row) {
		x := 0
		for _, s := range r {
			for g := uniseg.NewGraphemes(s.text); g.Next(); x += g.Width() {
				c := g.Runes()
				screen.SetContent(x, y, c[0], c[1:], styles[s.tone])
			}
		}
	}
	for y, r := range t.frame(time.Now(), width, height) {
		put(y, r)
	}
	put(height-1, t.keys(width))
	screen.Show()
}

// styles use the terminal's own colours, so that they fit a light and a dark
// one.
var styles = map[tone]tcell.Style{
	plain:     tcell.StyleDefault,
	strong:    tcell.StyleDefault.Bold(true),
	soft:      tcell.StyleDefault.Dim(true),
	good:      tcell.StyleDefault.Foreground(tcell.ColorGreen),
	attention: tcell.StyleDefault.Foreground(tcell.ColorOlive),
	bad:       tcell.StyleDefault.Foreground(tcell.ColorMaroon).Bold(true),
	mark:      tcell.StyleDefault.Foreground(tcell.ColorTeal),
}
