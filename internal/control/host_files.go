package control

import (
	"errors"
	"fmt"
	"time"
)

// A run may keep its files in a directory on each host that other hosts do not
// see. Then helpers tell the supervisor what their hosts have, and helpers get
// files from each other:
//
//	supervisor                        helper                       another helper
//	  Setup{Local}               →
//	                             ←    Ready{Files, Addresses}
//	  Scan                       →
//	                             ←    Scanned
//	  Fetch                      →      ListFiles, GetFile   →
//	                                    ←   FileList, FileBytes and the bytes
//	                             ←    Fetched
//	  Launch{Attempt}            →      stores the record, starts ranks
//	  ReadFile                   →
//	                             ←    FileData
//	  Discard                    →
//	                             ←    Discarded
//	  Keep                       →      uploads, and tries again if that fails
//	                             ←    Stored, any number of them
//	                             ←    Turn, if Keep says so
//	  Turn                       →      tries once
//	                             ←    Turn{Over}
//	                             ←    Scrubbed, now and then

// LocalDir names a host's directory of a run to its helper.
type LocalDir struct {
	Dir        string   `json:"dir"`
	Run        string   `json:"run"`                // whose files may be there
	Replaces   []string `json:"replaces,omitempty"` // runs whose files may be discarded; AnyRun: all
	Supervisor string   `json:"supervisor"`         // of which the helpers of a host may be there at the same time
	Secret     []byte   `json:"secret,omitempty"`   // for other helpers; none: made of the helper's own
	Group      bool     `json:"group,omitempty"`
	AnyOwner   bool     `json:"anyOwner,omitempty"`
	// Policy says on which tiers checkpoints are kept (package policy of tier);
	// "": on the hosts' disks only. Name is the run's name on tiers.
	Policy string `json:"policy,omitempty"`
	Name   string `json:"name,omitempty"`
	// Peer is what other hosts call this one; "": its name. Of several helpers
	// that a launcher has started on a host, in the same Launch, the first one
	// keeps what tiers on hosts need.
	Peer   string `json:"peer,omitempty"`
	Launch string `json:"launch,omitempty"`
	// Env has variables for the helper: where a store is, and its credentials.
	Env []string `json:"env,omitempty"`
	// ReadOnly is for commands that only look: the helper locks and changes
	// nothing, and the run may be running.
	ReadOnly bool `json:"readOnly,omitempty"`
}

// AnyRun, in LocalDir.Replaces, stands for all runs.
const AnyRun = "*"

// AttemptRecord says what a start of a run may restore, and where its ranks
// are. Every host has it before a rank starts there. The one with the highest
// Number counts, wherever it is found.
type AttemptRecord struct {
	Format int    `json:"format"`
	Number uint64 `json:"number"` // grows with every start, and every move
	Run    string `json:"run"`
	Ranks  int    `json:"ranks"`
	Host   string `json:"host"`          // of the supervisor
	Cwd    string `json:"cwd,omitempty"` // where the program is started, absolute
	// Grace is how long ranks may take to stop when their supervisor is lost.
	Grace time.Duration `json:"grace,omitempty"`
	Pid   int           `json:"pid"`
	Time  time.Time     `json:"time"`
	// Line says whose checkpoints count: those of each entry's attempt with an
	// index above Above, up to that of the next entry.
	Line  []Span `json:"line"`
	Homes []Home `json:"homes"` // by rank
	// Holders are former homes of ranks that have moved since, which have their
	// checkpoints until the next one is complete.
	Holders []Home `json:"holders,omitempty"`
	// End, if the run has finished, says how.
	End *RunEnd `json:"end,omitempty"`
}

// RunEnd says how a run has finished; as End of package tier.
type RunEnd struct {
	Status  int       `json:"status"`
	Discard bool      `json:"discard,omitempty"`
	Time    time.Time `json:"time"`
	Job     string    `json:"job,omitempty"`
	Restart int       `json:"restart,omitempty"`
	Command []string  `json:"command,omitempty"`
}

// Newer reports whether a record counts in place of another one; nil: there is
// none.
func (a *AttemptRecord) Newer(old *AttemptRecord) bool {
	return old == nil || a.Number > old.Number || a.Number == old.Number && a.End != nil && old.End == nil
}

// Span begins with the start of an attempt that went back to checkpoint Above.
type Span struct {
	Attempt string `json:"attempt"`
	Above   uint64 `json:"above"`
}

// Home is where a rank's journal and output are, and its next checkpoint will
// be.
type Home struct {
	Host string `json:"host"`
	Dir  string `json:"dir"` // HostFiles.ID
	// Reach is the oldest checkpoint to which the journal there can go back, if
	// the rank's own files came from a tier with that checkpoint.
	Reach uint64 `json:"reach,omitempty"`
	// Contained: processes there end with the supervisor, which is the first of
	// its process namespace, as in a container.
	Contained bool `json:"contained,omitempty"`
}

