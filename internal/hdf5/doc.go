// Package hdf5 writes and reads HDF5 files, without the HDF5 library.
//
// # What is written
//
// A Writer builds metadata only and does no I/O: the caller puts the bytes of
// chunks into the file himself, wherever and however he likes, and tells the
// Writer where. Finish then gives the superblock, for offset 0, and all the
// rest, for an offset behind the chunks:
//
//	0       superblock, version 2, 48 bytes ────────────────┐
//	        (free for alignment)                            │
//	4096    chunk │ chunk │ chunk │ ...   placed by the     │ root group,
//	        caller, in any order, with any gaps             │ extension
//	at      metadata                                        │
//	        ├ global heaps: mappings of virtual datasets    │
//	        ├ superblock extension: B-tree width      ◄─────┤
//	        ├ for each dataset, after what it needs:        │
//	        │   contiguous bytes, or                        │
//	        │   version 1 B-tree: key │ chunk │ key │ ...   │
//	        │   object header                               │
//	        ├ for each group, after what it contains:       │
//	        │   if large: names, symbol tables, B-tree      │
//	        │   object header                               │
//	        └ object header of the root group         ◄─────┘
//	end of file
//
//	object header, version 2: "OHDR" messages checksum
//	  group:    link info, group info, a link for each member; or (with more than
//	            64 members) a symbol table, which finds a member without a search
//	            through all; attributes
//	  dataset:  dataspace, datatype, fill value (zero), layout, filters; attributes
//
// These are structures of HDF5 1.8, but for virtual datasets, which are of
// 1.10; the tests use the tools of 1.10. Nothing depends on time or chance: the
// same calls give the same bytes.
//
// Chunk B-tree nodes have one size throughout a file, full or not. The Writer
// picks the one that makes the metadata smallest, and says so in the superblock
// extension unless it is the default.
//
// # What is read
//
// Open reads what Writer writes and what the HDF5 library writes, in its old
// style and in that of 1.10: superblocks 0 to 3, also behind a user block;
// object headers 1 and 2; groups as symbol tables, link messages or fractal
// heaps; compact, contiguous and chunked layouts with every kind of chunk
// index; committed datatypes; soft links. Filters are deflate, shuffle,
// fletcher32 and zstd.
//
// It does not read: layouts of versions 1 and 2 (before HDF5 1.6.3), shared
// object header messages other than committed datatypes, fractal heaps with
// filters, external links and external storage, virtual datasets whose parts
// move or are not boxes, and datatypes that Type has no words for. All that is
// ErrUnsupported.
//
// The bytes may be hostile. Whatever they are, reading ends, does not panic,
// and allocates no more than the file's size can justify.
package hdf5
