// Command bigs covers math/big numbers kept across points: digits of pi by a
// spigot, and rational partial sums.
package main

import (
	"fmt"
	"math/big"
)

func main() {
	q, r, t := big.NewInt(1), big.NewInt(0), big.NewInt(1)
	k, n, l := int64(1), big.NewInt(3), int64(3)
	harmonic := new(big.Rat)
	root := big.NewFloat(1).SetPrec(120)
	digits := ""
	one, two := big.NewFloat(1), big.NewFloat(2)
	for block := range 6 { //difftest:loop
		for len(digits) < (block+1)*8 {
			lhs := new(big.Int).Sub(new(big.Int).Add(new(big.Int).Mul(big.NewInt(4), q), r), t)
			if lhs.Cmp(new(big.Int).Mul(n, t)) < 0 {
				digits += n.String()
				nr := new(big.Int).Mul(big.NewInt(10), new(big.Int).Sub(r, new(big.Int).Mul(n, t)))
				n.Sub(n.Div(n.Mul(big.NewInt(10), n.Add(n.Mul(big.NewInt(3), q), r)), t), new(big.Int).Mul(big.NewInt(10), big.NewInt(int64(digits[len(digits)-1]-'0'))))
				q.Mul(q, big.NewInt(10))
				r = nr
				continue
			}
			nr := new(big.Int).Mul(new(big.Int).Add(new(big.Int).Mul(big.NewInt(2), q), r), big.NewInt(l))
			nn := new(big.Int).Mul(q, big.NewInt(7*k))
			nn.Add(nn.Add(nn, big.NewInt(2)), new(big.Int).Mul(r, big.NewInt(l)))
			nn.Div(nn, new(big.Int).Mul(t, big.NewInt(l)))
			q.Mul(q, big.NewInt(k))
			t.Mul(t, big.NewInt(l))
			l += 2
			k++
			n, r = nn, nr
		}
		harmonic.Add(harmonic, big.NewRat(1, int64(block+1)))
		root.Quo(new(big.Float).Add(root, new(big.Float).Quo(two, root)), new(big.Float).Add(one, one))
		fmt.Println(block, len(digits), harmonic, root.Text('g', 30), q.BitLen())
	}
	fmt.Println(digits, q.Cmp(t))
}