const attemptFormat = 1

// Counts reports whether a checkpoint of an attempt counts.
func (a *AttemptRecord) Counts(index uint64, attempt string) bool {
	for i, s := range a.Line {
		if s.Attempt == attempt && index > s.Above && (i+1 == len(a.Line) || index <= a.Line[i+1].Above) {
			return true
		}
	}
	return false
}

// Next returns the record of a start that restores checkpoint index (0: none)
// of what a says. Entries that can have no checkpoint any more are dropped.
func (a *AttemptRecord) Next(index uint64, attempt string) *AttemptRecord {
	next := &AttemptRecord{Format: attemptFormat, Number: a.Number + 1, Run: a.Run, Ranks: a.Ranks}
	for _, s := range a.Line {
		if s.Above < index {
			next.Line = append(next.Line, s)
		}
	}
	next.Line = append(next.Line, Span{attempt, index})
	return next
}

// Check returns an error if the record cannot be one.
func (a *AttemptRecord) Check() error {
	switch {
	case a.Format != attemptFormat:
		return fmt.Errorf("it has format %d, this cairn knows %d", a.Format, attemptFormat)
	case a.Run == "" || a.Ranks < 1 || len(a.Homes) != a.Ranks || len(a.Line) == 0:
		return errors.New("it is incomplete")
	}
	return nil
}

// HostFiles is what a host has of a run.
type HostFiles struct {
	ID      string         `json:"id"` // of the directory: a new disk has another one
	Dir     string         `json:"dir"`
	Attempt *AttemptRecord `json:"attempt,omitempty"`
	Parts   []Part         `json:"parts"`
	Lines   []RankLine     `json:"lines,omitempty"`
	// Journals are the ranks that have a journal there. Such a rank can go back
	// only to a checkpoint that the journal reaches.
	Journals []int `json:"journals,omitempty"`
	// Kept is what the host holds of its own and other hosts' checkpoints:
	// recovery.Store of tier, in JSON.
	Kept []byte `json:"kept,omitempty"`
}

// Part is a rank's file of a checkpoint.
type Part struct {
	Rank    int       `json:"rank"`
	Index   uint64    `json:"index"`
	Attempt string    `json:"attempt"`
	Header  string    `json:"header,omitempty"` // its digest
	Bytes   int64     `json:"bytes"`            // with its bases
	Time    time.Time `json:"time"`
	Error   string    `json:"error,omitempty"` // why it cannot be loaded, as far as its metadata shows
	// Writes says that the rank writes files which only this host sees.
	Writes bool `json:"writes,omitempty"`
}

// RankLine is the recovery line that a rank has recorded.
type RankLine struct {
	Rank  int    `json:"rank"`
	Index uint64 `json:"index"`
}

