package main

import (
	"bufio"
	"flag"
	"fmt"
	"log"
	"log/slog"
	"os"
	"strings"

	cairn_ "github.com/cairnrun/cairn/resume"
)

// What a program changes about its process, and files.

type cairn_frame_process struct {
	At   int
	In   *bufio.Scanner
	W    *bufio.Writer
	Name *string
	I    int
}

func process() {
	cairn_d := cairn_.Enter()
	var in *bufio.Scanner
	var w *bufio.Writer
	var name *string
	i, again := 0, false
	if cairn_.Resuming(cairn_d) {
		cairn_s := cairn_.Frame[cairn_frame_process](cairn_d)
		in, w, name, i, again = cairn_s.In, cairn_s.W, cairn_s.Name, cairn_s.I, true
	} else {
		in, w, name = prepare()
	}
	for ; again || in.Scan(); i++ {
		if again {
			again = false
			cairn_.Resumed()
		} else if cairn_.Due() {
			cairn_.Point(cairn_d, &cairn_frame_process{1, in, w, name, i})
		}
		dir, _ := os.Getwd()
		dir = dir[strings.LastIndex(dir, "/")+1:]
		_, home := os.LookupEnv("HOME")
		fmt.Fprintln(w, i, in.Text(), *name, flag.Args(), flag.Lookup("name").Value, verbosity, flag.Lookup("v").Value, os.Getenv("COLOUR"), home, dir, cairn_.Rand().Intn(1000))
		log.Print("logged ", i)
		slog.Warn("slogged", "i", i)
		*name += "+"
	}
	w.Flush()
}

func prepare() (*bufio.Scanner, *bufio.Writer, *string) {
	name := flag.String("name", "none", "a name")
	flag.CommandLine.Parse(os.Args[2:])
	os.Setenv("COLOUR", "red")
	os.Unsetenv("HOME")
	os.Mkdir("sub", 0o700)
	if err := os.Chdir("sub"); err != nil {
		cairn_.Fatal(err)
	}
	os.WriteFile("in", []byte(strings.Repeat("some words\n", 4)+"the last\n"), 0o600)
	file, err := cairn_.Open("in")
	if err != nil {
		cairn_.Fatal(err)
	}
	in := bufio.NewScanner(file)
	in.Split(bufio.ScanWords)
	logs, err := cairn_.OpenFile("log", os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		cairn_.Fatal(err)
	}
	log.SetOutput(logs)
	log.SetFlags(log.Lshortfile)
	log.SetPrefix("p ")
	slog.SetDefault(slog.New(slog.NewTextHandler(logs, &slog.HandlerOptions{ReplaceAttr: noTime})))
	cairn_.Seed(3)
	return in, bufio.NewWriter(out), name
}

// verbosity is a flag that is set in a package variable which is not saved, as
// those of a library.
var verbosity int

func init() { flag.IntVar(&verbosity, "v", 1, "verbosity") }

func noTime(_ []string, a slog.Attr) slog.Attr {
	if a.Key == slog.TimeKey {
		return slog.Attr{}
	}
	return a
}

type cairn_frame_appending struct{ At, I int }

// appending opens its file again and again.
func appending() {
	cairn_d := cairn_.Enter()
	i, again := 0, false
	if cairn_.Resuming(cairn_d) {
		cairn_s := cairn_.Frame[cairn_frame_appending](cairn_d)
		i, again = cairn_s.I, true
	}
	for ; again || i < 5; i++ {
		if again {
			again = false
			cairn_.Resumed()
		} else if cairn_.Due() {
			cairn_.Point(cairn_d, &cairn_frame_appending{1, i})
		}
		f, err := cairn_.OpenFile("lines", os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
		if err != nil {
			cairn_.Fatal(err)
		}
		fmt.Fprintln(f, "line", i)
		f.Close()
		if i > 2 && os.Getenv("DIE") != "" {
			os.Unsetenv("DIE")
			os.Exit(9)
		}
	}
}

// dirs makes, removes and renames.
func dirs() {
	cairn_d := cairn_.Enter()
	i, again := 0, false
	if cairn_.Resuming(cairn_d) {
		cairn_s := cairn_.Frame[cairn_frame_appending](cairn_d)
		i, again = cairn_s.I, true
	}
	for ; again || i < 4; i++ {
		if again {
			again = false
			cairn_.Resumed()
		} else if cairn_.Due() {
			cairn_.Point(cairn_d, &cairn_frame_appending{1, i})
		}
		os.WriteFile("lock", nil, 0o600)
		os.WriteFile("tmp", []byte(fmt.Sprintln("step", i)), 0o600)
		fmt.Fprintln(out, i, cairn_.Mkdir(fmt.Sprint("step", i), 0o700), cairn_.Rename("tmp", "final"), cairn_.Remove("lock"),
			cairn_.Mkdir("step0", 0o700) != nil, cairn_.Remove("none") != nil, cairn_.Rename("none", "x") != nil)
		if n := os.Getenv("DIE"); n != "" && i == 2 {
			os.Exit(9)
		}
	}
}
