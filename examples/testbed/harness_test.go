package main

import (
	"bytes"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	cairn "github.com/cairnrun/cairn"
	"github.com/cairnrun/cairn/device"
	"github.com/cairnrun/cairn/internal/driver"
	"github.com/cairnrun/cairn/internal/driver/faulty"
	"github.com/cairnrun/cairn/internal/driver/host"
)

func TestMain(m *testing.M) {
	if os.Getenv("POCL_DEVICES") == "" {
		os.Setenv("POCL_DEVICES", "pthread pthread") // two of them
	}
	os.Exit(m.Run())
}

// runOn runs the harness on devices and returns it and what it said.
func runOn(t *testing.T, c config, list string) (*harness, string, error) {
	t.Helper()
	devs := openList(t, list)
	var out bytes.Buffer
	h := &harness{config: c, log: &out, find: func() ([]*device.Device, error) { return devs, nil }}
	err := h.run(t.Context())
	return h, out.String(), err
}

func plain(name string) config {
	return config{name: name, size: "tiny", stopAt: never, checkpointAt: never}
}

// TestParse checks command lines, and the messages for wrong ones.
func TestParse(t *testing.T) {
	c, err := parse([]string{"-size", "small", "-dir", "d", "-stop-at", "0.5", "-verify", "floyd"}, io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	if want := (config{name: "floyd", size: "small", dir: "d", stopAt: 0.5, checkpointAt: never, verify: true, everyPicture: 100}); *c != want {
		t.Errorf("%+v, not %+v", *c, want)
	}
	for _, wrong := range []struct{ args, says string }{
		{"", "give one program"},
		{"nothing", "give one program"},
		{"floyd ft", "give one program"},
		{"-size huge floyd", `no size "huge"`},
		{"-stop-at 0.5 floyd", "-stop-at needs -dir"},
		{"-dir d -stop-at 1.5 floyd", "not 1.5"},
		{"-dir d -checkpoint-at NaN floyd", "not NaN"},
		{"-every 5s floyd", "needs -dir"},
		{"-dir d -every -5s floyd", "positive"},
		{"-pictures d -pictures-every 0 shwa", "at least 1"},
	} {
		if _, err := parse(strings.Fields(wrong.args), io.Discard); err == nil || !strings.Contains(err.Error(), wrong.says) {
			t.Errorf("%s: %v", wrong.args, err)
		}
	}
	var help strings.Builder
	if _, err := parse([]string{"-help"}, &help); !errors.Is(err, flag.ErrHelp) {
		t.Error(err)
	}
	for _, says := range []string{"ftmd", "-stop-at", "-dir ckpt -devices host -verify floyd"} {
		if !strings.Contains(help.String(), says) {
			t.Errorf("the help does not have %q:\n%s", says, &help)
		}
	}
}

// TestDeviation checks the deviation of a result from the reference, also for
// NaN and infinities.
func TestDeviation(t *testing.T) {
	nan, inf := math.NaN(), math.Inf(1)
	for _, c := range []struct {
		got, want []float64
		off       float64
	}{
		{[]float64{1, 2}, []float64{1, 2}, 0},
		{[]float64{0, 0}, []float64{0, 0}, 0},
		{[]float64{1, 3}, []float64{1, -4}, 7. / 4},
		{[]float64{5, 2}, []float64{nan, 4}, .5},
		{[]float64{nan, 4}, []float64{2, 4}, inf},
		{[]float64{inf, 4}, []float64{2, 4}, inf},
		{[]float64{1}, []float64{0}, inf},
	} {
		if off, err := deviation(c.got, c.want); err != nil || off != c.off {
			t.Errorf("%v instead of %v is off by %v, %v", c.got, c.want, off, err)
		}
	}
	if _, err := deviation([]float64{1}, []float64{1, 2}); err == nil {
		t.Error("a result that is too short is as good as any")
	}
	if _, err := deviation([]float64{1}, []float64{nan}); err == nil {
		t.Error("a reference that knows nothing is as good as any")
	}
}

// TestReport checks the report and the result that a run writes, with a
// checkpoint and without.
func TestReport(t *testing.T) {
	dir := t.TempDir()
	c := plain("floyd")
	c.verify, c.json, c.result = true, filepath.Join(dir, "report"), filepath.Join(dir, "result")
	h, said, err := runOn(t, c, "host")
	if err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(c.json)
	if err != nil {
		t.Fatal(err)
	}
	var r report
	if err := json.Unmarshal(text, &r); err != nil {
		t.Fatal(err)
	}
	if r.Name != "floyd" || r.Size != "tiny" || len(r.Devices) != 1 || r.Steps != 128 || r.From != 0 || r.To != 128 || r.Protected || !r.Verified || r.Deviation != 0 || len(r.Digest) != 32 {
		t.Errorf("%+v", r)
	}
	if !strings.Contains(said, r.Digest) || !strings.Contains(said, "verified") {
		t.Error(said)
	}
	raw, err := os.ReadFile(c.result)
	if err != nil {
		t.Fatal(err)
	}
	got := make([]float64, len(raw)/8)
	if err := binary.Read(bytes.NewReader(raw), binary.LittleEndian, got); err != nil {
		t.Fatal(err)
	}
	sameBits(t, got, h.p.reference())

	// The same with a checkpoint.
	c.dir, c.checkpointAt = filepath.Join(dir, "ckpt"), 0.75
	saved, _, err := runOn(t, c, "host,host")
	if err != nil {
		t.Fatal(err)
	}
	if s := saved.report; !s.Protected || s.Checkpoints != 1 || s.State < 2*128*128*4 || s.Written == 0 || s.Pause == 0 || s.Took == 0 || s.Resumed || s.Digest != r.Digest {
		t.Errorf("%+v", s)
	}
}

// TestRun_StoppedAgainAndAgain shows that a run that is stopped again and again
// gives the result of one that is not.
func TestRun_StoppedAgainAndAgain(t *testing.T) {
	want, _, err := runOn(t, plain("floyd"), "host")
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	at := 0
	for i, f := range []float64{0, 0.3, 0.31, 0.31} {
		c := plain("floyd")
		c.dir, c.stopAt = dir, f
		h, said, err := runOn(t, c, "host")
		if err != nil {
			t.Fatal(err)
		}
		if h.report.Resumed != (i > 0) || h.report.From != at {
			t.Errorf("start %d: resumed %v, at %d, not %d", i, h.report.Resumed, h.report.From, at)
		}
		at = h.report.To
		if i == 3 { // it has passed that step, and continues to the end
			if h.report.Stopped || h.report.Digest != want.report.Digest {
				t.Errorf("start %d: %+v", i, h.report)
			}
			break
		}
		if !h.report.Stopped || at != int(f*128) || !strings.Contains(said, "stopped at step") {
			t.Errorf("start %d: %+v", i, h.report)
		}
	}
	// The work is done: another start needs consent.
	c := plain("floyd")
	c.dir, c.stopAt = dir, 1
	if _, _, err := runOn(t, c, "host"); !errors.Is(err, cairn.ErrFinished) {
		t.Fatalf("started again: %v", err)
	}
	t.Setenv("CAIRN_FRESH", "1")
	h, _, err := runOn(t, c, "host")
	if err != nil || h.report.Resumed || !h.report.Stopped || h.report.To != 128 {
		t.Fatalf("%+v %v", h.report, err)
	}
	t.Setenv("CAIRN_FRESH", "")
	c.stopAt = never
	h, _, err = runOn(t, c, "host")
	if err != nil || h.report.From != 128 || h.report.Digest != want.report.Digest {
		t.Fatalf("%+v %v", h.report, err)
	}
}

// TestRun_ProgramWithoutPictures asks a program for pictures that draws none:
// it is refused, and the programs that draw are named.
func TestRun_ProgramWithoutPictures(t *testing.T) {
	c := plain("floyd")
	c.pictures, c.everyPicture = filepath.Join(t.TempDir(), "none"), 10
	_, _, err := runOn(t, c, "host")
	if err == nil || !strings.Contains(err.Error(), "floyd draws no pictures") || !strings.Contains(err.Error(), "shwa") {
		t.Error(err)
	}
	if _, err := os.Stat(c.pictures); err == nil {
		t.Error("there is a directory for them")
	}
}

// starter notes how a program starts.
type starter struct {
	program
	fault  *faulty.Fault
	before *int // calls of the device before the state is there
	began  *int
}

func (s *starter) protect(p *cairn.Run) {
	*s.before = s.fault.Calls()
	s.program.protect(p)
}

func (s *starter) begin(devs []*device.Device) error {
	*s.began++
	return s.program.begin(devs)
}

// TestStart_FromCheckpoint shows that a resumed program makes no initial state,
// which would take time and memory. It does not use its device before the
// checkpoint was read.
func TestStart_FromCheckpoint(t *testing.T) {
	defer delete(programs, "starter")
	for _, name := range []string{"floyd", "ftmini", "spmv", "summa", "mg", "shwa"} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			for again := range 2 {
				var f faulty.Fault
				before, began := -1, 0
				dev, err := driver.Expose[*device.Device](faulty.Wrap(host.New(host.Options{Index: 40, Discrete: true}), &f))
				if err != nil {
					t.Fatal(err)
				}
				opened := f.Calls()
				programs["starter"] = func() program { return &starter{programs[name](), &f, &before, &began} }
				c := plain("starter")
				c.dir, c.stopAt = dir, 0.5
				if again == 1 {
					c.stopAt = 0.75
				}
				h := &harness{config: c, log: io.Discard, find: func() ([]*device.Device, error) { return []*device.Device{dev}, nil }}
				if err := h.run(t.Context()); err != nil {
					t.Fatal(err)
				}
				if h.report.Resumed != (again == 1) || began != 1-again {
					t.Errorf("start %d: resumed %v, begun %d times", again+1, h.report.Resumed, began)
				}
				if before != opened {
					t.Errorf("start %d: setup used the device: %d calls, then %d, the last %s", again+1, opened, before, f.Name(before))
				}
			}
		})
	}
}

