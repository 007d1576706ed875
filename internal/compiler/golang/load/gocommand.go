package load

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// Go runs the go command in dir and returns what it prints to stdout and to
// stderr. name is the command's file; empty stands for "go", found by PATH.
func Go(ctx context.Context, name, dir string, env []string, args ...string) (out []byte, messages string, err error) {
	cmd := exec.CommandContext(ctx, cmp.Or(name, "go"), args...)
	cmd.Dir, cmd.Env = dir, env
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	err = cmd.Run()
	messages = strings.TrimSpace(stderr.String())
	switch {
	case err == nil:
		return stdout.Bytes(), messages, nil
	case ctx.Err() != nil:
		err = ctx.Err()
	case errors.Is(err, exec.ErrNotFound):
		err = fmt.Errorf("cannot run the go command: %w; install Go, or add it to PATH", err)
	case messages != "":
		err = fmt.Errorf("go %s: %s%s", args[0], messages, moduleHint(dir, args[1:]))
	default:
		err = fmt.Errorf("go %s: %w", args[0], err)
	}
	return nil, "", err
}

// ParseList parses what go list -json prints.
func ParseList[T any](out []byte) (list []*T, err error) {
	for d := json.NewDecoder(bytes.NewReader(out)); ; {
		p := new(T)
		if err := d.Decode(p); err == io.EOF {
			return list, nil
		} else if err != nil {
			return nil, fmt.Errorf("go list printed no JSON: %w; cairn needs Go 1.21 or newer", err)
		}
		list = append(list, p)
	}
}

// moduleHint says which module a directory among args belongs to, if the go
// command, run in from, does not look there. It is the end of an error message.
func moduleHint(from string, args []string) string {
	above := func(dir string) string {
		dir, err := filepath.Abs(dir)
		for err == nil {
			if _, err := os.Stat(filepath.Join(dir, "go.mod")); err == nil && dir != filepath.Clean(os.TempDir()) { // as the go command does
				return dir
			}
			up := filepath.Dir(dir)
			if up == dir {
				break
			}
			dir = up
		}
		return ""
	}
	for _, pattern := range args {
		dir := filepath.Join(from, pattern)
		if filepath.IsAbs(pattern) {
			dir = pattern
		}
		if info, err := os.Stat(dir); err != nil || !info.IsDir() {
			continue
		}
		switch m := above(dir); m {
		case "":
			return fmt.Sprintf("; %s is in no module: run 'go mod init NAME' there", pattern)
		case above(from):
		default:
			return fmt.Sprintf("; %s is part of the module in %s: run cairn there", pattern, m)
		}
	}
	return ""
}