// Between helper and supervisor, about files.
type (
	// Scan asks what the host has.
	Scan struct{}
	// Scanned answers Scan.
	Scanned struct {
		Files *HostFiles `json:"files,omitempty"`
		Error string     `json:"error,omitempty"`
	}
	// Fetch makes a helper get files of ranks from other hosts.
	Fetch struct {
		Run     string      `json:"run"`
		Ranks   int         `json:"ranks"`
		WorkDir string      `json:"workDir,omitempty"` // that the program is started in
		Items   []FetchItem `json:"items"`
	}
	// Fetched answers Fetch, when all items are there or have failed.
	Fetched struct {
		Failed []FetchFailure `json:"failed,omitempty"`
		Notes  []string       `json:"notes,omitempty"` // why files of a run that has finished were left out
	}
	// StoreAttempt makes a helper store a record.
	StoreAttempt struct{ AttemptRecord }
	// AttemptStored answers StoreAttempt.
	AttemptStored struct {
		Error string `json:"error,omitempty"`
	}
	// ReadFile asks for a piece of a file below the host's directory, of at
	// most MaxFileData bytes, or for the SHA-256 of all of it.
	ReadFile struct {
		Path   string `json:"path"`
		Offset int64  `json:"offset,omitempty"`
		Sum    bool   `json:"sum,omitempty"`
	}
	// FileData answers ReadFile. A file that is not there is empty.
	FileData struct {
		Data  []byte `json:"data,omitempty"`
		Size  int64  `json:"size"`
		Sum   string `json:"sum,omitempty"` // in hexadecimal
		Error string `json:"error,omitempty"`
	}
	// VerifyPart asks to check every block of a rank's file of a checkpoint, or
	// everything that the host keeps for tiers on hosts.
	VerifyPart struct {
		Rank  int    `json:"rank"`
		Index uint64 `json:"index"`
		Kept  bool   `json:"kept,omitempty"`
	}
	// PartVerified answers VerifyPart.
	PartVerified struct {
		Damage  []BlockDamage `json:"damage,omitempty"`  // with Kept: of objects
		Checked int           `json:"checked,omitempty"` // with Kept: how many copies and shards
		Error   string        `json:"error,omitempty"`
		Corrupt bool          `json:"corrupt,omitempty"` // Error says that the file is damaged
	}
	// Discard removes the files of all ranks but Keep, or all of the host's
	// directory, perhaps but for what tiers on hosts need of the end of the
	// run.
	Discard struct {
		All   bool  `json:"all,omitempty"`
		End   bool  `json:"end,omitempty"`
		Ranks int   `json:"ranks"` // of the run
		Keep  []int `json:"keep,omitempty"`
	}
	// Discarded answers Discard.
	Discarded struct {
		Error string `json:"error,omitempty"`
	}
	// Keep says that a checkpoint is committed, and makes a helper upload the
	// files of ranks to a tier. A newer Keep for the tier replaces one that
	// waits or fails.
	Keep struct {
		Tier  string `json:"tier"` // its kind: shared, s3
		Index uint64 `json:"index"`
		Ranks []int  `json:"ranks"` // whose files are on the host
		All   int    `json:"all"`   // ranks of the run
		// Attempt, if set, says that the host uploads what it keeps for tiers
		// on hosts, of that attempt, and not what is in its checkpoint
		// directory.
		Attempt string `json:"attempt,omitempty"`
		// Turns says that the helper asks for a Turn before each try, because
		// not all hosts may write to the tier at the same time.
		Turns bool `json:"turns,omitempty"`
	}
	// Turn asks whether the helper may write to a tier, or, from the
	// supervisor, says that it may. Over ends it.
	Turn struct {
		Tier string `json:"tier"`
		Over bool   `json:"over,omitempty"`
	}
	// Peers tells a helper which other hosts there are, and which of them hold
	// copies or shards of its ranks' files.
	Peers struct {
		Hosts   []PeerHost          `json:"hosts"`
		Holders map[string][]string `json:"holders,omitempty"` // by tier
	}
	// Retain says which checkpoints each tier on hosts keeps. A helper removes
	// the others of what it holds.
	Retain struct {
		Tiers map[string][]Checkpointed `json:"tiers"`
	}
	// Stored says that the host has done its share of Keep, or why it has not.
	Stored struct {
		Tier  string `json:"tier"`
		Index uint64 `json:"index"`
		Part  []byte `json:"part,omitempty"` // tier.Uploaded, in JSON
		Error string `json:"error,omitempty"`
		Over  bool   `json:"over,omitempty"` // the helper does not try again
	}
	// Scrubbed says that the host has read something of checkpoints again.
	Scrubbed struct {
		Files    int          `json:"files"` // that were read since the last Scrubbed
		Bytes    int64        `json:"bytes"`
		Repaired []TierRepair `json:"repaired,omitempty"` // since the last Scrubbed
		Lost     []TierRepair `json:"lost,omitempty"`     // all that is damaged now, and cannot be repaired
	}
)

// TierRepair is something that a tier had lost.
type TierRepair struct {
	Checkpoint uint64 `json:"checkpoint,omitempty"` // 0: it belongs to none
	Tier       string `json:"tier"`
	What       string `json:"what"`           // "rank 3's file on host b"
	From       string `json:"from,omitempty"` // where it was rebuilt from
	Why        string `json:"why,omitempty"`  // it cannot be repaired: why
}

// String says what was repaired, or cannot be.
func (r *TierRepair) String() string {
	text := r.Tier + ": "
	if r.Checkpoint > 0 {
		text += fmt.Sprintf("checkpoint %d: ", r.Checkpoint)
	}
	if r.Why != "" {
		return fmt.Sprintf("%scannot be repaired: %s: %s", text, r.What, r.Why)
	}
	return fmt.Sprintf("%srepaired: %s, from %s", text, r.What, r.From)
}

// PeerHost is a host, and where its helper takes copies of checkpoints.
type PeerHost struct {
	Name      string   `json:"name"`
	Addresses []string `json:"addresses"`
}

// Checkpointed is a checkpoint of an attempt.
type Checkpointed struct {
	Index   uint64 `json:"index"`
	Attempt string `json:"attempt"`
}

// MaxFileData bounds FileData.Data.
const MaxFileData = 1 << 20

