package bedrock

import (
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"github.com/tidwall/gjson"

	"github.com/penstock-dev/penstock/core/upstream"
	"github.com/penstock-dev/penstock/core/upstream/anthropic"
	"github.com/penstock-dev/penstock/sdk/chat"
)

const model = "anthropic.claude-test-v1:0"

var signed = Credentials{AccessKeyID: keyID, SecretAccessKey: secret, SessionToken: token}

func open(t *testing.T, url string, c Credentials) upstream.Upstream {
	t.Helper()
	u, err := New(t.Context(), Options{Region: "eu-west-3", Credentials: c, Server: anthropic.Options{BaseURL: url, Model: model}})
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, u.Close()) })
	return u
}

type got struct {
	text, reasoning, call string
	raw                   string
	last                  upstream.Chunk
	err                   error
}

func generate(t *testing.T, u upstream.Upstream, r *upstream.Request) (g got) {
	t.Helper()
	s, err := u.Generate(t.Context(), r)
	if err != nil {
		return got{err: err}
	}
	defer func() { assert.NoError(t, s.Close()) }()
	for {
		c, err := s.Next()
		if err != nil {
			if !errors.Is(err, io.EOF) {
				g.err = err
			}
			return g
		}
		for _, d := range c.Deltas {
			switch d.Type {
			case chat.DeltaText:
				g.text += d.Text
			case chat.DeltaReasoning:
				g.reasoning += d.Text
			case chat.DeltaCallStart:
				g.call = d.Name + " "
			case chat.DeltaCallArgs:
				g.call += d.Text
			}
		}
		g.raw += string(c.Raw)
		g.last = c
	}
}

func talk(text string) *upstream.Request {
	most := 1000
	return &upstream.Request{Sampling: chat.Sampling{MaxTokens: &most}, Chat: &chat.Conversation{
		Messages: []chat.Message{{Role: chat.User, Parts: []chat.Part{{Type: chat.Text, Text: text}}}},
		Tools:    []chat.Tool{{Name: "calculator", Parameters: []byte(`{"type":"object","properties":{"expression":{"type":"string"}}}`)}},
	}}
}

// TestAReplyComesThroughFrames: signed or with a key, whole reply, tool call and
// counts arrive.
func TestAReplyComesThroughFrames(t *testing.T) {
	for name, c := range map[string]Credentials{"signed": signed, "key": {APIKey: apiKey}} {
		t.Run(name, func(t *testing.T) {
			s, url := stand(t)
			u := open(t, url, c)
			assert.Equal(t, "bedrock", u.Kind())
			g := generate(t, u, talk("What is 23+19?"))
			require.NoError(t, g.err)
			assert.Equal(t, `calculator {"expression": "23+19"}`, g.call)
			assert.Contains(t, g.reasoning, "Add them: é")
			assert.Contains(t, g.text, "Let me see.")
			assert.Equal(t, chat.FinishToolCalls, g.last.Finish.Reason)
			assert.Positive(t, g.last.PromptTokens)
			assert.Positive(t, g.last.OutputTokens)
			assert.Equal(t, []string{"/model/anthropic.claude-test-v1%3A0/invoke-with-response-stream"}, s.paths)

			n, err := u.(upstream.Counter).Count(t.Context(), talk("What is 23+19?"))
			require.NoError(t, err)
			assert.Equal(t, g.last.PromptTokens, n, "count-tokens agrees with the usage")
		})
	}
}

// TestAClientsOwnRequest: what a client of the Messages API wrote goes out as it
// is, but for what Bedrock has elsewhere.
func TestAClientsOwnRequest(t *testing.T) {
	s, url := stand(t)
	u := open(t, url, signed)
	for _, streams := range []string{"true", "false"} {
		r := talk("hi")
		r.Sampling = chat.Sampling{}
		r.Raw = &upstream.RawRequest{
			Dialect: anthropic.Dialect, Query: "beta=true", Stream: streams == "true",
			Header: http.Header{"Anthropic-Beta": {"a-2025,b-2026"}, "Anthropic-Version": {"2023-06-01"}, "Authorization": {"Bearer session"}},
			Body:   []byte(`{"max_tokens":99, "model":"asked", "stream":` + streams + `, "messages":[{"role":"user","content":"hi"}], "x":12345678901234567890}`),
		}
		g := generate(t, u, r)
		require.NoError(t, g.err)
		assert.Equal(t, "héllo wörld", g.text)
		assert.JSONEq(t, `{"max_tokens":99,"messages":[{"role":"user","content":"hi"}],"x":12345678901234567890,"anthropic_version":"bedrock-2023-05-31","anthropic_beta":["a-2025","b-2026"]}`, s.body)
		assert.Contains(t, s.body, "12345678901234567890")
		assert.Contains(t, g.raw, "hél", "the bytes for a client of the dialect")
		assert.Equal(t, r.Raw.Stream, strings.HasPrefix(g.raw, "event: message_start\ndata: "))
	}
	assert.Equal(t, []string{"/model/anthropic.claude-test-v1%3A0/invoke-with-response-stream", "/model/anthropic.claude-test-v1%3A0/invoke"}, s.paths)
}

