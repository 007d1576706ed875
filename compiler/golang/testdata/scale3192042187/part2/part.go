package part2

import (
	"fmt"
	"math"

	"github.com/cairnrun/cairn/mpi"
)

type worker interface{ work(step int) error }

// Model is a part of the simulation.
type Model struct {
	c       *mpi.Comm
	n       int
	workers []worker
	sum     map[string]float64
}

func New(c *mpi.Comm, n int) *Model {
	m := &Model{c: c, n: n, sum: make(map[string]float64)}
	m.workers = append(m.workers, newField0(c, n))
	m.workers = append(m.workers, newField1(c, n))
	m.workers = append(m.workers, newField2(c, n))
	m.workers = append(m.workers, newField3(c, n))
	m.workers = append(m.workers, newField4(c, n))
	m.workers = append(m.workers, newField5(c, n))
	m.workers = append(m.workers, newField6(c, n))
	m.workers = append(m.workers, newField7(c, n))
	return m
}

func (m *Model) Step(step int) error {
	for _, w := range m.workers {
		if err := w.work(step); err != nil {
			return fmt.Errorf("step %d: %w", step, err)
		}
	}
	return nil
}

// field0 is a field on a line of cells, divided among the ranks.
type field0 struct {
	c           *mpi.Comm
	n, lo, hi   int
	left, right int
	old, now    []float64
	edge        []float64
	most        float64
	count       int
}

func newField0(c *mpi.Comm, n int) *field0 {
	f := &field0{c: c, n: n, lo: n * c.Rank() / c.Size(), hi: n * (c.Rank() + 1) / c.Size()}
	f.left, f.right = (c.Rank()+c.Size()-1)%c.Size(), (c.Rank()+1)%c.Size()
	f.old, f.now = make([]float64, f.hi-f.lo+2), make([]float64, f.hi-f.lo+2)
	f.edge = make([]float64, 1)
	for i := range f.old {
		f.old[i] = math.Sin(float64(f.lo+i) * 0.607)
	}
	return f
}

func (f *field0) work(step int) error {
	if err := f.exchange(); err != nil {
		return err
	}
	f.smooth(func(a, b, c float64) float64 { return (a + 0.607*b + c) / (2 + 0.607) })
	f.old, f.now = f.now, f.old
	if step%10 == 0 {
		return f.measure()
	}
	return nil
}

func (f *field0) exchange() error {
	if _, err := mpi.Sendrecv(f.c, f.old[1:2], f.left, 3, f.edge, f.right, 3); err != nil {
		return err
	}
	f.old[len(f.old)-1] = f.edge[0]
	if _, err := mpi.Sendrecv(f.c, f.old[len(f.old)-2:][:1], f.right, 3, f.edge, f.left, 3); err != nil {
		return err
	}
	f.old[0] = f.edge[0]
	return nil
}

func (f *field0) smooth(mean func(a, b, c float64) float64) {
	for i := 1; i < len(f.old)-1; i++ {
		f.now[i] = mean(f.old[i-1], f.old[i], f.old[i+1])
		switch {
		case f.now[i] > f.most:
			f.most = f.now[i]
		case f.now[i] < -f.most:
			f.count++
		}
	}
}

// done0 counts measurements, of which there are at most most0.
var done0, most0 int

func (f *field0) measure() error {
	if done0++; done0 > most0 && most0 > 0 {
		return nil
	}
	sum := []float64{0, f.most}
	for _, v := range f.now {
		sum[0] += v * v
	}
	return mpi.Allreduce(f.c, sum, sum, mpi.Sum)
}

// field1 is a field on a line of cells, divided among the ranks.
type field1 struct {
	c           *mpi.Comm
	n, lo, hi   int
	left, right int
	old, now    []float64
	edge        []float64
	most        float64
	count       int
}

