package main

import (
	"cmp"
	"context"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/cairnrun/cairn/internal/ckpt"
	"github.com/cairnrun/cairn/internal/control"
	"github.com/cairnrun/cairn/internal/graph"
)

func inspectCommand(c *call) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "inspect [--rank N] [--key FILE] [CHECKPOINT]",
		Short: "show what a checkpoint holds and how it was taken",
		Long: `Shows how a checkpoint was taken: why, how long the program was paused, how
changes were found, and whether the kernel could track writes. Then it shows the
variables: the Go type, the type and shape in the file, the size, how much is in
blocks of zeros (not stored) and in unchanged blocks (stored in the file of an
older checkpoint), how much this file stores, and how much compression saved. A
variable whose values have several types has one more line for each type; --json
shows every dataset. In a program that Cairn has built, 'frames' is the state of
the functions that were running. Below it are the arrays that their variables lead
to, under the names that they have in the source (main.run.grid for variable grid
of function run). HDF5 tools find them under these names in /MemBlocks. If a slice
shares memory with another variable, it is shown as part of that variable. At the
end, it shows the data files that were open.

With several ranks, each has its own file: --rank chooses one. Without
CHECKPOINT, it shows the newest one of the only *.cairn directory here.`,
		Example: `  cairn inspect ckpt              # the newest checkpoint in directory ckpt
  cairn inspect ckpt@12           # checkpoint 12
  cairn inspect --rank 3 ckpt@12  # rank 3's part of it
  cairn inspect s3://b/sim@12     # checkpoint 12 in an object store
  cairn inspect result.h5         # a file of 'cairn export'`,
		Args:              takes(0, 1),
		ValidArgsFunction: c.completeCheckpoints,
	}
	f := cmd.Flags()
	rank := rankFlag(f)
	keyFlag(f, c)
	cmd.RunE = c.does(func(_ context.Context, c *call) error { return inspect(c, *rank) })
	return cmd
}

// inspectDocument is what inspect --json prints.
type inspectDocument struct {
	summary
	Format    int            `json:"format"`
	Finding   string         `json:"finding"`  // how changes were found: "copy", "digest", "kernel"
	Tracking  string         `json:"tracking"` // whether the kernel can track writes
	Variables []variableInfo `json:"variables"`
	Files     []fileInfo     `json:"files"`
}

// variableInfo is a variable; its numbers are the sums over its datasets.
type variableInfo struct {
	Name   string `json:"name"`
	GoType string `json:"goType"`
	In     string `json:"in,omitempty"` // the variable that holds its values, if not itself
	usage
	Ratio    float64       `json:"ratio"`
	Datasets []datasetInfo `json:"datasets"`
	Names    []nameInfo    `json:"names,omitempty"` // arrays that are parts of the datasets
}

// nameInfo is an array with a name of the program: a variable of a function, or
// a field that a variable leads to.
type nameInfo struct {
	Name    string   `json:"name"`
	GoType  string   `json:"goType"`
	Dataset string   `json:"dataset"` // that has its elements
	Start   uint64   `json:"start"`   // the first of them
	Type    string   `json:"type"`
	Shape   []uint64 `json:"shape"`
	Size    int64    `json:"sizeBytes"`
}

type datasetInfo struct {
	Path   string   `json:"path"`
	GoType string   `json:"goType"` // of an element
	Type   string   `json:"type"`
	Shape  []uint64 `json:"shape"`
	Block  int64    `json:"blockBytes"`
	Blocks int64    `json:"blocks"`
	usage
	Ratio float64 `json:"ratio"`
}

// fileInfo is a data file that was open.
type fileInfo struct {
	Path   string `json:"path"`
	Mode   string `json:"mode"`
	Offset int64  `json:"offset"`
	Size   int64  `json:"sizeBytes"`
}

// rankFlag declares --rank of commands that show one rank's file.
func rankFlag(f *pflag.FlagSet) *uint {
	return f.Uint("rank", 0, "use the file of rank `N`")
}

func inspect(c *call, rank uint) error {
	arg, err := c.theRun()
	if err != nil {
		return err
	}
	s, err := c.openCheckpoint(arg, int(rank))
	if err != nil {
		return err
	}
	defer s.Close()
	doc := inspectDocument{
		summary: c.summarize(s), Format: s.Header.Format,
		Finding: s.Header.Note.Finding, Tracking: s.Header.Note.Tracking, Files: []fileInfo{},
	}
	// If /Context or /FileMap is damaged, the rest is shown nevertheless.
	var failed error
	img, err := s.Image()
	if err != nil {
		failed = fmt.Errorf("%s: %w", s.Path, err)
		img = &graph.Image{}
	}
	doc.Variables = variables(s, img)
	files, err := s.Files()
	if err != nil && failed == nil {
		failed = fmt.Errorf("%s: %w", s.Path, err)
	}
	for _, f := range files {
		if f.Closed {
			f.Mode = "closed"
		}
		doc.Files = append(doc.Files, fileInfo{f.Path, f.Mode, f.Offset, f.Size})
	}
	if c.json {
		if err := c.document(doc); err != nil {
			return err
		}
	} else {
		c.inspectText(&doc)
	}
	return failed
}

