package redact

import (
	"net/url"
	"strings"
)

// minAmbient is the length of the shortest value of an environment variable
// that is taken for a secret by the variable's name alone.
const minAmbient = 8

// Environment gives the values of variables, as NAME=value, that look secret by
// their name: *_KEY, *_TOKEN, *_SECRET, *PASSWORD* and the like; and passwords
// in URLs. What is a path, a number or a short plain word is left out, for it
// would be found everywhere.
func Environment(environ []string) []string {
	var out []string
	for _, v := range environ {
		name, value, _ := strings.Cut(v, "=")
		value = strings.TrimSpace(value)
		if secretVariable(name) && telling(value) {
			out = append(out, value)
		}
		if u, err := url.Parse(value); err == nil && u.User != nil {
			if password, ok := u.User.Password(); ok && telling(password) {
				out = append(out, password)
			}
		}
	}
	return out
}

// Referenced leaves out of the values that a file refers to those that are no
// secrets by their looks: paths, numbers, and URLs without credentials.
func Referenced(values []string) []string {
	var out []string
	for _, v := range values {
		u, err := url.Parse(v)
		open := err == nil && (u.Scheme == "http" || u.Scheme == "https") && u.User == nil && u.RawQuery == ""
		if !open && !isPath(v) && !isNumber(v) {
			out = append(out, v)
		}
	}
	return out
}

func isPath(v string) bool {
	return strings.HasPrefix(v, "/") || strings.HasPrefix(v, "~/") || strings.HasPrefix(v, "./")
}

// isNumber says that a value is a number such as may stand anywhere.
func isNumber(v string) bool { return len(v) < 14 && strings.Trim(v, "0123456789.") == "" }

func secretVariable(name string) bool {
	name = strings.ToUpper(name)
	for _, end := range []string{"_KEY", "_TOKEN", "_SECRET", "_PASS", "_PASSWD", "_PASSPHRASE", "_CREDENTIALS", "_AUTH"} {
		if strings.HasSuffix(name, end) || name == end[1:] {
			return true
		}
	}
	for _, part := range []string{"PASSWORD", "SECRET", "ACCESS_KEY", "APIKEY", "OAUTH_TOKEN"} {
		if strings.Contains(name, part) {
			return true
		}
	}
	return false
}

// telling says that a value would hardly stand in a text by chance.
func telling(value string) bool {
	if len(value) < minAmbient || isPath(value) || isNumber(value) {
		return false
	}
	plain := true
	for _, c := range []byte(value) {
		plain = plain && (c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z')
	}
	return !plain || len(value) >= 14
}