// FetchItem is what a rank needs from another host.
type FetchItem struct {
	Rank      int      `json:"rank"`
	Index     uint64   `json:"index,omitempty"` // checkpoint; 0: none
	Attempt   string   `json:"attempt,omitempty"`
	Own       bool     `json:"own,omitempty"`      // its journal and output, too
	Moved     bool     `json:"moved,omitempty"`    // … but not its standard output, which has come with the rank
	Tier      string   `json:"tier,omitempty"`     // get it from this tier, not from a host
	Manifest  []byte   `json:"manifest,omitempty"` // with Tier: of the checkpoint there, in JSON
	End       *RunEnd  `json:"end,omitempty"`      // of a run that has finished, get what the rank has left
	Line      uint64   `json:"line,omitempty"`     // with Tier and Own: the recovery line that other hosts have recorded
	Kept      []byte   `json:"kept,omitempty"`     // get it from what hosts keep: KeptItem of package helper, in JSON
	KeepOnly  bool     `json:"keepOnly,omitempty"` // with Tier or Kept: keep it for tiers on hosts, and do not publish it
	Host      string   `json:"host"`               // host or tier that has it; the own one: only verify the checkpoint
	Addresses []string `json:"addresses"`
}

// FetchFailure says why an item could not be had. Damaged means that the file
// there is not what it should be.
type FetchFailure struct {
	Rank    int    `json:"rank"`
	Index   uint64 `json:"index,omitempty"`
	Host    string `json:"host"`
	Damaged bool   `json:"damaged,omitempty"`
	Error   string `json:"error"`
	// With FetchItem.Kept: an object, and the hosts whose copy or shard of it
	// cannot be used.
	Object string   `json:"object,omitempty"`
	Hosts  []string `json:"hosts,omitempty"`
}

// BlockDamage is a block that is not what was written.
type BlockDamage struct {
	Block  string `json:"block"`
	Reason string `json:"reason"`
}

// Between helpers; commands ask helpers for lists, too.
type (
	// ListFiles asks for the files of a rank: those of a checkpoint, or its
	// journal and output.
	ListFiles struct {
		Rank  int    `json:"rank"`
		Ranks int    `json:"ranks"`
		Index uint64 `json:"index,omitempty"` // 0: journal and output
	}
	// FileList answers ListFiles.
	FileList struct {
		Files []FileInfo `json:"files"`
		Error string     `json:"error,omitempty"`
	}
	// GetFile asks for the bytes of a file from an offset on.
	GetFile struct {
		Path   string `json:"path"`
		Offset int64  `json:"offset"`
	}
	// FileBytes answers GetFile. The bytes follow it; see package local of
	// tier.
	FileBytes struct {
		Bytes int64  `json:"bytes"`
		Error string `json:"error,omitempty"`
	}
)

// FileInfo is a file below a host's directory of a run.
type FileInfo struct {
	Path string    `json:"path"` // with slashes
	Size int64     `json:"size"`
	Mode uint32    `json:"mode"`
	Time time.Time `json:"time"`
}

func (r *ReadFile) check() error { return checkOffset(r.Offset) }
func (g *GetFile) check() error  { return checkOffset(g.Offset) }

func (f *FileBytes) check() error { return checkOffset(f.Bytes) }

func checkOffset(n int64) error {
	if n < 0 {
		return fmt.Errorf("%d bytes", n)
	}
	return nil
}

func (*Scan) Kind() Kind          { return "scan" }
func (*Scanned) Kind() Kind       { return "scanned" }
func (*Fetch) Kind() Kind         { return "fetch" }
func (*Fetched) Kind() Kind       { return "fetched" }
func (*StoreAttempt) Kind() Kind  { return "storeAttempt" }
func (*AttemptStored) Kind() Kind { return "attemptStored" }
func (*VerifyPart) Kind() Kind    { return "verifyPart" }
func (*PartVerified) Kind() Kind  { return "partVerified" }
func (*ReadFile) Kind() Kind      { return "readFile" }
func (*FileData) Kind() Kind      { return "fileData" }
func (*Discard) Kind() Kind       { return "discard" }
func (*Discarded) Kind() Kind     { return "discarded" }
func (*Keep) Kind() Kind          { return "keep" }
func (*Stored) Kind() Kind        { return "stored" }
func (*Scrubbed) Kind() Kind      { return "scrubbed" }
func (*Turn) Kind() Kind          { return "turn" }
func (*Peers) Kind() Kind         { return "peers" }
func (*Retain) Kind() Kind        { return "retain" }
func (*ListFiles) Kind() Kind     { return "listFiles" }
func (*FileList) Kind() Kind      { return "fileList" }
func (*GetFile) Kind() Kind       { return "getFile" }
func (*FileBytes) Kind() Kind     { return "fileBytes" }
