package hdf5

import (
	"errors"
	"fmt"
)

// Object header message types.
const (
	msgDataspace = 0x01
	msgLinkInfo  = 0x02
	msgDatatype  = 0x03
	msgFill      = 0x05
	msgLink      = 0x06
	msgExternal  = 0x07
	msgLayout    = 0x08
	msgGroupInfo = 0x0a
	msgPipeline  = 0x0b
	msgAttribute = 0x0c
	msgContinue  = 0x10
	msgSymbols   = 0x11
	msgTreeK     = 0x13
	msgAttrInfo  = 0x15
)

const (
	maxMessage   = 1<<16 - 1
	compactLimit = 1024 // up to so many bytes of data are kept in the object header
	signature    = "\x89HDF\r\n\x1a\n"
)

// emitter appends objects to meta, whose first byte will be at file offset at.
type emitter struct {
	at    uint64
	meta  []byte
	treeK int              // a node of a chunk B-tree holds 2*treeK entries
	heaps map[*node]heapID // the mappings of virtual datasets
}

// Finish returns the superblock, which belongs at offset 0, and all other
// metadata, which belongs at offset at. The file ends where the metadata ends.
// All chunks must lie below at.
func (w *Writer) Finish(at uint64) (super, meta []byte, err error) {
	if at < 48 || at%8 != 0 {
		return nil, nil, fmt.Errorf("hdf5: metadata cannot lie at offset %d", at)
	}
	e := emitter{at: at, heaps: make(map[*node]heapID)}
	e.treeK = chooseK(w.root)
	e.virtualHeaps(w.root)
	ext := undef
	if e.treeK != defaultTreeK {
		k := []byte{0}
		k = le.AppendUint16(k, uint16(e.treeK))
		k = le.AppendUint16(k, groupK)
		k = le.AppendUint16(k, groupLeafK)
		var h header
		h.add(msgTreeK, 0, k)
		ext = e.header(&h)
	}
	root, err := e.object(w.root, "")
	if err != nil {
		return nil, nil, err
	}
	if e.at+uint64(len(e.meta)) > maxBytes {
		return nil, nil, errors.New("hdf5: file too large")
	}
	super = append(super, signature...)
	super = append(super, 2, 8, 8, 0)
	super = le.AppendUint64(super, 0)
	super = le.AppendUint64(super, ext)
	super = le.AppendUint64(super, e.here())
	super = le.AppendUint64(super, root)
	super = le.AppendUint32(super, lookup3(super))
	return super, e.meta, nil
}

func (e *emitter) here() uint64 { return e.at + uint64(len(e.meta)) }

func (e *emitter) align() {
	for len(e.meta)%8 != 0 {
		e.meta = append(e.meta, 0)
	}
}

// header collects the messages of an object header.
type header struct{ b []byte }

func (h *header) add(typ byte, flags byte, data []byte) {
	h.b = append(h.b, typ)
	h.b = le.AppendUint16(h.b, uint16(len(data)))
	h.b = append(h.b, flags)
	h.b = append(h.b, data...)
}

// header emits an object header of version 2 and returns its address.
func (e *emitter) header(h *header) uint64 {
	e.align()
	at, start := e.here(), len(e.meta)
	width, code := 1, byte(0)
	for width < 8 && len(h.b) >= 1<<(8*width) {
		width, code = width*2, code+1
	}
	e.meta = append(e.meta, "OHDR\x02"...)
	e.meta = append(e.meta, code)
	e.meta = appendUint(e.meta, uint64(len(h.b)), width)
	e.meta = append(e.meta, h.b...)
	e.meta = le.AppendUint32(e.meta, lookup3(e.meta[start:]))
	e.align()
	return at
}

// noTable is a link info or attribute info message. It says that all links or
// attributes are in the header.
var noTable = []byte("\x00\x00\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff")

// object emits n, after everything that n refers to.
func (e *emitter) object(n *node, path string) (uint64, error) {
	var h header
	if n.data != nil {
		if err := e.dataset(&h, n); err != nil {
			return 0, fmt.Errorf("hdf5: dataset %q: %w", path, err)
		}
	} else {
		if err := e.group(&h, n, path); err != nil {
			return 0, err
		}
	}
	if len(n.attrs) > 0 {
		h.add(msgAttrInfo, 0, noTable)
	}
	for i := range n.attrs {
		h.add(msgAttribute, 0, n.attrs[i].message())
	}
	return e.header(&h), nil
}

