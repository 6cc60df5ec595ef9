package notify

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

var message = Message{ID: "p-1", JSON: []byte(`{"park":"p-1"}`)}

func TestCommandGetsTheMessage(t *testing.T) {
	out := filepath.Join(t.TempDir(), "out")
	require.NoError(t, Send(t.Context(), Target{Command: []string{"sh", "-c", `cat > "$0"; echo " $PENSTOCK_NOTIFY_ID" >> "$0"`, out}}, message))
	b, err := os.ReadFile(out)
	require.NoError(t, err)
	assert.Equal(t, `{"park":"p-1"}`+"\n p-1\n", string(b))
}

func TestCommandThatFailsSaysWhy(t *testing.T) {
	count := filepath.Join(t.TempDir(), "count")
	err := Send(t.Context(), Target{Command: []string{"sh", "-c", `echo x >> "$0"; echo no way >&2; exit 3`, count}}, message)
	require.ErrorContains(t, err, "notify command sh: exit status 3: no way")
	b, _ := os.ReadFile(count)
	assert.Equal(t, "x\nx\nx\n", string(b), "it is tried three times")
}

func TestWebhookIsTriedAgain(t *testing.T) {
	var asked atomic.Int32
	var body, key string
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if asked.Add(1) == 1 {
			w.WriteHeader(http.StatusServiceUnavailable)
			return
		}
		b, _ := io.ReadAll(r.Body)
		body, key = string(b), r.Header.Get("Idempotency-Key")
	}))
	defer s.Close()
	require.NoError(t, Send(t.Context(), Target{Webhook: s.URL}, message))
	assert.Equal(t, int32(2), asked.Load())
	assert.Equal(t, `{"park":"p-1"}`, body)
	assert.Equal(t, "p-1", key)
}

func TestWebhookErrorsNameNoAddress(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	err := Send(ctx, Target{Webhook: "http://127.0.0.1:1/secret"}, message)
	require.Error(t, err)
	assert.NotContains(t, err.Error(), "secret")
}

func TestFileGetsAMessageOnce(t *testing.T) {
	path := filepath.Join(t.TempDir(), "parks.jsonl")
	require.NoError(t, os.WriteFile(path, []byte("cut off"), 0o600))
	other := Message{ID: "p-2", JSON: []byte(`{"park":"p-2"}`)}
	for _, m := range []Message{message, other, message, other} {
		require.NoError(t, Send(t.Context(), Target{File: path}, m))
	}
	b, err := os.ReadFile(path)
	require.NoError(t, err)
	assert.Equal(t, "cut off\n"+`{"park":"p-1"}`+"\n"+`{"park":"p-2"}`+"\n", string(b))
}
