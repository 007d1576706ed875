package coord

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "write what the scripts print into testdata")

// TestScripts runs the scripts in testdata. A script is a list of events,
// each followed by what it leads to: the actions of the ranks, indented.
//
//	ranks 3 arity=2 every=10 spatial releases=4    a new run
//	1 ask [stop] reason         rank 1 is asked for a checkpoint
//	1 sends 0 [2]               one message, or two, to rank 0: on its way
//	1 arrive 0                  all from rank 0 has arrived
//	1 miscounts 0               one more than that
//	1 point                     enters its next point
//	1 blocked on 0              or "on any"
//	1 unblocked
//	1 copied | 1 saved [error]
//	1 finished | 1 lost 2
//	1 askmove 7                 rank 1 is asked for move 7
//	1 replaced                  a destination takes rank 1's place; it is before
//	                            the same point
//	1 moved
//	0 to 1                      hands in the control messages from 0 to 1
//	deliver                     all control messages, until there are none
func TestScripts(t *testing.T) {
	files, err := filepath.Glob("testdata/*.txt")
	if err != nil || len(files) == 0 {
		t.Fatal("no scripts", err)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txt"), func(t *testing.T) {
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			got := runScript(t, string(text))
			if *update {
				if err := os.WriteFile(file, []byte(got), 0o666); err != nil {
					t.Fatal(err)
				}
			} else if got != string(text) {
				t.Errorf("%s: got\n%s\n(go test -run TestScripts -update writes it)", file, got)
			}
		})
	}
}

type scriptRun struct {
	ranks []*rank
	ctl   map[[2]int][]Message
	out   strings.Builder
}

func runScript(t *testing.T, text string) string {
	s := &scriptRun{ctl: map[[2]int][]Message{}}
	for _, line := range strings.Split(text, "\n") {
		if strings.HasPrefix(line, "    ") { // expected output
			continue
		}
		s.out.WriteString(line + "\n")
		words := strings.Fields(line)
		if len(words) == 0 || words[0] == "#" {
			continue
		}
		if err := s.run(words); err != nil {
			t.Fatalf("%s: %v", line, err)
		}
	}
	return strings.TrimSuffix(s.out.String(), "\n")
}

func (s *scriptRun) run(words []string) error {
	switch words[0] {
	case "ranks":
		return s.make(words[1:])
	case "deliver":
		for more := true; more; {
			more = false
			for from := range s.ranks {
				for to := range s.ranks {
					if len(s.ctl[[2]int{from, to}]) > 0 {
						more = true
						if err := s.deliver(from, to); err != nil {
							return err
						}
					}
				}
			}
		}
		return nil
	}
	i, err := strconv.Atoi(words[0])
	if err != nil || i >= len(s.ranks) || len(words) < 2 {
		return errors.New("not understood")
	}
	r, arg := s.ranks[i], -1
	rest := words[2:]
	if len(rest) > 0 {
		if v, err := strconv.Atoi(rest[len(rest)-1]); err == nil {
			arg = v
		}
	}
	switch words[1] {
	case "ask":
		stop := len(rest) > 0 && rest[0] == "stop"
		if stop {
			rest = rest[1:]
		}
		r.node.Ask(strings.Join(rest, " "), stop)
	case "sends":
		to, _ := strconv.Atoi(rest[0])
		r.sent[to]++
		if len(rest) > 1 {
			r.sent[to] += uint64(arg) - 1
		}
	case "arrive":
		r.arrived[arg] = s.ranks[arg].sent[i]
	case "miscounts":
		r.arrived[arg] = s.ranks[arg].sent[i] + 1
	case "point":
		r.points++
		if r.node.AtPoint(r.points) {
			fmt.Fprintf(&s.out, "    %d passes point %d\n", i, r.points)
		}
	case "blocked":
		var on []int
		if arg >= 0 {
			on = []int{arg}
		}
		r.node.Blocked(on)
	case "unblocked":
		r.node.Unblocked()
	case "copied":
		r.node.Copied(r.node.index)
	case "saved":
		var err error
		if len(rest) > 0 {
			err = errors.New(strings.Join(rest, " "))
		}
		set := r.saving[0]
		r.saving = r.saving[1:]
		r.node.Saved(set, err)
	case "counted": // saved, with the sums of the totals of messages
		set := r.saving[0]
		r.saving = r.saving[1:]
		sent, _ := strconv.ParseUint(rest[0], 10, 64)
		r.node.SavedAlone(set, Sums{sent, uint64(arg)}, nil)
	case "finished":
		r.node.Finished()
	case "askmove":
		r.node.AskMove(uint64(arg))
	case "replaced":
		n, err := Import(Config{Rank: i, Size: len(s.ranks), Counts: r}, r.node.Export())
		if err != nil {
			return err
		}
		r.node = n
		r.points--
	case "moved":
		if err := r.node.Moved(r.node.moving); err != nil {
			return err
		}
	case "lost":
		r.node.Lost(arg, "connection reset")
		s.ranks[arg].status = dead
	case "to":
		return s.deliver(i, arg)
	default:
		return errors.New("not understood")
	}
	s.take(i)
	return nil
}

