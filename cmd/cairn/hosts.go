package main

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/cairnrun/cairn/internal/control"
	"github.com/cairnrun/cairn/internal/supervise"
)

// askHosts collects the checkpoints of a run whose hosts share no files, so
// that commands see them as if all were in RUN/ckpt. It does nothing for other
// runs.
func (c *call) askHosts(run string) error {
	if c.hosts != nil || c.completing {
		return nil
	}
	run, err := filepath.Abs(run)
	if err != nil {
		return err
	}
	if _, err := os.Stat(filepath.Join(run, "run.json")); err != nil {
		return nil // not a run directory
	}
	self, err := os.Executable()
	if err != nil {
		return err
	}
	v, err := supervise.ViewHosts(context.Background(), run, []string{self, hostName})
	if err != nil || v == nil {
		return err
	}
	c.hosts, c.fsys = v, v.FS(c.fsys)
	for _, h := range v.Hosts {
		if h.Err != nil && !v.Emptied() {
			c.notef("cannot list the files of the run on host %s: %v", h.Name, h.Err)
		}
	}
	return nil
}

// listedHost is what a host has of a run.
type listedHost struct {
	Host        string       `json:"host"`
	Dir         string       `json:"dir,omitempty"`
	Error       string       `json:"error,omitempty"` // why nothing is known of it
	Checkpoints []hostedPart `json:"checkpoints"`     // newest first
}

// hostedPart is what a host has of a checkpoint.
type hostedPart struct {
	Index uint64 `json:"index"`
	Ranks []int  `json:"ranks"`
	Bytes int64  `json:"bytes"` // with files of older checkpoints that it needs
}

// hosted returns what each host has.
func hosted(v *supervise.HostView) (out []listedHost) {
	for _, h := range v.Hosts {
		l := listedHost{Host: h.Name, Checkpoints: []hostedPart{}}
		if h.Err != nil {
			l.Error = h.Err.Error()
		}
		if h.Files != nil {
			l.Dir = h.Files.Dir
			for _, p := range h.Files.Parts {
				if n := len(l.Checkpoints); n == 0 || l.Checkpoints[n-1].Index != p.Index {
					l.Checkpoints = append(l.Checkpoints, hostedPart{Index: p.Index})
				}
				at := &l.Checkpoints[len(l.Checkpoints)-1]
				at.Ranks, at.Bytes = append(at.Ranks, p.Rank), at.Bytes+p.Bytes
			}
		}
		out = append(out, l)
	}
	return out
}

// hostsText prints what each host has.
func (c *call) hostsText(list []listedHost) {
	for _, h := range list {
		var has []string
		for _, p := range h.Checkpoints {
			slices.Sort(p.Ranks)
			has = append(has, fmt.Sprintf("%d of %s", p.Index, control.RanksText(p.Ranks)))
		}
		switch {
		case h.Error != "":
			c.printf("host %s: not known\n", h.Host)
		case len(has) == 0:
			c.printf("host %s: no checkpoint in %s\n", h.Host, h.Dir)
		default:
			c.printf("host %s: checkpoint %s, in %s\n", h.Host, strings.Join(has, "; "), h.Dir)
		}
	}
}

// tiersText prints on which tiers checkpoints are, and what they survive.
func (c *call) tiersText(list []supervise.TieredCheckpoint) {
	if len(list) == 0 {
		return
	}
	c.printf("\n")
	t := c.table("", "CHECKPOINT", "AGE", "ON TIERS", "MAY LOSE")
	for _, x := range list {
		t.row(fmt.Sprint(x.Index), age(c.now, x.Time), cmp.Or(strings.Join(x.Tiers, ", "), "in pieces"), x.Survives)
	}
	t.flush()
	c.printf("\n")
}
