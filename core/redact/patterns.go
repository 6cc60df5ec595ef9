package redact

import (
	"bytes"
	"encoding/base64"
	"regexp"
)

// Pattern is the shape of a secret: fixed text and what may follow it.
type Pattern struct {
	Kind string
	// Prefixes are texts that begin such a secret, of at least 3 bytes.
	Prefixes []string
	// Chars are those that follow, as in "a-zA-Z0-9_-"; Min and Max count
	// them. Max 0 is 256; where it is Min, no more than these may follow.
	Chars    string
	Min, Max int
	// Digit wants a digit, and Run that many letters and digits in a row, among
	// what follows: names in programs have neither.
	Digit bool
	Run   int

	keep  bool // the prefix is no part of the secret
	loose bool // it may stand inside of a longer word
	check func(b []byte, from, to int) (int, int, bool)
}

// charset says which bytes belong to it.
type charset [256]bool

// secretHeaders are never written, whatever they hold.
var secretHeaders = []string{
	"authorization", "proxy-authorization", "x-api-key", "api-key", "x-goog-api-key", "cookie", "set-cookie",
	"x-amz-security-token", "x-auth-token", "x-csrf-token",
}

const (
	alnum  = "a-zA-Z0-9"
	word   = "a-zA-Z0-9_"
	urlish = "a-zA-Z0-9_-"
)

// builtin are shapes of common keys. They are narrow: what one finds by error
// costs a row.
var builtin = []Pattern{
	{Kind: "anthropic_key", Prefixes: []string{"sk-ant-"}, Chars: urlish, Min: 16},
	{Kind: "api_key", Prefixes: []string{"sk-"}, Chars: urlish, Min: 20, Digit: true, Run: 10},
	{Kind: "aws_key", Prefixes: []string{"AKIA", "ASIA"}, Chars: "A-Z0-9", Min: 16, Max: 16},
	{Kind: "github_token", Prefixes: []string{"ghp_", "gho_", "ghu_", "ghs_", "ghr_"}, Chars: alnum, Min: 30},
	{Kind: "github_token", Prefixes: []string{"github_pat_"}, Chars: word, Min: 40},
	{Kind: "gitlab_token", Prefixes: []string{"glpat-"}, Chars: urlish, Min: 20, Digit: true},
	{Kind: "slack_token", Prefixes: []string{"xoxa-", "xoxb-", "xoxe-", "xoxp-", "xoxr-", "xoxs-", "xapp-"}, Chars: "a-zA-Z0-9-", Min: 10, Digit: true},
	{Kind: "google_key", Prefixes: []string{"AIza"}, Chars: urlish, Min: 35, Max: 35},
	{Kind: "huggingface_token", Prefixes: []string{"hf_"}, Chars: alnum, Min: 30},
	{Kind: "npm_token", Prefixes: []string{"npm_"}, Chars: alnum, Min: 36},
	{Kind: "pypi_token", Prefixes: []string{"pypi-"}, Chars: urlish, Min: 50},
	{Kind: "stripe_key", Prefixes: []string{"sk_live_", "rk_live_"}, Chars: alnum, Min: 16},
	{Kind: "bearer", Prefixes: []string{"Bearer ", "bearer "}, Chars: "a-zA-Z0-9._~+/=-", Min: 20, Max: 4096, Digit: true, Run: 10, keep: true},
	{Kind: "jwt", Prefixes: []string{"eyJ"}, Chars: "a-zA-Z0-9_.-", Min: 40, Max: 8192, check: isJWT},
	{Kind: "private_key", Prefixes: []string{"-----BEGIN "}, check: privateKey},
}

// sessionTokens are penstock's own, also as base64: a gateway makes one for
// each session, and every file may meet one of any session.
var sessionTokens = []Pattern{
	{Kind: "session_token", Prefixes: []string{tokenPrefix}, Chars: "a-f0-9", Min: 64, Max: 64, loose: true},
	sessionBase64(0), sessionBase64(1), sessionBase64(2),
}

const tokenPrefix = "pst-"

var sessionToken = regexp.MustCompile(`^` + tokenPrefix + `[a-f0-9]{64}`)

// sessionBase64 finds session tokens in base64 after shift other bytes.
func sessionBase64(shift int) Pattern {
	head := (shift*8 + 5) / 6
	return Pattern{
		Kind: "session_token", Prefixes: []string{aligned(base64.StdEncoding, tokenPrefix, shift)},
		loose: true,
		check: func(b []byte, from, _ int) (int, int, bool) {
			n := shift + len(tokenPrefix) + 64 // bytes
			start := from - head
			end := start + (n*8+5)/6
			if start < 0 || end > len(b) {
				return 0, 0, false
			}
			text := bytes.ReplaceAll(bytes.ReplaceAll(b[start:end], []byte("-"), []byte("+")), []byte("_"), []byte("/"))
			out, err := base64.RawStdEncoding.AppendDecode(nil, text)
			return from, end, err == nil && sessionToken.Match(out[shift:])
		},
	}
}

