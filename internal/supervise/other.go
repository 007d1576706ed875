//go:build !linux

package supervise

import (
	"context"
	"errors"

	"github.com/cairnrun/cairn/internal/ckpt"
	"github.com/cairnrun/cairn/internal/control"
	"github.com/cairnrun/cairn/internal/supervise/rundir"
	"github.com/cairnrun/cairn/internal/tier"
	"github.com/cairnrun/cairn/internal/vfs"
)

// Supervisor runs one run.
type Supervisor struct{}

// New fails on this system.
func New(Options) (*Supervisor, error) { return nil, rundir.ErrUnsupported }

// Dir returns the run directory.
func (*Supervisor) Dir() string { return "" }

// Ranks returns the number of ranks.
func (*Supervisor) Ranks() int { return 0 }

// Stop lets the run save and stop.
func (*Supervisor) Stop(string) {}

// Evacuate does nothing on this system.
func (*Supervisor) Evacuate() {}

// HostView shows what the hosts of a run have if they share no files.
type HostView struct{ Hosts []*ViewedHost }

// ViewedHost is one of the hosts.
type ViewedHost struct {
	Name  string
	Files *control.HostFiles
	Err   error
}

// ViewHosts returns nil: no run of this system has such hosts.
func ViewHosts(context.Context, string, []string) (*HostView, error) { return nil, nil }

// FS returns base.
func (*HostView) FS(base vfs.FS) vfs.FS { return base }

// Verify does nothing on this system.
func (*HostView) Verify(string) ([]ckpt.Damage, bool, error) { return nil, false, nil }

// Tiers returns nothing on this system.
func (*HostView) Tiers(context.Context) ([]TieredCheckpoint, []error) { return nil, nil }

// Emptied returns false on this system.
func (*HostView) Emptied() bool { return false }

// Finished returns nothing on this system.
func Finished(context.Context, string) *FinishedRun { return nil }

// Damaged returns nothing on this system.
func (*HostView) Damaged() []control.TierRepair { return nil }

// Pin pins nothing on this system.
func (*HostView) Pin(context.Context, uint64, string) ([]PinnedOn, []error) { return nil, nil }

// Pins returns nothing on this system.
func (*HostView) Pins(context.Context) ([]PinnedOn, []error) { return nil, nil }

// Unpin removes nothing on this system.
func (*HostView) Unpin(context.Context, string) ([]PinnedOn, []error) { return nil, nil }

// OutputOf returns nothing on this system.
func OutputOf(string) (string, error) { return "", nil }

// OpenOutput fails on this system.
func (*HostView) OpenOutput(int) (vfs.File, error) { return nil, rundir.ErrUnsupported }

// VerifyTier fails on this system.
func (*HostView) VerifyTier(context.Context, string) (*VerifiedTier, error) {
	return nil, rundir.ErrUnsupported
}

// CopyRun fails on this system.
func CopyRun(context.Context, string, string, string, string) (*CopiedRun, error) {
	return nil, rundir.ErrUnsupported
}

// RepairRun fails on this system.
func RepairRun(context.Context, string, []string, []string) (*RepairedRun, error) {
	return nil, rundir.ErrUnsupported
}

// CollectTier fails on this system.
func CollectTier(context.Context, string, string, int, bool) (*CollectedTier, error) {
	return nil, rundir.ErrUnsupported
}

// Close does nothing on this system.
func (*HostView) Close() {}

// Run fails on this system.
func (*Supervisor) Run(context.Context) (Result, error) { return Result{}, rundir.ErrUnsupported }

// Place is a run at a place on a tier.
type Place struct {
	Name, Run string
	Chosen    bool
	Ranks     int
	End       *tier.End
}

// IsPlace returns false on this system.
func IsPlace(string) bool { return false }

// ErrOnHosts is an error of CopyRun.
var ErrOnHosts = errors.New("the checkpoints of this run are on its hosts")

// FilesElsewhere returns nothing on this system.
func (*HostView) FilesElsewhere(int, []ckpt.FileEntry) error { return nil }

// OpenPlace fails on this system.
func OpenPlace(context.Context, string, string) (*Place, error) { return nil, rundir.ErrUnsupported }

// Empty returns true on this system.
func (*Place) Empty() bool { return true }

// Checkpoints fails on this system.
func (*Place) Checkpoints(context.Context) ([]PlacedCheckpoint, error) {
	return nil, rundir.ErrUnsupported
}

// Verify fails on this system.
func (*Place) Verify(context.Context) (*VerifiedTier, error) { return nil, rundir.ErrUnsupported }

// FS fails on this system.
func (*Place) FS(context.Context, vfs.FS) (vfs.FS, string, error) {
	return nil, "", rundir.ErrUnsupported
}

// OnTiers returns nothing on this system.
func (*HostView) OnTiers(context.Context, uint64) (*Place, []error) { return nil, nil }