func TestAnArnIsOnePartOfThePath(t *testing.T) {
	assert.Equal(t, "arn%3Aaws%3Abedrock%3Aus-east-1%3A1%3Aapplication-inference-profile%2Fa1", escape("arn:aws:bedrock:us-east-1:1:application-inference-profile/a1"))
}

// TestFaults: a refusal keeps its status and the time to wait, a broken stream
// never ends as a whole one, and no message shows a secret.
func TestFaults(t *testing.T) {
	s, url := stand(t)
	s.status = http.StatusTooManyRequests
	g := generate(t, open(t, url, signed), talk("hi"))
	var refused *upstream.StatusError
	require.ErrorAs(t, g.err, &refused)
	assert.Equal(t, 429, refused.Status)
	assert.Equal(t, 7, refused.RetryAfter)
	assert.Contains(t, refused.Message, "Too many tokens")
	s.status = 0

	wrong := signed
	wrong.SecretAccessKey = "another secret of some length"
	g = generate(t, open(t, url, wrong), talk("hi"))
	require.ErrorAs(t, g.err, &refused)
	assert.Equal(t, 403, refused.Status)
	assert.Contains(t, refused.Message, "does not match")

	for broken, want := range map[string]string{"cut": "unexpected EOF", "crc": "frame", "exception": "throttlingException: Too many requests."} {
		s.broken = broken
		g := generate(t, open(t, url, signed), talk("hi"))
		require.ErrorContains(t, g.err, want, broken)
		assert.Empty(t, g.last.Finish)
		for _, hidden := range []string{secret, token} {
			assert.NotContains(t, g.err.Error(), hidden)
		}
	}
}

// TestOptions: what is missing is said by its name, before anything is sent.
func TestOptions(t *testing.T) {
	for want, o := range map[string]Options{
		"no credentials":                                     {Region: "us-east-1"},
		"both api_key and access_key_id":                     {Region: "us-east-1", Credentials: Credentials{APIKey: "k", AccessKeyID: "a", SecretAccessKey: "s"}},
		"secret_access_key is missing or empty":              {Region: "us-east-1", Credentials: Credentials{AccessKeyID: "a", SecretAccessKey: " "}},
		"access_key_id is missing or empty":                  {Region: "us-east-1", Credentials: Credentials{SecretAccessKey: "s"}},
		"api_key is empty":                                   {Region: "us-east-1", Credentials: Credentials{APIKey: " "}},
		"region is missing":                                  {Credentials: signed},
		`region is "Paris", want`:                            {Region: "Paris", Credentials: signed},
		"upstream bedrock: a thinking budget of 9 tokens is": {Region: "us-east-1", Credentials: signed, Server: anthropic.Options{ThinkingBudget: 9}},
	} {
		_, err := New(t.Context(), o)
		assert.ErrorContains(t, err, want)
	}
	u, err := New(t.Context(), Options{Region: "us-east-1", Credentials: signed})
	require.NoError(t, err)
	assert.Equal(t, "bedrock at https://bedrock-runtime.us-east-1.amazonaws.com", upstream.InfoOf(u).Server)
}

// FuzzFrames: whatever comes in place of a stream ends, without a panic, and
// what comes out is server-sent events.
func FuzzFrames(f *testing.F) {
	for _, seed := range []string{"", "abc", "\x00\x00\x00\x10\x00\x00\x00\x00\x05\xc2\x48\xeb\x00\x00\x00\x00"} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		r, err := unframed(&http.Response{Header: http.Header{"Content-Type": {"application/vnd.amazon.eventstream"}}, Body: io.NopCloser(strings.NewReader(string(data)))})
		require.NoError(t, err)
		out, _ := io.ReadAll(r.Body)
		for _, block := range strings.Split(strings.TrimSuffix(string(out), "\n\n"), "\n\n") {
			if _, text, ok := strings.Cut("\n"+block, "\ndata: "); block != "" && (!ok || !gjson.Valid(text)) {
				t.Fatalf("no event: %q", block)
			}
		}
	})
}
