package answer

import (
	"regexp"
	"strings"
)

// extractors find the answer in the final text. Each takes the last place of
// its kind, as models correct themselves.
var extractors = map[string]func(text string) (answer string, found bool){
	"boxed":        boxed,
	"answer":       tagged,
	"final_answer": finalAnswer,
	"hashes":       hashes,
	"last_number":  lastNumber,
	"text":         whole,
}

func whole(text string) (string, bool) {
	return text, strings.TrimSpace(text) != ""
}

// boxed takes the last \boxed{…} (or \fbox{…}) whose braces are balanced.
func boxed(text string) (string, bool) {
	for end := len(text); end > 0; {
		at := max(strings.LastIndex(text[:end], `\boxed`), strings.LastIndex(text[:end], `\fbox`))
		if at < 0 {
			return "", false
		}
		end = at
		open := strings.IndexByte(text[at:], '{')
		if open < 0 || strings.TrimSpace(strings.TrimPrefix(strings.TrimPrefix(text[at:at+open], `\boxed`), `\fbox`)) != "" {
			continue
		}
		if inner, ok := balanced(text[at+open:]); ok {
			return inner, true
		}
	}
	return "", false
}

// balanced returns what is inside the braces that text begins with. A brace
// after a backslash is a character like any other.
func balanced(text string) (string, bool) {
	depth := 0
	for i := 0; i < len(text); i++ {
		switch text[i] {
		case '\\':
			i++
		case '{':
			depth++
		case '}':
			if depth--; depth == 0 {
				return text[1:i], true
			}
		}
	}
	return "", false
}

// tagged takes the last <answer>…</answer>.
func tagged(text string) (string, bool) {
	lower := asciiLower(text)
	end := strings.LastIndex(lower, "</answer>")
	if end < 0 {
		return "", false
	}
	start := strings.LastIndex(lower[:end], "<answer>")
	if start < 0 {
		return "", false
	}
	return text[start+len("<answer>") : end], true
}

// asciiLower keeps the length, so that offsets fit the original.
func asciiLower(text string) string {
	b := []byte(text)
	for i, c := range b {
		if c >= 'A' && c <= 'Z' {
			b[i] = c + 'a' - 'A'
		}
	}
	return string(b)
}

var finalMark = regexp.MustCompile(`(?i)\bfinal answer\b[*_` + "`" + `]*\s*(?:is\b|[:：=])[*_` + "`" + `]*`)

// finalAnswer takes what follows the last "final answer:" on its line, or on
// the next line that has text.
func finalAnswer(text string) (string, bool) {
	all := finalMark.FindAllStringIndex(text, -1)
	for i := len(all) - 1; i >= 0; i-- {
		rest := strings.TrimLeft(text[all[i][1]:], " \t\r\n:")
		line, _, _ := strings.Cut(rest, "\n")
		line, _, _ = strings.Cut(line, ". I hope it is correct") // as some models are taught to end
		line = strings.Trim(line, " \t\r*_`")
		if line != "" {
			return strings.TrimSuffix(line, "."), true
		}
	}
	return "", false
}

// hashes takes what follows the last line that begins with ####.
func hashes(text string) (string, bool) {
	for text != "" {
		from := strings.LastIndexByte(text, '\n') + 1
		line := strings.TrimSpace(text[from:])
		if rest, ok := strings.CutPrefix(line, "####"); ok && !strings.HasPrefix(rest, "#") && strings.TrimSpace(rest) != "" {
			return strings.TrimSpace(rest), true
		}
		text = text[:max(from-1, 0)]
	}
	return "", false
}

var numbers = regexp.MustCompile(`(?:\d+(?:,\d{3})+|\d+)(?:\.\d+)?(?:[eE][-+]?\d+)?|\.\d+`)

// lastNumber takes the last number. A sign belongs to it unless it stands
// between two things, as in 7-5.
func lastNumber(text string) (string, bool) {
	all := numbers.FindAllStringIndex(text, -1)
	if len(all) == 0 {
		return "", false
	}
	at := all[len(all)-1]
	before := text[:at[0]]
	for _, sign := range []string{"-", "−"} {
		rest, ok := strings.CutSuffix(before, sign)
		if ok && (rest == "" || !strings.ContainsAny(rest[len(rest)-1:], "0123456789)]}abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ")) {
			return "-" + text[at[0]:at[1]], true
		}
	}
	return text[at[0]:at[1]], true
}
