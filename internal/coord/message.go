package coord

import (
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
)

// Kind says what a control message means.
type Kind uint8

// The kinds of control messages; doc.go says who sends which and when.
const (
	KindAsk       Kind = iota + 1 // up: take a checkpoint
	KindDue                       // up: a due point was reached
	KindPoll                      // down: how many points have you reached?
	KindCount                     // up: the highest number of points reached
	KindTarget                    // down: pause at this point
	KindBookmark                  // between peers: I have sent you this many messages
	KindQuiet                     // up: no rank here can continue by itself
	KindNotice                    // up: something changed since Quiet
	KindProbe                     // down: report again when you are quiet
	KindRelease                   // down: these ranks continue by one point
	KindComplete                  // up: all paused here, all channels drained
	KindSave                      // down: copy your state now
	KindSaved                     // up: the parts of all ranks here are durable, or one failed
	KindOutcome                   // down: the checkpoint is committed, or has failed
	KindCalledOff                 // down: the round is called off
	KindFinished                  // up: a rank's program has ended
	KindEnded                     // up: all programs here have ended
	KindEnd                       // down: all programs have ended
	KindLost                      // to tree neighbours: a rank died
	KindFault                     // up: the counts of messages contradict each other
	KindAskMove                   // up: pause all ranks, so that some can move
	KindMove                      // down: all are paused, links may change
	kindLimit
)

var kindNames = [kindLimit]string{
	KindAsk: "Ask", KindDue: "Due", KindPoll: "Poll", KindCount: "Count", KindTarget: "Target",
	KindBookmark: "Bookmark", KindQuiet: "Quiet", KindNotice: "Notice", KindProbe: "Probe",
	KindRelease: "Release", KindComplete: "Complete", KindSave: "Save", KindSaved: "Saved",
	KindOutcome: "Outcome", KindCalledOff: "CalledOff", KindFinished: "Finished",
	KindEnded: "Ended", KindEnd: "End", KindLost: "Lost", KindFault: "Fault",
	KindAskMove: "AskMove", KindMove: "Move",
}

func (k Kind) String() string {
	if k > 0 && k < kindLimit {
		return kindNames[k]
	}
	return fmt.Sprintf("Kind(%d)", uint8(k))
}

// Flags of a Message.
type Flags uint8

const (
	FlagStop   Flags = 1 << iota // Ask, Save, CalledOff: stop after the checkpoint
	FlagAll                      // Release: every paused rank continues
	FlagDetail                   // Probe: report also which rank waits for which
	FlagOver                     // CalledOff: there will be no further round
	FlagFailed                   // Saved, Outcome: Rank could not save; CalledOff: counts differ; Text says why
	FlagMove                     // Target, CalledOff: the round was begun for a move
	FlagUnsafe                   // Outcome, with FlagFailed: a message crossed a spatial checkpoint
	flagsLimit
)

// Wait says that a rank waits for messages from other ranks, or until they
// receive its messages.
type Wait struct {
	Rank int
	On   []int // ascending; empty: any rank
}

// Message is a control message. Its Kind determines which fields are used. The
// others are zero and are not sent.
type Message struct {
	Kind     Kind
	Flags    Flags
	Epoch    uint64 // number of the round
	Step     uint64 // number of releases in this round so far
	Wave     uint64 // number of the count of quiet ranks within the step
	Point    uint64 // a number of points
	Index    uint64 // a checkpoint's index
	Sent     uint64 // a total of messages; in Saved, see Sums
	Received uint64
	Paused   uint64 // number of paused ranks
	Move     uint64 // a move's id
	Rank     int
	Text     string
	Ranks    []int // ascending
	Waits    []Wait
}

// The fields that a kind of message has.
const (
	hasFlags uint16 = 1 << iota
	hasEpoch
	hasStep
	hasWave
	hasPoint
	hasIndex
	hasSent
	hasReceived
	hasPaused
	hasMove
	hasRank
	hasText
	hasRanks
	hasWaits
)

var kindFields = [kindLimit]uint16{
	KindAsk:       hasFlags | hasText,
	KindDue:       hasEpoch,
	KindPoll:      hasEpoch,
	KindCount:     hasEpoch | hasPoint,
	KindTarget:    hasFlags | hasEpoch | hasPoint,
	KindBookmark:  hasEpoch | hasStep | hasSent,
	KindQuiet:     hasEpoch | hasStep | hasWave | hasPoint | hasSent | hasReceived | hasPaused | hasWaits,
	KindNotice:    hasEpoch | hasStep | hasWave,
	KindProbe:     hasFlags | hasEpoch | hasStep | hasWave,
	KindRelease:   hasFlags | hasEpoch | hasStep | hasRanks,
	KindComplete:  hasEpoch | hasStep | hasPoint | hasIndex,
	KindSave:      hasFlags | hasEpoch | hasPoint | hasIndex | hasText,
	KindSaved:     hasFlags | hasIndex | hasSent | hasReceived | hasRank | hasText,
	KindOutcome:   hasFlags | hasIndex | hasRank | hasText,
	KindCalledOff: hasFlags | hasEpoch | hasPoint | hasText,
	KindFinished:  hasPoint | hasRank,
	KindEnded:     0,
	KindEnd:       0,
	KindLost:      hasRank | hasText,
	KindFault:     hasEpoch | hasStep | hasText,
	KindAskMove:   hasMove,
	KindMove:      hasEpoch | hasPoint | hasMove,
}

const (
	maxText = 1 << 10 // longer texts are cut when they enter the Node
	maxRank = 1<<31 - 1
)

// ErrMessage is wrapped by the errors of Parse and Node.Receive: no Node of
// this version in this run can have sent the message.
var ErrMessage = errors.New("bad control message")