// variables groups the datasets of a checkpoint by variable.
func variables(s *ckpt.File, img *graph.Image) []variableInfo {
	out := []variableInfo{}
	at := make(map[string]int)
	variable := func(name string) *variableInfo {
		i, ok := at[name]
		if !ok {
			i = len(out)
			at[name] = i
			out = append(out, variableInfo{Name: name, Datasets: []datasetInfo{}})
		}
		return &out[i]
	}
	for i := range img.Vars {
		v := variable(img.Vars[i].Name)
		v.GoType, v.In = rootType(img, i), holder(img, i)
	}
	for i := range s.Header.Datasets {
		d := &s.Header.Datasets[i]
		if d.Pool < 0 {
			continue
		}
		u := usageOf(s, i)
		v := variable(d.Var)
		v.add(u)
		info := datasetInfo{
			Path: "/" + d.Path, GoType: d.Go, Type: d.Type, Shape: d.Dims,
			Block: d.Block, Blocks: (d.Size + d.Block - 1) / d.Block, usage: u, Ratio: u.ratio(),
		}
		if info.Shape == nil {
			info.Shape = []uint64{}
		}
		v.Datasets = append(v.Datasets, info)
	}
	for i := range out {
		out[i].Ratio = out[i].ratio()
	}
	for i := range s.Header.Names {
		n := &s.Header.Names[i]
		at, count := s.Header.NameOf(n)
		d := &s.Header.Datasets[at]
		v := variable(d.Var)
		v.Names = append(v.Names, nameInfo{n.Name, n.Go, "/" + d.Path, n.Start, d.Type, n.Dims, int64(count) * (d.Size / int64(d.Count()))})
	}
	return out
}

// named reports whether the names of a variable show all elements of one of its
// datasets.
func (v *variableInfo) named(d *datasetInfo) bool {
	count := uint64(1)
	for _, n := range d.Shape {
		count *= n
	}
	var parts [][2]uint64
	for _, n := range v.Names {
		if n.Dataset == d.Path {
			size := uint64(1)
			for _, m := range n.Shape {
				size *= m
			}
			parts = append(parts, [2]uint64{n.Start, n.Start + size})
		}
	}
	slices.SortFunc(parts, func(a, b [2]uint64) int { return cmp.Compare(a[0], b[0]) })
	end := uint64(0)
	for _, p := range parts {
		if p[0] > end {
			return false
		}
		end = max(end, p[1])
	}
	return end >= count
}

func (c *call) inspectText(doc *inspectDocument) {
	at, ago := doc.when(c.now)
	c.printf("%s\n\n", doc.Path)
	t := c.table("")
	t.row("checkpoint", fmt.Sprintf("%d, format %d", doc.Index, doc.Format))
	if doc.Ranks > 1 {
		t.row("rank", fmt.Sprintf("%d of %d ranks; --rank N shows another", doc.Rank, doc.Ranks))
	}
	t.row("taken", fmt.Sprintf("%s (%s)", at, ago))
	t.row("why", whyText(doc.Reason))
	t.row("points", fmt.Sprintf("%d passed since the run began", doc.Points))
	t.row("paused", millis(doc.PauseMS))
	t.row("changes", findingText(doc.Finding))
	t.row("tracking", trackingText(doc.Tracking))
	t.row("kind", doc.kind())
	for _, b := range doc.Bases {
		t.row("", fmt.Sprintf("checkpoint %d, in %s", b.Index, b.File))
	}
	t.row("size", fmt.Sprintf("%s here, %s in bases, state %s", control.BytesText(doc.FileBytes), control.BytesText(doc.BaseBytes), control.BytesText(doc.StateBytes)))
	t.row("compression", doc.Compression)
	t.flush()

	c.printf("\n")
	t = c.table("", "VARIABLE", "GO TYPE", "TYPE", "SHAPE", "SIZE", "ZERO", "UNCHANGED", "STORED", "RATIO")
	for i := range doc.Variables {
		v := &doc.Variables[i]
		var show []*datasetInfo
		for j := range v.Datasets {
			if !v.Datasets[j].bare() && !v.named(&v.Datasets[j]) {
				show = append(show, &v.Datasets[j])
			}
		}
		row := []string{v.Name, cut(v.GoType), "-", "-"}
		switch {
		case len(show) == 1 && len(v.Names) == 0:
			row[2], row[3] = show[0].typeText(), shape(show[0].Shape)
		case len(show) == 0 && v.In != "":
			row[2] = "in " + v.In
		}
		t.row(append(row, v.cells()...)...)
		for _, n := range v.Names {
			t.row("  "+n.Name, cut(n.GoType), cut(n.Type), shape(n.Shape), control.BytesText(n.Size), "-", "-", "-", "-")
		}
		if len(show)+len(v.Names) < 2 {
			continue
		}
		for _, d := range show {
			t.row(append([]string{"  " + d.Path, cut(d.GoType), d.typeText(), shape(d.Shape)}, d.cells()...)...)
		}
	}
	t.flush()

	if len(doc.Files) > 0 {
		c.printf("\n")
		t = c.table("", "FILE", "MODE", "OFFSET", "SIZE")
		for _, f := range doc.Files {
			t.row(f.Path, f.Mode, strconv.FormatInt(f.Offset, 10), strconv.FormatInt(f.Size, 10))
		}
		t.flush()
	}
}

