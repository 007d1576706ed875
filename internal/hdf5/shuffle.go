package hdf5

// shuffle writes the first bytes of all elements of src to dst, then the second
// bytes, and so on. A rest at the end of src stays at the end.
func shuffle(dst, src []byte, size int) {
	n := len(src) / size
	switch size {
	case 4:
		d0, d1, d2, d3 := dst[:n], dst[n:2*n], dst[2*n:3*n], dst[3*n:4*n]
		for i := range n {
			v := le.Uint32(src[4*i:])
			d0[i], d1[i], d2[i], d3[i] = byte(v), byte(v>>8), byte(v>>16), byte(v>>24)
		}
	case 8:
		d0, d1, d2, d3 := dst[:n], dst[n:2*n], dst[2*n:3*n], dst[3*n:4*n]
		d4, d5, d6, d7 := dst[4*n:5*n], dst[5*n:6*n], dst[6*n:7*n], dst[7*n:8*n]
		for i := range n {
			v := le.Uint64(src[8*i:])
			d0[i], d1[i], d2[i], d3[i] = byte(v), byte(v>>8), byte(v>>16), byte(v>>24)
			d4[i], d5[i], d6[i], d7[i] = byte(v>>32), byte(v>>40), byte(v>>48), byte(v>>56)
		}
	default:
		for j := range size {
			d := dst[j*n : (j+1)*n]
			for i := range d {
				d[i] = src[i*size+j]
			}
		}
	}
	copy(dst[n*size:], src[n*size:])
}

// unshuffle undoes shuffle.
func unshuffle(dst, src []byte, size int) {
	n := len(src) / size
	switch size {
	case 4:
		s0, s1, s2, s3 := src[:n], src[n:2*n], src[2*n:3*n], src[3*n:4*n]
		for i := range n {
			le.PutUint32(dst[4*i:], uint32(s0[i])|uint32(s1[i])<<8|uint32(s2[i])<<16|uint32(s3[i])<<24)
		}
	case 8:
		s0, s1, s2, s3 := src[:n], src[n:2*n], src[2*n:3*n], src[3*n:4*n]
		s4, s5, s6, s7 := src[4*n:5*n], src[5*n:6*n], src[6*n:7*n], src[7*n:8*n]
		for i := range n {
			le.PutUint64(dst[8*i:], uint64(s0[i])|uint64(s1[i])<<8|uint64(s2[i])<<16|uint64(s3[i])<<24|
				uint64(s4[i])<<32|uint64(s5[i])<<40|uint64(s6[i])<<48|uint64(s7[i])<<56)
		}
	default:
		for j := range size {
			s := src[j*n : (j+1)*n]
			for i, v := range s {
				dst[i*size+j] = v
			}
		}
	}
	copy(dst[n*size:], src[n*size:])
}
