//go:build linux

package supervise

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/cairnrun/cairn/internal/ckpt"
	"github.com/cairnrun/cairn/internal/control"
	"github.com/cairnrun/cairn/internal/store"
	"github.com/cairnrun/cairn/internal/supervise/helper"
	"github.com/cairnrun/cairn/internal/supervise/rundir"
	"github.com/cairnrun/cairn/internal/vfs"
)

// HostView shows what the hosts of a run have if they share no files. It reads
// them through helpers that it starts, and changes nothing. The run may be
// running. Its methods may be called concurrently.
type HostView struct {
	Hosts []*ViewedHost
	run   string
	rec   *rundir.Record
	found *localInventory
}

// ViewedHost is one of the hosts.
type ViewedHost struct {
	Name  string
	Files *control.HostFiles // nil: see Err
	Err   error

	mu    sync.Mutex        // for one request at a time
	said  []*control.Stored // what the helper has said meanwhile
	ready *control.Ready
	cmd   *exec.Cmd
	conn  *control.Conn
	ended chan struct{}
}

// ViewHosts looks at the hosts of a run. It returns nil if the run has one
// directory for all, or if it has checkpoints of its own and its record is
// damaged. command starts a helper on this machine. The caller closes the view.
func ViewHosts(ctx context.Context, run string, command []string) (*HostView, error) {
	rec, err := rundir.ReadRecord(run)
	if err != nil {
		if here, _ := store.Holds(vfs.OS(), filepath.Join(run, "ckpt")); here {
			return nil, nil // they are what the caller wants to see
		}
		return nil, err
	}
	if rec == nil || rec.Local == "" {
		return nil, nil
	}
	return viewHosts(ctx, run, rec, command, control.LocalDir{ReadOnly: true}), nil
}

// viewHosts starts helpers on the hosts of a run. setup says what they may do.
func viewHosts(ctx context.Context, run string, rec *rundir.Record, command []string, setup control.LocalDir) *HostView {
	setup.Dir, setup.Run = filepath.Dir(rec.CheckpointDir), rec.ID
	v := &HostView{run: run, rec: rec}
	var names []string
	if rec.Started != nil {
		for _, home := range append(slices.Clone(rec.Started.Homes), rec.Started.Holders...) {
			names = append(names, home.Host)
		}
	}
	for _, h := range rec.Hosts {
		name, _, _ := strings.Cut(h, ":")
		names = append(names, name)
	}
	slices.Sort(names)
	var wg sync.WaitGroup
	for _, name := range slices.Compact(names) {
		h := &ViewedHost{Name: name}
		v.Hosts = append(v.Hosts, h)
		local := isHere(name)
		args := command
		if !local {
			remote := rec.RemoteHelper
			if len(remote) == 0 {
				remote = command
			}
			args = remoteCommand(name, rec.Shell, remote)
		}
		wg.Go(func() { h.Err = h.open(ctx, args, local, &setup) })
	}
	wg.Wait()
	v.found = v.inventory()
	return v
}

// isHere reports whether a name is that of this host.
func isHere(name string) bool {
	own, _ := os.Hostname()
	return name == own || name == "localhost" || name == "127.0.0.1"
}

// inventory puts together what the hosts have.
func (v *HostView) inventory() *localInventory {
	var dirs []*hostDir
	for _, h := range v.Hosts {
		if h.Files != nil {
			dirs = append(dirs, &hostDir{h.Name, h.Files, h.ready.Addresses})
		}
	}
	return newLocalInventory(v.rec.Ranks, v.rec.Started, dirs)
}