// references reports whether the dataset is a table of references, perhaps with
// values beside them.
func (d *datasetInfo) references() bool { return isReferences(d.Path) }

func isReferences(path string) bool { return strings.HasPrefix(path, "/Context/Pointers/") }

// bare reports whether the dataset has nothing but references. The shapes of
// what they refer to say enough about them.
func (d *datasetInfo) bare() bool {
	if !d.references() {
		return false
	}
	return slices.ContainsFunc([]string{"[]", "*", "map[", "interface {", "string"}, func(prefix string) bool { return strings.HasPrefix(d.GoType, prefix) })
}

// typeText gives the dataset's type for a table.
func (d *datasetInfo) typeText() string {
	if d.references() {
		return "references"
	}
	return cut(d.Type)
}

// whyText explains Note.Reason.
func whyText(reason string) string {
	switch reason {
	case "":
		return "not recorded"
	case "call":
		return "call: the program called Checkpoint"
	case "time":
		return "time: the interval since the last one had passed"
	case "points":
		return "points: the number of points since the last one was reached"
	case "request":
		return "request: a signal or the program asked for one"
	}
	return "signal: " + reason
}

// findingText explains Note.Finding.
func findingText(finding string) string {
	switch finding {
	case "":
		return "not recorded"
	case "copy":
		return "copy: most memory was copied, and digests compared afterwards"
	case "device":
		return "device: most of the state is on devices, which compared digests or copied it there"
	case "digest":
		return "digest: most memory was digested in place, and only changed blocks copied"
	case "kernel":
		return "kernel: it reported which pages were written"
	}
	return finding
}

// trackingText explains Note.Tracking.
func trackingText(tracking string) string {
	switch tracking {
	case "":
		return "not recorded"
	case "available":
		return "available: the kernel can report which pages were written"
	}
	return "not available: " + tracking
}

// rootType gives the Go type of variable i.
func rootType(img *graph.Image, i int) string {
	v := &img.Vars[i]
	if v.Off == 0 && !isArray(v.Type) {
		if r, ok := img.Region(v.Region); ok && r.Count == 1 {
			return img.Pools[r.Pool].Elem
		}
	}
	return goType(v.Type)
}

// isArray reports whether a description is that of an array. A checkpoint holds
// the elements of an array.
func isArray(text string) bool { return len(text) > 1 && text[0] == '[' && text[1] != ']' }

// holder returns the variable that holds the array of variable i, a slice, if
// it is another variable.
func holder(img *graph.Image, i int) string {
	v := &img.Vars[i]
	if v.Data == 0 {
		return ""
	}
	r, ok := img.Region(v.Data - 1)
	p := int(r.Pool)
	if !ok || img.Pools[p].Var == i || img.Pools[p].Var >= len(img.Vars) || img.Pools[p].Var < 0 {
		return ""
	}
	return img.Vars[img.Pools[p].Var].Name
}

// goType shortens the description of a type in a checkpoint: it replaces the
// definitions of named types by their names.
func goType(text string) string {
	head, rest, _ := strings.Cut(text, ` @0"`)
	var defs []string
	for n := 1; rest != ""; n++ {
		def, next, _ := strings.Cut(rest, fmt.Sprintf(` @%d"`, n))
		name, _, _ := strings.Cut(def, `"=`)
		if full, err := strconv.Unquote(`"` + name + `"`); err == nil {
			name = full
		}
		defs = append(defs, name)
		rest = next
	}
	var b strings.Builder
	for {
		before, after, ok := strings.Cut(head, "@")
		b.WriteString(before)
		if !ok {
			break
		}
		digits := len(after) - len(strings.TrimLeft(after, "0123456789"))
		n, err := strconv.Atoi(after[:digits])
		if err != nil || n >= len(defs) {
			return text
		}
		b.WriteString(defs[n])
		head = after[digits:]
	}
	return b.String()
}

// packagePath matches a package's path up to its last element.
var packagePath = regexp.MustCompile(`([\w.~-]+/)+`)

// cut shortens a type for a table, to []cairn.Options; JSON shows it in full.
func cut(s string) string {
	const most = 48
	s = packagePath.ReplaceAllString(s, "")
	s = strings.Replace(s, ".cairn_frame_", ".", 1) // what is saved of a function
	if r := []rune(s); len(r) > most {
		return string(r[:most-1]) + "…"
	}
	if s == "" {
		return "-"
	}
	return s
}
