// Package median finds the middle of numbers.
package median

import "slices"

// Of returns the median of numbers, 0 of none. It leaves them in their order.
func Of(numbers []float64) float64 {
	if len(numbers) == 0 {
		return 0
	}
	sorted := slices.Sorted(slices.Values(numbers))
	return sorted[len(sorted)/2]
}
