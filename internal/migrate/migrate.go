// Package migrate sends the state of a rank from its process, the source, to
// the process that takes over, the destination. It works as Cores et al.
// describe: digesting, sending and checking overlap.
//
//	source       digest 1 │ digest 2 │ digest 3 │ …
//	network               │ send 1   │ send 2   │ send 3 │ …
//	destination                      │ check 1  │ check 2 │ check 3 │ set pointers
//
// The unit is a batch of blocks. The source sends from the program's memory,
// and the destination receives into its own. Bytes that are in several pieces,
// on a device, or in another machine's format go through buffers of at most two
// batches on each side.
//
// A round consists of a head (variables, types, pools, regions and datasets),
// blocks with their digests, and an end. In a precopy round the program
// continues: the source copies blocks before it digests and sends them. In the
// last round, the final copy, the program is paused. For every block the source
// says that the block is sent, is zero, or is at the destination already. A
// digest comes with every block that is not zero. The destination refuses
// blocks that do not match their digests, and a final copy that does not
// mention every block. When everything is in place, the destination sends a
// confirmation.
//
// The stream is a preface of 16 bytes, and then frames:
//
//	kind, number, length    4 bytes each, low byte first
//	digest of the payload   16 bytes
//	digest of these fields  8 bytes
//	payload
//
// The bytes of blocks follow the frame that lists them.
package migrate

import (
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"time"

	"github.com/zeebo/xxh3"

	"github.com/cairnrun/cairn/internal/ckpt"
	"github.com/cairnrun/cairn/internal/control"
	"github.com/cairnrun/cairn/internal/graph"
	"github.com/cairnrun/cairn/internal/mem"
)

// version is the version of the stream.
const version = 2

var preface = append([]byte("cairn move\r\n"), version, 0, 0, 0)

// Options configure a migration. The source decides about BatchSize, Files and
// Output.
type Options struct {
	Rank, Ranks int
	BatchSize   int64 // bytes sent at once; 0: 64 MiB
	// Files also sends the contents of the run's open files, for hosts without
	// a common file system.
	Files bool
	// Output sends the content of standard output, for hosts that do not share
	// the run's own files.
	Output bool
	Stall  time.Duration // how long the other end may be silent; 0: 30 s
}

const (
	defaultBatch = 64 << 20
	maxBatch     = 1 << 30
	defaultStall = 30 * time.Second
)

func (o *Options) defaults() {
	if o.BatchSize <= 0 {
		o.BatchSize = defaultBatch
	}
	o.BatchSize = min(o.BatchSize, maxBatch)
	if o.Stall <= 0 {
		o.Stall = defaultStall
	}
	o.Ranks = max(o.Ranks, 1)
}

// Stats describe a migration.
type Stats = control.MoveStats

// Receiver is what the receiving program contributes.
type Receiver struct {
	// Fit checks that an image fits the program, and returns where its values
	// go. It may be called several times, for different images.
	Fit func(img *graph.Image) (roots []graph.Root, env *graph.Env, drop []string, err error)
	// Files is called with the run's files when everything is received, before
	// pointers are set.
	Files func(files []ckpt.FileEntry, note ckpt.Note, extra []byte) error
}

// Received is what came besides the values.
type Received struct {
	Note  ckpt.Note
	Files []ckpt.FileEntry
	Extra []byte
	Stats Stats
}

// Kinds of frames.
const (
	frameHello   uint32 = iota + 1 // helloFrame
	frameHead                      // headFrame
	framePart                      // of a section
	frameBlocks                    // runs of blocks, digests; raw bytes follow
	frameFile                      // fileFrame
	frameData                      // bytes of the file
	frameEnd                       // of a round: endFrame
	framePing                      // the sender is alive
	frameFail                      // text: why the sender gives up
	frameKept                      // to the source: datasets that the destination still has
	frameConfirm                   // to the source: confirmFrame
)

const (
	frameBytes = 36
	maxPayload = 4 << 20
)

// frameHeader comes before a payload.
type frameHeader struct {
	kind, number uint32
	size         int
	digest       xxh3.Uint128
}

func (h *frameHeader) encode() []byte {
	out := make([]byte, 0, frameBytes)
	out = binary.LittleEndian.AppendUint32(out, h.kind)
	out = binary.LittleEndian.AppendUint32(out, h.number)
	out = binary.LittleEndian.AppendUint32(out, uint32(h.size))
	out = appendDigest(out, h.digest)
	return binary.LittleEndian.AppendUint64(out, xxh3.Hash128(out).Lo)
}