func (s *scriptRun) make(words []string) error {
	size, err := strconv.Atoi(words[0])
	if err != nil {
		return err
	}
	var cfg Config
	for _, w := range words[1:] {
		name, value, _ := strings.Cut(w, "=")
		v, _ := strconv.Atoi(value)
		switch name {
		case "arity":
			cfg.Arity = v
		case "every":
			cfg.Every = uint64(v)
		case "spatial":
			cfg.Spatial = true
		case "releases":
			cfg.MaxReleases = v
		default:
			return fmt.Errorf("no such option: %s", name)
		}
	}
	s.ranks = nil
	clear(s.ctl)
	for i := range size {
		r := &rank{sent: make([]uint64, size), arrived: make([]uint64, size)}
		cfg.Rank, cfg.Size, cfg.Counts = i, size, zeroCounts{}
		r.node = New(cfg)
		r.node.cfg.Counts = r
		s.ranks = append(s.ranks, r)
	}
	return nil
}

func (s *scriptRun) deliver(from, to int) error {
	key := [2]int{from, to}
	list := s.ctl[key]
	s.ctl[key] = nil
	if s.ranks[to].status == dead {
		return nil
	}
	for _, m := range list {
		if err := s.ranks[to].node.Receive(from, m); err != nil {
			return err
		}
	}
	s.take(to)
	return nil
}

// take prints the actions of a rank and puts its messages on their way.
func (s *scriptRun) take(i int) {
	for _, a := range s.ranks[i].node.Take() {
		text := ""
		switch a := a.(type) {
		case Send:
			s.ctl[[2]int{i, a.To}] = append(s.ctl[[2]int{i, a.To}], a.Msg)
			text = fmt.Sprintf("→ %d %s", a.To, describe(a.Msg))
		case Save:
			s.ranks[i].saving = append(s.ranks[i].saving, a.Index)
			text = fmt.Sprintf("Save index=%d point=%d due=%d cut=%v reason=%q", a.Index, a.Point, a.Due, a.Cut, a.Reason)
			if a.Stop {
				text += " stop"
			}
			if a.Alone {
				text += " alone"
			}
		case Failed:
			text = fmt.Sprintf("Failed index=%d: %v", a.Index, a.Err)
		case Committed:
			text = fmt.Sprintf("Committed index=%d", a.Index)
		case CalledOff:
			text = fmt.Sprintf("CalledOff stop=%v: %v", a.Stop, a.Err)
		case Stop:
			text = fmt.Sprintf("Stop index=%d err=%v", a.Index, a.Err)
		case Move:
			text = fmt.Sprintf("Move id=%d point=%d", a.ID, a.Point)
		case MoveOff:
			text = fmt.Sprintf("MoveOff id=%d: %v", a.ID, a.Err)
		default:
			text = strings.TrimPrefix(fmt.Sprintf("%T", a), "coord.")
		}
		fmt.Fprintf(&s.out, "    %d %s\n", i, text)
	}
}

