package main

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"
	"unsafe"

	"github.com/cairnrun/cairn"
)

// The part objects measures states of many small objects, and of many
// variables.

const (
	manyObjects   = 1_000_000
	manyVariables = 100_000
	fewVariables  = 20_000
)

// node is an element of a list.
type node struct {
	next *node
	id   int64
	x, y float64
}

// leaf is a node of a search tree.
type leaf struct {
	left, right *leaf
	key         uint64
	value       float64
	of          *node
}

type shape interface{ area() float64 }

type square struct{ a float64 }

type circle struct {
	r    float64
	near *circle
}

func (s square) area() float64  { return s.a * s.a }
func (c *circle) area() float64 { return 3 * c.r * c.r }

// objects is a state of small objects: a list, a tree, a slice of pointers,
// values in interfaces and a map.
type objects struct {
	List   *node
	Tree   *leaf
	Nodes  []*node
	Shapes []shape
	Index  map[int64]*circle
	count  int
}

func newObjects(n int) *objects {
	o := &objects{Index: make(map[int64]*circle)}
	tenth := n / 10
	for i := range 4 * tenth {
		o.List = &node{o.List, int64(i), float64(i), 1}
	}
	at := o.List
	for i := range 3 * tenth {
		k := uint64(i+1) * 0x9e3779b97f4a7c15
		o.insert(&leaf{key: k, value: float64(i), of: at})
		at = at.next
	}
	for i := range tenth {
		o.Nodes = append(o.Nodes, &node{nil, int64(i), 2, 3})
	}
	for i := range tenth {
		o.Shapes = append(o.Shapes, square{float64(i)})
	}
	var c *circle
	for i := range tenth {
		c = &circle{float64(i), c}
		o.Index[int64(i)] = c
		o.Shapes = append(o.Shapes, c)
	}
	o.count = 10 * tenth
	return o
}

func (o *objects) insert(l *leaf) {
	p := &o.Tree
	for *p != nil {
		if l.key < (*p).key {
			p = &(*p).left
		} else {
			p = &(*p).right
		}
	}
	*p = l
}

// walk reads every object once.
func (o *objects) walk() (sum float64) {
	for n := o.List; n != nil; n = n.next {
		sum += n.x
	}
	var tree func(l *leaf)
	tree = func(l *leaf) {
		if l != nil {
			sum += l.value
			tree(l.left)
			tree(l.right)
		}
	}
	tree(o.Tree)
	for _, n := range o.Nodes {
		sum += n.x
	}
	for _, s := range o.Shapes {
		sum += s.area()
	}
	for _, c := range o.Index {
		sum += c.r
	}
	return sum
}

// copier copies objects one after the other, into memory that is reused.
type copier struct {
	to []byte
	at int
}

func (c *copier) put(p unsafe.Pointer, n uintptr) {
	if c.at+int(n) > len(c.to) {
		c.at = 0
	}
	c.at += copy(c.to[c.at:], unsafe.Slice((*byte)(p), n))
}

// copy copies every object once, as it is reached. This is the minimum that a
// checkpoint must do.
func (o *objects) copy(c *copier) {
	for n := o.List; n != nil; n = n.next {
		c.put(unsafe.Pointer(n), unsafe.Sizeof(*n))
	}
	var tree func(l *leaf)
	tree = func(l *leaf) {
		if l != nil {
			c.put(unsafe.Pointer(l), unsafe.Sizeof(*l))
			tree(l.left)
			tree(l.right)
		}
	}
	tree(o.Tree)
	for _, n := range o.Nodes {
		c.put(unsafe.Pointer(n), unsafe.Sizeof(*n))
	}
	for i := range o.Shapes {
		switch s := o.Shapes[i].(type) {
		case square:
			c.put(unsafe.Pointer(&s), unsafe.Sizeof(s))
		case *circle:
			c.put(unsafe.Pointer(s), unsafe.Sizeof(*s))
		}
	}
	for k, v := range o.Index {
		c.put(unsafe.Pointer(&k), unsafe.Sizeof(k))
		c.put(unsafe.Pointer(v), unsafe.Sizeof(*v))
	}
}