func decodeFrame(p []byte) (h frameHeader, err error) {
	le := binary.LittleEndian
	if xxh3.Hash128(p[:frameBytes-8]).Lo != le.Uint64(p[frameBytes-8:]) {
		return h, fmt.Errorf("%w: a frame does not match its digest", ckpt.ErrCorrupt)
	}
	h = frameHeader{kind: le.Uint32(p), number: le.Uint32(p[4:]), size: int(le.Uint32(p[8:])), digest: digestAt(p[12:])}
	if h.size > maxPayload {
		return h, fmt.Errorf("%w: a frame of %d bytes", ckpt.ErrCorrupt, h.size)
	}
	return h, nil
}

func appendDigest(p []byte, d xxh3.Uint128) []byte {
	p = binary.LittleEndian.AppendUint64(p, d.Lo)
	return binary.LittleEndian.AppendUint64(p, d.Hi)
}

func digestAt(p []byte) xxh3.Uint128 {
	return xxh3.Uint128{Lo: binary.LittleEndian.Uint64(p), Hi: binary.LittleEndian.Uint64(p[8:])}
}

// helloFrame begins the stream.
type helloFrame struct {
	Rank      int   `json:"rank"`
	Ranks     int   `json:"ranks"`
	BatchSize int64 `json:"chunk"`
	Files     bool  `json:"files,omitempty"`
	Output    bool  `json:"output,omitempty"`
}

// sends reports whether the content of a file is sent.
func (h *helloFrame) sends(e *ckpt.FileEntry) bool {
	return !e.IsStream() && !e.Closed && (h.Files || h.Output && e.Path == outputPath)
}

// outputPath names standard output among the run's files, if it is one.
const outputPath = "/dev/stdout"

// Sections of a head. They follow it in parts.
const (
	sectionVars = iota
	sectionTypes
	sectionPools
	sectionRegions
	sectionDatasets
	sectionRest  // rest
	sectionExtra // the caller's own
	sections
)

// section describes a section in a head. It is not sent if it is the same as
// before.
type section struct {
	Size   int64  `json:"size"`
	Digest string `json:"digest"`
	Same   bool   `json:"same,omitempty"`
}

// sectionLayout reports whether section i says where values are.
func sectionLayout(i int) bool { return i <= sectionDatasets }

// headFrame begins a round.
type headFrame struct {
	Last     bool              `json:"last,omitempty"`
	Sections [sections]section `json:"sections"`
}

// rest is the content of a checkpoint's header, in the final copy.
type rest struct {
	Files    []ckpt.FileEntry `json:"files,omitempty"`
	Note     ckpt.Note        `json:"note"`
	Sent     []uint64         `json:"sent,omitempty"`
	Received []uint64         `json:"received,omitempty"`
}

// endFrame ends a round. In the final copy, Digest covers the digests of all
// blocks.
type endFrame struct {
	Last   bool   `json:"last,omitempty"`
	Digest string `json:"digest,omitempty"`
}

// confirmFrame says that everything is received, verified and in place.
type confirmFrame struct {
	Digest string `json:"digest"` // of the source's endFrame
	ReadNS int64  `json:"readNS"`
}

// blockRun is consecutive blocks of a dataset with the same state.
type blockRun struct {
	dataset, lo, n int
	state          uint32
}

const (
	blockSent uint32 = iota // its bytes follow
	blockZero               // all zeros
	blockKept               // the destination has it
)

const (
	runBytes = 16
	// maxListed bounds the blocks of one frame.
	maxListed = 64 << 10
)

// encodeRuns encodes runs, and then the digests of all blocks that are not
// zero.
func encodeRuns(runs []blockRun, digests []xxh3.Uint128) []byte {
	le := binary.LittleEndian
	out := make([]byte, 0, 4+len(runs)*runBytes+16*len(digests))
	out = le.AppendUint32(out, uint32(len(runs)))
	for _, r := range runs {
		for _, v := range [4]uint32{uint32(r.dataset), uint32(r.lo), uint32(r.n), r.state} {
			out = le.AppendUint32(out, v)
		}
	}
	for _, d := range digests {
		out = appendDigest(out, d)
	}
	return out
}

// decodeRuns is the inverse of encodeRuns, for these datasets.
func decodeRuns(p []byte, datasets []ckpt.Dataset) (runs []blockRun, digests []xxh3.Uint128, err error) {
	bad := func() ([]blockRun, []xxh3.Uint128, error) {
		return nil, nil, fmt.Errorf("%w: a list of blocks that do not exist", ckpt.ErrCorrupt)
	}
	le := binary.LittleEndian
	if len(p) < 4 || uint64(le.Uint32(p))*runBytes > uint64(len(p)-4) {
		return bad()
	}
	runs = make([]blockRun, le.Uint32(p))
	p = p[4:]
	blocks, named := 0, 0
	for i := range runs {
		v := [4]uint32{le.Uint32(p), le.Uint32(p[4:]), le.Uint32(p[8:]), le.Uint32(p[12:])}
		p = p[runBytes:]
		if v[0] >= uint32(len(datasets)) || v[3] > blockKept || v[2] == 0 || v[2] > maxListed {
			return bad()
		}
		if n := datasets[v[0]].NumBlocks(); uint64(v[1])+uint64(v[2]) > uint64(n) {
			return bad()
		}
		runs[i] = blockRun{int(v[0]), int(v[1]), int(v[2]), v[3]}
		if blocks += int(v[2]); blocks > maxListed {
			return bad()
		}
		if v[3] != blockZero {
			named += int(v[2])
		}
	}
	if len(p) != 16*named {
		return bad()
	}
	digests = make([]xxh3.Uint128, named)
	for i := range digests {
		digests[i] = digestAt(p[16*i:])
	}
	return runs, digests, nil
}

