package enter

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

func open(t *testing.T, job Job) (*Door, func(what string) net.Conn) {
	t.Helper()
	socket := filepath.Join(t.TempDir(), "out")
	d, err := Open(socket, job)
	require.NoError(t, err)
	t.Cleanup(func() { _ = d.Close() })
	return d, func(what string) net.Conn {
		c, err := net.Dial("unix", socket)
		require.NoError(t, err)
		t.Cleanup(func() { _ = c.Close() })
		_, err = io.WriteString(c, what)
		require.NoError(t, err)
		return c
	}
}

// heard is all that the host says.
func heard(c net.Conn) string {
	text, _ := io.ReadAll(c)
	return string(text)
}

func TestTheJobIsForTheFirstAlone(t *testing.T) {
	d, ask := open(t, Job{Argv: []string{"x"}, Env: []string{"TOKEN=1"}})
	first := bufio.NewReader(ask("hold\n"))
	start, err := first.ReadString('}')
	require.NoError(t, err)
	require.Contains(t, start, "TOKEN=1")
	require.Empty(t, heard(ask("hold\n")))
	d.End()
	line, err := first.ReadString('\n')
	require.NoError(t, err)
	require.Equal(t, "true\n", line, "to end is asked in a whole line")
}

func TestNothingStartsAfterTheEnd(t *testing.T) {
	d, ask := open(t, Job{Argv: []string{"x"}})
	d.End()
	require.Empty(t, heard(ask("hold\n")))
	entered, err := d.Started()
	require.False(t, entered)
	require.NoError(t, err)
}

func TestOnlyNamedPortsAreReached(t *testing.T) {
	l, err := net.Listen("tcp4", "127.0.0.1:0")
	require.NoError(t, err)
	defer l.Close()
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			_, _ = io.WriteString(c, "hello")
			_ = c.Close()
		}
	}()
	port := l.Addr().(*net.TCPAddr).Port
	d, ask := open(t, Job{Argv: []string{"x"}, Ports: []int{port}})
	named := ask(fmt.Sprintf("%d\n", port))
	require.NoError(t, named.(*net.UnixConn).CloseWrite())
	require.Equal(t, "hello", heard(named))
	for _, what := range []string{"22\n", "\n", "0\n", fmt.Sprintf("127.0.0.1:%d\n", port), fmt.Sprintf(" %d\n", port), fmt.Sprintf("%d\r\n", port), "a line that is longer than any port\n"} {
		require.Empty(t, heard(ask(what)), "%q", what)
	}
	require.NoError(t, d.Close())
	require.NoError(t, d.Close(), "again")
}