// objectsPart runs the part objects.
func (b *bench) objectsPart() error {
	for r := range *rounds {
		b.log("round %d of %d: %d small objects", r+1, *rounds, manyObjects)
		if err := b.objectsRound(); err != nil {
			return err
		}
	}
	for _, n := range []int{fewVariables, manyVariables} {
		for r := range min(*rounds, 3) {
			b.log("round %d of %d: %d variables", r+1, min(*rounds, 3), n)
			if err := b.variables(n); err != nil {
				return err
			}
		}
	}
	b.reportObjects()
	return nil
}

func heap() float64 {
	debug.FreeOSMemory()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return float64(m.HeapAlloc)
}

// peak returns the peak memory of the process since it was called with reset.
func peak(reset bool) float64 {
	if reset {
		os.WriteFile("/proc/self/clear_refs", []byte("5"), 0)
	}
	text, _ := os.ReadFile("/proc/self/status")
	for line := range strings.Lines(string(text)) {
		if rest, ok := strings.CutPrefix(line, "VmHWM:"); ok {
			kib, _ := strconv.ParseFloat(strings.Fields(rest)[0], 64)
			return kib * 1024
		}
	}
	return 0
}

func (b *bench) objectsRound() error {
	raw := &copier{to: make([]byte, 4<<20)}
	clear(raw.to)
	before := heap()
	o := newObjects(manyObjects)
	bytes := heap() - before
	b.add("object bytes", bytes/float64(o.count))
	dir := filepath.Join(b.dir, "objects")
	defer os.RemoveAll(dir)
	var saved cairn.CheckpointInfo
	opts := cairn.Options{Dir: dir, Every: time.Hour, Signals: map[os.Signal]cairn.SignalAction{}, OnSaved: func(s cairn.CheckpointInfo) { saved = s }}
	had := peak(true)
	p, err := cairn.Open(b.ctx, opts)
	if err != nil {
		return err
	}
	closed := false
	defer func() {
		if !closed {
			p.Close()
		}
	}()
	cairn.Protect(p, "objects", o)
	if _, err := p.Restore(b.ctx); err != nil {
		return err
	}
	save := func(name string, change func()) error {
		change()
		t := time.Now()
		o.copy(raw)
		b.add("copy "+name, time.Since(t).Seconds())
		used := processorTime()
		if err := p.Checkpoint(b.ctx); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		b.add("processor "+name, (processorTime() - used).Seconds())
		b.add("paused "+name, saved.Pause.Seconds())
		b.add("written "+name, float64(saved.WrittenBytes)/float64(saved.StateBytes))
		return nil
	}
	if err := save("first", func() {}); err != nil {
		return err
	}
	b.add("objects memory", (peak(false)-had)/bytes)
	err = save("all", func() {
		for n := o.List; n != nil; n = n.next {
			n.x++
		}
		var tree func(l *leaf)
		tree = func(l *leaf) {
			if l != nil {
				l.value++
				tree(l.left)
				tree(l.right)
			}
		}
		tree(o.Tree)
	})
	if err != nil {
		return err
	}
	err = save("adjacent", func() {
		n := o.List
		for range 1000 {
			n = n.next
		}
		for range manyObjects / 100 {
			n.x++
			n = n.next
		}
	})
	if err != nil {
		return err
	}
	if err := save("front", func() { o.List = &node{o.List, -1, 0, 0} }); err != nil {
		return err
	}
	err = save("churn", func() {
		for i, n := 0, o.List; i < manyObjects/200; i++ { // free every other node of the first part
			n.next = n.next.next
			n = n.next
		}
		runtime.GC()
		for i := range manyObjects / 200 {
			o.List = &node{o.List, int64(i), 5, 6}
		}
	})
	if err != nil {
		return err
	}
	closed = true
	if err := p.Close(); err != nil {
		return err
	}
	want := o.walk()
	o = nil
	again := new(objects)
	if p, err = cairn.Open(b.ctx, opts); err != nil {
		return err
	}
	defer p.Close()
	cairn.Protect(p, "objects", again)
	err = b.time("restore objects", func() error {
		_, err := p.Restore(b.ctx)
		return err
	})
	if err != nil {
		return err
	}
	if got := again.walk(); got != want {
		return fmt.Errorf("restored objects that add up to %g instead of %g", got, want)
	}
	again.List = &node{again.List, -2, 0, 0}
	if err := p.Checkpoint(b.ctx); err != nil {
		return err
	}
	b.add("written restart", float64(saved.WrittenBytes)/float64(saved.StateBytes))
	return nil
}

