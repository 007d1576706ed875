package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"
	"strconv"

	"github.com/spf13/cobra"

	"github.com/cairnrun/cairn/internal/ckpt"
	"github.com/cairnrun/cairn/internal/control"
	"github.com/cairnrun/cairn/internal/store"
	"github.com/cairnrun/cairn/internal/supervise"
)

func listCommand(c *call) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "list [--key FILE] [DIR|PLACE]",
		Short: "show the checkpoints of a run, newest first",
		Long: `Shows, for every checkpoint in DIR: when and why it was taken, the size of its own
file, how much of it is in files of older checkpoints (blocks that did not change),
the size of the program's state, and how long the program was paused.

With several ranks, sizes are sums over all ranks. RANKS says how many of them
have committed the checkpoint; the newest one that all can load is the recovery
line, from which a restart resumes.

Only metadata is checked, which is quick. A checkpoint that cannot be read is
marked as damaged, with the reason. The exit code is 1 if a checkpoint is damaged,
or if none is complete. 'cairn verify DIR' checks every byte. Without DIR, the
command uses the only *.cairn directory here.

If the hosts of a run share no files (cairn run --local), list asks each host,
which it reaches as 'cairn run' does, and shows what the host has. So do verify
and inspect. On such a host, DIR may also be the run's directory there.

If the run has more tiers (cairn run --tiers), list also shows on which of them
each checkpoint is, and how many hosts may be lost now, with their disks, before
it is lost: "any 1 of 2 hosts", or "all hosts" if a shared directory or an object
store has all of it. Lines "damaged" name what hosts have read again (scrub in
--tiers) and could not repair.

Given a place on a tier (s3://BUCKET/PREFIX, or a directory of one run on a shared
tier), list shows the checkpoints there that 'cairn run --from' can resume.`,
		Example: `  cairn list                                           # of the run in this directory
  cairn list ckpt                                      # of directory ckpt
  cairn list s3://bucket/sim                           # what an object store has
  cairn list --json ckpt | jq '.checkpoints[0].index'  # the index of the newest`,
		Args:              takes(0, 1),
		ValidArgsFunction: completeRuns,
		RunE:              c.does(list),
	}
	keyFlag(cmd.Flags(), c)
	return cmd
}

// listDocument is what list --json prints.
type listDocument struct {
	Dir         string             `json:"dir"`
	Line        uint64             `json:"recoveryLine"` // the newest checkpoint that all ranks can load; 0: none
	Checkpoints []listedCheckpoint `json:"checkpoints"`
	DiskBytes   int64              `json:"diskBytes"` // of all files of checkpoints, each counted once
	Unfinished  []unfinished       `json:"unfinished"`
	Pinned      []pinnedCheckpoint `json:"pinned,omitempty"`
	Hosts       []listedHost       `json:"hosts,omitempty"` // if they share no files: what each has
	// Tiers says where each checkpoint is, of a run with --tiers.
	Tiers []supervise.TieredCheckpoint `json:"tiers,omitempty"`
	// Damaged is what hosts have read again, and could not repair.
	Damaged []control.TierRepair `json:"damaged,omitempty"`
	// Finished says how the run has finished, if it has no checkpoints.
	Finished *supervise.FinishedRun `json:"finished,omitempty"`
}

// listedCheckpoint is a checkpoint, or why it could not be read.
type listedCheckpoint struct {
	summary
	Have   []int  `json:"have"`   // ranks that committed it
	Status string `json:"status"` // "ok", "incomplete", "damaged" or "unreadable"
	Error  string `json:"error,omitempty"`
}

// unfinished is a checkpoint directory without a committed file.
type unfinished struct {
	Index uint64 `json:"index"`
	Path  string `json:"path"`
}

