package shim

// Packages strings and bytes are initialized too late for the shim: see init.
// These few stand in for what it needs of them.

// cut cuts a text at the first separator.
func cut(text string, separator byte) (before, after string) {
	for i := range len(text) {
		if text[i] == separator {
			return text[:i], text[i+1:]
		}
	}
	return text, ""
}

// split cuts a text at each separator.
func split(text string, separator byte) []string {
	var list []string
	start := 0
	for i := range len(text) {
		if text[i] == separator {
			list = append(list, text[start:i])
			start = i + 1
		}
	}
	return append(list, text[start:])
}

// afterLast is what follows the last separator, or all.
func afterLast(text string, separator byte) string {
	for i := len(text) - 1; i >= 0; i-- {
		if text[i] == separator {
			return text[i+1:]
		}
	}
	return text
}
