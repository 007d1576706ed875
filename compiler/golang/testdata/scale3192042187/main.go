package main

import (
	"context"
	"log"

	"github.com/cairnrun/cairn"
	"github.com/cairnrun/cairn/compiler/golang/testdata/scale3192042187/part0"
	"github.com/cairnrun/cairn/compiler/golang/testdata/scale3192042187/part1"
	"github.com/cairnrun/cairn/compiler/golang/testdata/scale3192042187/part2"
	"github.com/cairnrun/cairn/compiler/golang/testdata/scale3192042187/part3"
	"github.com/cairnrun/cairn/compiler/golang/testdata/scale3192042187/part4"
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
	}
}
