package median

import "testing"

func TestOdd(t *testing.T) {
	if got := Of([]float64{9, 1, 5}); got != 5 {
		t.Errorf("got %v, want 5", got)
	}
}

func TestEven(t *testing.T) {
	if got := Of([]float64{8, 2, 6, 4}); got != 5 {
		t.Errorf("got %v, want 5", got)
	}
}

func TestNone(t *testing.T) {
	if got := Of(nil); got != 0 {
		t.Errorf("got %v, want 0", got)
	}
}