// TestRun_WaitsForDevices shows that the harness waits for devices often enough
// to report progress, and not much more often.
func TestRun_WaitsForDevices(t *testing.T) {
	for _, c := range []struct {
		step        time.Duration
		least, most int // steps between waits, in the end
	}{
		{time.Microsecond, maxPending, maxPending},
		{10 * time.Millisecond, 30, 100},
		{400 * time.Millisecond, 1, 2},
		{10 * time.Second, 1, 1},
	} {
		now := time.Now()
		p, longest := pace{batch: 1, since: now}, time.Duration(0)
		for range 4 * maxPending {
			now = now.Add(c.step)
			if p.due() {
				longest = max(longest, now.Sub(p.since))
				p.waited(now)
			}
		}
		if p.batch < c.least || p.batch > c.most || longest > max(c.step, tellEvery/3) {
			t.Errorf("steps of %v: %d between two waits, %v at most", c.step, p.batch, longest)
		}
	}
	// Steps that become slower.
	now := time.Now()
	p := pace{batch: maxPending, since: now}
	for range 10 {
		now = now.Add(time.Second)
		p.waited(now)
	}
	if p.batch != maxPending {
		t.Errorf("%d steps a second became %d", maxPending, p.batch)
	}
	for range 10 {
		now = now.Add(time.Minute)
		p.waited(now)
	}
	if p.batch != 1 {
		t.Errorf("%d steps between two waits, of a minute", p.batch)
	}
}

