package main

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"slices"
	"strings"
	"time"

	cairn "github.com/cairnrun/cairn"
	"github.com/cairnrun/cairn/device"
)

const (
	never = -1 // default of -stop-at and -checkpoint-at

	// maxPending is the number of steps after which the harness waits for
	// the devices, so that few launches are pending.
	maxPending = 256

	// tellEvery is how often progress is reported.
	tellEvery = 3 * time.Second

	// maxRollbacks is the number of lost devices that a run survives.
	maxRollbacks = 16
)

// config holds the options of the command line.
type config struct {
	name, size   string
	devices      string
	dir          string // "": not protected
	every        time.Duration
	stopAt       float64 // fraction of the steps, or never
	checkpointAt float64 // …
	verify       bool
	json, result string // files, or ""
	pictures     string // directory, or ""
	everyPicture int    // steps between two pictures
}

// harness runs a program.
type harness struct {
	config
	find func() ([]*device.Device, error) // devices that are not lost
	log  io.Writer

	p      program
	devs   []*device.Device
	point  func(ctx context.Context, i int) error // called before each step; nil: nothing is protected
	i      int                                    // the next step
	what   string                                 // program and size, as recorded in the checkpoint
	from   int                                    // step at which it resumed, or never
	report report
}

// report is the content of -json.
type report struct {
	Name        string   `json:"name"`
	Size        string   `json:"size"`
	Devices     []string `json:"devices"`
	Protected   bool     `json:"protected"`
	Steps       int      `json:"steps"`
	From        int      `json:"from"`      // step at which this process began
	To          int      `json:"to"`        // step at which it ended
	Resumed     bool     `json:"resumed"`   // it resumed from a checkpoint
	Stopped     bool     `json:"stopped"`   // -stop-at stopped it
	Rollbacks   int      `json:"rollbacks"` // number of rollbacks after devices were lost
	Setup       float64  `json:"setup_seconds"`
	Restore     float64  `json:"restore_seconds"`
	Loop        float64  `json:"loop_seconds"` // until all devices had finished
	Checkpoints int      `json:"checkpoints"`  // number of saved checkpoints
	State       int64    `json:"state_bytes"`  // size of the last one
	Written     int64    `json:"written_bytes"`
	Pause       float64  `json:"pause_seconds"`  // the longest pause
	Copied      float64  `json:"copied_seconds"` // the longest time until everything was in host memory
	Took        float64  `json:"took_seconds"`   // the longest time until a checkpoint was durable
	Verified    bool     `json:"verified"`
	Deviation   float64  `json:"deviation"` // the largest deviation, relative to the largest number; with -verify
	Tolerance   float64  `json:"tolerance"`
	Digest      string   `json:"digest,omitempty"` // digest of the result's bits
}

var (
	// errNothingSaved says that a run which lost a device must begin again.
	errNothingSaved = errors.New("there is no checkpoint to go back to")
	errNoDevices    = errors.New("no devices to run on")
	errNotKnown     = errors.New("at this size the reference would take too long and nothing is published: leave -verify out, and compare the digests of two runs")
)

// run runs the program to its end, or to where -stop-at says.
func (h *harness) run(ctx context.Context) error {
	if programs[h.name] == nil {
		return fmt.Errorf("there is no program %q", h.name)
	}
	h.what = h.name + "." + h.size
	var values []float64
	for {
		err := h.start()
		if err == nil {
			if h.dir == "" {
				values, err = h.plain(ctx)
			} else {
				values, err = h.protected(ctx)
			}
		}
		if errors.Is(err, errNothingSaved) {
			h.say("nothing was saved before the device was lost: the run begins anew")
			continue
		}
		if errors.Is(err, device.ErrLost) && !errors.Is(err, errNoDevices) && h.dir != "" && h.report.Rollbacks < maxRollbacks { // not in the main loop
			h.report.Rollbacks++
			h.say("%v", err)
			continue
		}
		if err != nil {
			return err
		}
		break
	}
	h.report.Name, h.report.Size, h.report.Protected = h.name, h.size, h.dir != ""
	h.report.Steps, h.report.To = h.p.steps(), h.i
	if h.report.Stopped {
		h.say("stopped at step %d of %d: the state is saved in %s; start it again to resume", h.i, h.p.steps(), h.dir)
		return h.writeReport()
	}
	return h.judge(values)
}

