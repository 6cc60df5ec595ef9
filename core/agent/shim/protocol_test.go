package shim

import (
	"bytes"
	"encoding/binary"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/penstock-dev/penstock/core/agent/landlock"
)

func orders() []*Order {
	return []*Order{
		{Path: "/bin/x", Dir: "/", Argv: []string{"x"}, Env: []string{}},
		{Path: "/bin/x", Dir: "/d\xff", Grace: time.Second, Argv: []string{"x", "", "\xff\n"}, Env: []string{"A=", "B=\xfe"}},
		{Path: "/bin/x", Argv: []string{"x"}, Env: []string{"A=1"}, Hide: []string{"/r"}, Keep: []string{"/r/w", "/r/h"}, View: []string{"/r/b"}},
		{Path: "/bin/x", Argv: []string{"x"}, Env: []string{"A=1"}, Hide: []string{"/r"}, Rules: &landlock.Rules{
			Files: true, Read: []string{"/usr"}, Write: []string{"/w", "/h"}, TCP: true, Ports: []int{1, 65535},
		}},
	}
}

func TestOrders(t *testing.T) {
	for _, o := range orders() {
		got, err := readOrder(bytes.NewReader(o.Encode()))
		require.NoError(t, err)
		require.Equal(t, o, got)
	}
	for _, body := range []string{"", "/bin/x", "/bin/x\x00/\x00x\x000\x000", "p\x00d\x000\x009\x00x\x000", "p\x00d\x000\x000\x000", "p\x00d\x000\x00-1\x000"} {
		b := append(binary.BigEndian.AppendUint32(nil, uint32(len(body))), body...)
		_, err := readOrder(bytes.NewReader(b))
		require.ErrorIs(t, err, errOrder, "%q", body)
	}
	_, err := readOrder(bytes.NewReader([]byte{0xff, 0xff, 0xff, 0xff}))
	require.ErrorIs(t, err, errOrder)
}

func TestReports(t *testing.T) {
	for _, r := range []Report{{Kind: Gone}, {Kind: Ended, Number: -1, Text: "SIGTERM"}, {Kind: Failed, Number: 2, Text: "a \"b\"\n"}} {
		got, err := ParseReport(string(bytes.TrimSuffix(r.encode(), []byte("\n"))))
		require.NoError(t, err)
		require.Equal(t, r, got)
	}
	for _, line := range []string{"", "gone", "gone x \"\"", "gone 1 x", "gone 1"} {
		_, err := ParseReport(line)
		require.Error(t, err, "%q", line)
	}
}

func FuzzReadOrder(f *testing.F) {
	for _, o := range orders() {
		f.Add(o.Encode())
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		o, err := readOrder(bytes.NewReader(b))
		if err != nil {
			return
		}
		back, err := readOrder(bytes.NewReader(o.Encode()))
		require.NoError(t, err)
		require.Equal(t, o, back)
	})
}

func FuzzParseReport(f *testing.F) {
	f.Add("ended -1 \"SIGTERM\"")
	f.Fuzz(func(t *testing.T, line string) {
		r, err := ParseReport(line)
		if err == nil {
			back, err := ParseReport(string(bytes.TrimSuffix(r.encode(), []byte("\n"))))
			require.NoError(t, err)
			require.Equal(t, r, back)
		}
	})
}