// open starts a helper, and asks what is there.
func (h *ViewedHost) open(ctx context.Context, args []string, local bool, setup *control.LocalDir) error {
	ctx, cancel := context.WithTimeout(ctx, joinTime)
	defer cancel()
	cmd := exec.Command(args[0], args[1:]...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	said := new(tail)
	cmd.Stderr = said
	stream, err := startHelper(cmd, local)
	if err != nil {
		return err
	}
	h.cmd, h.conn, h.ended = cmd, control.New(stream), make(chan struct{})
	go func() {
		cmd.Wait()
		close(h.ended)
	}()
	defer context.AfterFunc(ctx, func() { h.conn.Close() })()
	err = skipTo(stream, helper.StreamMark, 64<<10)
	var ready *control.Ready
	if err == nil {
		_, err = receive[*control.Joined](h)
	}
	if err == nil {
		// Silence means nothing to this helper: it ends with its connection.
		ready, err = ask[*control.Ready](h, &control.Setup{Host: h.Name, SameMachine: true, Local: setup})
	}
	if err != nil {
		h.Close()
		return fmt.Errorf("%w%s", err, said.text())
	}
	switch {
	case ready.Error != "":
		return errors.New(ready.Error)
	case ready.Files == nil:
		return errors.New("its helper is of another version: it knows no directories of hosts")
	}
	h.Files, h.ready = ready.Files, ready
	return nil
}

// ask sends a request to a host and waits for the answer.
func ask[T control.Message](h *ViewedHost, m control.Message) (answer T, err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if err := h.conn.Send(m); err != nil {
		return answer, err
	}
	return receive[T](h)
}

// receive waits for a message of a host.
func receive[T control.Message](h *ViewedHost) (T, error) {
	for {
		m, err := h.conn.Recv()
		if stored, ok := m.(*control.Stored); ok {
			h.said = append(h.said, stored)
			continue
		}
		answer, ok := m.(T)
		if err == nil && !ok {
			err = fmt.Errorf("%w: %s", control.ErrMalformed, m.Kind())
		}
		return answer, err
	}
}

// Close ends the helper.
func (h *ViewedHost) Close() {
	if h.conn == nil {
		return
	}
	h.conn.Close()
	select {
	case <-h.ended:
	case <-time.After(time.Second):
		syscall.Kill(-h.cmd.Process.Pid, syscall.SIGKILL)
		<-h.ended
	}
	h.conn = nil
}

// Close ends the helpers.
func (v *HostView) Close() {
	var wg sync.WaitGroup
	for _, h := range v.Hosts {
		wg.Go(h.Close)
	}
	wg.Wait()
}

// eachHost does something with all hosts that can be reached, at the same time.
func (v *HostView) eachHost(f func(h *ViewedHost) error) error {
	errs := make([]error, len(v.Hosts))
	var wg sync.WaitGroup
	for i, h := range v.Hosts {
		if h.Files == nil {
			continue
		}
		wg.Go(func() {
			if err := f(h); err != nil {
				errs[i] = fmt.Errorf("host %s: %w", h.Name, err)
			}
		})
	}
	wg.Wait()
	return errors.Join(errs...)
}

// home returns the host that is a rank's home, or nil.
func (v *HostView) home(rank int) *ViewedHost {
	if v.rec.Started == nil || rank >= len(v.rec.Started.Homes) {
		return nil
	}
	return v.hostOf(v.rec.Started.Homes[rank].Dir)
}

// hostOf returns the host with a directory, or nil.
func (v *HostView) hostOf(dir string) *ViewedHost {
	for _, h := range v.Hosts {
		if h.Files != nil && h.Files.ID == dir {
			return h
		}
	}
	return nil
}

// holder returns the host whose file of a rank's checkpoint counts: one that
// can be loaded, and the rank's home before others. A damaged one is better
// than none.
func (v *HostView) holder(rank int, index uint64) *ViewedHost {
	var best *ViewedHost
	worth := 0
	for _, h := range v.Hosts {
		if h.Files == nil || !slices.ContainsFunc(h.Files.Parts, func(p control.Part) bool { return p.Rank == rank && p.Index == index }) {
			continue
		}
		n := 1
		if v.found.good(v.found.dirs[h.Files.ID], rank, index) {
			n = 2
			if v.found.record.Homes[rank].Dir == h.Files.ID {
				n = 3
			}
		}
		if n > worth {
			best, worth = h, n
		}
	}
	return best
}

// Verify checks every block of a file that the view's file system shows, on the
// host that has it. ok is false if the path is not that of such a file.
func (v *HostView) Verify(path string) (found []ckpt.Damage, ok bool, err error) {
	rank, index, ok := v.parse(path)
	if !ok {
		return nil, false, nil
	}
	h := v.holder(rank, index)
	if h == nil {
		return nil, true, &os.PathError{Op: "open", Path: path, Err: os.ErrNotExist}
	}
	answer, err := ask[*control.PartVerified](h, &control.VerifyPart{Rank: rank, Index: index})
	switch {
	case err != nil:
		return nil, true, fmt.Errorf("host %s: %w", h.Name, err)
	case (answer.Error != "" || len(answer.Damage) > 0) && h.lacks(rank, index):
		return nil, true, fmt.Errorf("host %s: %w", h.Name, &os.PathError{Op: "open", Path: path, Err: os.ErrNotExist})
	case answer.Corrupt:
		return nil, true, fmt.Errorf("%w: on %s: %s", ckpt.ErrCorrupt, h.Name, answer.Error)
	case answer.Error != "":
		return nil, true, fmt.Errorf("on %s: %s", h.Name, answer.Error)
	}
	for _, d := range answer.Damage {
		found = append(found, ckpt.Damage{Name: d.Block, Err: errors.New(d.Reason)})
	}
	return found, true, nil
}

// lacks reports whether a host does not have a rank's file any more: the run
// has removed it meanwhile.
func (h *ViewedHost) lacks(rank int, index uint64) bool {
	size, err := h.size(fmt.Sprintf("ckpt/ckpt-%08d/rank-%04d.h5", index, rank))
	return err == nil && size == 0
}
