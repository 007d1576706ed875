package journal

import (
	"errors"
	"io"
	"io/fs"
	"iter"
	"math/rand/v2"
	"os"
	"strconv"
	"strings"
	"testing"
)

// observer takes snapshots while the program of a world runs: its own steps
// come between those of the program.
type observer struct {
	w       *world
	rnd     *rand.Rand        // its own, so that it does not change what the program does
	first   map[string]string // the files when the program began
	resume  func() (struct{}, bool)
	stop    func()
	yield   func(struct{}) bool // not nil: the observer is at work
	paused  bool
	done    int // snapshots that were compared
	changed int // … that could not be taken
}

// step is called between any two operations of program and observer.
func (o *observer) step() {
	switch {
	case o.yield != nil:
		yield := o.yield
		o.yield = nil
		if !yield(struct{}{}) {
			panic(crash{})
		}
		o.yield = yield
	case o.paused:
	case o.resume == nil:
		o.begin()
	default:
		for range o.rnd.IntN(4) * o.rnd.IntN(15) {
			if _, ok := o.resume(); !ok {
				o.resume = nil
				break
			}
		}
	}
}

// begin begins to take a snapshot of the newest checkpoint.
func (o *observer) begin() {
	newest := uint64(0)
	for n := range o.w.sets {
		newest = max(newest, n)
	}
	if newest == 0 || o.rnd.IntN(40) > 0 {
		return
	}
	o.end()
	was := o.w.sets[newest]
	o.resume, o.stop = iter.Pull(func(yield func(struct{}) bool) {
		o.yield = yield
		defer func() {
			o.yield = nil
			if r := recover(); r != nil {
				if _, ok := r.(crash); !ok {
					panic(r)
				}
			}
		}()
		o.take(newest, was)
	})
}

func (o *observer) end() {
	if o.stop != nil {
		o.stop()
	}
	o.resume, o.stop = nil, nil
}

func (o *observer) take(index uint64, was *snapshot) {
	o.w.say("snapshot of %d", index)
	s, err := NewSnapshot(SnapshotOptions{Dir: o.w.dir, Home: o.w.root, Ranks: []int{0}, All: 1, Index: index, Sizes: was.lengths})
	if o.failed(err) {
		return
	}
	defer s.Close()
	o.w.say("reading")
	texts := make(map[*Live][]byte)
	for _, l := range s.Live() {
		step()
		f, err := l.Open()
		if err != nil {
			l.Err = err
			continue
		}
		step()
		half := make([]byte, 2000) // the file may change between two reads
		n, _ := f.ReadAt(half, 0)
		step()
		rest, _ := io.ReadAll(io.NewSectionReader(f, int64(n), 1<<40))
		texts[l] = append(half[:n], rest...)
		l.Size = int64(len(texts[l]))
		step()
	}
	files, err := s.Finish()
	if o.failed(err) {
		return
	}
	o.compare(index, was, files, texts)
}

func (o *observer) failed(err error) bool {
	if errors.Is(err, ErrChanged) || errors.Is(err, ErrPassed) {
		o.changed++
		return true
	}
	if err != nil {
		o.w.t.Fatalf("%v\n%q", err, o.w.log)
	}
	return false
}

// compare compares a snapshot with the files when the checkpoint was taken.
func (o *observer) compare(index uint64, was *snapshot, files []SavedFile, texts map[*Live][]byte) {
	o.done++
	rest := make(map[string]bool)
	for name := range was.files {
		rest[name] = true
	}
	first := make(map[int]string)
	for _, f := range files {
		name := f.Path[len(o.w.root):]
		delete(rest, name)
		text := f.Mode.String() + " "
		switch {
		case f.Gone:
			text = ""
		case f.Mode.IsRegular():
			text += strconv.Quote(string(pieces(o.w.t, f.Pieces, texts)))
			if first[f.File] != "" && !o.w.parted {
				text += " is " + first[f.File]
			} else {
				first[f.File] = name
			}
		case f.Mode&fs.ModeSymlink != 0:
			text = "Lrwxrwxrwx " + f.To
		}
		if was := was.files[name]; alone(text) != alone(was) {
			o.w.t.Fatalf("set %d: %s is\n%.300s\nand was\n%.300s\n%q", index, name, text, was, o.w.log)
		}
	}
	linked := make(map[string]bool) // by names that the program may not have used
	for _, files := range []map[string]string{o.first, was.files} {
		for name, text := range files {
			if i := strings.LastIndex(text, "\" is /"); i >= 0 {
				linked[name], linked[text[i+5:]] = true, true
			}
		}
	}
	for name := range rest { // the program has not changed them
		if name != "" && !linked[name] && alone(o.first[name]) != alone(was.files[name]) {
			o.w.t.Fatalf("set %d: the snapshot does not have %s, which was %.200s and became %.200s\n%q", index, name, o.first[name], was.files[name], o.w.log)
		}
	}
}

// pieces returns the bytes of pieces.
func pieces(t *testing.T, list []Piece, texts map[*Live][]byte) (out []byte) {
	for _, p := range list {
		switch {
		case p.Live != nil:
			out = append(out, texts[p.Live][p.Off:p.Off+p.N]...)
		case p.Kept != "":
			text, err := os.ReadFile(p.Kept)
			if err != nil {
				t.Fatal(err)
			}
			out = append(out, text[p.Off:p.Off+p.N]...)
		default:
			out = append(out, make([]byte, p.N)...)
		}
	}
	return out
}
