package bedrock

import (
	"bufio"
	"bytes"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws/protocol/eventstream"
	"github.com/stretchr/testify/require"
	"github.com/tidwall/gjson"

	"github.com/penstock-dev/penstock/core/dev/engine"
	"github.com/penstock-dev/penstock/core/upstream/exchange"
	"github.com/penstock-dev/penstock/core/upstream/script"
)

const (
	keyID  = "AKIDEXAMPLEEXAMPLE00"
	secret = "wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY"
	token  = "temporary/session+token=="
	apiKey = "bedrock-api-key-0123456789"
)

const rules = `penstock: script/v1
defaults: { chunk: 4 }
rules:
  - when: { last: 'What is (\d+)\+(\d+)' }
    reply: |-
      <think>
      Add them: é
      </think>

      Let me see.
      <tool_call>
      {"name": "calculator", "arguments": {"expression": "$1+$2"}}
      </tool_call>
otherwise: { reply: "héllo wörld" }
`

// standIn is Bedrock: it checks each request as AWS does, has a stand-in for the
// Messages API answer it, and writes the answer in frames.
type standIn struct {
	t      *testing.T
	inner  *engine.Engine
	status int    // answered in place of a reply, with message
	broken string // cut, crc or exception: how a stream ends after its second frame

	mu    sync.Mutex
	paths []string
	body  string // the last one
}

func stand(t *testing.T) (*standIn, string) {
	t.Helper()
	rulesOf, err := script.Parse([]byte(rules))
	require.NoError(t, err)
	e, err := engine.New(engine.Options{Kind: engine.Anthropic, Script: rulesOf, Model: "anthropic.claude-test-v1:0"})
	require.NoError(t, err)
	s := &standIn{t: t, inner: e}
	server := httptest.NewServer(s)
	t.Cleanup(func() {
		server.CloseClientConnections()
		server.Close()
		require.NoError(t, e.Close())
	})
	return s, server.URL
}

func (s *standIn) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		panic(err)
	}
	s.mu.Lock()
	s.paths, s.body = append(s.paths, r.URL.EscapedPath()), string(body)
	s.mu.Unlock()
	if why := unauthorized(r, body); why != "" {
		refuse(w, http.StatusForbidden, why)
		return
	}
	if s.status != 0 {
		w.Header().Set("Retry-After", "7")
		refuse(w, s.status, "Too many tokens, please wait before trying again.")
		return
	}
	parts := strings.Split(strings.TrimPrefix(r.URL.EscapedPath(), "/"), "/")
	if len(parts) != 3 || parts[0] != "model" {
		refuse(w, http.StatusNotFound, "no such route: "+r.URL.EscapedPath())
		return
	}
	id, err := url.PathUnescape(parts[1])
	if err != nil {
		panic(err)
	}
	if parts[2] == count {
		if body, err = base64.StdEncoding.DecodeString(gjson.GetBytes(body, "input.invokeModel.body").String()); err != nil || len(body) == 0 {
			refuse(w, http.StatusBadRequest, "input.invokeModel.body is missing")
			return
		}
	}
	if why := strange(body); why != "" {
		refuse(w, http.StatusBadRequest, why)
		return
	}
	s.answer(w, r, id, parts[2], body)
}

// strange says what of a body Bedrock doesn't take.
func strange(body []byte) string {
	for _, key := range []string{"model", "stream"} {
		if gjson.GetBytes(body, key).Exists() {
			return key + ": Extra inputs are not permitted"
		}
	}
	if gjson.GetBytes(body, "anthropic_version").String() != "bedrock-2023-05-31" {
		return "anthropic_version: Field required"
	}
	return ""
}

func refuse(w http.ResponseWriter, status int, message string) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	fmt.Fprintf(w, `{"message":%q}`, message)
}

func (s *standIn) answer(w http.ResponseWriter, r *http.Request, id, action string, body []byte) {
	set := []exchange.Field{{Name: "anthropic_version"}, {Name: "anthropic_beta"}, {Name: "model", Value: exchange.AppendString(nil, id)}}
	path := "/v1/messages"
	switch action {
	case stream:
		set = append(set, exchange.Field{Name: "stream", Value: []byte("true")})
	case count:
		path += "/count_tokens"
	}
	body, err := exchange.Splice(body, set)
	require.NoError(s.t, err)
	inner := httptest.NewRequest(http.MethodPost, path, bytes.NewReader(body)).WithContext(r.Context())
	inner.Header.Set("Anthropic-Version", "2023-06-01")
	answer := httptest.NewRecorder()
	s.inner.ServeHTTP(answer, inner)
	switch {
	case answer.Code != http.StatusOK:
		refuse(w, answer.Code, gjson.Get(answer.Body.String(), "error.message").String())
	case action == count:
		fmt.Fprintf(w, `{"inputTokens":%d}`, gjson.Get(answer.Body.String(), "input_tokens").Int())
	case action == invoke:
		w.Header().Set("Content-Type", "application/json")
		_, _ = w.Write(answer.Body.Bytes())
	default:
		s.frames(w, answer.Body)
	}
}

