// Command gotos jumps around calls.
package main

import "fmt"

func reach(x int) int { fmt.Println("reach", x); return x }

func forward(x int) (err string) {
	xs := []int{1, 2, 3}
	if x == 0 {
		goto out
	}
	fmt.Println(reach(x) + reach(x+1))
	for i, v := range xs {
		if reach(i)+v > x {
			goto out
		}
	}
	if x == 7 {
		goto bad
	}
	return "none"
bad:
	err = "bad"
out:
	return err + " out"
}

func backward(n int) int {
	i := 0
top:
	if i > n {
		goto done
	}
	//pt
	for ; i < 9; i++ {
		if reach(i)%2 == 1 {
			i += 2
			goto top
		}
		if i == n {
			i++
			goto top
		}
	}
	i++
done:
	return i
}

// void has a label at its end, and one that is broken to.
func void(n int) {
	var fs []func() int
again:
	for j := 0; ; j++ {
		n += j
		x := n
		fs = append(fs, func() int { x++; return x })
		reach(n)
		switch {
		case n > 9:
			goto end
		case n > 6:
			break again
		case n%2 == 0:
			n++
			goto again
		}
		if j > 3 {
			continue again
		}
	}
	fmt.Println("broken")
end:
	for _, f := range fs {
		fmt.Println(f(), f())
	}
}

func into(n int) {
	if n > 1 {
		goto in
	}
	fmt.Println("before")
in:
	for i := range reach(n) {
		fmt.Println(i, reach(i))
	}
	n--
	if n > 0 {
		goto in
	}
	k := 0
local:
	k++
	if k < 3 {
		goto local
	}
	fmt.Println(k)
}

func deferred(n int) {
	if n > 1 {
		goto past
	}
	defer fmt.Println("deferred", n)
past:
	fmt.Println(reach(n))
	{
		if n == 1 {
			goto end
		}
		fmt.Println("inner", reach(n))
	end:
	}
}

func main() {
	for _, x := range []int{0, 2, 5, 7, 8} {
		fmt.Println(forward(x))
	}
	for n := range 9 {
		fmt.Println(backward(n))
	}
	void(0)
	void(3)
	void(10)
	into(1)
	into(3)
	deferred(1)
	deferred(2)
}
