package answer

import (
	"math/big"
	"regexp"
	"slices"
	"strings"
	"unicode"
)

// normalizers bring two spellings of one answer together.
var normalizers = map[string]func(string) string{
	"trim":        strings.TrimSpace,
	"lower":       strings.ToLower,
	"spaces":      func(s string) string { return strings.Join(strings.Fields(s), " ") },
	"punctuation": withoutPunctuation,
	"articles":    withoutArticles,
	"number":      plainNumber,
}

func normalize(text string, steps []string) string {
	for _, name := range steps {
		text = normalizers[name](text)
	}
	return text
}

func withoutPunctuation(s string) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsPunct(r) || unicode.IsSymbol(r) {
			return -1
		}
		return r
	}, s)
}

// withoutArticles drops a, an and the, and with them the shape of the spaces.
func withoutArticles(s string) string {
	return strings.Join(slices.DeleteFunc(strings.Fields(s), func(w string) bool {
		switch strings.ToLower(w) {
		case "a", "an", "the":
			return true
		}
		return false
	}), " ")
}

// plainNumber writes a number as a whole number or a fraction in lowest
// terms. What is no number stays as it is.
func plainNumber(s string) string {
	v, ok := number(s)
	if !ok {
		return s
	}
	if v.IsInt() {
		return v.Num().String()
	}
	return v.String()
}

const (
	maxDigits   = 1000 // of a number
	maxExponent = 4    // digits of its exponent
)

var (
	decimal  = regexp.MustCompile(`^[-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?(\d+))?$`)
	grouped  = regexp.MustCompile(`^[-+]?\d{1,3}(?:,\d{3})+(?:\.\d*)?$`)
	texFrac  = regexp.MustCompile(`^([-+]?)\\[dt]?frac\s*\{([^{}]+)\}\s*\{([^{}]+)\}$`)
	currency = "$€£¥"
)

// number reads a number as people and models write it: a sign, thousands with
// commas, a currency before it, a full stop after it, a fraction, or \frac.
// NaN and infinities are no numbers, and neither is a number with a unit.
func number(s string) (*big.Rat, bool) {
	s = strings.TrimSuffix(strings.TrimSpace(s), ".")
	s = strings.TrimSpace(strings.TrimSuffix(strings.TrimPrefix(s, "$"), "$"))
	s = strings.NewReplacer("−", "-", `\$`, "", `\,`, "", "{,}", ",").Replace(s)
	if sign, rest := sign(s); rest != "" {
		s = sign + strings.TrimSpace(strings.TrimLeft(rest, currency))
	}
	if len(s) > maxDigits {
		return nil, false
	}
	if m := texFrac.FindStringSubmatch(s); m != nil {
		return fraction(m[1], m[2], m[3])
	}
	if a, b, ok := strings.Cut(s, "/"); ok {
		return fraction("", a, b)
	}
	return single(s)
}

func sign(s string) (string, string) {
	if s != "" && (s[0] == '-' || s[0] == '+') {
		return s[:1], s[1:]
	}
	return "", s
}

func fraction(sign, a, b string) (*big.Rat, bool) {
	x, okX := single(strings.TrimSpace(a))
	y, okY := single(strings.TrimSpace(b))
	if !okX || !okY || y.Sign() == 0 {
		return nil, false
	}
	v := x.Quo(x, y)
	if sign == "-" {
		v.Neg(v)
	}
	return v, true
}

func single(s string) (*big.Rat, bool) {
	if grouped.MatchString(s) {
		s = strings.ReplaceAll(s, ",", "")
	}
	m := decimal.FindStringSubmatch(s)
	if m == nil || len(m[1]) > maxExponent {
		return nil, false
	}
	return new(big.Rat).SetString(strings.TrimSuffix(s, "."))
}