func newField1(c *mpi.Comm, n int) *field1 {
	f := &field1{c: c, n: n, lo: n * c.Rank() / c.Size(), hi: n * (c.Rank() + 1) / c.Size()}
	f.left, f.right = (c.Rank()+c.Size()-1)%c.Size(), (c.Rank()+1)%c.Size()
	f.old, f.now = make([]float64, f.hi-f.lo+2), make([]float64, f.hi-f.lo+2)
	f.edge = make([]float64, 1)
	for i := range f.old {
		f.old[i] = math.Sin(float64(f.lo+i) * 0.079)
	}
	return f
}

func (f *field1) work(step int) error {
	if err := f.exchange(); err != nil {
		return err
	}
	f.smooth(func(a, b, c float64) float64 { return (a + 0.079*b + c) / (2 + 0.079) })
	f.old, f.now = f.now, f.old
	if step%10 == 0 {
		return f.measure()
	}
	return nil
}

func (f *field1) exchange() error {
	if _, err := mpi.Sendrecv(f.c, f.old[1:2], f.left, 5, f.edge, f.right, 5); err != nil {
		return err
	}
	f.old[len(f.old)-1] = f.edge[0]
	if _, err := mpi.Sendrecv(f.c, f.old[len(f.old)-2:][:1], f.right, 5, f.edge, f.left, 5); err != nil {
		return err
	}
	f.old[0] = f.edge[0]
	return nil
}

func (f *field1) smooth(mean func(a, b, c float64) float64) {
	for i := 1; i < len(f.old)-1; i++ {
		f.now[i] = mean(f.old[i-1], f.old[i], f.old[i+1])
		switch {
		case f.now[i] > f.most:
			f.most = f.now[i]
		case f.now[i] < -f.most:
			f.count++
		}
	}
}

// done1 counts measurements, of which there are at most most1.
var done1, most1 int

func (f *field1) measure() error {
	if done1++; done1 > most1 && most1 > 0 {
		return nil
	}
	sum := []float64{0, f.most}
	for _, v := range f.now {
		sum[0] += v * v
	}
	return mpi.Allreduce(f.c, sum, sum, mpi.Sum)
}

// field2 is a field on a line of cells, divided among the ranks.
type field2 struct {
	c           *mpi.Comm
	n, lo, hi   int
	left, right int
	old, now    []float64
	edge        []float64
	most        float64
	count       int
}

func newField2(c *mpi.Comm, n int) *field2 {
	f := &field2{c: c, n: n, lo: n * c.Rank() / c.Size(), hi: n * (c.Rank() + 1) / c.Size()}
	f.left, f.right = (c.Rank()+c.Size()-1)%c.Size(), (c.Rank()+1)%c.Size()
	f.old, f.now = make([]float64, f.hi-f.lo+2), make([]float64, f.hi-f.lo+2)
	f.edge = make([]float64, 1)
	for i := range f.old {
		f.old[i] = math.Sin(float64(f.lo+i) * 0.059)
	}
	return f
}

func (f *field2) work(step int) error {
	if err := f.exchange(); err != nil {
		return err
	}
	f.smooth(func(a, b, c float64) float64 { return (a + 0.059*b + c) / (2 + 0.059) })
	f.old, f.now = f.now, f.old
	if step%10 == 0 {
		return f.measure()
	}
	return nil
}

func (f *field2) exchange() error {
	if _, err := mpi.Sendrecv(f.c, f.old[1:2], f.left, 1, f.edge, f.right, 1); err != nil {
		return err
	}
	f.old[len(f.old)-1] = f.edge[0]
	if _, err := mpi.Sendrecv(f.c, f.old[len(f.old)-2:][:1], f.right, 1, f.edge, f.left, 1); err != nil {
		return err
	}
	f.old[0] = f.edge[0]
	return nil
}

func (f *field2) smooth(mean func(a, b, c float64) float64) {
	for i := 1; i < len(f.old)-1; i++ {
		f.now[i] = mean(f.old[i-1], f.old[i], f.old[i+1])
		switch {
		case f.now[i] > f.most:
			f.most = f.now[i]
		case f.now[i] < -f.most:
			f.count++
		}
	}
}

// done2 counts measurements, of which there are at most most2.
var done2, most2 int

