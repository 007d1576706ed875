package graph

// table is a hash table from (address, type) to a number. It keeps its memory
// when it is cleared. It holds no pointers that the garbage collector would
// have to scan.
type table struct {
	slots []tableSlot
	n     int
	shift uint
}

type tableSlot struct {
	addr uintptr
	id   uint32 // plan id + 1; 0: empty
	val  uint64
}

func (t *table) clear() {
	if t.n == 0 {
		return
	}
	clear(t.slots)
	t.n = 0
}

// at returns a pointer to the value of a key, and whether the key is new. The
// pointer is valid until the next call.
func (t *table) at(addr uintptr, p *plan) (val *uint64, fresh bool) { return t.atID(addr, p.id+1) }

// atID does the work of at. id is the plan's id plus 1.
func (t *table) atID(addr uintptr, id uint32) (val *uint64, fresh bool) {
	if t.n >= len(t.slots)-len(t.slots)/4 {
		t.grow()
	}
	s := t.find(addr, id)
	if s.id == 0 {
		s.addr, s.id, s.val = addr, id, 0
		t.n++
		return &s.val, true
	}
	return &s.val, false
}

// has reports whether a key is there.
func (t *table) has(addr uintptr, p *plan) bool {
	return t.n > 0 && t.find(addr, p.id+1).id != 0
}

// drop frees the memory.
func (t *table) drop() { *t = table{} }

// lookup returns the slot of a key, or nil. id is the plan's id plus 1.
func (t *table) lookup(addr uintptr, id uint32) *tableSlot {
	if t.n == 0 {
		return nil
	}
	if s := t.find(addr, id); s.id != 0 {
		return s
	}
	return nil
}

// get returns the value of a key that must be there.
func (t *table) get(addr uintptr, p *plan) uint64 { return t.find(addr, p.id+1).val }

func (t *table) find(addr uintptr, id uint32) *tableSlot {
	h := (uint64(addr) ^ uint64(id)<<40) * 0x9e3779b97f4a7c15 >> t.shift
	mask := uint64(len(t.slots) - 1)
	for {
		s := &t.slots[h]
		if s.id == 0 || s.addr == addr && s.id == id {
			return s
		}
		h = (h + 1) & mask
	}
}

func (t *table) grow() {
	old := t.slots
	n := max(64, 2*len(old))
	t.slots = make([]tableSlot, n)
	t.shift = 64
	for ; n > 1; n /= 2 {
		t.shift--
	}
	for _, s := range old {
		if s.id != 0 {
			*t.find(s.addr, s.id) = s
		}
	}
}