// start makes the program, without its state.
func (h *harness) start() (err error) {
	if h.devs, err = h.find(); err != nil {
		return fmt.Errorf("%w: %w", errNoDevices, err)
	}
	h.i, h.from, h.point = 0, never, nil
	h.say("%s, size %s, on %s", h.name, h.size, h.useDevices())
	h.p = programs[h.name]()
	if err := h.draw(); err != nil {
		return err
	}
	began := time.Now()
	if err := h.p.setup(h.size, h.devs); err != nil {
		return fmt.Errorf("%s: setup: %w", h.name, err)
	}
	h.report.Setup = time.Since(began).Seconds()
	return nil
}

// draw makes the program draw pictures, if they were requested.
func (h *harness) draw() error {
	if h.pictures == "" {
		return nil
	}
	p, ok := h.p.(painter)
	if !ok {
		var able []string
		for name, make := range programs {
			if _, ok := make().(painter); ok {
				able = append(able, name)
			}
		}
		slices.Sort(able)
		return fmt.Errorf("%s draws no pictures: leave -pictures out, or run one that does: %s", h.name, strings.Join(able, ", "))
	}
	if err := os.MkdirAll(h.pictures, 0o777); err != nil {
		return fmt.Errorf("directory for pictures: %w", err)
	}
	p.pictures(h.pictures, h.everyPicture)
	return nil
}

// begin makes the initial state.
func (h *harness) begin() error {
	began := time.Now()
	err := h.p.begin(h.devs)
	if err == nil {
		err = h.finish()
	}
	if err != nil {
		return fmt.Errorf("%s: initial state: %w", h.name, err)
	}
	h.report.Setup += time.Since(began).Seconds()
	return nil
}

// plain runs the program without checkpoints.
func (h *harness) plain(ctx context.Context) ([]float64, error) {
	if err := h.begin(); err != nil {
		return nil, err
	}
	return h.work(ctx)
}

// protected runs the program with checkpoints.
func (h *harness) protected(ctx context.Context) (values []float64, err error) {
	o := cairn.Options{Dir: h.dir, Every: h.every, OnSaved: h.onSaved,
		OnError: func(err error) { h.say("continuing without a checkpoint: %v", err) }}
	o.Every = cmp.Or(o.Every, 10000*time.Hour)
	p, err := cairn.Open(ctx, o)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, p.Close()) }()

	what := h.what
	cairn.Protect(p, "testbed.program", &what)
	cairn.Protect(p, "testbed.step", &h.i)
	h.p.protect(p)
	begin := time.Now()
	resumed, err := p.Restore(ctx)
	if err == nil && what != h.what {
		return nil, fmt.Errorf("the checkpoints in %s are of %s and this is %s: name that program and size again, or another -dir", h.dir, what, h.what)
	}
	if errors.Is(err, cairn.ErrMismatch) {
		return nil, fmt.Errorf("the checkpoints in %s are not of %s: name their program and size again, or another -dir: %w", h.dir, h.what, err)
	}
	if err != nil {
		return nil, err
	}
	h.report.Restore = time.Since(begin).Seconds()
	if resumed {
		h.from = h.i
		h.say("resumed at step %d of %d", h.i, h.p.steps())
	} else if err := h.begin(); err != nil {
		return nil, err
	}
	h.report.Resumed = resumed
	stop, save := h.stepAt(h.stopAt), h.stepAt(h.checkpointAt)
	h.point = func(ctx context.Context, i int) error {
		switch {
		case i == h.from: // the checkpoint was taken here
		case i == stop:
			err := p.Checkpoint(ctx)
			h.report.Stopped = err == nil
			return err
		case i == save:
			p.Request()
		}
		return p.Point(ctx)
	}
	for {
		values, err = h.work(ctx)
		if !errors.Is(err, device.ErrLost) {
			break
		}
		if err := h.rollback(ctx, p, err); err != nil {
			return nil, err
		}
	}
	if err == nil && !h.report.Stopped {
		p.Finish()
	}
	return values, err
}

