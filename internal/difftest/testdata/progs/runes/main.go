// Command runes covers strings with multibyte and broken runes, ranged over,
// sliced, and converted, with a point in the middle of the string.
package main

import (
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"
)

func weigh(r rune) (n int) {
	for i := range 1000 {
		n = (n*5 + int(r) ^ i) % 4001
	}
	return n
}

func main() {
	text := "Go→€\xc3x日本ñ"
	upper := []rune{}
	var kinds strings.Builder
	sum := 0
	for i, r := range text { //difftest:loop
		sum += weigh(r)
		switch {
		case r == utf8.RuneError:
			kinds.WriteByte('?')
		case unicode.IsUpper(r):
			kinds.WriteByte('U')
		case unicode.IsLetter(r):
			kinds.WriteByte('l')
		default:
			kinds.WriteByte('.')
		}
		upper = append(upper, unicode.ToUpper(r))
		rest := text[min(i, len(text)):]
		if i == 5 {
			text = "changed" // the loop continues over the old string
		}
		fmt.Printf("%d %q %d %d %q\n", i, r, sum, utf8.RuneLen(r), rest)
	}
	fmt.Println(string(upper), kinds.String(), text, []byte(string(upper[2:4])))
}