// group emits the members of n, and adds the messages that list them.
func (e *emitter) group(h *header, n *node, path string) error {
	at := make([]uint64, len(n.kids))
	for i, kid := range n.kids {
		if len(kid.name) > maxMessage-64 {
			return fmt.Errorf("hdf5: name of %d bytes in %q: %w", len(kid.name), path, ErrUnsupported)
		}
		var err error
		if at[i], err = e.object(kid, path+"/"+kid.name); err != nil {
			return err
		}
	}
	if len(n.kids) > compactMax {
		h.add(msgSymbols, 0, e.symbols(n.kids, at))
		return nil
	}
	h.add(msgLinkInfo, 0, noTable)
	h.add(msgGroupInfo, 0, []byte{0, 0})
	for i, kid := range n.kids {
		h.add(msgLink, 0, appendLink(nil, kid.name, at[i]))
	}
	return nil
}

// appendLink appends the message of a hard link. The name is in UTF-8.
func appendLink(b []byte, name string, at uint64) []byte {
	width := 0 // log2 of the bytes for the length
	if len(name) > 0xff {
		width = 1
	}
	b = append(b, 1, byte(0x10|width), 1)
	b = appendUint(b, uint64(len(name)), 1<<width)
	b = append(b, name...)
	return le.AppendUint64(b, at)
}

func (e *emitter) dataset(h *header, n *node) error {
	d := n.data
	typ := appendType(nil, d.Type)
	if len(typ) > maxMessage {
		return tooLarge(uint64(len(typ)))
	}
	h.add(msgDataspace, 0, appendSpace(nil, d.Dims))
	h.add(msgDatatype, 1, typ)

	// alloc says when space is allocated: 1 early, 2 late, 3 incrementally. In
	// each case unwritten elements have the default value, zero.
	alloc, layout := byte(2), []byte{3}
	switch {
	case d.Virtual != nil:
		id := e.heaps[n]
		alloc, layout = 3, []byte{4, 3}
		layout = le.AppendUint64(layout, id.addr)
		layout = le.AppendUint32(layout, id.index)
	case d.Chunk != nil:
		for _, c := range d.Chunks {
			if c.Addr > e.at || c.Size > e.at-c.Addr {
				return fmt.Errorf("chunk %d at %d does not lie before the metadata at %d", c.Index, c.Addr, e.at)
			}
		}
		alloc = 3
		layout = append(layout, 2, byte(len(d.Dims)+1))
		layout = le.AppendUint64(layout, e.chunkTree(d))
		for _, c := range d.Chunk {
			layout = le.AppendUint32(layout, uint32(c))
		}
		layout = le.AppendUint32(layout, uint32(d.Type.Size))
	case len(d.Data) > 0 && len(d.Data) <= compactLimit:
		alloc = 1
		layout = append(layout, 0)
		layout = le.AppendUint16(layout, uint16(len(d.Data)))
		layout = append(layout, d.Data...)
	default:
		at := undef
		if len(d.Data) > 0 {
			e.align()
			at = e.here()
			e.meta = append(e.meta, d.Data...)
		}
		layout = append(layout, 1)
		layout = le.AppendUint64(layout, at)
		layout = le.AppendUint64(layout, uint64(len(d.Data)))
	}
	h.add(msgFill, 1, []byte{3, alloc | 2<<2})
	h.add(msgLayout, 0, layout)
	if len(d.Filters) > 0 {
		p := appendPipeline(nil, d.Filters)
		if len(p) > maxMessage {
			return tooLarge(uint64(len(p)))
		}
		h.add(msgPipeline, 1, p)
	}
	return nil
}

// appendPipeline appends a filter pipeline message. All filters are mandatory.
func appendPipeline(b []byte, filters []Filter) []byte {
	b = append(b, 2, byte(len(filters)))
	for _, f := range filters {
		b = le.AppendUint16(b, f.ID)
		name := ""
		if f.ID >= 256 {
			if f.ID == FilterZstd {
				name = "Zstandard compression\x00"
			}
			b = le.AppendUint16(b, uint16(len(name)))
		}
		b = le.AppendUint16(b, 0)
		b = le.AppendUint16(b, uint16(len(f.Params)))
		b = append(b, name...)
		for _, p := range f.Params {
			b = le.AppendUint32(b, p)
		}
	}
	return b
}
