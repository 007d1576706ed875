package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"regexp"
	"strings"
	"syscall"

	"github.com/cairnrun/cairn/internal/ckpt"
)

// Exit codes, as help documents them.
const (
	exitFine   = 0
	exitFound  = 1 // damage, or a difference
	exitUsage  = 2
	exitFailed = 3
)

// errFound means that a command has found damage or differences, and has
// reported them on stdout.
var errFound = errors.New("found something")

// errNotCheckpoint means that a file is not Cairn's.
var errNotCheckpoint = errors.New("not a checkpoint")

// usageError describes a wrong command line.
type usageError string

func (e usageError) Error() string { return string(e) }

// statusError is the exit status of a run. Its text is empty if the user has
// been told already.
type statusError struct {
	status int
	text   string
}

func (e statusError) Error() string { return e.text }

func usagef(format string, args ...any) error { return usageError(fmt.Sprintf(format, args...)) }

func exitCode(err error) int {
	var u usageError
	var s statusError
	switch {
	case err == nil:
		return exitFine
	case err == errFound:
		return exitFound
	case errors.As(err, &u):
		return exitUsage
	case errors.As(err, &s):
		return s.status
	}
	return exitFailed
}

// describe returns an error as users read it: what failed, on what, why and, if
// known, the remedy.
func describe(err error) string {
	text := withSlashes(err.Error())
	var at *fs.PathError
	if errors.As(err, &at) { // once is enough: x: open x: permission denied
		text = strings.TrimPrefix(text, at.Path+": ")
	}
	switch {
	case errors.Is(err, context.Canceled):
		return "interrupted"
	case strings.Contains(text, ";"): // it says what to do
	case errors.Is(err, fs.ErrPermission):
		text += "; run cairn as the owner, or ask for access"
	case errors.Is(err, ckpt.ErrCorrupt):
		text += "; 'cairn verify' names all damage, 'cairn list' shows other checkpoints"
	}
	return text
}

// elsewhere adds to an error in writing how to write elsewhere.
func elsewhere(err error, how string) error {
	first := ""
	switch {
	case errors.Is(err, syscall.ENOSPC), errors.Is(err, syscall.EDQUOT):
		first = "free space there"
	case errors.Is(err, fs.ErrPermission), errors.Is(err, syscall.EROFS):
		first = "ask for access"
	}
	if first == "" || strings.Contains(err.Error(), ";") {
		return err
	}
	return fmt.Errorf("%w; %s, or %s", err, first, how)
}

// cleaned is the beginning of a place on an object store in a path of which
// path/filepath has made one slash of two.
var cleaned = regexp.MustCompile(`\bs3:/([^/])`)

// withSlashes returns a path, or a text that has some, as users write it.
func withSlashes(text string) string { return cleaned.ReplaceAllString(text, "s3://$1") }

// reason returns an error without the path, which a table shows beside it.
func reason(err error, path string) string {
	text := strings.TrimPrefix(err.Error(), path+": ")
	text = strings.TrimPrefix(text, "open "+path+": ")
	return strings.TrimPrefix(text, ckpt.ErrCorrupt.Error()+": ")
}