// rollback returns to the last checkpoint, on the devices that remain.
func (h *harness) rollback(ctx context.Context, p *cairn.Run, lost error) error {
	h.say("%v", lost)
	if h.report.Rollbacks == maxRollbacks {
		return fmt.Errorf("devices were lost too often, %d times; the last time: %w", maxRollbacks+1, lost)
	}
	h.report.Rollbacks++
	devs, err := h.find()
	if err != nil {
		return fmt.Errorf("%w: %w", errNoDevices, err)
	}
	ok, err := p.Rollback(ctx)
	if err != nil {
		return errors.Join(lost, err)
	}
	if !ok {
		return errNothingSaved
	}
	h.from = h.i
	h.report.Resumed = true
	h.devs = devs
	h.say("back to step %d of %d, on %s", h.i, h.p.steps(), h.useDevices())
	return nil
}

// useDevices records the available devices and reports them.
func (h *harness) useDevices() string {
	h.report.Devices = nil
	for _, d := range h.devs {
		h.report.Devices = append(h.report.Devices, d.String())
	}
	return strings.Join(h.report.Devices, ", ")
}

// work spreads the program over the devices and runs the main loop.
func (h *harness) work(ctx context.Context) ([]float64, error) {
	if err := h.p.spread(h.devs); err != nil {
		return nil, fmt.Errorf("%s: spread: %w", h.name, err)
	}
	h.report.From = h.i
	begin := time.Now()
	stopped, err := h.loop(ctx)
	if err == nil {
		err = h.finish()
	}
	if err != nil {
		return nil, fmt.Errorf("%s: step %d of %d: %w", h.name, h.i, h.p.steps(), err)
	}
	h.report.Loop = time.Since(begin).Seconds()
	if stopped {
		return nil, nil
	}
	values, err := h.p.result()
	if err != nil {
		return nil, fmt.Errorf("%s: result: %w", h.name, err)
	}
	return values, nil
}

// loop is the program's main loop.
func (h *harness) loop(ctx context.Context) (stopped bool, err error) {
	steps, told, p := h.p.steps(), time.Now(), pace{batch: 1, since: time.Now()}
	for ; h.i < steps; h.i++ {
		if h.point != nil {
			if err := h.point(ctx, h.i); err != nil || h.report.Stopped {
				return true, err
			}
		}
		if err := h.p.step(ctx, h.i); err != nil {
			return false, err
		}
		if !p.due() {
			continue
		}
		if err := h.finish(); err != nil {
			return false, err
		}
		now := time.Now()
		p.waited(now)
		if now.Sub(told) >= tellEvery {
			told = now
			h.say("step %d of %d", h.i+1, steps)
		}
	}
	if h.point != nil && h.stepAt(h.stopAt) == steps && steps != h.from {
		return true, h.point(ctx, steps)
	}
	return false, nil
}

// pace decides when to wait for the devices: after as many steps as take about
// half a second, by what was measured so far.
type pace struct {
	batch, steps int // steps between two waits, and since the last one
	since        time.Time
}

// due is called after each step.
func (p *pace) due() bool {
	p.steps++
	return p.steps >= p.batch
}