func list(ctx context.Context, c *call) error {
	dir, err := c.theRun()
	if err != nil {
		return err
	}
	if supervise.IsPlace(dir) {
		return c.listPlace(ctx, dir)
	}
	if err := c.runDir(dir); err != nil {
		return err
	}
	run := dir
	if dir, err = c.checkpointsIn(dir); err != nil {
		return err
	}
	doc := listDocument{Dir: dir, Checkpoints: []listedCheckpoint{}, Unfinished: []unfinished{}}
	if c.hosts != nil {
		var errs []error
		doc.Tiers, errs = c.hosts.Tiers(ctx)
		doc.Damaged = c.hosts.Damaged()
		for _, err := range errs {
			c.notef("%v", err)
		}
	}
	pinnedIn := dir
	if c.hosts != nil {
		pinnedIn = run
	}
	if doc.Pinned, err = c.allPins(ctx, pinnedIn); err != nil {
		c.notef("cannot read which checkpoints are pinned: %v", err)
	}
	checkpoints, none := c.members(dir)
	var over *finishedError
	if errors.As(none, &over) {
		doc.Finished = over.run
	} else if none != nil && len(doc.Tiers)+len(doc.Pinned) == 0 {
		return none
	}
	committed := make(map[uint64]bool)
	var failed error
	damaged := false
	for _, m := range checkpoints {
		if err := ctx.Err(); err != nil {
			return err
		}
		committed[m.index] = true
		s := c.judge(m)
		switch {
		case s.status() == "damaged":
			damaged = true
		case errors.Is(s.err, fs.ErrNotExist): // the run has removed it meanwhile
			continue
		case s.err != nil && failed == nil:
			failed = s.err
		}
		if doc.Line == 0 && s.status() == "ok" {
			doc.Line = s.index
		}
		doc.Checkpoints = append(doc.Checkpoints, c.entry(s))
	}
	if err := c.listRest(&doc, committed); err != nil && doc.Finished == nil {
		return err
	}
	if c.hosts != nil && !c.hosts.Emptied() {
		doc.Hosts = hosted(c.hosts)
	}
	for _, t := range doc.Tiers {
		if t.Complete {
			doc.Line = max(doc.Line, t.Index)
		}
	}
	if c.json {
		if err := c.document(doc); err != nil {
			return err
		}
	} else {
		c.listText(&doc)
	}
	switch {
	case failed != nil:
		return failed
	case doc.Finished != nil:
		return nil
	case none != nil && doc.Line == 0:
		return none
	case damaged, doc.Line == 0:
		return errFound
	}
	return nil
}

// member is a checkpoint that at least one rank has committed.
type member struct {
	dir   string
	index uint64
	ranks []int // those that have
}

// members returns the checkpoints in a directory, newest first. None is an
// error.
func (c *call) members(dir string) ([]member, error) {
	found, err := store.Members(c.fsys, dir)
	if err != nil {
		return nil, err
	}
	var out []member
	for n, ranks := range found {
		if len(ranks) > 0 {
			out = append(out, member{dir, n, ranks})
		}
	}
	if len(out) == 0 {
		return nil, c.empty(dir)
	}
	slices.SortFunc(out, func(a, b member) int { return cmp.Compare(b.index, a.index) })
	return out, nil
}

// judged is a checkpoint whose metadata was checked, for all ranks.
type judged struct {
	member
	parts []part // those that are sound
	want  int    // ranks that it should have
	err   error  // why a part is not sound
	file  string // … that part
}

// part is one rank's file of a checkpoint.
type part struct {
	target
	summary
	header ckpt.Header
}

// judge checks the metadata of all ranks of a checkpoint.
func (c *call) judge(m member) *judged {
	j := &judged{member: m, want: m.ranks[len(m.ranks)-1] + 1}
	for _, r := range m.ranks {
		t := target{file: store.Open(c.fsys, m.dir, r).File(m.index), dir: m.dir, index: m.index, rank: r}
		s, err := c.check(t)
		if err == nil {
			j.parts = append(j.parts, part{t, c.summarize(s), s.Header})
			j.want = max(j.want, s.Header.Ranks)
			s.Close()
		} else if j.err == nil || errors.Is(err, ckpt.ErrCorrupt) && !errors.Is(j.err, ckpt.ErrCorrupt) {
			j.err, j.file = err, t.file
		}
	}
	return j
}

func (j *judged) status() string {
	switch {
	case errors.Is(j.err, ckpt.ErrCorrupt):
		return "damaged"
	case j.err != nil:
		return "unreadable"
	case len(j.ranks) < j.want:
		return "incomplete"
	}
	return "ok"
}

// reason returns why the status is not "ok".
func (j *judged) reason() string {
	text := ""
	switch {
	case j.err != nil:
		text = reason(j.err, j.file)
	case len(j.ranks) < j.want:
		return fmt.Sprintf("%d of %d ranks have it", len(j.ranks), j.want)
	}
	if text != "" && j.want > 1 {
		text = filepath.Base(j.file) + ": " + text
	}
	return text
}

