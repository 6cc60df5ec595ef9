package redact

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"testing"
)

// sample is text as agents send it: JSON, prose, code and tool output.
func sample(b *testing.B) []byte {
	one, err := os.ReadFile("testdata/request.json")
	if err != nil {
		b.Fatal(err)
	}
	return bytes.Repeat(one, 1+1<<20/len(one))[:1<<20]
}

func secrets(n int) []string {
	out := make([]string, n)
	for i := range out {
		out[i] = fmt.Sprintf("s3cret-%x", uint64(i+1)*0x9E3779B97F4A7C15)
	}
	return out
}

func BenchmarkText(b *testing.B) {
	text := sample(b)
	for _, n := range []int{0, 10, 1000} {
		r := New(Options{Values: secrets(n)})
		b.Run(fmt.Sprintf("%d values", n), func(b *testing.B) {
			b.SetBytes(int64(len(text)))
			b.ReportAllocs()
			for b.Loop() {
				if r.all.find(text, nil, true) != nil {
					b.Fatal("the sample holds a secret")
				}
			}
		})
	}
}

func BenchmarkJSON(b *testing.B) {
	r := New(Options{Values: secrets(10)})
	text := append(append([]byte{'['}, bytes.Join(bytes.SplitAfter(sample(b), []byte("\n}")), []byte{','})...), ']')
	b.SetBytes(int64(len(text)))
	for b.Loop() {
		if !r.all.hides(text) {
			continue
		}
		b.Fatal("the sample holds a secret")
	}
}

func BenchmarkWriter(b *testing.B) {
	r := New(Options{Values: secrets(10)})
	text := sample(b)
	b.SetBytes(int64(len(text)))
	for b.Loop() {
		w := r.Writer(io.Discard)
		for i := 0; i < len(text); i += 4096 {
			w.Write(text[i : i+4096])
		}
		w.Close()
	}
}
