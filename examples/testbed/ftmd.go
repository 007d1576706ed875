package main

import "github.com/cairnrun/cairn/device"

// FT on several devices. The waves are one array, and each device has some of
// its planes. With other devices, only this division changes. Each device has
// arrays of its own for space and for exchanges, which are never saved.

// slab is what one device has.
type slab struct {
	dev    *device.Device
	y0, y1 int // planes of the waves
	z0, z1 int // planes of space

	waves *device.Array[complex128] // [y1-y0][nz][nx], a part of all
	space *device.Array[complex128] // [z1-z0][ny][nx]
	out   *device.Array[complex128] // [nz][y1-y0][nx]: waves transformed in z, which the others read; nil with one device
	where *device.Array[int32]      // planes z0…z1
	picks *device.Array[complex128] // …
}

// cut divides the planes among the devices.
func (f *ft) cut(devs []*device.Device) error {
	for _, s := range f.slabs {
		s.space.Free()
		if s.out != nil {
			s.out.Free()
		}
	}
	devs = devs[:min(len(devs), f.ny, f.nz)]
	f.slabs = nil
	for i, d := range devs {
		s := &slab{dev: d,
			y0: i * f.ny / len(devs), y1: (i + 1) * f.ny / len(devs),
			z0: i * f.nz / len(devs), z1: (i + 1) * f.nz / len(devs)}
		s.waves = f.waves.Rows(s.y0, s.y1)
		s.waves.Prefer(d)
		s.where, s.picks = f.where.Rows(s.z0, s.z1), f.picks.Rows(s.z0, s.z1)
		s.space = device.New[complex128](s.z1-s.z0, f.ny, f.nx)
		if len(devs) > 1 {
			s.out = device.New[complex128](f.nz, s.y1-s.y0, f.nx)
		}
		f.slabs = append(f.slabs, s)
	}
	return nil
}

// toSpace transforms the waves into space.
func (f *ft) toSpace() error {
	for _, s := range f.slabs {
		ys, out := s.y1-s.y0, s.out
		if out == nil {
			out = s.space
		}
		err := f.transform(s.dev, s.waves, out, f.nz, ys*f.nx, f.nx,
			lines{f.nz * f.nx, 1, f.nx}, lines{f.nx, 1, ys * f.nx}, true)
		if err != nil {
			return err
		}
	}
	for _, s := range f.slabs {
		zs := s.z1 - s.z0
		for i, o := range f.slabs {
			if o.out == nil {
				break
			}
			if err := f.place(s, i == 0, o.out.Rows(s.z0, s.z1), s.space, zs, o.y1-o.y0, f.ny, o.y0); err != nil {
				return err
			}
		}
		err := f.transform(s.dev, nil, s.space, f.ny, zs*f.nx, f.nx, lines{}, lines{f.ny * f.nx, 1, f.nx}, true)
		if err != nil {
			return err
		}
		if err := f.transform(s.dev, nil, s.space, f.nx, zs*f.ny, 1, lines{}, lines{f.nx, 0, 1}, true); err != nil {
			return err
		}
	}
	return nil
}

// toWaves transforms NPB's initial values into the waves.
func (f *ft) toWaves() error {
	outs := make([]*device.Array[complex128], len(f.slabs)) // [ny][z1-z0][nx]
	for i, s := range f.slabs {
		zs := s.z1 - s.z0
		err := s.dev.Launch(ftInitial, device.Size{zs * f.ny}, device.Out(s.space), int64(s.z0*f.ny), int32(f.nx), int32(zs*f.ny))
		if err != nil {
			return err
		}
		if err := f.transform(s.dev, nil, s.space, f.nx, zs*f.ny, 1, lines{}, lines{f.nx, 0, 1}, false); err != nil {
			return err
		}
		outs[i] = s.waves
		if len(f.slabs) > 1 {
			outs[i] = device.New[complex128](f.ny, zs, f.nx)
			defer outs[i].Free()
		}
		err = f.transform(s.dev, s.space, outs[i], f.ny, zs*f.nx, f.nx,
			lines{f.ny * f.nx, 1, f.nx}, lines{f.nx, 1, zs * f.nx}, false)
		if err != nil {
			return err
		}
	}
	for _, s := range f.slabs {
		ys := s.y1 - s.y0
		for i, o := range f.slabs {
			if outs[i] == s.waves {
				break
			}
			if err := f.place(s, i == 0, outs[i].Rows(s.y0, s.y1), s.waves, ys, o.z1-o.z0, f.nz, o.z0); err != nil {
				return err
			}
		}
		err := f.transform(s.dev, nil, s.waves, f.nz, ys*f.nx, f.nx, lines{}, lines{f.nz * f.nx, 1, f.nx}, false)
		if err != nil {
			return err
		}
	}
	return nil
}

// place copies the nb rows of each in[a] into out[a], which has all rows, from
// row from on. The first copy says that nothing in out matters.
func (f *ft) place(s *slab, first bool, in, out *device.Array[complex128], na, nb, all, from int) error {
	to := device.InOut(out)
	if first {
		to = device.Out(out)
	}
	return s.dev.Launch(ftPlace, device.Size{f.nx, nb, na}, device.In(in), to,
		int32(f.nx), int32(na), int32(nb), int32(all), int32(from))
}
