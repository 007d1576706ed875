package copies

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "write what the scripts print into testdata")

// TestScripts runs the scripts in testdata. A script is a list of events, each
// followed by what it leads to: the actions of the hosts, indented.
//
//	hosts 3 partner=1 rs=2+1 incoming=1    a new world: hosts a, b, c, connected
//	objects 2 bd                           what checkpoint 2 has; without it:
//	                                       one object
//	a keep partner 1                       a's part of checkpoint 1 is to be on
//	                                       that tier
//	a retain partner 1 rs 1                these checkpoints are kept, and no
//	                                       others
//	a b                                    b gets the next message of a
//	a bytes b ID                           the bytes have come
//	b writes ID | b fails ID               they are durable, or could not be
//	                                       written
//	b writes part 1 | b fails part 1       … the part of checkpoint 1
//	a again
//	cut a b | join a b | lose c | replace c
//	b rots ID
//	b restarts
//	view                                   all get the newest view
//	run                                    everything that can happen without
//	                                       misfortunes
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

type script struct {
	w   *world
	out strings.Builder
}

func runScript(t *testing.T, text string) string {
	s := new(script)
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

func (s *script) apply(e event) error {
	if !slices.Contains(s.w.events(), e) {
		return fmt.Errorf("%v cannot happen", e)
	}
	w, err := s.w.apply(e)
	if err == nil {
		s.w = w
	}
	return err
}

func (s *script) run(words []string) error {
	if words[0] == "hosts" {
		sc := &scenario{hosts: int(words[1][0] - '0'), objects: map[uint64]string{}, losses: 99, cuts: 99, failures: 99, rot: 99, restarts: 99, owners: 1, replaced: true}
		for _, o := range words[2:] {
			name, v, _ := strings.Cut(o, "=")
			switch name {
			case "partner":
				sc.partner = int(v[0] - '0')
			case "incoming":
				sc.incoming = int(v[0] - '0')
			case "rs":
				sc.code = [2]int{int(v[0] - '0'), int(v[2] - '0')}
			}
		}
		s.w = newWorld(sc)
		s.w.trace = s.print
		return s.w.act(func(int) bool { return true })
	}
	host := func(i int) int { return number(words[i]) }
	switch words[0] {
	case "objects":
		s.w.sc.objects[uint64(words[1][0]-'0')] = words[2]
		return nil
	case "cut":
		return s.apply(event{kind: 'x', i: host(1), j: host(2)})
	case "join":
		return s.apply(event{kind: 'u', i: host(1), j: host(2)})
	case "lose":
		return s.apply(event{kind: 'l', i: host(1)})
	case "replace":
		return s.apply(event{kind: 'n', i: host(1)})
	case "view":
		for i := range s.w.hosts {
			if h := &s.w.hosts[i]; h.node != nil && h.view < len(s.w.views)-1 {
				if err := s.apply(event{kind: 'v', i: i}); err != nil {
					return err
				}
			}
		}
		return nil
	case "run":
		for range 1000 {
			todo := slices.DeleteFunc(s.w.events(), func(e event) bool { return quiet([]event{e}) || e.kind == 'a' || e.kind == 'v' })
			if len(todo) == 0 {
				return nil
			}
			if err := s.apply(todo[0]); err != nil {
				return err
			}
		}
		return errors.New("it never ends")
	}
	i := host(0)
	switch words[1] {
	case "keep", "retain":
		h := &s.w.hosts[i]
		s.w.sc.steps = append(slices.Clone(s.w.sc.steps[:h.steps]), strings.Join(words[1:], " "))
		for j := range s.w.hosts {
			if j != i {
				s.w.hosts[j].steps = h.steps + 1
			}
		}
		return s.apply(event{kind: 's', i: i})
	case "bytes":
		id, err := parseID(words[3])
		return errors.Join(err, s.apply(event{kind: 'd', i: i, j: host(2), id: id}))
	case "writes", "fails":
		kind := words[1][0] - 'w' + 'w'
		if words[2] == "part" {
			for p := range s.w.hosts[i].partWrites {
				if fmt.Sprint(p.Index) == words[3] {
					return s.apply(event{kind: map[byte]byte{'w': 'p', 'f': 'P'}[kind], i: i, part: p})
				}
			}
			return errors.New("no such part")
		}
		id, err := parseID(words[2])
		return errors.Join(err, s.apply(event{kind: map[byte]byte{'w': 'w', 'f': 'W'}[kind], i: i, id: id}))
	case "rots":
		id, err := parseID(words[2])
		return errors.Join(err, s.apply(event{kind: 'r', i: i, id: id}))
	case "restarts":
		return s.apply(event{kind: 'h', i: i})
	case "again":
		return s.apply(event{kind: 'a', i: i})
	}
	return s.apply(event{kind: 'm', i: i, j: host(1)})
}

// parseID reads what ID.String prints.
func parseID(s string) (id ID, err error) {
	object, rest, shard := strings.Cut(s, ".")
	id.Object = object
	if shard {
		_, err = fmt.Sscanf(rest, "%d+%d.%d", &id.Data, &id.Parity, &id.Shard)
	}
	return id, err
}

func (s *script) print(i int, a Action) {
	text := ""
	switch a := a.(type) {
	case Send:
		text = fmt.Sprintf("→ %s %s", a.To, a.Message.Kind)
		switch {
		case a.Part != nil:
			text += fmt.Sprintf(" %d of rank %d, %s, needs %v", a.Part.Index, a.Part.Rank, a.Message.Tier, a.IDs)
		case a.Message.Tier != "":
			text += fmt.Sprintf(" %d of rank %d, %s", a.Of.Index, a.Of.Rank, a.Message.Tier)
			if len(a.IDs) > 0 {
				text += fmt.Sprintf(" %v", a.IDs)
			}
		default:
			text += fmt.Sprintf(" %v", a.ID)
		}
		if a.Checkpoint.Index > 0 {
			text += fmt.Sprintf(" for %d", a.Checkpoint.Index)
		}
		if a.Why != "" {
			text += ": " + a.Why
		}
	case Transfer:
		text = fmt.Sprintf("⇒ %s %v", a.To, a.ID)
	case Expect:
		text = fmt.Sprintf("expects %v of %s", a.ID, a.From)
	case Abort:
		text = fmt.Sprintf("does not expect %v any more", a.ID)
	case StorePart:
		text = fmt.Sprintf("writes part %d of rank %d", a.Part.Index, a.Part.Rank)
	case Remove:
		text = fmt.Sprintf("removes %v", a.ID)
	case RemovePart:
		text = fmt.Sprintf("removes part %d of rank %d", a.ID.Index, a.ID.Rank)
	case Report:
		text = fmt.Sprintf("reports %s %d: %d missing", a.Tier, a.Checkpoint.Index, a.Missing)
	case Trouble:
		text = fmt.Sprintf("has trouble with %s, %v: %s", a.Peer, a.ID, a.Why)
	case Later:
		text = "tries again later"
	}
	fmt.Fprintf(&s.out, "    %s %s\n", name(i), text)
}

// TestCheck_MessagesWithoutSense checks that messages without sense are
// refused.
func TestCheck_MessagesWithoutSense(t *testing.T) {
	n := New(Config{Self: "a"}, nil, nil)
	for _, m := range []Message{
		{}, {Kind: "what"}, {Kind: Offer}, {Kind: Offer, ID: ID{Object: "x", Shard: 1}}, {Kind: Offer, ID: ID{Object: "x"}, Size: -1},
		{Kind: Want, ID: ID{Object: "x", Shard: 3, Data: 2, Parity: 1}}, {Kind: Want, ID: ID{Object: "x", Data: -1}}, {Kind: Want, ID: ID{Object: "x", Data: 200, Parity: 100}},
		{Kind: PartOffer, Tier: Partner}, {Kind: PartStored}, {Kind: Lacks, Tier: RS, IDs: []ID{{}}}, {Kind: Failed}, {Kind: Failed, Tier: "x"},
	} {
		if err := n.Receive("b", m); !errors.Is(err, ErrMalformed) || !strings.Contains(err.Error(), "host b") {
			t.Errorf("%+v: %v", m, err)
		}
	}
	if out := n.Take(); len(out) > 0 {
		t.Errorf("it acted: %v", out)
	}
}

// TestOffer_Twice checks that an object which two hosts offer, since its rank
// has moved from one to the other, is received once.
func TestOffer_Twice(t *testing.T) {
	n := New(Config{Self: "c"}, nil, nil)
	n.Up("a")
	n.Up("b")
	x := ID{Object: "x"}
	for _, from := range []string{"a", "b"} {
		if err := n.Receive(from, Message{Kind: Offer, ID: x, Size: 7}); err != nil {
			t.Fatal(err)
		}
	}
	expect := func(want ...Action) {
		t.Helper()
		if got := n.Take(); !reflect.DeepEqual(got, want) {
			t.Errorf("got %v, want %v", got, want)
		}
	}
	expect(Expect{"a", x, 7}, Send{"a", Message{Kind: Want, ID: x}})
	n.Down("a")
	expect(Abort{x}, Expect{"b", x, 7}, Send{"b", Message{Kind: Want, ID: x}})
	n.Up("a")
	if err := n.Receive("a", Message{Kind: Offer, ID: x, Size: 7}); err != nil {
		t.Fatal(err)
	}
	n.Written(x, nil)
	expect(Send{"b", Message{Kind: Stored, ID: x}}, Send{"a", Message{Kind: Have, ID: x}})
}
