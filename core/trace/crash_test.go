package trace

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

const crashEnv = "PENSTOCK_TEST_CRASH_STORE"

func TestMain(m *testing.M) {
	if path := os.Getenv(crashEnv); path != "" {
		writeUntilKilled(path)
		return
	}
	os.Exit(m.Run())
}

// writeUntilKilled writes calls of four sessions at once and says the id of
// each when the store has acknowledged it.
func writeUntilKilled(path string) {
	s, err := Open(path, StoreOptions{})
	if err != nil {
		panic(err)
	}
	said := make(chan string)
	for i := range 4 {
		go func() {
			for seq := 1; ; seq++ {
				c := talk(fmt.Sprintf("s-%d", i), seq)
				if err := s.PutCall(context.Background(), c); err != nil {
					panic(err)
				}
				said <- c.ID
			}
		}()
	}
	for id := range said {
		fmt.Println(id)
	}
}

func TestKilledWriterLosesNothingAcknowledged(t *testing.T) {
	for range 3 {
		path := filepath.Join(t.TempDir(), "penstock.db")
		cmd := exec.Command(os.Args[0])
		cmd.Env = append(os.Environ(), crashEnv+"="+path)
		out, err := cmd.StdoutPipe()
		require.NoError(t, err)
		require.NoError(t, cmd.Start())
		var said []string
		lines := bufio.NewScanner(out)
		for lines.Scan() {
			if said = append(said, lines.Text()); len(said) == 1 {
				kill := time.AfterFunc(time.Duration(rand.IntN(200))*time.Millisecond, func() { cmd.Process.Kill() })
				defer kill.Stop()
			}
		}
		require.Error(t, cmd.Wait(), "it was killed")
		require.NotEmpty(t, said)

		s, err := Open(path, StoreOptions{})
		require.NoError(t, err)
		there := map[string]bool{}
		for i := range 4 {
			session := fmt.Sprintf("s-%d", i)
			calls, err := s.Calls(context.Background(), session)
			require.NoError(t, err)
			for _, c := range calls {
				there[c.ID] = true
				equalCalls(t, talk(session, c.Seq), c)
			}
		}
		for _, id := range said[:len(said)-1] { // the last line may be cut
			assert.True(t, there[id], "call %s was acknowledged", id)
		}
		require.NoError(t, s.Close())
	}
}

// Whatever becomes of the bytes in the store, reading ends with an error or
// with a call, never with a panic.
func FuzzDamagedCall(f *testing.F) {
	s, _ := openStore(f, StoreOptions{})
	p, err := s.packCall(talk("s", 3), nil)
	require.NoError(f, err)
	f.Add(p.body)
	raw, err := s.codec.unpack(p.body)
	require.NoError(f, err)
	f.Add(append([]byte{plain}, raw...))
	f.Add(append([]byte{plain}, bytes.Repeat([]byte{secIDs, 3, 200, 1}, 9)...))
	f.Fuzz(func(t *testing.T, body []byte) {
		r := newRestorer(context.Background(), s)
		r.calls["base"] = &restored{call: &Call{Prompt: "abc", Raw: "d"}, ids: []int32{1, 2}, messages: []key{{1}}}
		for _, base := range []string{"", "base"} {
			if v, err := r.call("s.3", base, body); err == nil && v.call.ID != "s.3" {
				t.Fatal("another call")
			}
		}
	})
}

func FuzzDamagedChat(f *testing.F) {
	f.Add([]byte(`{"role":"user","parts":[{"type":"text","text":"\u0000eA"}]}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		var r Rollout
		var c Call
		decode(b, &r)
		decode(b, &c)
	})
}

func TestDamagedStoreIsAnError(t *testing.T) {
	s, _ := openStore(t, StoreOptions{})
	ctx := context.Background()
	require.NoError(t, s.PutCall(ctx, talk("s-1", 1)))
	require.NoError(t, s.PutCall(ctx, talk("s-1", 2)))
	for _, damage := range []string{
		"UPDATE calls SET body = x'01ffff' WHERE seq = 2",
		"UPDATE calls SET body = x'' WHERE seq = 2",
		"UPDATE calls SET body = (SELECT body FROM calls WHERE seq = 1) WHERE seq = 2",
		"DELETE FROM calls WHERE seq = 1",
		"DELETE FROM blobs",
	} {
		require.NoError(t, s.write(ctx, func(t *tx) error {
			_, err := t.exec(damage)
			return err
		}))
		_, err := s.Calls(ctx, "s-1")
		assert.ErrorIs(t, err, errDamaged, damage)
	}
}
