// Testbed runs a device program to its end, without checkpoints.
package main

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"os"

	"github.com/cairnrun/cairn/device"
)

// program is one of the testbed, without what it protects.
type program interface {
	setup(size string, devs []*device.Device) error
	begin(devs []*device.Device) error
	spread(devs []*device.Device) error
	steps() int
	step(ctx context.Context, i int) error
	result() ([]float64, error)
	reference() []float64
	tolerance() float64
}

var programs = map[string]func() program{}

func main() {
	size := "tiny"
	if len(os.Args) > 2 {
		size = os.Args[2]
	}
	if err := run(os.Args[1], size); err != nil {
		fmt.Fprintln(os.Stderr, "testbed:", err)
		os.Exit(1)
	}
}

// run runs a program and prints a digest of its result.
func run(name, size string) error {
	ctx := context.Background()
	devs, err := device.Devices()
	if err != nil {
		return err
	}
	p := programs[name]()
	if err := p.setup(size, devs); err != nil {
		return err
	}
	if err := p.begin(devs); err != nil {
		return err
	}
	if err := p.spread(devs); err != nil {
		return err
	}
	fmt.Println(name, "on", len(devs), "devices")
	for i := range p.steps() {
		if err := p.step(ctx, i); err != nil {
			return fmt.Errorf("step %d: %w", i, err)
		}
	}
	values, err := p.result()
	if err != nil {
		return err
	}
	fmt.Fprintln(os.Stderr, "ended on", devs)
	for _, d := range devs {
		fmt.Fprintln(os.Stderr, "launches:", d.Launches())
	}
	digest := sha256.New()
	if err := binary.Write(digest, binary.LittleEndian, values); err != nil {
		return err
	}
	fmt.Printf("%s: %d steps, %d numbers, %x\n", name, p.steps(), len(values), digest.Sum(nil)[:8])
	return nil
}