// AppendTo appends the encoding of m to b and returns the longer slice.
// It does not keep b.
func (m Message) AppendTo(b []byte) []byte {
	b = append(b, byte(m.Kind))
	var fields uint16
	if m.Kind < kindLimit {
		fields = kindFields[m.Kind]
	}
	if fields&hasFlags != 0 {
		b = append(b, byte(m.Flags))
	}
	for _, f := range m.numbers() {
		if fields&f.field != 0 {
			b = binary.AppendUvarint(b, *f.value)
		}
	}
	if fields&hasRank != 0 {
		b = binary.AppendUvarint(b, uint64(m.Rank))
	}
	if fields&hasText != 0 {
		b = binary.AppendUvarint(b, uint64(len(m.Text)))
		b = append(b, m.Text...)
	}
	if fields&hasRanks != 0 {
		b = appendRanks(b, m.Ranks)
	}
	if fields&hasWaits != 0 {
		b = binary.AppendUvarint(b, uint64(len(m.Waits)))
		for _, w := range m.Waits {
			b = binary.AppendUvarint(b, uint64(w.Rank))
			b = appendRanks(b, w.On)
		}
	}
	return b
}

type number struct {
	field uint16
	value *uint64
}

// numbers returns the plain numbers in the order in which they are sent.
func (m *Message) numbers() [9]number {
	return [9]number{
		{hasEpoch, &m.Epoch}, {hasStep, &m.Step}, {hasWave, &m.Wave}, {hasPoint, &m.Point},
		{hasIndex, &m.Index}, {hasSent, &m.Sent}, {hasReceived, &m.Received}, {hasPaused, &m.Paused},
		{hasMove, &m.Move},
	}
}

func appendRanks(b []byte, ranks []int) []byte {
	b = binary.AppendUvarint(b, uint64(len(ranks)))
	for _, r := range ranks {
		b = binary.AppendUvarint(b, uint64(r))
	}
	return b
}

// Parse decodes one message that fills b. The result does not refer to b. The
// error wraps ErrMessage.
func Parse(b []byte) (Message, error) {
	p := parser{b: b, is: ErrMessage}
	m := Message{Kind: Kind(p.byte("kind"))}
	if p.err == nil && (m.Kind == 0 || m.Kind >= kindLimit) {
		p.fail("kind %d is not known to this version", m.Kind)
	}
	if p.err != nil {
		return Message{}, p.err
	}
	fields := kindFields[m.Kind]
	if fields&hasFlags != 0 {
		m.Flags = Flags(p.byte("flags"))
		if m.Flags >= flagsLimit {
			p.fail("unknown flags %#x", uint8(m.Flags))
		}
	}
	for _, f := range m.numbers() {
		if fields&f.field != 0 {
			*f.value = p.number("number")
		}
	}
	if fields&hasRank != 0 {
		m.Rank = p.rank()
	}
	if fields&hasText != 0 {
		m.Text = p.text()
	}
	if fields&hasRanks != 0 {
		m.Ranks = p.ranks()
	}
	if fields&hasWaits != 0 {
		last := -1
		for n := p.length("waits", 2); n > 0 && p.err == nil; n-- {
			w := Wait{Rank: p.rank(), On: p.ranks()}
			if w.Rank <= last {
				p.fail("waits out of order")
			}
			last = w.Rank
			m.Waits = append(m.Waits, w)
		}
	}
	if p.err == nil && len(p.b) > 0 {
		p.fail("%d bytes too many", len(p.b))
	}
	if p.err != nil {
		return Message{}, fmt.Errorf("%w (%v)", p.err, m.Kind)
	}
	return m, nil
}

// parser reads from the front of b. After the first error its methods return
// zeros.
type parser struct {
	b   []byte
	is  error // what err wraps
	err error
}

func (p *parser) fail(format string, args ...any) {
	if p.err == nil {
		p.err = fmt.Errorf("coord: %w: "+format, append([]any{p.is}, args...)...)
	}
}

func (p *parser) byte(what string) byte {
	if p.err != nil {
		return 0
	}
	if len(p.b) == 0 {
		p.fail("%s is missing", what)
		return 0
	}
	c := p.b[0]
	p.b = p.b[1:]
	return c
}

func (p *parser) number(what string) uint64 {
	if p.err != nil {
		return 0
	}
	v, n := binary.Uvarint(p.b)
	if n <= 0 || n > 1 && p.b[n-1] == 0 {
		p.fail("%s is cut short, too large or not in its shortest form", what)
		return 0
	}
	p.b = p.b[n:]
	return v
}

// length reads the number of items that have at least size bytes each.
func (p *parser) length(what string, size int) int {
	v := p.number(what)
	if v > uint64(len(p.b)/size) {
		p.fail("%s: %d items in %d bytes", what, v, len(p.b))
		return 0
	}
	return int(v)
}

func (p *parser) text() string {
	n := p.length("text", 1)
	if n > maxText {
		p.fail("text of %d bytes", n)
	}
	if p.err != nil {
		return ""
	}
	text := string(p.b[:n])
	p.b = p.b[n:]
	return text
}

func (p *parser) rank() int {
	v := p.number("rank")
	if v > maxRank {
		p.fail("rank %d", v)
		return 0
	}
	return int(v)
}

func (p *parser) ranks() []int {
	n := p.length("ranks", 1)
	if n == 0 {
		return nil
	}
	list := make([]int, 0, n)
	for range n {
		r := p.rank()
		if len(list) > 0 && r <= list[len(list)-1] {
			p.fail("ranks out of order")
		}
		list = append(list, r)
	}
	if p.err != nil {
		return nil
	}
	return slices.Clip(list)
}

// cut shortens text to the length that is sent.
func cut(text string) string {
	if len(text) > maxText {
		return text[:maxText-3] + "..."
	}
	return text
}
