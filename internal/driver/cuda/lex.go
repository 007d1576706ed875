package cuda

import (
	"fmt"
	"strings"
)

type tokenKind uint8

const (
	tokSpace     tokenKind = iota // spaces, newlines, comments
	tokWord                       // identifiers and keywords
	tokNumber                     // as the preprocessor defines them
	tokText                       // strings and characters
	tokMark                       // one character, or ->
	tokDirective                  // a preprocessor line, with its continuation lines
)

type token struct {
	kind tokenKind
	text string
	line int
	tail string // text that is written after the token
}

func isLetter(c byte) bool {
	return c == '_' || 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || c >= 0x80
}

func isDigit(c byte) bool { return '0' <= c && c <= '9' }

func isSpace(c byte) bool {
	return c == ' ' || c == '\t' || c == '\n' || c == '\r' || c == '\v' || c == '\f'
}

// lex divides a source into tokens. Concatenated, their texts are the source.
func lex(src string) ([]token, error) {
	var toks []token
	line, start := 1, true // start: at the start of a line
	for len(src) > 0 {
		n, kind := 1, tokMark
		c := src[0]
		switch {
		case isSpace(c):
			for kind = tokSpace; n < len(src) && isSpace(src[n]); n++ {
			}
		case strings.HasPrefix(src, "\\\n"):
			n, kind = 2, tokSpace
		case strings.HasPrefix(src, "\\\r\n"):
			n, kind = 3, tokSpace
		case strings.HasPrefix(src, "//"):
			n, kind = lineEnd(src), tokSpace
		case strings.HasPrefix(src, "/*"):
			end := strings.Index(src[2:], "*/")
			if end < 0 {
				return nil, fmt.Errorf("%s(%d): error: a comment does not end", sourceName, line)
			}
			n, kind = end+4, tokSpace
		case c == '#' && start:
			n, kind = directiveEnd(src), tokDirective
		case c == '"' || c == '\'':
			kind = tokText
			for ; n < len(src) && src[n] != c && src[n] != '\n'; n++ {
				if src[n] == '\\' && n+1 < len(src) {
					n++
				}
			}
			if n >= len(src) || src[n] == '\n' {
				return nil, fmt.Errorf("%s(%d): error: a string or character does not end", sourceName, line)
			}
			n++
		case isLetter(c):
			for kind = tokWord; n < len(src) && (isLetter(src[n]) || isDigit(src[n])); n++ {
			}
		case isDigit(c) || c == '.' && len(src) > 1 && isDigit(src[1]):
			for kind = tokNumber; n < len(src); n++ {
				sign := (src[n] == '+' || src[n] == '-') && strings.IndexByte("eEpP", src[n-1]) >= 0
				if hex := strings.HasPrefix(src, "0x") || strings.HasPrefix(src, "0X"); sign && hex {
					sign = src[n-1] == 'p' || src[n-1] == 'P'
				}
				if !sign && !isLetter(src[n]) && !isDigit(src[n]) && src[n] != '.' {
					break
				}
			}
		case strings.HasPrefix(src, "->"):
			n = 2
		}
		text := src[:n]
		toks = append(toks, token{kind: kind, text: text, line: line})
		lines := strings.Count(text, "\n")
		line += lines
		switch {
		case kind != tokSpace && kind != tokDirective:
			start = false
		case kind == tokSpace && text[0] != '/' && lines > 0 && text[0] != '\\':
			start = true
		}
		src = src[n:]
	}
	return toks, nil
}

func lineEnd(src string) int {
	for i := 0; i < len(src); i++ {
		if src[i] == '\n' && !(i > 0 && src[i-1] == '\\') && !(i > 1 && src[i-1] == '\r' && src[i-2] == '\\') {
			return i
		}
	}
	return len(src)
}

// directiveEnd returns where a directive ends: at the end of its line, unless
// the line is continued or ends in a comment.
func directiveEnd(src string) int {
	quoted := false
	for i := 0; i < len(src); i++ {
		switch {
		case src[i] == '\n':
			if !strings.HasSuffix(src[:i], "\\") && !strings.HasSuffix(src[:i], "\\\r") {
				return i
			}
		case src[i] == '"':
			quoted = !quoted
		case quoted:
			if src[i] == '\\' && i+1 < len(src) && src[i+1] != '\n' && src[i+1] != '\r' {
				i++
			}
		case strings.HasPrefix(src[i:], "//"):
			return i + lineEnd(src[i:])
		case strings.HasPrefix(src[i:], "/*"):
			end := strings.Index(src[i+2:], "*/")
			if end < 0 {
				return len(src)
			}
			i += end + 3
		}
	}
	return len(src)
}
