package pipeline

import (
	"sort"
	"strings"
)

// manyNames are more than a message lists.
const manyNames = 24

// suggest is the hint "did you mean 'x'?" for a name that isn't one of names;
// without a near one it lists them, as far as they are few.
func suggest(what, got string, names []string) string {
	if near := nearest(got, names); near != "" {
		return "did you mean '" + near + "'?"
	}
	if len(names) == 0 || len(names) > manyNames {
		return ""
	}
	return what + strings.Join(names, ", ")
}

// Suggest says which of some names another one most likely stands for, or lists
// them.
func Suggest(got string, names []string) string { return suggest("it has: ", got, names) }

// nearest is the name that a mistyped one most likely stands for, or "".
func nearest(got string, names []string) string {
	best, least := "", max(1, (len(got)+1)/3)+1
	sorted := append([]string(nil), names...)
	sort.Strings(sorted)
	for _, n := range sorted {
		if n == got {
			continue
		}
		d := distance(strings.ToLower(got), strings.ToLower(n))
		if len(got) >= 3 && d > 1 && (strings.HasPrefix(n, got) || strings.HasPrefix(got, n) && len(n) >= 3) {
			d = 1
		}
		if d < least && d < len(n) {
			best, least = n, d
		}
	}
	return best
}

// distance is the number of edits between two words, a swap of neighbours
// being one.
func distance(a, b string) int {
	if len(a) > 64 || len(b) > 64 {
		return 64
	}
	var before []int
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := 1; i <= len(a); i++ {
		next := make([]int, len(b)+1)
		next[0] = i
		for j := 1; j <= len(b); j++ {
			cost := 1
			if a[i-1] == b[j-1] {
				cost = 0
			}
			next[j] = min(row[j]+1, next[j-1]+1, row[j-1]+cost)
			if i > 1 && j > 1 && a[i-1] == b[j-2] && a[i-2] == b[j-1] {
				next[j] = min(next[j], before[j-2]+1)
			}
		}
		before, row = row, next
	}
	return row[len(b)]
}
