//go:build linux

package web

import (
	"net/http"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/cairnrun/cairn/internal/control"
	"github.com/cairnrun/cairn/internal/events"
	"github.com/cairnrun/cairn/internal/supervise/rundir"
)

// meter turns the history and the state of a run into metrics. As the history
// outlives the supervisor, counters do, too.
type meter struct {
	watch *watcher
	run   string

	mu         sync.Mutex
	life, seen int // what the totals cover
	totals     events.Totals
	pause      prometheus.Histogram
	durable    prometheus.Histogram
}

func newMeter(w *watcher) *meter {
	m := &meter{watch: w, life: -1, run: strings.TrimSuffix(filepath.Base(w.run), ".cairn")}
	m.reset()
	return m
}

// reset begins anew, with another run.
func (m *meter) reset() {
	histogram := func(name, help string) prometheus.Histogram {
		return prometheus.NewHistogram(prometheus.HistogramOpts{Name: name, Help: help, ConstLabels: prometheus.Labels{"run": m.run},
			Buckets: []float64{1e-4, 2e-4, 5e-4, 1e-3, 2e-3, 5e-3, .01, .02, .05, .1, .2, .5, 1, 2, 5, 10, 20, 50, 100, 200, 500, 1000}})
	}
	m.seen, m.totals = 0, events.Totals{}
	m.pause = histogram("cairn_checkpoint_pause_seconds", "How long a checkpoint paused the slowest rank.")
	m.durable = histogram("cairn_checkpoint_durable_seconds", "Time from the beginning of a checkpoint until the slowest rank had written it.")
}

func (m *meter) handler() http.Handler {
	r := prometheus.NewRegistry()
	r.MustRegister(m)
	return promhttp.HandlerFor(r, promhttp.HandlerOpts{})
}

// Describe says that the metrics depend on the run.
func (m *meter) Describe(chan<- *prometheus.Desc) {}

// Collect sends the metrics.
func (m *meter) Collect(out chan<- prometheus.Metric) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.watch.look()
	v := m.watch.since(m.life, m.seen)
	if v.life != m.life {
		m.life = v.life
		m.reset()
	}
	for i := range v.events {
		e := &v.events[i]
		m.totals.Add(e)
		if c := e.Checkpoint; e.Kind == events.Checkpoint && c != nil && c.TookNS > 0 {
			m.pause.Observe(time.Duration(c.PauseNS).Seconds())
			m.durable.Observe(time.Duration(c.TookNS).Seconds())
		}
	}
	m.seen += len(v.events)
	send := func(kind prometheus.ValueType, name, help string, value float64, labels ...string) {
		names, values := []string{"run"}, []string{m.run}
		for i := 0; i < len(labels); i += 2 {
			names, values = append(names, labels[i]), append(values, labels[i+1])
		}
		out <- prometheus.MustNewConstMetric(prometheus.NewDesc(name, help, names, nil), kind, value, values...)
	}
	t := &m.totals
	m.pause.Collect(out)
	m.durable.Collect(out)
	const counter, gauge = prometheus.CounterValue, prometheus.GaugeValue
	send(counter, "cairn_checkpoints_total", "Checkpoints that were committed.", float64(t.Checkpoints))
	send(counter, "cairn_checkpoint_written_bytes_total", "Bytes written by these.", float64(t.Written))
	send(counter, "cairn_unsaved_checkpoints_total", "Reports of checkpoints that could not be saved.", float64(t.Unsaved))
	send(counter, "cairn_starts_total", "Starts of all ranks.", float64(t.Starts))
	send(counter, "cairn_failures_total", "Failures of ranks or hosts that ended an attempt.", float64(t.Failures))
	send(counter, "cairn_lost_work_seconds_total", "Computing time that was repeated after failures.", t.Lost.Seconds())
	send(counter, "cairn_moves_total", "Migrations that succeeded.", float64(t.Moves))
	if v.state == nil || v.err != nil { // what was true before may be so no more
		return
	}
	state(v.state, func(name, help string, value float64, labels ...string) { send(gauge, name, help, value, labels...) })
}

// state sends what is true now.
func state(st *control.RunState, send func(name, help string, value float64, labels ...string)) {
	for _, s := range []string{rundir.Starting, rundir.Running, rundir.Waiting, rundir.Stopping, rundir.Stopped, rundir.Finishing, rundir.Finished, rundir.Failed, rundir.Interrupted, rundir.Silent} {
		send("cairn_run_state", "1 for the state that the run is in.", number(st.State == s), "state", s)
	}
	if !st.Began.IsZero() {
		send("cairn_run_began_timestamp_seconds", "When the run was started first.", seconds(st.Began))
	}
	if c := st.Last; c != nil {
		send("cairn_last_checkpoint_index", "The newest committed checkpoint.", float64(c.Index))
		send("cairn_last_checkpoint_timestamp_seconds", "When it was committed.", seconds(c.Time))
		if c.State > 0 {
			send("cairn_checkpoint_state_bytes", "Size of the state of all ranks in it.", float64(c.State))
		}
	}
	send("cairn_checkpoints_failing", "1 while checkpoints cannot be saved.", number(st.Unsaved != nil))
	send("cairn_failures_in_a_row", "Failures without progress since.", float64(st.Failures))
	for _, r := range st.Ranks {
		if st.Pid == 0 {
			break // nothing is known of ranks without a supervisor
		}
		rank := strconv.Itoa(r.Rank)
		send("cairn_rank_points", "Points that the rank has reached.", float64(r.Points), "rank", rank, "host", r.Host)
		send("cairn_rank_messages", "Messages of the rank since its last start.", float64(r.Messages), "rank", rank, "host", r.Host)
		if r.Loop != nil {
			send("cairn_rank_loop_ratio", "How much of its outermost loop the rank has done.", float64(r.Loop.Done)/float64(r.Loop.Total), "rank", rank, "host", r.Host)
		}
		send("cairn_rank_running", "1 while the rank runs.", number(r.State == rundir.Running), "rank", rank, "host", r.Host)
	}
	for _, d := range st.Devices() {
		send("cairn_device_launches", "Kernels that the device has computed for the ranks since their last start.", float64(d.Launches), "device", d.ID, "host", d.Host)
		send("cairn_device_lost", "1 if the device is lost.", number(d.Lost), "device", d.ID, "host", d.Host)
	}
	for _, t := range st.Tiers {
		send("cairn_tier_checkpoint_index", "The newest checkpoint that the tier has.", float64(t.Index), "tier", t.Tier)
		send("cairn_tier_failing", "1 while the tier gets no checkpoints.", number(t.Failing != nil), "tier", t.Tier)
	}
}

func number(b bool) float64 {
	if b {
		return 1
	}
	return 0
}

func seconds(t time.Time) float64 { return float64(t.UnixNano()) / 1e9 }
