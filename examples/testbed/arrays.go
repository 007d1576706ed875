package main

import (
	"fmt"

	"github.com/cairnrun/cairn/device"
)

// needDoubles returns an error if a device has no double precision.
func needDoubles(program string, devs []*device.Device) error {
	for _, d := range devs {
		if !d.Info().Doubles {
			return fmt.Errorf("%s: %v does not compute with double precision: choose other devices with -devices", program, d)
		}
	}
	return nil
}

// put copies values into an array.
func put[T any](a *device.Array[T], values []T) error {
	data, err := a.Data()
	if err != nil {
		return err
	}
	if n := copy(data, values); n != len(data) || n != len(values) {
		return fmt.Errorf("an array of %d elements is given %d values", len(data), len(values))
	}
	return nil
}

func firstError(errs ...error) error {
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}

// splitMix is a generator of random numbers that is the same everywhere.
type splitMix uint64

func (r *splitMix) next() uint64 {
	*r += 0x9e3779b97f4a7c15
	z := uint64(*r)
	z = (z ^ z>>30) * 0xbf58476d1ce4e5b9
	z = (z ^ z>>27) * 0x94d049bb133111eb
	return z ^ z>>31
}

// signed returns a number from −1 to 1.
func (r *splitMix) signed() float64 { return float64(int64(r.next())>>11) / (1 << 52) }
