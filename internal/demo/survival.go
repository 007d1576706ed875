package main

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"
)

// survival is a run of the simulation that is killed and started again.
type survival struct {
	program, folder string
	args            []string

	saved   []saved
	starts  int
	took    time.Duration // all starts together
	differs []string      // results that are not those of the undisturbed run
}

// saved is what the program says of a set.
type saved struct {
	set            uint64
	state, written int64
	held           time.Duration
}

// blow decides when the program is killed. It is called after each set that
// the program reports, and says how the end came when it is time.
type blow func(sets int) (how string)

// afterSet kills right after the n-th set of this start.
func (s *survival) afterSet(n int) blow {
	return func(sets int) string {
		if sets < n {
			return ""
		}
		return fmt.Sprintf("right after set %d was saved", s.last().set)
	}
}

// insideSet kills in the middle of writing the set after the n-th.
func (s *survival) insideSet(n int) blow {
	return func(sets int) string {
		if sets < n {
			return ""
		}
		next := s.last().set + 1
		file := filepath.Join(s.folder, fmt.Sprintf("set-%08d", next), "rank-0000.")
		for limit := time.Now().Add(time.Minute); time.Now().Before(limit); time.Sleep(time.Millisecond) {
			if _, err := os.Stat(file + "tmp"); err == nil {
				return fmt.Sprintf("while set %d was being written", next)
			}
			if _, err := os.Stat(file + "h5"); err == nil {
				return fmt.Sprintf("right after set %d was written", next)
			}
		}
		return fmt.Sprintf("because set %d did not come", next)
	}
}

func (s *survival) last() saved { return s.saved[len(s.saved)-1] }

// start runs the program until it ends or the blow falls.
func (s *survival) start(ctx context.Context, b blow) error {
	s.starts++
	began := time.Now()
	cmd := exec.CommandContext(ctx, s.program, s.args...)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return err
	}
	how, sets, from := "", 0, "the beginning"
	lines := bufio.NewScanner(out)
	for how == "" && lines.Scan() {
		if step, ok := strings.CutPrefix(lines.Text(), "resumed step="); ok {
			from = "step " + step
		}
		v, ok := parse(lines.Text())
		if !ok {
			continue
		}
		s.saved = append(s.saved, v)
		sets++
		if b != nil {
			how = b(sets)
		}
	}
	if how != "" {
		cmd.Process.Kill()
		io.Copy(io.Discard, out)
	}
	err = cmd.Wait()
	s.took += time.Since(began)
	fmt.Printf("   start %d: from %s, ", s.starts, from)
	switch {
	case how != "" && err != nil:
		fmt.Printf("killed %s\n", how)
		return nil
	case err == nil && b == nil:
		fmt.Println("to the end")
		return nil
	case err == nil:
		return errors.New("the program ended before it could be killed")
	}
	return fmt.Errorf("%w\n%s", err, stderr.String())
}

// parse reads a line that the program writes for each set.
func parse(line string) (v saved, ok bool) {
	var reason, held string
	_, err := fmt.Sscanf(line, "saved set=%d reason=%q state=%d written=%d held=%s", &v.set, &reason, &v.state, &v.written, &held)
	if err != nil {
		return v, false
	}
	v.held, err = time.ParseDuration(held)
	return v, err == nil
}

// table tells what it cost.
func (s *survival) table(undisturbed time.Duration, same bool) {
	var written int64
	var held, longest time.Duration
	for _, v := range s.saved {
		written += v.written
		held += v.held
		longest = max(longest, v.held)
	}
	n := len(s.saved)
	result := "identical, byte for byte (field.f64, series.txt)"
	if !same {
		result = "DIFFERENT: " + strings.Join(s.differs, ", ")
	}
	ms := func(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }
	mb := func(n int64) float64 { return float64(n) / 1e6 }
	fmt.Println()
	for _, row := range [][2]string{
		{"state", fmt.Sprintf("%.1f MB: height and momentum, random numbers, drops, buffered output", mb(s.last().state))},
		{"saved", fmt.Sprintf("%d sets, %.1f MB each on average, %.0f MB in all", n, mb(written)/float64(n), mb(written))},
		{"held", fmt.Sprintf("%.1f ms per set on average, %.1f ms at most", ms(held)/float64(n), ms(longest))},
		{"cost", fmt.Sprintf("%.2f %% of the run time was spent held", 100*held.Seconds()/s.took.Seconds())},
		{"time", fmt.Sprintf("%.1f s undisturbed, %.1f s with %d kills (machines are noisy)", undisturbed.Seconds(), s.took.Seconds(), s.starts-1)},
		{"result", result},
	} {
		fmt.Printf("   %-8s %s\n", row[0], row[1])
	}
	fmt.Println()
}