// TestSetup_EverySize shows that every program has every size.
func TestSetup_EverySize(t *testing.T) {
	devs := openList(t, "host")
	for _, size := range sizes {
		for _, name := range []string{"ft", "ftmd", "floyd", "spmv", "summa", "mg", "shwa"} {
			p := programs[name]()
			if err := p.setup(size, devs); err != nil || p.steps() < 4 {
				t.Errorf("%s, %s: %v", name, size, err)
			}
		}
	}
	if err := programs["ft"]().setup("none", devs); err == nil {
		t.Error("there is a size none")
	}
}

// TestStart_OtherCheckpoint shows that checkpoints of another program, or of
// another size, are refused.
func TestStart_OtherCheckpoint(t *testing.T) {
	dir := t.TempDir()
	c := plain("floyd")
	c.dir, c.stopAt = dir, 0.5
	if _, _, err := runOn(t, c, "host"); err != nil {
		t.Fatal(err)
	}
	for _, other := range []config{{name: "ft", size: "tiny"}, {name: "floyd", size: "small"}} {
		other.dir, other.stopAt, other.checkpointAt = dir, never, never
		_, _, err := runOn(t, other, "host")
		if err == nil || !strings.Contains(err.Error(), "another -dir") {
			t.Errorf("%s, %s: %v", other.name, other.size, err)
		}
	}
	c.stopAt = never
	if h, _, err := runOn(t, c, "host"); err != nil || h.report.From != 64 {
		t.Errorf("after that: %+v %v", h.report, err)
	}
}

