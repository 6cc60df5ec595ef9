package gateway_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/penstock-dev/penstock/core/gateway"
	"github.com/penstock-dev/penstock/core/trace"
	"github.com/penstock-dev/penstock/core/upstream"
	"github.com/penstock-dev/penstock/core/upstream/anthropic"
	"github.com/penstock-dev/penstock/core/upstream/openai"
	"github.com/penstock-dev/penstock/sdk/format"
)

// imageBodies are requests with an image by its URL, in each dialect.
var imageBodies = map[string]struct{ path, body string }{
	"anthropic":  {"/v1/messages", `{"model":"policy","max_tokens":9,"messages":[{"role":"user","content":[{"type":"text","text":"look"},{"type":"image","source":{"type":"url","url":%q}}]}]}`},
	"openaichat": {"/v1/chat/completions", `{"model":"policy","messages":[{"role":"user","content":[{"type":"text","text":"look"},{"type":"image_url","image_url":{"url":%q}}]}]}`},
	"responses":  {"/v1/responses", `{"model":"policy","input":[{"type":"message","role":"user","content":[{"type":"input_text","text":"look"},{"type":"input_image","image_url":%q}]}]}`},
	"gemini":     {"/v1beta/models/policy:generateContent", `{"contents":[{"role":"user","parts":[{"text":"look"},{"fileData":{"mimeType":"image/png","fileUri":%q}}]}]}`},
	"a result":   {"/v1/messages", `{"model":"policy","max_tokens":9,"messages":[{"role":"user","content":"a"},{"role":"assistant","content":[{"type":"tool_use","id":"t","name":"x","input":{}}]},{"role":"user","content":[{"type":"tool_result","tool_use_id":"t","content":[{"type":"image","source":{"type":"url","url":%q}}]}]}]}`},
}

// TestURLsOfImages: one that no server may be sent to is refused in every dialect,
// whatever the upstream, and recorded; any other goes on as it came.
func TestURLsOfImages(t *testing.T) {
	for u, ok := range map[string]bool{
		"https://example.com/a.png": true, "http://8.8.8.8/a.png?x=1#y": true, "https://[2606:4700::1111]/": true, "HTTPS://EXAMPLE.com:8443/": true,
		"https://metadata.example.com/": true, "https://xn--bcher-kva.example/": true, "https://1e100.net/": true,
		"http://169.254.169.254/latest/meta-data/": false, "http://0x7f.1/": false, "http://[::ffff:127.0.0.1]/": false, "http://127.0.0.1:8000/": false,
		"http://2130706433/": false, "http://127.1/": false, "http://0177.0.0.1/": false, "http://10.0.0.7/": false, "http://192.168.1.1./": false,
		"http://172.16.0.1/": false, "http://100.64.0.1/": false, "http://0.0.0.0/": false, "http://224.0.0.1/": false, "http://255.255.255.255/": false,
		"http://[::1]/": false, "http://[fe80::1%25eth0]/": false, "http://[fd00::1]/": false, "http://[::]/": false, "http://[64:ff9b::7f00:1]/": false,
		"http://[2002:7f00:1::]/": false, "http://[::127.0.0.1]/": false,
		"http://localhost/": false, "http://LOCALHOST./": false, "http://a.localhost:1/": false, "http://metadata.google.internal/": false,
		"http://gateway/": false, "http://printer.local/": false, "http://router.lan/": false, "http://①②⑦.0.0.1/": false, "http://example。com/": false,
		"file:///etc/passwd": false, "/etc/passwd": false, "etc/passwd": false, "ftp://example.com/a.png": false, "gopher://example.com/": false,
		"s3://bucket/key": false, "http:example.com": false, "http://": false, "http://%31%32%37.0.0.1/": false, "http://a b/": false, "": false,
	} {
		for name, q := range imageBodies {
			p := replies("", said)
			b := fronting(t, p)
			s := b.session(t)
			a := send(t, s, "POST", q.path, fmt.Sprintf(q.body, u))
			if !ok {
				assert.Equal(t, 400, a.status, "%s %s: %s", name, u, a.body)
				assert.NotEmpty(t, at(decoded(t, a.body), "error", "message"))
				assert.Empty(t, p.seen(), u)
				assert.Equal(t, trace.CallInvalid, b.store.only(t).Status)
				continue
			}
			if !assert.Equal(t, 200, a.status, "%s %s: %s", name, u, a.body) {
				continue
			}
			messages := p.seen()[0].Chat.Messages
			parts := messages[len(messages)-1].Parts
			image := parts[len(parts)-1]
			if len(image.Content) > 0 {
				image = image.Content[0]
			}
			assert.Equal(t, u, image.URL)
		}
	}
}

