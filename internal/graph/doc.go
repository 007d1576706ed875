// Package graph turns Go values into flat, typed pools and back.
//
// The state of a program is a set of named roots and everything that can be
// reached from them. Collect finds it all as regions, which are contiguous
// pieces of memory holding n elements of one Go type, and sorts the regions
// into pools, one for each element type and root:
//
//	roots            memory (regions)              pools
//
//	grid ──▶ ┌rows──────┐                          grid  [][]float64  1 × {obj,off,len,cap}
//	         │ ptr len… │──▶ ┌──┬──┐               grid  []float64    2 × {obj,off,len,cap}
//	         └──────────┘    │ 0│ 1│──▶ ┌────────┐ grid  float64      [2,3], live memory
//	                         └┬─┴──┘    │1. 2. 3.│
//	                          └──────▶  ┌────────┐
//	                                    │4. 5. 6.│
//	p ─────▶ (inside row 1) ───────────────▶┘      p     *float64     1 × {obj,off}
//
// Overlapping pieces are merged by one sort and sweep over addresses, so slices
// of one array stay slices of one array, and interior pointers stay inside.
// Small objects that overlap nothing, the most in many graphs, need no sorting:
// see collect_cells.go. Memory without pointers is never walked, copied or
// encoded: its pool is a list of views of live memory and a form (an hdf5.Type)
// that describes its layout. Memory with pointers is encoded into a new buffer
// in which references are numbers:
//
//	pointer    {obj, off}            obj: region number + 1, 0 is nil
//	string     {obj, off, len}       off: element index × slots + slot
//	slice      {obj, off, len, cap}  obj = 2^64-1: not nil, but no memory
//	map        {obj}                 a region of struct{Key K; Val V}
//	interface  {type, obj, off}      type: index + 1 into the table of dynamic
//	                                 types
//	func       {obj}                 a region of one function, see
//	                                 SaveWholeProgram
//	chan       {obj, size, closed}   a region of struct{Val T}, see
//	                                 SaveWholeProgram
//
// A slot is the position of a leaf (a number, a pointer…) in a type. Offsets in
// slots are the same on machines with other sizes and paddings.
//
// An interface that holds a pointer or a map refers directly to what that
// refers to. Any other dynamic value has a region of its own, a box.
//
// Some types have a stand-in, a value that is saved in their place (time.Time,
// sync.Map, *os.File, types with a CairnState method…). Some cannot be saved
// unless they are zero (channels, functions, locked mutexes, handles of the
// operating system…): the error has the path that leads to them. In programs
// that are saved as a whole, functions and channels can be saved, too: see
// SaveWholeProgram. Package variables without a name stay themselves then, as
// the errors in binary_stdvars.go always do.
//
// Restoring has two phases. Prepare checks the saved image, which may be
// damaged or hostile, and allocates all memory with its type. The caller fills
// the targets from its files, for pointer-free pools directly into the final
// memory. Finish converts, sets pointers, and rebuilds maps and stand-ins.
//
// # Files
//
// A file's name begins with its concept.
//
//	type_*     what is known about a Go type, and portable descriptions of it
//	collect*   Collector: finds all regions, merges those that overlap, and
//	           keeps the numbers of regions from one image to the next
//	image*     Collector: makes the image; Copies: of roots copied one after the
//	           other
//	restore_*  Builder: restores an image
//	standin_*  what is saved in place of a value (see above), in both directions
//	binary_*   types, functions and variables of the running program, by name
package graph