// entry returns what list shows of a checkpoint: the sums over all ranks.
func (c *call) entry(j *judged) listedCheckpoint {
	l := listedCheckpoint{Have: j.ranks, Status: j.status(), Error: j.reason()}
	if j.err != nil {
		l.summary = summary{Index: j.index, Path: j.file, Ranks: j.want, Bases: []baseInfo{}}
		if st, err := c.fsys.Stat(j.file); err == nil {
			l.FileBytes = st.Size()
		}
		return l
	}
	l.summary = j.parts[0].summary
	l.Index = j.index // that of its directory, if somebody moved it
	for _, p := range j.parts[1:] {
		l.FileBytes += p.FileBytes
		l.BaseBytes += p.BaseBytes
		l.StateBytes += p.StateBytes
		l.PauseMS = max(l.PauseMS, p.PauseMS)
		if len(p.Bases) > len(l.Bases) {
			l.Kind, l.Bases = p.Kind, p.Bases
		}
	}
	return l
}

// listRest adds unfinished checkpoints and sums over the directory.
func (c *call) listRest(doc *listDocument, committed map[uint64]bool) error {
	dirs, err := c.checkpointDirs(doc.Dir)
	if err != nil {
		return err
	}
	var files []dirFile
	for n, path := range dirs {
		found, err := c.files(path)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return err
		}
		files = append(files, found...)
		if !committed[n] {
			doc.Unfinished = append(doc.Unfinished, unfinished{n, path})
		}
	}
	doc.DiskBytes = distinct(files, nil)
	return nil
}

func (c *call) listText(doc *listDocument) {
	defer func() {
		if doc.Finished != nil {
			c.finishedText(c.run, doc.Finished, len(doc.Tiers) > 0)
		}
	}()
	several := slices.ContainsFunc(doc.Checkpoints, func(l listedCheckpoint) bool { return l.Ranks > 1 })
	head := []string{"CHECKPOINT", "RANKS", "TIME", "AGE", "OWN FILE", "IN BASES", "STATE", "PAUSED", "REASON", "KIND"}
	cut := func(row ...string) []string {
		if !several {
			row = slices.Delete(row, 1, 2)
		}
		return row
	}
	t := c.table("", cut(head...)...)
	if len(doc.Checkpoints) == 0 {
		t = c.table("")
	}
	for i := range doc.Checkpoints {
		l := &doc.Checkpoints[i]
		n := strconv.FormatUint(l.Index, 10)
		ranks := fmt.Sprintf("%d/%d", len(l.Have), max(l.Ranks, len(l.Have)))
		if l.Status == "damaged" || l.Status == "unreadable" {
			t.row(cut(n, ranks, "-", "-", control.BytesText(l.FileBytes), "-", "-", "-", "-", fmt.Sprintf("%s: %s", l.Status, l.Error))...)
			continue
		}
		at, ago := l.when(c.now)
		kind := l.kind()
		if l.Status == "incomplete" {
			kind += ", incomplete"
		} else if several && l.Index == doc.Line {
			kind += ", recovery line"
		}
		t.row(cut(n, ranks, at, ago, control.BytesText(l.FileBytes), control.BytesText(l.BaseBytes), control.BytesText(l.StateBytes), millis(l.PauseMS), l.Reason, kind)...)
	}
	t.flush()
	if doc.Finished == nil {
		c.printf("\n%s, %s on disk\n", control.Count(len(doc.Checkpoints), "checkpoint"), control.BytesText(doc.DiskBytes))
	}
	for _, p := range doc.Pinned {
		c.printf("checkpoint %d is kept as %s\n", p.Index, printable(p.Path))
	}
	if several && doc.Line == 0 {
		c.printf("no checkpoint is complete: there is none that every rank can load\n")
	}
	c.tiersText(doc.Tiers)
	for i := range doc.Damaged {
		c.printf("damaged: %s\n", printable(doc.Damaged[i].String()))
	}
	c.hostsText(doc.Hosts)
	for _, u := range doc.Unfinished {
		c.printf("checkpoint %d is being written, or a crash has left it (then 'cairn gc %s' removes it)\n", u.Index, doc.Dir)
	}
}