// needles are the texts by which a pattern is found.
func (p *Pattern) needles() []*needle {
	var out []*needle
	for _, prefix := range p.Prefixes {
		set := chars(p.Chars)
		n := &needle{text: []byte(prefix), kind: p.Kind, next: set}
		n.pattern = p.compiled(set)
		if len(prefix) >= 3 {
			out = append(out, n)
		}
	}
	return out
}

// compiled is the pattern with its check.
func (p *Pattern) compiled(set *charset) *Pattern {
	c := *p
	if c.Max <= 0 {
		c.Max = 256
	}
	c.Max = min(c.Max, maxMatch)
	inner := c.check
	c.check = func(b []byte, from, to int) (int, int, bool) {
		if !c.loose && bounded(b, from) {
			return 0, 0, false
		}
		if p.Chars == "" {
			return inner(b, from, to)
		}
		end := to
		for end < len(b) && end-to < c.Max && set[b[end]] {
			end++
		}
		longer := c.Min == c.Max && !c.loose && end < len(b) && set[b[end]]
		if end-to < c.Min || longer || !c.likely(b[to:end]) {
			return 0, 0, false
		}
		if inner != nil {
			return inner(b, from, end)
		}
		if c.keep {
			from = to
		}
		return from, end, true
	}
	return &c
}

func (p *Pattern) match(b []byte, from, to int) (int, int, bool) { return p.check(b, from, to) }

// bounded says that what begins at from is the rest of a longer word. The n of
// an escape such as \n is no part of a word.
func bounded(b []byte, from int) bool {
	if from == 0 || !isWord(b[from-1]) {
		return false
	}
	return !bytes.Contains(b[max(0, from-6):from], []byte{'\\'})
}

func isWord(c byte) bool {
	return c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || c == '_'
}

// likely says that a text looks like a key and not like a name.
func (p *Pattern) likely(text []byte) bool {
	digit, run, longest := false, 0, 0
	for _, c := range text {
		digit = digit || c >= '0' && c <= '9'
		if run++; c == '-' || c == '.' || c == '_' {
			run = 0
		}
		longest = max(longest, run)
	}
	return (digit || !p.Digit) && longest >= p.Run
}

// isJWT says that a text has the three parts of a signed token.
func isJWT(b []byte, from, to int) (int, int, bool) {
	parts := bytes.Split(b[from:to], []byte("."))
	if len(parts) < 3 || !bytes.HasPrefix(parts[1], []byte("eyJ")) {
		return 0, 0, false
	}
	n := 2
	for _, p := range parts[:3] {
		if len(p) < 10 {
			return 0, 0, false
		}
		n += len(p)
	}
	return from, from + n, true
}

// privateKey is a PEM block, with real line breaks or escaped ones.
func privateKey(b []byte, from, to int) (int, int, bool) {
	label := bytes.Index(b[to:min(to+64, len(b))], []byte("-----"))
	if label < 0 || !bytes.Contains(b[to:to+label], []byte("PRIVATE KEY")) {
		return 0, 0, false
	}
	body := to + label + 5
	rest := b[body:min(body+maxMatch-256, len(b))]
	end := len(rest)
	if i := bytes.Index(rest, []byte("-----END ")); i >= 0 {
		end = i
		if j := bytes.Index(rest[i+9:min(i+73, len(rest))], []byte("-----")); j >= 0 {
			i += 9 + j + 5
		}
		return from, body + i, solid(rest[:end])
	}
	set := chars("a-zA-Z0-9+/= \n\r\t\\:,.")
	for i, c := range rest {
		if !set[c] {
			end = i
			break
		}
	}
	return from, body + end, solid(rest[:end])
}

// solid says that a key's body is there, and not only spoken of.
func solid(body []byte) bool {
	n := 0
	for _, c := range body {
		if isWord(c) || c == '+' || c == '/' {
			n++
		}
	}
	return n >= 32
}

// chars reads a set such as "a-z0-9_-".
func chars(spec string) *charset {
	var set charset
	for i := 0; i < len(spec); i++ {
		lo, hi := spec[i], spec[i]
		if i+2 < len(spec) && spec[i+1] == '-' {
			hi = spec[i+2]
			i += 2
		}
		for c := int(lo); c <= int(hi); c++ {
			set[c] = true
		}
	}
	return &set
}
