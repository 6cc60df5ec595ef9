package jinja

import (
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

type tokenKind uint8

const (
	tokData tokenKind = iota + 1
	tokVarBegin
	tokVarEnd
	tokBlockBegin
	tokBlockEnd
	tokName
	tokString
	tokInt
	tokFloat
	tokOp
	tokEOF
)

type token struct {
	kind tokenKind
	text string
	line int
}

// lexer cuts a template into tokens, whitespace control done.
type lexer struct {
	file   string
	src    string
	at     int
	line   int
	tokens []token
	// lineStart says that what was read last ended a line.
	lineStart bool
}

func lex(file, source string) ([]token, error) {
	source = strings.ReplaceAll(strings.ReplaceAll(source, "\r\n", "\n"), "\r", "\n")
	source = strings.TrimSuffix(source, "\n")
	l := &lexer{file: file, src: source, line: 1, lineStart: true}
	for l.at < len(l.src) {
		if err := l.next(); err != nil {
			return nil, err
		}
	}
	l.add(tokEOF, "")
	return l.tokens, nil
}

func (l *lexer) fail(message string) error { return &Error{l.file, l.line, message} }

func (l *lexer) add(kind tokenKind, text string) {
	l.tokens = append(l.tokens, token{kind, text, l.line})
}

// skip moves on over n bytes.
func (l *lexer) skip(n int) {
	l.line += strings.Count(l.src[l.at:l.at+n], "\n")
	l.at += n
}

// next reads text up to a tag, and the tag.
func (l *lexer) next() error {
	rest := l.src[l.at:]
	k := tagStart(rest)
	if k < 0 {
		l.data(rest)
		l.skip(len(rest))
		return nil
	}
	text, kind := rest[:k], rest[k+1]
	sign := byte(0)
	if k+2 < len(rest) {
		sign = rest[k+2]
	}
	switch {
	case sign == '-':
		text = strings.TrimRightFunc(text, unicode.IsSpace)
	case sign != '+' && kind != '{':
		text = l.stripLine(text)
	}
	l.data(text)
	l.skip(k + 2)
	if sign == '-' || sign == '+' && kind != '{' {
		l.skip(1)
	}
	switch kind {
	case '#':
		return l.comment()
	case '{':
		l.add(tokVarBegin, "")
		return l.tag("}}", tokVarEnd)
	}
	if done, err := l.raw(); done || err != nil {
		return err
	}
	l.add(tokBlockBegin, "")
	return l.tag("%}", tokBlockEnd)
}

// tagStart is where the first tag begins, or -1.
func tagStart(s string) int {
	for i := 0; i+1 < len(s); i++ {
		k := strings.IndexByte(s[i:], '{')
		if k < 0 || i+k+1 >= len(s) {
			return -1
		}
		i += k
		if c := s[i+1]; c == '{' || c == '%' || c == '#' {
			return i
		}
	}
	return -1
}

// stripLine drops blanks between the start of a line and a tag.
func (l *lexer) stripLine(text string) string {
	k := strings.LastIndexByte(text, '\n') + 1
	if (k > 0 || l.lineStart) && strings.TrimSpace(text[k:]) == "" {
		return text[:k]
	}
	return text
}

func (l *lexer) data(text string) {
	if text != "" {
		l.add(tokData, text)
	}
}

// ended is called behind the end of a tag. With trim a line's end that follows
// is dropped; after a minus all whitespace is.
func (l *lexer) ended(minus, trim bool) {
	rest := l.src[l.at:]
	n := 0
	if minus {
		n = len(rest) - len(strings.TrimLeftFunc(rest, unicode.IsSpace))
	} else if trim && strings.HasPrefix(rest, "\n") {
		n = 1
	}
	l.lineStart = n > 0 && rest[n-1] == '\n'
	l.skip(n)
}

func (l *lexer) comment() error {
	k := strings.Index(l.src[l.at:], "#}")
	if k < 0 {
		return l.fail("a comment is not closed")
	}
	body := l.src[l.at : l.at+k]
	l.skip(k + 2)
	l.ended(strings.HasSuffix(body, "-"), !strings.HasSuffix(body, "+"))
	return nil
}

// raw reads a raw block whose {% is behind.
func (l *lexer) raw() (bool, error) {
	rest := l.src[l.at:]
	head := strings.TrimLeft(rest, " \t\n")
	head, ok := strings.CutPrefix(head, "raw")
	if !ok {
		return false, nil
	}
	end := strings.TrimLeft(head, " \t\n")
	minus := strings.HasPrefix(end, "-")
	end = strings.TrimPrefix(end, "-")
	if !strings.HasPrefix(end, "%}") {
		return false, nil
	}
	l.skip(len(rest) - len(end) + 2)
	l.ended(minus, true)
	body := l.src[l.at:]
	for i := 0; ; {
		k := strings.Index(body[i:], "{%")
		if k < 0 {
			return true, l.fail("a raw block is not closed")
		}
		i += k
		tail := strings.TrimLeft(strings.TrimPrefix(body[i+2:], "-"), " \t\n")
		if after, ok := strings.CutPrefix(tail, "endraw"); ok {
			after = strings.TrimLeft(after, " \t\n")
			minus := strings.HasPrefix(after, "-")
			if after, ok := strings.CutPrefix(strings.TrimPrefix(after, "-"), "%}"); ok {
				text := body[:i]
				if body[i+2] == '-' {
					text = strings.TrimRightFunc(text, unicode.IsSpace)
				} else {
					text = l.stripLine(text)
				}
				l.data(text)
				l.skip(len(body) - len(after))
				l.ended(minus, true)
				return true, nil
			}
		}
		i += 2
	}
}

const operators = "** // == != >= <= + - / * % ~ [ ] ( ) { } > < = . : | ,"

// tag reads expressions up to end, which doesn't count inside brackets.
func (l *lexer) tag(end string, kind tokenKind) error {
	depth := 0
	for l.at < len(l.src) {
		rest := l.src[l.at:]
		c := rest[0]
		if depth == 0 {
			sign := c == '-' || c == '+' && kind == tokBlockEnd
			if strings.HasPrefix(rest, end) || sign && strings.HasPrefix(rest[1:], end) {
				l.add(kind, "")
				n := len(end)
				if sign {
					n++
				}
				l.skip(n)
				l.ended(c == '-', kind == tokBlockEnd && c != '+')
				return nil
			}
		}
		switch {
		case c == ' ' || c == '\t' || c == '\n':
			l.skip(1)
		case c == '"' || c == '\'':
			if err := l.quoted(c); err != nil {
				return err
			}
		case c >= '0' && c <= '9':
			l.number()
		default:
			if !l.name() {
				n, err := l.operator(rest)
				if err != nil {
					return err
				}
				depth += n
			}
		}
	}
	return l.fail("a tag is not closed with " + end)
}

// operator reads one, and returns by how much it nests.
func (l *lexer) operator(rest string) (int, error) {
	for _, op := range strings.Fields(operators) {
		if strings.HasPrefix(rest, op) {
			l.add(tokOp, op)
			l.skip(len(op))
			switch op {
			case "(", "[", "{":
				return 1, nil
			case ")", "]", "}":
				return -1, nil
			}
			return 0, nil
		}
	}
	r, _ := utf8.DecodeRuneInString(rest)
	return 0, l.fail("unexpected character " + strconv.QuoteRune(r))
}

func (l *lexer) name() bool {
	n := 0
	for i, r := range l.src[l.at:] {
		if r != '_' && !unicode.IsLetter(r) && (i == 0 || !unicode.IsDigit(r)) {
			break
		}
		n = i + utf8.RuneLen(r)
	}
	if n == 0 {
		return false
	}
	l.add(tokName, l.src[l.at:l.at+n])
	l.skip(n)
	return true
}

func (l *lexer) number() {
	rest := l.src[l.at:]
	n, kind := 0, tokInt
	digits := func() {
		for n < len(rest) && (rest[n] >= '0' && rest[n] <= '9' || rest[n] == '_') {
			n++
		}
	}
	digits()
	if n+1 < len(rest) && rest[n] == '.' && rest[n+1] >= '0' && rest[n+1] <= '9' {
		kind = tokFloat
		n++
		digits()
	}
	if n+1 < len(rest) && (rest[n] == 'e' || rest[n] == 'E') && strings.ContainsRune("+-0123456789", rune(rest[n+1])) {
		kind = tokFloat
		n += 2
		digits()
	}
	l.add(kind, strings.ReplaceAll(rest[:n], "_", ""))
	l.skip(n)
}

// quoted reads a string with Python's escapes.
func (l *lexer) quoted(quote byte) error {
	var b strings.Builder
	s := l.src[l.at+1:]
	for i := 0; i < len(s); i++ {
		switch c := s[i]; {
		case c == quote:
			l.add(tokString, b.String())
			l.skip(i + 2)
			return nil
		case c == '\\' && i+1 < len(s):
			i += escape(&b, s[i+1:])
		default:
			b.WriteByte(c)
		}
	}
	return l.fail("a string is not closed")
}

// escape writes what the escape at the start of s, its backslash left out,
// stands for, and returns its length.
func escape(b *strings.Builder, s string) int {
	simple := map[byte]byte{'n': '\n', 't': '\t', 'r': '\r', '\\': '\\', '\'': '\'', '"': '"', 'a': 7, 'b': 8, 'f': 12, 'v': 11}
	if c, ok := simple[s[0]]; ok {
		b.WriteByte(c)
		return 1
	}
	if s[0] == '\n' {
		return 1
	}
	digits := map[byte]int{'x': 2, 'u': 4, 'U': 8}[s[0]]
	if digits > 0 && len(s) > digits {
		if r, err := strconv.ParseUint(s[1:1+digits], 16, 32); err == nil {
			b.WriteRune(rune(r))
			return 1 + digits
		}
	}
	b.WriteByte('\\')
	b.WriteByte(s[0])
	return 1
}