// describe shows the fields of a message that travel.
func describe(m Message) string {
	fields := kindFields[m.Kind]
	text := m.Kind.String()
	names := []string{"epoch", "step", "wave", "point", "index", "sent", "received", "paused", "move"}
	for i, f := range m.numbers() {
		if fields&f.field != 0 {
			text += fmt.Sprintf(" %s=%d", names[i], *f.value)
		}
	}
	if fields&hasRank != 0 {
		text += fmt.Sprintf(" rank=%d", m.Rank)
	}
	for bit, name := range []string{"stop", "all", "detail", "over", "failed", "move"} {
		if m.Flags>>bit&1 != 0 {
			text += " " + name
		}
	}
	if m.Text != "" {
		text += fmt.Sprintf(" %q", m.Text)
	}
	if len(m.Ranks) > 0 {
		text += fmt.Sprintf(" ranks=%v", m.Ranks)
	}
	for _, w := range m.Waits {
		text += fmt.Sprintf(" %d←%v", w.Rank, w.On)
	}
	return text
}

// TestNew_InvalidConfig shows that New panics if the configuration is invalid.
func TestNew_InvalidConfig(t *testing.T) {
	for _, cfg := range []Config{{}, {Size: 2, Rank: 2, Counts: zeroCounts{}}, {Size: 1, Rank: -1, Counts: zeroCounts{}}, {Size: 1}} {
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("%+v was taken", cfg)
				}
			}()
			New(cfg)
		}()
	}
}

// TestReceive_WrongMessage refuses messages from wrong ranks, and with wrong
// content.
func TestReceive_WrongMessage(t *testing.T) {
	n := New(Config{Rank: 1, Size: 6, Arity: 2, Counts: zeroCounts{}}) // parent 0, children 3 and 4
	for _, c := range []struct {
		from int
		m    Message
	}{
		{9, Message{Kind: KindPoll, Epoch: 1}},
		{0, Message{}},
		{0, Message{Kind: kindLimit}},
		{0, Message{Kind: KindLost, Rank: 6}},
		{3, Message{Kind: KindPoll, Epoch: 1}},
		{0, Message{Kind: KindPoll, Epoch: 2}},
		{0, Message{Kind: KindSave, Epoch: 1}},
		{0, Message{Kind: KindRelease, Epoch: 1, Step: 2}},
		{0, Message{Kind: KindProbe, Epoch: 1, Step: 1}},
		{2, Message{Kind: KindCount, Epoch: 1}},
		{0, Message{Kind: KindAsk}},
		{0, Message{Kind: KindMove, Epoch: 1, Move: 1}},
		{0, Message{Kind: KindMove, Epoch: 1}},
		{3, Message{Kind: KindMove, Epoch: 1, Move: 1}},
		{3, Message{Kind: KindAskMove}},
		{0, Message{Kind: KindAskMove, Move: 1}},
		{1, Message{Kind: KindBookmark, Epoch: 1}},
	} {
		if err := n.Receive(c.from, c.m); !errors.Is(err, ErrMessage) {
			t.Errorf("%v from %d: %v", c.m.Kind, c.from, err)
		}
	}
	if out := n.Take(); len(out) > 0 {
		t.Errorf("nonsense led to %v", out)
	}
	if err := n.Receive(0, Message{Kind: KindPoll, Epoch: 1}); err != nil {
		t.Error(err)
	}
	if err := n.Receive(0, Message{Kind: KindPoll, Epoch: 1}); !errors.Is(err, ErrMessage) {
		t.Error("polled twice:", err)
	}
	if got := slices.Clone(n.children); !slices.Equal(got, []int{3, 4}) {
		t.Error("children", got)
	}
}