func (f *field2) measure() error {
	if done2++; done2 > most2 && most2 > 0 {
		return nil
	}
	sum := []float64{0, f.most}
	for _, v := range f.now {
		sum[0] += v * v
	}
	return mpi.Allreduce(f.c, sum, sum, mpi.Sum)
}

// field3 is a field on a line of cells, divided among the ranks.
type field3 struct {
	c           *mpi.Comm
	n, lo, hi   int
	left, right int
	old, now    []float64
	edge        []float64
	most        float64
	count       int
}

func newField3(c *mpi.Comm, n int) *field3 {
	f := &field3{c: c, n: n, lo: n * c.Rank() / c.Size(), hi: n * (c.Rank() + 1) / c.Size()}
	f.left, f.right = (c.Rank()+c.Size()-1)%c.Size(), (c.Rank()+1)%c.Size()
	f.old, f.now = make([]float64, f.hi-f.lo+2), make([]float64, f.hi-f.lo+2)
	f.edge = make([]float64, 1)
	for i := range f.old {
		f.old[i] = math.Sin(float64(f.lo+i) * 0.302)
	}
	return f
}

func (f *field3) work(step int) error {
	if err := f.exchange(); err != nil {
		return err
	}
	f.smooth(func(a, b, c float64) float64 { return (a + 0.302*b + c) / (2 + 0.302) })
	f.old, f.now = f.now, f.old
	if step%10 == 0 {
		return f.measure()
	}
	return nil
}

func (f *field3) exchange() error {
	if _, err := mpi.Sendrecv(f.c, f.old[1:2], f.left, 5, f.edge, f.right, 5); err != nil {
		return err
	}
	f.old[len(f.old)-1] = f.edge[0]
	if _, err := mpi.Sendrecv(f.c, f.old[len(f.old)-2:][:1], f.right, 5, f.edge, f.left, 5); err != nil {
		return err
	}
	f.old[0] = f.edge[0]
	return nil
}

func (f *field3) smooth(mean func(a, b, c float64) float64) {
	for i := 1; i < len(f.old)-1; i++ {
		f.now[i] = mean(f.old[i-1], f.old[i], f.old[i+1])
		switch {
		case f.now[i] > f.most:
			f.most = f.now[i]
		case f.now[i] < -f.most:
			f.count++
		}
	}
}

// done3 counts measurements, of which there are at most most3.
var done3, most3 int

func (f *field3) measure() error {
	if done3++; done3 > most3 && most3 > 0 {
		return nil
	}
	sum := []float64{0, f.most}
	for _, v := range f.now {
		sum[0] += v * v
	}
	return mpi.Allreduce(f.c, sum, sum, mpi.Sum)
}

// field4 is a field on a line of cells, divided among the ranks.
type field4 struct {
	c           *mpi.Comm
	n, lo, hi   int
	left, right int
	old, now    []float64
	edge        []float64
	most        float64
	count       int
}

func newField4(c *mpi.Comm, n int) *field4 {
	f := &field4{c: c, n: n, lo: n * c.Rank() / c.Size(), hi: n * (c.Rank() + 1) / c.Size()}
	f.left, f.right = (c.Rank()+c.Size()-1)%c.Size(), (c.Rank()+1)%c.Size()
	f.old, f.now = make([]float64, f.hi-f.lo+2), make([]float64, f.hi-f.lo+2)
	f.edge = make([]float64, 1)
	for i := range f.old {
		f.old[i] = math.Sin(float64(f.lo+i) * 0.541)
	}
	return f
}

func (f *field4) work(step int) error {
	if err := f.exchange(); err != nil {
		return err
	}
	f.smooth(func(a, b, c float64) float64 { return (a + 0.541*b + c) / (2 + 0.541) })
	f.old, f.now = f.now, f.old
	if step%10 == 0 {
		return f.measure()
	}
	return nil
}

func (f *field4) exchange() error {
	if _, err := mpi.Sendrecv(f.c, f.old[1:2], f.left, 5, f.edge, f.right, 5); err != nil {
		return err
	}
	f.old[len(f.old)-1] = f.edge[0]
	if _, err := mpi.Sendrecv(f.c, f.old[len(f.old)-2:][:1], f.right, 5, f.edge, f.left, 5); err != nil {
		return err
	}
	f.old[0] = f.edge[0]
	return nil
}

