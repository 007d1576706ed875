package main

// pump has a select that assigns variables of the function: a clause that is not
// taken leaves its variable as it is. Some clauses assign what others read.
func pump(n int) (trace []int) {
	a, b := make(chan int, 4), make(chan int, 4)
	last, ok, kept := -1, true, 5
	for i := 0; i < n; i++ { //difftest:loop
		switch i % 4 {
		case 0:
			a <- i
		case 1:
			b <- i
		case 3:
			close(a)
			a = make(chan int, 4)
		}
		select {
		case last, ok = <-a:
			trace = append(trace, i)
		case kept = <-b:
			trace = append(trace, last)
		default:
			trace = append(trace, 1000+last*10+kept)
			if !ok {
				trace = append(trace, -i)
			}
		}
	}
	return trace
}

// waits has the call that leads to a point in a clause.
func waits(n int) (sum int) {
	ch, quit := make(chan int, 1), make(chan bool, 1)
	var v int
	for on := true; on; {
		if n%3 == 0 {
			ch <- n
		} else {
			quit <- true
		}
		select {
		case v = <-ch:
			sum += work(v)
		case <-quit:
			sum += v
		}
		n--
		on = n > 0
	}
	return sum
}

func work(n int) (sum int) {
	for i := range n { //difftest:loop
		sum += i
	}
	return sum
}