// waited is called when the devices have finished all steps.
func (p *pace) waited(now time.Time) {
	switch took := now.Sub(p.since); {
	case took < tellEvery/10:
		p.batch = min(2*p.batch, maxPending)
	case took > tellEvery/3:
		p.batch = max(p.batch/4, 1)
	}
	p.steps, p.since = 0, now
}

// stepAt returns the step at a fraction of the run.
func (h *harness) stepAt(fraction float64) int {
	if fraction == never {
		return never
	}
	return int(fraction*float64(h.p.steps()) + 1e-9) // 0.29 of 100 are 29
}

// finish waits for all devices.
func (h *harness) finish() error {
	var errs []error
	for _, d := range h.devs {
		errs = append(errs, d.Finish())
	}
	return errors.Join(errs...)
}

func (h *harness) onSaved(s cairn.CheckpointInfo) {
	r := &h.report
	r.Checkpoints++
	r.State, r.Written = s.StateBytes, r.Written+s.WrittenBytes
	r.Pause, r.Took = max(r.Pause, s.Pause.Seconds()), max(r.Took, s.WriteTime.Seconds())
	r.Copied = max(r.Copied, s.CopyTime.Seconds(), s.Pause.Seconds())
	h.say("saved checkpoint %d (%s): %d bytes of state, %d written, paused %v, written in %v", s.Index, s.Reason, s.StateBytes, s.WrittenBytes, s.Pause, s.WriteTime)
}

// judge checks the result, and writes the requested files.
func (h *harness) judge(values []float64) error {
	bits := new(bytes.Buffer)
	if err := binary.Write(bits, binary.LittleEndian, values); err != nil {
		return err
	}
	digest := sha256.Sum256(bits.Bytes())
	r := &h.report
	r.Digest = hex.EncodeToString(digest[:16])
	r.Tolerance = h.p.tolerance()
	if h.result != "" {
		if err := os.WriteFile(h.result, bits.Bytes(), 0o666); err != nil {
			return err
		}
	}
	h.say("%d steps in %.3f s, setup %.3f s, digest %s", r.To-r.From, r.Loop, r.Setup, r.Digest)
	if !h.verify {
		return h.writeReport()
	}
	var err error
	if r.Deviation, err = deviation(values, h.p.reference()); err != nil {
		return fmt.Errorf("%s: %w", h.name, err)
	}
	r.Verified = r.Deviation <= r.Tolerance
	if err := h.writeReport(); err != nil {
		return err
	}
	if !r.Verified {
		return fmt.Errorf("%s: the result is wrong: it is off by %.3g of the largest number, and may be by %.3g", h.name, r.Deviation, r.Tolerance)
	}
	h.say("verified: off by %.3g, allowed are %.3g", r.Deviation, r.Tolerance)
	return nil
}

// deviation returns the largest difference between got and want, relative to
// the largest number in want. NaN in want stands for an unknown number.
func deviation(got, want []float64) (float64, error) {
	if len(got) != len(want) {
		return 0, fmt.Errorf("the result has %d numbers and the reference %d", len(got), len(want))
	}
	largest, off, known := 0.0, 0.0, 0
	for i, w := range want {
		if math.IsNaN(w) {
			continue
		}
		known++
		largest = max(largest, math.Abs(w))
		if got[i] != w {
			off = max(off, math.Abs(got[i]-w)) // NaN stays NaN
		}
	}
	switch {
	case known == 0:
		return 0, errNotKnown
	case math.IsNaN(off):
		return math.Inf(1), nil
	case off == 0:
		return 0, nil
	}
	return off / largest, nil
}

func (h *harness) writeReport() error {
	if h.json == "" {
		return nil
	}
	text, err := json.MarshalIndent(&h.report, "", "  ")
	if err != nil {
		return err
	}
	return os.WriteFile(h.json, append(text, '\n'), 0o666)
}

// say reports progress.
func (h *harness) say(format string, args ...any) {
	fmt.Fprintf(h.log, "testbed: "+format+"\n", args...)
}
