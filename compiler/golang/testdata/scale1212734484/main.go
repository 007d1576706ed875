package main

import (
	"context"
	"log"

	"github.com/cairnrun/cairn"
	"github.com/cairnrun/cairn/compiler/golang/testdata/scale1212734484/part0"
	"github.com/cairnrun/cairn/compiler/golang/testdata/scale1212734484/part1"
	"github.com/cairnrun/cairn/compiler/golang/testdata/scale1212734484/part2"
	"github.com/cairnrun/cairn/compiler/golang/testdata/scale1212734484/part3"
	"github.com/cairnrun/cairn/compiler/golang/testdata/scale1212734484/part4"
	"github.com/cairnrun/cairn/compiler/golang/testdata/scale1212734484/part5"
	"github.com/cairnrun/cairn/compiler/golang/testdata/scale1212734484/part6"
	"github.com/cairnrun/cairn/compiler/golang/testdata/scale1212734484/part7"
	"github.com/cairnrun/cairn/compiler/golang/testdata/scale1212734484/part8"
	"github.com/cairnrun/cairn/compiler/golang/testdata/scale1212734484/part9"
	"github.com/cairnrun/cairn/compiler/golang/testdata/scale1212734484/part10"
)

func main() {
	run, err := cairn.Open(context.Background(), cairn.Options{})
	if err != nil {
		log.Fatal(err)
	}
	c := run.World()
	m0 := part0.New(c, 100)
	m1 := part1.New(c, 101)
	m2 := part2.New(c, 102)
	m3 := part3.New(c, 103)
	m4 := part4.New(c, 104)
	m5 := part5.New(c, 105)
	m6 := part6.New(c, 106)
	m7 := part7.New(c, 107)
	m8 := part8.New(c, 108)
	m9 := part9.New(c, 109)
	m10 := part10.New(c, 110)
	for step := range 1000 {
		if err := run.Point(context.Background()); err != nil {
			log.Fatal(err)
		}
		if err := m0.Step(step); err != nil {
			log.Fatal(err)
		}
		if err := m1.Step(step); err != nil {
			log.Fatal(err)
		}
		if err := m2.Step(step); err != nil {
			log.Fatal(err)
		}
		if err := m3.Step(step); err != nil {
			log.Fatal(err)
		}
		if err := m4.Step(step); err != nil {
			log.Fatal(err)
		}
		if err := m5.Step(step); err != nil {
			log.Fatal(err)
		}
		if err := m6.Step(step); err != nil {
			log.Fatal(err)
		}
		if err := m7.Step(step); err != nil {
			log.Fatal(err)
		}
		if err := m8.Step(step); err != nil {
			log.Fatal(err)
		}
		if err := m9.Step(step); err != nil {
			log.Fatal(err)
		}
		if err := m10.Step(step); err != nil {
			log.Fatal(err)
		}
	}
}