// TestImagesAreNeverFetched: a request that names images costs no connection but
// that to the upstream, and no look-up of a name; the table says what becomes of
// such an image on the way to each upstream.
func TestImagesAreNeverFetched(t *testing.T) {
	var looked atomic.Int32
	resolver := net.DefaultResolver
	net.DefaultResolver = &net.Resolver{PreferGo: true, Dial: func(context.Context, string, string) (net.Conn, error) {
		looked.Add(1)
		return nil, errors.New("no names here")
	}}
	t.Cleanup(func() { net.DefaultResolver = resolver })
	var fetched atomic.Int32
	host := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		fetched.Add(1)
		w.Header().Set("Content-Type", "image/png")
	}))
	defer host.Close()

	const picture = "https://images.example/a.png"
	var got string
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		got = string(body)
		w.WriteHeader(http.StatusTeapot) // what was sent is all that counts
	}))
	defer server.Close()
	options := openai.Options{BaseURL: server.URL, NoProbe: true}
	engine := func(kind string, own bool, capture string) upstream.Upstream {
		o := options
		o.Kind, o.OwnFormat, o.Capture = kind, own, capture
		u, err := openai.New(t.Context(), o)
		require.NoError(t, err)
		return u
	}
	claude, err := anthropic.New(t.Context(), anthropic.Options{BaseURL: server.URL, NoProbe: true})
	require.NoError(t, err)
	data, err := os.ReadFile(filepath.Join("..", "..", "plugins", "formats", "hermes.yaml"))
	require.NoError(t, err)
	spec, err := format.ParseSpec("hermes.yaml", data)
	require.NoError(t, err)
	hermes, err := format.New(spec)
	require.NoError(t, err)
	asURL := `{"type":"image","source":{"type":"url","url":"` + picture + `"}}`
	asImageURL := `{"type":"image_url","image_url":{"url":"` + picture + `"}}`
	for name, c := range map[string]struct {
		up      upstream.Upstream
		dialect string
		want    string // in what is sent, "" where the request is refused
	}{
		"anthropic, passed on":             {claude, "anthropic", asURL},
		"anthropic, of chat":               {claude, "openaichat", asURL},
		"anthropic, of responses":          {claude, "responses", asURL},
		"openai, passed on":                {engine("openai", false, "text"), "openaichat", asImageURL},
		"openai, of messages":              {engine("openai", false, "text"), "anthropic", asImageURL},
		"openai, in a result":              {engine("openai", false, "text"), "a result", asImageURL},
		"vllm, its own format":             {engine("vllm", false, "text"), "anthropic", asImageURL},
		"vllm, its own format, in results": {engine("vllm", false, "reported"), "a result", asImageURL},
		"sglang, its own format":           {engine("sglang", false, "reported"), "gemini", asImageURL},
		"lmdeploy, its own format":         {engine("lmdeploy", false, "text"), "anthropic", asImageURL},
		"vllm, a format of ours":           {engine("vllm", true, "text"), "anthropic", ""},
		"sglang, a format of ours":         {engine("sglang", true, "text"), "openaichat", ""},
		"a format of ours, in a result":    {engine("vllm", true, "text"), "a result", ""},
	} {
		t.Run(name, func(t *testing.T) {
			defer c.up.Close()
			got = ""
			b := start(t, nil, func(_ *gateway.Options, m *gateway.Model) {
				m.Upstream, m.Capture, m.Tokenizer = c.up, gateway.CaptureText, nil
				if upstream.InfoOf(c.up).Parses {
					m.Format, m.FormatName = nil, "upstream"
				} else {
					m.Format, m.FormatName = hermes, "hermes"
				}
				if strings.Contains(name, "reported") {
					m.Capture = gateway.CaptureReported
				}
			})
			q := imageBodies[c.dialect]
			a := send(t, b.session(t), "POST", q.path, fmt.Sprintf(q.body, picture))
			if c.want == "" {
				assert.Equal(t, 400, a.status, a.body)
				assert.Contains(t, a.body, "image")
				assert.Empty(t, got)
			} else {
				assert.Contains(t, got, c.want, a.body)
			}
			a = send(t, b.session(t), "POST", q.path, fmt.Sprintf(q.body, host.URL+"/a.png"))
			assert.Equal(t, 400, a.status)
		})
	}
	assert.Zero(t, fetched.Load(), "the server that a request named saw a connection")
	assert.Zero(t, looked.Load(), "a name was looked up")
}