func (f *field4) smooth(mean func(a, b, c float64) float64) {
	for i := 1; i < len(f.old)-1; i++ {
		f.now[i] = mean(f.old[i-1], f.old[i], f.old[i+1])
		switch {
		case f.now[i] > f.most:
			f.most = f.now[i]
		case f.now[i] < -f.most:
			f.count++
		}
	}
}

// done4 counts measurements, of which there are at most most4.
var done4, most4 int

func (f *field4) measure() error {
	if done4++; done4 > most4 && most4 > 0 {
		return nil
	}
	sum := []float64{0, f.most}
	for _, v := range f.now {
		sum[0] += v * v
	}
	return mpi.Allreduce(f.c, sum, sum, mpi.Sum)
}

// field5 is a field on a line of cells, divided among the ranks.
type field5 struct {
	c           *mpi.Comm
	n, lo, hi   int
	left, right int
	old, now    []float64
	edge        []float64
	most        float64
	count       int
}

func newField5(c *mpi.Comm, n int) *field5 {
	f := &field5{c: c, n: n, lo: n * c.Rank() / c.Size(), hi: n * (c.Rank() + 1) / c.Size()}
	f.left, f.right = (c.Rank()+c.Size()-1)%c.Size(), (c.Rank()+1)%c.Size()
	f.old, f.now = make([]float64, f.hi-f.lo+2), make([]float64, f.hi-f.lo+2)
	f.edge = make([]float64, 1)
	for i := range f.old {
		f.old[i] = math.Sin(float64(f.lo+i) * 0.279)
	}
	return f
}

func (f *field5) work(step int) error {
	if err := f.exchange(); err != nil {
		return err
	}
	f.smooth(func(a, b, c float64) float64 { return (a + 0.279*b + c) / (2 + 0.279) })
	f.old, f.now = f.now, f.old
	if step%10 == 0 {
		return f.measure()
	}
	return nil
}

func (f *field5) exchange() error {
	if _, err := mpi.Sendrecv(f.c, f.old[1:2], f.left, 2, f.edge, f.right, 2); err != nil {
		return err
	}
	f.old[len(f.old)-1] = f.edge[0]
	if _, err := mpi.Sendrecv(f.c, f.old[len(f.old)-2:][:1], f.right, 2, f.edge, f.left, 2); err != nil {
		return err
	}
	f.old[0] = f.edge[0]
	return nil
}

func (f *field5) smooth(mean func(a, b, c float64) float64) {
	for i := 1; i < len(f.old)-1; i++ {
		f.now[i] = mean(f.old[i-1], f.old[i], f.old[i+1])
		switch {
		case f.now[i] > f.most:
			f.most = f.now[i]
		case f.now[i] < -f.most:
			f.count++
		}
	}
}

// done5 counts measurements, of which there are at most most5.
var done5, most5 int

func (f *field5) measure() error {
	if done5++; done5 > most5 && most5 > 0 {
		return nil
	}
	sum := []float64{0, f.most}
	for _, v := range f.now {
		sum[0] += v * v
	}
	return mpi.Allreduce(f.c, sum, sum, mpi.Sum)
}

// field6 is a field on a line of cells, divided among the ranks.
type field6 struct {
	c           *mpi.Comm
	n, lo, hi   int
	left, right int
	old, now    []float64
	edge        []float64
	most        float64
	count       int
}

func newField6(c *mpi.Comm, n int) *field6 {
	f := &field6{c: c, n: n, lo: n * c.Rank() / c.Size(), hi: n * (c.Rank() + 1) / c.Size()}
	f.left, f.right = (c.Rank()+c.Size()-1)%c.Size(), (c.Rank()+1)%c.Size()
	f.old, f.now = make([]float64, f.hi-f.lo+2), make([]float64, f.hi-f.lo+2)
	f.edge = make([]float64, 1)
	for i := range f.old {
		f.old[i] = math.Sin(float64(f.lo+i) * 0.531)
	}
	return f
}

