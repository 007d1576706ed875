package graph

import (
	"errors"
	"fmt"
	"math"
	"strings"
	"time"
	"unsafe"
)

// Special values of a stored zone's offset.
const (
	zoneNamed = math.MinInt32     // the name is UTC, Local, or a name of the time zone database
	zoneNil   = math.MinInt32 + 1 // a nil *time.Location
)

// zone is a stored time zone.
type zone struct {
	name   string
	offset int32
}

type zoneCache struct {
	m    map[*time.Location]*zone
	last *time.Location
	z    *zone
}

// The program may assign other locations to these variables of package time.
var utc, local = time.UTC, time.Local

var zoneUTC, zoneLocal, zoneNone = &zone{"UTC", zoneNamed}, &zone{"Local", zoneNamed}, &zone{"", zoneNil}

// of returns the zone of the time.Time or *time.Location at ptr.
func (c *zoneCache) of(p *plan, ptr unsafe.Pointer) (*zone, error) {
	var l *time.Location
	if p.kind == kTime {
		l = (*time.Time)(ptr).Location()
	} else if l = *(**time.Location)(ptr); l == nil {
		return zoneNone, nil
	}
	switch l {
	case utc:
		return zoneUTC, nil
	case local:
		return zoneLocal, nil
	case c.last:
		return c.z, nil
	}
	z := c.m[l]
	if z == nil {
		var err error
		if z, err = zoneOf(l); err != nil {
			return nil, err
		}
		if c.m == nil || len(c.m) > 1000 {
			c.m = make(map[*time.Location]*zone)
		}
		c.m[l] = z
	}
	c.last, c.z = l, z
	return z, nil
}

func zoneOf(l *time.Location) (*zone, error) {
	// A zone made by time.FixedZone always has the same offset, under its
	// own name.
	t := time.Unix(0, 0).In(l)
	name, off := t.Zone()
	start, end := t.ZoneBounds()
	fixed := name == l.String() && start.IsZero() && end.IsZero()
	if fixed {
		if off != int(int32(off)) || int32(off) <= zoneNil {
			return nil, errors.New("the offset of its time zone is out of range")
		}
		return &zone{name, int32(off)}, nil
	}
	if _, err := time.LoadLocation(l.String()); err != nil || l.String() == "" {
		return nil, fmt.Errorf("its time zone %q is not in the time zone database", l.String())
	}
	return &zone{l.String(), zoneNamed}, nil
}

func (e *encoder) time(o *op, p *plan, src unsafe.Pointer, dst []byte) error {
	z, err := e.zones.of(p, src)
	if err != nil {
		return err
	}
	e.text(o, unsafe.Pointer(unsafe.StringData(z.name)), len(z.name), p, dst)
	native.PutUint32(dst[o.at[atOffset]:], uint32(z.offset))
	if p.kind == kTime {
		t := (*time.Time)(src)
		put(o, dst, atSec, uint64(t.Unix()))
		native.PutUint32(dst[o.at[atNsec]:], uint32(t.Nanosecond()))
	}
	return nil
}

// locations maps stored zones to locations, so that equal zones share a
// location.
type locations map[zone]*time.Location

func (m locations) get(z zone) (*time.Location, error) {
	switch z {
	case *zoneUTC:
		return utc, nil
	case *zoneLocal:
		return local, nil
	case *zoneNone:
		return nil, nil
	}
	l := m[z]
	if l == nil {
		z.name = strings.Clone(z.name)
		if z.offset == zoneNamed {
			var err error
			if l, err = time.LoadLocation(z.name); err != nil {
				return nil, fmt.Errorf("time zone %.100q: %w", z.name, err)
			}
		} else {
			l = time.FixedZone(z.name, int(z.offset))
		}
		m[z] = l
	}
	return l, nil
}