// frames writes each event of a stream in a frame of its own.
func (s *standIn) frames(w http.ResponseWriter, events io.Reader) {
	w.Header().Set("Content-Type", "application/vnd.amazon.eventstream")
	lines := bufio.NewScanner(events)
	lines.Buffer(nil, 1<<20)
	for n := 0; lines.Scan(); {
		data, ok := strings.CutPrefix(lines.Text(), "data: ")
		if !ok {
			continue
		}
		payload := fmt.Sprintf(`{"bytes":%q,"p":"abcd"}`, base64.StdEncoding.EncodeToString([]byte(data)))
		frame := encoded(s.t, "event", ":event-type", "chunk", payload)
		if n++; n == 3 {
			switch s.broken {
			case "cut":
				_, _ = w.Write(frame[:len(frame)/2])
				return
			case "crc":
				frame[len(frame)-1] ^= 1
			case "exception":
				frame = encoded(s.t, "exception", ":exception-type", "throttlingException", `{"message":"Too many requests."}`)
			}
		}
		_, _ = w.Write(frame)
		w.(http.Flusher).Flush()
	}
}

func encoded(t *testing.T, kind, header, name, payload string) []byte {
	var h eventstream.Headers
	h.Set(":message-type", eventstream.StringValue(kind))
	h.Set(header, eventstream.StringValue(name))
	h.Set(":content-type", eventstream.StringValue("application/json"))
	var b bytes.Buffer
	require.NoError(t, eventstream.NewEncoder().Encode(&b, eventstream.Message{Headers: h, Payload: []byte(payload)}))
	return b.Bytes()
}

// unauthorized checks a signature by the steps of
// https://docs.aws.amazon.com/IAM/latest/UserGuide/create-signed-request.html,
// from what came over the wire, "" if it holds.
func unauthorized(r *http.Request, body []byte) string {
	given := r.Header.Get("Authorization")
	if given == "Bearer "+apiKey {
		return ""
	}
	rest, ok := strings.CutPrefix(given, "AWS4-HMAC-SHA256 Credential="+keyID+"/")
	if !ok {
		return "The security token included in the request is invalid."
	}
	field := func(name string) string {
		_, v, _ := strings.Cut(rest, name+"=")
		v, _, _ = strings.Cut(v, ",")
		return v
	}
	scope, _, _ := strings.Cut(rest, ",")
	parts := strings.Split(scope, "/") // date/region/service/aws4_request
	names := strings.Split(field("SignedHeaders"), ";")
	if !slices.Contains(names, "host") || r.Header.Get("X-Amz-Security-Token") != token {
		return "The security token included in the request is invalid."
	}
	var segments []string
	for _, segment := range strings.Split(r.URL.EscapedPath(), "/") {
		segments = append(segments, strings.ReplaceAll(url.QueryEscape(segment), "+", "%20"))
	}
	sum := sha256.Sum256(body)
	canonical := r.Method + "\n" + strings.Join(segments, "/") + "\n" + r.URL.RawQuery + "\n"
	for _, name := range names {
		value := r.Header.Get(name)
		switch name {
		case "host":
			value = r.Host
		case "content-length":
			value = fmt.Sprint(r.ContentLength)
		}
		canonical += name + ":" + strings.TrimSpace(value) + "\n"
	}
	canonical += "\n" + strings.Join(names, ";") + "\n" + hex.EncodeToString(sum[:])
	sum = sha256.Sum256([]byte(canonical))
	key := []byte("AWS4" + secret)
	for _, part := range parts {
		key = mac(key, part)
	}
	want := hex.EncodeToString(mac(key, "AWS4-HMAC-SHA256\n"+r.Header.Get("X-Amz-Date")+"\n"+scope+"\n"+hex.EncodeToString(sum[:])))
	if want != field("Signature") {
		return "The request signature we calculated does not match the signature you provided."
	}
	return ""
}

func mac(key []byte, text string) []byte {
	h := hmac.New(sha256.New, key)
	h.Write([]byte(text))
	return h.Sum(nil)
}
