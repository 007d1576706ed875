package golang

// verdict is a program, and the expected verdict.
type verdict struct {
	name, decls, body, want string
}

// structVerdicts are programs with structs, arrays and recursion.
var structVerdicts = []verdict{
	{"communicator in a field", "func (b *box) step() { b.c.Barrier() }", `
	b := &box{c: c}
	//cairn:point
	for range 10 {
		b.step()
	}`, "safe"},
	{"a goroutine sends", "", `
	var wg sync.WaitGroup
	wg.Go(func() { mpi.Send(c, buf, right, 0) })
	//cairn:point
	for i := range 10 {
		ints[0] += i
		c.Barrier()
	}
	wg.Wait()
	mpi.Recv(c, in, left, 0)`, "not safe"},
	{"interface sends", `
type stepper interface{ step(c *mpi.Comm, buf []float64) }
type none struct{}
type sender struct{}
func (none) step(c *mpi.Comm, buf []float64) {}
func (sender) step(c *mpi.Comm, buf []float64) { if c.Rank() == 0 { mpi.Send(c, buf, 1, 0) } }`, `
	var s stepper = none{}
	if len(os.Args) > 1 {
		s = sender{}
	}
	//cairn:point
	for range 10 {
		s.step(c, buf)
	}`, "not safe"},
	{"function value in a map sends", `
var steps = map[string]func(c *mpi.Comm, buf []float64){"none": nothing, "send": send}
func nothing(c *mpi.Comm, buf []float64) {}
func send(c *mpi.Comm, buf []float64) { if c.Rank() == 0 { mpi.Send(c, buf, 1, 0) } }`, `
	//cairn:point
	for range 10 {
		steps[os.Args[1]](c, buf)
	}`, "not safe"},
	{"callback of a library sends", "", `
	var once sync.Once
	//cairn:point
	for range 10 {
		once.Do(func() { if rank == 0 { mpi.Send(c, buf, 1, 0) } })
	}`, "not safe"},
	{"deferred receive", "func step(c *mpi.Comm, buf []float64, right, left int) { defer mpi.Recv(c, buf, left, 0); mpi.Send(c, buf, right, 0) }", `
	//cairn:point
	for range 10 {
		step(c, buf, right, left)
	}`, "safe"},
	{"error that is always there", "func try() error { return errors.New(os.Args[1]) }", `
	//cairn:point
	for range 10 {
		if err := try(); err != nil {
			continue
		}
		if rank == 0 {
			mpi.Send(c, buf, 1, 0)
		}
	}`, "safe"},
	{"error that is made up for", "func try() error { if len(os.Args) > 3 { return errors.New(os.Args[1]) }; return nil }", `
	//cairn:point
	for range 10 {
		if err := try(); err != nil {
			if rank == 0 {
				mpi.Send(c, buf, 1, 0)
			}
		}
	}`, "not safe"},
	{"error of another call", "func try() error { return errors.New(os.Args[1]) }", `
	err = try()
	if err != nil {
		ints[0]++
	}
	_, err = mpi.Recv(c, buf, mpi.AnySource, 7)
	if err != nil {
		return
	}
	//cairn:point
	for range 10 {
		c.Barrier()
	}`, "not safe"},
	{"error that is not the end", "func try() error { if len(os.Args) > 3 { return errors.New(os.Args[1]) }; return nil }", `
	//cairn:point
	for range 10 {
		if err := try(); err != nil {
			continue
		}
		if rank == 0 {
			mpi.Send(c, buf, 1, 0)
		}
	}`, "not safe"},
	{"communicator in a field", "type cell struct { c *mpi.Comm; to, from int }", `
	half, _ := c.Split(rank%2, rank)
	s := &cell{c: half, to: 0}
	s.to, s.from = (s.c.Rank()+1)%s.c.Size(), (s.c.Rank()+s.c.Size()-1)%s.c.Size()
	//cairn:point
	for range 10 {
		mpi.Sendrecv(s.c, buf, s.to, 0, in, s.from, 0)
	}`, "safe"},
	{"field of another object", "type cell struct { to, from int }", `
	s := &cell{right, left}
	t := &cell{left, left}
	for i := range size {
		if i == rank {
			s = t
		}
	}
	//cairn:point
	for range 10 {
		mpi.Send(c, buf, s.to, 0)
		mpi.Recv(c, in, s.from, 0)
	}`, "not safe"},
	{"field written through another pointer", "type cell struct { to, from int }\nfunc spoil(s *cell, n int) { s.to = n }", `
	s := &cell{right, left}
	t := s
	spoil(t, left)
	//cairn:point
	for range 10 {
		mpi.Send(c, buf, s.to, 0)
		mpi.Recv(c, in, s.from, 0)
	}`, "not safe"},
	{"copy of a struct", "type cell struct { to, from int }", `
	s := cell{right, left}
	t := s
	t.to = left
	//cairn:point
	for range 10 {
		mpi.Send(c, buf, s.to, 0)
		mpi.Recv(c, in, s.from, 0)
	}`, "safe"},
	{"address of a struct", "type cell struct { to, from int }", `
	s := cell{right, left}
	p := &s
	p.to = left
	//cairn:point
	for range 10 {
		mpi.Send(c, buf, s.to, 0)
		mpi.Recv(c, in, s.from, 0)
	}`, "not safe"},
	{"address of a field", "type cell struct { to, from int }", `
	s := &cell{right, left}
	p := &s.to
	*p = left
	//cairn:point
	for range 10 {
		mpi.Send(c, buf, s.to, 0)
		mpi.Recv(c, in, s.from, 0)
	}`, "not safe"},
	{"struct that a library writes", "type cell struct { To, From int }", `
	s := &cell{right, left}
	fmt.Sscan(os.Args[1], s)
	//cairn:point
	for range 10 {
		mpi.Send(c, buf, s.To, 0)
		mpi.Recv(c, in, s.From, 0)
	}`, "not safe"},
	{"struct in a slice", "type cell struct { to, from int }", `
	list := []cell{{right, left}, {left, right}}
	list[0], list[1] = list[1], list[0]
	s := list[0]
	//cairn:point
	for range 10 {
		mpi.Send(c, buf, s.to, 0)
		mpi.Recv(c, in, right, 0)
		_ = s.from
	}`, "not safe"},
	{"pointers in a slice", "type cell struct { c *mpi.Comm; to, from int }\nfunc (s *cell) swap(buf, in []float64) { if s.c == nil { return }; mpi.Sendrecv(s.c, buf, s.to, 0, in, s.from, 0) }", `
	list := []*cell{{c, right, left}, {nil, 0, 0}}
	for range len(os.Args) {
		list = append(list, &cell{c, right, left})
	}
	//cairn:point
	for i := range 10 {
		list[i%len(list)].swap(buf, in)
	}`, "safe"},
	{"pointers in a slice, one wrong", "type cell struct { c *mpi.Comm; to, from int }\nfunc (s *cell) swap(buf, in []float64) { if s.c == nil { return }; mpi.Send(s.c, buf, s.to, 0); mpi.Recv(s.c, in, s.from, 0) }", `
	list := []*cell{{c, right, left}, {nil, 0, 0}}
	for range len(os.Args) {
		list = append(list, &cell{c, right, right})
	}
	//cairn:point
	for i := range 10 {
		list[i%len(list)].swap(buf, in)
	}`, "not safe"},
	{"arrays", "func place(rank int) [2]int { return [2]int{rank % 2, rank / 2} }", `
	me := place(rank)
	to := me
	to[0] = 1 - to[0]
	there := to[0] + 2*to[1]
	//cairn:point
	for range 10 {
		if there < size {
			mpi.Sendrecv(c, buf, there, 0, in, there, 0)
		}
		me[0] = 7
	}`, "safe"},
	{"array that is shared", "func spoil(a []int) { a[0] = 0 }", `
	to := [2]int{right, left}
	spoil(to[:])
	//cairn:point
	for range 10 {
		mpi.Send(c, buf, to[0], 0)
		mpi.Recv(c, in, to[1], 0)
	}`, "not safe"},
	{"recursion", "func down(c *mpi.Comm, n int) { if n > 0 { down(c, n-1) }; c.Barrier() }", `
	//cairn:point
	for range 10 {
		down(c, len(os.Args))
	}`, "safe"},
	{"recursion that leaves something", "func down(c *mpi.Comm, buf []float64, n int) { if n > 0 { down(c, buf, n-1) } else if c.Rank() == 0 { mpi.Send(c, buf, 1, 0) } }", `
	//cairn:point
	for range 10 {
		down(c, buf, len(os.Args))
	}`, "not safe"},
	{"goroutine that writes a field", "type cell struct { to, from int }\nfunc spoil(s *cell, n int) { s.to = n }", `
	s := &cell{right, left}
	var wg sync.WaitGroup
	wg.Add(1)
	go func() { defer wg.Done(); spoil(s, left) }()
	wg.Wait()
	//cairn:point
	for range 10 {
		mpi.Send(c, buf, s.to, 0)
		mpi.Recv(c, in, s.from, 0)
	}`, "not safe"},
	{"silent branches", "func find(list []int, n int) int { for i, v := range list { if v == n { return i } }; return -1 }", `
	//cairn:point
	for i := range 10 {
		c.Barrier()
		if i%3 == rank {
			continue
		}
		if find(ints, rank) > 0 {
			ints[0]++
		}
	}`, "safe"},
}