// plan lays an image out for the stream: as for a checkpoint, but without
// metadata, which is in the head, and with blocks of at most MaxBlock bytes.
// With fetch, small datasets are brought from devices.
func plan(img *graph.Image, t *ckpt.Description, fetch bool) (*ckpt.Layout, error) {
	all, err := ckpt.PlanPools(img, nil, t)
	if err != nil {
		return nil, err
	}
	l := &ckpt.Layout{}
	for i := range all.Datasets {
		d := all.Datasets[i]
		if d.Pool < 0 {
			continue
		}
		if d.Block > ckpt.MaxBlock {
			d.Block = ckpt.MaxBlock
		}
		l.Add(d, all.Memory[i].Pieces)
		last := len(l.Datasets) - 1
		l.Remote[last] = all.Remote[i]
		if fetch && l.Remote[last] && d.Chunk == nil {
			if err := l.Fetch(last); err != nil {
				return nil, fmt.Errorf("%s: %w", d.Var, err)
			}
			l.Remote[last] = false
		}
	}
	return l, nil
}

// decodeImage decodes a head's sections into an image and the datasets of its
// pools.
func decodeImage(text *[sections][]byte) (*graph.Image, []ckpt.Dataset, error) {
	img := &graph.Image{}
	h := ckpt.Header{Ranks: 1}
	for _, s := range []struct {
		at   int
		name string
		into any
	}{{sectionVars, "variables", &img.Vars}, {sectionTypes, "types", &img.Types}, {sectionPools, "pools", &img.Pools}, {sectionDatasets, "datasets", &h.Datasets}} {
		if err := json.Unmarshal(text[s.at], s.into); err != nil {
			return nil, nil, fmt.Errorf("%w: %s: %v", ckpt.ErrCorrupt, s.name, err)
		}
	}
	p := text[sectionRegions]
	var err error
	if img.Regions, err = ckpt.DecodeRegions(p); err != nil || len(p)%8 != 0 {
		return nil, nil, fmt.Errorf("%w: regions: %v", ckpt.ErrCorrupt, err)
	}
	if err := h.Check(); err != nil {
		return nil, nil, err
	}
	if n := h.TotalBlocks(); int64(n) > mem.Total()/8/tableBytes {
		return nil, nil, fmt.Errorf("%w: %d blocks", ckpt.ErrCorrupt, n)
	}
	paths, pools := make(map[string]bool), make(map[int]bool)
	for i := range h.Datasets {
		d := &h.Datasets[i]
		if d.Pool < 0 || d.Pool >= len(img.Pools) || img.Pools[d.Pool].Bytes() != uint64(d.Size) || d.Block > ckpt.MaxBlock || paths[d.Path] || pools[d.Pool] {
			return nil, nil, fmt.Errorf("%w: /%s does not fit its description", ckpt.ErrCorrupt, d.Path)
		}
		paths[d.Path], pools[d.Pool] = true, true
	}
	return img, h.Datasets, nil
}

// tableBytes is the memory that a table needs per block.
const tableBytes = 18

// table has the digests of a dataset's blocks at the destination.
type table struct {
	digests []xxh3.Uint128
	known   []bool
}

func newTable(d *ckpt.Dataset) *table {
	return &table{digests: make([]xxh3.Uint128, d.NumBlocks()), known: make([]bool, d.NumBlocks())}
}

// has reports whether the destination has block k with this digest.
func (t *table) has(k int, d xxh3.Uint128) bool { return t.known[k] && t.digests[k] == d }

func (t *table) set(k int, d xxh3.Uint128) { t.digests[k], t.known[k] = d, true }

// rootDigest returns a digest of the digests of all blocks.
func rootDigest(tables []*table) string {
	var root xxh3.Uint128
	var buf []byte
	for _, t := range tables {
		for lo := 0; ; {
			hi := min(lo+maxListed, len(t.digests))
			buf = appendDigest(buf[:0], root)
			for _, d := range t.digests[lo:hi] {
				buf = appendDigest(buf, d)
			}
			root = xxh3.Hash128(buf)
			if lo = hi; lo == len(t.digests) {
				break
			}
		}
	}
	b := root.Bytes()
	return hex.EncodeToString(b[:])
}
