package redact

import (
	"bytes"
	"errors"
	"io"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestWriterFindsSecretsAcrossChunks(t *testing.T) {
	secret := "s3cret-value-of-some-length"
	r := New(Options{Values: []string{secret}})
	rnd := rand.New(rand.NewPCG(1, 2))
	for range 20 {
		var text strings.Builder
		n := 0
		for text.Len() < 200<<10 {
			text.WriteString(strings.Repeat("line of output\n", rnd.IntN(400)))
			switch rnd.IntN(3) {
			case 0:
				text.WriteString(secret)
				n++
			case 1:
				text.WriteString(" " + token)
				n++
			}
		}
		want := r.String(text.String())
		var got bytes.Buffer
		w := r.Writer(&got)
		for rest := text.String(); rest != ""; {
			k := min(1+rnd.IntN(5000), len(rest))
			wrote, err := io.WriteString(w, rest[:k])
			require.NoError(t, err)
			require.Equal(t, k, wrote)
			assert.LessOrEqual(t, len(w.buf), r.longest+chunk+before)
			rest = rest[k:]
		}
		require.NoError(t, w.Close())
		require.Equal(t, want, got.String())
		assert.NotContains(t, got.String(), secret)
		total := 0
		for _, k := range w.Found() {
			total += k
		}
		assert.Equal(t, n, total)
	}
}

func TestWriterByteByByte(t *testing.T) {
	r := New(Options{Values: []string{"s3cret-value"}})
	var got bytes.Buffer
	w := r.Writer(&got)
	for _, c := range []byte(strings.Repeat("s3cret-s3cret-value|", 5000)) {
		_, err := w.Write([]byte{c})
		require.NoError(t, err)
	}
	require.NoError(t, w.Close())
	assert.Equal(t, strings.Repeat("s3cret-[redacted:value]|", 5000), got.String())
}

type failing struct{ left int }

func (f *failing) Write(p []byte) (int, error) {
	if f.left--; f.left < 0 {
		return 0, errors.New("disk full")
	}
	return len(p), nil
}

func TestWriterTellsOfAFailedWrite(t *testing.T) {
	w := New(Options{}).Writer(&failing{1})
	_, err := w.Write(make([]byte, 1<<20))
	assert.EqualError(t, err, "disk full")
	assert.EqualError(t, w.Close(), "disk full")
	var none *Redactor
	var out bytes.Buffer
	plain := none.Writer(&out)
	_, err = plain.Write([]byte("as it is"))
	require.NoError(t, err)
	assert.Equal(t, "as it is", out.String())
	require.NoError(t, plain.Close())
}

// FuzzRedactor holds that a known value is never left, JSON stays JSON, and
// streams agree with texts.
func FuzzRedactor(f *testing.F) {
	const secret = `c4nary/"value`
	r := New(Options{Values: []string{secret}})
	f.Add([]byte(`{"a":"x`), []byte(`y"}`), 3)
	f.Add([]byte("\\"), []byte("\\u0063"), 1)
	f.Fuzz(func(t *testing.T, left, right []byte, cut int) {
		text := append(append(append([]byte{}, left...), secret...), right...)
		out, found := r.Bytes(text)
		if bytes.Contains(out, []byte(secret)) || len(found) == 0 {
			t.Fatalf("left: %q", out)
		}
		for _, k := range found {
			if string(out[k.Offset:k.Offset+k.Length]) != Mark(k.Kind) {
				t.Fatalf("%+v in %q", k, out)
			}
		}
		var stream bytes.Buffer
		w := r.Writer(&stream)
		at := min(max(cut, 0), len(text))
		w.Write(text[:at])
		w.Write(text[at:])
		w.Close()
		if !bytes.Equal(stream.Bytes(), out) {
			t.Fatalf("%q, not %q", stream.Bytes(), out)
		}
		r.JSON(left)
		quoted := jsonForms(string(left) + secret + string(right))[0]
		clean, _ := r.JSON([]byte(`{"a":["` + quoted + `",1]}`))
		if bytes.Contains(clean, []byte(inner([]byte(`"c4nary/\"value"`)))) {
			t.Fatalf("left: %q", clean)
		}
		if d, _ := New(Options{}).JSON(clean); len(d) == 0 {
			t.Fatal("empty")
		}
	})
}