func (f *field6) work(step int) error {
	if err := f.exchange(); err != nil {
		return err
	}
	f.smooth(func(a, b, c float64) float64 { return (a + 0.531*b + c) / (2 + 0.531) })
	f.old, f.now = f.now, f.old
	if step%10 == 0 {
		return f.measure()
	}
	return nil
}

func (f *field6) exchange() error {
	if _, err := mpi.Sendrecv(f.c, f.old[1:2], f.left, 1, f.edge, f.right, 1); err != nil {
		return err
	}
	f.old[len(f.old)-1] = f.edge[0]
	if _, err := mpi.Sendrecv(f.c, f.old[len(f.old)-2:][:1], f.right, 1, f.edge, f.left, 1); err != nil {
		return err
	}
	f.old[0] = f.edge[0]
	return nil
}

func (f *field6) smooth(mean func(a, b, c float64) float64) {
	for i := 1; i < len(f.old)-1; i++ {
		f.now[i] = mean(f.old[i-1], f.old[i], f.old[i+1])
		switch {
		case f.now[i] > f.most:
			f.most = f.now[i]
		case f.now[i] < -f.most:
			f.count++
		}
	}
}

// done6 counts measurements, of which there are at most most6.
var done6, most6 int

func (f *field6) measure() error {
	if done6++; done6 > most6 && most6 > 0 {
		return nil
	}
	sum := []float64{0, f.most}
	for _, v := range f.now {
		sum[0] += v * v
	}
	return mpi.Allreduce(f.c, sum, sum, mpi.Sum)
}

// field7 is a field on a line of cells, divided among the ranks.
type field7 struct {
	c           *mpi.Comm
	n, lo, hi   int
	left, right int
	old, now    []float64
	edge        []float64
	most        float64
	count       int
}

func newField7(c *mpi.Comm, n int) *field7 {
	f := &field7{c: c, n: n, lo: n * c.Rank() / c.Size(), hi: n * (c.Rank() + 1) / c.Size()}
	f.left, f.right = (c.Rank()+c.Size()-1)%c.Size(), (c.Rank()+1)%c.Size()
	f.old, f.now = make([]float64, f.hi-f.lo+2), make([]float64, f.hi-f.lo+2)
	f.edge = make([]float64, 1)
	for i := range f.old {
		f.old[i] = math.Sin(float64(f.lo+i) * 0.282)
	}
	return f
}

func (f *field7) work(step int) error {
	if err := f.exchange(); err != nil {
		return err
	}
	f.smooth(func(a, b, c float64) float64 { return (a + 0.282*b + c) / (2 + 0.282) })
	f.old, f.now = f.now, f.old
	if step%10 == 0 {
		return f.measure()
	}
	return nil
}

func (f *field7) exchange() error {
	if _, err := mpi.Sendrecv(f.c, f.old[1:2], f.left, 6, f.edge, f.right, 6); err != nil {
		return err
	}
	f.old[len(f.old)-1] = f.edge[0]
	if _, err := mpi.Sendrecv(f.c, f.old[len(f.old)-2:][:1], f.right, 6, f.edge, f.left, 6); err != nil {
		return err
	}
	f.old[0] = f.edge[0]
	return nil
}

func (f *field7) smooth(mean func(a, b, c float64) float64) {
	for i := 1; i < len(f.old)-1; i++ {
		f.now[i] = mean(f.old[i-1], f.old[i], f.old[i+1])
		switch {
		case f.now[i] > f.most:
			f.most = f.now[i]
		case f.now[i] < -f.most:
			f.count++
		}
	}
}

// done7 counts measurements, of which there are at most most7.
var done7, most7 int

func (f *field7) measure() error {
	if done7++; done7 > most7 && most7 > 0 {
		return nil
	}
	sum := []float64{0, f.most}
	for _, v := range f.now {
		sum[0] += v * v
	}
	return mpi.Allreduce(f.c, sum, sum, mpi.Sum)
}