// variables measures a run with n variables.
func (b *bench) variables(n int) error {
	dir := filepath.Join(b.dir, "variables")
	defer os.RemoveAll(dir)
	for _, again := range []bool{false, true} {
		numbers, rows := make([]int64, n), make([][]float64, n)
		p, err := cairn.Open(b.ctx, cairn.Options{Dir: dir, Every: time.Hour, Signals: map[os.Signal]cairn.SignalAction{}})
		if err != nil {
			return err
		}
		defer p.Close()
		for i := range n {
			rows[i] = make([]float64, 4)
			if i%4 == 0 {
				err = cairn.Protect(p, "row"+strconv.Itoa(i), &rows[i])
			} else {
				err = cairn.Protect(p, "number"+strconv.Itoa(i), &numbers[i])
			}
			if err != nil {
				return err
			}
			if !again {
				rows[i][3], numbers[i] = float64(i), int64(i)
			}
		}
		name := fmt.Sprintf("restore %d", n)
		if !again {
			name = "fresh start"
		}
		if err := b.time(name, func() error { _, err := p.Restore(b.ctx); return err }); err != nil {
			return err
		}
		if again {
			for i := range n {
				if i%4 == 0 && rows[i][3] != float64(i) || i%4 != 0 && numbers[i] != int64(i) {
					return fmt.Errorf("variable %d of %d has another value", i, n)
				}
			}
		} else if err := b.time(fmt.Sprintf("save %d", n), func() error { return p.Checkpoint(b.ctx) }); err != nil {
			return err
		}
		if err := p.Close(); err != nil {
			return err
		}
	}
	return nil
}

func (b *bench) reportObjects() {
	w := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', 0)
	defer w.Flush()
	row := func(what, value, ratio string, got, bound float64, text string) {
		met := ""
		if bound > 0 {
			met = verdict(got <= bound)
		}
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\n", what, value, ratio, text, met)
	}
	fmt.Fprintf(w, "\n%d small objects of %.0f bytes, %d processors, medians of %d rounds\n\n", manyObjects, b.median("object bytes"), runtime.GOMAXPROCS(0), *rounds)
	fmt.Fprintf(w, "WHAT\tMEDIAN\tRATIO\tBOUND\t\n")
	for _, s := range []struct{ what, name string }{
		{"paused, first checkpoint", "first"}, {"paused, 7 of 10 changed", "all"}, {"paused, 1 % changed side by side", "adjacent"}, {"paused, a node put in front", "front"}, {"paused, 1 % freed or new", "churn"},
	} {
		ns := b.median("paused "+s.name) / manyObjects * 1e9
		row(s.what, fmt.Sprintf("%.0f ns an object", ns), fmt.Sprintf("%.1f × a plain copy, one by one", b.ratio("paused "+s.name, "copy "+s.name)), ns, 150, "≤ 150 ns")
	}
	if all := b.median("processor adjacent"); all > 0 {
		row("processors' time, 1 % changed, until it is durable", fmt.Sprintf("%.0f ns an object", all/manyObjects*1e9), "", 0, 0, "")
	}
	m := b.median("objects memory")
	row("extra memory", fmt.Sprintf("%.2f × the objects", m), "", m, 1.5, "≤ 1.5")
	for _, s := range []struct{ what, name string }{
		{"written, 1 % changed side by side", "adjacent"}, {"written, a node put in front", "front"}, {"written, a node put in front after a restart", "restart"},
	} {
		v := b.median("written " + s.name)
		row(s.what, fmt.Sprintf("%.2f %%", 100*v), "", v, 0.05, "≤ 5 %")
	}
	row("written, 1 % freed or new", fmt.Sprintf("%.2f %%", 100*b.median("written churn")), "", 0, 0, "")
	row("restore", fmt.Sprintf("%.0f ns an object", b.median("restore objects")/manyObjects*1e9), "", 0, 0, "")
	for _, what := range []string{"save", "restore"} {
		few := b.median(fmt.Sprintf("%s %d", what, fewVariables)) / fewVariables
		many := b.median(fmt.Sprintf("%s %d", what, manyVariables)) / manyVariables
		row(fmt.Sprintf("%s %d variables", what, manyVariables), fmt.Sprintf("%.1f µs each", 1e6*many), fmt.Sprintf("%.2f × of %d", many/few, fewVariables), many/few, 2, "≤ 2")
	}
}
