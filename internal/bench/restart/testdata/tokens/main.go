// Tokens splits text into words, counts them, and joins them again.
package main

import (
	"flag"
	"fmt"
	"sort"
	"strings"
	"unicode"
)

type kind int

const (
	word kind = iota
	number
	other
)

type token struct {
	kind kind
	text string
}

type lexer struct {
	text string
	at   int
}

func (l *lexer) next() (token, bool) {
	for l.at < len(l.text) && l.text[l.at] == ' ' {
		l.at++
	}
	if l.at == len(l.text) {
		return token{}, false
	}
	from := l.at
	switch c := rune(l.text[l.at]); {
	case unicode.IsLetter(c):
		for l.at < len(l.text) && unicode.IsLetter(rune(l.text[l.at])) {
			l.at++
		}
		return token{word, l.text[from:l.at]}, true
	case unicode.IsDigit(c):
		for l.at < len(l.text) && unicode.IsDigit(rune(l.text[l.at])) {
			l.at++
		}
		return token{number, l.text[from:l.at]}, true
	}
	l.at++
	return token{other, l.text[from:l.at]}, true
}

func main() {
	rounds := flag.Int("rounds", 50_000, "lines")
	flag.Parse()
	words := strings.Fields("the cat sat on a mat while 12 dogs barked at the moon , and 365 stars ; none of them fell down into the deep blue sea")
	counts := map[string]int{}
	length := 0
	for i := range *rounds {
		var line strings.Builder
		for k := range 60 {
			line.WriteString(words[(i*7+k*k)%len(words)])
			line.WriteByte(' ')
		}
		l := lexer{text: line.String()}
		var out strings.Builder
		for t, ok := l.next(); ok; t, ok = l.next() {
			if t.kind == word {
				counts[t.text]++
				out.WriteString(strings.ToUpper(t.text))
			} else {
				out.WriteString(t.text)
			}
		}
		length += out.Len()
	}
	var keys []string
	for k := range counts {
		keys = append(keys, k)
	}
	sort.Strings(keys)
	fmt.Println(length, len(keys), counts["the"])
}
