package hdf5

// treeV1 visits all entries of a version 1 B-tree in order. typ is 0 for groups
// and 1 for chunks. leaf is called with an entry's key and child address.
func (f *File) treeV1(root uint64, typ, keySize int, leaf func(key []byte, child uint64) error) error {
	seen := map[uint64]bool{}
	var visit func(at uint64, level int) error
	visit = func(at uint64, level int) error {
		if seen[at] {
			return corrupt(at, "B-tree node is twice in its tree")
		}
		seen[at] = true
		c, err := f.cursor(at, uint64(8+2*f.osz))
		if err != nil {
			return err
		}
		ok := c.sig("TREE")
		t, l, n := c.u8(), c.u8(), c.u16()
		if !ok || t != typ || level >= 0 && l != level {
			return corrupt(at, "no B-tree node of type %d, level %d", typ, level)
		}
		if c, err = f.cursor(at+uint64(8+2*f.osz), uint64(n*(keySize+f.osz)+keySize)); err != nil {
			return err
		}
		for range n {
			key := c.bytes(uint64(keySize))
			child := c.addr()
			if child == undef {
				return corrupt(c.here(), "B-tree entry without address")
			}
			if l > 0 {
				err = visit(child, l-1)
			} else {
				err = leaf(key, child)
			}
			if err != nil {
				return err
			}
		}
		return nil
	}
	if root == undef {
		return nil
	}
	return visit(root, -1)
}