// wrong is a program whose results are not those of the reference.
type wrong struct{ floyd }

func (w *wrong) result() ([]float64, error) {
	r, err := w.floyd.result()
	if err == nil {
		r[7]++
	}
	return r, err
}

// TestRun_WrongResult shows that a run with -verify fails if the result is not
// that of the reference.
func TestRun_WrongResult(t *testing.T) {
	programs["wrong"] = func() program { return &wrong{} }
	defer delete(programs, "wrong")
	c := plain("wrong")
	if _, _, err := runOn(t, c, "host"); err != nil {
		t.Fatal(err)
	}
	c.verify = true
	if _, _, err := runOn(t, c, "host"); err == nil || !strings.Contains(err.Error(), "wrong") {
		t.Error(err)
	}
}

// loser is a program that loses devices at some steps.
type loser struct {
	program
	losses *[]int
}

func (l *loser) step(ctx context.Context, i int) error {
	if len(*l.losses) > 0 && (*l.losses)[0] == i {
		*l.losses = (*l.losses)[1:]
		return fmt.Errorf("a test: %w", device.ErrLost)
	}
	return l.program.step(ctx, i)
}

// TestRun_DevicesLost loses devices at some steps. The run goes back to its
// checkpoint, or to its start, and gives the same result on the devices that
// remain. A run without checkpoints ends, and so does one that loses all
// devices, or devices again and again.
func TestRun_DevicesLost(t *testing.T) {
	want, _, err := runOn(t, plain("ftmini"), "host")
	if err != nil {
		t.Fatal(err)
	}
	defer delete(programs, "loser")
	for _, c := range []struct {
		name      string
		losses    []int
		save      float64
		rollbacks int
		from      int
	}{
		{"nothing saved", []int{4}, never, 1, 0},
		{"saved", []int{4}, 0.5, 1, 3},
		{"saved there", []int{3}, 0.5, 1, 3},
		{"twice", []int{5, 4}, 0.5, 2, 3},
		{"before and after", []int{1, 5}, 0.5, 2, 3},
	} {
		t.Run(c.name, func(t *testing.T) {
			devs := openList(t, "host,host,host")
			losses := c.losses
			programs["loser"] = func() program { return &loser{programs["ftmini"](), &losses} }
			conf := plain("loser")
			conf.dir, conf.checkpointAt = t.TempDir(), c.save
			h := &harness{config: conf, log: io.Discard, find: func() ([]*device.Device, error) {
				return devs[:len(devs)-(len(c.losses)-len(losses))], nil
			}}
			if err := h.run(t.Context()); err != nil {
				t.Fatal(err)
			}
			r := &h.report
			if r.Rollbacks != c.rollbacks || len(r.Devices) != 3-len(c.losses) || r.From != c.from || r.To != 6 {
				t.Errorf("%+v", r)
			}
			if r.Digest != want.report.Digest {
				t.Error("the result is another one")
			}
		})
	}

	// A program without checkpoints ends, and so does one that loses
	// devices again and again.
	losses := []int{2}
	programs["loser"] = func() program { return &loser{&floyd{}, &losses} }
	if _, _, err := runOn(t, plain("loser"), "host"); !errors.Is(err, device.ErrLost) {
		t.Error(err)
	}
	losses = make([]int, 100)
	conf := plain("loser")
	conf.dir = t.TempDir()
	if _, _, err := runOn(t, conf, "host"); !errors.Is(err, device.ErrLost) || len(losses) != 100-maxRollbacks-1 {
		t.Error(err, len(losses))
	}

	// So does one that lost all of them.
	losses = []int{1}
	host := openList(t, "host")
	h := &harness{config: conf, log: io.Discard, find: func() ([]*device.Device, error) {
		if len(losses) == 0 {
			return nil, fmt.Errorf("a test: all devices: %w", device.ErrLost)
		}
		return host, nil
	}}
	if err := h.run(t.Context()); !errors.Is(err, errNoDevices) || h.report.Rollbacks != 1 {
		t.Error(err, h.report.Rollbacks)
	}
}
